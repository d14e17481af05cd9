//! The kernel half of the software Orin: nvmap and nvgpu of L4T R36.4.3, and of other releases as far as
//! [`crate::release`] lists what differs.
//!
//! A request passes the generic check of its node, is copied in, is dispatched by the exact 32-bit code, and is copied
//! out. The order matters, because it determines which errno takes precedence (`os/linux/ioctl_*.c` of nvgpu,
//! `nvmap_dev.c`).
//!
//! # Locks
//!
//! One mutex protects the whole state (`State`). The GPU is never called with it held, because the GPU's thread
//! takes the same mutex to report faults, and stopping channels waits for that thread. Requests on one channel are
//! serialised by the channel's own gate, as in the kernel. A gate is taken before the state mutex and may be held
//! across calls to the GPU. The log and the request counters have their own mutexes, which are always innermost.

mod address_space;
mod argument;
mod buffers;
mod channel;
mod classes;
mod clocks;
mod ctrl;
mod dma_buf;
mod engine_fences;
mod engine_rules;
mod exporters;
mod fence;
mod files;
mod foreign;
mod host1x;
mod interrupts;
mod log;
mod nvmap;
mod object;
mod poll_set;
mod process;
mod pulse;
mod readable;
mod recovery;
mod remap;
mod setup;
mod sharing;
mod shutdown;
mod state;
mod submit;
mod switching;
mod sync_file;
mod syncpoint;
mod texts;
mod tsg;
mod va_allocator;
mod wait;
mod watchdog;
mod zbc;

use core::any::Any;
use core::ffi::{CStr, c_void};
use core::fmt;
use core::ptr::NonNull;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use gpu_log::ChannelLine;
use kernel_door::{Door, Events, MapRequest, OpenFlags, RequestInfo};
use nvgpu_sys::dma_buf as dma_buf_abi;
use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;

use crate::caller::{CallerMemory, guard};
use crate::check::{self, Checker, Tools, Watcher};
use crate::config::{Call, Config, Failure};
use crate::gpu::{ChannelStatus, Gpu, GpuConfig};
use crate::kernel_profile;
use crate::memory::Memory;
use crate::procfs;
use crate::release::{self, Facts};
use crate::settings::SettingsError;

use address_space::{Space, SpaceId};
use argument::Code;
use channel::Channel;
use interrupts::Interrupts;
use log::Log;
use nvmap::Nvmap;
use process::ProcessId;
use process::fds::{Fds, Object};
use process::mappings::Mapping;
use process::task::Task;
use readable::Readable;
use sharing::Token;
use syncpoint::Syncpoints;
use tsg::Tsg;
use zbc::ClearValues;

pub(crate) use engine_fences::{Awaited, EngineFence, EngineFences};
pub use files::NodeKind;
pub use process::{CallerDoor, Opened, ProcessCounts};
pub use sync_file::ForeignFence;

/// A software Orin. Clones are handles to the same process on the same board; dropping the last one powers the board
/// off. [`SoftwareOrin::process`] creates further processes.
///
/// Implements [`Door`]. Like the kernel, it survives any address in a request: inaccessible memory is EFAULT.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use kernel_door::Door;
/// use orin_sim::{Config, SoftwareOrin};
///
/// let orin = SoftwareOrin::new(Config::default())?;
/// let door: Arc<dyn Door> = Arc::new(orin.clone());
/// // Programs that take a door run on the model.
/// assert_eq!(orin.ioctl_count(), 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SoftwareOrin {
    board: Arc<Board>,
    /// The process that the handle belongs to.
    process: ProcessId,
    /// Its memory; `None` if it is the host's.
    memory: Option<Arc<dyn CallerMemory>>,
}

/// Powers the kernel's GPU off on drop of the last handle.
struct Board {
    kernel: Arc<Kernel>,
}

/// Numbers of live objects on the board.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveCounts {
    /// Open descriptors.
    pub descriptors: usize,
    /// CPU mappings.
    pub mappings: usize,
    /// nvmap handle numbers of the process.
    pub handles: usize,
    /// Buffers, with or without memory. A descriptor, CPU mapping, GPU mapping or channel keeps a buffer alive without
    /// a handle.
    pub buffers: usize,
    /// Memory allocated to buffers, in bytes.
    pub memory_bytes: u64,
    /// Address spaces.
    pub address_spaces: usize,
    /// GPU mappings created by user space, in all address spaces.
    pub gpu_mappings: usize,
    /// TSGs.
    pub tsgs: usize,
    /// Channels.
    pub channels: usize,
    /// Syncpoints owned by channels and cameras.
    pub syncpoints: usize,
}

/// The kernel's half of the board, shared with the GPU's thread.
pub(crate) struct Kernel {
    config: Config,
    log: Log,
    state: Mutex<State>,
    calls: Mutex<Calls>,
    /// Removed when the board is powered off, which breaks the reference cycle between kernel and GPU.
    gpu: RwLock<Option<Gpu>>,
    /// Duration of the pending power-up.
    power_up: Mutex<Duration>,
    /// Suppresses the printing of faults.
    silent_faults: AtomicBool,
    /// Number of faults since boot.
    faults_seen: AtomicU64,
    /// Whether a thread of the model has panicked.
    panicked: AtomicBool,
    /// The kernel itself, for its threads.
    me: Weak<Kernel>,
    /// Whether a thread monitors the watchdogs of channels.
    watched: AtomicBool,
    /// Whether a thread serves the descriptors of other processes of the host.
    serving: AtomicBool,
    /// Held while objects of served processes are released.
    settling: Mutex<()>,
    interrupts: Interrupts,
    /// Sync-files of this process.
    readable: Arc<Readable>,
}

/// The state protected by the kernel's mutex.
#[derive(Debug)]
struct State {
    fds: Fds,
    nvmap: Nvmap,
    spaces: BTreeMap<SpaceId, Space>,
    tsgs: BTreeMap<u32, Tsg>,
    channels: BTreeMap<u32, Channel>,
    /// Free channel ids; the last one is allocated next.
    free_channels: Vec<u32>,
    /// CPU mappings by address.
    mappings: BTreeMap<usize, Mapping>,
    /// Instance id of the next open of the control node.
    next_instance: u64,
    next_space: u64,
    next_serial: u64,
    /// Whether the GPU is out of service until the next boot.
    quiesced: bool,
    syncpoints: Syncpoints,
    /// Clear values known to the GPU.
    clear_values: ClearValues,
    /// Frequencies requested by opens of the control node, in Hz.
    frequencies: BTreeMap<u64, u64>,
    /// Number of the newest process.
    next_process: u32,
    /// Processes that have exited.
    exited: BTreeSet<ProcessId>,
    tokens: Vec<Token>,
    /// The newest token.
    next_token: u64,
    /// Whether a process has locked the scheduling parameters.
    scheduling_locked: bool,
    /// The kernel's own doorbell page, created by the first submission.
    doorbell: Option<Arc<Memory>>,
}

/// Numbers of calls, and pending failures.
#[derive(Debug, Default)]
struct Calls {
    requests: BTreeMap<u32, u64>,
    /// Sum of the counts.
    total: u64,
    failures: Vec<Failure>,
}

/// Says once per process that the model is compiled without optimisation, as in debug builds of other workspaces. Only
/// the build script knows.
fn warn_if_slow() {
    #[cfg(unoptimised)]
    {
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| {
            eprintln!(
                "orin-sim: compiled without optimisation: kernels run about 15 times slower. Add to Cargo.toml:\n\
                 [profile.dev.package]\norin-sim.opt-level = 2\nsass.opt-level = 2"
            );
        });
    }
}

impl SoftwareOrin {
    /// Boots a board with [`Config::from_environment`].
    ///
    /// # Errors
    ///
    /// As [`Config::from_environment`]; [`SettingsError::NoProc`]; and [`SettingsError::Start`] as
    /// [`SoftwareOrin::new`].
    pub fn from_environment() -> Result<Self, SettingsError> {
        procfs::check().map_err(|_| SettingsError::NoProc)?;
        Ok(Self::new(Config::from_environment()?)?)
    }

    /// Boots a board.
    ///
    /// # Errors
    ///
    /// Fails if the GPU's thread cannot be started, or if there is no memory for the syncpoints.
    pub fn new(mut config: Config) -> Result<Self, Errno> {
        warn_if_slow();
        if config.sm.profile.is_some() && config.sm.check.is_none() {
            // Profiles need the names and lines of loaded programs, which a checker without tools knows.
            config.sm.check = Some(Checker::new(Tools::empty()));
        }
        let gpu_config = GpuConfig {
            sm_count: config.sm_count(),
            sm: config.sm.clone(),
            seed: config.seed,
            deadlock_after: config.deadlock_after,
            switch_timeout: config.switch_timeout,
            slow_fetch: config.faults.slow_fetch,
            quirks: config.quirks.clone(),
            segments: config.segments.clone(),
        };
        let log = Log::new();
        let state = Mutex::new(State::new(&config, &log)?);
        let kernel = Arc::new_cyclic(|me| Kernel {
            state,
            log,
            calls: Mutex::new(Calls { failures: config.failures.clone(), ..Calls::default() }),
            gpu: RwLock::new(None),
            power_up: Mutex::new(config.faults.power_up),
            silent_faults: AtomicBool::new(config.faults.silent_faults),
            faults_seen: AtomicU64::new(0),
            panicked: AtomicBool::new(false),
            me: Weak::clone(me),
            watched: AtomicBool::new(false),
            serving: AtomicBool::new(false),
            settling: Mutex::new(()),
            interrupts: Interrupts::default(),
            readable: Arc::default(),
            config,
        });
        let gpu = Gpu::start(gpu_config, Arc::clone(&kernel) as _)?;
        let faults = &kernel.config.faults;
        gpu.disturb(&faults.lost_doorbells, &faults.stalls);
        *kernel.gpu.write() = Some(gpu);
        Ok(Self { board: Arc::new(Board { kernel }), process: ProcessId(0), memory: None })
    }

    /// Returns the texts of the kernel log, without timestamps. `/dev/kmsg` through the door returns the same records.
    pub fn kernel_log(&self) -> Vec<String> {
        self.board.kernel.log.texts()
    }

    /// Returns the kind of the node at `path`, as stat shows it; `None` if the board has no such path.
    pub fn node_kind(&self, path: &CStr) -> Option<NodeKind> {
        self.board.kernel.kind(self.process, path)
    }

    /// The checker of [`Config::sm`]. A finding of [`Tools::ORDERING`] is also a line of the kernel log, with
    /// `orin-sim: strict: ` at its beginning.
    pub fn checker(&self) -> Option<&Checker> {
        self.board.kernel.config.sm.check.as_ref()
    }

    /// Creates a watcher, which registers objects of the address space of the descriptor `space` with the checker.
    /// `None` without checks, or if it is not the descriptor of an address space.
    pub fn watcher(&self, space: RawFd) -> Option<Watcher> {
        let checker = self.checker()?;
        let state = self.board.kernel.state.lock();
        let id = state.fds.space(&self.task(), space)?;
        Some(checker.watcher(Arc::clone(&state.spaces.get(&id)?.mmu)))
    }

    /// Returns the number of ioctls so far, including failed ones.
    pub fn ioctl_count(&self) -> u64 {
        self.board.kernel.calls.lock().total
    }

    /// Returns the number of ioctls so far, by request code.
    pub fn ioctl_counts(&self) -> BTreeMap<u32, u64> {
        self.board.kernel.calls.lock().requests.clone()
    }

    /// Returns the numbers of live objects.
    pub fn live(&self) -> LiveCounts {
        self.board.kernel.settle_all();
        self.board.kernel.state.lock().live()
    }

    /// Returns what the GPU is doing for a channel, given its id: the lower 12 bits of its work-submit token. `None` if
    /// it has no ring, or has been stopped.
    pub fn channel_status(&self, channel_id: u32) -> Option<ChannelStatus> {
        let mut status = None;
        self.board.kernel.gpu(|gpu| status = gpu.status(channel_id));
        status
    }

    /// Injects a failure. Calls are counted from now on.
    pub fn fail(&self, failure: Failure) {
        self.board.kernel.calls.lock().failures.push(failure);
    }

    /// Stalls or resumes the engines. While they are stalled, no channel can be removed from the hardware: UNBIND
    /// returns EAGAIN, PREEMPT returns ETIMEDOUT, and closing a channel ends its TSG.
    pub fn stall_engines(&self, stalled: bool) {
        self.board.kernel.gpu(|gpu| gpu.stall(stalled));
    }

    /// The GPU does not see the next `count` doorbell writes. A write that arrives before the GPU has processed the
    /// previous one is lost with it; [`SoftwareOrin::doorbells_to_lose`] reports whether the GPU has processed it.
    pub fn lose_doorbells(&self, count: u64) {
        self.board.kernel.gpu(|gpu| gpu.lose_doorbells(count));
    }

    /// Returns the number of doorbell writes that are still to be lost.
    pub fn doorbells_to_lose(&self) -> u64 {
        let mut count = 0;
        self.board.kernel.gpu(|gpu| count = gpu.doorbells_to_lose());
        count
    }

    /// Suppresses faults in the kernel log, or stops doing so. Error notifiers are still written.
    pub fn silence_faults(&self, silent: bool) {
        self.board.kernel.silent_faults.store(silent, Ordering::Release);
    }

    /// Changes [`Config::available_bytes`]; memory already in use counts.
    pub fn limit_allocations(&self, bytes: u64) {
        self.board.kernel.state.lock().nvmap.limit(bytes);
    }

    /// Powers the idle GPU down, as the driver does after a while: the next request that needs the GPU takes `power_up`
    /// longer.
    pub fn power_down(&self, power_up: Duration) {
        *self.board.kernel.power_up.lock() = power_up;
    }

    /// Locks scheduling parameters, like a program that holds `/dev/nvgpu/igpu0/sched`: requests that change them
    /// return EPERM.
    pub fn lock_scheduling(&self, locked: bool) {
        self.board.kernel.state.lock().scheduling_locked = locked;
    }
}

impl fmt::Debug for SoftwareOrin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SoftwareOrin").field("live", &self.live()).finish_non_exhaustive()
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // Taken out of the lock first, because the drop waits for the GPU's thread, which may be reporting a fault and
        // takes the lock.
        let gpu = self.kernel.gpu.write().take();
        drop(gpu);
        if let Some(checker) = &self.kernel.config.sm.check {
            check::close(checker);
        }
        if let Some(profiler) = &self.kernel.config.sm.profile {
            kernel_profile::close(profiler);
        }
    }
}

impl Kernel {
    /// Runs `call` on the GPU; does nothing while the board is being powered off.
    fn gpu(&self, call: impl FnOnce(&Gpu)) {
        if let Some(gpu) = self.gpu.read().as_ref() {
            call(gpu);
        }
    }

    /// Powers the GPU up. The first caller takes the power-up time; others wait for it.
    fn power_up(&self) {
        let mut left = self.power_up.lock();
        std::thread::sleep(std::mem::take(&mut left));
    }

    /// Returns whether the engines are stalled.
    fn stalled(&self) -> bool {
        let mut stalled = false;
        self.gpu(|gpu| stalled = gpu.is_stalled());
        stalled
    }

    /// Fails if a failure on demand is due for `call`.
    fn fail_on_demand(&self, call: Call) -> Result<(), Errno> {
        let mut calls = self.calls.lock();
        let mut due = None;
        calls.failures.retain_mut(|failure| {
            if failure.call != call {
                return true;
            }
            failure.nth = failure.nth.saturating_sub(1);
            if failure.nth == 0 && due.is_none() {
                due = Some(failure.errno);
                return false;
            }
            failure.nth = failure.nth.max(1);
            true
        });
        due.map_or(Ok(()), Err)
    }

    /// Takes the time of a request, and fails if the configuration refuses it.
    fn refuse(&self, task: &Task<'_>, request: u32, address: u64) -> Result<(), Errno> {
        if let Some(time) = self.config.request_times.get(&request) {
            std::thread::sleep(*time);
        }
        let mut refusals = self.config.refusals.iter().filter(|refusal| refusal.request == request);
        let refused = refusals.find(|refusal| {
            refusal.argument.as_ref().is_none_or(|words| {
                let mut argument = vec![0; words.len() * 4];
                task.read_bytes(address, &mut argument).is_ok()
                    && argument.iter().copied().eq(words.iter().flat_map(|word| word.to_le_bytes()))
            })
        });
        refused.map_or(Ok(()), |refusal| Err(refusal.errno))
    }

    fn ioctl(&self, task: &Task<'_>, fd: RawFd, request: u32, address: u64) -> Result<i32, Errno> {
        // Requests of a served process on other files are not counted.
        let code = Code::new(request);
        // Only these requests concern descriptors of other drivers.
        let find = if code.family == dma_buf_abi::FAMILY { Fds::find_any } else { Fds::find };
        let known = if task.is_served() {
            self.settle(task, fd);
            Some(find(&self.state.lock().fds, task, fd, Errno::NOTTY)?)
        } else {
            None
        };
        let number = {
            let mut calls = self.calls.lock();
            *calls.requests.entry(request).or_default() += 1;
            calls.total += 1;
            calls.total
        };
        self.check_panic()?;
        self.fail_on_demand(Call::Ioctl(request))?;
        self.refuse(task, request, address)?;
        if let Some(random) = self.config.faults.random
            && random.hits(self.config.seed, number)
        {
            return Err(random.errno);
        }
        let object = match known {
            Some(object) => object,
            None => {
                self.settle(task, fd);
                find(&self.state.lock().fds, task, fd, Errno::NOTTY)?
            }
        };
        match object {
            Object::Nvmap(client) => self.nvmap_ioctl(task, client, code, address),
            Object::Ctrl(instance) => self.ctrl_ioctl(task, instance, code, address),
            Object::Space(space) => self.space_ioctl(task, space, code, address),
            Object::Tsg(tsg) => self.tsg_ioctl(task, tsg, code, address),
            Object::Channel { id, serial } => self.channel_ioctl(task, id, serial, code, address),
            Object::Host1x => self.host1x_ioctl(task, code, address),
            Object::SyncFile(fence) => self.sync_file_ioctl(task, &fence, code, address),
            Object::DmaBuf(buffer) => self.dma_buf_ioctl(task, &buffer, fd, code, address),
            Object::Udmabuf => self.udmabuf_ioctl(task, code, address),
            Object::DmaHeap => self.dma_heap_ioctl(task, code, address),
            Object::ClockRequest
            | Object::Event(_)
            | Object::PollSet(_)
            | Object::Kmsg { .. }
            | Object::Text { .. } => Err(Errno::NOTTY),
        }
    }

    /// The first check of nvgpu's nodes: [`Code::check`] with the limits of the release.
    fn check(&self, code: Code, family: u8, last: i16, requests: &[RequestInfo]) -> Result<(), Errno> {
        // CAST: a size has 14 bits.
        code.check(family, last, self.config.release.longest_argument(requests) as usize)
    }

    /// Whether the release has the request, one of a node's.
    fn has(&self, requests: &[RequestInfo], code: Code) -> bool {
        self.config.release.requests(requests).any(|info| info.code == code.code)
    }

    /// What differs in the kernel's release.
    fn facts(&self) -> &'static Facts {
        release::facts(self.config.release)
    }

    /// Handles a request without a handler: ENOTTY, and a line in the log if the real driver has one.
    fn unhandled(&self, code: Code, real: &[u32]) -> Errno {
        if real.contains(&code.code) {
            self.log.model(ChannelLine::RequestNotModelled { request: code.code });
        }
        Errno::NOTTY
    }
}

// SAFETY: mappings are made by mmap of memory files; requests write what their structs declare.
unsafe impl Door for SoftwareOrin {
    fn name(&self) -> &'static str {
        "software Orin"
    }

    fn software(&self) -> Option<&(dyn Any + Send + Sync)> {
        Some(self)
    }

    fn open(&self, path: &CStr, flags: OpenFlags) -> Result<RawFd, Errno> {
        let _inside = guard::enter();
        self.board.kernel.open(&self.task(), path, flags)
    }

    unsafe fn ioctl(&self, fd: RawFd, request: u32, argument: *mut c_void) -> Result<i32, Errno> {
        let _inside = guard::enter();
        // CAST: addresses have at most 64 bits. The provenance is exposed, because the model accesses the argument by
        // number, like the kernel.
        self.board.kernel.ioctl(&self.task(), fd, request, argument.expose_provenance() as u64)
    }

    unsafe fn mmap(&self, request: &MapRequest) -> Result<NonNull<u8>, Errno> {
        let _inside = guard::enter();
        self.board.kernel.mmap(&self.task(), request)
    }

    unsafe fn munmap(&self, pointer: NonNull<u8>, len: usize) -> Result<(), Errno> {
        let _inside = guard::enter();
        // SAFETY: the caller guarantees that the mapping is unused.
        unsafe { self.board.kernel.munmap(pointer, len) }
    }

    unsafe fn read(&self, fd: RawFd, buffer: &mut [u8]) -> Result<usize, Errno> {
        let _inside = guard::enter();
        self.board.kernel.read(&self.task(), fd, buffer)
    }

    unsafe fn seek_end(&self, fd: RawFd) -> Result<u64, Errno> {
        let _inside = guard::enter();
        self.board.kernel.seek_end(&self.task(), fd)
    }

    unsafe fn poll(&self, fd: RawFd, wanted: Events, timeout: Duration) -> Result<Events, Errno> {
        let _inside = guard::enter();
        Ok(self.board.kernel.poll(&self.task(), fd, wanted, timeout))
    }

    unsafe fn close(&self, fd: RawFd) -> Result<(), Errno> {
        let _inside = guard::enter();
        self.board.kernel.close(&self.task(), fd)
    }
}
