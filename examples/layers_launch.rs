//! Layer 3 of docs/guide.md: a queue, and launches encoded one by one.

use std::time::Duration;

use anyhow::{Result, ensure};
use tegra_hcq::{Device, DeviceKind, Program, args};

const N: u32 = 1000;

fn main() -> Result<()> {
    let device = Device::open(DeviceKind::Auto)?;
    let program = Program::load(&device, include_bytes!("../kernels/square_plus_one.cubin"))?;
    let kernel = program.kernel("square_plus_one")?;
    let out = device.alloc::<f32>(N as usize)?;
    let mut queue = device.queue()?;

    queue.launch(&kernel, N.div_ceil(256), 256, &args![&out, N])?;
    let fence = queue.submit()?;
    fence.wait(Duration::from_secs(10))?;

    let result = out.to_vec()?;
    ensure!(result.iter().enumerate().all(|(i, &value)| value == (i * i + 1) as f32));
    println!("{} squares, all right", result.len());
    Ok(())
}
