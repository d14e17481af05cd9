//! nvmap: handles, memory, dma-bufs.
//!
//! A handle number belongs to the process, whichever `/dev/nvmap` descriptor it came through; the
//! buffer behind it outlives the number as long as a descriptor, a mapping of CPU or GPU or a
//! channel uses it. CREATE makes the buffer (and its dma-buf), ALLOC gives it memory
//! (`nvmap_ioctl.c`, `nvmap_handle.c`, `nvmap_alloc.c`).

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use nvgpu_sys::nvmap::{
    self as abi, AllocHandle, AvailableHeaps, CacheOpList, CreateHandle, CreateHandle64, DuplicateHandle,
    HandleFlags, HandleParameters, HeapSize, Heaps, QueryHeapParams, RwHandle, code,
};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::config::Config;
use crate::memory::Memory;

use super::argument::{Argument, Code};
use super::fds::{self, Object};
use super::log::{Level, Log};
use super::state::State;
use super::{Kernel, user};

/// Highest request number.
const LAST: u32 = 107;
/// Page size of handles, in bytes.
const PAGE: u64 = abi::PAGE_SIZE;
/// First handle number of a machine (`nvmap_id_array.c` starts its search at U32_MAX / 2).
const FIRST_ID: u32 = u32::MAX / 2;
/// NUMA nodes that an arm64 kernel is built for.
const MAX_NODES: i32 = 16;
/// The carveouts that GET_AVAILABLE_HEAPS of the board lists.
const CARVEOUTS: Heaps = Heaps::VPR.union(Heaps::FSI);
/// Heaps that cannot be combined with others.
const EXCLUSIVE: Heaps = Heaps::IVM.union(Heaps::VIDMEM);
/// System memory; GENERIC counts as such where there is no generic carveout.
const SYSTEM: Heaps = Heaps::IOVMM.union(Heaps::GENERIC);

/// Requests of the real driver that have no handler here.
const NOT_MODELLED: &[u32] = &[
    code::CACHE,
    code::CACHE_64,
    code::FROM_VA,
    0xc008_4e13,
    0xc008_4e14,
    0x8004_4e15,
    0xc010_4e17,
    0x4014_4e65,
    0x4004_4e66,
    0x8020_4e67,
    0x8020_4e68,
    0x8028_4e6b,
    0x401c_4e06,
    0x401c_4e07,
    0x4010_4e0c,
];
/// FROM_ID and GET_ID, which the driver refuses by name.
const DEPRECATED: [u32; 2] = [0xc008_4e02, 0xc008_4e0d];

/// One kind of memory and how much of it is in use.
#[derive(Debug)]
struct Pool {
    total: u64,
    used: AtomicU64,
}

impl Pool {
    fn new(total: u64) -> Self {
        Self { total, used: AtomicU64::new(0) }
    }

    fn take(&self, bytes: u64) -> bool {
        let taken = self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
            used.checked_add(bytes).filter(|used| *used <= self.total)
        });
        taken.is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::AcqRel);
    }

    fn free(&self) -> u64 {
        self.total - self.used.load(Ordering::Acquire)
    }
}

/// The memory of a buffer.
#[derive(Debug)]
pub(super) struct Storage {
    /// The bytes.
    pub(super) memory: Arc<Memory>,
    heap: Heaps,
    align: u32,
    cache: u32,
    tag: u32,
    bytes: u64,
    pool: Arc<Pool>,
}

impl Storage {
    /// Whether the CPU may map it: protected memory it may not.
    pub(super) fn cpu_access(&self) -> bool {
        self.heap != Heaps::VPR
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.pool.give_back(self.bytes);
    }
}

/// A buffer: what handle numbers and dma-bufs refer to.
#[derive(Debug)]
pub(super) struct Handle {
    size: u64,
    file: Arc<OwnedFd>,
    storage: OnceLock<Storage>,
    serial: u64,
    live: Arc<AtomicUsize>,
}

impl Handle {
    /// Size in bytes, whole pages.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// The memory, once there is some.
    pub(super) fn storage(&self) -> Option<&Storage> {
        self.storage.get()
    }

    /// The bytes, once there are some.
    pub(super) fn memory(&self) -> Option<&Arc<Memory>> {
        self.storage.get().map(|storage| &storage.memory)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A dma-buf: a buffer, or the read-only twin of one.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    pub(super) handle: Arc<Handle>,
    pub(super) read_only: bool,
}

impl Buffer {
    /// Whether both are the same dma-buf.
    pub(super) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.handle, &other.handle) && self.read_only == other.read_only
    }
}

/// The process's side of nvmap, and the machine's memory.
#[derive(Debug)]
pub(super) struct Nvmap {
    clients: usize,
    ids: BTreeMap<u32, Buffer>,
    next_id: u32,
    next_serial: u64,
    live: Arc<AtomicUsize>,
    system: Arc<Pool>,
    protected: Arc<Pool>,
    warned_of_tag: bool,
    warned_of_uncached: bool,
}

impl Nvmap {
    pub(super) fn new(config: &Config) -> Self {
        // What ran before on the machine has used up numbers. CAST: the remainder is below 2^16.
        let before = if config.seed == 0 { 0 } else { (config.seed % 0x1_0000) as u32 };
        Self {
            clients: 0,
            ids: BTreeMap::new(),
            next_id: FIRST_ID + before,
            next_serial: 0,
            live: Arc::default(),
            system: Arc::new(Pool::new(config.memory_bytes)),
            protected: Arc::new(Pool::new(config.vpr_bytes)),
            warned_of_tag: false,
            warned_of_uncached: false,
        }
    }

    pub(super) fn add_client(&mut self) {
        self.clients += 1;
    }

    /// One descriptor less; with the last one go all handle numbers.
    pub(super) fn remove_client(&mut self) {
        self.clients = self.clients.saturating_sub(1);
        if self.clients == 0 {
            self.ids.clear();
            (self.warned_of_tag, self.warned_of_uncached) = (false, false);
        }
    }

    pub(super) fn handles(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn buffers(&self) -> usize {
        self.live.load(Ordering::Acquire)
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.system.used.load(Ordering::Acquire) + self.protected.used.load(Ordering::Acquire)
    }

    /// Called for each CPU mapping of a dma-buf.
    pub(super) fn mapped(&mut self, log: &Log, buffer: &Buffer) {
        let uncached = buffer.handle.storage().filter(|storage| storage.cache == abi::CACHE_UNCACHED);
        if let (Some(storage), false) = (uncached, self.warned_of_uncached) {
            self.warned_of_uncached = true;
            log.nvmap(
                Level::Warning,
                "__nvmap_map",
                format_args!(
                    "PID {}: {}: TAG: {:#06x} WARNING: NVMAP_HANDLE_WRITE_COMBINE should be used in place \
                     of NVMAP_HANDLE_UNCACHEABLE on ARM64",
                    std::process::id(),
                    command(),
                    storage.tag
                ),
            );
        }
    }

    fn lookup(&self, id: u32) -> Result<&Buffer, Errno> {
        self.ids.get(&id).ok_or(Errno::INVAL)
    }

    /// A number for a buffer: the next free one, machine-wide.
    fn enter(&mut self, buffer: Buffer) -> u32 {
        while self.next_id == 0 || self.ids.contains_key(&self.next_id) {
            self.next_id = self.next_id.wrapping_add(1);
        }
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        self.ids.insert(id, buffer);
        id
    }

    fn create(&mut self, bytes: u64) -> Result<u32, Errno> {
        if bytes == 0 {
            return Err(Errno::INVAL);
        }
        let size = bytes.checked_next_multiple_of(PAGE).ok_or(Errno::NOMEM)?;
        let file = Memory::file("dmabuf", size).map_err(|_| Errno::NOMEM)?;
        self.live.fetch_add(1, Ordering::AcqRel);
        let handle = Handle {
            size,
            file: Arc::new(file),
            storage: OnceLock::new(),
            serial: self.next_serial,
            live: Arc::clone(&self.live),
        };
        self.next_serial += 1;
        Ok(self.enter(Buffer { handle: Arc::new(handle), read_only: false }))
    }

    fn alloc(&mut self, log: &Log, args: &AllocHandle) -> Result<(), Errno> {
        if !args.align.is_power_of_two() && args.align != 0 || args.handle == 0 {
            return Err(Errno::INVAL);
        }
        if args.numa_nid > MAX_NODES || args.numa_nid < -1 {
            log.nvmap(
                Level::Error,
                "nvmap_ioctl_alloc",
                format_args!("numa id:{} is invalid", args.numa_nid),
            );
            return Err(Errno::INVAL);
        }
        let handle = Arc::clone(&self.lookup(args.handle)?.handle);
        let heaps = Heaps::from_bits_retain(args.heap_mask);
        if !self.available(heaps, handle.size) {
            return Err(Errno::NOMEM);
        }
        self.check_tag(log, args.flags);
        if handle.storage().is_some() {
            return Err(Errno::EXIST);
        }
        if heaps.intersects(EXCLUSIVE) && !EXCLUSIVE.contains(heaps) {
            return Err(Errno::INVAL);
        }
        // Protected memory comes first in the kernel's order, then system memory; the other
        // carveout serves the safety island alone.
        let (heap, pool) = if heaps.contains(Heaps::VPR) && self.protected.take(handle.size) {
            (Heaps::VPR, &self.protected)
        } else if heaps.intersects(SYSTEM) && self.system.take(handle.size) {
            (Heaps::IOVMM, &self.system)
        } else {
            return Err(Errno::NOMEM);
        };
        let pool = Arc::clone(pool);
        let memory = usize::try_from(handle.size)
            .map_err(|_| Errno::NOMEM)
            .and_then(|len| Memory::map(Arc::clone(&handle.file), len));
        let Ok(memory) = memory else {
            pool.give_back(handle.size);
            return Err(Errno::NOMEM);
        };
        let protected = heaps.contains(Heaps::VPR);
        let storage = Storage {
            memory: Arc::new(memory),
            heap,
            align: args.align.max(4096),
            cache: if protected { abi::CACHE_UNCACHED } else { args.flags & abi::CACHE_MASK },
            tag: args.flags >> abi::TAG_SHIFT,
            bytes: handle.size,
            pool,
        };
        // Allocation happens under the state mutex, so nobody else can have set it.
        handle.storage.set(storage).map_err(|_| Errno::EXIST)
    }

    /// The kernel's estimate before it tries.
    fn available(&self, heaps: Heaps, bytes: u64) -> bool {
        if heaps.intersects(SYSTEM) {
            return bytes <= self.system.total;
        }
        heaps.contains(Heaps::VPR) && bytes <= self.protected.free()
    }

    /// Warns once of an allocation without a tag.
    fn check_tag(&mut self, log: &Log, flags: u32) {
        if flags & abi::TAG_MASK == 0 && !self.warned_of_tag {
            self.warned_of_tag = true;
            log.nvmap(
                Level::Warning,
                "nvmap_alloc_handle",
                format_args!(
                    "PID {}: {}: WARNING: All NvMap Allocations must have a tag to identify the subsystem \
                     allocating memory.Please pass the tag to the API call NvRmMemHanldeAllocAttr() or \
                     relevant. ",
                    std::process::id(),
                    command()
                ),
            );
        }
    }

    fn duplicate(&mut self, log: &Log, args: &mut DuplicateHandle) -> Result<(), Errno> {
        let buffer = self.lookup(args.handle)?.clone();
        let read_only = args.access_flags & HandleFlags::READ_ONLY.bits() != 0;
        if buffer.read_only && !read_only {
            log.nvmap(
                Level::Error,
                "nvmap_ioctl_dup_handle",
                format_args!("Duplicating RW handle from RO handle is not allowed"),
            );
            return Err(Errno::PERM);
        }
        refuse_unallocated(log, &buffer)?;
        args.dup_handle = self.enter(Buffer { handle: buffer.handle, read_only });
        Ok(())
    }

    fn parameters(&self, args: &mut HandleParameters) -> Result<(), Errno> {
        let buffer = self.lookup(args.handle).map_err(|_| Errno::NODEV)?;
        let storage = buffer.handle.storage();
        args.contig = 0;
        args.import_id = 0;
        args.heap_number = storage.map_or(0, |storage| storage.heap.bits());
        args.access_flags = if buffer.read_only { HandleFlags::READ_ONLY.bits() } else { 0 };
        args.heap = storage.map_or(0, |storage| u64::from(storage.heap.bits()));
        args.align = storage.map_or(PAGE, |storage| u64::from(storage.align));
        args.coherency = u64::from(storage.map_or(abi::CACHE_WRITE_COMBINED, |storage| storage.cache));
        args.size = buffer.handle.size;
        args.offset = 0;
        args.serial_id = buffer.handle.serial;
        Ok(())
    }

    fn heap_params(&self, args: &mut QueryHeapParams) -> Result<(), Errno> {
        let heaps = Heaps::from_bits_retain(args.heap_mask);
        args.largest_free_block = PAGE;
        (args.contig, args.granule_size) = (0, 4096);
        (args.total, args.free) = if heaps.contains(Heaps::VPR) {
            (self.protected.total, self.protected.free())
        } else if heaps.intersects(SYSTEM) {
            (self.system.total, self.system.free())
        } else if heaps.is_empty() || heaps.contains(Heaps::FSI) {
            (0, 0)
        } else {
            return Err(Errno::NODEV);
        };
        Ok(())
    }

    fn heap_size(&self, args: &mut HeapSize) -> Result<(), Errno> {
        args.size = match Heaps::from_bits_retain(args.heap) {
            Heaps::VPR => self.protected.total,
            Heaps::FSI => 0,
            _ => return Err(Errno::NODEV),
        };
        Ok(())
    }

    /// The handles of a list must exist and have memory; on this chip there is nothing more to do.
    fn cache_list(&self, args: &CacheOpList) -> Result<(), Errno> {
        if args.nr == 0 || args.handles == 0 || args.offsets == 0 || args.sizes == 0 {
            return Err(Errno::INVAL);
        }
        let mut unallocated = false;
        for at in 0..u64::from(args.nr) {
            let id: u32 = user::read(args.handles.wrapping_add(4 * at))?;
            unallocated |= self.lookup(id)?.handle.storage().is_none();
        }
        if unallocated { Err(Errno::PERM) } else { Ok(()) }
    }
}

/// FROM_FD and DUP_HANDLE need memory.
fn refuse_unallocated(log: &Log, buffer: &Buffer) -> Result<(), Errno> {
    if buffer.handle.storage().is_some() {
        return Ok(());
    }
    let message = format_args!("{} duplicating unallocated handle", command()).to_string();
    log.nvmap(Level::Error, "nvmap_duplicate_handle", format_args!("{message}"));
    Err(Errno::INVAL)
}

/// Name of the process as the kernel knows it.
fn command() -> String {
    std::fs::read_to_string("/proc/self/comm").map_or_else(|_| String::new(), |name| name.trim().to_owned())
}

/// A new descriptor of a dma-buf.
fn export(buffer: &Buffer) -> Result<OwnedFd, Errno> {
    if buffer.read_only {
        let path = format!("/proc/self/fd/{}", buffer.handle.file.as_raw_fd());
        return rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    }
    rustix::io::fcntl_dupfd_cloexec(buffer.handle.file.as_fd(), 0)
}

/// GET_FD: the handle number is in the second word, the descriptor comes back in the first.
fn get_fd(state: &mut State, log: &Log, args: &mut CreateHandle) -> Result<(), Errno> {
    let Ok(buffer) = state.nvmap.lookup(args.handle).cloned() else {
        // The kernel takes an unknown number for a descriptor; EINVAL even for a dma-buf.
        // CAST: a descriptor is the same 32 bits.
        let fd = args.handle as RawFd;
        return match state.fds.get(fd) {
            Some(_) => Err(Errno::INVAL),
            None => Err(fds::foreign(fd, Errno::INVAL)),
        };
    };
    let Ok(descriptor) = export(&buffer) else {
        let uid = rustix::process::getuid().as_raw();
        log.nvmap(Level::Error, "nvmap_install_fd", format_args!("NvMap: FD limit is crossed for uid {uid}"));
        return Err(Errno::FAULT);
    };
    // CAST: a descriptor is never negative.
    args.size_or_fd = state.fds.insert(descriptor, Object::DmaBuf(buffer)) as u32;
    Ok(())
}

/// FROM_FD: a new number for the buffer of a descriptor.
fn from_fd(state: &mut State, log: &Log, args: &mut CreateHandle) -> Result<(), Errno> {
    // CAST: a descriptor is the same 32 bits.
    let buffer = state.fds.dma_buf(args.size_or_fd as RawFd)?;
    refuse_unallocated(log, &buffer)?;
    args.handle = state.nvmap.enter(buffer);
    Ok(())
}

/// READ and WRITE between a handle and user memory, element by element.
fn read_write(state: &State, log: &Log, read: bool, args: &mut RwHandle) -> Result<(), Errno> {
    if args.addr == 0 || args.count == 0 || args.elem_size == 0 {
        return Err(Errno::INVAL);
    }
    let buffer = state.nvmap.lookup(args.handle)?.clone();
    let storage = buffer.handle.storage();
    if !read && buffer.read_only {
        log.nvmap(
            Level::Error,
            "nvmap_ioctl_rw_handle",
            format_args!("Write operation is not allowed on RO handle"),
        );
        return Err(Errno::PERM);
    }
    if read && storage.is_some_and(|storage| !storage.cpu_access()) {
        log.nvmap(
            Level::Error,
            "nvmap_ioctl_rw_handle",
            format_args!("CPU read operation is not allowed on VPR carveout"),
        );
        return Err(Errno::PERM);
    }
    let memory = &storage.ok_or(Errno::PERM)?.memory;
    let size = buffer.handle.size;
    let fits = args.elem_size <= size
        && args.offset < size
        && args.elem_size <= args.hmem_stride
        && args.elem_size <= args.user_stride
        && args.user_stride <= (size - args.offset) / args.count
        && (args.count - 1)
            .checked_mul(args.hmem_stride)
            .and_then(|last| last.checked_add(args.offset)?.checked_add(args.elem_size))
            .is_some_and(|end| end <= size);
    if !fits {
        return Err(Errno::INVAL);
    }
    let wanted = args.count * args.elem_size;
    let whole = args.elem_size == args.hmem_stride
        && args.elem_size == args.user_stride
        && args.offset.is_multiple_of(8);
    let (count, element) = if whole { (1, wanted) } else { (args.count, args.elem_size) };
    let mut copied = 0;
    for at in 0..count {
        let offset = args.offset + at * args.hmem_stride;
        let address = args.addr.wrapping_add(at * args.user_stride);
        let left = copy(memory, offset, address, element, read);
        if left > 0 {
            // The kernel reports what was *not* copied of the element as the bytes copied.
            copied = left;
            break;
        }
        copied += element;
    }
    args.count = copied;
    if copied < wanted { Err(Errno::INTR) } else { Ok(()) }
}

/// Copies one element; returns how many bytes could not be copied. The caller has checked that the
/// element lies in the memory.
fn copy(memory: &Memory, offset: u64, address: u64, len: u64, read: bool) -> u64 {
    const CHUNK: u64 = 4096;
    let mut buffer = [0_u8; CHUNK as usize];
    let mut done = 0;
    while done < len {
        // CAST: at most a chunk, and offsets of a CPU mapping fit usize.
        let step = CHUNK.min(len - done) as usize;
        let at = (offset + done) as usize;
        let (bytes, address) = (&mut buffer[..step], address.wrapping_add(done));
        if read {
            // SAFETY: `at + step` lies in the memory, which `memory` keeps mapped; a racing writer
            // tears bytes at worst. The target is a local array.
            unsafe {
                core::ptr::copy(memory.pointer().as_ptr().add(at).cast_const(), bytes.as_mut_ptr(), step);
            }
            let left = user::write_bytes(address, bytes) as u64;
            if left > 0 {
                return len - done - (step as u64 - left);
            }
        } else {
            if user::read_bytes(address, bytes).is_err() {
                return len - done;
            }
            // SAFETY: as above with the roles exchanged.
            unsafe { core::ptr::copy(bytes.as_ptr(), memory.pointer().as_ptr().add(at), step) };
        }
        done += step as u64;
    }
    0
}

impl Kernel {
    pub(super) fn nvmap_ioctl(&self, code: Code, address: u64) -> Result<i32, Errno> {
        if code.family != abi::FAMILY || code.number > LAST {
            return Err(Errno::NOTTY);
        }
        if code.code == code::FREE {
            // CAST: the argument is the 32-bit number itself.
            self.nvmap_free(address as u32);
            return Ok(0);
        }
        let log = &self.log;
        let Some(handler) = handler(code.code) else {
            if DEPRECATED.contains(&code.code) {
                log.nvmap(
                    Level::Info,
                    "nvmap_ioctl",
                    format_args!(
                        "NVMAP_IOC_GET_ID/FROM_ID pair is deprecated. Use the pair NVMAP_IOC_GET_FD/FROM_FD."
                    ),
                );
                return Err(Errno::NOTTY);
            }
            let known = NOT_MODELLED.contains(&code.code);
            if !known {
                log.nvmap(Level::Error, "nvmap_ioctl", format_args!("Unknown NVMAP_IOC = {:#x}", code.code));
            }
            return Err(self.unhandled(code, NOT_MODELLED));
        };
        // These are declared as output alone, yet the handlers read them.
        let input = [code::GET_HEAP_SIZE, code::PARAMETERS, code::QUERY_HEAP_PARAMS];
        let mut argument = if input.contains(&code.code) {
            Argument::copy_in_always(code, address)?
        } else {
            Argument::copy_in(code, address)?
        };
        let mut state = self.lock();
        let result = handler(&mut state, log, &mut argument);
        if matches!(code.code, code::READ | code::WRITE) && matches!(result, Ok(()) | Err(Errno::INTR)) {
            // The count is stored by itself, whatever the direction says and the result is.
            argument.store(address);
        }
        result?;
        if argument.copy_out() == 0 {
            return Ok(0);
        }
        self.undo(&mut state, &mut argument);
        Err(if code.code == code::GET_AVAILABLE_HEAPS { Errno::INVAL } else { Errno::FAULT })
    }

    /// After a failed copy-out a new handle is destroyed again.
    fn undo(&self, state: &mut State, argument: &mut Argument) {
        let id = match argument.code() {
            code::CREATE | code::FROM_FD => argument.peek::<CreateHandle>().handle,
            // CAST: the low half is the number.
            code::CREATE_64 => argument.peek::<CreateHandle64>().size_or_handle as u32,
            code::DUP_HANDLE => argument.peek::<DuplicateHandle>().dup_handle,
            _ => return,
        };
        state.nvmap.ids.remove(&id);
    }

    /// FREE: drops the number; a dma-buf descriptor of the same number is closed.
    fn nvmap_free(&self, id: u32) {
        let mut state = self.lock();
        let buffer = state.nvmap.ids.remove(&id);
        // CAST: a descriptor is the same 32 bits.
        let fd = id as RawFd;
        let closed = match state.fds.get(fd) {
            Some(Object::DmaBuf(_)) => state.fds.remove(fd),
            _ => None,
        };
        drop(state);
        drop((buffer, closed));
    }
}

type Handler = fn(&mut State, &Log, &mut Argument) -> Result<(), Errno>;

/// The handler of a request.
fn handler(code: u32) -> Option<Handler> {
    Some(match code {
        code::CREATE => |state, _, argument| {
            argument.call(|args: &mut CreateHandle| {
                args.handle = state.nvmap.create(u64::from(args.size_or_fd))?;
                Ok(())
            })
        },
        code::CREATE_64 => |state, _, argument| {
            argument.call(|args: &mut CreateHandle64| {
                let id = state.nvmap.create(args.size_or_handle)?;
                // Only the low half is written.
                args.size_or_handle = args.size_or_handle & !u64::from(u32::MAX) | u64::from(id);
                Ok(())
            })
        },
        code::ALLOC => {
            |state, log, argument| argument.call(|args: &mut AllocHandle| state.nvmap.alloc(log, args))
        }
        code::GET_FD => {
            |state, log, argument| argument.call(|args: &mut CreateHandle| get_fd(state, log, args))
        }
        code::FROM_FD => {
            |state, log, argument| argument.call(|args: &mut CreateHandle| from_fd(state, log, args))
        }
        code::DUP_HANDLE => |state, log, argument| {
            argument.call(|args: &mut DuplicateHandle| state.nvmap.duplicate(log, args))
        },
        code::READ => {
            |state, log, argument| argument.call(|args: &mut RwHandle| read_write(state, log, true, args))
        }
        code::WRITE => {
            |state, log, argument| argument.call(|args: &mut RwHandle| read_write(state, log, false, args))
        }
        code::CACHE_LIST => {
            |state, _, argument| argument.call(|args: &mut CacheOpList| state.nvmap.cache_list(args))
        }
        code::SET_TAG_LABEL => |_, _, argument| {
            argument.call(|args: &mut abi::SetTagLabel| {
                // CAST: at most 31.
                let mut label = [0; 31];
                user::read_bytes(args.addr, &mut label[..args.len.min(31) as usize])
            })
        },
        code::GET_AVAILABLE_HEAPS => |_, _, argument| {
            argument.call(|args: &mut AvailableHeaps| {
                args.heaps = u64::from(CARVEOUTS.bits());
                Ok(())
            })
        },
        code::GET_HEAP_SIZE => {
            |state, _, argument| argument.call(|args: &mut HeapSize| state.nvmap.heap_size(args))
        }
        code::PARAMETERS => {
            |state, _, argument| argument.call(|args: &mut HandleParameters| state.nvmap.parameters(args))
        }
        code::QUERY_HEAP_PARAMS => {
            |state, _, argument| argument.call(|args: &mut QueryHeapParams| state.nvmap.heap_params(args))
        }
        _ => return None,
    })
}
