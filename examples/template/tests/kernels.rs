//! The kernel on the software Orin, under memcheck, racecheck, initcheck and synccheck: a test fails if its result is
//! wrong, or if a kernel reads or writes where it should not.

use orin_template::Saxpy;
use tegra_hcq::{DEFAULT_TIMEOUT, check};

#[test]
fn saxpy_computes_what_the_cpu_computes() {
    check::clean(|device| {
        let saxpy = Saxpy::load(device)?;
        let mut queue = device.queue()?;
        for n in [1, 255, 256, 1000_u16] {
            let x: Vec<f32> = (0..n).map(f32::from).collect();
            let y: Vec<f32> = (0..n).map(|i| 0.5 * f32::from(i)).collect();
            let gpu_x = device.alloc_from(&x)?.named("x");
            let mut gpu_y = device.alloc_from(&y)?.named("y");
            saxpy.launch(&mut queue, 2.0, &gpu_x, &mut gpu_y)?;
            queue.wait(DEFAULT_TIMEOUT)?;
            let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| 2.0 * x + y).collect();
            assert_eq!(gpu_y.to_vec()?, expected, "n = {n}");
        }
        Ok(())
    });
}
