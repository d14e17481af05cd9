//! What the GPU was given, as data.

use core::fmt::Write as _;

use ampere_cmd::dump;
use gpu_hal::chip::Chip;

use crate::grid::Dim3;

/// A submission, as stored in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Submission {
    /// `compute` or `copy`.
    pub channel: &'static str,
    /// Address of the commands.
    pub va: u64,
    /// The commands' words.
    pub words: Vec<u32>,
    /// The launch descriptors that they start, chained ones included, in order.
    pub launches: Vec<LaunchRecord>,
    /// The value of the queue's timeline that they, or their last launch, release at their end.
    pub(crate) releases: Option<u64>,
    /// The chip, for the meaning of the words.
    pub(crate) chip: &'static Chip,
}

/// A launch descriptor (QMD), as stored in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaunchRecord {
    /// Address of the descriptor.
    pub va: u64,
    /// Name of the kernel, if its code belongs to a loaded program.
    pub kernel: Option<String>,
    /// Address of the code.
    pub code_va: u64,
    /// Blocks of the grid.
    pub grid: Dim3,
    /// Threads of a block.
    pub block: Dim3,
    /// The descriptor's words.
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
