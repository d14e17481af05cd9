//! The commands that run a graph: launch the first record of each chain, release the timeline after the chains have
//! ended. Chains that begin side by side are launched in a row; a wait for idle joins them. If launches are not
//! chained, each record is a chain.
//!
//! If the descriptor of the last record releases the timeline, the commands contain only the launches, preceded by a
//! wait for idle. The wait is needed only while earlier work may be running; otherwise the GPFIFO entry skips it.

use ampere_cmd::command::L2Operation;
use ampere_cmd::gpfifo;
use ampere_cmd::host_c76f::WfiScope;
use ampere_cmd::pushbuffer::{Encoder, SliceSink};
use ampere_cmd::words::lower_upper;

use super::{Begin, Node};
use crate::encodings::Encodings;
use crate::error::Result;
use crate::launch::record;
use crate::launch::submit::encode_end;
use crate::shared::Shared;

/// Largest number of words beside the launches: waits, invalidations and the end.
const FRAME_WORDS: usize = 32;
/// Largest number of words of a launch with its wait for idle.
const LAUNCH_WORDS: usize = 8;

/// The launches of a graph.
#[derive(Debug)]
pub(super) struct Plan {
    encodings: Encodings,
    /// The first records of the chains.
    heads: Vec<Head>,
}

/// The first record of a chain, which the host engine launches.
#[derive(Clone, Copy, Debug)]
struct Head {
    /// Offset of its descriptor in an instance.
    descriptor: u64,
    /// Whether it begins when all chains before it have ended.
    waits: bool,
}

/// Release at the end of a graph's chains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Release {
    /// GPU address of the timeline.
    pub(super) timeline: u64,
    /// `true` if the last descriptor releases, `false` if the host engine does.
    pub(super) by_descriptor: bool,
}

/// The layout of encoded commands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Commands {
    len: usize,
    /// Words before the launch that can be skipped.
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

impl Plan {
    /// The launches of laid-out nodes.
    pub(super) fn new(device: &Shared, nodes: &[Node]) -> Self {
        let encodings = *device.encodings();
        let is_chained = encodings.chain.is_some();
        let head = |(index, node): (usize, &Node)| {
            let descriptor = node.offset + record::bank_bytes(node.kernel.code());
            let is_head = index == 0 || !is_chained || node.begin != Begin::After;
            is_head.then_some(Head { descriptor, waits: index > 0 && node.begin != Begin::Beside })
        };
        Self { encodings, heads: nodes.iter().enumerate().filter_map(head).collect() }
    }

    /// Whether the last record ends after all others.
    #[inline]
    pub(super) fn ends_with_last(&self) -> bool {
        self.heads.len() == 1 || self.heads.last().is_some_and(|head| head.waits)
    }

    /// Whether descriptors start each other.
    #[inline]
    pub(super) fn is_chained(&self) -> bool {
        self.encodings.chain.is_some()
    }

    /// Whether the GPU places the steps of a chain before the step before them has ended.
    pub(super) fn overlaps(&self) -> bool {
        self.is_chained() && self.encodings.chip().early_start.value
    }

    /// Largest number of words of the commands.
    pub(super) fn max_words(&self) -> usize {
        FRAME_WORDS + LAUNCH_WORDS * self.heads.len()
    }

    /// Encodes the commands of an instance whose memory is at `va` into `words`, which has room for
    /// [`Plan::max_words`]. The released value is 0.
    ///
    /// # Errors
    ///
    /// Returns an error if an address does not fit its field.
    pub(super) fn encode(&self, words: &mut [u32], va: u64, release: Release) -> Result<Commands> {
        let mut sink = SliceSink::new(words);
        let skip = self.launches(&mut sink, va, release)?;
        let payload = match release.by_descriptor {
            true => None,
            false => {
                let encoder = &mut Encoder::new(&mut sink);
                Some(encode_end(encoder, release.timeline, 0, true, self.encodings.l2_flush)?)
            }
        };
        Ok(Commands { len: sink.len(), skip, payload, release })
    }

    /// Encodes everything before the end. Returns the number of words that can be skipped if nothing runs.
    fn launches(
        &self,
        sink: &mut SliceSink<'_>,
        va: u64,
        release: Release,
    ) -> core::result::Result<usize, ampere_cmd::Error> {
        let Encodings { pcas_action, shader_invalidate, l2_invalidate, .. } = self.encodings;
        let mut skip = 0;
        if release.by_descriptor {
            Encoder::new(&mut *sink).wait_for_idle(WfiScope::CurrentScgType)?;
            skip = sink.len();
        }
        let mut encoder = Encoder::new(sink);
        if l2_invalidate {
            encoder.l2_operation(L2Operation::SysmemInvalidate)?;
        }
        if shader_invalidate {
            encoder.invalidate_shader_caches_no_wfi()?;
        }
        for head in &self.heads {
            if head.waits {
                encoder.wait_for_idle(WfiScope::CurrentScgType)?;
            }
            encoder.launch(va + head.descriptor, pcas_action)?;
        }
        Ok(skip)
    }
}

impl Commands {
    /// Number of words.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The location of the commands if the words are stored at `va`.
    ///
    /// # Errors
    ///
    /// Returns an error if the address or the number of words does not fit a GPFIFO entry.
    pub(super) fn start(&self, va: u64) -> Result<Start> {
        let entry = |skip: usize| {
            let words = u32::try_from(self.len - skip).unwrap_or(u32::MAX);
            gpfifo::Entry::from(gpfifo::Segment::new(va + skip as u64 * 4, words)).encode()
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
    use gpu_hal::chip::SM_8_7;

    use crate::encodings::{Chaining, DeviceOptions};

    const INSTANCE: u64 = 0x1_0000_0000;
    const VA: u64 = 0x3_0000_0000;
    const TIMELINE: u64 = 0x2_0000_0040;

    fn plan(options: &DeviceOptions, launches: u64) -> Plan {
        let encodings = Encodings::of(&SM_8_7, options).unwrap();
        let head = |index| Head { descriptor: index * 0x400, waits: index > 1 };
        Plan { encodings, heads: (1..=launches).map(head).collect() }
    }

    fn encode(plan: &Plan, by_descriptor: bool) -> (Vec<u32>, Commands) {
        let mut words = vec![0; plan.max_words()];
        let release = Release { timeline: TIMELINE, by_descriptor };
        let commands = plan.encode(&mut words, INSTANCE, release).unwrap();
        words.truncate(commands.len());
        (words, commands)
    }

    #[test]
    fn a_value_can_be_patched_in() {
        let plan = plan(&DeviceOptions::new(), 1);
        let (mut words, commands) = encode(&plan, false);
        let start = commands.start(VA).unwrap();
        // SAFETY: the words are those of the commands.
        unsafe { start.set_value(words.as_mut_ptr().cast(), 0x1122_3344_5566_7788) };
        let mut end = Vec::new();
        encode_end(&mut Encoder::new(&mut end), TIMELINE, 0x1122_3344_5566_7788, true, false).unwrap();
        assert!(words.ends_with(&end), "{}", dump::pushbuffer(&words, &Classes::AMPERE));
        let text = dump::pushbuffer(&words, &Classes::AMPERE);
        assert!(text.lines().last().unwrap().contains("SEM_EXECUTE OPERATION RELEASE"), "{text}");
        assert_eq!(start.release(), Release { timeline: TIMELINE, by_descriptor: false });
        assert_eq!(start.entry(true), start.entry(false), "the release before has waited");
    }

    #[test]
    fn where_the_descriptor_releases_the_commands_begin_with_a_wait_that_can_be_skipped() {
        let (words, commands) = encode(&plan(&DeviceOptions::new(), 1), true);
        let text = dump::pushbuffer(&words, &Classes::AMPERE);
        assert!(text.lines().next().unwrap().contains("WFI"), "{text}");
        assert!(!text.contains("SEM_EXECUTE"), "{text}");
        let start = commands.start(VA).unwrap();
        // CAST: seven words.
        let all = words.len() as u32;
        let entry = |va, words| gpfifo::Entry::from(gpfifo::Segment::new(va, words)).encode().unwrap();
        assert_eq!(start.entry(true), entry(VA, all));
        assert_eq!(start.entry(false), entry(VA + 4, all - 1));
    }

    #[test]
    fn shader_caches_are_invalidated_once_before_the_launch() {
        for by_descriptor in [false, true] {
            let text =
                |options| dump::pushbuffer(&encode(&plan(&options, 1), by_descriptor).0, &Classes::AMPERE);
            let lines = text(DeviceOptions::new());
            let at = |name| lines.lines().position(|line| line.contains(name)).unwrap();
            assert!(at("INVALIDATE_SHADER_CACHES_NO_WFI") < at("SEND_PCAS_A"), "{lines}");
            assert_eq!(lines.matches("INVALIDATE_SHADER_CACHES_NO_WFI").count(), 1, "{lines}");
            assert!(!text(DeviceOptions::new().shader_invalidate(false)).contains("INVALIDATE_SHADER"));
        }
    }

    #[test]
    fn without_chaining_each_launch_waits_for_the_one_before() {
        let (words, commands) = encode(&plan(&DeviceOptions::new().chaining(Chaining::Off), 3), false);
        let text = dump::pushbuffer(&words, &Classes::AMPERE);
        assert_eq!(text.matches("SEND_PCAS_A").count(), 3, "{text}");
        assert_eq!(text.matches("WFI SCOPE").count(), 2, "{text}");
        assert!(commands.start(VA).is_ok());
    }

    #[test]
    fn branches_are_launched_in_a_row_and_joined_by_a_wait() {
        let mut plan = plan(&DeviceOptions::new(), 3);
        assert!(plan.ends_with_last());
        plan.heads[1].waits = false;
        let text = dump::pushbuffer(&encode(&plan, false).0, &Classes::AMPERE);
        let lines: Vec<_> = ["SEND_PCAS_A", "WFI SCOPE"]
            .iter()
            .flat_map(|what| text.match_indices(what).map(|(at, _)| (at, *what)))
            .collect::<std::collections::BTreeMap<_, _>>()
            .into_values()
            .collect();
        assert_eq!(lines[..4], ["SEND_PCAS_A", "SEND_PCAS_A", "WFI SCOPE", "SEND_PCAS_A"], "{text}");
        assert!(plan.ends_with_last());
        plan.heads.pop();
        assert!(!plan.ends_with_last(), "the first branch may end last");
    }

    #[test]
    fn l2_operations_frame_the_launch() {
        let options = DeviceOptions::new().l2_invalidate(true).l2_flush(true);
        let text = dump::pushbuffer(&encode(&plan(&options, 1), false).0, &Classes::AMPERE);
        let at = |name: &str| text.find(name).unwrap_or_else(|| panic!("no {name}: {text}"));
        assert!(at("L2_SYSMEM_INVALIDATE") < at("SEND_PCAS_A"));
        assert!(at("SEND_PCAS_A") < at("WFI SCOPE"));
        assert!(at("WFI SCOPE") < at("L2_FLUSH_DIRTY"));
        assert!(at("L2_FLUSH_DIRTY") < at("SEM_EXECUTE"));
    }
}
