//! The task that makes a request: its process, its memory, its names.
//!
//! Linux keeps it in `current`. Here each call of a door creates one and passes it down, so a function that copies user
//! memory or looks up a descriptor names the process.

use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use crate::caller::{Caller, CallerMemory, OwnMemory};
use crate::procfs;

use super::ProcessId;

/// The task that makes a request.
#[derive(Clone, Copy, Debug)]
pub(in crate::kernel) struct Task<'a> {
    /// Its process on the board.
    pub(in crate::kernel) process: ProcessId,
    /// The memory of the addresses in the request.
    memory: &'a dyn CallerMemory,
    /// The thread of another process of the host that makes the request; `None` for a thread of this one.
    pub(in crate::kernel) caller: Option<&'a dyn Caller>,
}

impl<'a> Task<'a> {
    /// A thread of this process, whose requests refer to `memory`.
    pub(in crate::kernel) fn own(process: ProcessId, memory: Option<&'a dyn CallerMemory>) -> Self {
        Self { process, memory: memory.unwrap_or(&OwnMemory), caller: None }
    }

    /// A thread of another process of the host.
    pub(in crate::kernel) fn served(process: ProcessId, caller: &'a dyn Caller) -> Self {
        Self { process, memory: caller, caller: Some(caller) }
    }

    /// Whether the process is another one of the host.
    pub(in crate::kernel) fn is_served(&self) -> bool {
        self.caller.is_some()
    }

    /// Whether the model may map the task's memory in place.
    pub(in crate::kernel) fn is_direct(&self) -> bool {
        !self.is_served() && self.memory.is_direct()
    }

    /// Id of the process on the host.
    pub(in crate::kernel) fn host_id(&self) -> u32 {
        self.caller.map_or_else(std::process::id, Caller::process_id)
    }

    /// Name of the process in the kernel.
    pub(in crate::kernel) fn command(&self) -> String {
        let own = || procfs::read_to_string("comm").unwrap_or_default().trim().to_owned();
        self.caller.map_or_else(own, Caller::name)
    }

    /// Name of the thread.
    pub(in crate::kernel) fn thread_name(&self) -> String {
        let own = || std::thread::current().name().unwrap_or("user").to_owned();
        self.caller.map_or_else(own, Caller::name)
    }

    /// Fills `buffer` from `address`.
    ///
    /// # Errors
    ///
    /// EFAULT if a part cannot be read.
    pub(in crate::kernel) fn read_bytes(&self, address: u64, buffer: &mut [u8]) -> Result<(), Errno> {
        self.memory.read(address, buffer)
    }

    /// Stores `bytes` at `address`. Returns the number of bytes that could not be stored.
    pub(in crate::kernel) fn write_bytes(&self, address: u64, bytes: &[u8]) -> usize {
        self.memory.write(address, bytes)
    }

    /// Reads one `T` at `address`.
    ///
    /// # Errors
    ///
    /// EFAULT.
    pub(in crate::kernel) fn read<T: FromBytes + IntoBytes>(&self, address: u64) -> Result<T, Errno> {
        let mut value = T::new_zeroed();
        self.read_bytes(address, value.as_mut_bytes())?;
        Ok(value)
    }
}
