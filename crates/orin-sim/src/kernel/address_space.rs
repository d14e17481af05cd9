//! GPU address spaces (`common/mm/vm.c`, `os/linux/vm.c`, `ioctl_as.c`).
//!
//! An address space has two areas with an allocator each: the user's, and the kernel's 4 GiB right
//! above it, where rings and context buffers go. User mappings at an address of the caller's choice
//! lie inside a range reserved before; all pages are 4 KiB.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::Arc;

use nvgpu_sys::address_space::{
    self as abi, ACCESS_BITS, ACCESS_DEFAULT, ACCESS_READ_ONLY, ACCESS_READ_WRITE, ACCESS_SHIFT, AllocSpace,
    AllocSpace32, AllocSpaceFlags, BindChannel, FreeSpace, GetSyncRoMap, GetVaRegions, KIND_INVALID,
    MapBufferBatch, MapBufferEx, MapBufferFlags, MappingModify, Remap, UnmapBuffer, VaRegion, code,
};
use rustix::io::Errno;

use crate::memory::Memory;
use crate::mmu::{AddressSpace, MappedRange};

use super::argument::{Argument, Code};
use super::log::Log;
use super::nvmap::Buffer;
use super::state::State;
use super::va_allocator::VaAllocator;
use super::{Kernel, syncpoint, user};

/// Longest argument of the node, in bytes.
const MAX_BYTES: usize = 40;
/// GPU page in bytes.
const PAGE: u64 = abi::PAGE_SIZE as u64;
/// Length of the kernel's area, directly above the user's.
pub(super) const KERNEL_BYTES: u64 = 4 << 30;
/// Elements that MAP_BUFFER_BATCH takes of each kind.
const BATCH: u32 = 256;
/// Mask of the access field in the flags of a mapping.
const ACCESS_MASK: u32 = ((1 << ACCESS_BITS) - 1) << ACCESS_SHIFT;

/// Number of an address space; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SpaceId(pub(super) u64);

/// A mapping that user space made.
#[derive(Debug)]
struct UserMapping {
    buffer: Buffer,
    /// Compressible kind, or the incompressible one without it.
    kind: i16,
    /// Flags as given, without the deprecated one.
    flags: u32,
    len: u64,
    references: u32,
}

impl UserMapping {
    fn fixed(&self) -> bool {
        self.flags & MapBufferFlags::FIXED_OFFSET.bits() != 0
    }
}

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
    /// Buffers of pages that REMAP mapped, by address of the page.
    pages: BTreeMap<u64, Buffer>,
    mappings: BTreeMap<u64, UserMapping>,
    /// Where the read-only view of all syncpoints is, once somebody wanted it.
    pub(super) syncpoints: Option<u64>,
    /// The page tables.
    pub(super) mmu: Arc<AddressSpace>,
}

impl Space {
    /// An address space over the user range `[start, end)`, whose bounds have been checked.
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

    /// Number of user mappings.
    pub(super) fn mappings(&self) -> usize {
        self.mappings.len()
    }

    /// Maps a whole buffer read-only into the kernel's area.
    pub(super) fn map_kernel(&mut self, buffer: &Buffer) -> Result<u64, Errno> {
        self.map_kernel_memory(buffer.handle.memory().ok_or(Errno::INVAL)?)
    }

    /// Maps memory of the kernel's own read-only into the kernel's area.
    pub(super) fn map_kernel_memory(&mut self, memory: &Arc<Memory>) -> Result<u64, Errno> {
        // CAST: a length fits 64 bits.
        let len = memory.len() as u64;
        let va = self.kernel.allocate(len).ok_or(Errno::NOMEM)?;
        self.mmu.map(MappedRange { va, len, memory: Arc::clone(memory), offset: 0, writable: false });
        Ok(va)
    }

    /// Undoes [`Space::map_kernel`].
    pub(super) fn unmap_kernel(&mut self, va: u64) {
        self.mmu.unmap(va);
        self.kernel.free(va);
    }

    /// Takes addresses of the kernel's area for a buffer of its own.
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

    /// The same if the range is sparse.
    pub(super) fn sparse_at(&self, va: u64) -> Option<(u64, u64)> {
        self.area(va).filter(|(start, _)| self.areas.get(start).is_some_and(|area| area.sparse))
    }

    /// Unmaps pages, whatever mapped them.
    pub(super) fn clear_pages(&mut self, va: u64, len: u64) {
        self.mmu.unmap_range(va, len);
        let kept: Vec<u64> = self.pages.range(va..va + len).map(|(page, _)| *page).collect();
        for page in kept {
            self.pages.remove(&page);
        }
    }

    /// Keeps a buffer alive for as long as one of these pages shows it.
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

    /// Frees the whole reserved range around the address; each mapping in it loses a reference.
    fn free_space(&mut self, args: &FreeSpace) {
        let Some((start, len)) = self.area(args.offset) else { return };
        let sparse = self.areas.remove(&start).is_some_and(|area| area.sparse);
        let inside: Vec<u64> = self.mappings.range(start..start + len).map(|(va, _)| *va).collect();
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

    /// Takes one reference off the mapping at `va` and unmaps it with the last one. Returns how
    /// many are left.
    fn drop_reference(&mut self, va: u64) -> u32 {
        let Some(mapping) = self.mappings.get_mut(&va) else { return 0 };
        mapping.references -= 1;
        let left = mapping.references;
        if left == 0 {
            self.remove(va);
        }
        left
    }

    fn remove(&mut self, va: u64) {
        let Some(mapping) = self.mappings.remove(&va) else { return };
        self.mmu.unmap_range(va, mapping.len);
        if !mapping.fixed() {
            self.user.free(va);
        }
    }

    fn unmap(&mut self, log: &Log, args: &UnmapBuffer) {
        let Some(mapping) = self.mappings.get(&args.offset) else { return };
        let (fixed, references) = (mapping.fixed(), mapping.references);
        if fixed && references > 1 {
            // The kernel waits 100 ms for the other references first; they are the caller's own.
            log.error("nvgpu_vm_unmap_sync_buffer", format_args!("sync-unmap failed on {:#x}", args.offset));
        }
        let left = self.drop_reference(args.offset);
        if fixed && left > 0 {
            log.error("nvgpu_vm_unmap", format_args!("{left} references remaining on {:#x}", args.offset));
        }
    }

    /// MAP_BUFFER_EX once the dma-buf is known; the order of the checks decides the errno.
    fn map(&mut self, log: &Log, args: &mut MapBufferEx, buffer: Buffer) -> Result<(), Errno> {
        let size = buffer.handle.size();
        let flags = MapBufferFlags::from_bits_retain(args.flags);
        let fixed = flags.contains(MapBufferFlags::FIXED_OFFSET);
        check_arguments(log, args, size)?;
        if buffer.handle.memory().is_none() {
            log.warning("nvgpu_vm_map_linux", format_args!("Failed to pin dma_buf!"));
            return Err(Errno::INVAL);
        }
        let access = args.flags >> ACCESS_SHIFT & ((1 << ACCESS_BITS) - 1);
        if buffer.read_only && access == ACCESS_READ_WRITE {
            log.error("nvgpu_vm_map_linux", format_args!("RW mapping requested for RO buffer"));
            return Err(Errno::INVAL);
        }
        let writable = !buffer.read_only && access != ACCESS_READ_ONLY;
        let kind = if args.compr_kind == KIND_INVALID { args.incompr_kind } else { args.compr_kind };
        let key = args.flags & !MapBufferFlags::MAPPABLE_COMPBITS.bits();
        if let Some(va) = self.reuse(args, &buffer, kind, key) {
            args.offset = va;
            return Ok(());
        }
        let len = self.placement(log, args, size)?;
        check_kinds(log, args)?;
        if !args.buffer_offset.is_multiple_of(PAGE) {
            return Err(Errno::NOMEM);
        }
        let va = if fixed {
            args.offset
        } else {
            let va = self.user.allocate(len);
            va.ok_or_else(|| {
                log.error("nvgpu_vm_alloc_va", format_args!("failed to allocate va space"));
                log.error(
                    "nvgpu_gmmu_map_locked",
                    format_args!("(0x{va:x?}) oom: sz={len:#x}", va = self.end),
                );
                Errno::NOMEM
            })?
        };
        self.forget_overlaps(va, len);
        self.clear_pages(va, len);
        if !flags.contains(MapBufferFlags::UNMAPPED_PTE)
            && let Some(memory) = buffer.handle.memory()
        {
            let memory = Arc::clone(memory);
            self.mmu.map(MappedRange { va, len, memory, offset: args.buffer_offset, writable });
        }
        self.mappings.insert(va, UserMapping { buffer, kind, flags: key, len, references: 1 });
        args.offset = va;
        Ok(())
    }

    /// An existing mapping of the same dma-buf, kind and flags is used again: any of them, or at a
    /// chosen address the one there, whatever its offset and size.
    fn reuse(&mut self, args: &MapBufferEx, buffer: &Buffer, kind: i16, flags: u32) -> Option<u64> {
        let matches = |mapping: &UserMapping| {
            mapping.buffer.same(buffer) && mapping.kind == kind && mapping.flags == flags
        };
        let fixed = flags & MapBufferFlags::FIXED_OFFSET.bits() != 0;
        let va = if fixed {
            self.mappings.get(&args.offset).filter(|mapping| matches(mapping)).map(|_| args.offset)
        } else {
            self.mappings.iter().find(|(_, mapping)| matches(mapping)).map(|(va, _)| *va)
        }?;
        let mapping = self.mappings.get_mut(&va)?;
        mapping.references = mapping.references.saturating_add(1);
        Some(va)
    }

    /// Length of a new mapping; for a chosen address, whether it may go there.
    fn placement(&self, log: &Log, args: &MapBufferEx, size: u64) -> Result<u64, Errno> {
        let len = if args.mapping_size == 0 { size } else { args.mapping_size };
        let len = len.checked_next_multiple_of(PAGE).filter(|len| *len <= size).ok_or(Errno::INVAL)?;
        if args.buffer_offset > size - len {
            return Err(Errno::INVAL);
        }
        if args.flags & MapBufferFlags::FIXED_OFFSET.bits() == 0 {
            return Ok(len);
        }
        let function = "nvgpu_vm_area_validate_buffer";
        let end = args.offset.checked_add(len).ok_or(Errno::INVAL)?;
        if !args.offset.is_multiple_of(PAGE) {
            log.error(
                function,
                format_args!("map offset must be buffer page size aligned {:#x}", args.offset),
            );
            return Err(Errno::INVAL);
        }
        let Some((start, area)) = self.area(args.offset) else {
            log.warning(function, format_args!("fixed offset mapping without space allocation"));
            return Err(Errno::INVAL);
        };
        if end > start + area {
            log.warning(function, format_args!("fixed offset mapping size overflows va node"));
            return Err(Errno::INVAL);
        }
        if self.overlapping(args.offset, len).next().is_some() {
            log.warning(function, format_args!("overlapping buffer map requested"));
            return Err(Errno::INVAL);
        }
        Ok(len)
    }

    fn overlapping(&self, va: u64, len: u64) -> impl Iterator<Item = u64> {
        let before = self.mappings.range(..va).next_back().filter(|(at, old)| *at + old.len > va);
        let inside = self.mappings.range(va..va + len);
        before.into_iter().chain(inside).map(|(at, _)| *at)
    }

    /// A mapping with extra references survives FREE_SPACE although its addresses are given away;
    /// a later mapping there overwrites its page-table entries.
    fn forget_overlaps(&mut self, va: u64, len: u64) {
        for old in self.overlapping(va, len).collect::<Vec<_>>() {
            if let Some(mapping) = self.mappings.remove(&old) {
                self.mmu.unmap_range(old, mapping.len);
            }
        }
    }

    fn regions(&self, args: &mut GetVaRegions) -> Result<(), Errno> {
        let region = VaRegion {
            offset: self.start,
            page_size: abi::PAGE_SIZE,
            reserved: 0,
            pages: (self.end - self.start) / PAGE,
        };
        let bytes = bytemuck::bytes_of(&region);
        if args.buf_size as usize >= bytes.len() && user::write_bytes(args.buf_addr, bytes) > 0 {
            return Err(Errno::FAULT);
        }
        // CAST: 24.
        args.buf_size = bytes.len() as u32;
        Ok(())
    }

    fn modify(&self, log: &Log, args: &MappingModify) -> Result<(), Errno> {
        let function = "nvgpu_vm_mapping_modify";
        let Some(mapping) = self.mappings.get(&args.map_address) else {
            log.error(function, format_args!("no buffer at map_address {:#x}", args.map_address));
            return Err(Errno::INVAL);
        };
        if !args.buffer_offset.is_multiple_of(PAGE) || !args.buffer_size.is_multiple_of(PAGE) {
            log.error(function, format_args!("buffer_offset {:#x} not page aligned", args.buffer_offset));
            return Err(Errno::INVAL);
        }
        if args.buffer_offset.checked_add(args.buffer_size).is_none_or(|end| end > mapping.len) {
            log.error(
                function,
                format_args!(
                    "buffer end exceeds buffer size. {:#x} + {:#x} > {:#x}",
                    args.buffer_offset, args.buffer_size, mapping.len
                ),
            );
            return Err(Errno::INVAL);
        }
        // Pages are never compressible, so the incompressible kind is the resulting one.
        if args.incompr_kind == KIND_INVALID { Err(Errno::INVAL) } else { Ok(()) }
    }
}

/// The checks of MAP_BUFFER_EX that need no more than the size of the buffer.
fn check_arguments(log: &Log, args: &MapBufferEx, size: u64) -> Result<(), Errno> {
    let flags = MapBufferFlags::from_bits_retain(args.flags);
    let fixed = flags.contains(MapBufferFlags::FIXED_OFFSET);
    let function = "nvgpu_vm_map_buffer";
    if !fixed && (args.offset != 0 || args.buffer_offset != 0) {
        log.error(function, format_args!("Regular map with addr/buf offset is not supported!"));
        return Err(Errno::INVAL);
    }
    if !fixed && args.mapping_size != 0 {
        log.error(function, format_args!("map_size && non-fixed-mapping!"));
        return Err(Errno::INVAL);
    }
    if args.mapping_size > size || args.buffer_offset > size - args.mapping_size {
        log.error(
            function,
            format_args!(
                "buf size {size:x} < (offset({:x}) + map_size({:x}))",
                args.buffer_offset, args.mapping_size
            ),
        );
        return Err(Errno::INVAL);
    }
    let access = args.flags >> ACCESS_SHIFT & ((1 << ACCESS_BITS) - 1);
    if ![ACCESS_DEFAULT, ACCESS_READ_ONLY, ACCESS_READ_WRITE].contains(&access) {
        log.error("nvgpu_vm_translate_map_access", format_args!("Invalid map access specified {access}"));
        return Err(Errno::INVAL);
    }
    let function = "nvgpu_vm_translate_linux_flags";
    if flags.contains(MapBufferFlags::TEGRA_RAW) {
        log.error(function, format_args!("TEGRA_RAW requested when not supported."));
        return Err(Errno::INVAL);
    }
    let extra = args.flags & !MapBufferFlags::all().bits() & !ACCESS_MASK;
    if extra != 0 {
        log.error(function, format_args!("Extra flags: {extra:#x}"));
        return Err(Errno::INVAL);
    }
    if flags.contains(MapBufferFlags::MAPPABLE_COMPBITS) {
        log.warning(function, format_args!("MAPPABLE_COMPBITS is deprecated, ignoring"));
    }
    Ok(())
}

/// The page kinds: pages are 4 KiB, so a compressible kind needs another to fall back to.
fn check_kinds(log: &Log, args: &MapBufferEx) -> Result<(), Errno> {
    let function = "nvgpu_vm_compute_compression";
    if args.incompr_kind == KIND_INVALID && args.compr_kind != KIND_INVALID {
        log.error(
            function,
            format_args!("Unsupported page size for compressible kind, but no fallback kind"),
        );
        return Err(Errno::INVAL);
    }
    if !(0..=0xff).contains(&args.incompr_kind) {
        log.error("nvgpu_vm_do_map", format_args!("No comptags and no incompressible fallback kind"));
        return Err(Errno::NOMEM);
    }
    Ok(())
}

impl State {
    /// MAP_BUFFER_EX.
    fn map_buffer(&mut self, log: &Log, space: SpaceId, args: &mut MapBufferEx) -> Result<(), Errno> {
        // CAST: a descriptor is the same 32 bits.
        let fd = args.dmabuf_fd as RawFd;
        let buffer = self.fds.dma_buf(fd).inspect_err(|_| {
            log.warning("nvgpu_vm_map_buffer", format_args!("nvgpu_vm_map_buffer: fd {fd} is not a dmabuf"));
        })?;
        self.spaces.get_mut(&space).ok_or(Errno::NODEV)?.map(log, args, buffer)
    }

    /// BIND_CHANNEL: there is no way back.
    fn bind_space(&mut self, space: SpaceId, args: &BindChannel) -> Result<(), Errno> {
        // CAST: a descriptor is the same 32 bits.
        let id = self.fds.channel(args.channel_fd as RawFd).ok_or(Errno::INVAL)?;
        let channel = self.channels.get_mut(&id).ok_or(Errno::INVAL)?;
        if channel.space.is_some() {
            return Err(Errno::INVAL);
        }
        channel.space = Some(space);
        Ok(())
    }

    /// MAP_BUFFER_BATCH: unmaps first, then maps, up to the first error. Addresses are not returned.
    fn map_batch(&mut self, log: &Log, space: SpaceId, args: &MapBufferBatch) -> Result<(), Errno> {
        if args.num_unmaps > BATCH || args.num_maps > BATCH {
            return Err(Errno::INVAL);
        }
        let element = |base: u64, at: u32, size: usize| base.wrapping_add(u64::from(at) * size as u64);
        for at in 0..args.num_unmaps {
            let unmap: UnmapBuffer = user::read(element(args.unmaps, at, size_of::<UnmapBuffer>()))?;
            self.spaces.get_mut(&space).ok_or(Errno::NODEV)?.unmap(log, &unmap);
        }
        for at in 0..args.num_maps {
            let mut map: MapBufferEx = user::read(element(args.maps, at, size_of::<MapBufferEx>()))?;
            self.map_buffer(log, space, &mut map)?;
        }
        Ok(())
    }
}

impl Kernel {
    pub(super) fn space_ioctl(&self, id: SpaceId, code: Code, address: u64) -> Result<i32, Errno> {
        code.check(abi::FAMILY, self.config.characteristics.as_ioctl_nr_last, MAX_BYTES)?;
        let mut argument = Argument::copy_in(code, address)?;
        let log = &self.log;
        let mut state = self.lock();
        if state.quiesced {
            return Err(Errno::NODEV);
        }
        if code.code == code::BIND_CHANNEL {
            argument.call(|args: &mut BindChannel| state.bind_space(id, args))?;
        } else if code.code == code::MAP_BUFFER_EX {
            argument.call(|args: &mut MapBufferEx| state.map_buffer(log, id, args))?;
        } else if code.code == code::MAP_BUFFER_BATCH {
            argument.call(|args: &mut MapBufferBatch| state.map_batch(log, id, args))?;
        } else if code.code == code::REMAP {
            let result = argument.call(|args: &mut Remap| state.remap(log, id, args));
            drop(state);
            // The count is stored even after an error.
            let residue = argument.copy_out();
            result?;
            return if residue > 0 { Err(Errno::FAULT) } else { Ok(0) };
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
                code::GET_VA_REGIONS => argument.call(|args: &mut GetVaRegions| space.regions(args))?,
                code::MAPPING_MODIFY => argument.call(|args: &mut MappingModify| space.modify(log, args))?,
                _ => return Err(Errno::NOTTY),
            }
        }
        drop(state);
        // This node alone turns a failed copy-out into an error.
        if argument.copy_out() > 0 { Err(Errno::FAULT) } else { Ok(0) }
    }
}
