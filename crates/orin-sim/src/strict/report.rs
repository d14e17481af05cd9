//! What strict mode reports.

use core::fmt;

/// A cache of the GPU that keeps what it was not told to forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cache {
    /// Constant banks: INVALIDATE_SHADER_CACHES with CONSTANT, CONSTANT_BUFFER_INVALIDATE of a launch descriptor.
    Constants,
    /// Code: INVALIDATE_SHADER_CACHES with INSTRUCTION.
    Instructions,
    /// The SMs' L1: INVALIDATE_SHADER_CACHES with GLOBAL_DATA or DATA, INVALIDATE_SHADER_DATA_CACHE.
    Data,
    /// The L2, for memory that is mapped with CACHEABLE: MEM_OP with L2_SYSMEM_INVALIDATE.
    L2,
    /// The scheduler's launch descriptors: the PCAS actions with INVALIDATE.
    Descriptors,
}

impl Cache {
    /// Bytes of a line, or of what the model compares at once.
    pub(super) fn line(self) -> u64 {
        match self {
            Self::Constants => 64,
            Self::Instructions | Self::Data | Self::L2 => 128,
            Self::Descriptors => 256,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Constants => "constant cache",
            Self::Instructions => "instruction cache",
            Self::Data => "L1 data cache",
            Self::L2 => "L2 cache",
            Self::Descriptors => "scheduler's cache of launch descriptors",
        }
    }

    fn cure(self) -> &'static str {
        match self {
            Self::Constants => {
                "set CONSTANT_BUFFER_INVALIDATE, or send INVALIDATE_SHADER_CACHES_NO_WFI with CONSTANT"
            }
            Self::Instructions => "send INVALIDATE_SHADER_CACHES_NO_WFI with INSTRUCTION before the launch",
            Self::Data => {
                "set INVALIDATE_SHADER_DATA_CACHE, or send INVALIDATE_SHADER_CACHES_NO_WFI with GLOBAL_DATA"
            }
            Self::L2 => "send MEM_OP with L2_SYSMEM_INVALIDATE, or map the memory without CACHEABLE",
            Self::Descriptors => "schedule with an action that invalidates",
        }
    }
}

/// A rule that work on the GPU has broken without a board saying so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Violation {
    /// Memory was read that nobody has written.
    Unwritten,
    /// Two pieces of work touch the same word, at least one writes it, and nothing orders them.
    Race,
    /// A cache may still hold what memory held before.
    Stale(Cache),
}

/// One finding of strict mode. One piece of work makes one report of a kind, with the first place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What is wrong.
    pub violation: Violation,
    /// Channel whose work found it.
    pub channel: u32,
    /// The unit or piece of work that made the access.
    pub work: String,
    /// GPU address of the first word, or of the line.
    pub va: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Name of the memory; empty if it has none.
    pub memory: String,
    /// The other piece of work of a race.
    pub other: Option<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { work, va, .. } = self;
        match self.violation {
            Violation::Unwritten => write!(f, "{work} reads {va:#x}, which nobody has written")?,
            Violation::Race => {
                let other = self.other.as_deref().unwrap_or("other work");
                write!(f, "{work} and {other} both use {va:#x}, one writes it, and nothing orders them")?;
            }
            Violation::Stale(cache) => write!(
                f,
                "{work} reads {va:#x}, which the {} may hold from before it was changed; {}",
                cache.name(),
                cache.cure()
            )?,
        }
        if self.memory.is_empty() { Ok(()) } else { write!(f, " ({})", self.memory) }
    }
}
