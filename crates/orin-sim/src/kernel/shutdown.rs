//! Ends of the board before power-off: software quiesce as on a board, and panics of the model. No program waits for
//! work that nothing does.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::thread::{Builder, JoinHandle};

use gpu_log::{FaultLine, HangLine};
use kernel_door::cure;
use rustix::io::Errno;

use crate::gpu::panic_text;

use super::recovery::IDLE_TIMEOUT;
use super::{Kernel, SoftwareOrin};

impl SoftwareOrin {
    /// Puts the GPU into software quiesce, as after an unrecoverable hardware error: requests that need the GPU return
    /// ENODEV until the board is rebooted.
    pub fn quiesce(&self) {
        let kernel = &self.board.kernel;
        let tsgs = {
            let mut state = kernel.state.lock();
            if std::mem::replace(&mut state.quiesced, true) {
                drop(state);
                kernel.log.error("nvgpu_sw_quiesce_with_trace", HangLine::QuiescePending {});
                return;
            }
            state.tsgs.keys().copied().collect::<Vec<_>>()
        };
        kernel.log.quiesce();
        for tsg in tsgs {
            kernel.end_tsg(tsg, Some(IDLE_TIMEOUT));
        }
    }

    /// A thread that answers calls for the board has panicked.
    #[cfg(feature = "serve")]
    pub(crate) fn panicked(&self, text: &str) {
        self.board.kernel.end_after_panic(text);
    }
}

impl Kernel {
    /// Fails after a panic.
    pub(super) fn check_panic(&self) -> Result<(), Errno> {
        if self.panicked.load(Ordering::Acquire) { Err(cure::PANICKED) } else { Ok(()) }
    }

    /// Ends all TSGs, and from now on every open and request. Only the first panic has an effect.
    pub(super) fn end_after_panic(&self, text: &str) {
        let line = FaultLine::Panicked { text: text.to_owned() };
        // First, because a call that fails has the text in its message.
        cure::set_panic(line.to_string());
        if self.panicked.swap(true, Ordering::AcqRel) {
            return;
        }
        let tsgs: Vec<u32> = self.state.lock().tsgs.keys().copied().collect();
        if tsgs.is_empty() {
            self.log.model_error(line.clone());
        }
        for tsg in tsgs {
            // The line belongs to the report about each TSG, which its notifiers end.
            self.log.model_error(line.clone());
            self.end_tsg(tsg, Some(IDLE_TIMEOUT));
        }
    }

    /// Starts a thread of the kernel. Its panic ends the board.
    pub(super) fn spawn(
        &self,
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let kernel = Weak::clone(&self.me);
        Builder::new().name(name.to_owned()).spawn(move || {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(work))
                && let Some(kernel) = kernel.upgrade()
            {
                kernel.end_after_panic(panic_text(&*panic));
            }
        })
    }
}
