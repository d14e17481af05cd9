//! Stream-ordered allocation: memory pools.
//!
//! A freed block is kept with the stream that freed it and that stream's last work. The same stream gets it back at
//! once, because its order protects the block; another stream gets it when that work has ended.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tegra_hcq::{Buffer, Fence};

use crate::code::{Code, Failure, Result};
use crate::context::Context;
use crate::driver::{Gpu, driver};
use crate::exports::Name;
use crate::hints::Location;
use crate::memory::{self, Allocation, Owner};
use crate::objects::Kind;
use crate::stream::Stream;

/// Bytes of freed blocks that a pool keeps, if its threshold is lower.
const KEPT: u64 = 64 << 20;

/// What a pool's memory is, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Home {
    /// Whether it is managed; the place is the preferred one then, which has no effect.
    pub managed: bool,
    /// Where it is. Memory that is not a device's has one address for CPU and GPU.
    pub location: Location,
}

/// CU_MEM_LOCATION_TYPE_NONE, _DEVICE, _HOST, _HOST_NUMA.
const NOWHERE: u32 = 0;
const DEVICE: u32 = 1;
const HOST: u32 = 2;
const HOST_NODE: u32 = 3;

/// Whether the machine has a node of memory. A kernel without several has node 0 only.
fn is_node(id: i32) -> bool {
    id == 0 || id > 0 && std::path::Path::new(&format!("/sys/devices/system/node/node{id}")).exists()
}

impl Home {
    /// Memory of a GPU.
    pub fn device(gpu: &Gpu) -> Self {
        // CAST: a machine has few GPUs.
        Self { managed: false, location: (DEVICE, gpu.ordinal as i32) }
    }

    /// The home that a type of memory (`CUmemAllocationType`) and a place name.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if there is none; [`Code::InvalidDevice`].
    pub fn of(kind: u32, (location, id): Location) -> Result<Self> {
        let location = match (kind, location) {
            (1 | 2, DEVICE) => driver()?.gpu(id).map(|_| (DEVICE, id))?,
            (1 | 2, HOST) => (HOST, 0),
            (1 | 2, HOST_NODE) if is_node(id) => (HOST_NODE, id),
            (2, NOWHERE) => (NOWHERE, 0),
            _ => {
                return Err(Failure::invalid(format!(
                    "a pool of allocation type {kind} at location {id} of type {location}"
                )));
            }
        };
        Ok(Self { managed: kind == 2, location })
    }

    /// The GPU that uses the memory: without another choice, the first.
    fn gpu(self) -> Result<&'static Gpu> {
        driver()?.gpu(if self.location.0 == DEVICE { self.location.1 } else { 0 })
    }

    fn kind(self) -> memory::Kind {
        match self {
            Self { managed: true, .. } => memory::Kind::Managed,
            Self { location: (DEVICE, _), .. } => memory::Kind::Pooled,
            _ => memory::Kind::Host,
        }
    }

    /// Whether the CPU sees the memory.
    pub fn is_on_host(self) -> bool {
        self.kind() != memory::Kind::Pooled
    }
}

/// Which processes have memory of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// This one.
    Own,
    /// Others may import what this one allocates.
    Exported,
    /// This one imports what another allocates.
    Imported(Name),
}

/// A pool.
#[derive(Debug)]
pub struct Pool {
    handle: u64,
    /// The GPU that it allocates on.
    pub gpu: &'static Gpu,
    /// What its memory is, and where.
    pub home: Home,
    /// Which processes have its memory.
    pub sharing: Sharing,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Freed blocks by size.
    free: HashMap<usize, Vec<Block>>,
    figures: Figures,
}

/// Sizes in bytes, and permissions, as `cuMemPoolGetAttribute` reports them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Kept when a context synchronises.
    pub threshold: u64,
    /// Allocated from the device.
    pub reserved: u64,
    /// Most that was allocated from the device.
    pub reserved_high: u64,
    /// In use by the program.
    pub used: u64,
    /// Most that was in use.
    pub used_high: u64,
    /// Which permissions to reuse freed memory earlier the program has taken away. The pool makes no use of them: what
    /// it does is always right.
    pub refused: [bool; 3],
}

#[derive(Debug)]
struct Block {
    buffer: Buffer<u8>,
    stream: u64,
    last: Option<Fence>,
}

impl Kind for Pool {
    const UNKNOWN: Code = Code::InvalidValue;
}

impl Pool {
    /// Creates a pool.
    ///
    /// # Errors
    ///
    /// [`Code::NotInitialized`].
    pub fn create(home: Home, sharing: Sharing) -> Result<Arc<Self>> {
        let gpu = home.gpu()?;
        driver()?.objects.insert(|handle| Ok(Self { handle, gpu, home, sharing, state: Mutex::default() }))
    }

    /// Its handle.
    pub fn handle(&self) -> u64 {
        self.handle
    }

    /// Its figures.
    pub fn figures(&self) -> Figures {
        self.state.lock().figures
    }

    /// Changes its figures: the threshold, or the high-water marks to what is current.
    pub fn change(&self, change: impl FnOnce(&mut Figures)) {
        change(&mut self.state.lock().figures);
    }

    /// Allocates memory for the later work of a stream.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] for no bytes or a pool of another process, [`Code::NotSupported`] for host or managed
    /// memory of another GPU than the first, [`Code::OutOfMemory`].
    pub fn allocate(
        self: &Arc<Self>,
        context: &Context,
        stream: &Stream,
        bytes: usize,
    ) -> Result<Arc<Allocation>> {
        if bytes == 0 || matches!(self.sharing, Sharing::Imported(_)) {
            return Err(Failure::invalid("no bytes are asked for, or a pool of another process"));
        }
        let kind = self.home.kind();
        if self.home.is_on_host() && self.gpu.ordinal != context.gpu.ordinal {
            return Err(Failure::new(Code::NotSupported, "pools of host or managed memory for several GPUs"));
        }
        let make = || match kind {
            memory::Kind::Pooled => context.device.alloc(bytes),
            _ => context.device.alloc_unified(bytes),
        };
        // Blocks are reused for the same size only, so that the checks of the software Orin know it exactly.
        let size = bytes;
        let fits =
            |block: &Block| block.stream == stream.id || block.last.as_ref().is_none_or(Fence::is_done);
        let kept = {
            let mut state = self.state.lock();
            let kept = state
                .free
                .get_mut(&size)
                .and_then(|blocks| blocks.iter().rposition(fits).map(|at| blocks.swap_remove(at)));
            if kept.is_some() {
                state.figures.used += size as u64;
                state.figures.used_high = state.figures.used_high.max(state.figures.used);
            }
            kept
        };
        let buffer = match kept {
            Some(block) => block.buffer,
            None => {
                let buffer = make().or_else(|error| {
                    self.trim(0);
                    make().map_err(|_| error)
                })?;
                let figures = &mut self.state.lock().figures;
                figures.used += size as u64;
                figures.reserved += size as u64;
                figures.used_high = figures.used_high.max(figures.used);
                figures.reserved_high = figures.reserved_high.max(figures.reserved);
                buffer
            }
        };
        self.gpu.memory.hints.forget(buffer.gpu_va(), size);
        self.gpu.memory.enter(context.handle, buffer, kind, 0, self.handle)
    }

    /// Takes memory back after the work of a stream so far.
    pub fn free(&self, allocation: Arc<Allocation>, stream: &Stream) {
        let mut state = self.state.lock();
        let size = allocation.bytes;
        state.figures.used = state.figures.used.saturating_sub(size as u64);
        // A call on another thread that looks at the allocation now keeps it; it is freed by that call then.
        match Arc::try_unwrap(allocation).map(|allocation| allocation.owner) {
            Ok(Owner::Buffer(buffer)) => {
                let block = Block { buffer, stream: stream.id, last: stream.last() };
                state.free.entry(size).or_default().push(block);
            }
            _ => state.figures.reserved = state.figures.reserved.saturating_sub(size as u64),
        }
        let Figures { used, reserved, threshold, .. } = state.figures;
        drop(state);
        let kept = threshold.max(KEPT);
        if reserved.saturating_sub(used) > kept {
            self.trim(used + kept);
        }
    }

    /// Frees blocks whose work has ended until at most `keep` bytes are reserved.
    pub fn trim(&self, keep: u64) {
        let mut gone = Vec::new();
        let mut state = self.state.lock();
        let State { free, figures } = &mut *state;
        for (size, blocks) in free.iter_mut() {
            let mut at = 0;
            while at < blocks.len() && figures.reserved > keep {
                if blocks[at].last.as_ref().is_none_or(Fence::is_done) {
                    gone.push(blocks.swap_remove(at));
                    figures.reserved = figures.reserved.saturating_sub(*size as u64);
                } else {
                    at += 1;
                }
            }
        }
        drop(state);
        drop(gone);
    }

    /// Removes the pool; blocks in use stay valid until they are freed. Where it was chosen, the default one is.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if it was removed already, or is a default pool.
    pub fn destroy(self: &Arc<Self>) -> Result<()> {
        let is_this = |pool: &Arc<Self>| Arc::ptr_eq(pool, self);
        let mut pools = POOLS.lock();
        if pools.values().any(|pools| pools.default.as_ref().is_some_and(is_this)) {
            return Err(Failure::invalid("the default pool is not destroyed"));
        }
        pools.values_mut().for_each(|pools| drop(pools.chosen.take_if(|pool| is_this(pool))));
        drop(pools);
        driver()?.objects.remove::<Self>(self.handle)?;
        self.trim(0);
        Ok(())
    }
}

/// The pools of a home.
#[derive(Debug, Default)]
struct Pools {
    default: Option<Arc<Pool>>,
    /// The one that the program has chosen instead.
    chosen: Option<Arc<Pool>>,
}

/// The pools of each home.
static POOLS: Mutex<BTreeMap<Home, Pools>> = Mutex::new(BTreeMap::new());

/// The default pool of a home, created at the first call.
///
/// # Errors
///
/// [`Code::NotInitialized`].
pub fn default_of(home: Home) -> Result<Arc<Pool>> {
    let mut pools = POOLS.lock();
    let pool = &mut pools.entry(home).or_default().default;
    match pool {
        Some(pool) => Ok(Arc::clone(pool)),
        None => Ok(Arc::clone(pool.insert(Pool::create(home, Sharing::Own)?))),
    }
}

/// The pool that is chosen for a home; that of a GPU serves `cuMemAllocAsync`.
///
/// # Errors
///
/// [`Code::NotInitialized`].
pub fn current_of(home: Home) -> Result<Arc<Pool>> {
    let chosen = POOLS.lock().get(&home).and_then(|pools| pools.chosen.clone());
    chosen.map_or_else(|| default_of(home), Ok)
}

/// Chooses a pool for a home.
///
/// # Errors
///
/// [`Code::InvalidValue`] for a pool of another home.
pub fn choose(home: Home, pool: Arc<Pool>) -> Result<()> {
    if pool.home != home {
        return Err(Failure::invalid("the pool belongs to another device or place"));
    }
    POOLS.lock().entry(home).or_default().chosen = Some(pool);
    Ok(())
}

/// Whether properties ask for a pool that other processes may import, by file descriptors.
///
/// # Errors
///
/// [`Code::NotSupported`] for other types of handles.
pub fn check_place(kind: u32, handles: u32) -> Result<bool> {
    // CU_MEM_ALLOCATION_TYPE_PINNED; CU_MEM_HANDLE_TYPE_NONE.
    if kind != 1 {
        return Err(Failure::invalid(format!("allocation type {kind}")));
    }
    // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.
    if handles > 1 {
        return Err(Failure::new(Code::NotSupported, format!("handle types {handles:#x} of a pool")));
    }
    Ok(handles == 1)
}
