//! The program of docs/coming-from-cuda.md: streams, pinned and managed memory, events, dynamic shared memory.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use orin_cli::say;
use tegra_hcq::{Device, DeviceKind, HostMemory, Program};

fn main() -> ExitCode {
    examples::run(program)
}

fn program() -> Result<()> {
    let device = Device::open(DeviceKind::Auto)?;
    let program = Program::load(&device, include_bytes!("../kernels/dynamic_shared.cubin"))?;
    let values = vec![0.5_f32; 4 * 256];
    // SAFETY: block b reads its part of the input and writes out[b]; the condition keeps both inside.
    let sum = unsafe {
        program.typed_if::<(&[f32], &mut [f32])>("dynamic_sum", |size, (input, out)| {
            size.threads_x() <= input.len() as u64 && size.grid.x as usize <= out.len()
        })?
    };
    let host = device.import(HostMemory::from_slice(&values)?)?;
    let mut input = device.alloc::<f32>(values.len())?;
    let mut out = device.alloc_unified::<f32>(4)?;
    let (mut copies, mut work) = (device.queue()?, device.queue()?);
    let (start, end) = (device.signal(0)?, device.signal(0)?);

    copies.copy(&host, &mut input)?;
    let copied = copies.submit()?;
    work.wait_fence(&copied)?;
    work.timestamp(&start, 1)?;
    sum.launch_with_shared(&mut work, 4, 256, 256 * 4, (&input, &mut out))?;
    work.timestamp(&end, 1)?;
    work.wait(Duration::from_secs(10))?;
    let nanoseconds = end.gpu_time_ns() - start.gpu_time_ns();
    assert_eq!(out.view()?[..], [128.0; 4]);

    ensure!(nanoseconds > 0, "the kernel took no time");
    say!("4 sums, all 128, in {nanoseconds} ns of the GPU's clock")?;
    Ok(())
}
