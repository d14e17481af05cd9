//! Random sequences of valid and invalid calls, compared with an independent model of the rules: object lifetimes,
//! valid mapping addresses, and the errno of each refusal.
//!
//! The model shares no code with the kernel model. It tracks reference counts and intervals, not the allocator, and
//! accepts any address without overlap.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::*;
use kernel_door::{DoorFd, Errno};
use nvgpu_sys::address_space::{self as space, AllocSpaceFlags, MapBufferEx, MapBufferFlags};
use nvgpu_sys::nvmap::{self, CreateHandle, DuplicateHandle};
use orin_sim::{Config, LiveCounts};
use proptest::prelude::*;

const PAGE: u64 = 4096;
/// Memory of the board: few enough pages to make allocations fail.
const MEMORY: u64 = 64 * PAGE;
/// The user range of each address space.
const RANGE: (u64, u64) = (0x20_0000, 0x60_0000);

#[derive(Clone, Debug)]
enum Step {
    Create { pages: u32 },
    Alloc { handle: usize },
    Duplicate { handle: usize },
    Import { file: usize },
    Free { handle: usize },
    Export { handle: usize },
    CloseFile { file: usize },
    NewSpace,
    CloseSpace { space: usize },
    Reserve { space: usize, pages: u64, fixed: Option<u64> },
    FreeSpace { space: usize, area: usize },
    Map { space: usize, file: usize },
    MapFixed { space: usize, file: usize, area: usize, page: u64 },
    Unmap { space: usize, mapping: usize, inside: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let any = any::<usize>;
    prop_oneof![
        4 => (0_u32..6).prop_map(|pages| Step::Create { pages }),
        5 => any().prop_map(|handle| Step::Alloc { handle }),
        1 => any().prop_map(|handle| Step::Duplicate { handle }),
        1 => any().prop_map(|file| Step::Import { file }),
        3 => any().prop_map(|handle| Step::Free { handle }),
        4 => any().prop_map(|handle| Step::Export { handle }),
        3 => any().prop_map(|file| Step::CloseFile { file }),
        2 => Just(Step::NewSpace),
        1 => any().prop_map(|space| Step::CloseSpace { space }),
        3 => (any(), 0_u64..40, prop::option::of(0_u64..1100))
            .prop_map(|(space, pages, fixed)| Step::Reserve { space, pages, fixed }),
        2 => (any(), any()).prop_map(|(space, area)| Step::FreeSpace { space, area }),
        6 => (any(), any()).prop_map(|(space, file)| Step::Map { space, file }),
        6 => (any(), any(), any(), 0_u64..12)
            .prop_map(|(space, file, area, page)| Step::MapFixed { space, file, area, page }),
        5 => (any(), any(), 0_u64..2)
            .prop_map(|(space, mapping, inside)| Step::Unmap { space, mapping, inside }),
    ]
}

/// A buffer, by its number in the model.
type Id = usize;

#[derive(Clone, Copy, Debug)]
struct Mapping {
    buffer: Id,
    len: u64,
    references: u32,
    fixed: bool,
    /// The reserved range that contains it, until the range is freed.
    area: Option<u64>,
}

#[derive(Debug)]
struct Space {
    fd: DoorFd,
    /// First address and length of reserved ranges.
    areas: BTreeMap<u64, u64>,
    mappings: BTreeMap<u64, Mapping>,
}

impl Space {
    fn mapped(&self, va: u64, len: u64) -> bool {
        self.mappings.iter().any(|(at, mapping)| *at < va + len && va < at + mapping.len)
    }

    fn reserved(&self, va: u64, len: u64) -> bool {
        self.areas.iter().any(|(at, area)| *at < va + len && va < at + area)
    }

    fn area_of(&self, va: u64) -> Option<(u64, u64)> {
        self.areas.iter().map(|(at, len)| (*at, *len)).find(|(at, len)| (*at..at + len).contains(&va))
    }

    /// Mappings at chosen addresses whose range has been freed.
    fn orphans(&self, va: u64, len: u64) -> Vec<u64> {
        let overlaps = |(at, mapping): &(&u64, &Mapping)| **at < va + len && va < **at + mapping.len;
        self.mappings.iter().filter(overlaps).map(|(at, _)| *at).collect()
    }

    fn drop_reference(&mut self, va: u64) {
        let Some(mapping) = self.mappings.get_mut(&va) else { return };
        mapping.references -= 1;
        if mapping.references == 0 {
            self.mappings.remove(&va);
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Buffer {
    size: u64,
    allocated: bool,
}

/// The independent model.
struct Account {
    bench: Bench,
    buffers: Vec<Buffer>,
    handles: Vec<(u32, Id)>,
    files: Vec<(DoorFd, Id)>,
    spaces: Vec<Space>,
}

/// Selects an element by a random number.
fn select<T>(list: &[T], at: usize) -> Option<usize> {
    if list.is_empty() { None } else { Some(at % list.len()) }
}

impl Account {
    fn new() -> Self {
        let bench = Bench::with(Config { memory_bytes: MEMORY, ..Config::default() });
        Self { bench, buffers: Vec::new(), handles: Vec::new(), files: Vec::new(), spaces: Vec::new() }
    }

    /// Buffers that are still referenced.
    fn kept(&self) -> BTreeSet<Id> {
        let mapped = self.spaces.iter().flat_map(|space| space.mappings.values().map(|map| map.buffer));
        let handles = self.handles.iter().map(|(_, buffer)| *buffer);
        handles.chain(self.files.iter().map(|(_, buffer)| *buffer)).chain(mapped).collect()
    }

    fn used(&self) -> u64 {
        self.kept().iter().map(|id| self.buffers[*id]).filter(|buffer| buffer.allocated).map(|b| b.size).sum()
    }

    fn expected(&self) -> LiveCounts {
        LiveCounts {
            descriptors: 2 + self.files.len() + self.spaces.len(),
            handles: self.handles.len(),
            buffers: self.kept().len(),
            memory_bytes: self.used(),
            address_spaces: self.spaces.len(),
            gpu_mappings: self.spaces.iter().map(|space| space.mappings.len()).sum(),
            ..LiveCounts::default()
        }
    }

    /// Makes a call and updates the model. Returns an error if the result is wrong.
    fn play(&mut self, step: &Step) -> Result<(), String> {
        match *step {
            Step::Create { pages } => self.create(pages),
            Step::Alloc { handle } => self.alloc(handle),
            Step::Duplicate { handle } => self.duplicate(handle),
            Step::Import { file } => self.import(file),
            Step::Free { handle } => {
                if let Some(at) = select(&self.handles, handle) {
                    let (id, _) = self.handles.remove(at);
                    self.bench.free(id);
                    // Freeing it again is not an error and has no effect.
                    self.bench.free(id);
                }
                Ok(())
            }
            Step::Export { handle } => {
                if let Some(at) = select(&self.handles, handle) {
                    let (id, buffer) = self.handles[at];
                    self.files.push((self.bench.export(id), buffer));
                }
                Ok(())
            }
            Step::CloseFile { file } => {
                if let Some(at) = select(&self.files, file) {
                    self.files.remove(at);
                }
                Ok(())
            }
            Step::NewSpace => {
                let fd = self.bench.try_alloc_as(RANGE.0, RANGE.1).map_err(|errno| errno.to_string())?;
                self.spaces.push(Space { fd, areas: BTreeMap::new(), mappings: BTreeMap::new() });
                Ok(())
            }
            Step::CloseSpace { space } => {
                if let Some(at) = select(&self.spaces, space) {
                    self.spaces.remove(at);
                }
                Ok(())
            }
            Step::Reserve { space, pages, fixed } => self.reserve(space, pages, fixed),
            Step::FreeSpace { space, area } => self.free_space(space, area),
            Step::Map { space, file } => self.map(space, file),
            Step::MapFixed { space, file, area, page } => self.map_fixed(space, file, area, page),
            Step::Unmap { space, mapping, inside } => self.unmap(space, mapping, inside),
        }
    }

    fn create(&mut self, pages: u32) -> Result<(), String> {
        let size = u64::from(pages) * PAGE;
        let mut args = CreateHandle { size_or_fd: pages * 4096, handle: 0 };
        let result = nvmap::CREATE.send(&self.bench.nvmap, &mut args);
        if pages == 0 {
            return same(result, Err(Errno::INVAL));
        }
        same(result, Ok(0))?;
        if args.handle == 0 || self.handles.iter().any(|(id, _)| *id == args.handle) {
            return Err(format!("handle number {:#x} is not new", args.handle));
        }
        self.buffers.push(Buffer { size, allocated: false });
        self.handles.push((args.handle, self.buffers.len() - 1));
        Ok(())
    }

    fn alloc(&mut self, handle: usize) -> Result<(), String> {
        let heap = nvmap::Heaps::IOVMM.bits();
        let Some(at) = select(&self.handles, handle) else {
            return same(self.bench.try_alloc(77, heap, TAG), Err(Errno::INVAL));
        };
        let (id, buffer) = self.handles[at];
        let Buffer { size, allocated } = self.buffers[buffer];
        let wanted = match (allocated, self.used() + size <= MEMORY) {
            (true, _) => Err(Errno::EXIST),
            (false, true) => Ok(0),
            (false, false) => Err(Errno::NOMEM),
        };
        self.buffers[buffer].allocated |= wanted.is_ok();
        same(self.bench.try_alloc(id, heap, TAG), wanted)
    }

    fn duplicate(&mut self, handle: usize) -> Result<(), String> {
        let Some(at) = select(&self.handles, handle) else { return Ok(()) };
        let (id, buffer) = self.handles[at];
        let mut args = DuplicateHandle { handle: id, access_flags: 0, dup_handle: 0 };
        let result = nvmap::DUP_HANDLE.send(&self.bench.nvmap, &mut args);
        self.enter(buffer, result, args.dup_handle)
    }

    fn import(&mut self, file: usize) -> Result<(), String> {
        let Some(at) = select(&self.files, file) else { return Ok(()) };
        let mut args = CreateHandle { size_or_fd: raw(&self.files[at].0), handle: 0 };
        let result = nvmap::FROM_FD.send(&self.bench.nvmap, &mut args);
        self.enter(self.files[at].1, result, args.handle)
    }

    /// Records a further number for a buffer, which must have memory.
    fn enter(&mut self, buffer: Id, result: Result<i32, Errno>, id: u32) -> Result<(), String> {
        if !self.buffers[buffer].allocated {
            return same(result, Err(Errno::INVAL));
        }
        self.handles.push((id, buffer));
        same(result, Ok(0))
    }

    fn reserve(&mut self, space: usize, pages: u64, fixed: Option<u64>) -> Result<(), String> {
        let Some(at) = select(&self.spaces, space) else { return Ok(()) };
        let space = &mut self.spaces[at];
        let chosen = fixed.map(|page| RANGE.0 + page * PAGE);
        let flags = if fixed.is_some() { AllocSpaceFlags::FIXED_OFFSET.bits() } else { 0 };
        let result = reserve(&space.fd, pages, flags, chosen.unwrap_or(0));
        let va = match result {
            Ok(va) => va,
            // The allocator rounds to powers of two, so it may refuse an allocation that would fit.
            Err(Errno::NOMEM) => return Ok(()),
            Err(errno) => return Err(format!("reserve: {errno}")),
        };
        let len = pages * PAGE;
        let taken = space.reserved(va, len)
            || space.mappings.iter().any(|(at, map)| !map.fixed && *at < va + len && va < at + map.len);
        let inside = va >= RANGE.0 && va + len <= RANGE.1 && va.is_multiple_of(PAGE);
        if pages == 0 || taken || !inside || chosen.is_some_and(|chosen| chosen != va) {
            return Err(format!("{pages} pages were reserved at {va:#x} of {space:?}"));
        }
        space.areas.insert(va, len);
        Ok(())
    }

    fn free_space(&mut self, space: usize, area: usize) -> Result<(), String> {
        let Some(at) = select(&self.spaces, space) else { return Ok(()) };
        let space = &mut self.spaces[at];
        let areas: Vec<(u64, u64)> = space.areas.iter().map(|(va, len)| (*va, *len)).collect();
        // Without an area, use an address that is in none.
        let (va, len) = select(&areas, area).map_or((RANGE.1, 0), |at| areas[at]);
        let mut args = space::FreeSpace { offset: va + len.saturating_sub(1), ..Default::default() };
        let result = space::FREE_SPACE.send(&space.fd, &mut args);
        space.areas.remove(&va);
        // Leftovers of an earlier range at the same address are not mappings of this range.
        let inside = space.mappings.range_mut(va..va + len).filter(|(_, map)| map.area == Some(va));
        let inside: Vec<u64> = inside
            .map(|(at, mapping)| {
                mapping.area = None;
                *at
            })
            .collect();
        inside.into_iter().for_each(|at| space.drop_reference(at));
        same(result, Ok(0))
    }

    fn map(&mut self, space: usize, file: usize) -> Result<(), String> {
        let (Some(at), Some(file)) = (select(&self.spaces, space), select(&self.files, file)) else {
            return Ok(());
        };
        let (fd, buffer) = &self.files[file];
        let Buffer { size, allocated } = self.buffers[*buffer];
        let space = &mut self.spaces[at];
        let result = map(&space.fd, fd);
        if !allocated {
            return same(result, Err(Errno::INVAL));
        }
        let old = space.mappings.iter_mut().find(|(_, map)| map.buffer == *buffer && !map.fixed);
        if let Some((va, mapping)) = old {
            mapping.references += 1;
            return same(result, Ok(*va));
        }
        let va = match result {
            Ok(va) => va,
            Err(Errno::NOMEM) => return Ok(()),
            Err(errno) => return Err(format!("map: {errno}")),
        };
        let taken = space.mappings.iter().any(|(at, map)| !map.fixed && *at < va + size && va < at + map.len);
        if taken || space.reserved(va, size) || va < RANGE.0 || va + size > RANGE.1 {
            return Err(format!("{size:#x} bytes were mapped at {va:#x} of {space:?}"));
        }
        // Leftovers of a freed range are overwritten.
        for orphan in space.orphans(va, size) {
            space.mappings.remove(&orphan);
        }
        space
            .mappings
            .insert(va, Mapping { buffer: *buffer, len: size, references: 1, fixed: false, area: None });
        Ok(())
    }

    fn map_fixed(&mut self, space: usize, file: usize, area: usize, page: u64) -> Result<(), String> {
        let (Some(at), Some(file)) = (select(&self.spaces, space), select(&self.files, file)) else {
            return Ok(());
        };
        let (fd, buffer) = &self.files[file];
        let Buffer { size, allocated } = self.buffers[*buffer];
        let space = &mut self.spaces[at];
        let starts: Vec<u64> = space.areas.keys().copied().collect();
        let base = select(&starts, area).map_or(RANGE.0, |at| starts[at]);
        let va = base + page * PAGE;
        let flags = MapBufferFlags::FIXED_OFFSET.bits();
        let mut args = MapBufferEx { flags, offset: va, ..map_args(fd) };
        let result = space::MAP_BUFFER_EX.send(&space.fd, &mut args).map(|_| args.offset);
        if !allocated {
            return same(result, Err(Errno::INVAL));
        }
        if let Some(mapping) = space.mappings.get_mut(&va)
            && mapping.fixed
            && mapping.buffer == *buffer
        {
            mapping.references += 1;
            return same(result, Ok(va));
        }
        let area = space.area_of(va).filter(|(start, len)| va + size <= start + len).map(|(start, _)| start);
        if area.is_none() || space.mapped(va, size) {
            return same(result, Err(Errno::INVAL));
        }
        space.mappings.insert(va, Mapping { buffer: *buffer, len: size, references: 1, fixed: true, area });
        same(result, Ok(va))
    }

    fn unmap(&mut self, space: usize, mapping: usize, inside: u64) -> Result<(), String> {
        let Some(at) = select(&self.spaces, space) else { return Ok(()) };
        let space = &mut self.spaces[at];
        let starts: Vec<u64> = space.mappings.keys().copied().collect();
        let base = select(&starts, mapping).map_or(RANGE.0, |at| starts[at]);
        // One byte further there is no mapping.
        let va = base + inside;
        let result = space::UNMAP_BUFFER.send(&space.fd, &mut space::UnmapBuffer { offset: va });
        space.drop_reference(va);
        same(result, Ok(0))
    }
}

fn same<T: PartialEq + std::fmt::Debug>(
    result: Result<T, Errno>,
    wanted: Result<T, Errno>,
) -> Result<(), String> {
    if result == wanted { Ok(()) } else { Err(format!("{result:?} instead of {wanted:?}")) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 160, ..ProptestConfig::default() })]

    #[test]
    fn the_kernel_agrees_with_the_reference(steps in prop::collection::vec(step(), 1..160)) {
        let mut account = Account::new();
        for (at, step) in steps.iter().enumerate() {
            let result = account.play(step);
            prop_assert!(result.is_ok(), "step {at}, {step:?}: {}", result.unwrap_err());
            prop_assert_eq!(account.bench.orin.live(), account.expected(), "after step {}, {:?}", at, step);
        }
        let Account { bench, files, spaces, handles, .. } = account;
        handles.iter().for_each(|(id, _)| bench.free(*id));
        drop((files, spaces));
        prop_assert_eq!(bench.orin.live(), LiveCounts { descriptors: 2, ..LiveCounts::default() });
    }
}
