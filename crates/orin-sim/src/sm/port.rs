//! The way of the SMs to global memory.
//!
//! Addresses are translated through the view of the address space that the grid started with. The
//! few mappings that a kernel works on are kept in front of the lookup.

use crate::mmu::{Access, MmuFault, Span, View};
use crate::strict::Strength;

/// Mappings kept at hand: kernels rarely stream through more arrays at a time.
const KEPT: usize = 8;

/// Translation with a small cache of mappings.
#[derive(Debug)]
pub(crate) struct Port {
    view: View,
    spans: Vec<Span>,
    /// Place in `spans` that is replaced next.
    next: usize,
    /// Of the accesses that are made now; only strict mode cares.
    strength: Strength,
}

// SAFETY: the spans point into mappings that `view` keeps alive wherever the port goes, and they
// are only used through raw accesses; `Memory`, which they point into, is itself `Send` and `Sync`.
unsafe impl Send for Port {}

impl Port {
    /// A port on `view`.
    pub(crate) fn new(view: View) -> Self {
        Self { view, spans: Vec::with_capacity(KEPT), next: 0, strength: Strength::Weak }
    }

    /// Whether others may be waiting for the accesses that follow.
    pub(crate) fn set_strong(&mut self, strong: bool) {
        self.strength = if strong { Strength::Strong } else { Strength::Weak };
    }

    /// CPU address of `[va, va + len)`, valid as long as the port lives.
    ///
    /// # Errors
    ///
    /// The fault that the MMU raises.
    #[inline(always)]
    pub(crate) fn pointer(&mut self, va: u64, len: u64, access: Access) -> Result<*mut u8, MmuFault> {
        for span in &self.spans {
            if let Some(pointer) = span.at(va, len)
                && (span.writable || access == Access::Read)
            {
                return Ok(pointer);
            }
        }
        self.look_up(va, len, access)
    }

    /// CPU address of `[va, va + len)` when one mapping that is at hand holds all of it.
    #[inline(always)]
    pub(crate) fn at_hand(&self, va: u64, len: u64, access: Access) -> Option<*mut u8> {
        for span in &self.spans {
            if let Some(pointer) = span.at(va, len)
                && (span.writable || access == Access::Read)
            {
                return Some(pointer);
            }
        }
        None
    }

    #[cold]
    fn look_up(&mut self, va: u64, len: u64, access: Access) -> Result<*mut u8, MmuFault> {
        let pointer = self.view.pointer_for(va, len, access, self.strength)?;
        if self.view.watch().is_some() {
            // Each access is looked at.
            return Ok(pointer);
        }
        let span = self.view.span(va, access)?;
        if self.spans.len() < KEPT {
            self.spans.push(span);
        } else {
            self.spans[self.next] = span;
            self.next = (self.next + 1) % KEPT;
        }
        Ok(pointer)
    }
}
