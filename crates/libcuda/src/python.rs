//! The calls of Python code, for findings of the checks.
//!
//! The native stack of a Python program has only functions of the interpreter. The interpreter in the process has its
//! C API, of which this module uses functions that every version since 3.9 has. Nothing is done unless checks are on.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute_copy;
use std::sync::OnceLock;

use tegra_hcq::check;

/// Environment variable that turns the checks on.
const CHECKS: &str = "ORIN_SIM_CHECK";
/// Number of calls that a finding can show.
const CALLS: usize = 4;
/// Most frames that are looked at.
const FRAMES: usize = 200;
/// Parts of paths of packages and of Python's own library. Their calls are left out if the program has others.
const LIBRARIES: [&str; 5] =
    ["/site-packages/", "/dist-packages/", "/lib/python3", "/lib64/python3", "<frozen "];

/// A Python object, thread state or frame.
type Object = *mut c_void;

/// Declares the functions of Python's C API that are used, and their look-up in the process.
macro_rules! functions {
    ($($field:ident: $name:literal ($($argument:ty),*) -> $result:ty),* $(,)?) => {
        struct Python {
            $($field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Python {
            /// The interpreter of this process; `None` if there is none that the dynamic loader knows.
            fn find() -> Option<Self> {
                Some(Self {
                    $($field: {
                        // SAFETY: the name is a C string.
                        let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, $name.as_ptr()) };
                        if address.is_null() {
                            return None;
                        }
                        // SAFETY: Python documents the function with this type; an interpreter is never unloaded.
                        unsafe { transmute_copy(&address) }
                    },)*
                })
            }
        }
    };
}

functions! {
    is_initialised: c"Py_IsInitialized" () -> c_int,
    thread: c"PyGILState_GetThisThreadState" () -> Object,
    ensure: c"PyGILState_Ensure" () -> c_int,
    release: c"PyGILState_Release" (c_int) -> (),
    error: c"PyErr_Occurred" () -> Object,
    clear: c"PyErr_Clear" () -> (),
    keep: c"Py_IncRef" (Object) -> (),
    drop: c"Py_DecRef" (Object) -> (),
    frame: c"PyEval_GetFrame" () -> Object,
    back: c"PyFrame_GetBack" (Object) -> Object,
    code: c"PyFrame_GetCode" (Object) -> Object,
    line: c"PyFrame_GetLineNumber" (Object) -> c_int,
    attribute: c"PyObject_GetAttrString" (Object, *const c_char) -> Object,
    utf8: c"PyUnicode_AsUTF8" (Object) -> *const c_char,
}

/// Makes findings show the calls of the Python code that has called this library. Call it without locks: it waits for
/// the interpreter.
pub(crate) fn name_calls() {
    static PYTHON: OnceLock<Option<Python>> = OnceLock::new();
    let find = || std::env::var_os(CHECKS).filter(|tools| !tools.is_empty()).and_then(|_| Python::find());
    if let Some(python) = PYTHON.get_or_init(find) {
        check::set_calls(python.calls());
    }
}

impl Python {
    /// The calls of this thread, innermost first; `None` if it runs no Python code.
    fn calls(&self) -> Option<Vec<String>> {
        // SAFETY: both may be called by any thread at any time. A thread with a state waits for the interpreter's lock
        // as it does when it returns to Python.
        let lock = unsafe {
            if (self.is_initialised)() == 0 || (self.thread)().is_null() {
                return None;
            }
            (self.ensure)()
        };
        // SAFETY: the thread has the interpreter's lock.
        let calls = unsafe { self.walk() };
        // SAFETY: `lock` is of the call above.
        unsafe { (self.release)(lock) };
        (!calls.is_empty()).then_some(calls)
    }

    /// The calls outside of libraries; those in libraries if there are no others.
    ///
    /// # Safety
    ///
    /// The thread has the interpreter's lock.
    unsafe fn walk(&self) -> Vec<String> {
        let (mut own, mut libraries) = (Vec::new(), Vec::new());
        // SAFETY: the lock. `frame` is null or a reference of this function: `keep` makes the thread's own, `back`
        // returns a new one. Both `keep` and `drop` take null.
        unsafe {
            // An exception that is being handled must stay; the functions below could replace it.
            if !(self.error)().is_null() {
                return own;
            }
            let mut frame = (self.frame)();
            (self.keep)(frame);
            for _ in 0..FRAMES {
                if frame.is_null() || own.len() == CALLS {
                    break;
                }
                if let Some((file, call)) = self.call(frame) {
                    let of_library = LIBRARIES.iter().any(|part| file.contains(part));
                    let calls = if of_library { &mut libraries } else { &mut own };
                    if calls.len() < CALLS {
                        calls.push(call);
                    }
                }
                let next = (self.back)(frame);
                (self.drop)(frame);
                frame = next;
            }
            (self.drop)(frame);
        }
        if own.is_empty() { libraries } else { own }
    }

    /// The file and the text of a frame's call, such as "main at program.py:12".
    ///
    /// # Safety
    ///
    /// The thread has the interpreter's lock, no exception is set, and `frame` is alive.
    unsafe fn call(&self, frame: Object) -> Option<(String, String)> {
        // SAFETY: the lock; `code` is a new reference, dropped below.
        unsafe {
            let code = (self.code)(frame);
            let name = self.text(code, c"co_qualname").or_else(|| self.text(code, c"co_name"));
            let file = self.text(code, c"co_filename");
            (self.drop)(code);
            let (name, file) = (name?, file?);
            let call = format!("{name} at {file}:{}", (self.line)(frame));
            Some((file, call))
        }
    }

    /// The text of an attribute. Without it, as `co_qualname` before Python 3.11, `None`.
    ///
    /// # Safety
    ///
    /// The thread has the interpreter's lock, no exception is set, and `object` is alive.
    unsafe fn text(&self, object: Object, name: &CStr) -> Option<String> {
        // SAFETY: the lock; `value` is a new reference, which keeps the text alive until it has been copied.
        unsafe {
            let value = (self.attribute)(object, name.as_ptr());
            let bytes = if value.is_null() { core::ptr::null() } else { (self.utf8)(value) };
            let text = (!bytes.is_null()).then(|| CStr::from_ptr(bytes).to_string_lossy().into_owned());
            (self.drop)(value);
            if text.is_none() {
                (self.clear)();
            }
            text
        }
    }
}
