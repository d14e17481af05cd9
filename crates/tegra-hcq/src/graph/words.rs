//! The commands that start a graph: launch the first record, release the timeline after the chain has ended.
//!
//! If the descriptor of the last record releases the timeline, the commands contain only the launch, preceded by a wait
//! for idle. The wait is needed only while earlier work may be running; otherwise the GPFIFO entry skips it.

use ampere_cmd::command::PcasAction;
use ampere_cmd::gpfifo;
use ampere_cmd::host_c76f::WfiScope;
use ampere_cmd::pushbuffer::{Encoder, SliceSink};
use ampere_cmd::words::lower_upper;

use crate::error::{Error, Result};
use crate::queue::submit::encode_end;

/// Largest number of words in the commands.
const MAX_WORDS: usize = 32;
/// Space for the commands in an instance, in bytes.
pub(super) const MAX_BYTES: u64 = 4 * MAX_WORDS as u64;

/// Release at the end of a graph's chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Release {
    /// GPU address of the timeline.
    pub(super) timeline: u64,
    /// `true` if the last descriptor releases, `false` if the host engine does.
    pub(super) by_descriptor: bool,
}

/// Commands for one instance and one queue.
#[derive(Debug)]
pub(super) struct Commands {
    words: [u32; MAX_WORDS],
    len: usize,
    /// Words before the launch.
    skip: usize,
    /// Index of the low word of the released value; the high word follows. `None` if the descriptor holds the value.
    payload: Option<usize>,
    release: Release,
}

/// Location of an instance's commands, and the release that they were encoded for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    /// GPFIFO entry that starts at the launch.
    entry: u64,
    /// GPFIFO entry that starts at the wait for idle before the launch.
    entry_with_wait: u64,
    payload: Option<usize>,
    release: Release,
}

/// Encodes the commands for a chain that begins with the descriptor at `qmd_va`.
pub(super) fn encode(qmd_va: u64, action: PcasAction, release: Release) -> Result<Commands> {
    let (words, len, skip) = image(qmd_va, action, release, 0)?;
    if release.by_descriptor {
        return Ok(Commands { words, len, skip, payload: None, release });
    }
    // Encoding twice with values that differ in every bit locates the payload.
    let (other, ..) = image(qmd_va, action, release, u64::MAX)?;
    let payload = (0..len).find(|&at| words[at] != other[at]);
    let payload = payload.filter(|&at| at + 1 < len && words[at + 1] != other[at + 1]);
    // PANIC: a release carries its 64-bit payload in two adjacent words.
    let payload = Some(payload.expect("the commands contain the payload of a release"));
    Ok(Commands { words, len, skip, payload, release })
}

/// The words, their number, and the number of words before the launch.
fn image(
    qmd_va: u64,
    action: PcasAction,
    release: Release,
    value: u64,
) -> Result<([u32; MAX_WORDS], usize, usize)> {
    let mut words = [0; MAX_WORDS];
    let mut sink = SliceSink::new(&mut words);
    let mut skip = 0;
    let mut commands = || {
        if release.by_descriptor {
            Encoder::new(&mut sink).wait_for_idle(WfiScope::CurrentScgType)?;
            skip = sink.len();
            return Encoder::new(&mut sink).launch(qmd_va, action);
        }
        let mut encoder = Encoder::new(&mut sink);
        encoder.launch(qmd_va, action)?;
        encode_end(&mut encoder, release.timeline, value, true)
    };
    commands().map_err(Error::Encoding)?;
    let len = sink.len();
    Ok((words, len, skip))
}

impl Commands {
    pub(super) fn words(&self) -> &[u32] {
        &self.words[..self.len]
    }

    /// The location of the commands if the words are stored at `va`.
    ///
    /// # Errors
    ///
    /// Returns an error if the address does not fit a GPFIFO entry.
    pub(super) fn start(&self, va: u64) -> Result<Start> {
        let entry = |skip: usize| {
            // CAST: a few dozen words.
            let segment = gpfifo::Segment::new(va + skip as u64 * 4, (self.len - skip) as u32);
            gpfifo::Entry::from(segment).encode()
        };
        Ok(Start {
            entry: entry(self.skip)?,
            entry_with_wait: entry(0)?,
            payload: self.payload,
            release: self.release,
        })
    }
}

impl Start {
    /// The release that the commands make.
    #[inline]
    pub(super) fn release(&self) -> Release {
        self.release
    }

    /// The GPFIFO entry of the commands; with a wait until the engine is idle if `wait` is set.
    #[inline]
    pub(super) fn entry(&self, wait: bool) -> u64 {
        if wait { self.entry_with_wait } else { self.entry }
    }

    /// Patches the value that the commands release.
    ///
    /// # Safety
    ///
    /// `commands` must point to the words written earlier, and the GPU must not use them.
    #[inline]
    pub(super) unsafe fn set_value(&self, commands: *mut u8, value: u64) {
        let Some(payload) = self.payload else { return };
        // SAFETY: both words lie inside the commands, by `encode`; the memory is aligned to 4.
        unsafe {
            let low = commands.cast::<u32>().add(payload);
            let [lower, upper] = lower_upper(value);
            low.write_volatile(lower);
            low.add(1).write_volatile(upper);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ampere_cmd::dump::{self, Classes};

    const QMD: u64 = 0x1_0000_0100;
    const VA: u64 = 0x3_0000_0000;

    #[test]
    fn a_value_can_be_patched_in() {
        let release = Release { timeline: 0x2_0000_0040, by_descriptor: false };
        let commands = encode(QMD, PcasAction::Schedule, release).unwrap();
        let start = commands.start(VA).unwrap();
        let mut words = commands.words().to_vec();
        // SAFETY: the words were copied from the commands.
        unsafe { start.set_value(words.as_mut_ptr().cast(), 0x1122_3344_5566_7788) };
        let (image, len, _) = image(QMD, PcasAction::Schedule, release, 0x1122_3344_5566_7788).unwrap();
        assert_eq!(words, image[..len], "{}", dump::pushbuffer(&words, &Classes::AMPERE));
        let text = dump::pushbuffer(commands.words(), &Classes::AMPERE);
        assert!(text.lines().last().unwrap().contains("SEM_EXECUTE OPERATION RELEASE"), "{text}");
        assert_eq!(start.release(), release);
        assert_eq!(start.entry(true), start.entry(false), "the release before has waited");
    }

    #[test]
    fn where_the_descriptor_releases_the_commands_are_a_launch_and_a_wait_that_can_be_skipped() {
        let release = Release { timeline: 0x2_0000_0040, by_descriptor: true };
        let commands = encode(QMD, PcasAction::Schedule, release).unwrap();
        let text = dump::pushbuffer(commands.words(), &Classes::AMPERE);
        assert!(text.lines().next().unwrap().contains("WFI"), "{text}");
        assert!(!text.contains("SEM_EXECUTE"), "{text}");
        let start = commands.start(VA).unwrap();
        // CAST: five words.
        let all = commands.words().len() as u32;
        let entry = |va, words| gpfifo::Entry::from(gpfifo::Segment::new(va, words)).encode().unwrap();
        assert_eq!(start.entry(true), entry(VA, all));
        assert_eq!(start.entry(false), entry(VA + 4, all - 1));
    }
}
