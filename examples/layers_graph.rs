//! Section 2 of docs/guide.md: work that is recorded once and replayed many times.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use orin_cli::say;
use tegra_hcq::{Count, Device, DeviceKind, Program};

const N: u32 = 1000;

fn main() -> ExitCode {
    examples::run(program)
}

fn program() -> Result<()> {
    let device = Device::open(DeviceKind::Auto)?;
    let program = Program::load(&device, include_bytes!("../kernels/square_plus_one.cubin"))?;
    // SAFETY: the kernel writes out[i] for i < n only.
    let square = unsafe { program.typed::<(&mut [f32], Count<u32>)>("square_plus_one")? };
    let mut out = device.alloc::<f32>(N as usize)?;
    let mut published = device.alloc::<f32>(N as usize)?;
    let mut queue = device.queue()?;

    let mut recording = device.graph();
    let launch = square.record(&mut recording, N.div_ceil(256), 256, (&mut out, N))?;
    recording.copy(&out, &mut published)?;
    let mut graph = recording.build()?;

    for n in [N, N / 2] {
        graph.set_launch(&launch, n.div_ceil(256), 256, (&mut out, n))?;
        queue.replay(&mut graph)?.wait(Duration::from_secs(10))?;
    }

    let result = published.to_vec()?;
    ensure!(result.iter().enumerate().all(|(i, &value)| value == (i * i + 1) as f32));
    say!("{} steps, {} squares, all right", graph.len(), result.len())?;
    Ok(())
}
