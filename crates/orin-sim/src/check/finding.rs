//! Findings: what was wrong, where, and with which object.

use core::fmt;
use std::borrow::Cow;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::{Suppressions, Tools};

/// Maximum number of findings.
const MOST: usize = 10_000;

/// Kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Kind {
    /// An access to mapped memory that belongs to no live object.
    OutOfBounds,
    /// An access to an object that was freed.
    UseAfterFree,
    /// An access to memory of the driver: commands, launch descriptors, code.
    DriverMemory,
    /// An access to an address that is not mapped.
    Unmapped,
    /// A store to a mapping without the right to write.
    ReadOnly,
    /// An address that is not a multiple of the size of the access.
    Misaligned,
    /// An access beyond the shared memory of the block.
    BeyondShared,
    /// An access below the stack frame, or outside of the thread's local memory.
    BeyondFrame,
    /// A load beyond a constant bank.
    BeyondConstant,
    /// A constant bank of a launch descriptor that lies outside of live objects.
    Descriptor,
    /// Another error that ends a grid on hardware: an illegal instruction, a trap.
    Fault,
    /// Two warps access the same bytes of shared memory without a barrier between them.
    SharedRace,
    /// Two warps of one grid access the same bytes of global memory without ordering.
    GlobalRace,
    /// A store of the GPU to an object that the CPU has a view of.
    CpuRace,
    /// A load of memory that was never written.
    Uninitialised,
    /// Threads of one warp arrive at a barrier of the block from different places.
    DivergentBarrier,
    /// A barrier of the whole block is passed without threads that have exited.
    ExitedThreads,
    /// Arrivals with different numbers of threads, or a number that is wrong for the block.
    BarrierCount,
    /// Threads arrived at a barrier that was never completed.
    UnfinishedBarrier,
    /// A mask of `__syncwarp` that does not name the calling thread, or names one that has exited.
    WarpMask,
    /// All threads of a block wait.
    Deadlock,
    /// An object that is alive at the end.
    Leak,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 22] = [
        Self::OutOfBounds,
        Self::UseAfterFree,
        Self::DriverMemory,
        Self::Unmapped,
        Self::ReadOnly,
        Self::Misaligned,
        Self::BeyondShared,
        Self::BeyondFrame,
        Self::BeyondConstant,
        Self::Descriptor,
        Self::Fault,
        Self::SharedRace,
        Self::GlobalRace,
        Self::CpuRace,
        Self::Uninitialised,
        Self::DivergentBarrier,
        Self::ExitedThreads,
        Self::BarrierCount,
        Self::UnfinishedBarrier,
        Self::WarpMask,
        Self::Deadlock,
        Self::Leak,
    ];

    /// The name in JSON, in SARIF and in suppressions.
    pub fn id(self) -> &'static str {
        match self {
            Self::OutOfBounds => "out-of-bounds",
            Self::UseAfterFree => "use-after-free",
            Self::DriverMemory => "driver-memory",
            Self::Unmapped => "unmapped",
            Self::ReadOnly => "read-only",
            Self::Misaligned => "misaligned",
            Self::BeyondShared => "beyond-shared",
            Self::BeyondFrame => "beyond-frame",
            Self::BeyondConstant => "beyond-constant",
            Self::Descriptor => "descriptor",
            Self::Fault => "fault",
            Self::SharedRace => "shared-race",
            Self::GlobalRace => "global-race",
            Self::CpuRace => "cpu-race",
            Self::Uninitialised => "uninitialised",
            Self::DivergentBarrier => "divergent-barrier",
            Self::ExitedThreads => "exited-threads",
            Self::BarrierCount => "barrier-count",
            Self::UnfinishedBarrier => "unfinished-barrier",
            Self::WarpMask => "warp-mask",
            Self::Deadlock => "deadlock",
            Self::Leak => "leak",
        }
    }

    /// Name of the tool that finds it.
    pub fn tool(self) -> &'static str {
        match self {
            Self::SharedRace | Self::GlobalRace | Self::CpuRace => Tools::RACECHECK,
            Self::Uninitialised => Tools::INITCHECK,
            Self::DivergentBarrier
            | Self::ExitedThreads
            | Self::BarrierCount
            | Self::UnfinishedBarrier
            | Self::WarpMask
            | Self::Deadlock => Tools::SYNCCHECK,
            Self::Leak => Tools::LEAKCHECK,
            _ => Tools::MEMCHECK,
        }
        .name()
    }

    /// One sentence about the kind, for lists of rules.
    pub fn description(self) -> &'static str {
        match self {
            Self::OutOfBounds => "An access to memory that belongs to no live object.",
            Self::UseAfterFree => "An access to an object that was freed.",
            Self::DriverMemory => "An access of a kernel to memory of the driver.",
            Self::Unmapped => "An access to an address that is not mapped.",
            Self::ReadOnly => "A store to a read-only mapping.",
            Self::Misaligned => "An address that is not a multiple of the size of the access.",
            Self::BeyondShared => "An access beyond the shared memory of the block.",
            Self::BeyondFrame => "An access below the stack frame, or outside of local memory.",
            Self::BeyondConstant => "A load beyond a constant bank.",
            Self::Descriptor => "A constant bank of a launch descriptor outside of live objects.",
            Self::Fault => "An error that ends the grid on hardware.",
            Self::SharedRace => "Two warps access the same shared memory without a barrier between them.",
            Self::GlobalRace => "Two warps of a grid access the same global memory without ordering.",
            Self::CpuRace => "A store of the GPU to an object that the CPU has a view of.",
            Self::Uninitialised => "A load of memory that was never written.",
            Self::DivergentBarrier => "Threads of one warp arrive at a barrier from different places.",
            Self::ExitedThreads => "A barrier of the block is passed without threads that have exited.",
            Self::BarrierCount => "The number of threads of a barrier is wrong.",
            Self::UnfinishedBarrier => "Threads arrived at a barrier that was never completed.",
            Self::WarpMask => "A mask of __syncwarp that is wrong for its threads.",
            Self::Deadlock => "All threads of a block wait.",
            Self::Leak => "An object that is alive at the end.",
        }
    }
}

/// One side of an access.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accessing {
    /// `"read"`, `"write"` or `"atomic"`.
    pub what: Cow<'static, str>,
    /// `"global"`, `"shared"`, `"local"` or `"constant"`.
    pub space: Cow<'static, str>,
    /// Size in bytes; 0 if unknown.
    pub bytes: u32,
    /// Lowest address of the accesses counted, or offset in the space.
    pub address: u64,
    /// Highest address of the accesses counted.
    pub last: u64,
}

impl fmt::Display for Accessing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, space, bytes, address, .. } = self;
        write!(f, "{what} of {bytes} bytes of {space} memory at {address:#x}")
    }
}

/// An instruction of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Located {
    /// Name of the kernel or function; empty if no loaded program contains the address.
    pub kernel: String,
    /// Offset in the kernel in bytes; the GPU address if there is no kernel.
    pub offset: u64,
    /// The disassembled instruction; empty if it is not known.
    pub instruction: String,
    /// Source file, if the program has line information.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Line in the source file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

impl fmt::Display for Located {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kernel.as_str() {
            "" => write!(f, "{:#x}", self.offset)?,
            kernel => write!(f, "{kernel}+{:#x}", self.offset)?,
        }
        if let (Some(file), Some(line)) = (&self.file, self.line) {
            write!(f, " ({file}:{line})")?;
        }
        if self.instruction.is_empty() { Ok(()) } else { write!(f, ": {}", self.instruction) }
    }
}

/// The first thread that did it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worker {
    /// Index of the block in x, y, z.
    pub block: [u32; 3],
    /// Index of the thread in its block in x, y, z.
    pub thread: [u32; 3],
}

impl fmt::Display for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [[bx, by, bz], [tx, ty, tz]] = [self.block, self.thread];
        write!(f, "thread ({tx},{ty},{tz}) of block ({bx},{by},{bz})")
    }
}

/// Place of an address relative to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// Bytes before the first byte of the object.
    Before(u64),
    /// Offset in the object.
    Inside(u64),
    /// Bytes from the end of the object; 0 is the first byte after it.
    Past(u64),
}

impl Place {
    /// The distance in bytes; 0 inside.
    pub fn distance(self) -> u64 {
        match self {
            Self::Inside(_) => 0,
            Self::Before(bytes) | Self::Past(bytes) => bytes,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Before(bytes) => write!(f, "{bytes} bytes before the start"),
            Self::Inside(bytes) => write!(f, "{bytes} bytes into it"),
            Self::Past(bytes) => write!(f, "{bytes} bytes past the end"),
        }
    }
}

/// The object that an access belongs to, or the nearest one.
///
/// ```
/// use orin_sim::check::{NearObject, Place};
///
/// let near = NearObject {
///     name: "x".to_owned(),
///     va: 0x1000,
///     bytes: 4000,
///     place: Place::Past(0),
///     argument: Some(1),
///     allocated: Vec::new(),
///     freed: Vec::new(),
///     viewed: Vec::new(),
/// };
/// assert!(near.to_string().contains("0 bytes past the end of x (4000 bytes"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NearObject {
    /// Its name.
    pub name: String,
    /// GPU address of its first byte.
    pub va: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// Where the access lies.
    pub place: Place,
    /// Index of the kernel's parameter that points into the object, if there is exactly one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argument: Option<usize>,
    /// The calls that allocated it, innermost first.
    pub allocated: Vec<String>,
    /// The calls that freed it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub freed: Vec<String>,
    /// The calls that opened the CPU's view of it, while it exists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub viewed: Vec<String>,
}

impl fmt::Display for NearObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, va, bytes, place, argument, .. } = self;
        match place {
            Place::Inside(offset) => write!(f, "{offset} bytes into {name}")?,
            place => write!(f, "{place} of {name}")?,
        }
        write!(f, " ({bytes} bytes at {va:#x}")?;
        if let Some(index) = argument {
            write!(f, ", argument {index} of the kernel")?;
        }
        f.write_str(")")
    }
}

/// The other access of a race.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherSide {
    /// `"read"`, `"write"` or `"atomic"`.
    pub what: Cow<'static, str>,
    /// Its instruction.
    pub at: Located,
    /// Index of its block.
    pub block: [u32; 3],
    /// Its warp in the block.
    pub warp: u32,
}

/// One cause, with the first place where it was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Finding {
    /// Name of the tool.
    pub tool: Cow<'static, str>,
    /// What is wrong.
    pub kind: Kind,
    /// How often: accesses of single threads, or barriers.
    pub count: u64,
    /// One sentence.
    pub message: String,
    /// The instruction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Located>,
    /// The first thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<Worker>,
    /// The access.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<Accessing>,
    /// The object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<NearObject>,
    /// The other access of a race.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other: Option<OtherSide>,
}

impl Finding {
    pub(super) fn new(kind: Kind, message: String) -> Self {
        let tool = kind.tool().into();
        Self {
            tool,
            kind,
            count: 0,
            message,
            at: None,
            worker: None,
            access: None,
            object: None,
            other: None,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.tool, self.kind.id(), self.message)?;
        if let Some(at) = &self.at {
            write!(f, "\n    at {at}")?;
        }
        if let Some(worker) = &self.worker {
            write!(f, "\n    by {worker}")?;
        }
        if let Some(other) = &self.other {
            let [x, y, z] = other.block;
            write!(
                f,
                "\n    and a {} by warp {} of block ({x},{y},{z}) at {}",
                other.what, other.warp, other.at
            )?;
        }
        if let Some(object) = &self.object {
            write!(f, "\n    {object}")?;
            let calls = |f: &mut fmt::Formatter<'_>, what: &str, calls: &[String]| {
                if !calls.is_empty() {
                    write!(f, "\n    {what} by")?;
                }
                calls.iter().try_for_each(|call| write!(f, "\n        {call}"))
            };
            calls(f, "allocated", &object.allocated)?;
            calls(f, "freed", &object.freed)?;
            calls(f, "viewed", &object.viewed)?;
        }
        if self.count > 1 {
            write!(f, "\n    {} times", self.count)?;
            if let Some(access) = self.access.as_ref().filter(|access| access.last != access.address) {
                write!(f, ", at {:#x} to {:#x}", access.address, access.last)?;
            }
        }
        Ok(())
    }
}

/// The findings of a checker.
#[derive(Debug, Default)]
pub(super) struct Findings {
    found: Vec<Finding>,
    /// By kind and cause: index in `found`; `None` if it is suppressed.
    by_cause: HashMap<(Kind, u64), Option<usize>>,
    suppressions: Suppressions,
    suppressed: u64,
}

impl Findings {
    /// Counts a finding. Of one cause, `finding` makes the first; `change` may change a later one, and returns whether
    /// the finding is to be made again.
    pub(super) fn add(
        &mut self,
        cause: (Kind, u64),
        count: u64,
        change: impl FnOnce(&mut Finding) -> bool,
        finding: impl FnOnce() -> Finding,
    ) {
        match self.by_cause.get(&cause) {
            Some(None) => self.suppressed += count,
            Some(&Some(at)) => {
                let before = &mut self.found[at];
                before.count += count;
                let total = before.count;
                if change(before) {
                    let extremes = before.access.as_ref().map(|access| (access.address, access.last));
                    *before = Finding { count: total, ..finding() };
                    if let (Some(access), Some((low, high))) = (&mut before.access, extremes) {
                        (access.address, access.last) = (access.address.min(low), access.last.max(high));
                    }
                }
            }
            None if self.found.len() >= MOST => {}
            None => {
                let finding = Finding { count, ..finding() };
                let at = if self.suppressions.matches(&finding) {
                    self.suppressed += count;
                    None
                } else {
                    self.found.push(finding);
                    Some(self.found.len() - 1)
                };
                self.by_cause.insert(cause, at);
            }
        }
    }

    pub(super) fn all(&self) -> Vec<Finding> {
        self.found.clone()
    }

    /// Whether there is a finding of memcheck about an instruction.
    pub(super) fn has_about(&self, pc: u64) -> bool {
        self.by_cause.keys().any(|(kind, key)| *key == pc && kind.tool() == "memcheck")
    }

    pub(super) fn suppress(&mut self, suppressions: Suppressions) {
        self.suppressions = suppressions;
    }

    pub(super) fn suppressed(&self) -> u64 {
        self.suppressed
    }
}
