//! Findings: the error, its location and the object concerned.

use core::fmt;
use std::borrow::Cow;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::merge::by_line;
use super::suppress::Suppressions;
use super::tools::Tools;

/// Maximum number of findings.
const MOST: usize = 10_000;

/// Most further instructions that a text names.
const MOST_SHOWN: usize = 8;

/// Declares [`Kind`]: one row for each, with its name, its tool, and a sentence about it.
macro_rules! kinds {
    ($($kind:ident $id:literal $tool:ident $text:literal;)*) => {
        /// Kind of an error.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum Kind {
            $(
                #[doc = $text]
                #[serde(rename = $id)]
                $kind,
            )*
        }

        impl Kind {
            /// All kinds.
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];

            fn row(self) -> (&'static str, Tools, &'static str) {
                match self {
                    $(Self::$kind => ($id, Tools::$tool, $text),)*
                }
            }
        }
    };
}

kinds! {
    OutOfBounds "out-of-bounds" MEMCHECK "An access to memory that belongs to no live object.";
    UseAfterFree "use-after-free" MEMCHECK "An access to an object that was freed.";
    DriverMemory "driver-memory" MEMCHECK "An access of a kernel to memory of the driver.";
    Unmapped "unmapped" MEMCHECK "An access to an address that is not mapped.";
    ReadOnly "read-only" MEMCHECK "A store to a read-only mapping.";
    Misaligned "misaligned" MEMCHECK "An address that is not a multiple of the size of the access.";
    BeyondShared "beyond-shared" MEMCHECK "An access beyond the shared memory of the block.";
    BeyondFrame "beyond-frame" MEMCHECK "An access below the stack frame, or outside of local memory.";
    BeyondConstant "beyond-constant" MEMCHECK "A load beyond a constant bank.";
    Descriptor "descriptor" MEMCHECK "A constant bank of a launch descriptor outside of live objects.";
    Fault "fault" MEMCHECK "An error that ends the grid on hardware.";
    SharedRace "shared-race" RACECHECK "Two warps access the same shared memory without a barrier between them.";
    GlobalRace "global-race" RACECHECK "Two warps of a grid access the same global memory without ordering.";
    CpuRace "cpu-race" RACECHECK "A store of the GPU to an object that the CPU has a view of.";
    Uninitialised "uninitialised" INITCHECK "A load of memory that was never written.";
    DivergentBarrier "divergent-barrier" SYNCCHECK "Threads of one warp arrive at a barrier from different places.";
    ExitedThreads "exited-threads" SYNCCHECK "A barrier of the block is passed without threads that have exited.";
    BarrierCount "barrier-count" SYNCCHECK "The number of threads of a barrier is wrong.";
    UnfinishedBarrier "unfinished-barrier" SYNCCHECK "Threads arrived at a barrier that was never completed.";
    InactiveLane "inactive-lane" SYNCCHECK "A value that a shuffle has read from a lane that does not execute it.";
    WarpMask "warp-mask" SYNCCHECK "A mask of __syncwarp that is wrong for its threads.";
    WarpRace "warp-race" WARPCHECK "Two lanes of a warp access the same shared memory, and only lockstep orders them.";
    Deadlock "deadlock" SYNCCHECK "All threads of a block wait.";
    Leak "leak" LEAKCHECK "An object that is alive at the end.";
    Unwritten "unwritten" ORDERING "The GPU reads a word that was never written.";
    Unordered "unordered" ORDERING "Two pieces of work access a word without order, and at least one writes it.";
    Stale "stale" ORDERING "A cache may hold a stale copy of the line that is read.";
    UnmappedBank "unmapped-bank" ORDERING "A launch descriptor declares a constant bank that is not mapped completely.";
    Unproven "unproven" ORDERING "Work is started by an encoding that no board has been seen to accept.";
}

impl Kind {
    /// The name in JSON, in SARIF and in suppressions.
    pub fn id(self) -> &'static str {
        self.row().0
    }

    /// Name of the tool that finds it.
    pub fn tool(self) -> &'static str {
        self.row().1.name()
    }

    /// The kind with this name.
    pub fn of(id: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.id() == id)
    }

    /// One sentence about the kind, for lists of rules.
    pub fn description(self) -> &'static str {
        self.row().2
    }
}

/// One side of an access.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accessing {
    /// `"read"`, `"write"` or `"atomic"`.
    pub what: Cow<'static, str>,
    /// `"global"`, `"shared"`, `"local"` or `"constant"`; for ordering a memory, cache or encoding.
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

/// The first thread with the error.
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
    /// Number of occurrences: accesses of single threads, or barriers.
    pub count: u64,
    /// One sentence.
    pub message: String,
    /// The instruction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Located>,
    /// Further instructions of the same source line, with the same error at the same object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Located>,
    /// The first thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<Worker>,
    /// The calls that launched the kernel, innermost first. Only of languages that name theirs, such as Python.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub launched: Vec<String>,
    /// The channel of the work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<u32>,
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
            also: Vec::new(),
            worker: None,
            launched: Vec::new(),
            channel: None,
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
        for (index, at) in self.also.iter().take(MOST_SHOWN).enumerate() {
            let start = if index == 0 { "\n    also at" } else { "," };
            write!(f, "{start} {}+{:#x}", at.kernel, at.offset)?;
        }
        if let Some(more) = self.also.len().checked_sub(MOST_SHOWN).filter(|more| *more > 0) {
            write!(f, " and {more} more")?;
        }
        if let Some(worker) = &self.worker {
            write!(f, "\n    by {worker}")?;
        }
        let calls = |f: &mut fmt::Formatter<'_>, what: &str, calls: &[String]| {
            if !calls.is_empty() {
                write!(f, "\n    {what} by")?;
            }
            calls.iter().try_for_each(|call| write!(f, "\n        {call}"))
        };
        calls(f, "launched", &self.launched)?;
        if let Some(channel) = self.channel {
            write!(f, "\n    on channel {channel}")?;
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
    /// Counts a finding. `finding` creates the first one of a cause. On each further one, `change` may update it and
    /// returns whether to create it again. Returns the finding if it is the first one and not suppressed.
    pub(super) fn add(
        &mut self,
        cause: (Kind, u64),
        count: u64,
        change: impl FnOnce(&mut Finding) -> bool,
        finding: impl FnOnce() -> Finding,
    ) -> Option<&Finding> {
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
                return at.map(|at| &self.found[at]);
            }
        }
        None
    }

    pub(super) fn all(&self) -> Vec<Finding> {
        by_line(&self.found)
    }

    /// Whether memcheck has reported the instruction.
    pub(super) fn has_memory_error_at(&self, pc: u64) -> bool {
        self.by_cause.keys().any(|(kind, key)| *key == pc && kind.tool() == "memcheck")
    }

    pub(super) fn suppress(&mut self, suppressions: Suppressions) {
        self.suppressions = suppressions;
    }

    pub(super) fn suppressed(&self) -> u64 {
        self.suppressed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(address: u64) -> Finding {
        let at = Located {
            kernel: "saxpy".to_owned(),
            offset: 0x90,
            instruction: "LDG.E R2, [R2.64]".to_owned(),
            file: Some("saxpy.cu".to_owned()),
            line: Some(17),
        };
        let access =
            Accessing { what: "read".into(), space: "global".into(), bytes: 4, address, last: address };
        let object = NearObject {
            name: "x".to_owned(),
            va: 0x1000,
            bytes: 4000,
            place: Place::Past(0),
            argument: Some(1),
            allocated: vec!["main".to_owned()],
            freed: vec!["end".to_owned()],
            viewed: vec!["look".to_owned()],
        };
        Finding {
            at: Some(at.clone()),
            worker: Some(Worker { block: [3, 0, 0], thread: [232, 0, 0] }),
            launched: vec!["step".to_owned()],
            channel: Some(511),
            access: Some(access),
            object: Some(object),
            other: Some(OtherSide { what: "write".into(), at, block: [1, 2, 3], warp: 4 }),
            ..Finding::new(Kind::OutOfBounds, format!("read of 4 bytes out of bounds, at {address:#x}"))
        }
    }

    #[test]
    fn kinds_have_their_own_names_and_a_tool() {
        for kind in Kind::ALL {
            assert_eq!(Kind::of(kind.id()), Some(*kind));
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.id());
            assert!(kind.tool().parse::<Tools>().is_ok_and(|tool| tool.bits().count_ones() == 1), "{kind:?}");
            assert!(kind.description().ends_with('.'));
        }
        assert_eq!(Kind::of("no-kind"), None);
    }

    #[test]
    fn one_cause_is_one_finding_with_its_extremes() {
        let mut findings = Findings::default();
        let cause = (Kind::OutOfBounds, 0x90);
        assert!(findings.add(cause, 2, |_| false, || sample(0x2000)).is_some());
        assert!(findings.add(cause, 3, |_| false, || panic!("it is not created again")).is_none());
        // An earlier thread is found later.
        assert!(findings.add(cause, 1, |_| true, || sample(0x1f00)).is_none());
        assert!(findings.has_memory_error_at(0x90) && !findings.has_memory_error_at(0x94));
        let race = || Finding { kind: Kind::GlobalRace, ..sample(0) };
        assert!(findings.add((Kind::GlobalRace, 0x94), 1, |_| false, race).is_some());
        assert!(!findings.has_memory_error_at(0x94), "not an error of memcheck");
        let all = findings.all();
        assert_eq!((all.len(), all[0].count), (2, 6));
        assert_eq!(
            all[0].to_string(),
            "memcheck: out-of-bounds: read of 4 bytes out of bounds, at 0x1f00\n    \
             at saxpy+0x90 (saxpy.cu:17): LDG.E R2, [R2.64]\n    \
             by thread (232,0,0) of block (3,0,0)\n    \
             launched by\n        step\n    \
             on channel 511\n    \
             and a write by warp 4 of block (1,2,3) at saxpy+0x90 (saxpy.cu:17): LDG.E R2, [R2.64]\n    \
             0 bytes past the end of x (4000 bytes at 0x1000, argument 1 of the kernel)\n    \
             allocated by\n        main\n    freed by\n        end\n    viewed by\n        look\n    \
             6 times, at 0x1f00 to 0x2000"
        );
        let suppressions = Suppressions::parse("out-of-bounds saxpy saxpy.cu:17").unwrap();
        findings.suppress(suppressions);
        for count in [2, 5] {
            assert!(findings.add((Kind::OutOfBounds, 0x98), count, |_| false, || sample(0)).is_none());
        }
        assert_eq!((findings.all().len(), findings.suppressed()), (2, 7));
    }
}
