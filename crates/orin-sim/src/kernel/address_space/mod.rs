//! GPU address spaces (`common/mm/vm.c`, `os/linux/vm.c`, `ioctl_as.c`).
//!
//! An address space has two areas with one allocator each: the user's, and the kernel's 4 GiB directly above it for
//! rings and context buffers. User mappings at a chosen address must lie in a reserved range. All pages are 4 KiB.

mod mapping;

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::Arc;

use gpu_log::MemoryLine;
use nvgpu_sys::address_space::{
    self as abi, AllocSpace, AllocSpace32, AllocSpaceFlags, BindChannel, FreeSpace, GetSyncRoMap,
    GetVaRegions, MapBufferBatch, MapBufferEx, MappingModify, Remap, UnmapBuffer, VaRegion, code,
};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::memory::Memory;
use crate::mmu::{AddressSpace, MappedRange};

use super::State;
use super::argument::{Argument, Code};
use super::nvmap::Buffer;
use super::process::task::Task;
use super::va_allocator::VaAllocator;
use super::{Kernel, syncpoint};

use mapping::UserMapping;

/// GPU page in bytes.
const PAGE: u64 = abi::PAGE_SIZE as u64;
/// Length of the kernel's area, directly above the user's.
pub(super) const KERNEL_BYTES: u64 = 4 << 30;
/// Maximum number of elements of each kind in MAP_BUFFER_BATCH.
const BATCH: u32 = 256;
/// Number of an address space; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SpaceId(pub(super) u64);

/// A reserved range.
#[derive(Clone, Copy, Debug)]
struct Area {
    len: u64,
    sparse: bool,
}

/// One address space.
#[derive(Debug)]
pub(super) struct Space {
    start: u64,
    end: u64,
    user: VaAllocator,
    kernel: VaAllocator,
    /// Reserved ranges by first address.
    areas: BTreeMap<u64, Area>,
    /// Buffers of pages mapped by REMAP, by page address.
    pages: BTreeMap<u64, Buffer>,
    mappings: BTreeMap<u64, UserMapping>,
    /// Address of the read-only view of all syncpoints, once created.
    pub(super) syncpoints: Option<u64>,
    /// The page tables.
    pub(super) mmu: Arc<AddressSpace>,
}

impl Space {
    /// Creates an address space for the user range `[start, end)`, whose bounds have been checked.
    pub(super) fn new(start: u64, end: u64) -> Self {
        Self {
            start,
            end,
            user: VaAllocator::new(start, end - start),
            kernel: VaAllocator::new(end, KERNEL_BYTES),
            areas: BTreeMap::new(),
            pages: BTreeMap::new(),
            mappings: BTreeMap::new(),
            syncpoints: None,
            mmu: Arc::new(AddressSpace::new()),
        }
    }

    /// One past the last address, including the kernel's area.
    pub(super) fn limit(&self) -> u64 {
        self.end + KERNEL_BYTES
    }

    /// Number of user mappings.
    pub(super) fn mappings(&self) -> usize {
        self.mappings.len()
    }

    /// Maps a whole buffer read-only into the kernel's area.
    pub(super) fn map_kernel(&mut self, buffer: &Buffer) -> Result<u64, Errno> {
        self.map_kernel_memory(buffer.handle.memory().ok_or(Errno::INVAL)?)
    }

    /// Maps memory of the kernel read-only into the kernel's area.
    pub(super) fn map_kernel_memory(&mut self, memory: &Arc<Memory>) -> Result<u64, Errno> {
        // CAST: a length fits 64 bits.
        let len = memory.len() as u64;
        let va = self.kernel.allocate(len).ok_or(Errno::NOMEM)?;
        let memory = Arc::clone(memory);
        self.mmu.map(MappedRange { va, len, memory, offset: 0, writable: false, cached: false });
        Ok(va)
    }

    /// Undoes [`Space::map_kernel`].
    pub(super) fn unmap_kernel(&mut self, va: u64) {
        self.mmu.unmap(va);
        self.kernel.free(va);
    }

    /// Allocates addresses of the kernel's area for a buffer of the kernel.
    pub(super) fn reserve_kernel(&mut self, len: u64) -> Result<u64, Errno> {
        self.kernel.allocate(len).ok_or(Errno::NOMEM)
    }

    /// Undoes [`Space::reserve_kernel`].
    pub(super) fn release_kernel(&mut self, va: u64) {
        self.kernel.free(va);
    }

    /// The reserved range that contains `va`: first address and length.
    fn area(&self, va: u64) -> Option<(u64, u64)> {
        let (start, area) = self.areas.range(..=va).next_back()?;
        (va - start < area.len).then_some((*start, area.len))
    }

    /// Like [`Space::area`], for sparse ranges only.
    pub(super) fn sparse_at(&self, va: u64) -> Option<(u64, u64)> {
        self.area(va).filter(|(start, _)| self.areas.get(start).is_some_and(|area| area.sparse))
    }

    /// Unmaps pages, regardless of how they were mapped.
    pub(super) fn clear_pages(&mut self, va: u64, len: u64) {
        self.mmu.unmap_range(va, len);
        let kept: Vec<u64> = self.pages.range(va..va + len).map(|(page, _)| *page).collect();
        for page in kept {
            self.pages.remove(&page);
        }
    }

    /// Keeps a buffer alive while one of these pages maps it.
    pub(super) fn keep_pages(&mut self, va: u64, len: u64, buffer: &Buffer) {
        for page in 0..len / PAGE {
            self.pages.insert(va + page * PAGE, buffer.clone());
        }
    }

    fn alloc_space(&mut self, args: &mut AllocSpace) -> Result<(), Errno> {
        if args.page_size != abi::PAGE_SIZE {
            return Err(Errno::INVAL);
        }
        let len = args.pages.checked_mul(PAGE).filter(|len| *len > 0).ok_or(Errno::NOMEM)?;
        let flags = AllocSpaceFlags::from_bits_retain(args.flags);
        let va = if flags.contains(AllocSpaceFlags::FIXED_OFFSET) {
            self.user.allocate_at(args.offset, len).then_some(args.offset)
        } else {
            self.user.allocate(len)
        };
        args.offset = va.ok_or(Errno::NOMEM)?;
        let sparse = flags.contains(AllocSpaceFlags::SPARSE);
        if sparse {
            self.mmu.add_sparse(args.offset, len);
        }
        self.areas.insert(args.offset, Area { len, sparse });
        Ok(())
    }

    /// Frees the whole reserved range around the address. Each mapping in it loses a reference.
    fn free_space(&mut self, args: &FreeSpace) {
        let Some((start, len)) = self.area(args.offset) else { return };
        let sparse = self.areas.remove(&start).is_some_and(|area| area.sparse);
        let inside = self.mappings.range_mut(start..start + len).filter(|(_, map)| map.area == Some(start));
        let inside: Vec<u64> = inside
            .map(|(va, mapping)| {
                mapping.area = None;
                *va
            })
            .collect();
        for va in inside {
            self.drop_reference(va);
        }
        if sparse {
            self.mmu.remove_sparse(start);
            let pages: Vec<u64> = self.pages.range(start..start + len).map(|(page, _)| *page).collect();
            for page in pages {
                self.clear_pages(page, PAGE);
            }
        }
        self.user.free(start);
    }

    fn regions(&self, task: &Task<'_>, args: &mut GetVaRegions) -> Result<(), Errno> {
        let region = VaRegion {
            offset: self.start,
            page_size: abi::PAGE_SIZE,
            reserved: 0,
            pages: (self.end - self.start) / PAGE,
        };
        let bytes = region.as_bytes();
        if args.buf_size as usize >= bytes.len() && task.write_bytes(args.buf_addr, bytes) > 0 {
            return Err(Errno::FAULT);
        }
        // CAST: 24.
        args.buf_size = bytes.len() as u32;
        Ok(())
    }
}

impl State {
    /// MAP_BUFFER_EX.
    fn map_buffer(
        &mut self,
        task: &Task<'_>,
        kernel: &Kernel,
        space: SpaceId,
        args: &mut MapBufferEx,
    ) -> Result<(), Errno> {
        // CAST: a descriptor is the same 32 bits.
        let fd = args.dmabuf_fd as RawFd;
        let buffer = self.fds.dma_buf(task, fd).inspect_err(|_| {
            kernel.log.warning(
                "nvgpu_vm_map_buffer",
                MemoryLine::NotDmabuf { function: "nvgpu_vm_map_buffer".to_owned(), fd },
            );
        })?;
        self.spaces.get_mut(&space).ok_or(Errno::NODEV)?.map(kernel, args, buffer)
    }

    /// BIND_CHANNEL. A binding is permanent.
    fn bind_space(&mut self, task: &Task<'_>, space: SpaceId, args: &BindChannel) -> Result<(), Errno> {
        // CAST: a descriptor is the same 32 bits.
        let id = self.fds.channel(task, args.channel_fd as RawFd).ok_or(Errno::INVAL)?;
        let channel = self.channels.get_mut(&id).ok_or(Errno::INVAL)?;
        if channel.space.is_some() {
            return Err(Errno::INVAL);
        }
        channel.space = Some(space);
        Ok(())
    }

    /// MAP_BUFFER_BATCH: unmaps first, then maps, until the first error. Addresses are not returned.
    fn map_batch(
        &mut self,
        task: &Task<'_>,
        kernel: &Kernel,
        space: SpaceId,
        args: &MapBufferBatch,
    ) -> Result<(), Errno> {
        if args.num_unmaps > BATCH || args.num_maps > BATCH {
            return Err(Errno::INVAL);
        }
        let element = |base: u64, at: u32, size: usize| base.wrapping_add(u64::from(at) * size as u64);
        for at in 0..args.num_unmaps {
            let unmap: UnmapBuffer = task.read(element(args.unmaps, at, size_of::<UnmapBuffer>()))?;
            self.spaces.get_mut(&space).ok_or(Errno::NODEV)?.unmap(&kernel.log, &unmap);
        }
        for at in 0..args.num_maps {
            let mut map: MapBufferEx = task.read(element(args.maps, at, size_of::<MapBufferEx>()))?;
            self.map_buffer(task, kernel, space, &mut map)?;
        }
        Ok(())
    }
}

impl Kernel {
    pub(super) fn space_ioctl(
        &self,
        task: &Task<'_>,
        id: SpaceId,
        code: Code,
        address: u64,
    ) -> Result<i32, Errno> {
        self.check(code, abi::FAMILY, self.config.characteristics.as_ioctl_nr_last, abi::ALL)?;
        let mut argument = Argument::copy_in(task, code, address)?;
        let log = &self.log;
        let mut state = self.state.lock();
        if state.quiesced {
            return Err(Errno::NODEV);
        }
        if code.code == code::BIND_CHANNEL {
            argument.call(|args: &mut BindChannel| state.bind_space(task, id, args))?;
        } else if code.code == code::MAP_BUFFER_EX {
            argument.call(|args: &mut MapBufferEx| state.map_buffer(task, self, id, args))?;
        } else if code.code == code::MAP_BUFFER_BATCH {
            argument.call(|args: &mut MapBufferBatch| state.map_batch(task, self, id, args))?;
        } else if code.code == code::REMAP {
            let result = argument.call(|args: &mut Remap| state.remap(task, self, id, args));
            drop(state);
            // The count is stored even after an error. A failure of that store replaces the error.
            if argument.copy_out() > 0 {
                return Err(Errno::FAULT);
            }
            return result.map(|()| 0);
        } else if code.code == code::GET_SYNC_RO_MAP {
            argument.call(|args: &mut GetSyncRoMap| {
                let State { spaces, syncpoints, .. } = &mut *state;
                let space = spaces.get_mut(&id).ok_or(Errno::NODEV)?;
                args.base_gpuva = syncpoints.read_only_map(space)?;
                // CAST: 64 KiB.
                args.sync_size = syncpoint::WINDOW_BYTES as u32;
                args.num_syncpoints = syncpoint::COUNT;
                Ok(())
            })?;
        } else {
            let space = state.spaces.get_mut(&id).ok_or(Errno::NODEV)?;
            match code.code {
                code::ALLOC_SPACE => {
                    argument.call(|args: &mut AllocSpace| space.alloc_space(args))?;
                }
                code::ALLOC_SPACE_32 => argument.call(|args: &mut AllocSpace32| {
                    let mut wide = AllocSpace {
                        pages: u64::from(args.pages),
                        page_size: args.page_size,
                        flags: args.flags,
                        offset: args.offset,
                        ..AllocSpace::default()
                    };
                    space.alloc_space(&mut wide)?;
                    args.offset = wide.offset;
                    Ok(())
                })?,
                code::FREE_SPACE => argument.call(|args: &mut FreeSpace| {
                    space.free_space(args);
                    Ok(())
                })?,
                code::UNMAP_BUFFER => argument.call(|args: &mut UnmapBuffer| {
                    space.unmap(log, args);
                    Ok(())
                })?,
                code::GET_VA_REGIONS => argument.call(|args: &mut GetVaRegions| space.regions(task, args))?,
                code::MAPPING_MODIFY => argument.call(|args: &mut MappingModify| space.modify(log, args))?,
                _ => return Err(self.unhandled(code, &[code::GET_SYNC_RO_MAP_V2])),
            }
        }
        drop(state);
        // This is the only node that turns a failed copy-out into an error.
        if argument.copy_out() > 0 { Err(Errno::FAULT) } else { Ok(0) }
    }
}
