//! Spaces of addresses.

/// Space of the addresses of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    /// Addresses behind the MMU.
    Global,
    /// Offsets in the CTA's shared memory.
    Shared,
    /// Offsets in the thread's local-memory window.
    Local,
}
