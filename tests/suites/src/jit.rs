//! Thousands of recorded graphs in one process: memory does not grow.

use std::time::Duration;

use tegra_hcq::{Device, Queue, args};

use super::fixtures::{case, ensure, equal, kernel, patience};
use test_harness::{Check, Context, Suite};
use test_support::process;

/// Graphs recorded by one process, on a board and on a model.
const GRAPHS: [u64; 2] = [5000, 1000];
/// Growth of resident memory treated as noise, in bytes.
const NOISE: u64 = 16 << 20;

/// The suite.
pub static SUITE: Suite = Suite {
    name: "jit",
    about: "recording and replaying: 5,000 graphs (1,000 on a model), patched, dropped, kept, on several queues",
    orin_only: false,
    tests: &[
        case!(record_and_replay_5000, "5,000 graphs, 1,000 on a model: memory flat", record_and_replay)
            .limited_to(Duration::from_secs(300)),
        case!(dropped_in_flight, "graphs dropped while the GPU runs them"),
        case!(kept_and_patched, "a hundred graphs replayed in turn with new arguments"),
        case!(one_queue_each, "graphs recorded and replayed by several threads"),
    ],
};

/// Records a graph that adds 2 to every word and copies the result, replays it and checks it.
fn one_graph(context: &Context, device: &Device, queue: &mut Queue, value: u32) -> Check {
    let increment = kernel!(device, "basics", "increment")?;
    let data = device.alloc_from(&[value; 64])?;
    let mut copy = device.alloc::<u32>(64)?;
    let mut builder = device.graph();
    unsafe { builder.launch(&increment, 2, 32, &args![&data, 64_u32]) }?;
    unsafe { builder.launch(&increment, 2, 32, &args![&data, 64_u32]) }?;
    builder.copy(&data, &mut copy)?;
    let mut graph = builder.build()?;
    queue.replay(&mut graph)?.wait(patience(context))?;
    equal(&format!("graph {value}"), &copy.to_vec()?, &[value + 2; 64])
}

fn record_and_replay(context: &Context) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    for value in 0..100 {
        one_graph(context, device, &mut queue, value)?;
    }
    // CAST: a few thousand.
    let graphs = context.rounds(GRAPHS[0], GRAPHS[1]) as u32;
    let (held, resident, used) =
        (process::resources(), process::resident_bytes(), device.memory_usage().reserved);
    for value in 100..graphs {
        one_graph(context, device, &mut queue, value)?;
    }
    let grown = process::resident_bytes().saturating_sub(resident);
    context.note(format!("{graphs} graphs; resident memory grew by {} KiB", grown >> 10));
    ensure(grown < NOISE, || format!("resident memory grew by {grown} bytes"))?;
    let reserved = device.memory_usage().reserved;
    ensure(reserved <= used, || format!("the allocator reserved {} more bytes", reserved - used))?;
    Ok(process::within(held, 10)?)
}

fn dropped_in_flight(context: &Context) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    let increment = kernel!(device, "basics", "increment")?;
    let data = device.alloc_zeroed::<u32>(32)?;
    for _ in 0..200 {
        let mut builder = device.graph();
        unsafe { builder.launch(&increment, 1, 32, &args![&data, 32_u32]) }?;
        queue.replay(&mut builder.build()?)?;
    }
    queue.wait(patience(context))?;
    equal("data", &data.to_vec()?, &[200; 32])
}

fn kept_and_patched(context: &Context) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    let fill = kernel!(device, "basics", "fill_u32")?;
    let outputs: Vec<_> = (0..100).map(|_| device.alloc_zeroed::<u32>(32)).collect::<Result<_, _>>()?;
    let mut graphs = Vec::new();
    for out in &outputs {
        let mut builder = device.graph();
        let node = unsafe { builder.launch(&fill, 1, 32, &args![out, 0_u32, 32_u32]) }?;
        graphs.push((node, builder.build()?));
    }
    for round in 1..=20_u32 {
        for (index, (node, graph)) in (0_u32..).zip(&mut graphs) {
            unsafe { graph.set_argument(*node, 1, round * 1000 + index) }?;
            queue.replay(graph)?;
        }
    }
    queue.wait(patience(context))?;
    for (index, out) in (0_u32..).zip(&outputs) {
        equal(&format!("output {index}"), &out.to_vec()?, &[20_000 + index; 32])?;
    }
    Ok(())
}

fn one_queue_each(context: &Context) -> Check {
    let device = context.device()?;
    let results = std::thread::scope(|scope| {
        let run = |thread: u32| -> Check {
            let mut queue = device.queue()?;
            for value in 0..50 {
                one_graph(context, device, &mut queue, thread * 1000 + value)?;
            }
            Ok(())
        };
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || run(thread))).collect();
        threads.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
    });
    for result in results {
        result.map_err(|_| "a thread panicked")??;
    }
    Ok(())
}
