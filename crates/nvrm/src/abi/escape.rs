//! Requests of the control and device files (`nv_escape.h`, `nv-ioctl.h`, `nvos.h`).
//!
//! The kernel only checks number and size of a request. The field `status` contains the result of the object
//! manager; the result of the ioctl does not.

use kernel_door::uapi_struct;

/// Number of [`RmAllocMemory`].
pub const RM_ALLOC_MEMORY: u8 = 0x27;
/// Number of [`RmFree`].
pub const RM_FREE: u8 = 0x29;
/// Number of [`RmControl`].
pub const RM_CONTROL: u8 = 0x2a;
/// Number of [`RmAlloc`].
pub const RM_ALLOC: u8 = 0x2b;
/// Number of [`RmMapMemory`].
pub const RM_MAP_MEMORY: u8 = 0x4e;
/// Number of [`RmUnmapMemory`].
pub const RM_UNMAP_MEMORY: u8 = 0x4f;
/// Number of the request whose argument is [`CARDS`] elements of [`CardInfo`].
pub const CARD_INFO: u8 = 200;
/// Number of [`RegisterFd`].
pub const REGISTER_FD: u8 = 201;
/// Number of [`AllocOsEvent`].
pub const ALLOC_OS_EVENT: u8 = 206;
/// Number of [`ApiVersion`].
pub const CHECK_VERSION_STR: u8 = 210;

/// Number of elements of a [`CARD_INFO`]: the maximum number of GPUs of the driver.
pub const CARDS: usize = 32;
/// [`ApiVersion::cmd`]: return the version without a comparison.
pub const VERSION_QUERY: u32 = b'2' as u32;
/// [`RmAllocMemory::flags`] for memory of the process: non-contiguous pages, cached by the CPU, not mapped by RM
/// (`NVOS02_FLAGS_*`).
pub const HOST_MEMORY_FLAGS: u32 = 0x4000_1010;

/// Returns the request code of an escape with an argument of `bytes` bytes: read and write, family `F`.
pub const fn request(number: u8, bytes: usize) -> u32 {
    assert!(bytes < 1 << 14, "the size field of a request has 14 bits");
    // CAST: checked above.
    0xc000_0000 | (bytes as u32) << 16 | (b'F' as u32) << 8 | number as u32
}

uapi_struct! {
    /// Argument of [`CHECK_VERSION_STR`].
    unsafe plain ApiVersion = "nv_ioctl_rm_api_version_t", 72 bytes {
        /// Command: `0x32` returns the version, 0 compares it strictly.
        0 => cmd: u32;
        /// Out: whether the versions agree.
        4 => reply: u32;
        /// Version of the driver as text, zero-padded.
        8 => version: [u8; 64], "versionString";
    }

    /// Argument of [`RM_ALLOC`]: creates an object.
    pointing(alloc_params, rights_requested) RmAlloc = "NVOS64_PARAMETERS", 48 bytes {
        /// The client.
        0 => root: u32, "hRoot";
        /// The parent object.
        4 => parent: u32, "hObjectParent";
        /// In: handle of the new object, 0 lets RM choose. Out: the handle.
        8 => handle: u32, "hObjectNew";
        /// Class of the object.
        12 => class: u32, "hClass";
        /// Address of the class's parameters, or 0.
        16 => alloc_params: u64, "pAllocParms";
        /// 0: no access rights requested.
        24 => rights_requested: u64, "pRightsRequested";
        /// Size of the parameters in bytes.
        32 => params_size: u32, "paramsSize";
        /// Flags; 0 by default.
        36 => flags: u32;
        /// Out: RM status of the call; 0 is success.
        40 => status: u32;
        /// Must be 0.
        44 => padding0: [u8; 4], "";
    }

    /// Argument of [`RM_CONTROL`]: sends a command to an object.
    pointing(params) RmControl = "NVOS54_PARAMETERS", 32 bytes {
        /// The client.
        0 => client: u32, "hClient";
        /// Target object of the command.
        4 => object: u32, "hObject";
        /// The command.
        8 => cmd: u32;
        /// Flags; 0 by default.
        12 => flags: u32;
        /// Address of the command's parameters, or 0.
        16 => params: u64;
        /// Size of the parameters in bytes.
        24 => params_size: u32, "paramsSize";
        /// Out: RM status of the call; 0 is success.
        28 => status: u32;
    }

    /// Argument of [`RM_FREE`]: frees an object and all below it.
    unsafe plain RmFree = "NVOS00_PARAMETERS", 16 bytes {
        /// The client.
        0 => root: u32, "hRoot";
        /// The parent object.
        4 => parent: u32, "hObjectParent";
        /// The object to free.
        8 => object: u32, "hObjectOld";
        /// Out: RM status of the call; 0 is success.
        12 => status: u32;
    }

    /// One element of the array that is the argument of [`CARD_INFO`].
    unsafe plain CardInfo = "nv_ioctl_card_info_t", 72 bytes {
        /// Out: 1 if the element describes a GPU.
        0 => valid: u8;
        /// Must be 0.
        1 => padding0: [u8; 3], "";
        /// Out: domain (u32), bus, slot, function (u8), vendor and device (u16).
        4 => pci_info: [u32; 3];
        /// Out: RM id of the GPU.
        16 => gpu_id: u32;
        /// Out: interrupt line.
        20 => interrupt_line: u16;
        /// Must be 0.
        22 => padding1: [u8; 2], "";
        /// Out: physical address of the registers (BAR0).
        24 => reg_address: u64;
        /// Out: size of BAR0 in bytes.
        32 => reg_size: u64;
        /// Out: physical address of the aperture (BAR1).
        40 => fb_address: u64;
        /// Out: size of BAR1 in bytes.
        48 => fb_size: u64;
        /// Out: number of the node `/dev/nvidiaN`.
        56 => minor_number: u32;
        /// Out: name of the device.
        60 => dev_name: [u8; 10];
        /// Must be 0.
        70 => padding2: [u8; 2], "";
    }

    /// Argument of [`REGISTER_FD`]: ties a device file to a control file.
    unsafe plain RegisterFd = "nv_ioctl_register_fd_t", 4 bytes {
        /// Descriptor of the control file.
        0 => ctl_fd: i32;
    }

    /// Argument of [`RM_MAP_MEMORY`]: prepares `fd` for one mmap of a memory object.
    unsafe plain RmMapMemory = "nv_ioctl_nvos33_parameters_with_fd", 56 bytes {
        /// The client.
        0 => client: u32, "hClient";
        /// The device object.
        4 => device: u32, "hDevice";
        /// The memory object.
        8 => memory: u32, "hMemory";
        /// Must be 0.
        12 => padding0: [u8; 4], "";
        /// Offset in bytes.
        16 => offset: u64;
        /// Length in bytes.
        24 => length: u64;
        /// RM's address of the mapping, needed to unmap it.
        32 => linear_address: u64, "pLinearAddress";
        /// Out: RM status of the call; 0 is success.
        40 => status: u32;
        /// Flags; 0 by default.
        44 => flags: u32;
        /// A file descriptor.
        48 => fd: i32;
        /// Must be 0.
        52 => padding1: [u8; 4], "";
    }

    /// Argument of [`RM_UNMAP_MEMORY`].
    unsafe plain RmUnmapMemory = "NVOS34_PARAMETERS", 32 bytes {
        /// The client.
        0 => client: u32, "hClient";
        /// The device object.
        4 => device: u32, "hDevice";
        /// The memory object.
        8 => memory: u32, "hMemory";
        /// Must be 0.
        12 => padding0: [u8; 4], "";
        /// RM's address of the mapping, needed to unmap it.
        16 => linear_address: u64, "pLinearAddress";
        /// Out: RM status of the call; 0 is success.
        24 => status: u32;
        /// Flags; 0 by default.
        28 => flags: u32;
    }

    /// Argument of [`RM_ALLOC_MEMORY`]: here, makes memory of the process an RM object.
    pointing(memory) RmAllocMemory = "nv_ioctl_nvos02_parameters_with_fd", 56 bytes {
        /// The client.
        0 => root: u32, "hRoot";
        /// The parent object.
        4 => parent: u32, "hObjectParent";
        /// Handle of the new object, chosen by the caller.
        8 => handle: u32, "hObjectNew";
        /// Class of the object.
        12 => class: u32, "hClass";
        /// Placement and caching (NVOS02_FLAGS_*).
        16 => flags: u32;
        /// Must be 0.
        20 => padding0: [u8; 4], "";
        /// First byte of the memory, page aligned.
        24 => memory: u64, "pMemory";
        /// Length of the memory in bytes, minus 1.
        32 => limit: u64;
        /// Out: RM status of the call; 0 is success.
        40 => status: u32;
        /// Must be 0.
        44 => padding1: [u8; 4], "";
        /// -1: the memory is not mapped through RM.
        48 => fd: i32;
        /// Must be 0.
        52 => padding2: [u8; 4], "";
    }

    /// Argument of [`ALLOC_OS_EVENT`]: lets a file report events.
    unsafe plain AllocOsEvent = "nv_ioctl_alloc_os_event_t", 16 bytes {
        /// The client.
        0 => client: u32, "hClient";
        /// The device object.
        4 => device: u32, "hDevice";
        /// A file descriptor.
        8 => fd: u32;
        /// Out: RM status; 0 is success.
        12 => status: u32, "Status";
    }
}
