//! Causes of findings of the order check, and their texts.

use core::fmt;

use super::order::WorkId;
use crate::check::finding::{Accessing, Finding, Kind};

/// A cache of the GPU that keeps its contents until it is invalidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Cache {
    /// Constant banks: INVALIDATE_SHADER_CACHES with CONSTANT.
    Constants,
    /// Code: INVALIDATE_SHADER_CACHES with INSTRUCTION.
    Instructions,
    /// The SMs' L1: INVALIDATE_SHADER_CACHES with GLOBAL_DATA or DATA.
    Data,
    /// The L2, for memory that is mapped with CACHEABLE: MEM_OP with L2_SYSMEM_INVALIDATE.
    L2,
    /// The scheduler's launch descriptors: the PCAS actions with INVALIDATE.
    Descriptors,
}

impl Cache {
    /// Size of a line in bytes, or of the unit that the model compares.
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
                "send INVALIDATE_SHADER_CACHES_NO_WFI with CONSTANT before the launch (bits of the descriptor are \
                 unproven)"
            }
            Self::Instructions => "send INVALIDATE_SHADER_CACHES_NO_WFI with INSTRUCTION before the launch",
            Self::Data => {
                "send INVALIDATE_SHADER_CACHES_NO_WFI with GLOBAL_DATA before the launch (bits of the descriptor are \
                 unproven)"
            }
            Self::L2 => "send MEM_OP with L2_SYSMEM_INVALIDATE, or map the memory without CACHEABLE",
            Self::Descriptors => "schedule with an action that invalidates",
        }
    }
}

/// An encoding that the chip table does not mark as seen on a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Encoding {
    /// SEND_SIGNALING_PCAS2_B with this action.
    PcasAction(u32),
    /// SEND_SIGNALING_PCAS_B.
    OlderPcas,
    /// A dependent descriptor with these values of DEPENDENT_QMD0_ACTION and DEPENDENT_QMD0_PREFETCH.
    Chain {
        /// DEPENDENT_QMD0_ACTION.
        action: u32,
        /// DEPENDENT_QMD0_PREFETCH.
        prefetch: bool,
    },
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PcasAction(action) => write!(f, "PCAS action {action}"),
            Self::OlderPcas => f.write_str("SEND_SIGNALING_PCAS_B"),
            Self::Chain { action, prefetch } => {
                let prefetch = if *prefetch { "with" } else { "without" };
                write!(f, "a dependent descriptor with action {action} {prefetch} prefetch")
            }
        }
    }
}

/// Cause of a finding of an [`OrderCheck`](super::OrderCheck).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Cause {
    /// Read of uninitialised memory.
    Unwritten,
    /// Two pieces of work access the same word, at least one writes it, and nothing orders them.
    Unordered(WorkId),
    /// A cache may hold a stale copy of the line.
    Stale(Cache),
    /// A launch descriptor declares a constant bank that is not mapped completely.
    UnmappedBank,
    /// No board has been seen to accept the encoding.
    Unproven(Encoding),
}

impl Cause {
    pub(super) fn kind(self) -> Kind {
        match self {
            Self::Unwritten => Kind::Unwritten,
            Self::Unordered(_) => Kind::Unordered,
            Self::Stale(_) => Kind::Stale,
            Self::UnmappedBank => Kind::UnmappedBank,
            Self::Unproven(_) => Kind::Unproven,
        }
    }

    /// The finding about `bytes` bytes at `va`, which `work` accesses and which belong to `memory`, if that has a name.
    /// `other` is the name of the other work.
    pub(super) fn finding(self, work: &str, (va, bytes): (u64, u64), memory: &str, other: &str) -> Finding {
        let (what, space, text) = match self {
            Self::Unwritten => {
                let text = format!("{work} reads {va:#x}, which has not been written");
                ("read", memory.to_owned(), text)
            }
            Self::Unordered(_) => {
                let text = format!(
                    "{work} and {other} both access {va:#x}, at least one writes it, and nothing orders them"
                );
                ("access", memory.to_owned(), text)
            }
            Self::Stale(cache) => {
                let (name, cure) = (cache.name(), cache.cure());
                let text = format!("{work} reads {va:#x}, of which the {name} may hold a stale copy; {cure}");
                ("read", name.to_owned(), text)
            }
            Self::UnmappedBank => {
                let text = format!(
                    "{work} has a constant bank of {bytes} bytes at {va:#x}, part of which is not mapped; \
                     CONSTANT_BUFFER_SIZE_SHIFTED4 counts units of 16 bytes"
                );
                ("bank", "constant".to_owned(), text)
            }
            Self::Unproven(encoding) => {
                let encoding = encoding.to_string();
                let text =
                    format!("{work} starts {va:#x} by {encoding}, which no board has been seen to accept");
                ("start", encoding, text)
            }
        };
        let text = if memory.is_empty() { text } else { format!("{text} ({memory})") };
        // CAST: a bank, a line or a word.
        let bytes = bytes as u32;
        let access = Accessing { what: what.into(), space: space.into(), bytes, address: va, last: va };
        Finding { access: Some(access), ..Finding::new(self.kind(), text) }
    }
}
