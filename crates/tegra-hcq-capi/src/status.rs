//! Status codes, the error text of a thread, and the guard that keeps panics inside.

use core::cell::RefCell;
use core::ffi::{CStr, c_char};
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tegra_hcq::{CompileError, Error, Fault};

use crate::fork;

/// Result of a call. 0 is success; `tegra_hcq_last_error` returns the text of a failure.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The call has succeeded.
    Ok = 0,
    /// The work did not end in time. It may still end later.
    Timeout = 1,
    /// The GPU stopped the work: `tegra_hcq_last_fault` returns why. Call `tegra_hcq_device_recover`.
    Fault = 2,
    /// There is not enough memory.
    OutOfMemory = 3,
    /// A size, range, count, name or combination of arguments is invalid.
    InvalidArgument = 4,
    /// A handle is NULL, was freed, belongs to a closed device, or names another kind of object.
    InvalidHandle = 5,
    /// There is no kernel or variable of that name.
    NotFound = 6,
    /// The device or this build of the library does not offer it.
    Unsupported = 7,
    /// The source does not compile; the text is the compiler's log.
    Compilation = 8,
    /// NVRTC, nvJitLink or ptxas is not installed; the text says how to get it.
    LibraryMissing = 9,
    /// The device cannot be opened, or its driver has refused a call.
    Device = 10,
    /// The object is in use: work was launched but not submitted, or all queues are open.
    Busy = 11,
    /// A fault of this library.
    Internal = 12,
    /// The function of `tegra_hcq_set_interrupt` has ended the wait.
    Interrupted = 13,
}

impl Status {
    const ALL: [(Self, &'static CStr); 14] = [
        (Self::Ok, c"success"),
        (Self::Timeout, c"time-out"),
        (Self::Fault, c"GPU fault"),
        (Self::OutOfMemory, c"out of memory"),
        (Self::InvalidArgument, c"invalid argument"),
        (Self::InvalidHandle, c"invalid handle"),
        (Self::NotFound, c"not found"),
        (Self::Unsupported, c"not supported"),
        (Self::Compilation, c"compilation failed"),
        (Self::LibraryMissing, c"library missing"),
        (Self::Device, c"device error"),
        (Self::Busy, c"in use"),
        (Self::Internal, c"internal error"),
        (Self::Interrupted, c"interrupted"),
    ];
}

/// Why a call has failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: Status,
    pub(crate) text: String,
    pub(crate) fault: Option<Arc<Fault>>,
}

impl Failure {
    pub(crate) fn new(status: Status, text: impl Into<String>) -> Self {
        Self { status, text: text.into(), fault: None }
    }

    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self::new(Status::InvalidArgument, text)
    }

    pub(crate) fn handle(text: impl Into<String>) -> Self {
        Self::new(Status::InvalidHandle, text)
    }
}

impl From<Error> for Failure {
    #[cold]
    fn from(error: Error) -> Self {
        let status = match &error {
            Error::Fault(_) => Status::Fault,
            Error::Timeout { .. } => Status::Timeout,
            Error::Interrupted => Status::Interrupted,
            Error::OutOfMemory { .. } => Status::OutOfMemory,
            Error::NotSubmitted | Error::Viewed | Error::TooManyQueues(_) => Status::Busy,
            Error::NoDriver { .. }
            | Error::NoSoftwareOrin
            | Error::UnknownChip { .. }
            | Error::TexturesAbsent { .. } => Status::Unsupported,
            error if error.is_unsupported() => Status::Unsupported,
            Error::Compile(error) => of_compiler(error),
            Error::Cubin(cubin::Error::NoSuchKernel { .. } | cubin::Error::NoSuchVariable { .. }) => {
                Status::NotFound
            }
            Error::Driver(_)
            | Error::NoSuchDevice { .. }
            | Error::SoftwareOrin(_)
            | Error::Thread(_)
            | Error::File { .. } => Status::Device,
            _ => Status::InvalidArgument,
        };
        let text = error.to_string();
        let fault = if let Error::Fault(fault) = error { Some(fault) } else { None };
        Self { status, text, fault }
    }
}

fn of_compiler(error: &CompileError) -> Status {
    match error {
        CompileError::NoNvrtc { .. } | CompileError::NoNvJitLink { .. } | CompileError::NoPtxas { .. } => {
            Status::LibraryMissing
        }
        CompileError::Compilation { .. }
        | CompileError::UnsupportedPtx { .. }
        | CompileError::UnresolvedSymbols { .. }
        | CompileError::Nvrtc { .. }
        | CompileError::NvJitLink { .. } => Status::Compilation,
        CompileError::File { .. } => Status::Device,
        _ => Status::InvalidArgument,
    }
}

/// The last failure of a thread.
#[derive(Debug, Default)]
pub(crate) struct Last {
    text: CString,
    pub(crate) fault: Option<Arc<Fault>>,
    /// Strings that `tegra_hcq_last_fault` has given out.
    pub(crate) strings: Vec<CString>,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::default();
}

/// Reads or changes the last failure of the thread; `None` while the thread ends.
pub(crate) fn with_last<R>(change: impl FnOnce(&mut Last) -> R) -> Option<R> {
    LAST.try_with(|last| change(&mut last.borrow_mut())).ok()
}

/// A text for C. A zero byte ends it.
pub(crate) fn c_text(text: &str) -> CString {
    let end = text.find('\0').unwrap_or(text.len());
    CString::new(&text[..end]).unwrap_or_default()
}

#[cold]
fn fail(failure: Failure) -> Status {
    let Failure { status, text, fault } = failure;
    with_last(|last| {
        last.text = c_text(&text);
        last.fault = fault;
    });
    status
}

/// Runs a call: stores its failure for the thread, and turns a panic into [`Status::Internal`].
#[inline]
pub(crate) fn guard(call: impl FnOnce() -> Result<(), Failure>) -> Status {
    // The closure's objects are behind locks, or belong to the call.
    match catch_unwind(AssertUnwindSafe(|| fork::check().and_then(|()| call()))) {
        Ok(Ok(())) => Status::Ok,
        Ok(Err(failure)) => fail(failure),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("unknown reason");
            fail(Failure::new(Status::Internal, format!("the library has panicked: {text}")))
        }
    }
}

/// Text of this thread's last failed call: one or more lines of UTF-8, never NULL, empty before the first failure. It
/// is valid until the thread's next failed call. Calls that succeed do not change it. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn tegra_hcq_last_error() -> *const c_char {
    with_last(|last| last.text.as_ptr()).unwrap_or(c"".as_ptr())
}

/// Name of a status, for example "invalid handle"; "unknown status" for other numbers. Never NULL, never freed.
/// Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn tegra_hcq_status_name(status: i32) -> *const c_char {
    let found = Status::ALL.iter().find(|(known, _)| *known as i32 == status);
    found.map_or(c"unknown status", |(_, name)| name).as_ptr()
}
