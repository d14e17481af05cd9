//! The program of README.md. Run it in the root folder of the project.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    use std::time::Duration;
    use tegra_hcq::{Device, DeviceKind, Program, args};

    let device = Device::open(DeviceKind::Auto)?;
    let program = Program::load(&device, &std::fs::read("kernels/vector_add.cubin")?)?;
    let kernel = program.kernel("vector_add")?;
    let (a, b) = (device.alloc_from(&[1.0_f32; 1000])?, device.alloc_from(&[2.0_f32; 1000])?);
    let sum = device.alloc::<f32>(1000)?;
    let mut queue = device.queue()?;
    queue.launch(&kernel, 4, 256, &args![&a, &b, &sum, 1000_u32])?;
    queue.submit()?.wait(Duration::from_secs(10))?;
    assert_eq!(sum.to_vec()?, vec![3.0; 1000]);
    Ok(())
}
