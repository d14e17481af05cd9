//! What a launch costs the CPU: from the call to the rung doorbell, the GPU's work not counted.
//!
//! The rival is one trivial system call on the same machine: a driver that submits through the kernel
//! pays at least that, plus what the kernel does.

use std::path::Path;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use tegra_hcq::{Device, DeviceKind, Program, args};

/// Longest wait for one empty kernel.
const TIMEOUT: Duration = Duration::from_secs(10);

fn launch(criterion: &mut Criterion) {
    let device = Device::open(DeviceKind::Auto).expect("a device opens");
    let cubin = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels/basics.cubin");
    let program =
        Program::load(&device, &std::fs::read(cubin).expect("the fixture is there")).expect("it loads");
    let empty = program.kernel("empty").expect("the kernel is there");
    let increment = program.kernel("increment").expect("the kernel is there");
    let data = device.alloc_from(&[0_u32; 32]).expect("memory");
    let mut queue = device.queue().expect("a queue opens");

    let mut group = criterion.benchmark_group("cpu_time");
    // Only the submission is timed; the wait between two keeps the rings empty.
    group.bench_function("launch_and_submit_empty_kernel", |bencher| {
        bencher.iter_custom(|rounds| {
            let mut spent = Duration::ZERO;
            for _ in 0..rounds {
                let start = Instant::now();
                queue.launch(&empty, 1, 32, &[]).expect("launch");
                let fence = queue.submit().expect("submit");
                spent += start.elapsed();
                fence.wait(TIMEOUT).expect("the kernel ends");
            }
            spent
        });
    });
    group.bench_function("launch_one_of_16_in_a_batch", |bencher| {
        bencher.iter_custom(|rounds| {
            let mut spent = Duration::ZERO;
            for _ in 0..rounds.div_ceil(16) {
                let start = Instant::now();
                for _ in 0..16 {
                    queue.launch(&increment, 1, 32, &args![&data, 32_u32]).expect("launch");
                }
                let fence = queue.submit().expect("submit");
                spent += start.elapsed();
                fence.wait(TIMEOUT).expect("the kernels end");
            }
            spent.mul_f64(rounds as f64 / (rounds.div_ceil(16) * 16) as f64)
        });
    });
    group.bench_function("rival_one_system_call", |bencher| {
        bencher.iter(|| std::hint::black_box(rustix::process::getppid()));
    });
    group.finish();
}

criterion_group!(benches, launch);
criterion_main!(benches);
