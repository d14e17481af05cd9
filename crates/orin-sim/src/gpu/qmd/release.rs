//! The releases of a launch descriptor: semaphores written at the end of its grid.

use ampere_cmd::qmd::{Field, QmdV3_0, v3_0 as q};
use ampere_cmd::words::join;

use super::{Checked, fail};
use crate::gpu::semaphore::{Operation, Reduction, SemaphoreWrite, Structure};

/// The effect of one release at the grid's end.
#[derive(Clone, Copy, Debug)]
pub(in crate::gpu) struct Release {
    pub(in crate::gpu) write: SemaphoreWrite,
    pub(in crate::gpu) interrupt: bool,
}

/// The releases of a descriptor; `None` if not enabled.
///
/// # Errors
///
/// The reason why a release is invalid.
pub(super) fn releases(descriptor: &QmdV3_0) -> Checked<[Option<Release>; 3]> {
    let mut releases = [None; 3];
    for (release, fields) in releases.iter_mut().zip(&RELEASES) {
        *release = self::release(descriptor, fields)?;
    }
    Ok(releases)
}

fn release(descriptor: &QmdV3_0, fields: &Fields) -> Checked<Option<Release>> {
    let get = |field| descriptor.get(field);
    // CAST: no field crosses a word.
    let get32 = |field| descriptor.get(field) as u32;
    if get(fields.enable) == 0 {
        return Ok(None);
    }
    let name = fields.enable.info().name;
    let structure = match get(fields.structure_size) {
        q::RELEASE0_STRUCTURE_SIZE_SEMAPHORE_FOUR_WORDS => Structure::FourWords,
        q::RELEASE0_STRUCTURE_SIZE_SEMAPHORE_ONE_WORD => Structure::OneWord,
        q::RELEASE0_STRUCTURE_SIZE_SEMAPHORE_TWO_WORDS => Structure::TwoWords,
        size => return fail(None, format!("{name}: structure size {size} does not exist")),
    };
    let interrupt = match get(fields.trap_type) {
        q::RELEASE0_TRAP_TYPE_TRAP_NONE => false,
        q::RELEASE0_TRAP_TYPE_TRAP_UNCONDITIONAL => true,
        trap => return fail(None, format!("{name}: trap type {trap} is not modelled")),
    };
    let reduction = if get(fields.reduction_enable) == 0 {
        None
    } else {
        let operation =
            fields.reduction_op.info().value_name(get32(fields.reduction_op)).and_then(Operation::named);
        let signed = match get(fields.reduction_format) {
            q::RELEASE0_REDUCTION_FORMAT_UNSIGNED => Some(false),
            q::RELEASE0_REDUCTION_FORMAT_SIGNED => Some(true),
            _ => None,
        };
        let (Some(operation), Some(signed)) = (operation, signed) else {
            return fail(None, format!("{name}: there is no such reduction"));
        };
        Some(Reduction { operation, signed })
    };
    let wide = get(fields.payload64b) != 0;
    let payload = join(get32(fields.payload_upper), get32(fields.payload_lower));
    let write = SemaphoreWrite {
        va: join(get32(fields.address_upper), get32(fields.address_lower)),
        // CAST: the lower half.
        payload: if wide { payload } else { u64::from(payload as u32) },
        wide,
        structure,
        reduction,
    };
    match write.refusal() {
        Some(reason) => fail(None, format!("{name}: semaphore at {:#x}: {reason}", write.va)),
        None => Ok(Some(Release { write, interrupt })),
    }
}

/// The fields of one release.
struct Fields {
    enable: Field<q::Layout>,
    address_upper: Field<q::Layout>,
    address_lower: Field<q::Layout>,
    payload_upper: Field<q::Layout>,
    payload_lower: Field<q::Layout>,
    payload64b: Field<q::Layout>,
    structure_size: Field<q::Layout>,
    reduction_enable: Field<q::Layout>,
    reduction_op: Field<q::Layout>,
    reduction_format: Field<q::Layout>,
    trap_type: Field<q::Layout>,
}

const RELEASES: [Fields; 3] = [
    Fields {
        enable: q::RELEASE0_ENABLE,
        address_upper: q::RELEASE0_ADDRESS_UPPER,
        address_lower: q::RELEASE0_ADDRESS_LOWER,
        payload_upper: q::RELEASE0_PAYLOAD_UPPER,
        payload_lower: q::RELEASE0_PAYLOAD_LOWER,
        payload64b: q::RELEASE0_PAYLOAD64B,
        structure_size: q::RELEASE0_STRUCTURE_SIZE,
        reduction_enable: q::RELEASE0_REDUCTION_ENABLE,
        reduction_op: q::RELEASE0_REDUCTION_OP,
        reduction_format: q::RELEASE0_REDUCTION_FORMAT,
        trap_type: q::RELEASE0_TRAP_TYPE,
    },
    Fields {
        enable: q::RELEASE1_ENABLE,
        address_upper: q::RELEASE1_ADDRESS_UPPER,
        address_lower: q::RELEASE1_ADDRESS_LOWER,
        payload_upper: q::RELEASE1_PAYLOAD_UPPER,
        payload_lower: q::RELEASE1_PAYLOAD_LOWER,
        payload64b: q::RELEASE1_PAYLOAD64B,
        structure_size: q::RELEASE1_STRUCTURE_SIZE,
        reduction_enable: q::RELEASE1_REDUCTION_ENABLE,
        reduction_op: q::RELEASE1_REDUCTION_OP,
        reduction_format: q::RELEASE1_REDUCTION_FORMAT,
        trap_type: q::RELEASE1_TRAP_TYPE,
    },
    Fields {
        enable: q::RELEASE2_ENABLE,
        address_upper: q::RELEASE2_ADDRESS_UPPER,
        address_lower: q::RELEASE2_ADDRESS_LOWER,
        payload_upper: q::RELEASE2_PAYLOAD_UPPER,
        payload_lower: q::RELEASE2_PAYLOAD_LOWER,
        payload64b: q::RELEASE2_PAYLOAD64B,
        structure_size: q::RELEASE2_STRUCTURE_SIZE,
        reduction_enable: q::RELEASE2_REDUCTION_ENABLE,
        reduction_op: q::RELEASE2_REDUCTION_OP,
        reduction_format: q::RELEASE2_REDUCTION_FORMAT,
        trap_type: q::RELEASE2_TRAP_TYPE,
    },
];
