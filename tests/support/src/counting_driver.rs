//! A GPU driver outside `tegra-hcq`: forwards to another driver and counts the calls.
//!
//! It implements the traits of [`gpu_hal`] through their public API only, as a driver for another GPU would.
//! It runs under [`tegra_hcq::Device::with_driver`]. The
//! counts show which work reaches a driver: none between a launch and its doorbell.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use gpu_hal::{
    ChannelGroup, Channels, CopyChannel, DeviceMemory, Driver, Error, ErrorCode, Evidence, MemoryInfo,
    MemoryUse, Preemption, Properties, Result,
};

/// Declares the counters and a snapshot of their values.
macro_rules! counters {
    ($($(#[$about:meta])* $name:ident,)*) => {
        /// The counters of a [`Counting`] driver and of the objects it creates.
        #[derive(Debug, Default)]
        struct Counters {
            $($name: AtomicU64,)*
            /// Whether channels cannot be aborted.
            no_aborts: AtomicBool,
        }

        /// Numbers of calls.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Calls { $($(#[$about])* pub $name: u64,)* }

        impl Counters {
            fn read(&self) -> Calls {
                Calls { $($name: self.$name.load(Ordering::SeqCst),)* }
            }
        }

        impl std::ops::Sub for Calls {
            type Output = Self;

            fn sub(self, before: Self) -> Self {
                Self { $($name: self.$name - before.$name,)* }
            }
        }
    };
}

counters! {
    /// [`Driver::allocate`] and [`Driver::import`].
    allocations,
    /// Dropped memory objects.
    frees,
    /// [`Driver::open_channels`] and [`Driver::open_copy_channel`].
    opened_groups,
    /// Groups whose last reference was dropped.
    closed_groups,
    /// Of these, the ones whose channels stayed open because a ring still owned them.
    groups_left_open,
    /// [`ChannelGroup::error`].
    error_queries,
    /// [`ChannelGroup::abort`].
    aborts,
    /// [`ChannelGroup::sleep`].
    sleeps,
    /// [`ChannelGroup::evidence`].
    evidence_queries,
    /// [`Driver::kernel_log`].
    log_reads,
    /// [`Driver::memory_info`] and [`Driver::clock_pair`].
    other_queries,
}

impl Calls {
    /// Sum of all counters.
    pub fn total(&self) -> u64 {
        let device = self.allocations + self.frees + self.opened_groups + self.closed_groups;
        let groups = self.error_queries + self.aborts + self.sleeps + self.evidence_queries;
        device + groups + self.log_reads + self.other_queries
    }
}

/// Reads the counters after the driver itself has been moved into a device.
#[derive(Clone, Debug)]
pub struct Counts(Arc<Counters>);

impl Counts {
    /// Makes [`ChannelGroup::abort`] fail from now on, as a driver does that has lost its GPU.
    pub fn refuse_aborts(&self) {
        self.0.no_aborts.store(true, Ordering::SeqCst);
    }

    /// The calls so far.
    pub fn now(&self) -> Calls {
        self.0.read()
    }

    /// The calls during `work`.
    pub fn during<T>(&self, work: impl FnOnce() -> T) -> (T, Calls) {
        let before = self.now();
        let result = work();
        (result, self.now() - before)
    }
}

/// A driver that forwards to another one.
#[derive(Debug)]
pub struct Counting {
    driver: Box<dyn Driver>,
    counters: Arc<Counters>,
}

impl Counting {
    /// Counts the calls to `driver`.
    pub fn new(driver: Box<dyn Driver>) -> (Self, Counts) {
        let counters = Arc::<Counters>::default();
        (Self { driver, counters: Arc::clone(&counters) }, Counts(counters))
    }

    fn memory(&self, memory: Box<dyn DeviceMemory>) -> Box<dyn DeviceMemory> {
        count(&self.counters.allocations);
        Box::new(Memory { memory, counters: Arc::clone(&self.counters) })
    }

    fn group(&self, group: Arc<dyn ChannelGroup>) -> Arc<dyn ChannelGroup> {
        count(&self.counters.opened_groups);
        Arc::new(Group { group, counters: Arc::clone(&self.counters) })
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::SeqCst);
}

// SAFETY: the driver behind answers.
unsafe impl Driver for Counting {
    fn properties(&self) -> &Properties {
        self.driver.properties()
    }

    fn allocate(&self, bytes: u64, purpose: MemoryUse, label: &str) -> Result<Box<dyn DeviceMemory>> {
        Ok(self.memory(self.driver.allocate(bytes, purpose, label)?))
    }

    unsafe fn import(
        &self,
        pointer: NonNull<u8>,
        bytes: usize,
        label: &str,
    ) -> Result<Box<dyn DeviceMemory>> {
        // SAFETY: the caller's contract is the same.
        Ok(self.memory(unsafe { self.driver.import(pointer, bytes, label) }?))
    }

    fn memory_info(&self) -> Option<MemoryInfo> {
        count(&self.counters.other_queries);
        self.driver.memory_info()
    }

    fn clock_pair(&self) -> Result<(u64, SystemTime)> {
        count(&self.counters.other_queries);
        self.driver.clock_pair()
    }

    fn copies_by_kernel_from(&self) -> Option<u64> {
        self.driver.copies_by_kernel_from()
    }

    fn writes_by_engine_from(&self) -> Option<usize> {
        self.driver.writes_by_engine_from()
    }

    fn reads_by_engine_from(&self) -> Option<usize> {
        self.driver.reads_by_engine_from()
    }

    fn open_channels(&self) -> Result<Channels> {
        let Channels { group, compute, copy } = self.driver.open_channels()?;
        Ok(Channels { group: self.group(group), compute, copy })
    }

    fn open_copy_channel(&self) -> Result<CopyChannel> {
        let CopyChannel { group, copy } = self.driver.open_copy_channel()?;
        Ok(CopyChannel { group: self.group(group), copy })
    }

    fn kernel_log(&self) -> Result<Vec<String>, String> {
        count(&self.counters.log_reads);
        self.driver.kernel_log()
    }
}

/// Memory that counts its release.
#[derive(Debug)]
struct Memory {
    memory: Box<dyn DeviceMemory>,
    counters: Arc<Counters>,
}

// SAFETY: address and size are those of the wrapped memory, which lives as long as the value.
unsafe impl DeviceMemory for Memory {
    fn gpu_va(&self) -> u64 {
        self.memory.gpu_va()
    }

    fn cpu(&self) -> Result<NonNull<u8>> {
        self.memory.cpu()
    }

    fn bytes(&self) -> u64 {
        self.memory.bytes()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        count(&self.counters.frees);
    }
}

/// A channel group that counts its calls.
#[derive(Debug)]
struct Group {
    group: Arc<dyn ChannelGroup>,
    counters: Arc<Counters>,
}

// SAFETY: the group behind answers.
unsafe impl ChannelGroup for Group {
    fn error(&self) -> Option<ErrorCode> {
        count(&self.counters.error_queries);
        self.group.error()
    }

    fn channel_ids(&self) -> Vec<u32> {
        self.group.channel_ids()
    }

    fn preemption(&self) -> Option<Preemption> {
        self.group.preemption()
    }

    fn abort(&self) -> Result<()> {
        count(&self.counters.aborts);
        if self.counters.no_aborts.load(Ordering::SeqCst) {
            return Err(Error::Unsupported("aborting the channels"));
        }
        self.group.abort()
    }

    fn sleep(&self, timeout: Duration) -> bool {
        count(&self.counters.sleeps);
        self.group.sleep(timeout)
    }

    fn evidence(&self) -> Evidence {
        count(&self.counters.evidence_queries);
        self.group.evidence()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        count(&self.counters.closed_groups);
        // The rings of the wrapped driver own the same group.
        if Arc::strong_count(&self.group) > 1 {
            count(&self.counters.groups_left_open);
        }
    }
}
