//! The checks of a running grid, and what its instructions access.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use sass::Op;

use super::fate::{self, Fate};
use super::finding::{Accessing, Finding, Kind, Located, NearObject, Worker};
use super::objects::Extent;
use super::program::{Image, Variable};
use super::race::GridRace;
use super::request::name;
use super::watcher::Pointer;
use super::{Checker, Tools, calls, mapped, padding};
use crate::mmu::{FaultKind, View};
use crate::sm::{ConstantBank, Launch, SmFault, SmFaultCause};

/// Offset of the initial stack pointer in constant bank 0: code begins with `MOV R1, c[0x0][0x28]`.
const STACK_POINTER: u32 = 0x28;

/// The checks of a grid.
#[derive(Debug)]
pub(crate) struct GridCheck {
    pub(super) checker: Checker,
    pub(super) view: View,
    /// The launch, with the exact size of its shared memory if that is known.
    pub(crate) launch: Launch,
    /// Whether the objects of the address space are known.
    pub(super) managed: bool,
    /// Parts of objects that the kernel gets instead of whole objects: object, first byte and end.
    pub(super) parts: Vec<(u64, u64, u64)>,
    /// The calls of the launch, if the program's language gave them.
    calls: Option<Arc<[String]>>,
    /// Accesses to global memory, for racecheck.
    pub(super) race: Option<Mutex<GridRace>>,
    /// What becomes of loaded registers, by the address of the load.
    fates: Mutex<HashMap<(u64, u8), Fate>>,
    /// What `padding::neighbours` says about a load.
    neighbours: Mutex<HashMap<u64, [bool; 2]>>,
    /// The program of the launch, if it was loaded as one.
    loaded: OnceLock<Option<Arc<Image>>>,
    /// Initial stack pointer of a thread: its local memory ends there. 0 if it is not known.
    pub(super) stack: u64,
}

/// The parts of objects that a launch passes: object, first byte and end. An object is left out if
/// any other word of the constant bank contains an address in it: the kernel may use all of it.
fn parts_of(
    checker: &Checker,
    view: &View,
    bank: ConstantBank,
    pointers: &[Pointer],
) -> Vec<(u64, u64, u64)> {
    let mut words = vec![0; bank.bytes as usize];
    if pointers.is_empty() || view.read(bank.va, &mut words).is_err() {
        return Vec::new();
    }
    let objects = checker.objects();
    let mut parts = Vec::new();
    for pointer in pointers {
        let Some((start, end)) = objects.data_at(view.space(), pointer.va) else { continue };
        let elsewhere = (0..).step_by(4).zip(words.windows(8).step_by(4)).any(|(offset, word)| {
            // PANIC: the windows have 8 bytes.
            let value = u64::from_le_bytes(word.try_into().expect("8 bytes"));
            let known = pointers.iter().any(|other| other.offset == offset && other.va == value);
            !known && (start..end).contains(&value)
        });
        let whole = |other: &Pointer| (other.va, other.bytes) == (start, end - start);
        if !elsewhere && !pointers.iter().any(whole) {
            parts.push((start, pointer.va, (pointer.va + pointer.bytes).min(end)));
        }
    }
    parts
}

impl GridCheck {
    /// Starts checking a launch. Checks its descriptor against the objects.
    pub(crate) fn new(checker: &Checker, launch: &Launch, view: &View) -> Arc<Self> {
        // The checker's own reads do not count as reads of the grid.
        let view = view.watched_by(None);
        let managed = checker.objects().is_managed(view.space());
        let race = checker.tools().contains(Tools::RACECHECK);
        let mut launch = launch.clone();
        // The descriptor's size is rounded up. An access to the padding is reported like one beyond the end.
        let mut parts = Vec::new();
        let mut calls = None;
        let bank = launch.constants[0];
        let info = bank.and_then(|bank| checker.objects().launched(view.space(), bank.va).cloned());
        if let (Some(bank), Some(info)) = (bank, info) {
            calls = info.calls;
            if checker.tools().contains(Tools::MEMCHECK) {
                launch.shared_bytes = launch.shared_bytes.min(info.shared_bytes);
                parts = parts_of(checker, &view, bank, &info.pointers);
            }
        }
        let mut stack = [0; 4];
        let place = launch.constants[0].filter(|bank| bank.bytes >= STACK_POINTER + 4);
        let read =
            place.is_some_and(|bank| view.read(bank.va + u64::from(STACK_POINTER), &mut stack).is_ok());
        let stack = if read { u32::from_le_bytes(stack).into() } else { 0 };
        let grid = Self {
            checker: checker.clone(),
            managed,
            launch,
            parts,
            calls,
            view,
            race: race.then(|| Mutex::new(GridRace::new())),
            fates: Mutex::default(),
            neighbours: Mutex::default(),
            loaded: OnceLock::new(),
            stack,
        };
        if managed && checker.tools().contains(Tools::MEMCHECK) {
            grid.descriptor();
        }
        Arc::new(grid)
    }

    /// Whether blocks must run one after another, in a fixed order.
    pub(crate) fn needs_order(&self) -> bool {
        self.race.is_some() || self.checker.tools().contains(Tools::WARPCHECK)
    }

    /// Checks the constant banks against the objects.
    fn descriptor(&self) {
        let (space, pc) = (self.view.space(), self.launch.program_va);
        for (number, bank) in (0..).zip(&self.launch.constants) {
            let Some(bank) = bank.filter(|bank| bank.bytes > 0) else { continue };
            let Err(kind) = self.checker.objects().find_any(space, bank.va) else { continue };
            let kind = if kind == Kind::UseAfterFree { kind } else { Kind::Descriptor };
            self.checker.add(kind, pc << 3 | number, 1, || {
                let message = format!("constant bank {number} of a launch is outside of live objects");
                let object = self.checker.objects().nearest(space, bank.va);
                Finding { at: Some(self.locate(pc)), object, ..self.finding(kind, message) }
            });
        }
    }

    /// What becomes of the word at `address` after the load at `pc`; [`Fate::Used`] if that is no plain load of it.
    pub(super) fn fate(&self, pc: u64, address: u64) -> Fate {
        let load = fate::fetch(&self.view, pc).filter(|i| matches!(i.op, Op::Ldg | Op::Ld | Op::Lds));
        let Some((first, count)) = load.map(|load| load.written()).filter(|(_, count)| *count > 0) else {
            return Fate::Used;
        };
        // CAST: at most 3. Accesses are aligned to their size.
        self.register_fate(pc, first + (address / 4 % u64::from(count)) as u8)
    }

    /// What becomes of a register after the instruction at `pc`.
    pub(super) fn register_fate(&self, pc: u64, register: u8) -> Fate {
        let mut fates = self.fates.lock();
        *fates.entry((pc, register)).or_insert_with(|| fate::of(&self.view, pc, register))
    }

    /// Whether the code copies the words below and above that of the load at `pc` with it.
    pub(super) fn neighbours(&self, pc: u64) -> [bool; 2] {
        *self.neighbours.lock().entry(pc).or_insert_with(|| padding::neighbours(&self.view, pc))
    }

    /// The kernel and source of an instruction.
    pub(super) fn locate(&self, pc: u64) -> Located {
        let mut word = [0; 16];
        let read = self.view.read(pc, &mut word).is_ok();
        let text = |offset| {
            read.then(|| sass::disassemble(u128::from_le_bytes(word), offset)).flatten().unwrap_or_default()
        };
        let image = self.checker.objects().image(self.view.space(), pc);
        image
            .and_then(|(image, offset)| image.locate(offset, text))
            .or_else(|| self.checker.0.known.locate(&self.view, self.launch.program_va, pc, text))
            .unwrap_or_else(|| Located { offset: pc, instruction: text(pc), ..Located::default() })
    }

    /// The program of the launch, and the offset of the kernel in it.
    fn program(&self) -> Option<(Arc<Image>, u64)> {
        let start = self.launch.program_va;
        let loaded = self.checker.objects().image(self.view.space(), start);
        loaded.or_else(|| self.checker.0.known.kernel(&self.view, start))
    }

    /// The `__constant__` variables of the program, by offset in their bank. Programs that are not registered have
    /// none: a search for their cubins takes long.
    pub(super) fn constants(&self) -> &[Variable] {
        let find = || self.checker.objects().image(self.view.space(), self.launch.program_va);
        let loaded = self.loaded.get_or_init(|| find().map(|(image, _)| image));
        loaded.as_ref().map_or(&[], |image| image.constants())
    }

    /// The object next to an address, with the kernel's parameter that points into it.
    pub(super) fn nearest(&self, va: u64) -> Option<NearObject> {
        let mut near = if self.managed {
            self.checker.objects().nearest(self.view.space(), va)?
        } else {
            mapped::nearest(&self.view, va)?
        };
        if let (Some((image, offset)), Some(bank)) = (self.program(), self.launch.constants[0])
            && let Some(parameters) = image.parameters(offset)
        {
            let points = |at: u32| {
                let mut value = [0; 8];
                self.view.read(bank.va + u64::from(at), &mut value).is_ok()
                    && (near.va..near.va + near.bytes.max(1)).contains(&u64::from_le_bytes(value))
            };
            let mut found = (0..).zip(parameters).filter(|(_, parameter)| {
                let end = (parameter.offset + parameter.bytes).min(bank.bytes);
                (parameter.offset..end.saturating_sub(7)).step_by(8).any(points)
            });
            near.argument = found.next().map(|(index, _)| index).filter(|_| found.next().is_none());
        }
        Some(near)
    }

    /// The launch's constant bank 0, if `va` is in it: code that takes the address of a parameter reads it.
    pub(super) fn parameters(&self, va: u64) -> Option<Extent> {
        let bank = self.launch.constants[0]
            .filter(|bank| (bank.va..bank.va + u64::from(bank.bytes)).contains(&va))?;
        let end = bank.va + u64::from(bank.bytes);
        Some(Extent { start: bank.va, end, writable: false, base: bank.va, written: None })
    }

    /// The part of an extent that the kernel may use.
    pub(super) fn narrow(&self, extent: Extent, va: u64) -> Result<Extent, Kind> {
        let mut passed = self.parts.iter().filter(|(object, ..)| *object == extent.base).peekable();
        if passed.peek().is_none() {
            return Ok(extent);
        }
        let around = passed.find(|(_, start, end)| (*start..*end).contains(&va));
        let (_, start, end) = *around.ok_or(Kind::OutOfBounds)?;
        Ok(Extent { start, end, ..extent })
    }

    /// Ends the checks of the grid after all blocks have ended.
    pub(crate) fn finish(&self) {
        if let Some(race) = &self.race {
            let mut race = race.lock();
            race.ended(self);
        }
    }

    /// A finding about this grid.
    pub(super) fn finding(&self, kind: Kind, message: String) -> Finding {
        Finding { launched: calls::shown(self.calls.as_deref()), ..Finding::new(kind, message) }
    }

    /// Records the fault that ended the grid as a finding.
    pub(crate) fn fault(&self, fault: &SmFault) {
        let (space, bytes, address, what) = match fault.cause {
            SmFaultCause::Mmu(mmu) => ("global", 0, mmu.va, name(mmu.access)),
            SmFaultCause::MisalignedAddress { va, bytes } => ("memory", bytes, va, "access"),
            SmFaultCause::OutOfRange { space, offset, bytes } => (space, bytes, offset, "access"),
            _ => ("", 0, 0, ""),
        };
        let kind = match fault.cause {
            SmFaultCause::Mmu(mmu) if mmu.kind == FaultKind::WriteReadOnly => Kind::ReadOnly,
            SmFaultCause::Mmu(_) => Kind::Unmapped,
            SmFaultCause::MisalignedAddress { .. } => Kind::Misaligned,
            SmFaultCause::OutOfRange { space: "shared", .. } => Kind::BeyondShared,
            SmFaultCause::OutOfRange { space: "local", .. } => Kind::BeyondFrame,
            SmFaultCause::OutOfRange { space: "constant", .. } => Kind::BeyondConstant,
            SmFaultCause::OutOfRange { space: "barrier", .. } => Kind::BarrierCount,
            SmFaultCause::Deadlock(_) => Kind::Deadlock,
            _ => Kind::Fault,
        };
        let wanted = if kind.tool() == "synccheck" { Tools::SYNCCHECK } else { Tools::MEMCHECK };
        if !self.checker.tools().contains(wanted)
            || matches!(kind, Kind::Unmapped | Kind::BeyondShared | Kind::BeyondFrame)
                && self.checker.0.findings.lock().has_memory_error_at(fault.pc)
        {
            return;
        }
        self.checker.add(kind, fault.pc, 1, || {
            let object =
                if matches!(kind, Kind::Unmapped | Kind::ReadOnly) { self.nearest(address) } else { None };
            let access = Accessing { what: what.into(), space: space.into(), bytes, address, last: address };
            Finding {
                at: Some(self.locate(fault.pc)),
                worker: Some(Worker { block: fault.block, thread: fault.thread }),
                access: (!space.is_empty()).then_some(access),
                object,
                ..self.finding(kind, self.explain(fault))
            }
        });
    }

    fn explain(&self, fault: &SmFault) -> String {
        let text = fault.cause.to_string();
        if let SmFaultCause::OutOfRange { space: "shared", offset, .. } = fault.cause {
            let bytes = self.launch.shared_bytes;
            return format!(
                "{text}: {} bytes past the {bytes} bytes of the block",
                offset.saturating_sub(bytes.into())
            );
        }
        text
    }
}
