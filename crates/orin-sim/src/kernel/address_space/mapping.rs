//! Mappings created by user space: MAP_BUFFER_EX with its checks in order, UNMAP_BUFFER, MAPPING_MODIFY.

use gpu_log::MemoryLine;
use nvgpu_sys::address_space::{
    ACCESS_BITS, ACCESS_DEFAULT, ACCESS_READ_ONLY, ACCESS_READ_WRITE, ACCESS_SHIFT, KIND_INVALID,
    MapBufferEx, MapBufferFlags, MappingModify, UnmapBuffer,
};
use rustix::io::Errno;

use super::{PAGE, Space};
use crate::kernel::Kernel;
use crate::kernel::log::Log;
use crate::kernel::nvmap::Buffer;
use crate::mmu::MappedRange;

/// Mask of the access field in the flags of a mapping.
const ACCESS_MASK: u32 = ((1 << ACCESS_BITS) - 1) << ACCESS_SHIFT;

/// A mapping created by user space.
#[derive(Debug)]
pub(super) struct UserMapping {
    buffer: Buffer,
    /// The compressible kind, or the incompressible one if there is none.
    kind: i16,
    /// Flags as given, without the deprecated one.
    flags: u32,
    len: u64,
    references: u32,
    /// The reserved range that contains it. Freeing the range drops one reference.
    pub(super) area: Option<u64>,
}

impl UserMapping {
    fn fixed(&self) -> bool {
        self.flags & MapBufferFlags::FIXED_OFFSET.bits() != 0
    }
}

impl Space {
    /// Drops one reference of the mapping at `va`; dropping the last one unmaps it.
    pub(super) fn drop_reference(&mut self, va: u64) {
        let Some(mapping) = self.mappings.get_mut(&va) else { return };
        mapping.references -= 1;
        if mapping.references == 0 {
            self.remove(va);
        }
    }

    fn remove(&mut self, va: u64) {
        let Some(mapping) = self.mappings.remove(&va) else { return };
        self.mmu.unmap_range(va, mapping.len);
        if !mapping.fixed() {
            self.user.free(va);
        }
    }

    pub(super) fn unmap(&mut self, log: &Log, args: &UnmapBuffer) {
        let Some(mapping) = self.mappings.get(&args.offset) else { return };
        let (fixed, references) = (mapping.fixed(), mapping.references);
        if fixed && references > 1 {
            // The kernel first waits 100 ms for the other references, which belong to the caller.
            log.error("nvgpu_vm_unmap_sync_buffer", MemoryLine::SyncUnmap { address: args.offset });
            log.warning(
                "nvgpu_vm_unmap",
                MemoryLine::ReferencesRemaining { references, address: args.offset },
            );
        }
        self.drop_reference(args.offset);
    }

    /// MAP_BUFFER_EX after the dma-buf lookup; the order of the checks determines the errno.
    pub(super) fn map(
        &mut self,
        kernel: &Kernel,
        args: &mut MapBufferEx,
        buffer: Buffer,
    ) -> Result<(), Errno> {
        let log = &kernel.log;
        let size = buffer.handle.size();
        let flags = MapBufferFlags::from_bits_retain(args.flags);
        let fixed = flags.contains(MapBufferFlags::FIXED_OFFSET);
        check_arguments(log, args, size)?;
        let memory = kernel.pin(&buffer).inspect_err(|_| {
            log.warning("nvgpu_vm_map_linux", MemoryLine::PinFailed {});
        })?;
        let access = args.flags >> ACCESS_SHIFT & ((1 << ACCESS_BITS) - 1);
        if buffer.read_only && access == ACCESS_READ_WRITE {
            log.error("nvgpu_vm_map_linux", MemoryLine::WriteMapping);
            return Err(Errno::INVAL);
        }
        let writable = !buffer.read_only && access != ACCESS_READ_ONLY;
        let kind = if args.compr_kind == KIND_INVALID { args.incompr_kind } else { args.compr_kind };
        let key = args.flags & !MapBufferFlags::MAPPABLE_COMPBITS.bits();
        if let Some(va) = self.reuse(args, &buffer, kind, key) {
            args.offset = va;
            return Ok(());
        }
        let (len, area) = self.placement(log, args, size)?;
        check_kinds(log, args)?;
        let va = if fixed {
            if !args.buffer_offset.is_multiple_of(PAGE) {
                report_failed_map(log, Errno::INVAL);
                return Err(Errno::NOMEM);
            }
            args.offset
        } else {
            self.user.allocate(len).ok_or_else(|| {
                log.error("nvgpu_vm_alloc_va", MemoryLine::OutOfAddresses { size: len });
                log.error("nvgpu_gmmu_map_locked", MemoryLine::NoVaSpace);
                report_failed_map(log, Errno::NOMEM);
                Errno::NOMEM
            })?
        };
        self.forget_overlaps(va, len);
        self.clear_pages(va, len);
        if !flags.contains(MapBufferFlags::UNMAPPED_PTE) {
            let cached = flags.contains(MapBufferFlags::CACHEABLE);
            let offset = args.buffer_offset;
            self.mmu.map(MappedRange { va, len, memory, offset, writable, cached });
        }
        self.mappings.insert(va, UserMapping { buffer, kind, flags: key, len, references: 1, area });
        args.offset = va;
        Ok(())
    }

    /// Reuses an existing mapping of the same dma-buf, kind and flags. With a chosen address only the mapping at that
    /// address is considered, regardless of its offset and size.
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

    /// The length of a new mapping. For a chosen address, also checks it and returns the reserved range that contains
    /// it.
    fn placement(&self, log: &Log, args: &MapBufferEx, size: u64) -> Result<(u64, Option<u64>), Errno> {
        let len = if args.mapping_size == 0 { size } else { args.mapping_size };
        let len = len.checked_next_multiple_of(PAGE).filter(|len| *len <= size).ok_or(Errno::INVAL)?;
        if args.buffer_offset > size - len {
            return Err(Errno::INVAL);
        }
        if args.flags & MapBufferFlags::FIXED_OFFSET.bits() == 0 {
            return Ok((len, None));
        }
        let function = "nvgpu_vm_area_validate_buffer";
        let Some(end) = args.offset.checked_add(len) else {
            log.warning(function, MemoryLine::FixedSize);
            return Err(Errno::INVAL);
        };
        if !args.offset.is_multiple_of(PAGE) {
            log.error(function, MemoryLine::FixedMisaligned { offset: args.offset });
            return Err(Errno::INVAL);
        }
        let Some((start, area)) = self.area(args.offset) else {
            log.warning(function, MemoryLine::FixedUnreserved);
            return Err(Errno::INVAL);
        };
        if end > start + area {
            log.warning(function, MemoryLine::FixedOverflow);
            return Err(Errno::INVAL);
        }
        if self.overlapping(args.offset, len).next().is_some() {
            log.warning(function, MemoryLine::FixedOverlap);
            return Err(Errno::INVAL);
        }
        Ok((len, Some(start)))
    }

    fn overlapping(&self, va: u64, len: u64) -> impl Iterator<Item = u64> {
        let before = self.mappings.range(..va).next_back().filter(|(at, old)| *at + old.len > va);
        let inside = self.mappings.range(va..va + len);
        before.into_iter().chain(inside).map(|(at, _)| *at)
    }

    /// A mapping with extra references survives FREE_SPACE although its addresses are freed. A later mapping there
    /// overwrites its page-table entries.
    fn forget_overlaps(&mut self, va: u64, len: u64) {
        for old in self.overlapping(va, len).collect::<Vec<_>>() {
            if let Some(mapping) = self.mappings.remove(&old) {
                self.mmu.unmap_range(old, mapping.len);
            }
        }
    }

    pub(super) fn modify(&self, log: &Log, args: &MappingModify) -> Result<(), Errno> {
        let function = "nvgpu_vm_mapping_modify";
        let Some(mapping) = self.mappings.get(&args.map_address) else {
            log.error(function, MemoryLine::NotMapped { address: args.map_address });
            return Err(Errno::INVAL);
        };
        if !args.buffer_offset.is_multiple_of(PAGE) {
            log.error(function, MemoryLine::ModifyOffset { offset: args.buffer_offset });
            return Err(Errno::INVAL);
        }
        if !args.buffer_size.is_multiple_of(PAGE) {
            log.error(function, MemoryLine::ModifySize { size: args.buffer_size });
            return Err(Errno::INVAL);
        }
        if args.buffer_offset.checked_add(args.buffer_size).is_none_or(|end| end > mapping.len) {
            log.error(
                function,
                MemoryLine::ModifyBeyondBuffer {
                    offset: args.buffer_offset,
                    size: args.buffer_size,
                    mapped: mapping.len,
                },
            );
            return Err(Errno::INVAL);
        }
        // Pages are never compressible, so the resulting kind is the incompressible one.
        if args.incompr_kind == KIND_INVALID {
            let none = args.compr_kind == KIND_INVALID;
            log.error(function, if none { MemoryLine::NoKind } else { MemoryLine::InvalidKind });
            return Err(Errno::INVAL);
        }
        Ok(())
    }
}

/// Prints the lines for page tables that could not be written.
fn report_failed_map(log: &Log, errno: Errno) {
    let function = "nvgpu_gmmu_map_locked";
    let number = -errno.raw_os_error();
    if errno == Errno::INVAL {
        log.error(function, MemoryLine::UpdatePtes { error: number });
    }
    log.error(function, MemoryLine::MapFailed { function: function.to_owned(), error: number });
}

/// The checks of MAP_BUFFER_EX that need only the size of the buffer.
fn check_arguments(log: &Log, args: &MapBufferEx, size: u64) -> Result<(), Errno> {
    let flags = MapBufferFlags::from_bits_retain(args.flags);
    let fixed = flags.contains(MapBufferFlags::FIXED_OFFSET);
    let function = "nvgpu_vm_map_buffer";
    if !fixed && (args.offset != 0 || args.buffer_offset != 0) {
        log.error(function, MemoryLine::OffsetWithoutFixed {});
        return Err(Errno::INVAL);
    }
    if !fixed && args.mapping_size != 0 {
        log.error(function, MemoryLine::SizeWithoutFixed {});
        return Err(Errno::INVAL);
    }
    if args.mapping_size > size || args.buffer_offset > size - args.mapping_size {
        log.error(
            function,
            MemoryLine::BeyondBuffer { size, offset: args.buffer_offset, map_size: args.mapping_size },
        );
        return Err(Errno::INVAL);
    }
    let access = args.flags >> ACCESS_SHIFT & ((1 << ACCESS_BITS) - 1);
    if ![ACCESS_DEFAULT, ACCESS_READ_ONLY, ACCESS_READ_WRITE].contains(&access) {
        log.error("nvgpu_vm_translate_map_access", MemoryLine::InvalidAccess { access });
        log.error(function, MemoryLine::AccessTranslation);
        return Err(Errno::INVAL);
    }
    if flags.contains(MapBufferFlags::TEGRA_RAW) {
        log.error(function, MemoryLine::TegraRaw {});
        return Err(Errno::INVAL);
    }
    let function = "nvgpu_vm_translate_linux_flags";
    if flags.contains(MapBufferFlags::MAPPABLE_COMPBITS) {
        let name = "NVGPU_AS_MAP_BUFFER_FLAGS_MAPPABLE_COMPBITS";
        log.warning(function, MemoryLine::DeprecatedFlag { flag: name.to_owned() });
    }
    let extra = args.flags & !MapBufferFlags::all().bits() & !ACCESS_MASK;
    if extra != 0 {
        log.error(function, MemoryLine::ExtraFlags { flags: extra });
        return Err(Errno::INVAL);
    }
    Ok(())
}

/// Checks the page kinds: pages are 4 KiB, so a compressible kind needs a fallback kind.
fn check_kinds(log: &Log, args: &MapBufferEx) -> Result<(), Errno> {
    let function = "nvgpu_vm_compute_compression";
    if args.incompr_kind == KIND_INVALID && args.compr_kind != KIND_INVALID {
        log.error(function, MemoryLine::CompressiblePageSize {});
        log.error("nvgpu_vm_do_map", MemoryLine::CompressionFailed);
        return Err(Errno::INVAL);
    }
    if !(0..=0xff).contains(&args.incompr_kind) {
        log.error("nvgpu_vm_do_map", MemoryLine::NoFallbackKind);
        return Err(Errno::NOMEM);
    }
    Ok(())
}
