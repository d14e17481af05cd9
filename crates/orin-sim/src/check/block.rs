//! The checks of one block of a grid.
//!
//! The interpreter passes the accesses of each examined instruction before it executes them. The usual access of a warp
//! lies in one object, and is compared with the extents that the block used last. All else is rare and slow.

use core::ops::RangeInclusive;
use std::sync::Arc;

use sass::Instruction;

use super::fate::Fate;
use super::finding::{Accessing, Finding, Kind, Place, Worker};
use super::grid::GridCheck;
use super::lockstep::BlockLanes;
use super::mapped;
use super::objects::{Extent, Found};
use super::padding::{self, Loads};
use super::race::BlockRace;
use super::request::{Fence, Request, Scope, Site, name};
use super::sync::BlockSync;
use super::{Tools, constants};
use crate::mmu::Access;
use crate::sm::{Arrival, InFlight, Row, Space, Unmet, lanes};

/// Number of extents that a block caches.
const KEPT: usize = 16;

/// Distance from an object within which an access to an unmapped address is an overrun of that object, in bytes.
const NEAR: u64 = 64 << 10;

/// The checks of a block.
#[derive(Debug)]
pub(crate) struct BlockCheck {
    grid: Arc<GridCheck>,
    block: [u32; 3],
    /// Extents used last.
    extents: Vec<Extent>,
    /// Index of the extent that is replaced next.
    next: usize,
    /// State of the objects that the extents belong to.
    generation: u64,
    /// For initcheck.
    loads: Loads,
    constants: constants::Loads,
    race: Option<Box<BlockRace>>,
    sync: Option<Box<BlockSync>>,
    lanes: Option<Box<BlockLanes>>,
}

impl BlockCheck {
    pub(crate) fn new(grid: &Arc<GridCheck>) -> Self {
        let tools = grid.checker.tools();
        let warps = grid.launch.block.iter().product::<u32>().div_ceil(32);
        Self {
            grid: Arc::clone(grid),
            block: [0; 3],
            extents: Vec::with_capacity(KEPT),
            next: 0,
            generation: 0,
            loads: Loads::default(),
            constants: constants::Loads::default(),
            race: grid.race.is_some().then(|| Box::new(BlockRace::new(warps, grid.launch.shared_bytes))),
            sync: tools.contains(Tools::SYNCCHECK).then(|| Box::new(BlockSync::new(&grid.launch))),
            lanes: tools
                .contains(Tools::WARPCHECK)
                .then(|| Box::new(BlockLanes::new(warps, grid.launch.shared_bytes))),
        }
    }

    /// Restarts with another block of the grid.
    pub(crate) fn start(&mut self, block: [u32; 3], number: u64) {
        self.block = block;
        self.loads.start();
        self.constants.start();
        if let Some(race) = &mut self.race {
            race.start(number);
        }
        if let Some(sync) = &mut self.sync {
            sync.start();
        }
        if let Some(lanes) = &mut self.lanes {
            lanes.start();
        }
    }

    /// Examines the accesses of an instruction. Returns the lanes that must not execute it.
    pub(crate) fn examine(&mut self, request: &Request, site: &Site<'_>) -> u32 {
        if request.mask == 0 {
            return 0;
        }
        let tools = self.grid.checker.tools();
        let (mut wrong, mut dropped) = (0, 0);
        if request.space == Space::Global {
            if tools.contains(Tools::MEMCHECK) {
                (wrong, dropped) = self.memcheck(request, site);
                self.constant_by_address(request, site);
            }
            if tools.contains(Tools::INITCHECK) && self.grid.managed {
                self.initcheck(request, request.mask & !wrong, site);
            }
        }
        for (load, pc) in self.loads.stored(&self.grid, request, site) {
            self.uninitialised(&load, load.mask, &Site { pc, ..*site });
        }
        if request.space == Space::Local && tools.contains(Tools::MEMCHECK) {
            self.frame(request, site);
        }
        if request.space == Space::Global
            && request.access != Access::Read
            && self.race.is_some()
            && self.grid.checker.has_views()
        {
            self.under_view(request, site);
        }
        if let Some(race) = &mut self.race {
            match request.space {
                Space::Shared => race.shared(&self.grid, self.block, request, site),
                Space::Global => race.global(&self.grid, self.block, request, request.mask & !wrong, site),
                Space::Local => {}
            }
        }
        if let Some(lanes) = &mut self.lanes
            && request.space == Space::Shared
        {
            lanes.shared(&self.grid, self.block, request, site);
        }
        dropped
    }

    /// Examines loads of `bytes` bytes at offsets of a constant bank.
    pub(crate) fn constant(&mut self, bank: u8, offsets: &Row, (mask, bytes): (u32, u32), site: &Site<'_>) {
        if self.grid.checker.tools().contains(Tools::MEMCHECK) {
            self.constants.load(&self.grid, self.block, (bank, offsets, mask, bytes), site);
        }
    }

    /// As [`BlockCheck::constant`], for loads by their addresses in memory.
    fn constant_by_address(&mut self, request: &Request, site: &Site<'_>) {
        let Some(bank) = self.grid.launch.constants[3].filter(|_| request.access == Access::Read) else {
            return;
        };
        // The image is mapped up to a multiple of 256 bytes.
        let end = u64::from(bank.bytes).next_multiple_of(256);
        let inside = |va: u64| va.checked_sub(bank.va).is_some_and(|offset| offset < end);
        if inside(request.addresses[request.mask.trailing_zeros() as usize & 31]) {
            let offsets =
                request.addresses.map(|va| u32::try_from(va.wrapping_sub(bank.va)).unwrap_or(u32::MAX));
            self.constants.load(&self.grid, self.block, (3, &offsets, request.mask, request.bytes), site);
        }
    }

    /// Discards cached extents of objects that may have changed.
    #[inline]
    fn refresh(&mut self) {
        let now = self.grid.checker.generation();
        if now != self.generation {
            self.generation = now;
            self.extents.clear();
            self.next = 0;
        }
    }

    /// Index of the extent that contains `[va, end)`.
    #[inline]
    fn at_hand(&self, va: u64, end: u64, write: bool) -> Option<usize> {
        self.extents
            .iter()
            .position(|extent| va >= extent.start && end <= extent.end && (extent.writable || !write))
    }

    /// The extent that contains `[va, va + bytes)`, or the error.
    fn extent(&mut self, va: u64, bytes: u32, write: bool) -> Result<usize, Kind> {
        let end = va.saturating_add(bytes.into());
        if let Some(at) = self.at_hand(va, end, write) {
            return Ok(at);
        }
        let found = if self.grid.managed {
            self.grid.checker.objects().find(self.grid.view.space(), va, write)
        } else {
            mapped::find(&self.grid.view, va)
        };
        let extent = match found {
            Found::Extent(extent) if write && !extent.writable => return Err(Kind::DriverMemory),
            Found::Extent(extent) => self.grid.narrow(extent, va)?,
            Found::Wrong(kind) => self.grid.parameters(va).filter(|_| !write).ok_or(kind)?,
        };
        if end > extent.end {
            return Err(Kind::OutOfBounds);
        }
        if self.extents.len() < KEPT {
            self.extents.push(extent);
            return Ok(self.extents.len() - 1);
        }
        let at = self.next;
        self.next = (at + 1) % KEPT;
        self.extents[at] = extent;
        Ok(at)
    }

    /// Checks global accesses against the objects. Returns the lanes with errors, and those to be dropped.
    #[inline]
    fn memcheck(&mut self, request: &Request, site: &Site<'_>) -> (u32, u32) {
        self.refresh();
        let write = request.access != Access::Read;
        let (low, high) = bounds(request);
        if self.at_hand(low, high.saturating_add(request.bytes.into()), write).is_some() {
            return (0, 0);
        }
        self.memcheck_lanes(request, site, write)
    }

    /// Leaves unmapped addresses to the MMU fault that follows if the program's objects are not known.
    #[inline(never)]
    fn memcheck_lanes(&mut self, request: &Request, site: &Site<'_>, write: bool) -> (u32, u32) {
        let (mut wrong, mut dropped) = (0, 0);
        let mut kinds: [(Kind, u32); 3] =
            [(Kind::OutOfBounds, 0), (Kind::UseAfterFree, 0), (Kind::DriverMemory, 0)];
        for lane in lanes(request.mask) {
            let va = request.addresses[lane];
            if let Err(kind) = self.extent(va, request.bytes, write)
                && (write || !self.is_widened(request, va, site))
            {
                wrong |= 1 << lane;
                if let Some((_, mask)) = kinds.iter_mut().find(|(known, _)| *known == kind) {
                    *mask |= 1 << lane;
                }
                if write && self.grid.view.pointer(va, request.bytes.into(), Access::Write).is_ok() {
                    dropped |= 1 << lane;
                }
            }
        }
        for (kind, mask) in kinds.into_iter().filter(|(_, mask)| *mask != 0) {
            self.report(kind, request, mask, site);
        }
        (wrong, dropped)
    }

    /// Whether a load begins in an object, and the code reads none of the words beyond its end: the compiler has joined
    /// smaller loads.
    #[cold]
    fn is_widened(&mut self, request: &Request, va: u64, site: &Site<'_>) -> bool {
        let Ok(at) = self.extent(va, 1, false) else { return false };
        let (end, last) = (self.extents[at].end, va + u64::from(request.bytes));
        let aligned = va.is_multiple_of(request.bytes.into()) && end.is_multiple_of(4);
        let plain = aligned && request.access == Access::Read && request.strong == Scope::Own;
        plain && (end..last).step_by(4).all(|word| self.grid.fate(site.pc, word) == Fate::Unread)
    }

    /// As `is_widened`, for a load of shared memory at an offset, of which the block has fewer bytes.
    #[cold]
    pub(crate) fn is_widened_shared(&self, pc: u64, offset: u64, bytes: u32) -> bool {
        let (end, last) = (u64::from(self.grid.launch.shared_bytes), offset + u64::from(bytes));
        let inside = offset < end && last <= end.next_multiple_of(16) && end.is_multiple_of(4);
        inside && (end..last).step_by(4).all(|word| self.grid.fate(pc, word) == Fate::Unread)
    }

    /// Reports stores to objects that the CPU has a view of.
    #[cold]
    fn under_view(&self, request: &Request, site: &Site<'_>) {
        let (grid, bytes) = (&self.grid, u64::from(request.bytes));
        let objects = grid.checker.objects();
        let viewed =
            |lane: &usize| objects.viewed(grid.view.space(), request.addresses[*lane], bytes).is_some();
        let lanes: Vec<usize> = lanes(request.mask).filter(viewed).collect();
        drop(objects);
        let Some(&lane) = lanes.first() else { return };
        let (address, what) = (request.addresses[lane], name(request.access));
        grid.checker.0.findings.lock().add(
            (Kind::CpuRace, site.pc),
            lanes.len() as u64,
            |_| false,
            || {
                let message =
                    format!("{what} of {bytes} bytes at {address:#x} while the CPU has a view of the object");
                let access = accessing(request, "global", address..=address);
                let object = grid.nearest(address);
                Finding { object, ..self.finding(Kind::CpuRace, message, access, site, lane) }
            },
        );
    }

    /// The thread of a lane.
    fn worker(&self, site: &Site<'_>, lane: usize) -> Worker {
        Worker { block: self.block, thread: [0, 1, 2].map(|axis| site.tid[axis][lane]) }
    }

    /// A finding about an access of a lane.
    fn finding(
        &self,
        kind: Kind,
        message: String,
        access: Accessing,
        site: &Site<'_>,
        lane: usize,
    ) -> Finding {
        Finding {
            at: Some(self.grid.locate(site.pc)),
            worker: Some(self.worker(site, lane)),
            access: Some(access),
            ..self.grid.finding(kind, message)
        }
    }

    /// Reports lanes with an error of one kind.
    #[cold]
    fn report(&self, kind: Kind, request: &Request, mask: u32, site: &Site<'_>) {
        let (grid, checker) = (&self.grid, &self.grid.checker);
        let reached = |lane: &usize| request.addresses[*lane];
        let (Some(lane), Some(highest)) = (lanes(mask).min_by_key(reached), lanes(mask).max_by_key(reached))
        else {
            return;
        };
        let (address, last) = (request.addresses[lane], request.addresses[highest]);
        let closer = |before: &mut Finding| {
            let Some(access) = &mut before.access else { return false };
            let beyond = address < access.address || last > access.last;
            access.address = access.address.min(address);
            access.last = access.last.max(last);
            let distance = before.object.as_ref().map_or(u64::MAX, |object| object.place.distance());
            beyond && checker.objects().distance(grid.view.space(), address) < distance
        };
        checker.0.findings.lock().add((kind, site.pc), mask.count_ones().into(), closer, || {
            let unmapped = grid.view.span(address, Access::Read).is_err();
            let distance = checker.objects().distance(grid.view.space(), address);
            let kind =
                if kind == Kind::OutOfBounds && unmapped && distance > NEAR { Kind::Unmapped } else { kind };
            let what = name(request.access);
            let how = match kind {
                Kind::UseAfterFree => "of a freed object",
                Kind::DriverMemory => "in memory of the driver",
                Kind::Unmapped => "at an address that is not mapped",
                _ => "out of bounds",
            };
            let object = grid.nearest(address);
            let inside = object.as_ref().is_some_and(|object| matches!(object.place, Place::Inside(_)));
            let end = address.saturating_add(request.bytes.into());
            let crosses = object.as_ref().is_some_and(|object| end > object.va + object.bytes);
            let how = if kind == Kind::OutOfBounds && inside && !crosses {
                "outside of the part of the object that the launch passes"
            } else {
                how
            };
            let message = format!("{what} of {} bytes {how}, at {address:#x}", request.bytes);
            let access = accessing(request, "global", address..=last);
            Finding { object, ..self.finding(kind, message, access, site, lane) }
        });
    }

    /// Reports local accesses below the stack pointer, and beyond the end of the stack.
    fn frame(&self, request: &Request, site: &Site<'_>) {
        let bytes = u64::from(request.bytes);
        let below = |lane: usize| u64::from(site.stack[lane]).checked_sub(request.addresses[lane]);
        let end = |lane: usize| request.addresses[lane] + bytes;
        let above = |lane: usize| end(lane).checked_sub(self.grid.stack).filter(|_| self.grid.stack != 0);
        let wrong = |lane: &usize| {
            below(*lane).is_some_and(|distance| distance > 0) || above(*lane).is_some_and(|beyond| beyond > 0)
        };
        let Some(lane) = lanes(request.mask).find(wrong) else { return };
        // CAST: at most 32.
        let count = lanes(request.mask).filter(wrong).count() as u64;
        let address = request.addresses[lane];
        self.grid.checker.add(Kind::BeyondFrame, site.pc, count, || {
            let what = name(request.access);
            let place = match below(lane) {
                Some(distance) if distance > 0 => format!("{distance} bytes below the stack frame"),
                _ => format!(
                    "{} bytes beyond the frame of the kernel",
                    above(lane).unwrap_or(0).saturating_sub(bytes)
                ),
            };
            let message = format!("{what} of {bytes} bytes {place}");
            let access = accessing(request, "local", address..=address);
            self.finding(Kind::BeyondFrame, message, access, site, lane)
        });
    }

    /// Reports loads of unwritten bytes, and records stores.
    fn initcheck(&mut self, request: &Request, mask: u32, site: &Site<'_>) {
        self.refresh();
        let (bytes, mut unwritten, mut moved) = (u64::from(request.bytes), 0, 0);
        let (mut at, mut before) = (usize::MAX, None);
        for lane in lanes(mask) {
            let va = request.addresses[lane];
            // Lanes next to each other often access the same bytes, and usually the same object.
            if before.replace(va) == Some(va) && unwritten == 0 {
                continue;
            }
            let inside = |extent: &Extent| va >= extent.start && va.saturating_add(bytes) <= extent.end;
            if !self.extents.get(at).is_some_and(inside) {
                let Ok(found) = self.extent(va, request.bytes, false) else { continue };
                at = found;
            }
            let extent = &self.extents[at];
            let Some(written) = &extent.written else { continue };
            let offset = va - extent.base;
            // A misaligned access ends the grid.
            let checked = request.access != Access::Write && va.is_multiple_of(bytes.next_power_of_two());
            if checked && !written.are_written(&self.grid.view, va, offset, bytes) {
                match padding::fate_of(&self.grid, written, request, (va, offset), site.pc) {
                    Fate::Unread | Fate::Copied => {}
                    Fate::Moved => moved |= 1 << lane,
                    Fate::Guarded | Fate::Used => unwritten |= 1 << lane,
                }
            }
            if request.access != Access::Read {
                written.set(offset, bytes);
            }
        }
        if unwritten != 0 {
            self.uninitialised(request, unwritten, site);
        }
        if moved != 0 {
            self.loads.add(&self.grid, Request { mask: moved, ..*request }, site);
        }
    }

    #[cold]
    fn uninitialised(&self, request: &Request, mask: u32, site: &Site<'_>) {
        let lane = mask.trailing_zeros() as usize;
        let address = request.addresses[lane];
        let wider = |before: &mut Finding| {
            if let Some(access) = &mut before.access {
                (access.address, access.last) = (access.address.min(address), access.last.max(address));
            }
            false
        };
        let mut findings = self.grid.checker.0.findings.lock();
        findings.add((Kind::Uninitialised, site.pc), mask.count_ones().into(), wider, || {
            let what = name(request.access);
            let message =
                format!("{what} of {} bytes that were never written, at {address:#x}", request.bytes);
            let access = accessing(request, "global", address..=address);
            let object = self.grid.nearest(address);
            Finding { object, ..self.finding(Kind::Uninitialised, message, access, site, lane) }
        });
    }

    /// Records the arrival of threads of a warp at a barrier of the block.
    pub(crate) fn arrived(&mut self, warp: usize, arrival: &Arrival) {
        if let Some(race) = &mut self.race {
            race.arrived(warp, arrival.barrier);
        }
        if let Some(sync) = &mut self.sync {
            sync.arrived(&self.grid, self.block, warp, arrival);
        }
        if let Some(lanes) = &mut self.lanes {
            lanes.arrived(warp, arrival);
        }
    }

    /// Records that a barrier has released the threads of a warp.
    pub(crate) fn released(&mut self, warp: usize, barrier: u8) {
        if let Some(race) = &mut self.race {
            race.released(warp, barrier);
        }
        if let Some(lanes) = &mut self.lanes {
            lanes.released(warp, barrier);
        }
    }

    /// Records that a barrier is complete.
    pub(crate) fn passed(&mut self, barrier: u8) {
        if let Some(race) = &mut self.race {
            race.passed(barrier);
        }
        if let Some(sync) = &mut self.sync {
            sync.passed(&self.grid, self.block, barrier);
        }
    }

    /// Ends the checks of the block after all threads have exited.
    pub(crate) fn ended(&mut self) {
        self.constants.ended(&self.grid);
        if let Some(race) = &mut self.race {
            race.ended(&self.grid);
        }
        if let Some(sync) = &mut self.sync {
            sync.ended(&self.grid, self.block);
        }
    }

    /// Records a fence of a warp.
    pub(crate) fn fenced(&mut self, warp: u32, fence: Fence) {
        if let Some(race) = &mut self.race {
            race.fenced(warp as usize, fence);
        }
    }

    /// Records that lanes of a warp have waited for a copy by `cp.async`.
    pub(crate) fn landed(&mut self, warp: u32, copy: &InFlight, lanes: u32) {
        if let Some(race) = &mut self.race {
            race.landed(warp as usize, copy, lanes);
        }
    }

    /// As [`BlockCheck::examine`] for the sources of copies, of which each lane leaves out some bytes at the end.
    pub(crate) fn examine_copy(&mut self, request: &Request, left_out: &[u64; 32], site: &Site<'_>) {
        let mut left = request.mask;
        while left != 0 {
            let out = left_out[left.trailing_zeros() as usize];
            let mask = lanes(left).filter(|&lane| left_out[lane] == out).fold(0, |all, lane| all | 1 << lane);
            // CAST: less than the size of the access.
            let bytes = request.bytes.saturating_sub(out as u32);
            if bytes > 0 {
                self.examine(&Request { mask, bytes, ..*request }, site);
            }
            left &= !mask;
        }
    }

    /// Checks the masks with which lanes of a warp execute WARPSYNC; `live` have not exited.
    pub(crate) fn warpsync(&mut self, active: u32, masks: &Row, live: u32, site: &Site<'_>) {
        if let Some(sync) = &self.sync {
            sync.warpsync(&self.grid, self.block, active, masks, site);
        }
        if let Some(lanes) = &mut self.lanes {
            lanes.warpsync(site.warp, active, masks, live);
        }
    }

    /// Records a WARPSYNC of a warp that other lanes of its mask do not execute.
    pub(crate) fn unmet(&mut self, warp: usize, unmet: Unmet) {
        if let Some(sync) = &self.sync {
            sync.unmet(&self.grid, self.block, warp, unmet);
        }
    }

    /// Records that a shuffle gives lanes values of lanes that do not execute it.
    pub(crate) fn shuffled(&mut self, register: u8, lanes: u32, active: u32, site: &Site<'_>) {
        if let Some(sync) = &mut self.sync {
            sync.undefined.shuffled(register, lanes, active, site);
        }
    }

    /// Whether a live lane of the warp has an undefined value of a shuffle.
    pub(crate) fn follows(&self, warp: u32, live: u32) -> bool {
        self.sync.as_ref().is_some_and(|sync| sync.undefined.follows(warp, live))
    }

    /// Examines the registers of an instruction of a warp that has such values.
    pub(crate) fn registers(&mut self, i: &Instruction, active: u32, site: &Site<'_>) {
        if let Some(sync) = &mut self.sync {
            sync.undefined.registers(&self.grid, self.block, i, active, site);
        }
    }

    /// Records that lanes execute NOP, by which compilers replace `__syncwarp()` where the warp has one path.
    pub(crate) fn together(&mut self, warp: u32, active: u32) {
        if let Some(lanes) = &mut self.lanes {
            lanes.synchronise(warp, active);
        }
    }
}

/// The access of a request to the addresses of a space.
fn accessing(request: &Request, space: &'static str, addresses: RangeInclusive<u64>) -> Accessing {
    let (address, last) = addresses.into_inner();
    let what = name(request.access).into();
    Accessing { what, space: space.into(), bytes: request.bytes, address, last }
}

/// Lowest and highest address of the active lanes.
#[inline]
fn bounds(request: &Request) -> (u64, u64) {
    let instead = request.addresses[request.mask.trailing_zeros() as usize & 31];
    let (mut low, mut high) = (instead, instead);
    for lane in 0..32 {
        let va = if request.mask >> lane & 1 != 0 { request.addresses[lane] } else { instead };
        low = low.min(va);
        high = high.max(va);
    }
    (low, high)
}
