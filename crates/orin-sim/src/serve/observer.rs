//! Reports of the calls that the supervisor serves.

use core::ffi::CStr;
use core::fmt;
use std::os::fd::RawFd;

use kernel_door::MapRequest;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::caller::CallerFile;

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
    /// The board's accesses to the program, in order; empty unless the observer [wants](Observer::wants_accesses) it.
    pub accesses: &'a [Access],
}

/// An access of the board to a program during a call.
///
/// ```
/// use orin_sim::serve::Access;
///
/// let access = Access::Write { address: 0x1000, bytes: vec![1, 2] };
/// assert!(matches!(access, Access::Write { address: 0x1000, .. }));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Access {
    /// A read of memory.
    Read {
        /// First address.
        address: u64,
        /// The bytes.
        #[serde(with = "hex")]
        bytes: Vec<u8>,
    },
    /// A store to memory.
    Write {
        /// First address.
        address: u64,
        /// The bytes.
        #[serde(with = "hex")]
        bytes: Vec<u8>,
    },
    /// A new descriptor.
    Install {
        /// Its number.
        number: RawFd,
        /// Its file; `None` in records of the first version.
        #[serde(default)]
        file: Option<CallerFile>,
    },
    /// A look-up of a descriptor.
    Use {
        /// Its number.
        number: RawFd,
        /// Its file.
        file: CallerFile,
    },
    /// The last close of a file, which the board noticed before it answered.
    Close {
        /// The file.
        file: CallerFile,
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

    /// Adds the board's accesses to the program.
    #[must_use]
    pub fn with_accesses(mut self, accesses: &'a [Access]) -> Self {
        self.accesses = accesses;
        self
    }
}

/// The system call of a [`ServedCall`].
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
        /// Contents of the argument before the call; empty if it cannot be read.
        before: &'a [u8],
        /// Contents of the argument after the call.
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

/// Bytes as hexadecimal digits.
mod hex {
    use serde::de::{Deserialize as _, Deserializer, Error as _};
    use serde::ser::Serializer;

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], output: S) -> Result<S::Ok, S::Error> {
        output.collect_str(&bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(input)?;
        let digit = |digit: u8| char::from(digit).to_digit(16);
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        // CAST: two digits.
        let bytes = pairs.iter().map(|[high, low]| Some((digit(*high)? << 4 | digit(*low)?) as u8)).collect();
        let bytes: Option<Vec<u8>> = if rest.is_empty() { bytes } else { None };
        bytes.ok_or_else(|| D::Error::custom("not pairs of hexadecimal digits"))
    }
}
