//! What a program learns about the calls that the supervisor serves.

use core::ffi::CStr;
use core::fmt;
use std::os::fd::RawFd;

use kernel_door::MapRequest;
use rustix::io::Errno;

/// A call of a served program on the board, after its answer is known.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServedCall<'a> {
    /// Id of the process on the host.
    pub process: u32,
    /// Id of the thread on the host.
    pub thread: u32,
    /// Name of the thread.
    pub name: String,
    /// The call.
    pub detail: Detail<'a>,
    /// Its result.
    pub result: Result<i64, Errno>,
    /// What the board did to the program, in order; empty unless the observer [wants](Observer::wants_accesses) it.
    pub accesses: &'a [Access],
}

/// What the board did to a program during a call.
///
/// ```
/// use orin_sim::serve::Access;
///
/// let access = Access::Write { address: 0x1000, bytes: vec![1, 2] };
/// assert!(matches!(access, Access::Write { address: 0x1000, .. }));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// It read memory.
    Read {
        /// First address.
        address: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// It stored to memory.
    Write {
        /// First address.
        address: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// It installed a descriptor.
    Install {
        /// Its number.
        number: RawFd,
    },
}

impl<'a> ServedCall<'a> {
    /// A call of a thread, given the ids of its process and of itself.
    pub fn new(
        (process, thread): (u32, u32),
        name: String,
        detail: Detail<'a>,
        result: Result<i64, Errno>,
    ) -> Self {
        Self { process, thread, name, detail, result, accesses: &[] }
    }

    /// The same with what the board did to the program.
    #[must_use]
    pub fn with_accesses(mut self, accesses: &'a [Access]) -> Self {
        self.accesses = accesses;
        self
    }
}

/// The call of a [`ServedCall`], which has an example.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Detail<'a> {
    /// An open of a node.
    Open {
        /// Its path.
        path: &'a CStr,
        /// The flags of open(2).
        flags: i32,
    },
    /// A request on a descriptor of the board.
    Request {
        /// Number of the descriptor in the program.
        descriptor: RawFd,
        /// The request's code.
        code: u32,
        /// The argument.
        address: u64,
        /// What the argument contained before; empty if it cannot be read.
        before: &'a [u8],
        /// What it contains afterwards.
        after: &'a [u8],
    },
    /// A shared mapping of a file of the board. The host chooses its address afterwards.
    Map(MapRequest),
}

/// Receives the calls that the supervisor serves, on the supervisor's threads.
pub trait Observer: fmt::Debug + Send + Sync {
    /// Called after a call, before the program continues, except for opens.
    fn served(&self, call: &ServedCall<'_>);

    /// Whether [`ServedCall::accesses`] are collected.
    fn wants_accesses(&self) -> bool {
        false
    }
}
