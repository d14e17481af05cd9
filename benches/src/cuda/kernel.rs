//! Kernels and their launches.

use core::ffi::c_void;
use core::ptr;
use std::rc::Rc;

use super::Context;
use super::library::Handle;
use crate::error::{Error, Result};

/// Maximum number of arguments of a launch.
const MAX_ARGUMENTS: usize = 8;

/// A loaded image.
#[derive(Debug)]
pub(super) struct Module {
    pub(super) context: Rc<Context>,
    pub(super) handle: Handle,
}

impl Drop for Module {
    fn drop(&mut self) {
        self.context.settle();
        // SAFETY: the module is loaded, and none of its kernels runs any more.
        let _ = unsafe { (self.context.driver.functions.module_unload)(self.handle) };
    }
}

/// A kernel.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Keeps the function loaded.
    pub(super) _module: Rc<Module>,
    pub(super) function: Handle,
    pub(super) name: String,
    /// Sizes of the parameters in bytes.
    pub(super) parameters: Vec<usize>,
}

/// One argument of a launch.
#[derive(Clone, Copy, Debug)]
pub enum Argument {
    /// A pointer.
    Address(u64),
    /// Four bytes.
    U32(u32),
}

impl Argument {
    fn bytes(self) -> usize {
        match self {
            Self::Address(_) => 8,
            Self::U32(_) => 4,
        }
    }

    /// The value in the low bytes. CUDA supports only little-endian hosts.
    fn bits(self) -> u64 {
        match self {
            Self::Address(value) => value,
            Self::U32(value) => value.into(),
        }
    }
}

impl Kernel {
    /// Prepares a launch of `grid` blocks of `block` threads, checked against the kernel's parameters.
    ///
    /// # Errors
    ///
    /// [`Error::Arguments`].
    pub fn launch(&self, grid: [u32; 3], block: [u32; 3], arguments: &[Argument]) -> Result<Launch> {
        let given: Vec<_> = arguments.iter().map(|argument| argument.bytes()).collect();
        check_sizes(&self.name, &self.parameters, &given)?;
        let mut values = [0; MAX_ARGUMENTS];
        for (value, argument) in values.iter_mut().zip(arguments) {
            *value = argument.bits();
        }
        Ok(Launch { kernel: self.clone(), grid, block, values })
    }
}

fn check_sizes(kernel: &str, wanted: &[usize], given: &[usize]) -> Result<()> {
    if wanted == given && given.len() <= MAX_ARGUMENTS {
        return Ok(());
    }
    Err(Error::Arguments { kernel: kernel.to_owned(), wanted: wanted.to_vec(), given: given.to_vec() })
}

/// A prepared launch. The caller keeps the memory that its arguments point to until it has waited for the stream;
/// dropping [`Memory`](super::Memory) also waits.
#[derive(Clone, Debug)]
pub struct Launch {
    pub(super) kernel: Kernel,
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    pub(super) values: [u64; MAX_ARGUMENTS],
}

impl Launch {
    /// Replaces an argument.
    ///
    /// # Errors
    ///
    /// [`Error::Arguments`] if there is no such argument or its size differs.
    pub fn set(&mut self, index: usize, argument: Argument) -> Result<()> {
        let mut given = self.kernel.parameters.clone();
        if index >= given.len() {
            given.resize(index + 1, 0);
        }
        given[index] = argument.bytes();
        check_sizes(&self.kernel.name, &self.kernel.parameters, &given)?;
        self.values[index] = argument.bits();
        Ok(())
    }

    /// Pointers to the values, in the form that libcuda expects. libcuda reads and copies the values.
    #[inline]
    pub(super) fn pointers(&mut self) -> [*mut c_void; MAX_ARGUMENTS] {
        self.values.each_mut().map(|value| ptr::from_mut(value).cast())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_have_the_size_of_their_type() {
        let (pointer, number) = (Argument::Address(0x1_0000_0002), Argument::U32(7));
        assert_eq!((pointer.bytes(), number.bytes()), (8, 4));
        assert_eq!((pointer.bits(), number.bits().to_le_bytes()[0]), (0x1_0000_0002, 7));
    }

    #[test]
    fn arguments_that_do_not_fit_are_refused() {
        check_sizes("k", &[8, 4], &[8, 4]).unwrap();
        let error = check_sizes("fill", &[8, 4], &[8, 8]).unwrap_err().to_string();
        assert_eq!(error, "kernel fill takes parameters of [8, 4] bytes, got [8, 8]");
        assert!(check_sizes("k", &[4; 9], &[4; 9]).is_err(), "more than the wrapper passes on");
    }
}
