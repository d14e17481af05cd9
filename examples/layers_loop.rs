//! Section 3 of docs/guide.md: a control loop. Each cycle replays the graph, polls for completion and reads the result
//! in place, without a system call or an allocation.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use orin_cli::say;
use tegra_hcq::{Count, Device, DeviceKind, Program, QueueOptions, WaitPolicy};

const N: u32 = 256;
const CYCLES: u32 = 500;
const LIMIT: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    examples::run(program)
}

fn program() -> Result<()> {
    let device = Device::open(DeviceKind::Auto)?;
    let program = Program::load(&device, include_bytes!("../kernels/square_plus_one.cubin"))?;
    // SAFETY: the kernel writes out[i] for i < n only.
    let square = unsafe { program.typed::<(&mut [f32], Count<u32>)>("square_plus_one")? };
    let mut out = device.alloc_zeroed::<f32>(N as usize)?;
    let mut recording = device.graph();
    let launch = square.record(&mut recording, 1, N, (&mut out, N))?;
    let mut graph = recording.build()?;
    let mut queue = device.queue_with(&QueueOptions::default().wait(WaitPolicy::Spin))?;

    let mut longest = Duration::ZERO;
    for cycle in 0..CYCLES {
        let start = Instant::now();
        // Simulates a sensor: the number of squares to compute.
        let wanted = cycle % N + 1;
        graph.set_launch(&launch, 1, N, (&mut out, wanted))?;
        queue.replay(&mut graph)?.wait(LIMIT)?;
        let mut result = out.view_within(LIMIT)?;
        let last = wanted - 1;
        ensure!(result[last as usize] == (last * last + 1) as f32, "cycle {cycle}");
        result.fill(0.0);
        longest = longest.max(start.elapsed());
    }
    say!("{CYCLES} cycles, all right, the longest {longest:?}")?;
    Ok(())
}
