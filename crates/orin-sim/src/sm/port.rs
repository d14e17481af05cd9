//! Access of the SMs to global memory.
//!
//! Addresses are translated through a snapshot of the address space taken when the grid starts. A small cache holds
//! the mappings used last.

use super::texture;
use crate::check::Strength;
use crate::mmu::{Access, MmuFault, Span, View};

/// Cached mappings; few kernels stream through more arrays at a time.
const KEPT: usize = 8;

/// Translation with a small cache of mappings.
#[derive(Debug)]
pub(crate) struct Port {
    view: View,
    spans: Vec<Span>,
    /// Index in `spans` that is replaced next.
    next: usize,
    /// Attributes of the current accesses; used by the order check only.
    strength: Strength,
    /// Textures that the grid has named.
    pub(super) textures: texture::Cache,
}

// SAFETY: the spans point into mappings that `view` keeps alive for the lifetime of the port. They are only used
// through raw accesses, and `Memory`, which they point into, is itself `Send` and `Sync`.
unsafe impl Send for Port {}

impl Port {
    /// Creates a port on `view`.
    pub(crate) fn new(view: View) -> Self {
        Self {
            view,
            spans: Vec::with_capacity(KEPT),
            next: 0,
            strength: Strength::Weak,
            textures: texture::Cache::default(),
        }
    }

    /// Sets whether other agents may wait for the accesses that follow.
    pub(crate) fn set_strong(&mut self, strong: bool) {
        self.strength = if strong { Strength::Strong } else { Strength::Weak };
    }

    /// Returns the CPU address of `[va, va + len)`, valid for the lifetime of the port.
    ///
    /// # Errors
    ///
    /// Returns the MMU's fault.
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

    /// Returns the CPU address of `[va, va + len)` if one cached mapping contains the whole range.
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
            // Strict mode checks each access.
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
