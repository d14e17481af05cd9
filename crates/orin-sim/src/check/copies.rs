//! The checks of the copy engine and of uploads through the pushbuffer.

use super::finding::{Accessing, Finding, Kind, NearObject};
use super::grid::name;
use super::{Checker, Tools, mapped};
use crate::mmu::{Access, View};

/// Lines of bytes: those of one side of a transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    pub(crate) va: u64,
    /// Distance between lines in bytes.
    pub(crate) pitch: u64,
    /// Length of a line in bytes.
    pub(crate) bytes: u64,
    pub(crate) count: u32,
}

impl Rows {
    /// The lines as ranges: one if they follow each other without gaps.
    fn ranges(self) -> impl Iterator<Item = (u64, u64)> {
        let (count, bytes) = if self.pitch == self.bytes || self.count == 1 {
            (1, self.bytes.saturating_mul(self.count.into()))
        } else {
            (self.count, self.bytes)
        };
        (0..u64::from(count)).map(move |line| (self.va.wrapping_add(line.wrapping_mul(self.pitch)), bytes))
    }
}

impl Checker {
    /// Holds one side of a transfer against the objects. `unit` names the engine.
    pub(crate) fn transfer(&self, view: &View, unit: &'static str, rows: Rows, access: Access) {
        let space = view.space();
        if rows.bytes == 0 || !self.tools().contains(Tools::MEMCHECK) {
            return;
        }
        let managed = self.objects().is_managed(space);
        for (va, bytes) in rows.ranges() {
            let wrong = if managed {
                match self.objects().find_any(space, va) {
                    Ok(end) if va.saturating_add(bytes) <= end => None,
                    Ok(end) => Some((end, Kind::OutOfBounds)),
                    Err(kind) => Some((va, kind)),
                }
            } else {
                mapped::beyond(view, va, bytes).map(|address| (address, Kind::OutOfBounds))
            };
            if let Some((address, kind)) = wrong {
                let object = if managed {
                    self.objects().nearest(space, address)
                } else {
                    mapped::nearest(view, address)
                };
                self.wrong_transfer(unit, (va, bytes), access, (address, kind), object);
            }
        }
    }

    /// Reports a transfer whose bytes from `address` on are wrong.
    fn wrong_transfer(
        &self,
        unit: &'static str,
        (va, bytes): (u64, u64),
        access: Access,
        (address, kind): (u64, Kind),
        object: Option<NearObject>,
    ) {
        // One finding per object.
        let cause =
            object.as_ref().map_or(address, |object| object.va) ^ u64::from(access == Access::Read) << 63;
        self.add(kind, cause, 1, || {
            let what = name(access);
            let how = if kind == Kind::UseAfterFree { "of a freed object" } else { "out of bounds" };
            let message = format!("{unit}: {what} of {bytes} bytes at {va:#x} {how}, from {address:#x} on");
            let last = va.saturating_add(bytes - 1);
            let access = Accessing { what: what.into(), space: "global".into(), bytes: 0, address, last };
            Finding { access: Some(access), object, ..Finding::new(kind, message) }
        });
    }

    /// Records the bytes that a transfer writes. The state of unwritten source bytes is copied where both sides are
    /// single ranges of equal length.
    pub(crate) fn transferred(&self, view: &View, source: Option<Rows>, target: Rows) {
        if !self.tools().contains(Tools::INITCHECK) {
            return;
        }
        let space = view.space();
        for (line, (va, bytes)) in (0..).zip(target.ranges()) {
            let Some((written, start)) = self.objects().written(space, va) else { continue };
            let from = source.and_then(|source| source.ranges().nth(line)).filter(|(_, from)| *from == bytes);
            let tracked = from.and_then(|(from, _)| Some((from, self.objects().written(space, from)?)));
            match tracked {
                Some((from, (source, base))) => {
                    let cpu = |offset| source.are_written(view, base + offset, offset, 1);
                    written.copy(va - start, &source, from - base, bytes, cpu);
                }
                None => written.set(va - start, bytes),
            }
        }
    }
}
