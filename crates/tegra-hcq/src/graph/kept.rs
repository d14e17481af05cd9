//! Objects that a graph keeps alive and marks as used. Each program and each block of memory is kept once, however many
//! steps use it.

use core::sync::atomic::{Ordering, fence};

use crate::heap::Handle;
use crate::program::Kernel;

/// The programs and buffers of a graph.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// One kernel of each program.
    programs: Vec<Kernel>,
    /// Each buffer, with the number of arguments that refer to it.
    buffers: Vec<(Handle, u32)>,
}

impl Kept {
    /// Adds a use of the kernel's program by a step.
    pub(super) fn add_program(&mut self, kernel: &Kernel) {
        if !self.programs.iter().any(|known| known.same_program(kernel)) {
            self.programs.push(kernel.clone());
        }
    }

    /// Adds an argument that refers to the buffer.
    pub(super) fn add(&mut self, handle: &Handle) {
        match self.position(handle) {
            Some(at) => self.buffers[at].1 += 1,
            None => self.buffers.push((handle.clone(), 1)),
        }
    }

    /// Removes an argument that referred to the buffer.
    pub(super) fn remove(&mut self, handle: &Handle) {
        if let Some(at) = self.position(handle) {
            self.buffers[at].1 -= 1;
            if self.buffers[at].1 == 0 {
                self.buffers.swap_remove(at);
            }
        }
    }

    fn position(&self, handle: &Handle) -> Option<usize> {
        let memory = core::ptr::from_ref(handle.memory());
        self.buffers.iter().position(|(known, _)| core::ptr::eq(known.memory(), memory))
    }

    /// Marks everything as used up to `value` of the queue in `slot`. Returns whether the CPU has a view of a buffer.
    #[inline]
    pub(super) fn note(&self, slot: usize, value: u64) -> bool {
        for kernel in &self.programs {
            kernel.uses().note(slot, value);
        }
        for (handle, _) in &self.buffers {
            handle.uses().note(slot, value);
        }
        // A view sets its mark, then reads the uses; a replay records the uses, then reads the marks. With a full fence
        // on both sides, at least one sees the other.
        fence(Ordering::SeqCst);
        self.buffers.iter().any(|(handle, _)| handle.memory().is_viewed())
    }
}
