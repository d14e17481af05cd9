//! Errors of the allocator, with remedies.

use gpu_hal::Shortage;
use kernel_door::Errno;
use kernel_door::cure::{self, Tail};
use nvgpu_sys::cure::{UNKNOWN_REQUEST, of_open};
use nvgpu_sys::{Release, nvmap as sys};

/// A failed call, or an invalid argument.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device node could not be opened.
    #[error("cannot open {path}: {errno}{}", Tail(of_open(*errno, ABSENT)))]
    Open {
        /// Path of the node.
        path: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
    /// A call about a buffer failed.
    #[error("{call} of buffer \"{label}\" ({size} bytes) failed: {errno}{}", Tail(buffer_cure(call, *errno)))]
    Buffer {
        /// The system call or request.
        call: &'static str,
        /// The buffer's label.
        label: String,
        /// Requested size in bytes.
        size: u64,
        /// The kernel's answer.
        errno: Errno,
    },
    /// More memory is needed than [`HeapUsage::largest_allocation`](crate::HeapUsage::largest_allocation).
    #[error("{size} bytes of memory do not fit: {available} bytes are available for one allocation now")]
    Unavailable {
        /// Requested size in bytes.
        size: u64,
        /// The most that one allocation may take, in bytes.
        available: u64,
    },
    /// A query about the allocator failed.
    #[error("{call} on {path} failed: {errno}")]
    Query {
        /// The request.
        call: &'static str,
        /// Path of the node.
        path: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The kernel no longer has the request.
    #[error("this kernel has no {call}: {since} removed it, or an earlier release{}", Tail(instead_of(call)))]
    Removed {
        /// The request.
        call: &'static str,
        /// The first release that is known to lack the request.
        since: Release,
    },
    /// The size is 0, or too large for the address space once rounded to the alignment.
    #[error(
        "buffer \"{label}\" cannot have {size} bytes: the size must be at least 1 and, rounded to {alignment}, fit the \
         CPU's address space"
    )]
    Size {
        /// The buffer's label.
        label: String,
        /// Requested size in bytes.
        size: u64,
        /// Alignment to which the size is rounded, in bytes.
        alignment: u64,
    },
    /// The alignment is not a power of two, below a page or above 2 GiB.
    #[error(
        "buffer \"{label}\" cannot be aligned to {alignment}: it must be a power of two from 4096 to 2^31"
    )]
    Alignment {
        /// The buffer's label.
        label: String,
        /// Requested alignment in bytes.
        alignment: u64,
    },
    /// A typed access is misaligned.
    #[error("byte {offset} of buffer \"{label}\" is not aligned to {alignment}, which the type requires")]
    Misaligned {
        /// The buffer's label.
        label: String,
        /// First byte.
        offset: usize,
        /// Alignment of the type in bytes.
        alignment: usize,
    },
    /// A CPU mapping is not a range of whole pages inside the memory.
    #[error(
        "bytes {offset}..{offset}+{len} of buffer \"{label}\" ({size} bytes) cannot be mapped: a mapping consists of \
         whole 4096-byte pages inside the buffer"
    )]
    MappingRange {
        /// The buffer's label.
        label: String,
        /// First byte of the mapping.
        offset: usize,
        /// Length of the mapping in bytes.
        len: usize,
        /// Size of the buffer in bytes.
        size: usize,
    },
    /// A part of a joined buffer is not a range of whole pages inside the memory.
    #[error(
        "bytes {offset}..{offset}+{len} of buffer \"{label}\" ({size} bytes) cannot be joined: a part consists of at \
         least one whole 4096-byte page inside the buffer"
    )]
    Part {
        /// The buffer's label.
        label: String,
        /// First byte of the part.
        offset: usize,
        /// Length of the part in bytes.
        len: usize,
        /// Size of the buffer in bytes.
        size: usize,
    },
    /// The buffer cannot be part of a joined buffer.
    #[error("buffer \"{label}\" cannot be joined: {reason}")]
    NotJoinable {
        /// The buffer's label; the label of the joined buffer if there are no parts.
        label: String,
        /// Why.
        reason: &'static str,
    },
    /// The memory is read-only through this handle.
    #[error(
        "buffer \"{label}\" is read-only: its handle is read-only, or it was imported as read-only memory"
    )]
    ReadOnly {
        /// The buffer's label.
        label: String,
    },
    /// Imported host memory cannot be mapped through its dma-buf: an access would raise SIGSEGV.
    #[error(
        "buffer \"{label}\" is host memory: access it at its original address, its dma-buf cannot be mapped"
    )]
    HostMapping {
        /// The buffer's label.
        label: String,
    },
    /// The imported descriptor is a dma-buf of another driver.
    #[error(
        "the descriptor for buffer \"{label}\" is a dma-buf of a driver other than nvmap: use it without nvmap, as a \
         DmaBufFile"
    )]
    ForeignDmaBuf {
        /// The buffer's label.
        label: String,
    },
    /// The descriptor has a size that no dma-buf has.
    #[error(
        "the descriptor for buffer \"{label}\" is no dma-buf: its size is {size} bytes, and a dma-buf consists of \
         whole 4096-byte pages"
    )]
    NotDmaBuf {
        /// The buffer's label.
        label: String,
        /// Size of the file in bytes; 0 for a file without a size, such as a pipe.
        size: u64,
    },
    /// A heap query names zero or several heaps.
    #[error("{heaps:?} is not a single heap: query each heap separately")]
    Heap {
        /// The queried heaps.
        heaps: nvgpu_sys::nvmap::Heaps,
    },
    /// Imported host memory is not page-aligned.
    #[error("host memory \"{label}\" at {address:#x} cannot be imported: it must start on a 4096-byte page")]
    HostAddress {
        /// The buffer's label.
        label: String,
        /// First address of the memory.
        address: u64,
    },
    /// A copy exceeds the buffer.
    #[error("bytes {offset}..{offset}+{len} are outside buffer \"{label}\" of {size} bytes")]
    OutOfBounds {
        /// The buffer's label.
        label: String,
        /// First byte of the copy.
        offset: usize,
        /// Length of the copy in bytes.
        len: usize,
        /// Size of the buffer in bytes.
        size: usize,
    },
}

impl Error {
    /// The kernel's errno, if a call failed.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Open { errno, .. } | Self::Buffer { errno, .. } | Self::Query { errno, .. } => Some(*errno),
            Self::Removed { .. } => Some(Errno::NOTTY),
            _ => None,
        }
    }
}

impl From<Error> for gpu_hal::Error {
    fn from(error: Error) -> Self {
        match &error {
            Error::Unavailable { .. } => Self::out_of_memory(error, Some(Shortage::Available)),
            // What is available suffices, or the caller reports that: the kernel found no pages.
            Error::Buffer { call, errno: Errno::NOMEM, .. } if *call == sys::ALLOC.name() => {
                Self::out_of_memory(error, Some(Shortage::Fragments))
            }
            _ if error.errno() == Some(Errno::NOMEM) => Self::out_of_memory(error, None),
            _ => Self::driver(error),
        }
    }
}

/// The meaning of a missing node.
const ABSENT: &str = "there is no nvmap: this is not a Jetson, or its nvmap module is not loaded";

/// Remedies for a failed call on a buffer.
fn call_cure(errno: Errno) -> Option<&'static str> {
    match errno {
        Errno::NOMEM => Some("free memory, or request less"),
        Errno::NOTTY => Some(UNKNOWN_REQUEST),
        _ => cure::of_call(errno),
    }
}

/// The remedy for a failed call about a buffer.
fn buffer_cure(call: &str, errno: Errno) -> Option<&'static str> {
    let makes_descriptor = call == sys::GET_FD.name() || call == sys::GET_FD_FOR_RANGE_FROM_LIST.name();
    match errno {
        // What nvmap answers if the process' table of descriptors is full.
        Errno::FAULT if makes_descriptor => Some("too many open descriptors: raise the limit with ulimit -n"),
        _ => call_cure(errno),
    }
}

/// Replacements for a request that newer releases lack.
fn instead_of(call: &str) -> Option<&'static str> {
    match call {
        _ if call == sys::CACHE_LIST.name() => Some("maintain the caches of each buffer by itself"),
        _ if call == sys::GET_HEAP_SIZE.name() => Some("query the heap's usage, which contains its size"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_cure() {
        let message = |errno| Error::Open { path: "/dev/nvmap", errno }.to_string();
        assert!(message(Errno::ACCESS).contains("group video"), "{}", message(Errno::ACCESS));
        assert!(message(Errno::NOENT).contains("not a Jetson"), "{}", message(Errno::NOENT));
        let full = Error::Buffer {
            call: "NVMAP_IOC_ALLOC",
            label: "weights".into(),
            size: 1 << 40,
            errno: Errno::NOMEM,
        };
        let text = full.to_string();
        assert!(text.contains("NVMAP_IOC_ALLOC of buffer \"weights\" (1099511627776 bytes)"), "{text}");
        let (label, size) = ("weights".to_owned(), 4096);
        let table = Error::Buffer { call: sys::GET_FD.name(), label, size, errno: Errno::FAULT };
        assert!(table.to_string().contains("ulimit -n"), "{table}");
    }
}
