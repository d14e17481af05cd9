//! Padding of structs, for initcheck: nothing writes it, but kernels copy it with the struct.
//!
//! A load that was written in part is no error if the code reads none of the unwritten words, or only stores them to
//! global or shared memory. Unoptimised code stores by generic addresses. There the store decides: a copy in local
//! memory is a variable that the code computes with.

use super::fate::{self, Fate};
use super::grid::GridCheck;
use super::init::Written;
use super::request::{Request, Scope, Site};
use crate::mmu::Access;
use crate::sm::Space;

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
    let in_part = (0..bytes).any(|byte| are(byte, 1));
    if in_part || fate == Fate::Unread { fate } else { Fate::Used }
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
