//! Errors of the driver, with remedies.

use core::fmt;

use kernel_door::Errno;
use kernel_door::cure::Tail;

use crate::version::Version;

/// Result of this crate.
pub type Result<T> = core::result::Result<T, Error>;

/// A status code of the object manager (RM) or the memory manager (UVM) (`nvstatuscodes.h`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Status(pub u32);

/// Common status codes.
const STATUSES: &[(u32, &str)] = &[
    (0x00, "NV_OK"),
    (0x03, "NV_ERR_BUSY_RETRY"),
    (0x0f, "NV_ERR_GPU_IS_LOST"),
    (0x1a, "NV_ERR_INSUFFICIENT_RESOURCES"),
    (0x1b, "NV_ERR_INSUFFICIENT_PERMISSIONS"),
    (0x1d, "NV_ERR_INVALID_ACCESS_TYPE"),
    (0x1e, "NV_ERR_INVALID_ADDRESS"),
    (0x1f, "NV_ERR_INVALID_ARGUMENT"),
    (0x22, "NV_ERR_INVALID_CLASS"),
    (0x23, "NV_ERR_INVALID_CLIENT"),
    (0x25, "NV_ERR_INVALID_DATA"),
    (0x26, "NV_ERR_INVALID_DEVICE"),
    (0x29, "NV_ERR_INVALID_FLAGS"),
    (0x2e, "NV_ERR_INVALID_LIMIT"),
    (0x33, "NV_ERR_INVALID_OBJECT_HANDLE"),
    (0x36, "NV_ERR_INVALID_OBJECT_PARENT"),
    (0x37, "NV_ERR_INVALID_OFFSET"),
    (0x3a, "NV_ERR_INVALID_PARAM_STRUCT"),
    (0x40, "NV_ERR_INVALID_STATE"),
    (0x51, "NV_ERR_NO_MEMORY"),
    (0x56, "NV_ERR_NOT_SUPPORTED"),
    (0x57, "NV_ERR_OBJECT_NOT_FOUND"),
    (0x59, "NV_ERR_OPERATING_SYSTEM"),
    (0x5d, "NV_ERR_PAGE_TABLE_NOT_AVAIL"),
    (0x63, "NV_ERR_STATE_IN_USE"),
    (0x65, "NV_ERR_TIMEOUT"),
];

impl Status {
    /// Success.
    pub const OK: Self = Self(0);
    /// Not an error: the request has no effect (`NV_WARN_NOTHING_TO_DO`).
    pub const NOTHING_TO_DO: Self = Self(0x0001_0006);
    /// Out of memory (`NV_ERR_NO_MEMORY`).
    pub const NO_MEMORY: Self = Self(0x51);
    /// The GPU does not fit the request: not registered, or not a peer (`NV_ERR_INVALID_DEVICE`).
    pub const INVALID_DEVICE: Self = Self(0x26);
    /// Another resource is exhausted (`NV_ERR_INSUFFICIENT_RESOURCES`).
    pub const INSUFFICIENT_RESOURCES: Self = Self(0x1a);

    /// Returns the name in the driver's header; `None` for uncommon codes.
    pub fn name(self) -> Option<&'static str> {
        STATUSES.iter().find(|(number, _)| *number == self.0).map(|(_, name)| *name)
    }

    /// Returns the remedy.
    fn cure(self) -> Option<&'static str> {
        match self.0 {
            0x0f => Some("reset the GPU or reboot the machine"),
            0x1b => Some("the call needs more privileges than this user has"),
            0x1a | 0x51 => Some("free memory, or end other programs that use the GPU"),
            0x3a => Some("this release of the driver uses a layout that this crate does not support"),
            0x65 => Some("the GPU firmware does not respond; see the kernel log for Xid lines"),
            _ => None,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({:#x})", self.0),
            None => write!(f, "status {:#x}", self.0),
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Returns the remedy for a node that does not open.
fn open_cure(errno: Errno) -> Option<&'static str> {
    match errno {
        Errno::NOENT => Some("load the kernel module and create the nodes: nvidia-modprobe -u -c 0"),
        Errno::ACCESS | Errno::PERM => {
            Some("the nodes are usually accessible to all users: ask the administrator of the machine")
        }
        Errno::IO | Errno::NODEV | Errno::NXIO => Some("the driver found no working GPU; see the kernel log"),
        _ => kernel_door::cure::of_call(errno),
    }
}

/// Prints a PCI address.
struct Pci((u32, u8, u8));

impl fmt::Display for Pci {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (domain, bus, slot) = self.0;
        write!(f, "{domain:04x}:{bus:02x}:{slot:02x}.0")
    }
}

/// Prints PCI addresses.
struct Pcis<'a>(&'a [(u32, u8, u8)]);

impl fmt::Display for Pcis<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        for (at, address) in self.0.iter().enumerate() {
            write!(f, "{}{}", if at == 0 { "" } else { ", " }, Pci(*address))?;
        }
        Ok(())
    }
}

/// An error of NVIDIA's driver, or an invalid argument.
///
/// ```
/// use nvrm::{Error, Status};
///
/// let error = Error::Status { call: "RM_ALLOC", what: "NV01_DEVICE_0", status: Status::NO_MEMORY };
/// assert!(error.is_out_of_memory());
/// assert!(error.to_string().contains("free memory"));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A node does not open.
    #[error("cannot open {path}: {errno}{}", Tail(open_cure(*.errno)))]
    Open {
        /// The node.
        path: String,
        /// The cause.
        errno: Errno,
    },
    /// An ioctl failed.
    #[error("{call}: {errno}{}", Tail(kernel_door::cure::of_call(*.errno)))]
    Call {
        /// The request.
        call: &'static str,
        /// The cause.
        errno: Errno,
    },
    /// The driver rejected a request.
    #[error("{call} of {what}: {status}{}", Tail(.status.cure()))]
    Status {
        /// The request.
        call: &'static str,
        /// Its class, command or object.
        what: &'static str,
        /// The cause.
        status: Status,
    },
    /// An imported file stands for an object that is not memory of a GPU or of the machine.
    #[error(
        "the file stands for memory in address space {space} of the driver; supported are video and system memory"
    )]
    ForeignMemory {
        /// The driver's number of the address space.
        space: u32,
    },
    /// Memory of the GPU or a register cannot be mapped.
    #[error("cannot map {bytes} bytes of {what}: {errno}")]
    Map {
        /// The object to map.
        what: &'static str,
        /// Its length in bytes.
        bytes: u64,
        /// The cause.
        errno: Errno,
    },
    /// The release of the driver is not supported.
    #[error("driver {0} is not supported; supported are releases 570 to 595, tested is 580")]
    Release(Version),
    /// The version of the driver cannot be parsed.
    #[error("the driver reports {0:?} as its version, which cannot be parsed")]
    BadVersion(String),
    /// The GPU does not exist.
    #[error("there is no GPU {index}: the driver has {count}")]
    NoGpu {
        /// Requested index.
        index: usize,
        /// Number of GPUs.
        count: usize,
    },
    /// No GPU has this PCI address.
    #[error("there is no GPU at PCI address {}; the driver has {}", Pci(*.address), Pcis(list))]
    NoGpuAt {
        /// Requested address: domain, bus, slot.
        address: (u32, u8, u8),
        /// Addresses of the GPUs.
        list: Vec<(u32, u8, u8)>,
    },
    /// The GPU is of a generation that the chip table does not contain, or that has another driver.
    #[error(
        "GPU {name} has SM version {major}.{minor}, which this driver does not support; the chip table contains {}",
        gpu_hal::chip::versions()
    )]
    UnknownChip {
        /// Name of the product.
        name: String,
        /// Major SM version.
        major: u32,
        /// Minor SM version.
        minor: u32,
    },
    /// The GPU lacks a class of its generation.
    #[error(
        "GPU {name} has no class {class:#x} ({class_name}), which GPUs of SM version {major}.{minor} have"
    )]
    MissingClass {
        /// Name of the product.
        name: String,
        /// Major SM version.
        major: u32,
        /// Minor SM version.
        minor: u32,
        /// The class.
        class: u32,
        /// Its name.
        class_name: &'static str,
    },
    /// The GPU address range is exhausted.
    #[error("no GPU addresses left for {bytes} bytes")]
    AddressSpace {
        /// Requested size in bytes.
        bytes: u64,
    },
    /// The process has mappings at all addresses tried for memory that CPU and GPU see at one address.
    #[error("the process itself uses the addresses that the GPU has free for {bytes} bytes")]
    Occupied {
        /// Requested size in bytes.
        bytes: u64,
    },
    /// Imported memory is not page-aligned, or empty.
    #[error(
        "memory at {address:#x} of {bytes} bytes cannot be imported: it must not be empty, and must start at \
         a multiple of {page}"
    )]
    Unaligned {
        /// First byte.
        address: usize,
        /// Length in bytes.
        bytes: usize,
        /// Page size in bytes.
        page: u64,
    },
    /// An argument is invalid, or the GPU lacks a feature.
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    /// Returns whether memory or addresses are exhausted.
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            Self::Status { status, .. } => {
                matches!(*status, Status::NO_MEMORY | Status::INSUFFICIENT_RESOURCES)
            }
            Self::Call { errno, .. } | Self::Map { errno, .. } => *errno == Errno::NOMEM,
            Self::AddressSpace { .. } | Self::Occupied { .. } => true,
            _ => false,
        }
    }
}

impl From<Error> for gpu_hal::Error {
    fn from(error: Error) -> Self {
        if !error.is_out_of_memory() {
            return Self::driver(error);
        }
        let of_addresses = matches!(error, Error::AddressSpace { .. } | Error::Occupied { .. });
        let shortage = of_addresses.then_some(gpu_hal::Shortage::Addresses);
        Self::out_of_memory(error, shortage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_call_object_reason_and_cure() {
        let error = Error::Status { call: "RM_ALLOC", what: "NV01_DEVICE_0", status: Status(0x51) };
        let text = error.to_string();
        assert!(
            text.starts_with("RM_ALLOC of NV01_DEVICE_0: NV_ERR_NO_MEMORY (0x51); free memory"),
            "{text}"
        );
        assert!(error.is_out_of_memory());
        assert_eq!(Status(0x7777).to_string(), "status 0x7777");
        let open = Error::Open { path: "/dev/nvidiactl".to_owned(), errno: Errno::NOENT };
        assert!(open.to_string().contains("kernel module"));
    }
}
