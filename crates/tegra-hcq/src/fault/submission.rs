//! Submissions and launch descriptors as data.

use core::fmt::{self, Write as _};

use ampere_cmd::dump;
use gpu_hal::chip::Chip;

use crate::limits::Dim3;

/// A submission, as stored in memory.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Submission {
    /// Name of the channel: `compute` or `copy`.
    pub channel: &'static str,
    /// GPU address of the commands.
    pub va: u64,
    /// Words of the commands.
    pub words: Vec<u32>,
    /// The launch descriptors that the commands start, chained ones included, in order.
    pub launches: Vec<LaunchRecord>,
    /// The timeline value that the commands, or their last launch, release at the end.
    pub(crate) releases: Option<u64>,
    /// The chip, for decoding the words.
    pub(crate) chip: &'static Chip,
}

/// A launch descriptor (QMD), as stored in memory.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaunchRecord {
    /// GPU address of the descriptor.
    pub va: u64,
    /// Name of the kernel, if its code belongs to a loaded program.
    pub kernel: Option<String>,
    /// GPU address of the code.
    pub code_va: u64,
    /// Grid in blocks.
    pub grid: Dim3,
    /// Block in threads.
    pub block: Dim3,
    /// Words of the descriptor.
    pub words: Vec<u32>,
}

impl Submission {
    /// The commands as text, one line per word.
    pub fn text(&self) -> String {
        let mut text = format!("{} channel, {} words at {:#x}\n", self.channel, self.words.len(), self.va);
        text.push_str(&dump::pushbuffer(&self.words, self.chip.commands));
        for launch in &self.launches {
            let name = launch.kernel.as_deref().unwrap_or("unknown code");
            let _ = writeln!(
                text,
                "launch at {:#x}: kernel {name}, grid {}, block {}",
                launch.va, launch.grid, launch.block
            );
        }
        text
    }
}

impl LaunchRecord {
    /// The descriptor's fields as text.
    pub fn text(&self) -> String {
        dump::qmd(&self.words).unwrap_or_default()
    }
}

impl fmt::Debug for Submission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submission")
            .field("channel", &self.channel)
            .field("va", &format_args!("{:#x}", self.va))
            .field("words", &self.words.len())
            .field("launches", &self.launches.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for LaunchRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaunchRecord")
            .field("kernel", &self.kernel)
            .field("grid", &self.grid)
            .field("block", &self.block)
            .field("va", &format_args!("{:#x}", self.va))
            .field("words", &self.words.len())
            .finish_non_exhaustive()
    }
}
