//! The program of README.md. Run it in the root folder of the project.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    use std::io::Write as _;

    use std::time::Duration;
    use tegra_hcq::{Count, Device, DeviceKind, Program};

    let device = Device::open(DeviceKind::Auto)?;
    let program = Program::load(&device, &std::fs::read("kernels/vector_add.cubin")?)?;
    // SAFETY: the kernel has these parameters; it reads a[i] and b[i] and writes sum[i] for i < n.
    let add = unsafe { program.typed::<(&[f32], &[f32], &mut [f32], Count<u32>)>("vector_add")? };
    let (a, b) = (device.alloc_from(&[1.0_f32; 1000])?, device.alloc_from(&[2.0_f32; 1000])?);
    let mut sum = device.alloc::<f32>(1000)?;
    let mut queue = device.queue()?;
    add.launch(&mut queue, 4, 256, (&a, &b, &mut sum, 1000))?;
    queue.submit()?.wait(Duration::from_secs(10))?;
    assert_eq!(sum.to_vec()?, vec![3.0; 1000]);

    writeln!(std::io::stdout(), "{} sums, all 3", sum.len())?;
    Ok(())
}
