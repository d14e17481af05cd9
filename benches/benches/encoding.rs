//! The CPU cost of encoding commands, without a device: the words of a launch with the fields of its descriptor, a
//! copy, semaphores, single fields.
//!
//! Run `cargo bench -p benches --bench encoding`. The words go to an array that is reused, like a ring. The benchmark
//! measures the thread's CPU time, because a wall clock on a shared machine would mostly measure other load.

use std::hint::black_box;
use std::time::Duration;

use ampere_cmd::command::{LinearCopy, Payload, PcasAction, SemaphoreRelease};
use ampere_cmd::compute_c7c0::{SendPcasA, SendSignalingPcas2B};
use ampere_cmd::gpfifo::{Entry, Segment};
use ampere_cmd::pushbuffer::Packer;
use ampere_cmd::qmd::{QmdV3_0, v3_0 as field};
use ampere_cmd::{Encoder, Error, MethodStream, SliceSink, Subchannel};
use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{criterion_group, criterion_main};

/// The CPU time of the thread (`CLOCK_THREAD_CPUTIME_ID`).
struct CpuTime;

impl CpuTime {
    fn now() -> Duration {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        // CAST: a CPU-time clock starts at 0; nanoseconds are below 10^9.
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    }
}

impl Measurement for CpuTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        Self::now()
    }

    fn end(&self, start: Duration) -> Duration {
        Self::now().saturating_sub(start)
    }

    fn add(&self, a: &Duration, b: &Duration) -> Duration {
        *a + *b
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        WallTime.to_f64(value)
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}

type Criterion = criterion::Criterion<CpuTime>;

/// Maximum number of words of a command here.
const ROOM: usize = 32;

/// The values that differ between launches.
#[derive(Clone, Copy)]
struct Launch {
    qmd_va: u64,
    bank_va: u64,
    grid: [u32; 3],
    block: [u32; 3],
    shared: (u32, u32),
}

const LAUNCH: Launch = Launch {
    qmd_va: 0x15_0000_0200,
    bank_va: 0x15_0000_0000,
    grid: [120, 68, 1],
    block: [16, 16, 1],
    shared: (0x480, 3),
};

/// A descriptor with the fields that are the same for all launches.
fn template() -> Result<QmdV3_0, Error> {
    let mut qmd = QmdV3_0::new();
    qmd.set(field::QMD_MAJOR_VERSION, 3_u32)?;
    qmd.set(field::API_VISIBLE_CALL_LIMIT, 1_u32)?;
    qmd.set_address(field::PROGRAM_ADDRESS_LOWER, field::PROGRAM_ADDRESS_UPPER, 0x14_0000_0000)?;
    qmd.set(field::REGISTER_COUNT_V, 32_u32)?;
    qmd.set(field::CONSTANT_BUFFER_VALID.at(0)?, true)?;
    qmd.set_shifted(field::CONSTANT_BUFFER_SIZE_SHIFTED4.at(0)?, 0x180_u32)?;
    Ok(qmd)
}

/// Sets the fields that every launch sets, as `tegra-hcq` does.
#[inline]
fn patch(template: &QmdV3_0, launch: &Launch) -> Result<QmdV3_0, Error> {
    let mut qmd = *template;
    let Launch { grid, block, shared: (bytes, config), bank_va, .. } = *launch;
    qmd.set(field::CTA_RASTER_WIDTH, grid[0])?;
    qmd.set(field::CTA_RASTER_HEIGHT, grid[1])?;
    qmd.set(field::CTA_RASTER_DEPTH, grid[2])?;
    qmd.set(field::CTA_THREAD_DIMENSION0, block[0])?;
    qmd.set(field::CTA_THREAD_DIMENSION1, block[1])?;
    qmd.set(field::CTA_THREAD_DIMENSION2, block[2])?;
    qmd.set(field::SHARED_MEMORY_SIZE, bytes)?;
    qmd.set(field::MIN_SM_CONFIG_SHARED_MEM_SIZE, config)?;
    qmd.set(field::TARGET_SM_CONFIG_SHARED_MEM_SIZE, config)?;
    qmd.set(field::MAX_SM_CONFIG_SHARED_MEM_SIZE, config)?;
    let bank = (field::CONSTANT_BUFFER_ADDR_LOWER.at(0)?, field::CONSTANT_BUFFER_ADDR_UPPER.at(0)?);
    qmd.set_address(bank.0, bank.1, bank_va)?;
    Ok(qmd)
}

fn launches(criterion: &mut Criterion) {
    let template = template().expect("the fields fit");
    let mut words = [0; ROOM];
    let mut group = criterion.benchmark_group("launch");
    group.bench_function("words_and_descriptor", |bencher| {
        bencher.iter(|| {
            let launch = black_box(&LAUNCH);
            let qmd = patch(black_box(&template), launch)?;
            let mut encoder = Encoder::new(SliceSink::new(&mut words));
            encoder.launch(launch.qmd_va, PcasAction::InvalidateCopySchedule)?;
            black_box(encoder.sink().written());
            Ok::<_, Error>(qmd)
        });
    });
    group.bench_function("words", |bencher| {
        bencher.iter(|| {
            let mut encoder = Encoder::new(SliceSink::new(&mut words));
            encoder.launch(black_box(LAUNCH.qmd_va), PcasAction::InvalidateCopySchedule)?;
            black_box(encoder.sink().written());
            Ok::<_, Error>(())
        });
    });
    group.bench_function("words_by_the_packer", |bencher| {
        bencher.iter(|| {
            let mut packer = Packer::new(&mut words);
            // CAST: descriptor addresses are below 2^40.
            let address = SendPcasA { qmd_address_shifted8: (black_box(LAUNCH.qmd_va) >> 8) as u32 };
            packer.method(Subchannel::COMPUTE, &address)?;
            let action = PcasAction::InvalidateCopySchedule;
            let action = SendSignalingPcas2B { pcas_action: action, ..SendSignalingPcas2B::default() };
            packer.method(Subchannel::COMPUTE, &action)?;
            black_box(packer.written());
            Ok::<_, Error>(())
        });
    });
    group.bench_function("descriptor", |bencher| {
        bencher.iter(|| patch(black_box(&template), black_box(&LAUNCH)));
    });
    group.finish();
}

fn fields(criterion: &mut Criterion) {
    let mut qmd = template().expect("the fields fit");
    let mut group = criterion.benchmark_group("descriptor_field");
    group.bench_function("set", |bencher| {
        bencher.iter(|| black_box(&mut qmd).set(field::CTA_THREAD_DIMENSION0, black_box(256_u32)));
    });
    group.bench_function("set_address", |bencher| {
        bencher.iter(|| {
            let (lower, upper) = (field::PROGRAM_ADDRESS_LOWER, field::PROGRAM_ADDRESS_UPPER);
            black_box(&mut qmd).set_address(lower, upper, black_box(0x14_0000_0080))
        });
    });
    group.bench_function("get", |bencher| {
        bencher.iter(|| black_box(&qmd).get(field::CTA_THREAD_DIMENSION0));
    });
    group.finish();
}

fn others(criterion: &mut Criterion) {
    let mut words = [0; ROOM];
    let mut group = criterion.benchmark_group("command");
    let copy = LinearCopy { source: 0x10_0000_0000, destination: 0x11_0000_0000, bytes: 1 << 20 };
    group.bench_function("copy", |bencher| {
        bencher.iter(|| {
            let mut encoder = Encoder::new(SliceSink::new(&mut words));
            encoder.linear_copy(black_box(&copy))?;
            black_box(encoder.sink().written());
            Ok::<_, Error>(())
        });
    });
    let release = SemaphoreRelease {
        va: 0x12_0000_0000,
        payload: Payload::Bits64(7),
        wait_for_idle: true,
        timestamp: true,
    };
    group.bench_function("semaphore_release", |bencher| {
        bencher.iter(|| {
            let mut encoder = Encoder::new(SliceSink::new(&mut words));
            encoder.semaphore_release(black_box(&release))?;
            black_box(encoder.sink().written());
            Ok::<_, Error>(())
        });
    });
    group.bench_function("ring_entry", |bencher| {
        bencher.iter(|| Entry::from(Segment::new(black_box(0x14_0000_0000), black_box(22))).encode());
    });
    let mut encoder = Encoder::new(Vec::new());
    encoder.linear_copy(&copy).expect("the copy is encoded");
    let encoded = encoder.into_sink();
    group.bench_function("decode_a_copy", |bencher| {
        bencher.iter(|| {
            let mut stream = MethodStream::new();
            for word in black_box(&encoded) {
                black_box(stream.push(*word))?;
            }
            Ok::<_, Error>(())
        });
    });
    group.finish();
}

criterion_group!(
    name = benches;
    config = criterion::Criterion::default().with_measurement(CpuTime);
    targets = launches, fields, others
);
criterion_main!(benches);
