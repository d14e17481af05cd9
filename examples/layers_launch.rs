//! Section 1 of docs/guide.md: a queue, and launches encoded one by one.

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
    let mut queue = device.queue()?;

    square.launch(&mut queue, N.div_ceil(256), 256, (&mut out, N))?;
    let fence = queue.submit()?;
    fence.wait(Duration::from_secs(10))?;

    let result = out.to_vec()?;
    ensure!(result.iter().enumerate().all(|(i, &value)| value == (i * i + 1) as f32));
    say!("{} squares, all right", result.len())?;
    Ok(())
}
