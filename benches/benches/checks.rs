//! Costs of the software Orin's checks, as ratios to a run without them.
//!
//! Run `cargo bench -p benches --bench checks`. The devices take turns, so that a change of the machine's speed affects
//! all of them. `off` is a checker without tools.

use std::path::Path;
use std::time::{Duration, Instant};

use tegra_hcq::check::{self, Tools};
use tegra_hcq::{Arg, DEFAULT_TIMEOUT, Device, DeviceKind, Dim3, Kernel, Program, Queue};

/// Timed turns of each device.
const TURNS: usize = 15;

/// A kernel and its launch.
struct Work {
    name: &'static str,
    file: &'static str,
    kernel: &'static str,
    grid: Dim3,
    block: Dim3,
    /// Elements of each of the three buffers.
    elements: usize,
    /// The arguments after the buffers.
    numbers: &'static [u32],
    /// Number of buffers that it takes.
    buffers: usize,
}

/// A device with the kernel's program.
struct Seat {
    title: &'static str,
    device: Device,
    queue: Queue,
}

impl Seat {
    fn new(title: &'static str, device: Device) -> Self {
        let queue = device.queue().expect("a queue");
        Self { title, device, queue }
    }

    fn load(&self, file: &str, kernel: &str) -> Kernel {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels").join(format!("{file}.cubin"));
        let cubin = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let program = Program::load(&self.device, &cubin).expect("a program");
        program.kernel(kernel).expect("the kernel")
    }

    /// Launches once and waits.
    fn turn(&mut self, work: &Work, kernel: &Kernel, arguments: &[Arg<'_>]) -> Duration {
        let start = Instant::now();
        // SAFETY: the launch stays inside of its buffers, which outlive it.
        unsafe { self.queue.launch(kernel, work.grid, work.block, arguments) }.expect("a launch");
        self.queue.submit().expect("a submission").wait(DEFAULT_TIMEOUT).expect("the end");
        start.elapsed()
    }
}

/// Shortest time of each device.
fn measure(seats: &mut [Seat], work: &Work) -> Vec<Duration> {
    let zeros = vec![0_u32; work.elements];
    let ready: Vec<_> = seats
        .iter()
        .map(|seat| {
            let buffers: Vec<_> =
                (0..work.buffers).map(|_| seat.device.alloc_from(&zeros).expect("a buffer")).collect();
            (seat.load(work.file, work.kernel), buffers)
        })
        .collect();
    let mut best = vec![Duration::MAX; seats.len()];
    for turn in 0..=TURNS {
        for (index, seat) in seats.iter_mut().enumerate() {
            let (kernel, buffers) = &ready[index];
            let mut arguments: Vec<Arg<'_>> = buffers.iter().map(Arg::from).collect();
            arguments.extend(work.numbers.iter().map(|&number| Arg::from(number)));
            let time = seat.turn(work, kernel, &arguments);
            // The first turn decodes the program.
            if turn > 0 {
                best[index] = best[index].min(time);
            }
        }
    }
    best
}

fn main() {
    // `cargo test --benches` passes no such argument, and needs no measurement.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let open = |tools| check::open(tools).expect("a software Orin");
    let mut seats = [
        Seat::new("plain", Device::open(DeviceKind::Sim).expect("a software Orin")),
        Seat::new("off", open(Tools::empty())),
        Seat::new("memcheck", open(Tools::MEMCHECK)),
        Seat::new("all", open(Tools::KERNELS)),
    ];
    let works = [
        Work {
            name: "vector_add",
            file: "vector_add",
            kernel: "vector_add",
            grid: Dim3::from(1024),
            block: Dim3::from(256),
            elements: 1 << 18,
            numbers: &[1 << 18],
            buffers: 3,
        },
        Work {
            name: "matmul_tiled",
            file: "matmul",
            kernel: "matmul_tiled",
            grid: Dim3::from((16, 16)),
            block: Dim3::from((16, 16)),
            elements: 1 << 16,
            numbers: &[256, 256, 256],
            buffers: 3,
        },
    ];
    let titles: Vec<String> = seats.iter().map(|seat| format!("{:>10}", seat.title)).collect();
    println!("{:<14} {:>10} {}", "kernel", "plain ms", titles.join(" "));
    for work in &works {
        let best = measure(&mut seats, work);
        let ratio = |time: &Duration| format!("{:>10.2}", time.as_secs_f64() / best[0].as_secs_f64());
        let ratios: Vec<String> = best.iter().map(ratio).collect();
        println!("{:<14} {:>10.2} {}", work.name, best[0].as_secs_f64() * 1e3, ratios.join(" "));
    }
    for seat in &seats {
        let findings = check::findings(&seat.device);
        assert!(findings.is_empty(), "{}", check::text(&findings));
    }
}
