//! Lookups in textures, and accesses of surfaces.
//!
//! Sources of a lookup are the number of the layer, the coordinates, the handle if it is in a register, and the level,
//! in this order; A and B hold them as the modifier SCR says. Results go to D and to the register above the slot, two
//! and two. Kernels of CUDA give every lookup a level: -32 stands for the first one.

use std::sync::Arc;

use sass::{Instruction, Op, field};

use super::memory::Format;
use super::{Context, Outcome, Trap, atomic, lanes};
use crate::sm::SmFaultCause;
use crate::sm::space::Space;
use crate::sm::texture::{Bound, Coordinates, Failure, Level, Outside, Spot};
use crate::sm::warp::Warp;

/// Dimensions of a lookup: axes, whether it is a direction, whether there are layers.
const DIMENSIONS: [(usize, bool, bool); 8] = [
    (1, false, false),
    (2, false, false),
    (3, false, false),
    (3, true, false),
    (1, false, true),
    (2, false, true),
    (2, false, true),
    (3, true, true),
];

/// Sources of a lookup of one lane.
#[derive(Clone, Copy, Debug, Default)]
struct Sources {
    layer: u32,
    at: [u32; 3],
    handle: u32,
    level: Option<u32>,
}

impl Context<'_> {
    /// The handle of a bound texture; `None` if it is in a register.
    fn bound_handle(&self, i: &Instruction) -> Result<Option<u32>, SmFaultCause> {
        let in_register = match i.op {
            Op::Sured => i.form == 1,
            Op::Suld | Op::Sust => i.form == 4,
            _ => i.form == 1,
        };
        if in_register {
            return Ok(None);
        }
        self.constants.word(i.register(field::BANK), 4 * i.bits(field::HANDLE_OFFSET)).map(Some)
    }

    /// The texture that a handle names.
    fn texture(&mut self, i: &Instruction, handle: u32) -> Result<Arc<Bound>, SmFaultCause> {
        let tables = self.launch.textures;
        let mut cache = core::mem::take(&mut self.port.textures);
        let found = cache.find(&tables, self.port, handle);
        self.port.textures = cache;
        found.map_err(|failure| cause(i, handle, failure))
    }
}

fn cause(i: &Instruction, handle: u32, failure: Failure) -> SmFaultCause {
    match failure {
        Failure::Fault(cause) => cause,
        Failure::Refused(reason) => SmFaultCause::Texture { mnemonic: i.mnemonic(), handle, reason },
    }
}

/// The sources of a lane, and what is left of them.
fn sources(warp: &Warp, i: &Instruction, lane: usize, bound: Option<u32>) -> Sources {
    let (axes, _, layered) = DIMENSIONS[i.bits(field::DIMENSIONS) as usize];
    let level = matches!(i.op, Op::Tex | Op::Tld) && i.bits(field::TEXTURE_LEVEL) == 3;
    let coordinates = axes + usize::from(layered);
    let count = coordinates + usize::from(bound.is_none()) + usize::from(level);
    let in_a = match (i.op, i.bit(field::SCORES), count) {
        (Op::Txd, ..) => count,
        (_, false, _) => coordinates,
        (_, true, 1 | 2) => 1,
        _ => 2,
    };
    let b = i.register(field::SLOT_REGISTER);
    let mut next = (0..count).map(|at| {
        // CAST: at most 5 sources.
        let (register, step) = if at < in_a { (i.a, at as u8) } else { (b, (at - in_a) as u8) };
        warp.row(Warp::next(register, step))[lane]
    });
    // The iterator has a value for each source that the operation has.
    let mut take = || next.next().unwrap_or_default();
    let mut found = Sources { handle: bound.unwrap_or_default(), ..Sources::default() };
    if i.op == Op::Txd {
        if bound.is_none() {
            found.handle = take();
        }
        found.at[..axes].fill_with(&mut take);
        if layered {
            found.layer = take();
        }
        return found;
    }
    if layered {
        found.layer = take();
    }
    found.at[..axes].fill_with(&mut take);
    if bound.is_none() {
        found.handle = take();
    }
    found.level = level.then(take);
    found
}

/// The level of a lookup with derivatives: the logarithm of the longer one, in texels.
fn derived(warp: &Warp, i: &Instruction, lane: usize, axes: usize, size: [u32; 4]) -> f32 {
    let b = i.register(field::SLOT_REGISTER);
    let mut longest = 0.0_f64;
    for direction in 0..2 {
        let mut square = 0.0;
        for (axis, &size) in size.iter().enumerate().take(axes) {
            // CAST: at most 6 sources.
            let bits = warp.row(Warp::next(b, (2 * axis + direction) as u8))[lane];
            let texels = f64::from(f32::from_bits(bits)) * f64::from(size);
            square += texels * texels;
        }
        longest = longest.max(square);
    }
    // CAST: rounded.
    (longest.log2() / 2.0) as f32
}

/// TEX, TLD, TLD4, TXD.
pub(super) fn look_up(context: &mut Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let bound = context.bound_handle(i)?;
    let (axes, cube, layered) = DIMENSIONS[i.bits(field::DIMENSIONS) as usize];
    let mut out = [[0; 32]; 4];
    for lane in lanes(active) {
        let from = sources(warp, i, lane, bound);
        let result = look_up_one(context, warp, i, lane, &from, (axes, cube, layered));
        let values = result.map_err(|cause| Trap { lane: Some(lane), cause })?;
        for (row, value) in out.iter_mut().zip(values) {
            row[lane] = value;
        }
    }
    give_back(warp, i, active, &out);
    Ok(())
}

fn look_up_one(
    context: &mut Context,
    warp: &Warp,
    i: &Instruction,
    lane: usize,
    from: &Sources,
    (axes, cube, layered): (usize, bool, bool),
) -> Result<[u32; 4], SmFaultCause> {
    let texture = context.texture(i, from.handle)?;
    let place = Coordinates { at: from.at.map(f32::from_bits), layer: from.layer, axes, cube, layered };
    let found = match i.op {
        Op::Tld => texture.fetch(context.port, from.at, from.layer, from.level.unwrap_or_default()),
        Op::Tld4 => texture.gather(context.port, place, i.bits(field::TEXTURE_COMPONENT) as usize),
        Op::Txd => {
            let level = derived(warp, i, lane, axes, texture.dimensions(0));
            texture.look_up(context.port, place, Level::Number(level))
        }
        _ => {
            let level = from.level.map_or(Level::First, |level| Level::Number(f32::from_bits(level)));
            texture.look_up(context.port, place, level)
        }
    };
    found.map_err(|failure| cause(i, from.handle, failure))
}

/// Writes the components that the instruction returns.
fn give_back(warp: &mut Warp, i: &Instruction, active: u32, out: &[[u32; 32]; 4]) {
    let mask = i.bits(field::COMPONENTS);
    let targets = [(i.d, 0), (i.d, 1), (i.register(field::UPPER), 0), (i.register(field::UPPER), 1)];
    let components = (0..4).filter(|component| mask >> component & 1 != 0);
    for (component, (register, step)) in components.zip(targets) {
        warp.write(Warp::next(register, step), active, &out[component]);
    }
}

/// TXQ: the size of a level.
pub(super) fn query(context: &mut Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let bound = context.bound_handle(i)?;
    let mut out = [[0; 32]; 4];
    for lane in lanes(active) {
        let first = warp.row(i.a)[lane];
        let (handle, level) = match bound {
            Some(handle) => (handle, first),
            None => (first, warp.row(Warp::next(i.a, 1))[lane]),
        };
        let texture = context.texture(i, handle).map_err(|cause| Trap { lane: Some(lane), cause })?;
        for (row, value) in out.iter_mut().zip(texture.dimensions(level)) {
            row[lane] = value;
        }
    }
    give_back(warp, i, active, &out);
    Ok(())
}

/// The address of a surface access of a lane; `None` if it does nothing.
fn spot(
    context: &mut Context,
    warp: &Warp,
    i: &Instruction,
    lane: usize,
    bound: Option<u32>,
    bytes: u32,
) -> Result<Option<u64>, SmFaultCause> {
    // CAST: two's complement.
    let at = |step: u8| warp.row(Warp::next(i.a, step))[lane] as i32;
    // 1D, buffers, layers of 1D, 2D, layers of 2D, 3D.
    let (y, z) = match i.bits(field::DIMENSIONS) {
        0 => (0, 0),
        2 => (0, at(1)),
        3 => (at(1), 0),
        _ => (at(1), at(2)),
    };
    let outside = match i.bits(field::SURFACE_TRAP) {
        0 => Outside::Ignored,
        1 => Outside::Clamped,
        _ => Outside::Trap,
    };
    let handle = bound.unwrap_or_else(|| warp.row(i.register(field::UPPER))[lane]);
    let x = at(0);
    // CAST: two's complement keeps the low bits.
    if !(x as u32).is_multiple_of(bytes) {
        return Err(SmFaultCause::MisalignedAddress { va: u64::from(x as u32), bytes });
    }
    let surface = context.texture(i, handle)?;
    surface.spot(Spot { x, y, z, bytes, outside }).map_err(|refusal| cause(i, handle, refusal.into()))
}

/// SULD and SUST.
pub(super) fn surface(context: &mut Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let bound = context.bound_handle(i)?;
    let format = Format::of(i);
    let data = i.register(field::SLOT_REGISTER);
    let mut out = [[0; 32]; 4];
    for lane in lanes(active) {
        let found = spot(context, warp, i, lane, bound, format.bytes);
        let Some(va) = found.map_err(|cause| Trap { lane: Some(lane), cause })? else { continue };
        if i.op == Op::Suld {
            let words = context.load(warp, lane, (Space::Global, va), format)?;
            for (row, word) in out.iter_mut().zip(words) {
                row[lane] = word;
            }
        } else {
            // CAST: 0 to 3.
            let words = core::array::from_fn(|step| match step < usize::from(format.words()) {
                true => warp.row(Warp::next(data, step as u8))[lane],
                false => 0,
            });
            context.store(warp, lane, (Space::Global, va), format, words)?;
        }
    }
    if i.op == Op::Suld {
        for step in 0..format.words() {
            warp.write(Warp::next(i.d, step), active, &out[usize::from(step)]);
        }
    }
    Ok(())
}

/// SURED.
pub(super) fn reduce(context: &mut Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let bound = context.bound_handle(i)?;
    let bytes = atomic::surface_bytes(i)?;
    for lane in lanes(active) {
        let found = spot(context, warp, i, lane, bound, bytes);
        if let Some(va) = found.map_err(|cause| Trap { lane: Some(lane), cause })? {
            atomic::reduce_at(context, warp, i, lane, va)?;
        }
    }
    Ok(())
}
