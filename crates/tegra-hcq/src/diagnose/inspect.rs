//! Decodes submissions and launch descriptors from memory, for fault reports.
//!
//! Rings, pushbuffers and launch descriptors stay in memory until their space is reused, so the work before a fault can
//! be decoded from memory. Nothing is recorded in advance.

use std::sync::Arc;

use ampere_cmd::command::PcasAction;
use ampere_cmd::compute_c7c0::{SendPcasA, SendSignalingPcas2B};
use ampere_cmd::gpfifo::{Entry, Segment};
use ampere_cmd::host_c76f::{SemAddrLo, SemExecute, SemExecuteOperation};
use ampere_cmd::method::Method;
use ampere_cmd::pushbuffer::{MethodStream, Subchannel};
use ampere_cmd::qmd;
use ampere_cmd::words::join;
use gpu_hal::volatile;

use crate::descriptor::{self, Seen};
use crate::fault::{CodeLocation, Fault, LaunchRecord, NearBuffer, Submission};
use crate::limits::Dim3;
use crate::shared::Shared;
use crate::wait::OpenChannels;

/// Number of launches of a submission that a report keeps.
const CHAIN: usize = 64;
/// Largest number of launches followed in a submission; rings and graphs of usual size have fewer.
const LONGEST: usize = 1 << 16;
/// Names of the channels in the order of `OpenChannels::rings`.
pub(crate) const LANES: [&str; 3] = ["compute", "copy", "link"];

/// Copies words from GPU memory of this device, if all of them lie in one block.
fn read_words(device: &Shared, va: u64, count: usize) -> Option<Vec<u32>> {
    let memory = device.heap().pool().at(va)?;
    let offset = va - memory.gpu_va();
    let bytes = (count * 4) as u64;
    if offset.checked_add(bytes)? > memory.bytes() {
        return None;
    }
    let mut words = vec![0_u32; count];
    // SAFETY: `offset + bytes` lies inside the block, which `memory` keeps alive.
    unsafe {
        let source = memory.map().ok()?.as_ptr().add(offset as usize);
        volatile::load(source, bytemuck::cast_slice_mut(&mut words));
    }
    Some(words)
}

/// The last submissions of each channel, at most `count`, oldest first. Submissions whose words have been overwritten
/// by later ones are left out.
pub(crate) fn submissions(
    device: &Shared,
    channels: &OpenChannels,
    timeline_va: u64,
    count: u32,
) -> Vec<Submission> {
    let chip = device.chip();
    let mut found = Vec::new();
    for (channel, ring) in LANES.into_iter().zip(&*channels.rings) {
        let entries = ring.last_entries(count);
        for (va, count) in standing(&entries) {
            let Some(words) = read_words(device, va, count as usize) else { continue };
            let (launches, by_launch) = launches(device, &words, timeline_va);
            let releases = released(&words, timeline_va).or(by_launch);
            found.push(Submission { channel, va, words, launches, releases, chip });
        }
    }
    found
}

/// Address and number of words of the entries that no later entry has overwritten, oldest first.
fn standing(entries: &[u64]) -> Vec<(u64, u32)> {
    let mut standing: Vec<(u64, u32)> = Vec::new();
    for entry in entries.iter().rev() {
        let Ok(Entry::Segment(Segment { va, words, .. })) = Entry::decode(*entry) else { continue };
        let end = |va: u64, words: u32| va + u64::from(words) * 4;
        if standing.iter().all(|&(other, count)| end(va, words) <= other || end(other, count) <= va) {
            standing.push((va, words));
        }
    }
    standing.reverse();
    standing
}

/// The last value that a pushbuffer releases at an address (SEM_* of the host classes).
fn released(words: &[u32], va: u64) -> Option<u64> {
    const SEMAPHORE: u32 = SemAddrLo::ADDRESS;
    let mut stream = MethodStream::new();
    let (mut semaphore, mut value) = ([0_u32; 4], None);
    for &word in words {
        let Ok(Some(write)) = stream.push(word) else { continue };
        match write.address {
            SEMAPHORE..SemExecute::ADDRESS => {
                semaphore[(write.address - SEMAPHORE) as usize / 4] = write.data;
            }
            SemExecute::ADDRESS => {
                let [low, high, payload_low, payload_high] = semaphore;
                let is_release = SemExecute::decode(write.data).operation == SemExecuteOperation::Release;
                if is_release && join(high, low) == va {
                    value = Some(join(payload_high, payload_low));
                }
            }
            _ => {}
        }
    }
    value
}

/// The first kernel of the submission that releases `value`.
pub(crate) fn kernel_of(device: &Shared, submissions: &[Submission], value: u64) -> Option<CodeLocation> {
    let submission = submissions.iter().find(|submission| submission.releases == Some(value))?;
    device.locate(submission.launches.first()?.code_va)
}

/// Follows the launches in a pushbuffer: returns the first of them, and the value that one releases at an address.
fn launches(device: &Shared, words: &[u32], timeline_va: u64) -> (Vec<LaunchRecord>, Option<u64>) {
    let mut stream = MethodStream::new();
    let (mut found, mut releases, mut followed) = (Vec::new(), None, 0);
    let mut sent = None;
    for &word in words {
        let Ok(Some(write)) = stream.push(word) else { continue };
        if write.subchannel != Subchannel::COMPUTE {
            continue;
        }
        if write.address == SendPcasA::ADDRESS {
            sent = Some(qmd::pointed_va(write.data));
        }
        // A prefetch precedes the launch of the same descriptor.
        if write.address == SendSignalingPcas2B::ADDRESS
            && SendSignalingPcas2B::decode(write.data).pcas_action != PcasAction::Prefetch
        {
            let mut next = sent.take();
            while let Some(va) = next
                && followed < LONGEST
                && let Some((record, seen)) = record(device, va)
            {
                next = seen.next;
                followed += 1;
                releases =
                    seen.release.filter(|&(at, _)| at == timeline_va).map(|(_, value)| value).or(releases);
                if found.len() < CHAIN {
                    found.push(record);
                }
            }
        }
    }
    (found, releases)
}

/// The descriptor at an address, and its decoded fields.
fn record(device: &Shared, va: u64) -> Option<(LaunchRecord, Seen)> {
    let words = read_words(device, va, device.chip().descriptor.value.words())?;
    let seen = descriptor::read(device.chip(), &words)?;
    let record = LaunchRecord {
        va,
        kernel: device.locate(seen.code_va).map(|location| location.kernel),
        code_va: seen.code_va,
        grid: seen.grid,
        block: seen.block,
        words,
    };
    Some((record, seen))
}

/// Grid and block of the faulting kernel's last launch.
pub(crate) fn grid_of(device: &Shared, fault: &Fault) -> Option<(Dim3, Dim3)> {
    let name = &fault.location.as_ref()?.kernel;
    let of_kernel = |launch: &&LaunchRecord| {
        device.locate(launch.code_va).is_some_and(|location| location.kernel == *name)
    };
    let launch =
        fault.submissions.iter().flat_map(|submission| &submission.launches).rev().find(of_kernel)?;
    Some((launch.grid, launch.block))
}

/// Largest distance in bytes between an address and a buffer for the buffer to be reported.
const NEAR: u64 = 1 << 32;

/// The buffer that contains an address, otherwise the one whose start or end is nearest, within the largest distance.
pub(crate) fn nearest(device: &Arc<Shared>, address: u64) -> Option<NearBuffer> {
    let live = device.heap().pool().live();
    let distance = |va: u64, bytes: u64| {
        if address < va { va - address } else { (address + 1).saturating_sub(va + bytes) }
    };
    let (far, memory) = live
        .iter()
        .map(|memory| (distance(memory.gpu_va(), memory.wanted()), memory))
        .min_by_key(|(far, _)| *far)?;
    if far > NEAR {
        return None;
    }
    Some(NearBuffer { name: memory.name(), va: memory.gpu_va(), bytes: memory.wanted(), address })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_were_overwritten_are_left_out() {
        let entry = |va, words| Entry::from(Segment::new(va, words)).encode().unwrap();
        let (first, second, third) = (entry(0x1000, 16), entry(0x1040, 8), entry(0x1030, 4));
        assert_eq!(standing(&[first, second]), [(0x1000, 16), (0x1040, 8)], "side by side");
        assert_eq!(standing(&[first, second, third]), [(0x1040, 8), (0x1030, 4)], "the ring has begun anew");
        assert_eq!(standing(&[first, first]), [(0x1000, 16)], "a graph that was replayed");
        assert_eq!(standing(&[]), []);
    }

    #[test]
    fn the_release_at_the_end_of_a_long_chain_is_found() {
        use crate::{Device, DeviceKind, Program, QueueOptions, ReleaseBy, WaitPolicy};

        let device = Device::open(DeviceKind::Sim).unwrap();
        let program = Program::load(&device, include_bytes!("../../kernels/basics.cubin")).unwrap();
        let empty = program.kernel("empty").unwrap();
        for release in [ReleaseBy::Host, ReleaseBy::Descriptor] {
            let options = QueueOptions::default().wait(WaitPolicy::Spin).release(release);
            let mut queue = device.queue_with(&options).unwrap();
            for _ in 0..CHAIN + 10 {
                // SAFETY: the kernel accesses no memory.
                unsafe { queue.launch(&empty, 1, 32, &[]) }.unwrap();
            }
            let fence = queue.submit().unwrap();
            fence.wait(crate::DEFAULT_TIMEOUT).unwrap();
            let (channels, timeline) = (queue.state.channels().unwrap(), queue.state.timeline.gpu_va());
            let found = submissions(device.shared(), &channels, timeline, 1);
            let compute = found.iter().find(|submission| submission.channel == "compute").unwrap();
            assert_eq!(compute.releases, Some(fence.value), "{release:?}");
            assert_eq!(compute.launches.len(), CHAIN);
        }
    }
}
