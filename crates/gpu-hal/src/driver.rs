//! The traits that a GPU driver implements.

use core::any::Any;
use core::fmt::Debug;
use core::ptr::NonNull;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::chip::PeerCopies;
use crate::error::{Error, Result};
use crate::error_code::ErrorCode;
use crate::evidence::Evidence;
use crate::files::{FenceCounter, FencePoint, FileAccess, FileId};
use crate::properties::{MemoryInfo, Properties};
use crate::submit::SubmitRing;

/// An object of a driver that another device of the same driver recognises; other drivers reject it.
pub type Token = Arc<dyn Any + Send + Sync>;

/// How a GPU reaches the memory of another GPU.
///
/// ```
/// use gpu_hal::PeerLink;
///
/// assert_eq!(PeerLink::NvLink.to_string(), "NVLink");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PeerLink {
    /// Both devices are the same GPU.
    Same,
    /// Over NVLink.
    NvLink,
    /// Over PCIe.
    Pcie,
}

impl core::fmt::Display for PeerLink {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Same => "same GPU",
            Self::NvLink => "NVLink",
            Self::Pcie => "PCIe",
        })
    }
}

/// The purpose of memory; decides where it is and how the CPU caches it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryUse {
    /// Data of kernels, rarely accessed by the CPU.
    #[default]
    Device,
    /// Written sequentially by the CPU and read by the GPU. CPU reads are slow.
    Upload,
    /// Written by the GPU and read by the CPU.
    ReadBack,
    /// Small values that CPU and GPU exchange while both run: timelines, flags.
    Signals,
    /// Commands: written by the CPU in pieces, read by the GPU soon after. CPU reads are slow.
    Commands,
    /// Read and written by both through pointers in data: [`DeviceMemory::cpu`] is the address that
    /// [`DeviceMemory::gpu_va`] has. In the machine's memory, also if the GPU has its own. A driver that cannot do it
    /// returns [`Error::Unsupported`].
    Unified,
    /// Data of kernels that other processes and drivers map as well: one object, which [`DeviceMemory::export`] makes a
    /// file of.
    Shared,
}

impl MemoryUse {
    /// All uses.
    pub const ALL: [Self; 7] = [
        Self::Device,
        Self::Upload,
        Self::ReadBack,
        Self::Signals,
        Self::Commands,
        Self::Unified,
        Self::Shared,
    ];
}

/// Memory that CPU and GPU see; freed when dropped.
///
/// # Safety
///
/// For the life of the value, each successful [`DeviceMemory::cpu`] returns the same page-aligned address, valid for
/// volatile reads and writes of [`DeviceMemory::bytes`] bytes, and [`DeviceMemory::gpu_va`] is where the GPU sees the
/// same bytes. No Rust reference covers them, except for imported memory as its importer promised. While the device
/// that the driver was given to uses the memory, only that device's rings make the GPU write it.
pub unsafe trait DeviceMemory: Send + Sync + Debug {
    /// First address on the GPU.
    fn gpu_va(&self) -> u64;

    /// First byte on the CPU. A driver may map the memory at the first call, because many buffers are never accessed by
    /// the CPU.
    ///
    /// # Errors
    ///
    /// Returns an error if the memory cannot be mapped for the CPU, for example because the PCIe aperture is full.
    fn cpu(&self) -> Result<NonNull<u8>>;

    /// Size in bytes, at least what was requested.
    fn bytes(&self) -> u64;

    /// The memory, for [`Driver::map_peer`] of another device. The memory stays allocated, at its address, as long as
    /// the token. `None` if other devices cannot map it.
    fn token(&self) -> Option<Token> {
        None
    }

    /// A file of the memory, with which other processes and drivers map it; closed on exec.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the memory is not of [`MemoryUse::Shared`], or if the driver has no such files.
    fn export(&self, access: FileAccess) -> Result<OwnedFd> {
        let _ = access;
        Err(Error::Unsupported("files of this memory"))
    }

    /// Identity of the memory's files, if the driver can tell them apart.
    fn file_id(&self) -> Option<FileId> {
        None
    }

    /// Begins accesses of the CPU, so that it sees what devices have written. Memory whose caches nothing has to
    /// maintain does nothing.
    ///
    /// # Errors
    ///
    /// The driver's error.
    fn begin_cpu(&self, access: FileAccess) -> Result<()> {
        let _ = access;
        Ok(())
    }

    /// Ends the accesses of [`DeviceMemory::begin_cpu`], so that devices see what the CPU has written.
    ///
    /// # Errors
    ///
    /// The driver's error.
    fn end_cpu(&self, access: FileAccess) -> Result<()> {
        let _ = access;
        Ok(())
    }
}

/// Reserved GPU addresses, where memory behind files is mapped. They stay reserved as long as the value and what it has
/// mapped.
///
/// # Safety
///
/// As [`DeviceMemory`], for what is mapped.
pub unsafe trait AddressRange: Send + Sync + Debug {
    /// First address.
    fn gpu_va(&self) -> u64;

    /// Maps `bytes` bytes from the offset `from` of the memory behind a file at an offset of the range. The file may be
    /// closed afterwards.
    ///
    /// # Errors
    ///
    /// If a number is no multiple of a page or outside of its range, or the addresses have a mapping; as
    /// [`Driver::import_file`] otherwise.
    fn map_file(
        &self,
        file: BorrowedFd<'_>,
        access: FileAccess,
        offset: u64,
        from: u64,
        bytes: u64,
    ) -> Result<Box<dyn DeviceMemory>>;
}

/// One of the two engines that a queue feeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Engine {
    /// Runs kernels.
    Compute,
    /// Runs linear copies.
    Copy,
}

/// How finely a running kernel can be interrupted for the work of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Preemption {
    /// Not at all: others wait until the engine is idle (WFI).
    #[default]
    Wait,
    /// Between blocks (CTA).
    Block,
    /// At any instruction (CILP).
    Instruction,
}

impl core::fmt::Display for Preemption {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Wait => "none (WFI)",
            Self::Block => "between blocks (CTA)",
            Self::Instruction => "at any instruction (CILP)",
        })
    }
}

/// Channels that are scheduled, and stopped, together: one TSG.
///
/// Dropping the last reference closes the channels and ends their work. A [`SubmitRing`] of the group keeps a
/// reference.
///
/// # Safety
///
/// A device gives out references to memory once the work that writes it has ended. So no work of the group runs any
/// more when [`ChannelGroup::abort`] has returned `Ok`, and when [`ChannelGroup::error`] has returned an error: the GPU
/// writes no memory for it from then on. The ring of [`ChannelGroup::open_link`] is as for [`Driver::open_channels`].
pub unsafe trait ChannelGroup: Send + Sync + Debug {
    /// The error that the driver recorded for the group, if any.
    fn error(&self) -> Option<ErrorCode>;

    /// The ids of the group's channels, as in the kernel log.
    fn channel_ids(&self) -> Vec<u32>;

    /// How finely a running kernel of the group can be interrupted for the work of others; `None` if the driver does
    /// not let programs choose.
    fn preemption(&self) -> Option<Preemption> {
        None
    }

    /// Stops all work of the group and takes it out of service.
    ///
    /// # Errors
    ///
    /// If the driver refuses to stop the channels.
    fn abort(&self) -> Result<()>;

    /// Sleeps in the kernel until the GPU reports the end of some work, at most `timeout`. May wake spuriously
    /// or late. Returns `false` at once if the driver cannot sleep.
    fn sleep(&self, timeout: Duration) -> bool;

    /// Opens a further copy channel of the group, on an engine for copies between GPUs; `None` if there is none.
    /// Errors, ids and the end of the channel are those of the group from then on. Not called twice.
    ///
    /// # Errors
    ///
    /// If the driver refuses a step.
    fn open_link(self: Arc<Self>) -> Result<Option<SubmitRing>> {
        Ok(None)
    }

    /// Opens a further compute and copy channel in the group; `None` if the driver cannot. Kernels of both may run at
    /// the same time, where the GPU runs one group after the other. An error, and [`abort`](Self::abort), stop the
    /// channels of both.
    ///
    /// # Errors
    ///
    /// If the driver refuses a step.
    fn open_beside(&self) -> Result<Option<Channels>> {
        Ok(None)
    }

    /// Opens a counter that the group's channels increment, for fences as files.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the driver has no such files; otherwise if it refuses a step.
    fn fence_counter(self: Arc<Self>) -> Result<Box<dyn FenceCounter>> {
        Err(Error::Unsupported("fences as files"))
    }

    /// Details from the driver's own requests about the fault that stopped the group.
    fn evidence(&self) -> Evidence {
        Evidence::default()
    }
}

/// A fresh channel group with a compute and a copy channel.
#[derive(Debug)]
pub struct Channels {
    /// The group.
    pub group: Arc<dyn ChannelGroup>,
    /// The ring of the compute channel.
    pub compute: SubmitRing,
    /// The ring of the copy channel.
    pub copy: SubmitRing,
}

/// A fresh channel group with a copy channel.
#[derive(Debug)]
pub struct CopyChannel {
    /// The group.
    pub group: Arc<dyn ChannelGroup>,
    /// The ring of the copy channel.
    pub copy: SubmitRing,
}

/// A GPU driver.
///
/// Addresses that the driver returns are valid for the GPU until the object that has them is dropped. Objects may
/// outlive the driver value; they keep alive what they need of it.
///
/// # Safety
///
/// [`Driver::properties`] returns the same properties each time, and they are those of the GPU: the sizes of the memory
/// that its engines write (local memory, windows) are computed from them. The rings of [`Driver::open_channels`] and
/// [`Driver::open_copy_channel`] are given to the caller alone and belong to the returned group, and the GPU executes
/// what is submitted to them as written. Memory of [`Driver::import`], [`Driver::import_file`] and [`Driver::map_peer`]
/// is the memory that was passed in.
pub unsafe trait Driver: Send + Sync + Debug {
    /// The GPU's properties.
    fn properties(&self) -> &Properties;

    /// Allocates at least `bytes` bytes and maps them for CPU and GPU. `label` names the memory in the driver's own
    /// lists, if it has any.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory), [`Error::Driver`](crate::Error::Driver);
    /// [`Error::Unsupported`](crate::Error::Unsupported) for a use that the driver does not know.
    fn allocate(&self, bytes: u64, purpose: MemoryUse, label: &str) -> Result<Box<dyn DeviceMemory>>;

    /// Maps memory of the process for the GPU, without a copy.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the driver cannot; as [`Driver::allocate`] otherwise.
    ///
    /// # Safety
    ///
    /// `bytes` bytes at `pointer` are mapped writable, and stay so until the result is dropped.
    unsafe fn import(&self, pointer: NonNull<u8>, bytes: usize, label: &str)
    -> Result<Box<dyn DeviceMemory>>;

    /// Maps the memory behind a file for the GPU: memory that another process has exported, or of another driver. The
    /// file may be closed afterwards. [`DeviceMemory::cpu`] of the result is valid for stores only if `access` allows
    /// them.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the driver cannot; otherwise if the file has no memory that the GPU can map, or does
    /// not allow the access.
    fn import_file(
        &self,
        file: BorrowedFd<'_>,
        access: FileAccess,
        label: &str,
    ) -> Result<Box<dyn DeviceMemory>> {
        let _ = (file, access, label);
        Err(Error::Unsupported("memory behind files"))
    }

    /// Reserves `bytes` bytes of GPU addresses, at `at` or where the driver chooses.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the driver cannot; otherwise if the addresses are in use.
    fn reserve(&self, bytes: u64, at: Option<u64>) -> Result<Box<dyn AddressRange>> {
        let _ = (bytes, at);
        Err(Error::Unsupported("reserved addresses"))
    }

    /// Identity of the memory behind a file, if the driver can tell files apart: the same memory is then imported once.
    /// `None` also if the file does not allow the access, of which [`Driver::import_file`] says more.
    ///
    /// # Errors
    ///
    /// If the file cannot be examined.
    fn file_id(&self, file: BorrowedFd<'_>, access: FileAccess) -> Result<Option<FileId>> {
        let _ = (file, access);
        Ok(None)
    }

    /// The counters that a fence file waits for; none if it has signalled.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the GPU cannot wait for files of any kind; otherwise if it cannot wait for this one.
    fn fence_points(&self, file: BorrowedFd<'_>) -> Result<Vec<FencePoint>> {
        let _ = file;
        Err(Error::Unsupported("waiting for fences as files"))
    }

    /// Memory of the machine or GPU; `None` if the driver does not report it.
    fn memory_info(&self) -> Option<MemoryInfo>;

    /// The current time of the GPU's clock, in nanoseconds, and of the system's clock, read together.
    ///
    /// # Errors
    ///
    /// If the driver cannot read both clocks.
    fn clock_pair(&self) -> Result<(u64, SystemTime)>;

    /// The size in bytes from which a copy between two pieces of [`MemoryUse::Device`] is faster by a kernel than by
    /// the copy engine. `None` if it never is, or if it was not measured.
    fn copies_by_kernel_from(&self) -> Option<u64> {
        None
    }

    /// How to copy between [`MemoryUse::Device`] of this device and of another.
    fn peer_copies(&self) -> PeerCopies {
        PeerCopies::UNMEASURED
    }

    /// The size in bytes from which the CPU reads [`MemoryUse::Device`] faster through the copy engine than by its own
    /// loads. `None` if it never does.
    fn reads_by_engine_from(&self) -> Option<usize> {
        None
    }

    /// The size in bytes from which the CPU writes [`MemoryUse::Device`] faster through the copy engine than by its own
    /// stores. `None` if it never does.
    fn writes_by_engine_from(&self) -> Option<usize> {
        None
    }

    /// Opens a channel group with a compute and a copy channel.
    ///
    /// # Errors
    ///
    /// If the driver refuses a step.
    fn open_channels(&self) -> Result<Channels>;

    /// Opens a copy channel; if possible, one that works while compute channels are busy.
    ///
    /// # Errors
    ///
    /// As [`Driver::open_channels`].
    fn open_copy_channel(&self) -> Result<CopyChannel> {
        let Channels { group, copy, .. } = self.open_channels()?;
        Ok(CopyChannel { group, copy })
    }

    /// The device, for [`Driver::connect`] of another. `None` if devices of the driver cannot map each other's memory.
    fn token(&self) -> Option<Token> {
        None
    }

    /// Lets this device map memory of another. Returns how it reaches the other's [`MemoryUse::Device`]; `None` if it
    /// cannot, and only the other's system memory can be mapped.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the driver cannot, or if the other device has another
    /// driver.
    fn connect(&self, other: &Token) -> Result<Option<PeerLink>> {
        let _ = other;
        Err(Error::Unsupported("memory of other devices"))
    }

    /// Maps memory of a connected device, at the GPU address where its owner sees it.
    ///
    /// # Errors
    ///
    /// As [`Driver::connect`]; [`Error::Driver`](crate::Error::Driver) if the devices are not connected or not peers.
    fn map_peer(&self, memory: &Token) -> Result<Box<dyn DeviceMemory>> {
        let _ = memory;
        Err(Error::Unsupported("memory of other devices"))
    }

    /// An object of a software GPU that wants to know about allocations inside of the memory that the driver returns;
    /// `None` for a real one. Its type is a matter between the device and the software GPU.
    fn watcher(&self) -> Option<Token> {
        None
    }

    /// The lines that the kernel has logged about the GPU since the last call.
    ///
    /// # Errors
    ///
    /// The reason why the log cannot be read, as text for the user.
    fn kernel_log(&self) -> Result<Vec<String>, String>;
}
