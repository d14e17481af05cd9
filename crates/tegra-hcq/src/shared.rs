//! State shared by all handles of a device apart from its memory: programs, kernel log, and the thread that serves
//! futures.
//!
//! Programs, queues and fences hold a reference to it, so they may be dropped in any order.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use gpu_hal::chip::{self, Chip};
use gpu_hal::{Driver, MemoryUse};
use parking_lot::{Mutex, MutexGuard};

use crate::encodings::{DeviceOptions, Encodings};
use crate::error::{Error, Result};
use crate::fault::CodeLocation;
use crate::heap::{Content, Drain, Handle, Heap, Mapped, Observer};
use crate::kind::{DeviceName, Properties};
use crate::log::LogBook;
use crate::program::code::{self, KernelCode, ProgramCode};
use crate::program::needs::has_textures;
use crate::runtime::{Output, Runtime, Sizes};
use crate::texture_table::Textures;
use crate::waiter::Waiter;

/// The kernels of loaded programs, by address of the image. Submitted work may outlive its program, so those of a
/// program that was dropped stay at least as long as its memory is in use.
#[derive(Default)]
struct Programs {
    kernels: BTreeMap<u64, Arc<[KernelCode]>>,
    /// Number of programs at which those without memory are removed.
    limit: usize,
}

/// Smallest [`Programs::limit`].
const FEW_PROGRAMS: usize = 16;

/// The registries of a device.
pub(crate) struct Shared {
    programs: Mutex<Programs>,
    /// The library's own kernels; loaded while a graph or a queue uses them.
    builtin: Mutex<Weak<ProgramCode>>,
    /// What programs that call `printf`, `assert` or `malloc` are linked with; loaded with the first of them.
    runtime: Mutex<Option<Arc<Runtime>>>,
    runtime_sizes: Mutex<Sizes>,
    output: Arc<Output>,
    /// Number of programs loaded so far. A later program may occupy the addresses of an earlier one.
    programs_loaded: AtomicU64,
    log: Mutex<LogBook>,
    /// Held by a recovery.
    recovering: Mutex<()>,
    waiter: Waiter,
    textures: Textures,
    properties: Properties,
    encodings: Encodings,
    heap: Arc<Heap>,
}

impl Shared {
    /// Creates the state of a device on `driver`, without queues and programs. `observer` learns about its memory.
    pub(crate) fn new(
        driver: Box<dyn Driver>,
        name: DeviceName,
        options: &DeviceOptions,
        observer: Option<Box<dyn Observer>>,
    ) -> Result<Arc<Self>> {
        let DeviceName { kind, which } = name;
        let properties = Properties { kind, which, gpu: driver.properties().clone() };
        let (major, minor) = properties.sm_version;
        let chip = chip::of((major, minor)).ok_or(Error::UnknownChip { major, minor })?;
        Ok(Arc::new(Self {
            programs: Mutex::default(),
            builtin: Mutex::default(),
            runtime: Mutex::default(),
            runtime_sizes: Mutex::default(),
            output: Arc::default(),
            programs_loaded: AtomicU64::new(0),
            log: Mutex::default(),
            recovering: Mutex::default(),
            waiter: Waiter::default(),
            textures: Textures::default(),
            properties,
            encodings: Encodings::of(chip, options)?,
            heap: Heap::new(driver, observer)?,
        }))
    }

    #[inline]
    pub(crate) fn heap(&self) -> &Arc<Heap> {
        &self.heap
    }

    pub(crate) fn driver(&self) -> &dyn Driver {
        self.heap.driver()
    }

    pub(crate) fn properties(&self) -> &Properties {
        &self.properties
    }

    /// The GPU's row of the chip table.
    pub(crate) fn chip(&self) -> &'static Chip {
        self.encodings.chip()
    }

    /// The encodings of launches.
    #[inline]
    pub(crate) fn encodings(&self) -> &Encodings {
        &self.encodings
    }

    /// As [`Handle::allocate`].
    pub(crate) fn allocate(&self, bytes: u64, purpose: MemoryUse, content: Content) -> Result<Handle> {
        Handle::allocate(&self.heap, bytes, purpose, content)
    }

    /// As [`Shared::allocate`], mapped for the CPU.
    pub(crate) fn allocate_mapped(&self, bytes: u64, purpose: MemoryUse, content: Content) -> Result<Mapped> {
        Mapped::new(self.allocate(bytes, purpose, content)?)
    }

    /// Takes the log lines about the end of one of the channels, if there are any.
    ///
    /// # Errors
    ///
    /// Returns the reason if the log cannot be read.
    pub(crate) fn kernel_log_about(&self, channels: &[u32]) -> Result<Option<Vec<String>>, String> {
        self.log.lock().take(self.driver(), channels)
    }

    /// Takes log lines about an access that one of the channels made, if they follow the report of its end.
    ///
    /// # Errors
    ///
    /// Returns the reason if the log cannot be read.
    pub(crate) fn kernel_log_late(&self, channels: &[u32]) -> Result<Vec<String>, String> {
        self.log.lock().take_late(self.driver(), channels)
    }

    /// Log lines about the GPU that do not report the end of a channel and have not been returned before.
    ///
    /// # Errors
    ///
    /// Returns the reason if the log cannot be read.
    pub(crate) fn kernel_log_rest(&self) -> Result<Vec<String>, String> {
        self.log.lock().show_rest(self.driver())
    }

    /// The most recent lines of the log, taken or not.
    ///
    /// # Errors
    ///
    /// Returns the reason if the log cannot be read.
    #[cfg(feature = "reports")]
    pub(crate) fn kernel_log_history(&self) -> Result<Vec<String>, String> {
        self.log.lock().last(self.driver())
    }

    /// Locks out other recoveries until the returned guard is dropped.
    pub(crate) fn begin_recovery(&self) -> MutexGuard<'_, ()> {
        self.recovering.lock()
    }

    /// The textures.
    #[inline]
    pub(crate) fn textures(&self) -> &Textures {
        &self.textures
    }

    /// Whether kernels can use textures.
    pub(crate) fn has_textures(&self) -> bool {
        has_textures(self.chip())
    }

    /// The thread that serves futures.
    pub(crate) fn waiter(&self) -> &Waiter {
        &self.waiter
    }

    pub(crate) fn register_program(&self, program: &Arc<ProgramCode>) {
        let mut programs = self.programs.lock();
        // Rarely, so the cost per program does not grow with their number.
        if programs.kernels.len() >= programs.limit.max(FEW_PROGRAMS) {
            programs.kernels.retain(|va, _| self.image_at(*va) == Some(*va));
            programs.limit = 2 * programs.kernels.len();
        }
        programs.kernels.insert(program.memory.gpu_va(), Arc::clone(&program.kernels));
        self.programs_loaded.fetch_add(1, Ordering::Release);
    }

    /// The library's own kernels. Calls `load` if they are not loaded.
    pub(crate) fn builtin_program(
        &self,
        load: impl FnOnce() -> Result<Arc<ProgramCode>>,
    ) -> Result<Arc<ProgramCode>> {
        let mut builtin = self.builtin.lock();
        if let Some(code) = builtin.upgrade() {
            return Ok(code);
        }
        let code = load()?;
        *builtin = Arc::downgrade(&code);
        Ok(code)
    }

    /// What programs that call `printf`, `assert` or `malloc` are linked with; `None` if there was no such program.
    pub(crate) fn runtime(&self) -> Option<Arc<Runtime>> {
        self.runtime.lock().clone()
    }

    /// As [`Shared::runtime`]. Loads it for code of SM version `sm` if it is not loaded; `with_heap` gives it a heap.
    pub(crate) fn load_runtime(&self, sm: u32, with_heap: bool) -> Result<Arc<Runtime>> {
        let sizes = self.runtime_sizes.lock();
        let mut loaded = self.runtime.lock();
        let runtime = match &*loaded {
            Some(runtime) => Arc::clone(runtime),
            None => {
                let new = Arc::new(Runtime::load(&self.heap, sm, sizes.printf, &self.output)?);
                let weak: Weak<dyn Drain> = Arc::<Runtime>::downgrade(&new);
                self.heap.drain_into(weak);
                Arc::clone(loaded.insert(new))
            }
        };
        if with_heap {
            runtime.set_heap(sizes.heap)?;
        }
        Ok(runtime)
    }

    /// The sizes of the run time; those of memory that does not exist yet take effect later.
    pub(crate) fn runtime_sizes(&self) -> MutexGuard<'_, Sizes> {
        self.runtime_sizes.lock()
    }

    /// What gets the output of kernels.
    pub(crate) fn output(&self) -> &Output {
        &self.output
    }

    /// Number of programs loaded so far.
    #[inline]
    pub(crate) fn programs_loaded(&self) -> u64 {
        self.programs_loaded.load(Ordering::Acquire)
    }

    /// Name of the loaded kernel that contains the code address, and the offset in its code.
    pub(crate) fn locate(&self, pc: u64) -> Option<CodeLocation> {
        let image = self.image_at(pc)?;
        code::locate(self.programs.lock().kernels.get(&image)?, pc)
    }

    /// Address of the program's image that contains an address and that a program or submitted work uses.
    fn image_at(&self, va: u64) -> Option<u64> {
        let memory = self.heap.find(va, 1).ok().flatten()?;
        (memory.content() == Content::Program).then(|| memory.gpu_va())
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Properties { gpu, .. } = &self.properties;
        f.debug_struct("Device")
            .field("name", &format_args!("{}", self.properties.name()))
            .field("chip", &gpu.chip)
            .finish_non_exhaustive()
    }
}
