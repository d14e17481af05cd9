//! Allocations, and what a pointer of the program names.
//!
//! Device, pinned host and managed memory have one address for the CPU and the GPU. Registered host memory has another
//! one on the GPU, as on a Jetson.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tegra_hcq::{Buffer, Device, Program, SharedBuffer};

use crate::code::{Code, Failure, Result};
use crate::exports::{Export, Name, Place};
use crate::hints::Hints;
use crate::ids::next_id;
use crate::mapped::Ranges;

/// How memory was allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `cuMemAlloc`, `cuMemAllocPitch`.
    Device,
    /// `cuMemAllocAsync`.
    Pooled,
    /// `cuMemAllocManaged`, and `__managed__` variables.
    Managed,
    /// `cuMemAllocHost`, `cuMemHostAlloc`.
    Host,
    /// `cuMemHostRegister`.
    Registered,
    /// A variable of a module.
    Variable,
    /// A node of a graph.
    Graph,
    /// `cuMemMap`, with access.
    Mapped,
    /// `cuIpcOpenMemHandle`, `cuMemPoolImportPointer`.
    Imported,
}

/// Memory that the program has allocated.
#[derive(Debug)]
pub struct Allocation {
    /// First address on the GPU.
    pub base: u64,
    /// Size in bytes.
    pub bytes: usize,
    /// How it was allocated.
    pub kind: Kind,
    /// Its number, never used again (`CU_POINTER_ATTRIBUTE_BUFFER_ID`).
    pub id: u64,
    /// Handle of the context that it belongs to.
    pub context: u64,
    /// Flags of the call.
    pub flags: u32,
    /// First address on the CPU; 0 if the CPU does not see it.
    pub host: usize,
    /// Handle of the pool that it returns to; 0 without.
    pub pool: u64,
    /// Whether the program wants each call that copies it to wait (`CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`). All do that
    /// must anyway, so that it is only kept.
    pub synchronous: AtomicBool,
    /// What keeps it allocated.
    pub(crate) owner: Owner,
}

impl Allocation {
    /// Whether it is managed memory, also of a graph.
    pub fn is_managed(&self) -> bool {
        self.kind == Kind::Managed || self.kind == Kind::Graph && self.host != 0
    }

    /// Offset of an address that it contains, on the GPU or the CPU, in bytes.
    pub fn offset(&self, address: u64) -> u64 {
        let on_gpu = address.wrapping_sub(self.base);
        if on_gpu < self.bytes.max(1) as u64 { on_gpu } else { address.wrapping_sub(self.host as u64) }
    }
}

impl Export for Allocation {
    fn place(&self) -> Result<Place> {
        let Owner::Buffer(buffer) = &self.owner else {
            return Err(Failure::invalid("other processes cannot have this kind of memory"));
        };
        let (file, offset) = buffer.export_whole()?;
        // CAST: usize has 64 bits.
        Ok(Place { file, offset: offset as usize, bytes: self.bytes })
    }
}

/// What keeps memory allocated.
#[derive(Debug)]
pub(crate) enum Owner {
    /// A buffer.
    Buffer(Buffer<u8>),
    /// A buffer of a graph's node.
    Graph {
        #[expect(dead_code, reason = "kept until the allocation is removed")]
        buffer: Buffer<u8>,
        /// Whether a launch has allocated it, and nothing has freed it since.
        used: AtomicBool,
        /// Whether a launch ever has used it.
        counted: AtomicBool,
        /// Whether the node and its executable graphs are gone.
        left: AtomicBool,
    },
    /// The program that has the variable.
    #[expect(dead_code, reason = "kept until the module is unloaded")]
    Program(Program),
    /// A part of memory that another process has allocated.
    #[expect(dead_code, reason = "kept until the program closes it")]
    Imported(SharedBuffer<u8>),
}

/// What the graphs of a GPU use, in bytes (`CUgraphMem_attribute`).
#[derive(Clone, Copy, Debug, Default)]
pub struct GraphFigures {
    /// Memory of nodes whose graphs were launched.
    pub used: u64,
    /// The most of it so far.
    pub used_high: u64,
    /// Memory of nodes.
    pub reserved: u64,
    /// The most of it so far.
    pub reserved_high: u64,
}

/// Memory of another process that this one has opened.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) name: Name,
    pub(crate) allocation: Arc<Allocation>,
    /// How often.
    pub(crate) times: usize,
}

/// The memory of other processes that this one has opened on a GPU.
#[derive(Debug, Default)]
pub(crate) struct Imports(pub(crate) Mutex<Vec<Opened>>);

impl Imports {
    /// Forgets what a context has opened.
    pub(crate) fn free_of(&self, context: u64) {
        self.0.lock().retain(|opened| opened.allocation.context != context);
    }
}

/// The allocations of a GPU.
#[derive(Debug, Default)]
pub struct Memory {
    /// Figures of graphs.
    pub graphs: Mutex<GraphFigures>,
    /// Reserved addresses.
    pub ranges: Ranges,
    /// Memory of other processes.
    pub(crate) imports: Imports,
    /// What the program has said about managed memory.
    pub hints: Hints,
    by_address: RwLock<BTreeMap<u64, Arc<Allocation>>>,
    /// Registered host memory by its address on the CPU.
    registered: RwLock<BTreeMap<u64, Arc<Allocation>>>,
}

/// Where the CPU sees a buffer; 0 if it does not.
fn on_host(buffer: &Buffer<u8>) -> Result<usize> {
    Ok(buffer.cpu_address()?.map_or(0, |address| address.as_ptr().expose_provenance()))
}

/// The allocation with the highest base up to `address`, if it contains the address.
fn containing(map: &BTreeMap<u64, Arc<Allocation>>, address: u64) -> Option<Arc<Allocation>> {
    let (&base, allocation) = map.range(..=address).next_back()?;
    (address - base < allocation.bytes.max(1) as u64).then(|| Arc::clone(allocation))
}

impl Memory {
    /// Enters a buffer.
    pub(crate) fn enter(
        &self,
        context: u64,
        buffer: Buffer<u8>,
        kind: Kind,
        flags: u32,
        pool: u64,
    ) -> Result<Arc<Allocation>> {
        let host = match kind {
            // The CPU's mapping, at the same address.
            Kind::Host | Kind::Managed => on_host(&buffer)?,
            _ => 0,
        };
        let allocation = Arc::new(Allocation {
            base: buffer.gpu_va(),
            bytes: buffer.len(),
            kind,
            id: next_id(),
            context,
            flags,
            host,
            pool,
            synchronous: AtomicBool::default(),
            owner: Owner::Buffer(buffer),
        });
        self.by_address.write().insert(allocation.base, Arc::clone(&allocation));
        Ok(allocation)
    }

    /// Allocates memory of the GPU.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] for no bytes, [`Code::OutOfMemory`].
    pub fn allocate(&self, context: u64, device: &Device, bytes: usize) -> Result<Arc<Allocation>> {
        self.enter(context, device.alloc(some(bytes)?)?, Kind::Device, 0, 0)
    }

    /// Allocates memory that CPU and GPU see at one address.
    ///
    /// # Errors
    ///
    /// As [`Memory::allocate`].
    pub fn allocate_unified(
        &self,
        context: u64,
        device: &Device,
        bytes: usize,
        kind: Kind,
        flags: u32,
    ) -> Result<Arc<Allocation>> {
        let buffer = device.alloc_unified(some(bytes)?)?;
        self.hints.forget(buffer.gpu_va(), bytes);
        self.enter(context, buffer, kind, flags, 0)
    }

    /// Enters memory that is mapped at reserved addresses. It belongs to no context.
    pub(crate) fn enter_mapped(&self, buffer: Buffer<u8>) -> Result<Arc<Allocation>> {
        self.enter(0, buffer, Kind::Mapped, 0, 0)
    }

    /// Enters memory of another process.
    pub(crate) fn enter_imported(
        &self,
        context: u64,
        buffer: SharedBuffer<u8>,
        pool: u64,
    ) -> Arc<Allocation> {
        let allocation = Arc::new(Allocation {
            base: buffer.gpu_va(),
            bytes: buffer.len(),
            kind: Kind::Imported,
            id: next_id(),
            context,
            flags: 0,
            host: 0,
            pool,
            synchronous: AtomicBool::default(),
            owner: Owner::Imported(buffer),
        });
        self.by_address.write().insert(allocation.base, Arc::clone(&allocation));
        allocation
    }

    /// Removes an allocation, if it is still there.
    pub(crate) fn leave(&self, allocation: &Arc<Allocation>) {
        let mut map = self.by_address.write();
        // The context may have ended, and the address been used again.
        if map.get(&allocation.base).is_some_and(|known| Arc::ptr_eq(known, allocation)) {
            let gone = map.remove(&allocation.base);
            drop(map);
            drop(gone);
        }
    }

    /// Allocates memory for a node of a graph.
    pub(crate) fn allocate_for_graph(
        &self,
        context: u64,
        device: &Device,
        bytes: usize,
        managed: bool,
    ) -> Result<Arc<Allocation>> {
        let bytes = some(bytes)?;
        let buffer = if managed { device.alloc_unified(bytes)? } else { device.alloc::<u8>(bytes)? };
        let host = if managed { on_host(&buffer)? } else { 0 };
        let allocation = Arc::new(Allocation {
            base: buffer.gpu_va(),
            bytes,
            kind: Kind::Graph,
            id: next_id(),
            context,
            flags: 0,
            host,
            pool: 0,
            synchronous: AtomicBool::default(),
            owner: Owner::Graph {
                buffer,
                used: AtomicBool::default(),
                counted: AtomicBool::default(),
                left: AtomicBool::default(),
            },
        });
        self.by_address.write().insert(allocation.base, Arc::clone(&allocation));
        let mut figures = self.graphs.lock();
        figures.reserved += bytes as u64;
        figures.reserved_high = figures.reserved_high.max(figures.reserved);
        Ok(allocation)
    }

    /// A launch of a graph allocates memory of a node.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if an earlier launch has, and it was not freed; not with `free_earlier`.
    pub(crate) fn take_for_graph(&self, allocation: &Allocation, free_earlier: bool) -> Result<()> {
        let Owner::Graph { used, .. } = &allocation.owner else { return Ok(()) };
        if used.swap(true, Ordering::AcqRel) && !free_earlier {
            return Err(Failure::invalid("the memory of an earlier launch was not freed"));
        }
        Ok(())
    }

    /// Counts memory of a node whose graph is launched.
    pub(crate) fn count_for_graph(&self, allocation: &Allocation) {
        let Owner::Graph { counted, .. } = &allocation.owner else { return };
        if !counted.swap(true, Ordering::AcqRel) {
            let mut figures = self.graphs.lock();
            figures.used += allocation.bytes as u64;
            figures.used_high = figures.used_high.max(figures.used);
        }
    }

    /// Frees memory that a launch of a graph has allocated. `None` if other memory, or none, begins at the address.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if it is free.
    pub fn free_for_graph(&self, address: u64) -> Option<Result<()>> {
        let found = self.find(address).filter(|found| found.base == address)?;
        let Owner::Graph { used, left, .. } = &found.owner else { return None };
        if !used.swap(false, Ordering::AcqRel) {
            return Some(Err(Failure::invalid("no launch has allocated the memory of the graph")));
        }
        if left.load(Ordering::Acquire) {
            self.forget_graph(&found);
        }
        Some(Ok(()))
    }

    /// The node and all executable graphs are gone; memory that is in use stays until it is freed.
    pub(crate) fn leave_graph(&self, allocation: &Arc<Allocation>) {
        if let Owner::Graph { used, left, .. } = &allocation.owner {
            left.store(true, Ordering::Release);
            if !used.load(Ordering::Acquire) {
                self.forget_graph(allocation);
            }
        }
    }

    fn forget_graph(&self, allocation: &Arc<Allocation>) {
        self.leave(allocation);
        let Owner::Graph { counted, .. } = &allocation.owner else { return };
        let mut figures = self.graphs.lock();
        figures.reserved -= allocation.bytes as u64;
        if counted.load(Ordering::Acquire) {
            figures.used -= allocation.bytes as u64;
        }
    }

    /// Maps host memory for the GPU.
    ///
    /// # Errors
    ///
    /// [`Code::HostMemoryAlreadyRegistered`] if a part is registered or allocated by this library;
    /// [`Code::InvalidValue`] if a part is not mapped.
    ///
    /// # Safety
    ///
    /// `bytes` bytes at `pointer` stay mapped and writable until the registration ends.
    pub unsafe fn register(
        &self,
        context: u64,
        device: &Device,
        pointer: NonNull<u8>,
        bytes: usize,
        flags: u32,
    ) -> Result<Arc<Allocation>> {
        let host = pointer.as_ptr().addr();
        let end = host.checked_add(some(bytes)?).ok_or_else(|| Failure::invalid("the range wraps around"))?;
        let mut registered = self.registered.write();
        let before = registered.range(..end as u64).next_back();
        if before.is_some_and(|(&base, other)| base + other.bytes as u64 > host as u64) {
            return Err(Code::HostMemoryAlreadyRegistered.into());
        }
        if self.find(host as u64).is_some() {
            return Err(Code::HostMemoryAlreadyRegistered.into());
        }
        // The GPU maps whole pages.
        let page = rustix::param::page_size();
        let before = host % page;
        let whole = (before + bytes).checked_next_multiple_of(page);
        let whole = whole.ok_or_else(|| Failure::invalid("the range wraps around"))?;
        // SAFETY: the caller's promise: a page of mapped memory is mapped as a whole.
        let buffer = unsafe { device.import_raw(pointer.byte_sub(before), whole) };
        let buffer = buffer.map_err(|error| match error {
            tegra_hcq::Error::Driver(_) => Failure::invalid(error.to_string()),
            _ => error.into(),
        })?;
        let allocation = Arc::new(Allocation {
            base: buffer.gpu_va() + before as u64,
            bytes,
            kind: Kind::Registered,
            id: next_id(),
            context,
            flags,
            host,
            pool: 0,
            synchronous: AtomicBool::default(),
            owner: Owner::Buffer(buffer),
        });
        registered.insert(host as u64, Arc::clone(&allocation));
        self.by_address.write().insert(allocation.base, Arc::clone(&allocation));
        Ok(allocation)
    }

    /// Ends a registration.
    ///
    /// # Errors
    ///
    /// [`Code::HostMemoryNotRegistered`].
    pub fn unregister(&self, host: u64) -> Result<Arc<Allocation>> {
        let allocation = self.registered.write().remove(&host).ok_or(Code::HostMemoryNotRegistered)?;
        self.by_address.write().remove(&allocation.base);
        Ok(allocation)
    }

    /// The allocation that contains an address of the GPU, or of registered host memory.
    pub fn find(&self, address: u64) -> Option<Arc<Allocation>> {
        containing(&self.by_address.read(), address)
    }

    /// Registered host memory that contains an address of the CPU.
    pub fn find_registered(&self, host: u64) -> Option<Arc<Allocation>> {
        containing(&self.registered.read(), host)
    }

    /// Whether memory of a pool begins at an address.
    pub fn is_pooled(&self, address: u64) -> bool {
        self.find(address).is_some_and(|found| found.pool != 0 && found.base == address)
    }

    /// Removes the allocation that begins at an address.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if none of the kinds begins there, or a variable does.
    pub fn remove(&self, address: u64, kinds: &[Kind]) -> Result<Arc<Allocation>> {
        let mut map = self.by_address.write();
        match map.get(&address) {
            Some(allocation)
                if kinds.contains(&allocation.kind) && !matches!(allocation.owner, Owner::Program(_)) => {}
            _ => return Err(Failure::invalid(format!("no such memory begins at {address:#x}"))),
        }
        // PANIC: found above, under the same lock.
        Ok(map.remove(&address).expect("the allocation is there"))
    }

    /// Enters the variables of a program.
    pub(crate) fn enter_variables(&self, context: u64, program: &Program) -> Result<()> {
        for name in program.variable_names() {
            let variable = program.variable::<u8>(name)?;
            // CAST: an address of this process.
            let (kind, host) = match variable.is_managed() {
                true => (Kind::Managed, variable.gpu_va() as usize),
                false => (Kind::Variable, 0),
            };
            let allocation = Allocation {
                base: variable.gpu_va(),
                bytes: variable.len(),
                kind,
                id: next_id(),
                context,
                flags: 0,
                host,
                pool: 0,
                synchronous: AtomicBool::default(),
                owner: Owner::Program(program.clone()),
            };
            self.by_address.write().insert(allocation.base, Arc::new(allocation));
        }
        Ok(())
    }

    /// Removes the variables of a program that is unloaded.
    pub(crate) fn leave_variables(&self, program: &Program) {
        let addresses = program.variable_names().filter_map(|name| program.variable::<u8>(name).ok());
        let addresses: Vec<_> = addresses.map(|variable| variable.gpu_va()).collect();
        let mut map = self.by_address.write();
        let gone: Vec<_> = addresses.iter().filter_map(|address| map.remove(address)).collect();
        drop(map);
        drop(gone);
    }

    /// Frees what belongs to a context.
    pub(crate) fn free_of(&self, context: u64) {
        self.imports.free_of(context);
        let mut gone = Vec::new();
        for map in [&self.by_address, &self.registered] {
            map.write().retain(|_, allocation| {
                let stays = allocation.context != context;
                if !stays {
                    gone.push(Arc::clone(allocation));
                }
                stays
            });
        }
    }
}

/// The number of bytes, if there are any.
fn some(bytes: usize) -> Result<usize> {
    if bytes == 0 { Err(Failure::invalid("no bytes are asked for")) } else { Ok(bytes) }
}
