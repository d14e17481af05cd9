//! Two devices in one process: copies, launches and waits between them.

use std::time::{Duration, Instant};

use tegra_hcq::{Device, Error, Link, MemoryUse, Queue, args};

use crate::fixtures::{ensure, equal, kernel, patience};
use test_harness::{Check, Context};
use test_support::Numbers;

/// Elements of the small buffers.
const LEN: usize = 1000;

/// Two devices with a queue each, and the link between them.
struct Pair<'a> {
    context: &'a Context,
    devices: [Device; 2],
    queues: [Queue; 2],
    link: Link,
}

impl<'a> Pair<'a> {
    fn new(context: &'a Context) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let devices = [context.device()?.clone(), context.second_device()?];
        let queues = [devices[0].queue()?, devices[1].queue()?];
        let link = devices[0].link(&devices[1])?;
        context.note(format!(
            "{} and {}: {}",
            devices[0].info().name(),
            devices[1].info().name(),
            link.access()
        ));
        Ok(Self { context, devices, queues, link })
    }

    /// Copies words from one device to the other and back, and compares.
    fn there_and_back(&mut self, words: usize) -> Check {
        let [first, second] = &self.devices;
        let data = Numbers::new(words as u64).vec_u32(words);
        let source = first.alloc_from(&data)?;
        let mut there = second.alloc_zeroed::<u32>(words)?;
        let mut back = first.alloc_zeroed::<u32>(words)?;
        let [one, other] = &mut self.queues;
        self.link.copy(one, &source, other, &mut there)?;
        let transfer = self.link.copy(other, &there, one, &mut back)?;
        transfer.wait(patience(self.context))?;
        equal("there", &there.to_vec()?, &data)?;
        equal("and back", &back.to_vec()?, &data)
    }
}

/// Both devices work at the same time, each with its own queue and memory.
pub(super) fn side_by_side(context: &Context) -> Check {
    let mut pair = Pair::new(context)?;
    let mut data = Vec::new();
    for (device, queue) in pair.devices.iter().zip(&mut pair.queues) {
        let (increment, words) = (kernel!(device, "basics", "increment")?, device.alloc_zeroed::<u32>(LEN)?);
        for _ in 0..20 {
            unsafe { queue.launch(&increment, 8, 128, &args![&words, LEN as u32]) }?;
        }
        queue.submit()?;
        data.push(words);
    }
    for (words, queue) in data.iter().zip(&mut pair.queues) {
        queue.wait(patience(context))?;
        equal("increments", &words.to_vec()?, &[20; LEN])?;
    }
    // An object of a device that is not connected is refused.
    let stranger = context.second_device()?;
    let mut words = stranger.alloc_zeroed::<u32>(LEN)?;
    match pair.queues[0].copy(&data[0], &mut words) {
        Err(Error::OtherDevice(_)) => Ok(()),
        other => Err(format!("memory of a device that is not connected: {other:?}").into()),
    }
}

/// Memory of one device is used by the other.
pub(super) fn peer_memory(context: &Context) -> Check {
    let mut pair = Pair::new(context)?;
    for words in [1, 3, LEN, 1 << 18, (15 << 20) / 4 + 5] {
        pair.there_and_back(words)?;
    }
    let data = Numbers::new(7).vec_u32(LEN);
    let theirs = pair.devices[1].alloc_from(&data)?;
    let mut ours = pair.devices[0].alloc_zeroed::<u32>(LEN)?;
    if !pair.link.access().is_direct() {
        return match pair.queues[0].copy(&theirs, &mut ours) {
            Err(Error::OtherDevice(_) | Error::NotMapped { .. }) => Ok(()),
            other => Err(format!("a copy from memory that is not mapped: {other:?}").into()),
        };
    }
    // Copies by either side's queue.
    let [queue, other] = &mut pair.queues;
    queue.copy(&theirs, &mut ours)?;
    other.wait_fence(&queue.submit()?)?;
    let mut returned = pair.devices[1].alloc_zeroed::<u32>(LEN)?;
    other.copy(&ours, &mut returned)?;
    other.wait(patience(context))?;
    equal("pulled twice", &returned.to_vec()?, &data)?;
    // A launch that changes the other device's memory, which waits for it without a fence.
    let increment = kernel!(&pair.devices[0], "basics", "increment")?;
    unsafe { queue.launch(&increment, 8, 128, &args![&theirs, LEN as u32]) }?;
    queue.submit()?;
    let wanted: Vec<u32> = data.iter().map(|word| word.wrapping_add(1)).collect();
    equal("incremented by the other device", &theirs.to_vec()?, &wanted)?;
    // Memory that is dropped while the other device uses it is not reused before.
    for round in 0..50_u32 {
        let source = pair.devices[1].alloc_from(&[round; LEN])?;
        queue.copy(&source, &mut ours)?;
        queue.submit()?;
        drop(source);
        let next = pair.devices[1].alloc_from(&[u32::MAX; LEN])?;
        equal("memory of a dropped buffer", &ours.to_vec()?, &[round; LEN])?;
        drop(next);
    }
    Ok(())
}

/// The queues of two devices alternate without the CPU.
pub(super) fn signal_wait(context: &Context) -> Check {
    let mut pair = Pair::new(context)?;
    // All submissions fit the rings, because nothing runs before the start.
    let rounds = context.rounds(200, 50);
    let [first, second] = &pair.devices;
    let signal = first.shared_signal(second, 0)?;
    let [one, other] = &mut pair.queues;
    // Nothing runs before the CPU starts it.
    for round in 0..rounds {
        one.wait_signal(&signal, 2 * round + 1)?;
        one.signal(&signal, 2 * round + 2)?;
        one.submit()?;
        other.wait_signal(&signal, 2 * round + 2)?;
        other.signal(&signal, 2 * round + 3)?;
        other.submit()?;
    }
    std::thread::sleep(Duration::from_millis(5));
    ensure(signal.value() == 0, || format!("the signal is {} before the start", signal.value()))?;
    let start = Instant::now();
    signal.set(1);
    signal.wait(2 * rounds + 1, patience(context))?;
    let each = start.elapsed().as_nanos() as f64 / 1e3 / rounds as f64;
    context.note(format!("{rounds} round trips of {each:.2} µs"));
    for queue in [&mut *one, &mut *other] {
        queue.wait(patience(context))?;
    }
    if pair.link.access().is_direct() {
        let gate = first.signal(0)?;
        one.wait_signal(&gate, 1)?;
        let fence = one.submit()?;
        other.wait_fence(&fence)?;
        let end = other.submit()?;
        std::thread::sleep(Duration::from_millis(5));
        ensure(!end.is_done(), || "a queue did not wait for the other device's fence".to_owned())?;
        gate.set(1);
        end.wait(patience(context))?;
    }
    Ok(())
}

/// The rate of a large copy from device to device.
pub(super) fn bandwidth(context: &Context) -> Check {
    const BYTES: usize = 200_000_000;
    let mut pair = Pair::new(context)?;
    let bytes = if context.is_model() { BYTES / 20 } else { BYTES };
    let source = pair.devices[0].alloc_zeroed::<u8>(bytes)?;
    let mut target = pair.devices[1].alloc::<u8>(bytes)?;
    let [one, other] = &mut pair.queues;
    let mut best = 0.0_f64;
    for _ in 0..4 {
        let start = Instant::now();
        pair.link.copy(one, &source, other, &mut target)?.wait(patience(context))?;
        best = best.max(bytes as f64 / start.elapsed().as_nanos() as f64);
    }
    context.note(format!("{best:.1} GB/s"));
    ensure(context.is_model() || (3.0..10_000.0).contains(&best), || {
        format!("{best:.1} GB/s; expected at least 3")
    })
}

/// One byte at a time from the host through the first device to the second.
pub(super) fn bytes_from_host(context: &Context) -> Check {
    let mut pair = Pair::new(context)?;
    let mut host = pair.devices[0].alloc_for::<u8>(1, MemoryUse::Upload)?;
    let mut middle = pair.devices[0].alloc_zeroed::<u8>(1)?;
    let mut target = pair.devices[1].alloc_zeroed::<u8>(1)?;
    let [one, other] = &mut pair.queues;
    for value in 0..=255 {
        host.copy_from_slice(&[value])?;
        one.copy(&host, &mut middle)?;
        pair.link.copy(one, &middle, other, &mut target)?.wait(patience(context))?;
        equal("byte", &target.to_vec()?, &[value])?;
    }
    Ok(())
}
