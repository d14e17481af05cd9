//! Padding of structs, for initcheck: nothing writes it, but kernels copy it with the struct.
//!
//! A load that was written in part is no error if the code reads none of the unwritten words, or only stores them to
//! global or shared memory. Unoptimised code stores by generic addresses. There the store decides: a copy in local
//! memory is a variable that the code computes with.
//!
//! Unoptimised code copies a struct word by word: it loads all words, then stores them. There the words next to the
//! loaded one tell a struct with padding from a variable.

use core::array;

use sass::{Instruction, Op, PT, RZ, Source, field};

use super::fate::{self, Fate};
use super::grid::GridCheck;
use super::init::Written;
use super::request::{Request, Scope, Site};
use crate::mmu::{Access, View};
use crate::sm::Space;

/// Longest distance between two loads of one copy, in bytes of code.
const REACH: u64 = 128 * 16;

/// A load with unwritten words that a generic store copies.
#[derive(Debug)]
struct Load {
    pc: u64,
    warp: u32,
    request: Request,
    /// First of its registers.
    register: u8,
}

/// The loads of a block that wait for the store.
#[derive(Debug, Default)]
pub(super) struct Loads(Vec<Load>);

/// The fate of the unwritten words of a load at `va`, `offset` bytes into the object.
#[cold]
pub(super) fn fate_of(
    grid: &GridCheck,
    written: &Written,
    request: &Request,
    (va, offset): (u64, u64),
    pc: u64,
) -> Fate {
    if request.access != Access::Read || request.strong != Scope::Own {
        return Fate::Used;
    }
    let bytes = u64::from(request.bytes);
    let are = |from: u64, len: u64| written.are_written(&grid.view, va + from, offset + from, len);
    let unwritten = (0..bytes).step_by(4).filter(|word| !are(*word, bytes.min(4)));
    let fate = unwritten.map(|word| grid.fate(pc, va + word)).max().unwrap_or(Fate::Used);
    let written_in_part = |from: u64| {
        (0..bytes).any(|byte| written.are_written(&grid.view, from + byte, offset + from + byte - va, 1))
    };
    if fate == Fate::Unread {
        return fate;
    }
    let [below, above] = if bytes == 4 { grid.neighbours(pc) } else { [false; 2] };
    // The padding in front of an aligned double word, or at its end.
    let in_part = written_in_part(va) || below && va % 8 == 4 && offset >= 4 && written_in_part(va - 4);
    match fate {
        _ if !in_part => Fate::Used,
        Fate::Moved if below || above => Fate::Copied,
        fate => fate,
    }
}

/// Whether the code around the load of a word at `pc` also loads the words below and above it, with nothing but
/// computations in between.
pub(super) fn neighbours(view: &View, pc: u64) -> [bool; 2] {
    let within = |at: u64| {
        let plain = |i: &Instruction| matches!(i.op, Op::Ld | Op::R2ur) || fate::computes(i);
        fate::fetch(view, at).filter(|i| plain(i) && i.guard.index == PT)
    };
    let mut at = pc;
    while pc - at < REACH && within(at.wrapping_sub(16)).is_some() {
        at -= 16;
    }
    // A register's value: its origin, a register at the start or an instruction, plus an offset.
    let mut values: [(u64, i64); 256] = array::from_fn(|register| (register as u64, 0));
    let (mut own, mut loads) = (None, Vec::new());
    while at < pc + REACH
        && let Some(i) = within(at)
    {
        let (origin, offset) = values[usize::from(i.a)];
        if i.op == Op::Ld && i.written().1 == 1 {
            let field = if i.bit(field::UNIFORM) { field::OFFSET } else { field::LONG_OFFSET };
            let place = (origin, offset.wrapping_add(i.signed(field)));
            loads.push(place);
            own = own.or((at == pc).then_some(place));
        }
        let result = match (i.op, i.b, i.c) {
            (Op::Mov, Source::Register(from), _) => values[usize::from(from)],
            // CAST: a signed operand.
            (Op::Iadd3, Source::Immediate(more), Source::Register(RZ)) if !i.bit(field::EXTENDED) => {
                (origin, offset + i64::from(more as i32))
            }
            _ => (at, 0),
        };
        for (first, count) in [i.written(), i.written_too()] {
            for register in first..first.saturating_add(count) {
                values[usize::from(register)] = result;
            }
        }
        at += 16;
    }
    let has =
        |distance: i64| own.is_some_and(|(origin, offset)| loads.contains(&(origin, offset + distance)));
    [has(-4), has(4)]
}

impl Loads {
    pub(super) fn start(&mut self) {
        self.0.clear();
    }

    /// Adds a load of lanes whose unwritten words a generic store copies.
    #[cold]
    pub(super) fn add(&mut self, grid: &GridCheck, request: Request, site: &Site<'_>) {
        let Some(i) = fate::fetch(&grid.view, site.pc) else { return };
        self.0.retain(|load| (load.pc, load.warp) != (site.pc, site.warp));
        self.0.push(Load { pc: site.pc, warp: site.warp, request, register: i.written().0 });
    }

    /// Examines a store. Returns the loads whose registers it copies to local memory, with their instructions.
    #[inline]
    pub(super) fn stored(
        &mut self,
        grid: &GridCheck,
        request: &Request,
        site: &Site<'_>,
    ) -> Vec<(Request, u64)> {
        if self.0.is_empty() || request.access != Access::Write {
            return Vec::new();
        }
        let Some(i) = fate::fetch(&grid.view, site.pc) else { return Vec::new() };
        let copies = |load: &mut Load| {
            let mut registers = load.register..load.register.saturating_add(4);
            load.warp == site.warp
                && registers.any(|register| fate::stored(&i, register) == Some(Fate::Moved))
        };
        let copied = self.0.extract_if(.., copies).filter(|_| request.space == Space::Local);
        let lanes = request.mask;
        let copied =
            copied.map(|load| (Request { mask: load.request.mask & lanes, ..load.request }, load.pc));
        copied.filter(|(load, _)| load.mask != 0).collect()
    }
}
