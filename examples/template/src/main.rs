//! Runs the kernel on the Orin's GPU if there is one, else on a desktop GPU, else on the software Orin.

use orin_template::Saxpy;
use tegra_hcq::{DEFAULT_TIMEOUT, Device, DeviceKind, Result};

fn main() -> Result<()> {
    let device = Device::open(DeviceKind::Auto)?;
    println!("device: {}", device.info().name());
    let saxpy = Saxpy::load(&device)?;
    let x = device.alloc_from(&[1.0, 2.0, 3.0, 4.0])?;
    let mut y = device.alloc_from(&[10.0, 20.0, 30.0, 40.0])?;
    let mut queue = device.queue()?;
    saxpy.launch(&mut queue, 2.0, &x, &mut y)?;
    queue.wait(DEFAULT_TIMEOUT)?;
    println!("2 * x + y = {:?}", y.to_vec()?);
    Ok(())
}
