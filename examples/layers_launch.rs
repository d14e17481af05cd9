//! Section 1 of docs/guide.md: a queue, and launches encoded one by one.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use orin_cli::say;
use tegra_hcq::{Count, Device, DeviceKind, Program, Queue};

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
    transpose(&device, &mut queue)
}

fn transpose(device: &Device, queue: &mut Queue) -> Result<()> {
    let program = Program::load(device, include_bytes!("../kernels/transpose.cubin"))?;
    // SAFETY: the kernel reads and writes rows * columns elements.
    let transpose = unsafe {
        program.typed_if::<(&[f32], &mut [f32], u32, u32)>("transpose", |_, (from, to, rows, columns)| {
            let elements = u64::from(*rows) * u64::from(*columns);
            elements <= from.len() as u64 && elements <= to.len() as u64
        })?
    };

    let (rows, columns) = (100_u32, 70_u32);
    let input: Vec<f32> = (0..rows * columns).map(|i| i as f32).collect();
    let (image, mut out) = (device.alloc_from(&input)?, device.alloc::<f32>(input.len())?);
    let grid = (columns.div_ceil(32), rows.div_ceil(32));
    transpose.launch(queue, grid, (32, 8), (&image, &mut out, rows, columns))?;
    queue.wait(Duration::from_secs(10))?;

    let result = out.to_vec()?;
    ensure!((0..rows * columns).all(|i| result[(i % columns * rows + i / columns) as usize] == i as f32));
    ensure!(transpose.launch(queue, grid, (32, 8), (&image, &mut out, rows + 1, columns)).is_err());
    say!("{rows} x {columns} elements, transposed")?;
    Ok(())
}
