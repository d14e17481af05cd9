//! The commands that start a graph: launch the first record, release the timeline when the chain has ended.

use ampere_cmd::command::PcasAction;
use ampere_cmd::pushbuffer::{Encoder, SliceSink};

use crate::error::{Error, Result};
use crate::queue::batch::encode_end;

/// Most words that the commands have.
const MAX_WORDS: usize = 32;
/// Room for them in an instance, in bytes.
pub(super) const MAX_BYTES: u64 = 4 * MAX_WORDS as u64;

/// Commands for one instance and one queue.
#[derive(Debug)]
pub(super) struct Commands {
    words: [u32; MAX_WORDS],
    len: usize,
    /// Index of the low word of the released value; the high word follows.
    payload: usize,
    timeline: u64,
}

/// Where the commands of an instance are and what they were made for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    entry: u64,
    payload: usize,
    timeline: u64,
}

/// Encodes the commands for a chain that begins with the descriptor at `qmd_va`.
pub(super) fn encode(qmd_va: u64, action: PcasAction, timeline: u64) -> Result<Commands> {
    // Two values that differ in every bit show where the payload lies.
    let (words, len) = image(qmd_va, action, timeline, 0)?;
    let (other, _) = image(qmd_va, action, timeline, u64::MAX)?;
    let payload = (0..len).find(|&at| words[at] != other[at]);
    let payload = payload.filter(|&at| at + 1 < len && words[at + 1] != other[at + 1]);
    // PANIC: a release carries its 64-bit payload in two adjacent words.
    let payload = payload.expect("the payload of a release stands in the commands");
    Ok(Commands { words, len, payload, timeline })
}

fn image(qmd_va: u64, action: PcasAction, timeline: u64, value: u64) -> Result<([u32; MAX_WORDS], usize)> {
    let mut words = [0; MAX_WORDS];
    let mut sink = SliceSink::new(&mut words);
    let mut commands = || {
        let mut encoder = Encoder::new(&mut sink);
        encoder.launch(qmd_va, action)?;
        encode_end(&mut encoder, timeline, value, true)
    };
    commands().map_err(Error::Encoding)?;
    let len = sink.len();
    Ok((words, len))
}

impl Commands {
    pub(super) fn words(&self) -> &[u32] {
        &self.words[..self.len]
    }

    /// What a replay needs to know, with the GPFIFO entry that leads to the commands.
    pub(super) fn start(&self, entry: u64) -> Start {
        Start { entry, payload: self.payload, timeline: self.timeline }
    }
}

impl Start {
    /// Whether the commands release this timeline.
    #[inline]
    pub(super) fn is_for(&self, timeline: u64) -> bool {
        self.timeline == timeline
    }

    #[inline]
    pub(super) fn entry(&self) -> u64 {
        self.entry
    }

    /// Patches the value that the commands release.
    ///
    /// # Safety
    ///
    /// `commands` is where the words were written, and the GPU does not use them.
    #[inline]
    pub(super) unsafe fn set_value(&self, commands: *mut u8, value: u64) {
        // SAFETY: both words lie inside the commands, by `encode`; the memory is aligned to 4.
        unsafe {
            let low = commands.cast::<u32>().add(self.payload);
            // CAST: the two halves of the value.
            low.write_volatile(value as u32);
            low.add(1).write_volatile((value >> 32) as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ampere_cmd::dump::{self, Classes};

    #[test]
    fn a_value_can_be_patched_in() {
        let commands = encode(0x1_0000_0100, PcasAction::Schedule, 0x2_0000_0040).unwrap();
        let start = commands.start(7);
        let mut words = commands.words().to_vec();
        // SAFETY: the words were copied from the commands.
        unsafe { start.set_value(words.as_mut_ptr().cast(), 0x1122_3344_5566_7788) };
        let (image, len) =
            image(0x1_0000_0100, PcasAction::Schedule, 0x2_0000_0040, 0x1122_3344_5566_7788).unwrap();
        assert_eq!(words, image[..len], "{}", dump::pushbuffer(&words, &Classes::AMPERE));
        let text = dump::pushbuffer(commands.words(), &Classes::AMPERE);
        assert!(text.lines().last().unwrap().contains("SEM_EXECUTE OPERATION RELEASE"), "{text}");
        assert!(start.is_for(0x2_0000_0040) && !start.is_for(0x2_0000_0080));
    }
}
