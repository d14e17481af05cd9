//! The object manager (RM): a tree of objects named by 32-bit handles.
//!
//! One open `/dev/nvidiactl` owns one client here, the root of the tree. Freeing an object frees all below it;
//! closing the file frees everything. A call has two results: the errno says whether it has reached the
//! object, the status what the object said.

use core::ffi::{CStr, c_void};
use core::ptr;
use std::ffi::CString;
use std::sync::Arc;

use nvgpu_sys::door::OpenFlags;
use nvgpu_sys::{Door, DoorFd, Errno};
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::escape::{self, request};
use crate::abi::{Class, Command, alloc};
use crate::error::{Error, Result, Status};
use crate::release::Release;
use crate::version::Version;

/// The control file.
pub const CONTROL_NODE: &CStr = c"/dev/nvidiactl";

/// Name of an RM object in its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Object(pub(crate) u32);

/// A client of the object manager.
#[derive(Debug)]
pub(crate) struct Rm {
    ctl: DoorFd,
    version: Version,
    release: Release,
    client: Object,
}

/// Opens a node for one mapping or more.
pub(crate) fn open(door: &Arc<dyn Door>, path: &CStr) -> Result<DoorFd> {
    // Without O_NONBLOCK: the driver would put off opening the GPU, and polls would miss events.
    let flags = OpenFlags::READ_WRITE | OpenFlags::CLOSE_ON_EXEC;
    DoorFd::open(door, path, flags)
        .map_err(|errno| Error::Open { path: path.to_string_lossy().into_owned(), errno })
}

/// Path of `/dev/nvidia<minor>`.
pub(crate) fn device_node(minor: u32) -> CString {
    CString::new(format!("/dev/nvidia{minor}")).expect("digits hold no zero byte")
}

/// Sends an escape to a file.
///
/// # Safety
///
/// Addresses inside `argument` are valid as the request says.
pub(crate) unsafe fn escape<T: FromBytes + IntoBytes>(
    file: &DoorFd,
    call: &'static str,
    number: u8,
    argument: &mut T,
) -> Result<()> {
    // SAFETY: the argument is as long as the request says; the caller vouches for addresses inside.
    unsafe { send(file, call, request(number, size_of::<T>()), ptr::from_mut(argument).cast()) }
}

/// Sends a request, again and again while the system is about to sleep.
///
/// # Safety
///
/// As [`Door::ioctl`].
pub(crate) unsafe fn send(
    file: &DoorFd,
    call: &'static str,
    request: u32,
    argument: *mut c_void,
) -> Result<()> {
    for _ in 0..1000 {
        // SAFETY: the caller's promise is passed on.
        match unsafe { file.door().ioctl(file.raw(), request, argument) } {
            Ok(_) => return Ok(()),
            Err(Errno::AGAIN | Errno::INTR) => std::thread::sleep(core::time::Duration::from_millis(1)),
            Err(errno) => return Err(Error::Call { call, errno }),
        }
    }
    Err(Error::Call { call, errno: Errno::AGAIN })
}

/// Turns a status into a result.
pub(crate) fn check(call: &'static str, what: &'static str, status: u32) -> Result<()> {
    match Status(status) {
        Status::OK => Ok(()),
        status => Err(Error::Status { call, what, status }),
    }
}

impl Rm {
    /// Opens the control file, asks for the version and makes a client.
    pub(crate) fn open(door: &Arc<dyn Door>) -> Result<Self> {
        let ctl = open(door, CONTROL_NODE)?;
        let mut version = escape::ApiVersion { cmd: escape::VERSION_QUERY, ..Default::default() };
        // SAFETY: no addresses inside.
        unsafe { escape(&ctl, "CHECK_VERSION_STR", escape::CHECK_VERSION_STR, &mut version) }?;
        let version: Version = text(&version.version).parse()?;
        let release = Release::of(version)?;
        if !release.is_tested() {
            tracing::warn!(%version, "this release of the driver was not tested, 580 was");
        }
        let mut rm = Self { ctl, version, release, client: Object(0) };
        rm.client = rm.allocate(Object(0), Object(0), &alloc::ROOT_CLIENT, &mut ())?;
        Ok(rm)
    }

    pub(crate) fn version(&self) -> Version {
        self.version
    }

    pub(crate) fn release(&self) -> Release {
        self.release
    }

    pub(crate) fn client(&self) -> Object {
        self.client
    }

    pub(crate) fn ctl(&self) -> &DoorFd {
        &self.ctl
    }

    pub(crate) fn door(&self) -> &Arc<dyn Door> {
        self.ctl.door()
    }

    /// Makes an object. The parameters come back as the driver has changed them.
    pub(crate) fn alloc<P: FromBytes + IntoBytes>(
        &self,
        parent: Object,
        class: &Class<P>,
        parameters: &mut P,
    ) -> Result<Object> {
        self.allocate(self.client, parent, class, parameters)
    }

    fn allocate<P: FromBytes + IntoBytes>(
        &self,
        root: Object,
        parent: Object,
        class: &Class<P>,
        parameters: &mut P,
    ) -> Result<Object> {
        let bytes = size_of::<P>();
        let mut argument = escape::RmAlloc {
            root: root.0,
            parent: parent.0,
            class: class.number,
            alloc_params: if bytes == 0 { 0 } else { ptr::from_mut(parameters).addr() as u64 },
            // CAST: a struct of at most a few KiB.
            params_size: bytes as u32,
            ..Default::default()
        };
        // SAFETY: the parameters are those of the class, at least as long as in any release, and live.
        unsafe { escape(&self.ctl, "RM_ALLOC", escape::RM_ALLOC, &mut argument) }?;
        check("RM_ALLOC", class.name, argument.status)?;
        Ok(Object(argument.handle))
    }

    /// Sends a command without addresses in its parameters.
    pub(crate) fn control<P: FromBytes + IntoBytes>(
        &self,
        object: Object,
        command: &Command<P>,
        parameters: &mut P,
    ) -> Result<()> {
        // SAFETY: commands with addresses go through `control_pointing`.
        unsafe { self.control_pointing(object, command, parameters) }
    }

    /// Sends a command.
    ///
    /// # Safety
    ///
    /// Addresses in the parameters are valid as the command says.
    pub(crate) unsafe fn control_pointing<P: FromBytes + IntoBytes>(
        &self,
        object: Object,
        command: &Command<P>,
        parameters: &mut P,
    ) -> Result<()> {
        let bytes = self.release.command_bytes(command.number, size_of::<P>());
        debug_assert!(bytes <= size_of::<P>());
        let mut argument = escape::RmControl {
            client: self.client.0,
            object: object.0,
            cmd: command.number,
            params: ptr::from_mut(parameters).addr() as u64,
            // CAST: a struct of at most a few KiB.
            params_size: bytes as u32,
            ..Default::default()
        };
        // SAFETY: the parameters have at least the size that is given and live; the rest is the caller's promise.
        unsafe { escape(&self.ctl, "RM_CONTROL", escape::RM_CONTROL, &mut argument) }?;
        check("RM_CONTROL", command.name, argument.status)
    }

    /// Frees an object and all below it.
    pub(crate) fn free(&self, parent: Object, object: Object, what: &'static str) -> Result<()> {
        let mut argument =
            escape::RmFree { root: self.client.0, parent: parent.0, object: object.0, ..Default::default() };
        // SAFETY: no addresses inside.
        unsafe { escape(&self.ctl, "RM_FREE", escape::RM_FREE, &mut argument) }?;
        check("RM_FREE", what, argument.status)
    }

    /// As [`Rm::free`], where nothing can be done about a refusal but to tell.
    pub(crate) fn free_or_log(&self, parent: Object, object: Object, what: &'static str) {
        if let Err(error) = self.free(parent, object, what) {
            tracing::warn!(%error, "an object stays until the GPU is closed");
        }
    }
}

/// The text in a zero-padded array.
pub(crate) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
