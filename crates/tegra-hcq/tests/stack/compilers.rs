//! Cubins of other compilers than the fixtures': the oldest and newest supported toolkits.

use tegra_hcq::{Device, DeviceKind, Program, args};
use test_support::{Numbers, TIMEOUT, workspace};

/// Sums and maxima by cubins of NVRTC 12.2 and 13.0, compiled from `kernels/reduce.cu`.
#[test]
fn cubins_of_the_oldest_and_the_newest_compiler_run() {
    const N: usize = 5000;
    let mut numbers = Numbers::new(11);
    let words = numbers.vec_u32(N);
    let small: Vec<f32> = (0..N).map(|index| (index % 16) as f32).collect();
    for file in ["reduce.12_2", "reduce.13_0"] {
        let path = workspace().join(format!("crates/cubin/tests/data/{file}.cubin"));
        let device = Device::open(DeviceKind::Sim).unwrap();
        let program = Program::load(&device, &std::fs::read(&path).unwrap()).unwrap();
        let mut queue = device.queue().unwrap();

        let (input, sum) = (device.alloc_from(&small).unwrap(), device.alloc_zeroed::<f32>(1).unwrap());
        let kernel = program.kernel("reduce_sum_f32").unwrap();
        unsafe { queue.launch(&kernel, 4, 256, &args![&input, &sum, N as u32]) }.unwrap();
        queue.wait(TIMEOUT).unwrap();
        // Sums of small integers are exact in any order.
        assert_eq!(sum.to_vec().unwrap(), [small.iter().sum::<f32>()], "{file}");

        let (input, max) = (device.alloc_from(&words).unwrap(), device.alloc_zeroed::<u32>(1).unwrap());
        let kernel = program.kernel("reduce_max_u32").unwrap();
        unsafe { queue.launch(&kernel, 4, 256, &args![&input, &max, N as u32]) }.unwrap();
        queue.wait(TIMEOUT).unwrap();
        assert_eq!(max.to_vec().unwrap(), [*words.iter().max().unwrap()], "{file}");
    }
}
