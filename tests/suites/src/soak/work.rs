//! Ordinary operations of programs, with checked results.

use tegra_hcq::{HostMemory, Program, args};

use super::worker::{Worker, cubin};
use crate::fixtures::{blocks, ensure, equal};
use test_harness::Check;

/// An operation and its name.
pub(super) type Operation = (&'static str, fn(&mut Worker<'_>) -> Check);

/// All operations.
pub(super) const OPERATIONS: [Operation; 8] = [
    ("launches", launches),
    ("graph", graph),
    ("copies", copies),
    ("fill", fill),
    ("import", import),
    ("churn", churn),
    ("program", program),
    ("signals", signals),
];

/// Number of elements of a buffer, as a kernel argument.
fn count(len: usize) -> u32 {
    // CAST: lengths here are far below 2^32.
    len as u32
}

fn launches(w: &mut Worker<'_>) -> Check {
    let (len, rounds, value) = (w.len(), w.below(6), w.numbers.u32());
    let data = w.device.alloc::<u32>(len)?;
    let (fill, increment) = (w.basic("fill_u32")?, w.basic("increment")?);
    unsafe { w.queue.launch(&fill, blocks(len, 128), 128, &args![&data, value, count(len)]) }?;
    for _ in 0..rounds {
        unsafe { w.queue.launch(&increment, blocks(len, 64), 64, &args![&data, count(len)]) }?;
        if w.below(2) == 0 {
            w.queue.submit()?;
        }
    }
    w.queue.submit()?;
    equal("launches", &data.to_vec()?, &vec![value.wrapping_add(rounds); len])
}

fn graph(w: &mut Worker<'_>) -> Check {
    let len = w.len();
    let (fill, increment) = (w.basic("fill_u32")?, w.basic("increment")?);
    let data = w.device.alloc_zeroed::<u32>(len)?;
    let mut targets = [w.device.alloc_zeroed::<u32>(len)?, w.device.alloc_zeroed::<u32>(len)?];
    let mut marks = w.device.alloc_zeroed::<u32>(len)?;
    let grid = blocks(len, 128);
    let mut builder = w.device.graph();
    let first = unsafe { builder.launch(&fill, grid, 128, &args![&data, 0_u32, count(len)]) }?;
    unsafe { builder.launch(&increment, grid, 128, &args![&data, count(len)]) }?;
    let copy = builder.copy(&data, &mut targets[0])?;
    builder.fill(&mut marks, 7)?;
    let mut graph = builder.build()?;
    for round in 0..1 + w.below(6) {
        let value = w.numbers.u32();
        let target = &mut targets[(round % 2) as usize];
        unsafe { graph.set_argument(first, 1, value) }?;
        graph.set_copy(copy, &data, &mut *target)?;
        let fence = w.queue.replay(&mut graph)?;
        fence.wait(w.patience())?;
        equal("the graph's copy", &target.to_vec()?, &vec![value.wrapping_add(1); len])?;
    }
    equal("the graph's fill", &marks.to_vec()?, &vec![7; len])
}

fn copies(w: &mut Worker<'_>) -> Check {
    let len = w.len();
    let input = w.numbers.vec_u32(len);
    let source = w.device.alloc_from(&input)?;
    let mut middle = w.device.alloc_zeroed::<u32>(len)?;
    let mut target = w.device.alloc_zeroed::<u32>(len)?;
    let from = w.below(count(len)) as usize;
    w.queue.copy(source.slice(from..)?, middle.slice_mut(from..)?)?;
    let fence = w.queue.submit()?;
    // The second half runs on the other queue, after the first.
    w.other.wait_fence(&fence)?;
    w.other.copy(&middle, &mut target)?;
    w.other.submit()?;
    let mut wanted = vec![0; len];
    wanted[from..].copy_from_slice(&input[from..]);
    equal("the copy", &target.to_vec()?, &wanted)
}

fn fill(w: &mut Worker<'_>) -> Check {
    let (len, value) = (w.len(), w.numbers.u32());
    let mut data = w.device.alloc_zeroed::<u32>(len)?;
    let from = w.below(count(len)) as usize;
    w.queue.fill(data.slice_mut(from..)?, value)?;
    w.queue.submit()?;
    let got = data.to_vec()?;
    equal("before the fill", &got[..from], &vec![0; from])?;
    equal("the fill", &got[from..], &vec![value; len - from])
}

fn import(w: &mut Worker<'_>) -> Check {
    let len = w.len();
    let input = w.numbers.vec_u32(len);
    let mut host = w.device.import(HostMemory::from_slice(&input)?)?;
    let mut target = w.device.alloc_zeroed::<u32>(len)?;
    let increment = w.basic("increment")?;
    unsafe { w.queue.launch(&increment, blocks(len, 128), 128, &args![&host, count(len)]) }?;
    w.queue.copy(&host, &mut target)?;
    w.queue.submit()?;
    let wanted: Vec<u32> = input.iter().map(|value| value.wrapping_add(1)).collect();
    equal("the copy of the process's memory", &target.to_vec()?, &wanted)?;
    equal("the process's memory", &host.view()?, &wanted)
}

fn churn(w: &mut Worker<'_>) -> Check {
    let fill = w.basic("fill_u32")?;
    let mut kept = Vec::new();
    for _ in 0..12 {
        let words = 16 + w.below(100_000) as usize;
        let (buffer, value) = (w.device.alloc::<u32>(words)?, w.numbers.u32());
        unsafe { w.queue.launch(&fill, 1, 64, &args![buffer.slice(words - 16..)?, value, 16_u32]) }?;
        w.queue.submit()?;
        // Half of them are dropped in flight.
        if w.below(2) == 0 {
            kept.push((value, buffer));
        }
    }
    for (value, buffer) in kept {
        equal("the end of a buffer", &buffer.slice(buffer.len() - 16..)?.to_vec()?, &[value; 16])?;
    }
    if w.below(4) == 0 {
        w.device.trim();
    }
    Ok(())
}

/// Drops a program while its kernel runs.
fn program(w: &mut Worker<'_>) -> Check {
    let len = w.len();
    let out = w.device.alloc_zeroed::<f32>(len)?;
    let (a, b) = (vec![1.5_f32; len], w.device.alloc_from(&vec![2.0_f32; len])?);
    match w.below(2) {
        0 => {
            let a = w.device.alloc_from(&a)?;
            let program = Program::load_fitting(w.device, &cubin!("vector_add"))?;
            let kernel = program.kernel("vector_add")?;
            unsafe { w.queue.launch(&kernel, blocks(len, 128), 128, &args![&a, &b, &out, count(len)]) }?;
        }
        _ => {
            let program = Program::load_fitting(w.device, &cubin!("suites"))?;
            let kernel = program.kernel("add_f32")?;
            unsafe { w.queue.launch(&kernel, blocks(len, 128), 128, &args![&out, 3.5_f32, count(len)]) }?;
        }
    }
    let fence = w.queue.submit()?;
    w.finish(&fence)?;
    equal("the sum", &out.to_vec()?, &vec![3.5; len])
}

/// The queues take turns; the CPU delays one of them first.
fn signals(w: &mut Worker<'_>) -> Check {
    let increment = w.basic("increment")?;
    let data = w.device.alloc_zeroed::<u32>(32)?;
    let signal = w.device.signal(0)?;
    let turns = 2 + w.below(6);
    for turn in 0..turns {
        let queue = if turn % 2 == 0 { &mut w.queue } else { &mut w.other };
        queue.wait_signal(&signal, u64::from(turn) + 1)?;
        unsafe { queue.launch(&increment, 1, 32, &args![&data, 32_u32]) }?;
        queue.signal(&signal, u64::from(turn) + 2)?;
        queue.submit()?;
    }
    ensure(signal.value() == 0, || format!("the signal is {} before it was raised", signal.value()))?;
    signal.set(1);
    signal.wait(u64::from(turns) + 1, w.patience())?;
    equal("turns", &data.to_vec()?, &[turns; 32])
}
