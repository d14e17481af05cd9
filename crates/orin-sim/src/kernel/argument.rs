//! The argument of a request: copied in, processed, copied out.

use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::process::task::Task;

/// Longest argument of any node, in bytes (control node, GET_CPU_TIME_CORRELATION_INFO).
const MAX_BYTES: usize = 264;

/// Direction bit of a request code: the kernel reads the argument (`_IOW`).
const KERNEL_READS: u32 = 1 << 30;
/// Direction bit of a request code: the kernel writes the argument (`_IOR`).
const KERNEL_WRITES: u32 = 1 << 31;

/// The parts of a request code that the generic checks use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Code {
    /// The whole code.
    pub(super) code: u32,
    /// Family letter, bits 15:8.
    pub(super) family: u8,
    /// Number, bits 7:0.
    pub(super) number: u32,
    /// Size of the argument in bytes, bits 29:16.
    pub(super) bytes: usize,
}

impl Code {
    pub(super) fn new(code: u32) -> Self {
        // CAST: truncation to the fields is intended.
        Self { code, family: (code >> 8) as u8, number: code & 0xff, bytes: ((code >> 16) & 0x3fff) as usize }
    }

    /// Returns whether the kernel reads or writes the argument.
    pub(super) fn has_direction(self) -> bool {
        self.code & (KERNEL_READS | KERNEL_WRITES) != 0
    }

    /// The check that nvgpu's nodes make first: EINVAL for another family, number 0, a number above `last` or an
    /// argument larger than `bytes`.
    pub(super) fn check(self, family: u8, last: i16, bytes: usize) -> Result<(), Errno> {
        let known = self.family == family
            && self.number != 0
            && i64::from(self.number) <= i64::from(last)
            && self.bytes <= bytes;
        if known { Ok(()) } else { Err(Errno::INVAL) }
    }
}

/// A request's argument in kernel memory.
#[derive(Debug)]
pub(super) struct Argument<'a> {
    task: &'a Task<'a>,
    code: Code,
    address: u64,
    bytes: [u8; MAX_BYTES],
}

impl<'a> Argument<'a> {
    /// Copies the argument in if the direction of the code includes reading; the rest is zero.
    ///
    /// # Errors
    ///
    /// EFAULT.
    pub(super) fn copy_in(task: &'a Task<'a>, code: Code, address: u64) -> Result<Self, Errno> {
        Self::copy_in_if(task, code, address, code.code & KERNEL_READS != 0)
    }

    /// Copies the argument in regardless of the direction, as nvmap does for some requests.
    ///
    /// # Errors
    ///
    /// EFAULT.
    pub(super) fn copy_in_always(task: &'a Task<'a>, code: Code, address: u64) -> Result<Self, Errno> {
        Self::copy_in_if(task, code, address, true)
    }

    fn copy_in_if(task: &'a Task<'a>, code: Code, address: u64, read: bool) -> Result<Self, Errno> {
        let mut bytes = [0; MAX_BYTES];
        if read {
            task.read_bytes(address, bytes.get_mut(..code.bytes).ok_or(Errno::INVAL)?)?;
        }
        Ok(Self { task, code, address, bytes })
    }

    /// The task that makes the request.
    pub(super) fn task(&self) -> &'a Task<'a> {
        self.task
    }

    /// The request code.
    pub(super) fn code(&self) -> u32 {
        self.code.code
    }

    /// Runs a handler on the argument. The handler's changes are kept even if it fails, but only a few requests copy
    /// them out in that case.
    ///
    /// # Errors
    ///
    /// Those of the handler.
    pub(super) fn call<T: FromBytes + IntoBytes + Immutable>(
        &mut self,
        handler: impl FnOnce(&mut T) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut value = self.peek();
        let result = handler(&mut value);
        self.bytes[..size_of::<T>()].copy_from_slice(value.as_bytes());
        result
    }

    /// The current contents of the argument.
    pub(super) fn peek<T: FromBytes>(&self) -> T {
        // PANIC: the code selects the handler and contains the size of `T`, at most `MAX_BYTES`.
        T::read_from_prefix(&self.bytes).expect("the argument holds its struct").0
    }

    /// Copies the argument out if the direction includes writing. Returns the number of bytes that could not be stored.
    pub(super) fn copy_out(&self) -> usize {
        if self.code.code & KERNEL_WRITES == 0 {
            return 0;
        }
        self.task.write_bytes(self.address, &self.bytes[..self.code.bytes])
    }

    /// The return value of the ctrl, TSG and channel nodes after success: the residue of the copy-out.
    pub(super) fn residue(&self) -> i32 {
        i32::try_from(self.copy_out()).unwrap_or(i32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::process::ProcessId;

    #[test]
    fn the_generic_check_is_that_of_the_control_node() {
        let check = |code| Code::new(code).check(b'G', 44, 264);
        assert_eq!(check(0xc010_4705), Ok(()));
        assert_eq!(check(0xc010_4700), Err(Errno::INVAL), "number 0");
        assert_eq!(check(0xc010_472d), Err(Errno::INVAL), "number 45");
        assert_eq!(check(0xc109_4705), Err(Errno::INVAL), "265 bytes");
        assert_eq!(check(0xc010_4105), Err(Errno::INVAL), "family A");
    }

    #[test]
    fn an_argument_travels_as_its_direction_says() {
        let task = Task::own(ProcessId(0), None);
        let mut value = 5_u32;
        let address = core::ptr::from_mut(&mut value).expose_provenance() as u64;
        // _IOR: not copied in.
        let mut argument = Argument::copy_in(&task, Code::new(0x8004_4801), address).unwrap();
        argument
            .call(|value: &mut u32| {
                assert_eq!(*value, 0);
                *value = 7;
                Ok(())
            })
            .unwrap();
        assert_eq!(argument.copy_out(), 0);
        assert_eq!(value, 7);
        // _IOW: not copied out.
        let mut argument = Argument::copy_in(&task, Code::new(0x4004_4801), address).unwrap();
        argument
            .call(|value: &mut u32| {
                assert_eq!(*value, 7);
                *value = 9;
                Ok(())
            })
            .unwrap();
        assert_eq!(argument.copy_out(), 0);
        assert_eq!(value, 7);
    }
}
