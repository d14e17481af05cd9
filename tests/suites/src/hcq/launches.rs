//! Launches and recorded launches.

use std::time::{Duration, Instant};

use tegra_hcq::{DeviceKind, Error, LaunchError, Priority, QueueOptions, WaitPolicy, args};

use crate::fixtures::{ensure, equal, kernel, patience};
use test_harness::{Check, Context};

pub(super) fn one(context: &Context) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    let plus_one = kernel!(device, "suites", "plus_one_f32")?;
    let (a, b) = (device.alloc_zeroed::<f32>(2)?, device.alloc_zeroed::<f32>(2)?);
    unsafe { queue.launch(&plus_one, 1, 2, &args![&b, &a, 2_u32]) }?;
    queue.wait(patience(context))?;
    equal("b", &b.to_vec()?, &[1.0, 1.0])
}

pub(super) fn two_hundred_times(context: &Context) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    let plus_one = kernel!(device, "suites", "plus_one_f32")?;
    let (a, b) = (device.alloc_zeroed::<f32>(2)?, device.alloc_zeroed::<f32>(2)?);
    for _ in 0..100 {
        // Two dependent launches, submitted without waiting in between.
        unsafe { queue.launch(&plus_one, 1, 2, &args![&b, &a, 2_u32]) }?;
        unsafe { queue.launch(&plus_one, 1, 2, &args![&a, &b, 2_u32]) }?;
        queue.submit()?;
    }
    queue.wait(patience(context))?;
    equal("a", &a.to_vec()?, &[200.0, 200.0])
}

pub(super) fn chain_across_blocks(context: &Context) -> Check {
    const BLOCK: u32 = 128;
    let (device, mut queue) = context.device_and_queue()?;
    let pass_on = kernel!(device, "suites", "pass_on")?;
    // Enough blocks for a few hundred SMs; no block reads the elements it wrote.
    let blocks = if context.is_model() { 8 } else { 528 };
    let (n, shift) = (blocks * BLOCK - 5, 3 * BLOCK + 7);
    let start: Vec<u32> = (0..n).map(|at| at.wrapping_mul(0x9e37_79b9)).collect();
    let (a, b) = (device.alloc_from(&start)?, device.alloc_zeroed::<u32>(n as usize)?);
    // CAST: far below 2^32.
    let pairs = context.rounds(500, 8) as u32;
    // As chained batches, then as a graph.
    for _ in 0..pairs {
        unsafe { queue.launch(&pass_on, blocks, BLOCK, &args![&b, &a, shift, n]) }?;
        unsafe { queue.launch(&pass_on, blocks, BLOCK, &args![&a, &b, shift, n]) }?;
    }
    let mut builder = device.graph();
    for _ in 0..pairs {
        unsafe { builder.launch(&pass_on, blocks, BLOCK, &args![&b, &a, shift, n]) }?;
        unsafe { builder.launch(&pass_on, blocks, BLOCK, &args![&a, &b, shift, n]) }?;
    }
    let mut graph = builder.build()?;
    queue.replay(&mut graph)?.wait(patience(context))?;
    let steps = 4 * pairs;
    let place = |at: u32| (u64::from(at) + u64::from(steps) * u64::from(shift)) % u64::from(n);
    let expected: Vec<u32> = (0..n).map(|at| start[place(at) as usize].wrapping_add(steps)).collect();
    equal("passed-on values", &a.to_vec()?, &expected)
}

pub(super) fn grid_barrier(context: &Context) -> Check {
    const BLOCK: u32 = 64;
    let (device, mut queue) = context.device_and_queue()?;
    let rotate = kernel!(device, "grid", "grid_rotate")?;
    let fitting = rotate.occupancy(BLOCK, 0)?.blocks_per_sm * device.info().sm_count;
    let blocks = if context.is_model() { 96 } else { fitting };
    let threads = blocks * BLOCK;
    let start: Vec<u32> = (0..threads).collect();
    let (data, spare) = (device.alloc_from(&start)?, device.alloc_zeroed::<u32>(threads as usize)?);
    // CAST: far below 2^32. Even, so that the result is in `data`.
    let rounds = 2 * context.rounds(500, 3) as u32;
    // The second launch finds the workspace as the first has left it.
    for launches in 1..=2 {
        unsafe { queue.launch(&rotate, blocks, BLOCK, &args![&data, &spare, rounds]) }?;
        queue.submit()?.wait(patience(context))?;
        let steps = rounds * launches;
        let expected: Vec<u32> = (0..threads).map(|i| (i + 37 * steps) % threads + steps).collect();
        equal("rotated values", &data.to_vec()?, &expected)?;
    }
    let refused = unsafe { queue.launch(&rotate, fitting + 1, BLOCK, &args![&data, &spare, rounds]) };
    ensure(
        matches!(refused, Err(Error::Launch(LaunchError::GridBarrier { limit, .. })) if limit == fitting),
        || format!("{} blocks, one more than fit: {refused:?}", fitting + 1),
    )
}

pub(super) fn priority(context: &Context) -> Check {
    const WAVES: u32 = 8;
    let device = context.device()?;
    // Queues that sleep end each submission by a wait for idle, also for that of the other queue.
    let options = QueueOptions::default().wait(WaitPolicy::Spin);
    let mut low = device.queue_with(&options)?;
    let spend = kernel!(device, "suites", "spend")?;
    let first = low.submit()?;
    let mut high = device.queue_beside(&first, &options)?;
    low.set_overlap(true);
    high.set_overlap(true);
    high.set_priority(Priority::above_usual(1));
    let (block, mut count) = (1024, device.alloc_zeroed::<u32>(1)?);
    let wave = spend.occupancy(block, 0)?.blocks_per_sm * device.info().sm_count;
    let (blocks, nanoseconds) = if context.is_model() { (4, 1000) } else { (WAVES * wave, 200_000) };
    // The first launch of a queue prepares it, behind a wait for idle.
    unsafe { high.launch(&spend, 1, block, &args![&count, 0_u32]) }?;
    high.submit()?.wait(patience(context))?;
    count.copy_from_slice(&[0])?;
    let mut longest = Duration::ZERO;
    for _ in 0..context.rounds(10, 1) {
        let start = Instant::now();
        unsafe { low.launch(&spend, blocks, block, &args![&count, nanoseconds]) }?;
        let all = low.submit()?;
        unsafe { high.launch(&spend, 1, block, &args![&count, 1000_u32]) }?;
        high.submit()?.wait(patience(context))?;
        let beside = start.elapsed();
        all.wait(patience(context))?;
        equal("blocks", &count.to_vec()?, &[blocks + 1])?;
        count.copy_from_slice(&[0])?;
        longest = longest.max(beside);
        // Without priority it ends when all blocks of the other grid have begun: after seven of eight waves.
        // On an Orin the queues have groups of their own, which run in turns.
        let is_measured = context.kind() == DeviceKind::Nvrm;
        ensure(!is_measured || beside < start.elapsed() / 2, || {
            format!("{beside:?} of {:?}", start.elapsed())
        })?;
    }
    context.note(format!("a block of higher priority ended after {longest:?} at most"));
    Ok(())
}

pub(super) fn branches(context: &Context) -> Check {
    const LEN: u32 = 4096;
    const BRANCHES: usize = 4;
    const LENGTH: u32 = 5;
    let (device, mut queue) = context.device_and_queue()?;
    let pass_on = kernel!(device, "suites", "pass_on")?;
    let start: Vec<u32> = (0..LEN).collect();
    let make = |_| Ok::<_, Error>([device.alloc_from(&start)?, device.alloc_zeroed::<u32>(LEN as usize)?]);
    let mut pairs = (0..BRANCHES).map(make).collect::<Result<Vec<_>, _>>()?;
    let mut builder = device.graph();
    let blocks = LEN / 256;
    for (branch, [a, b]) in pairs.iter().enumerate() {
        if branch > 0 {
            // SAFETY: each branch has buffers of its own.
            unsafe { builder.beside() };
        }
        for step in 0..LENGTH {
            let (from, to) = if step % 2 == 0 { (a, b) } else { (b, a) };
            unsafe { builder.launch(&pass_on, blocks, 256, &args![to, from, 1_u32, LEN]) }?;
        }
    }
    // The join: one more step of the first branch, and the results of the last in the first's other buffer.
    builder.join();
    let ([a, b], [_, last]) = (&pairs[0], &pairs[BRANCHES - 1]);
    unsafe { builder.launch(&pass_on, blocks, 256, &args![a, b, 1_u32, LEN]) }?;
    unsafe { builder.launch(&pass_on, blocks, 256, &args![b, last, 1_u32, LEN]) }?;
    let mut graph = builder.build()?;
    let steps = |count: u32| -> Vec<u32> { (0..LEN).map(|at| (at + count) % LEN + count).collect() };
    for round in 0..context.rounds(200, 3) {
        for [a, b] in &mut pairs {
            a.copy_from_slice(&start)?;
            b.copy_from_slice(&vec![0; LEN as usize])?;
        }
        queue.replay(&mut graph)?.wait(patience(context))?;
        for (branch, [_, b]) in pairs.iter().enumerate().skip(1) {
            equal(&format!("branch {branch} of replay {round}"), &b.to_vec()?, &steps(LENGTH))?;
        }
        equal("the step that joins", &pairs[0][0].to_vec()?, &steps(LENGTH + 1))?;
        equal("the step after it", &pairs[0][1].to_vec()?, &steps(LENGTH + 1))?;
    }
    Ok(())
}

pub(super) fn clusters(context: &Context) -> Check {
    const BLOCK: u32 = 64;
    let (device, mut queue) = context.device_and_queue()?;
    let kernel = kernel!(device, "cluster", "cluster_sum")?;
    let has_clusters = device.info().sm_version >= (9, 0);
    let refused = kernel.with_cluster(if has_clusters { 17 } else { 2 });
    ensure(matches!(refused, Err(Error::Launch(LaunchError::Cluster { .. }))), || format!("{refused:?}"))?;
    let shapes = [[8, 6, 4], [6, 2, 2]];
    let sizes: &[[u32; 3]] =
        if has_clusters { &[[2, 1, 1], [1, 3, 1], [2, 2, 2], [8, 1, 1]] } else { &[[1; 3]] };
    let blocks = shapes[0].iter().product::<u32>();
    let values: Vec<u32> = (0..blocks).map(|at| at * at + 1).collect();
    let (input, mut out) = (device.alloc_from(&values)?, device.alloc_zeroed::<u32>(2 * blocks as usize)?);
    for &size in sizes {
        let clustered = if has_clusters { kernel.with_cluster(size)? } else { kernel.clone() };
        let mut builder = device.graph();
        let node = unsafe { builder.launch(&clustered, shapes[0], BLOCK, &args![&input, &out]) }?;
        let mut graph = builder.build()?;
        for grid in shapes {
            let expected = sums_of_clusters(&values, grid, size);
            if grid.iter().zip(size).any(|(blocks, cluster)| blocks % cluster != 0) {
                let refused = unsafe { queue.launch(&clustered, grid, BLOCK, &args![&input, &out]) };
                let is_right = matches!(refused, Err(Error::Launch(LaunchError::ClusterGrid { .. })));
                ensure(is_right, || format!("{grid:?} in clusters of {size:?}: {refused:?}"))?;
                continue;
            }
            let seen = |what, got: Vec<u32>| equal(what, &got[..expected.len()], &expected);
            unsafe { queue.launch(&clustered, grid, BLOCK, &args![&input, &out]) }?;
            queue.submit()?.wait(patience(context))?;
            seen("sums of a launch", out.to_vec()?)?;
            queue.fill(&mut out, 0)?;
            unsafe { graph.set_size(node, grid, BLOCK) }?;
            queue.replay(&mut graph)?.wait(patience(context))?;
            seen("sums of a replay", out.to_vec()?)?;
        }
    }
    Ok(())
}

/// What `cluster_sum` writes: for each block the sum of its cluster, and its rank there.
fn sums_of_clusters(values: &[u32], grid: [u32; 3], size: [u32; 3]) -> Vec<u32> {
    let places = |[width, height, depth]: [u32; 3]| {
        (0..depth).flat_map(move |z| (0..height).flat_map(move |y| (0..width).map(move |x| [x, y, z])))
    };
    let number = |[x, y, z]: [u32; 3], [width, height, _]: [u32; 3]| x + width * (y + height * z);
    let axis = |block: [u32; 3], of: fn(u32, u32) -> u32| [0, 1, 2].map(|axis| of(block[axis], size[axis]));
    let sums = places(grid).map(|block| {
        let first = axis(block, |at, size| at - at % size);
        let members = places(size).map(|inner| [0, 1, 2].map(|axis| first[axis] + inner[axis]));
        let sum = members.map(|member| values[number(member, grid) as usize]).sum();
        [sum, number(axis(block, |at, size| at % size), size)]
    });
    sums.flatten().collect()
}

pub(super) fn rewritten_in_place(context: &Context) -> Check {
    const LEN: usize = 4096;
    const BLOCK: u32 = 128;
    let (device, mut queue) = context.device_and_queue()?;
    let pass_on = kernel!(device, "suites", "pass_on")?;
    let mut input = device.alloc_zeroed::<u32>(LEN)?;
    let (middle, output) = (device.alloc_zeroed::<u32>(LEN)?, device.alloc_zeroed::<u32>(LEN)?);
    // CAST: far below 2^32.
    let n = LEN as u32;
    let grid = n / BLOCK;
    let mut builder = device.graph();
    unsafe { builder.launch(&pass_on, grid, BLOCK, &args![&middle, &input, 1_u32, n]) }?;
    unsafe { builder.launch(&pass_on, grid, BLOCK, &args![&output, &middle, 1_u32, n]) }?;
    let mut graph = builder.build()?;
    for round in 0..context.rounds(10_000, 40) {
        // CAST: a few thousand rounds.
        let value = |at: u32| (round as u32).wrapping_mul(0x9e37_79b9) ^ at;
        for (at, word) in input.view()?.iter_mut().enumerate() {
            *word = value(at as u32);
        }
        if round % 2 == 0 {
            queue.replay(&mut graph)?.wait(patience(context))?;
        } else {
            unsafe { queue.launch(&pass_on, grid, BLOCK, &args![&middle, &input, 1_u32, n]) }?;
            unsafe { queue.launch(&pass_on, grid, BLOCK, &args![&output, &middle, 1_u32, n]) }?;
            queue.wait(patience(context))?;
        }
        let expected: Vec<u32> = (0..n).map(|at| value((at + 2) % n).wrapping_add(2)).collect();
        equal(&format!("output of round {round}"), &output.to_vec()?, &expected)?;
    }
    Ok(())
}

pub(super) fn update(context: &Context) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    let plus_one = kernel!(device, "suites", "plus_one_f32")?;
    let (a, b) = (device.alloc_zeroed::<f32>(2)?, device.alloc_zeroed::<f32>(2)?);
    let mut builder = device.graph();
    let node = unsafe { builder.launch(&plus_one, 4, 256, &args![&b, &a, 2_u32]) }?;
    let mut graph = builder.build()?;
    unsafe { graph.set_size(node, 1, 1) }?;
    queue.replay(&mut graph)?.wait(patience(context))?;
    equal("b", &b.to_vec()?, &[1.0, 0.0])
}

pub(super) fn update_fuzz(context: &Context) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    let mark = kernel!(device, "suites", "mark_threads")?;
    let mut cube = device.alloc_zeroed::<u32>(27)?;
    let mut builder = device.graph();
    let node = unsafe { builder.launch(&mark, 1, (3, 3, 3), &args![&cube]) }?;
    let mut graph = builder.build()?;
    for (x, y, z) in (0..27).map(|n| (n % 3 + 1, n / 3 % 3 + 1, n / 9 + 1)) {
        cube.view()?.fill(0);
        unsafe { graph.set_size(node, 1, (x, y, z)) }?;
        queue.replay(&mut graph)?.wait(patience(context))?;
        let marked: u32 = cube.to_vec()?.iter().sum();
        ensure(marked == x * y * z, || format!("block {x}x{y}x{z}: {marked} threads ran"))?;
    }
    Ok(())
}

pub(super) fn bind(context: &Context) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    let increment = kernel!(device, "basics", "increment")?;
    let data = device.alloc_zeroed::<u32>(256)?;
    let mut copies: Vec<_> = (0..8).map(|_| device.alloc_zeroed::<u32>(256)).collect::<Result<_, _>>()?;
    let mut filled = device.alloc_zeroed::<u32>(256)?;
    let mut builder = device.graph();
    let launch = unsafe { builder.launch(&increment, 8, 32, &args![&data, 256_u32]) }?;
    let copy = builder.copy(&data, &mut copies[0])?;
    builder.fill(&mut filled, 0xabcd)?;
    let mut graph = builder.build()?;
    for (round, target) in copies.iter_mut().enumerate() {
        unsafe { graph.set_argument(launch, 1, 32 * (round as u32 + 1)) }?;
        graph.set_copy(copy, &data, target)?;
        queue.replay(&mut graph)?;
    }
    queue.wait(patience(context))?;
    for (round, copy) in copies.iter().enumerate() {
        // Replay r raised the first 32 (r + 1) words; word i has been raised since replay i / 32.
        let wanted: Vec<u32> = (0..256).map(|i| (round as u32 + 1).saturating_sub(i / 32)).collect();
        equal(&format!("copy of replay {round}"), &copy.to_vec()?, &wanted)?;
    }
    equal("filled", &filled.to_vec()?, &[0xabcd; 256])
}

pub(super) fn exec_time(context: &Context) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    let plus_one = kernel!(device, "suites", "plus_one_f32")?;
    let (a, b) = (device.alloc_zeroed::<f32>(2)?, device.alloc_zeroed::<f32>(2)?);
    let (start, end) = (device.signal(0)?, device.signal(0)?);
    let mut best = u64::MAX;
    for round in 1..=10 {
        queue.timestamp(&start, round)?;
        unsafe { queue.launch(&plus_one, 1, 2, &args![&b, &a, 2_u32]) }?;
        queue.timestamp(&end, round)?;
        queue.wait(patience(context))?;
        let (start, end) = (start.gpu_time_ns(), end.gpu_time_ns());
        ensure(end > start, || format!("the launch ended at {end} ns but began at {start} ns"))?;
        best = best.min(end - start);
    }
    context.note(format!("one launch of 2 threads takes {best} ns of GPU time"));
    // On a model the time is that of the interpreter.
    ensure(context.is_model() || (100..100_000).contains(&best), || format!("{best} ns is not plausible"))
}
