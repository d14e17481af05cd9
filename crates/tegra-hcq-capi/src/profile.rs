//! Profiles: times of recorded operations.

use core::ffi::c_char;
use std::ffi::CString;
use std::sync::Arc;

use tegra_hcq::{Profile, Work};

use crate::handle::{TABLE, share};
use crate::object::{Kind, Object};
use crate::pass;
use crate::status::{Failure, Status, c_text, guard};
use crate::types::{tegra_hcq_dim3, tegra_hcq_profile, tegra_hcq_span, tegra_hcq_work};

/// A profile with its texts as C strings.
#[derive(Debug)]
pub(crate) struct ProfileObject {
    profile: Profile,
    names: Vec<CString>,
    table: CString,
}

impl ProfileObject {
    pub(crate) fn new(profile: Profile) -> Self {
        let names = profile.spans.iter().map(|span| c_text(&span.work.name())).collect();
        let table = c_text(&profile.table());
        Self { profile, names, table }
    }
}

fn profile(handle: *mut tegra_hcq_profile) -> Result<Arc<ProfileObject>, Failure> {
    share(handle.addr() as u64, Kind::Profile, |object| match object {
        Object::Profile(_, profile) => Some(profile),
        _ => None,
    })
}

/// Number of operations in a profile. Thread-safe.
///
/// # Safety
///
/// `count` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_profile_span_count(
    profile: *mut tegra_hcq_profile,
    count: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let count = unsafe { pass::out(count, "count")? };
        count.put(self::profile(profile)?.profile.spans.len());
        Ok(())
    })
}

/// Fills `*span`, whose `struct_size` the caller has set, with operation `index`. Thread-safe.
///
/// # Safety
///
/// `span` is NULL or valid for reads and writes of `struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_profile_span(
    profile: *mut tegra_hcq_profile,
    index: usize,
    span: *mut tegra_hcq_span,
) -> Status {
    guard(|| {
        let object = self::profile(profile)?;
        let (Some(found), Some(name)) = (object.profile.spans.get(index), object.names.get(index)) else {
            let len = object.names.len();
            return Err(Failure::argument(format!("there is no operation {index}, the profile has {len}")));
        };
        let zero = tegra_hcq_dim3 { x: 0, y: 0, z: 0 };
        let (work, bytes, grid, block) = match &found.work {
            Work::Launch { grid, block, .. } => (tegra_hcq_work::Launch, 0, (*grid).into(), (*block).into()),
            Work::Copy { bytes } => (tegra_hcq_work::Copy, *bytes, zero, zero),
            Work::Fill { bytes } => (tegra_hcq_work::Fill, *bytes, zero, zero),
            Work::Graph { .. } => (tegra_hcq_work::Graph, 0, zero, zero),
            _ => (tegra_hcq_work::Other, 0, zero, zero),
        };
        let value = tegra_hcq_span {
            struct_size: 0,
            work: work as u32,
            name: name.as_ptr(),
            called_ns: found.called,
            submitted_ns: found.submitted,
            start_ns: found.start,
            end_ns: found.end,
            bytes,
            grid,
            block,
            queue: u32::try_from(found.queue).unwrap_or(u32::MAX),
            step: found.step.map_or(-1, |step| i32::try_from(step).unwrap_or(i32::MAX)),
        };
        // SAFETY: the caller's promise.
        unsafe { pass::put_sized(span, value, "span") }
    })
}

/// The profile as a table for people: lines of UTF-8. `*text` is valid until the profile is freed. Thread-safe.
///
/// # Safety
///
/// `text` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_profile_table(
    profile: *mut tegra_hcq_profile,
    text: *mut *const c_char,
) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let text = unsafe { pass::out(text, "text")? };
        text.put(self::profile(profile)?.table.as_ptr());
        Ok(())
    })
}

/// Writes the profile to a file that Perfetto and Chrome open. Thread-safe.
///
/// # Safety
///
/// `path` is NULL or a string that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_profile_write_trace(
    profile: *mut tegra_hcq_profile,
    path: *const c_char,
) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let path = unsafe { pass::text(path, "path")? };
        Ok(self::profile(profile)?.profile.write_chrome_trace(path)?)
    })
}

/// Frees a profile. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn tegra_hcq_profile_free(profile: *mut tegra_hcq_profile) -> Status {
    guard(|| TABLE.remove(profile.addr() as u64, Kind::Profile))
}
