//! Completion of submissions, and sharing of the SMs between launches.
//!
//! The host engine or the QMD of the last launch ends a submission, and all other steps of a queue must stay
//! ordered with either. QMDs also give the scheduler the number of blocks per SM. Too high a number raises an
//! exception once the SMs are full, so these tests fill them.

use tegra_hcq::{
    Buffer, Device, DeviceKind, Graph, HostMemory, Kernel, Queue, QueueOptions, ReleaseBy, WaitPolicy, args,
};

use super::fixtures::{blocks, case, ensure, equal, kernel, patience};
use test_harness::{Check, Context, Suite};
use test_support::Numbers;

/// The suite.
pub static SUITE: Suite = Suite {
    name: "submissions",
    about: "submissions ended by host engine or QMD; launches that fill the SMs",
    orin_only: false,
    tests: &[
        case!(ended_by_host, "random steps stay in order", |context| mixed(context, ReleaseBy::Host)),
        case!(ended_by_descriptor, "the same, ended by the last launch", |context| {
            mixed(context, ReleaseBy::Descriptor)
        })
        .observed_on_a_board(),
        case!(unwaited, "host steps and copies after launches without a wait", unwaited),
        case!(chains_to_host, "all stores of a chain to host memory are visible at its end", chains_to_host),
        case!(across_32_bits, "values beyond 2^32 are released in full", across_32_bits),
        case!(held, "queues that hold their engine during a wait still yield to each other", held),
        case!(
            early_launches,
            "launches of a graph that begin early wait for the one before them",
            early_launches
        ),
        case!(graph_on_both, "a graph keeps no state of the queue of its last replay", graph_on_both),
        case!(full_sms, "grids of all block sizes that fill every SM", full_sms),
        case!(small_beside_large, "small grids run while other queues fill the SMs", small_beside_large),
    ],
};

/// Threads per block.
const BLOCK: u32 = 64;
/// Elements passed between the queues.
const LEN: u32 = 64;

/// The ways to end a submission. On an Orin's board the descriptor's is only observed, by a test of its own.
fn releases(context: &Context) -> &'static [ReleaseBy] {
    let all = &[ReleaseBy::Host, ReleaseBy::Descriptor];
    if context.kind() == DeviceKind::Nvgpu { &all[..1] } else { all }
}

fn spinning(device: &Device, release: ReleaseBy) -> Result<Queue, tegra_hcq::Error> {
    device.queue_with(&QueueOptions::default().wait(WaitPolicy::Spin).release(release))
}

/// Buffers on the GPU, and their expected contents.
struct Twin {
    buffers: Vec<Buffer<u32>>,
    expected: Vec<Vec<u32>>,
    pass_on: Kernel,
    graph: Graph,
}

impl Twin {
    /// Steps of the graph: source, destination, distance.
    const GRAPH: [(usize, usize, u32); 3] = [(0, 1, 70), (1, 2, 1), (2, 0, 133)];

    fn new(device: &Device, len: usize) -> Result<Self, tegra_hcq::Error> {
        let pass_on = kernel!(device, "suites", "pass_on")?;
        let expected: Vec<Vec<u32>> = (0..3).map(|seed| Numbers::new(seed).vec_u32(len)).collect();
        let buffers = expected.iter().map(|data| device.alloc_from(data)).collect::<Result<Vec<_>, _>>()?;
        let mut builder = device.graph();
        for (from, to, shift) in Self::GRAPH {
            let arguments = args![&buffers[to], &buffers[from], shift, len as u32];
            unsafe { builder.launch(&pass_on, blocks(len, BLOCK), BLOCK, &arguments) }?;
        }
        Ok(Self { graph: builder.build()?, buffers, expected, pass_on })
    }

    fn expect_pass(&mut self, from: usize, to: usize, shift: u32) {
        let source = &self.expected[from];
        let at = |at: usize| source[(at + shift as usize) % source.len()].wrapping_add(1);
        self.expected[to] = (0..source.len()).map(at).collect();
    }

    /// Runs one random step on the queue.
    fn step(&mut self, queue: &mut Queue, numbers: &mut Numbers) -> Result<(), tegra_hcq::Error> {
        let len = self.expected[0].len();
        let from = (numbers.u32() % 3) as usize;
        let to = (from + 1 + (numbers.u32() % 2) as usize) % 3;
        let value = numbers.u32();
        match numbers.u32() % 16 {
            0..=4 => {
                let shift = value % len as u32;
                let arguments = args![&self.buffers[to], &self.buffers[from], shift, len as u32];
                unsafe { queue.launch(&self.pass_on, blocks(len, BLOCK), BLOCK, &arguments) }?;
                self.expect_pass(from, to, shift);
            }
            5 => {
                let [source, target] = self.buffers.get_disjoint_mut([from, to]).expect("two of three");
                queue.copy(&*source, target)?;
                self.expected[to] = self.expected[from].clone();
            }
            6 => {
                queue.fill(&mut self.buffers[to], value)?;
                self.expected[to].fill(value);
            }
            7 => {
                let at = value as usize % len;
                queue.write(&mut self.buffers[to], at, value)?;
                self.expected[to][at] = value;
            }
            8..=10 => {
                queue.replay(&mut self.graph)?;
                Self::GRAPH.into_iter().for_each(|(from, to, shift)| self.expect_pass(from, to, shift));
            }
            11 => queue.memory_barrier()?,
            12 => queue.profile(value.is_multiple_of(4))?,
            13 => {
                let (source, target) = (&self.buffers[from], &self.buffers[to]);
                let arguments = args![target, source, 1_u32, len as u32];
                queue.together(|queue| {
                    for _ in 0..3 {
                        unsafe { queue.launch(&self.pass_on, blocks(len, BLOCK), BLOCK, &arguments) }?;
                        queue.submit()?;
                    }
                    Ok(())
                })?;
                self.expect_pass(from, to, 1);
            }
            _ => drop(queue.submit()?),
        }
        Ok(())
    }

    fn check(&self, what: &str) -> Check {
        for (at, (buffer, expected)) in self.buffers.iter().zip(&self.expected).enumerate() {
            equal(&format!("buffer {at} {what}"), &buffer.to_vec()?, expected)?;
        }
        Ok(())
    }
}

/// Random steps on two queues in turn; the host engine always ends the submissions of one.
fn mixed(context: &Context, release: ReleaseBy) -> Check {
    let device = context.device()?;
    let len = if context.is_model() { 200 } else { 5000 };
    let mut twin = Twin::new(device, len)?;
    let (mut queue, mut other) = (spinning(device, release)?, spinning(device, ReleaseBy::Host)?);
    let mut numbers = Numbers::new(41);
    for step in 0..context.rounds(20_000, 400) {
        twin.step(&mut queue, &mut numbers)?;
        match numbers.u32() % 64 {
            0 => {
                queue.wait(patience(context))?;
                drop(queue.take_profile()?);
                twin.check(&format!("after step {step}"))?;
            }
            1..=3 => {
                other.wait_fence(&queue.submit()?)?;
                core::mem::swap(&mut queue, &mut other);
            }
            4..=9 => queue.wait(patience(context))?,
            _ => {}
        }
    }
    queue.wait(patience(context))?;
    twin.check("at the end")
}

/// Launches in turn with host-engine and copy-engine steps, one submission each, without waits.
fn unwaited(context: &Context) -> Check {
    let device = context.device()?;
    let increment = kernel!(device, "basics", "increment")?;
    let rounds = context.rounds(20_000, 4000);
    for &release in releases(context) {
        let mut queue = spinning(device, release)?;
        let n = if context.is_model() { 1 } else { 5000 };
        let data = device.alloc_zeroed::<u32>(n as usize)?;
        let mut copy = device.alloc_zeroed::<u32>(n as usize)?;
        let mut word = device.alloc_zeroed::<u32>(1)?;
        let signal = device.signal(0)?;
        for round in 0..rounds {
            unsafe { queue.launch(&increment, blocks(n as usize, BLOCK), BLOCK, &args![&data, n]) }?;
            queue.submit()?;
            match round % 4 {
                // CAST: a few thousand.
                0 => queue.write(&mut word, 0, round as u32)?,
                1 => queue.signal(&signal, round)?,
                2 => queue.copy(&data, &mut copy)?,
                _ => {}
            }
            let fence = queue.submit()?;
            if round % 16 == 0 {
                fence.wait(patience(context))?;
                // CAST: as above.
                equal("launches that ran", &data.to_vec()?, &vec![round as u32 + 1; n as usize])?;
                ensure(fence.is_done(), || format!("the timeline went back below round {round}"))?;
            }
        }
        queue.copy(&data, &mut copy)?;
        queue.wait(patience(context))?;
        equal("the copied words", &copy.to_vec()?, &vec![rounds as u32; n as usize])?;
        ensure(signal.value() + 4 > rounds - 1, || format!("the signal is {}", signal.value()))?;
    }
    Ok(())
}

/// Launches on all SMs that store to host memory, then a small one. Its end is the end of all, in batches and
/// graphs.
fn chains_to_host(context: &Context) -> Check {
    let device = context.device()?;
    let (fill, increment) = (kernel!(device, "basics", "fill_u32")?, kernel!(device, "basics", "increment")?);
    let n = if context.is_model() { 1 << 12 } else { 1 << 20 };
    let rounds = if context.is_model() { 3 } else { 100 };
    let host = device.import(HostMemory::<u32>::new(n)?)?;
    let one = device.alloc_zeroed::<u32>(1)?;
    let grid = blocks(n, BLOCK);
    // CAST: at most 2^20.
    let len = n as u32;
    let mut builder = device.graph();
    unsafe { builder.launch(&fill, grid, BLOCK, &args![&host, 0_u32, len]) }?;
    unsafe { builder.launch(&increment, grid, BLOCK, &args![&host, len]) }?;
    unsafe { builder.launch(&increment, 1, 32, &args![&one, 1_u32]) }?;
    let mut graph = builder.build()?;
    for &release in releases(context) {
        let mut queue = spinning(device, release)?;
        for round in 0..rounds {
            unsafe { queue.launch(&fill, grid, BLOCK, &args![&host, round, len]) }?;
            unsafe { queue.launch(&increment, grid, BLOCK, &args![&host, len]) }?;
            unsafe { queue.launch(&increment, 1, 32, &args![&one, 1_u32]) }?;
            queue.wait(patience(context))?;
            equal("after a batch", &host.to_vec()?, &vec![round + 1; n])?;
            queue.replay(&mut graph)?.wait(patience(context))?;
            equal("after a graph", &host.to_vec()?, &vec![1; n])?;
        }
    }
    equal("the small launches", &one.to_vec()?, &[4 * rounds])
}

/// Submissions whose values exceed 32 bits halfway through.
fn across_32_bits(context: &Context) -> Check {
    let device = context.device()?;
    let increment = kernel!(device, "basics", "increment")?;
    for &release in releases(context) {
        let data = device.alloc_zeroed::<u32>(1)?;
        let options = QueueOptions::default().wait(WaitPolicy::Spin).release(release);
        let mut queue = device.queue_with(&options.first_value((1 << 32) - 20))?;
        for round in 1..=40 {
            unsafe { queue.launch(&increment, 1, 32, &args![&data, 1_u32]) }?;
            let fence = queue.submit()?;
            fence.wait(patience(context))?;
            ensure(fence.is_done(), || format!("submission {round} ended but its fence is not done"))?;
            equal("increments", &data.to_vec()?, &[round])?;
        }
    }
    Ok(())
}

/// Two queues and the CPU take turns by signals; each turn may cost a time slice.
fn held(context: &Context) -> Check {
    let device = context.device()?;
    let options = QueueOptions::default().wait(WaitPolicy::Spin).hold(true);
    let (mut left, mut right) = (device.queue_with(&options)?, device.queue_with(&options)?);
    let (go, ping, pong) = (device.signal(0)?, device.signal(0)?, device.signal(0)?);
    let increment = kernel!(device, "basics", "increment")?;
    let data = device.alloc_zeroed::<u32>(LEN as usize)?;
    for turn in 1..=10 {
        left.wait_signal(&go, turn)?;
        unsafe { left.launch(&increment, 1, LEN, &args![&data, LEN]) }?;
        left.signal(&ping, turn)?;
        left.submit()?;
        right.wait_signal(&ping, turn)?;
        unsafe { right.launch(&increment, 1, LEN, &args![&data, LEN]) }?;
        right.signal(&pong, turn)?;
        right.submit()?;
        left.wait_signal(&pong, turn)?;
        ensure(ping.value() < turn, || format!("turn {turn} began too early"))?;
        go.set(turn);
        left.wait(patience(context))?;
        // CAST: small.
        equal("after a turn", &data.to_vec()?, &[2 * turn as u32; LEN as usize])?;
    }
    Ok(())
}

/// A graph whose launches read what other blocks of the launch before have written.
struct Relay {
    graph: Graph,
    buffers: [Buffer<u32>; 2],
    marks: Buffer<u32>,
}

impl Relay {
    const STEPS: u32 = 30;
    const LEN: u32 = 1000;

    fn new(device: &Device) -> Result<Self, tegra_hcq::Error> {
        let kernel = kernel!(device, "suites", "pass_on_early")?;
        let buffers = [device.alloc_zeroed(Self::LEN as usize)?, device.alloc_zeroed(Self::LEN as usize)?];
        let mut marks = device.alloc_zeroed::<u32>(2)?;
        let mut builder = device.graph();
        builder.fill(&mut marks, 0)?;
        for step in 0..Self::STEPS {
            let [to, from] = if step % 2 == 0 { [1, 0] } else { [0, 1] }.map(|at: usize| &buffers[at]);
            let arguments = args![to, from, 70 * step, Self::LEN, &marks, step];
            unsafe {
                builder.begin_early(true);
                builder.launch(&kernel, blocks(Self::LEN as usize, BLOCK), BLOCK, &arguments)?;
            }
        }
        Ok(Self { graph: builder.build()?, buffers, marks })
    }
}

/// Launches that begin early, on one queue and on two at a time.
fn early_launches(context: &Context) -> Check {
    let device = context.device()?;
    let mut relays = [Relay::new(device)?, Relay::new(device)?];
    let mut queues = [spinning(device, ReleaseBy::Auto)?, spinning(device, ReleaseBy::Auto)?];
    for (relay, queue) in relays.iter_mut().zip(&mut queues) {
        queue.replay(&mut relay.graph)?.wait(patience(context))?;
        let early = if device.info().sm_version >= (9, 0) { Relay::STEPS - 1 } else { 0 };
        equal("launches that saw the next one begin", &relay.marks.to_vec()?[1..], &[early])?;
    }
    let rounds = if context.is_model() { 2 } else { 50 };
    for _ in 0..rounds {
        for (relay, queue) in relays.iter_mut().zip(&mut queues) {
            queue.replay(&mut relay.graph)?;
        }
    }
    for (relay, queue) in relays.iter().zip(&mut queues) {
        queue.wait(patience(context))?;
        let passed = (rounds + 1) * Relay::STEPS;
        equal("after all launches", &relay.buffers[0].to_vec()?, &[passed; Relay::LEN as usize])?;
    }
    Ok(())
}

/// Replays of one graph on two queues; the first queue's timeline must not go back.
fn graph_on_both(context: &Context) -> Check {
    let device = context.device()?;
    let data = device.alloc_zeroed::<u32>(1)?;
    let increment = kernel!(device, "basics", "increment")?;
    let mut builder = device.graph();
    unsafe { builder.instances(1)?.launch(&increment, 1, 32, &args![&data, 1_u32]) }?;
    let mut graph = builder.build()?;
    let mut queues = Vec::new();
    let other = releases(context).last().copied().unwrap_or_default();
    for release in [other, ReleaseBy::Host, other] {
        queues.push(spinning(device, release)?);
    }
    for (first, second) in [(0, 1), (1, 0), (0, 2), (2, 1), (1, 2)] {
        queues[first].replay(&mut graph)?.wait(patience(context))?;
        unsafe { queues[first].launch(&increment, 1, 32, &args![&data, 1_u32]) }?;
        let fence = queues[first].submit()?;
        fence.wait(patience(context))?;
        queues[second].replay(&mut graph)?.wait(patience(context))?;
        ensure(fence.is_done(), || {
            format!("the timeline of queue {first} went back after the replay on queue {second}")
        })?;
    }
    equal("increments", &data.to_vec()?, &[15])
}

/// Grids twice as large as the SMs hold, for blocks of all sizes and with little or much shared memory.
fn full_sms(context: &Context) -> Check {
    let device = context.device()?;
    let mut queue = spinning(device, ReleaseBy::Auto)?;
    let sms = device.info().sm_count;
    let step = if context.is_model() { 480 } else { 32 };
    for (file, kernel) in [
        ("basics", kernel!(device, "basics", "increment")?),
        ("suites", kernel!(device, "suites", "pass_on")?),
    ] {
        let most = kernel.attributes().max_dynamic_shared_bytes;
        for threads in (32..=kernel.max_threads()).step_by(step) {
            for dynamic in [0, 1 << 10, 9 << 10, 40 << 10, 100 << 10, most] {
                let Ok(occupancy) = kernel.occupancy(threads, dynamic) else { continue };
                let slots = occupancy.blocks_per_sm * sms;
                for grid in [1, sms, sms + 1, slots, 2 * slots + 1] {
                    let n = grid * threads;
                    let data = device.alloc_zeroed::<u32>(n as usize)?;
                    let out = device.alloc_zeroed::<u32>(n as usize)?;
                    let arguments = if file == "basics" {
                        args![&out, n].to_vec()
                    } else {
                        args![&out, &data, 0_u32, n].to_vec()
                    };
                    unsafe { queue.launch_with_shared(&kernel, grid, threads, dynamic, &arguments) }?;
                    queue.wait(patience(context))?;
                    let sum: u64 = out.to_vec()?.iter().map(|&value| u64::from(value)).sum();
                    ensure(sum == u64::from(n), || {
                        format!(
                            "{grid} blocks of {threads} threads, {dynamic} bytes of shared memory: {sum} ran"
                        )
                    })?;
                }
            }
        }
    }
    Ok(())
}

/// One queue keeps the SMs full; two more run chains of small grids at the same time.
fn small_beside_large(context: &Context) -> Check {
    let device = context.device()?;
    let increment = kernel!(device, "basics", "increment")?;
    let sms = device.info().sm_count;
    let rounds = context.rounds(2000, 10);
    let mut lanes = Vec::new();
    for (grid, threads, dynamic) in
        [(sms * if context.is_model() { 3 } else { 64 }, 256, 0), (sms, 64, 40 << 10), (1, 1024, 0)]
    {
        let n = grid * threads;
        let data = device.alloc_zeroed::<u32>(n as usize)?;
        lanes.push((spinning(device, ReleaseBy::Auto)?, data, grid, threads, dynamic));
    }
    for _ in 0..rounds {
        for (queue, data, grid, threads, dynamic) in &mut lanes {
            let n = *grid * *threads;
            for _ in 0..3 {
                unsafe {
                    queue.launch_with_shared(&increment, *grid, *threads, *dynamic, &args![&*data, n])
                }?;
            }
            queue.submit()?;
        }
    }
    // CAST: a few thousand.
    let wanted = 3 * rounds as u32;
    for (queue, data, ..) in &mut lanes {
        queue.wait(patience(context))?;
        equal("launches that ran", &data.to_vec()?, &vec![wanted; data.len()])?;
    }
    Ok(())
}
