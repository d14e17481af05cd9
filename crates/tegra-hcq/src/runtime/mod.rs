//! The run time of kernels: the functions `vprintf`, `__assertfail`, `malloc` and `free` that CUDA's driver provides to
//! device code, and what the host does for them.
//!
//! They are compiled CUDA C++ (`kernels/runtime/functions.cu`), loaded once per device when a program calls one of
//! them. [`Runtime::link`] defines the functions in the cubin, and kernels get the run time's registers, stack and, in
//! two words of constant bank 0, the address of its state. Kernels write records into a ring in host memory. The host
//! reads them whenever a wait has ended ([`crate::heap::Heap::drain`]), formats them and passes the text on.

use core::fmt;
use core::sync::atomic::{Ordering, fence};
use std::cell::RefCell;
use std::io::Write;
use std::sync::Arc;

use cubin::Cubin;
use gpu_hal::{MemoryUse, volatile};
use parking_lot::{Mutex, ReentrantMutex};

use crate::error::{RangeError, Result};
use crate::heap::{Content, Drain, Handle, Heap, Mapped};
use heap::KernelHeap;
use ring::Ring;

mod format;
mod heap;
mod ring;

/// The functions by architecture.
const IMAGES: [&[u8]; 2] = [
    include_bytes!("../../kernels/runtime/functions.cubin"),
    include_bytes!("../../kernels/sm_90/runtime/functions.cubin"),
];
/// What programs call, and the function of the run time.
const FUNCTIONS: [(&str, &str); 4] =
    [("vprintf", "orin_vprintf"), ("__assertfail", ASSERT), ("malloc", "orin_malloc"), ("free", "orin_free")];
const ASSERT: &str = "orin_assertfail";

/// Number of messages of failed assertions that are kept for the report of a fault.
const MESSAGES: usize = 16;

/// Byte offsets of the pointers in `State` of `functions.cu`.
const RING_AT: usize = 0;
const HEAP_AT: usize = 8;
const STATE_BYTES: u64 = 16;

/// Where kernels' output belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output: `printf`.
    Out,
    /// Standard error: failed assertions, and notes about output that was lost.
    Err,
}

type Sink = dyn FnMut(OutputStream, &[u8]) + Send;

/// The sizes of a device's run time in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) printf: u64,
    pub(crate) heap: u64,
    /// Of a thread whose kernel may need any.
    pub(crate) stack: u32,
}

/// CUDA's defaults.
impl Default for Sizes {
    fn default() -> Self {
        Self { printf: 1 << 20, heap: 8 << 20, stack: cubin::Kernel::DEFAULT_STACK_LIMIT }
    }
}

/// Passes output on: to a function that the user has set, or to the process's standard streams.
#[derive(Default)]
pub(crate) struct Output(Mutex<Option<Box<Sink>>>);

impl Output {
    pub(crate) fn set(&self, sink: Option<Box<Sink>>) {
        *self.0.lock() = sink;
    }

    fn write(&self, stream: OutputStream, text: &[u8]) {
        if let Some(sink) = &mut *self.0.lock() {
            sink(stream, text);
            return;
        }
        // As for printf of C, a closed stream is not an error of the program.
        let _ = match stream {
            OutputStream::Out => std::io::stdout().write_all(text).and_then(|()| std::io::stdout().flush()),
            OutputStream::Err => std::io::stderr().write_all(text),
        };
    }
}

/// What kernels that call the run time need beyond their own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    pub(crate) registers: u32,
    pub(crate) stack_bytes: u32,
    /// Address of the state.
    pub(crate) state_va: u64,
}

/// The loaded functions and their memory. Memory that kernels may use stays until the device is closed.
pub(crate) struct Runtime {
    code: Handle,
    functions: Vec<cubin::Function>,
    state: Mapped,
    /// The last one is in use.
    heaps: Mutex<Vec<KernelHeap>>,
    reader: ReentrantMutex<RefCell<Reader>>,
    output: Arc<Output>,
}

/// What reads the rings.
#[derive(Default)]
struct Reader {
    /// The last one is in use; work that ran when it was made may still write to those before it.
    rings: Vec<Ring>,
    /// Messages of failed assertions that no fault has taken yet.
    failed: Vec<String>,
}

impl Runtime {
    /// Loads the functions.
    pub(crate) fn load(heap: &Arc<Heap>, sm: u32, printf_bytes: u64, output: &Arc<Output>) -> Result<Self> {
        let cubins = IMAGES.map(|image| (image, Cubin::parse_object(image)));
        let fits = |(_, cubin): &&(_, core::result::Result<Cubin, _>)| {
            cubin.as_ref().is_ok_and(|cubin| cubin.check_arch(sm).is_ok())
        };
        // The error of the first one, if none fits.
        let (file, cubin) = cubins.iter().find(fits).unwrap_or(&cubins[0]).clone();
        let cubin = cubin?;
        cubin.check_arch(sm)?;
        let code = Handle::allocate(heap, cubin.image_bytes(), MemoryUse::Device, Content::Runtime)?;
        if let Some(observer) = heap.observer() {
            observer.loaded(code.gpu_va(), file);
        }
        let image = cubin.image_at(code.gpu_va())?;
        let state = Mapped::new(Handle::allocate(heap, STATE_BYTES, MemoryUse::Device, Content::Runtime)?)?;
        // SAFETY: the allocations are new and at least as long as the image and the state.
        unsafe {
            volatile::store(code.map()?, &image);
            volatile::fill(state.cpu(), 0, STATE_BYTES as usize);
        }
        let this = Self {
            code,
            functions: cubin.functions().to_vec(),
            state,
            heaps: Mutex::default(),
            reader: ReentrantMutex::default(),
            output: Arc::clone(output),
        };
        this.set_printf(printf_bytes)?;
        Ok(this)
    }

    /// Sets a pointer of the state. Kernels read it at once, so it may be set while they run.
    fn point(&self, offset: usize, va: u64) {
        fence(Ordering::Release);
        // SAFETY: aligned, in the state, which `self` keeps alive.
        unsafe { self.state.cpu().add(offset).cast::<u64>().write_volatile(va) };
    }

    /// Whether there is a heap.
    pub(crate) fn has_heap(&self) -> bool {
        !self.heaps.lock().is_empty()
    }

    /// Makes calls of `printf` use a ring of at least `bytes` bytes.
    pub(crate) fn set_printf(&self, bytes: u64) -> Result<()> {
        let ring = Ring::new(self.code.heap(), bytes)?;
        let reader = self.reader.lock();
        let mut reader = reader.borrow_mut();
        self.point(RING_AT, ring.gpu_va());
        reader.rings.push(ring);
        Ok(())
    }

    /// Makes `malloc` use a heap of `bytes` bytes, unless it has one of this size.
    ///
    /// # Errors
    ///
    /// [`RangeError::KernelHeapInUse`] if kernels have memory of the present one.
    pub(crate) fn set_heap(&self, bytes: u64) -> Result<()> {
        let mut heaps = self.heaps.lock();
        if let Some(last) = heaps.last() {
            if last.has_size(bytes) {
                return Ok(());
            }
            if last.is_used() {
                return Err(RangeError::KernelHeapInUse { bytes: last.bytes() }.into());
            }
        }
        let heap = KernelHeap::new(self.code.heap(), bytes)?;
        self.point(HEAP_AT, heap.gpu_va());
        heaps.push(heap);
        Ok(())
    }

    /// Defines the undefined functions of a cubin that the run time has. Returns what its kernels need.
    pub(crate) fn link(&self, cubin: &mut Cubin) -> Needs {
        for (name, function) in FUNCTIONS {
            if let Some(function) = self.functions.iter().find(|one| one.name == function) {
                cubin.define(name, self.code.gpu_va() + function.offset);
            }
        }
        Needs {
            registers: self.functions.iter().map(|function| function.registers).max().unwrap_or(0),
            // The functions do not call themselves.
            stack_bytes: self.functions.iter().map(|function| function.frame_bytes).sum(),
            state_va: self.state.gpu_va(),
        }
    }

    /// Whether a cubin calls `malloc` or `free`.
    pub(crate) fn wants_heap(cubin: &Cubin) -> bool {
        cubin.undefined().any(|name| matches!(name, "malloc" | "free"))
    }

    /// Whether the run time has one of the undefined functions of a cubin.
    pub(crate) fn is_wanted(cubin: &Cubin) -> bool {
        cubin.undefined().any(|name| FUNCTIONS.iter().any(|(known, _)| *known == name))
    }

    /// Whether an instruction belongs to the function that reports failed assertions.
    pub(crate) fn is_assertion(&self, pc: u64) -> bool {
        let offset = pc.wrapping_sub(self.code.gpu_va());
        let inside = |one: &&cubin::Function| (one.offset..one.offset + one.bytes).contains(&offset);
        self.functions.iter().find(inside).is_some_and(|function| function.name == ASSERT)
    }

    /// Prints all complete records. After a fault, `stopped`, it skips those that never will be.
    fn read(&self, reader: &mut Reader, stopped: bool) {
        let Reader { rings, failed } = reader;
        for ring in rings {
            let before = ring.tail();
            while let Some(record) = ring.next(stopped) {
                let Some((stream, text)) = format::text(&record) else { continue };
                self.output.write(stream, &text);
                if stream == OutputStream::Err && failed.len() < MESSAGES {
                    failed.push(String::from_utf8_lossy(text.trim_ascii_end()).into_owned());
                }
            }
            let lost = ring.settle(before, stopped);
            if lost > 0 {
                let bytes = ring.bytes();
                let text =
                    format!("{lost} calls of printf or assert did not fit the buffer of {bytes} bytes\n");
                self.output.write(OutputStream::Err, text.as_bytes());
            }
        }
    }

    /// Reads the output of work that a fault has stopped. Returns the messages of failed assertions since the last
    /// call.
    pub(crate) fn failed(&self) -> Vec<String> {
        let reader = self.reader.lock();
        let Ok(mut reader) = reader.try_borrow_mut() else { return Vec::new() };
        self.read(&mut reader, true);
        core::mem::take(&mut reader.failed)
    }
}

impl Drain for Runtime {
    /// Reads all complete records. Does nothing if a sink, which this function calls, waits for the device.
    fn drain(&self) {
        let reader = self.reader.lock();
        if let Ok(mut reader) = reader.try_borrow_mut() {
            self.read(&mut reader, false);
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.drain();
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("code", &self.code).finish_non_exhaustive()
    }
}
