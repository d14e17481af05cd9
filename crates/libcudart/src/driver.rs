//! The functions of `libcuda.so.1`, found by name when they are first called.

use core::ffi::{CStr, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::sync::OnceLock;

use crate::device;
use crate::error::{Error, Result};

/// A function of the driver.
#[derive(Debug)]
pub(crate) struct Symbol {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

/// The driver's library; 0 if there is none.
fn library() -> usize {
    static LIBRARY: OnceLock<usize> = OnceLock::new();
    // SAFETY: the name is a C string. The library is never closed.
    *LIBRARY.get_or_init(|| unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) }.addr())
}

impl Symbol {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(null_mut()) }
    }

    /// The address of the function.
    fn address(&self) -> Result<*mut c_void> {
        let known = self.address.load(Ordering::Acquire);
        if !known.is_null() {
            return Ok(known);
        }
        let library: *mut c_void = core::ptr::with_exposed_provenance_mut(library());
        if library.is_null() {
            return Err(Error::INSUFFICIENT_DRIVER);
        }
        // SAFETY: the library is open, and the name is a C string.
        let found = unsafe { libc::dlsym(library, self.name.as_ptr()) };
        if found.is_null() {
            return Err(Error::NEWER_DRIVER);
        }
        self.address.store(found, Ordering::Release);
        Ok(found)
    }

    /// Calls the function. If the driver is not initialised or, with `context`, no context is current, does that and
    /// calls again.
    pub(crate) fn call<const N: usize>(&self, context: bool, words: [usize; N]) -> Result {
        self.call_as(context, |address| call_at(address, &words))
    }

    /// As [`Symbol::call`], for a function with arguments that are not words: `call` calls what is at an address.
    pub(crate) fn call_as(&self, context: bool, call: impl Fn(*mut c_void) -> u32) -> Result {
        let address = self.address()?;
        let call = || match call(address) {
            0 => Ok(()),
            error => Err(Error(error)),
        };
        let mut result = call();
        if result == Err(Error::NOT_INITIALIZED) {
            cu!(raw cuInit, 0_usize)?;
            result = call();
        }
        let lost = matches!(result, Err(Error::INVALID_CONTEXT | Error::CONTEXT_IS_DESTROYED));
        if context && lost && device::establish()? { call() } else { result }
    }

    /// Calls the function once.
    pub(crate) fn call_once<const N: usize>(&self, words: [usize; N]) -> Result {
        match call_at(self.address()?, &words) {
            0 => Ok(()),
            error => Err(Error(error)),
        }
    }
}

/// Declares [`call_at`] for numbers of words.
macro_rules! by_count {
    ($([$($word:ident)*])*) => {
        /// Calls the function at an address with integers and pointers.
        ///
        /// Both ABIs of 64-bit Linux pass an integer of any width, a pointer, and a structure of eight bytes in the
        /// same registers, or in the same eight bytes of the stack; the function reads no more than its type has.
        fn call_at(address: *mut c_void, words: &[usize]) -> u32 {
            match *words {
                $([$($word),*] => {
                    // SAFETY: the address is that of a C function with as many arguments, each of one word (`cu` and
                    // `functions.txt` say which; a test compares their number). The pointers among them are those of
                    // the program, which promises what `cuda_runtime_api.h` documents, or of variables of the caller.
                    unsafe {
                        let function: unsafe extern "C" fn($(by_count!(@ $word)),*) -> u32 =
                            core::mem::transmute(address);
                        function($($word),*)
                    }
                })*
                // PANIC: no function of the driver has more.
                _ => panic!("{} arguments", words.len()),
            }
        }
    };
    (@ $word:ident) => { usize };
}

by_count! {
    []
    [a]
    [a b]
    [a b c]
    [a b c d]
    [a b c d e]
    [a b c d e f]
    [a b c d e f g]
    [a b c d e f g h]
    [a b c d e f g h i]
    [a b c d e f g h i j]
    [a b c d e f g h i j k]
}

/// An argument in a register.
pub(crate) trait Word {
    fn word(self) -> usize;
}

impl Word for usize {
    fn word(self) -> usize {
        self
    }
}

impl Word for u32 {
    fn word(self) -> usize {
        self as usize
    }
}

impl Word for i32 {
    fn word(self) -> usize {
        self.cast_unsigned() as usize
    }
}

impl<T> Word for *mut T {
    fn word(self) -> usize {
        self.expose_provenance()
    }
}

impl<T> Word for *const T {
    fn word(self) -> usize {
        self.expose_provenance()
    }
}

/// Calls a function of the driver by its name; `no_context` if it needs no context, `raw` if it is called once.
macro_rules! cu {
    (no_context $name:ident $(, $argument:expr)* $(,)?) => {
        $crate::driver::symbol!($name).call(false, [$($crate::driver::Word::word($argument)),*])
    };
    (raw $name:ident $(, $argument:expr)* $(,)?) => {
        $crate::driver::symbol!($name).call_once([$($crate::driver::Word::word($argument)),*])
    };
    ($name:ident $(, $argument:expr)* $(,)?) => {
        $crate::driver::symbol!($name).call(true, [$($crate::driver::Word::word($argument)),*])
    };
}

/// The function of the driver with a name.
macro_rules! symbol {
    ($name:ident) => {{
        const NAME: &core::ffi::CStr =
            match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                // PANIC: at compile time; a name has no zero byte.
                Err(_) => panic!("a name contains a zero byte"),
            };
        static SYMBOL: $crate::driver::Symbol = $crate::driver::Symbol::new(NAME);
        &SYMBOL
    }};
}

pub(crate) use {cu, symbol};
