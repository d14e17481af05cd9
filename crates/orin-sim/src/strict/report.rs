//! Reports of strict mode.

use core::fmt;

/// A cache of the GPU that keeps its contents until it is invalidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cache {
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Encoding {
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

/// A rule that work on the GPU violated without an error on a board.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use orin_sim::strict::Violation;
/// use orin_sim::{Config, SoftwareOrin};
///
/// let orin = SoftwareOrin::new(Config { strict: true, ..Config::default() })?;
/// // Run a driver and kernels on `orin`; then:
/// let races = orin.strict_reports().into_iter().filter(|report| report.violation == Violation::Race);
/// assert_eq!(races.count(), 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Violation {
    /// Read of uninitialised memory.
    Unwritten,
    /// Two pieces of work access the same word, at least one writes it, and nothing orders them.
    Race,
    /// A cache may hold a stale copy of the line.
    Stale(Cache),
    /// A launch descriptor declares a constant bank that is not mapped completely.
    UnmappedBank,
    /// No board has been seen to accept the encoding.
    Unproven(Encoding),
}

/// One finding of strict mode. A piece of work makes at most one report of a kind, with the first location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The violated rule.
    pub violation: Violation,
    /// The channel of the work.
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
            Violation::Unwritten => write!(f, "{work} reads {va:#x}, which has not been written")?,
            Violation::Race => {
                let other = self.other.as_deref().unwrap_or("other work");
                write!(
                    f,
                    "{work} and {other} both access {va:#x}, at least one writes it, and nothing orders them"
                )?;
            }
            Violation::Stale(cache) => write!(
                f,
                "{work} reads {va:#x}, of which the {} may hold a stale copy; {}",
                cache.name(),
                cache.cure()
            )?,
            Violation::UnmappedBank => write!(
                f,
                "{work} has a constant bank of {} bytes at {va:#x}, part of which is not mapped; \
                 CONSTANT_BUFFER_SIZE_SHIFTED4 counts units of 16 bytes",
                self.bytes
            )?,
            Violation::Unproven(encoding) => {
                write!(f, "{work} starts {va:#x} by {encoding}, which no board has been seen to accept")?;
            }
        }
        if self.memory.is_empty() { Ok(()) } else { write!(f, " ({})", self.memory) }
    }
}
