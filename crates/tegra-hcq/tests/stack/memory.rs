//! Buffers of several nvmap handles: what crosses the seams between them, what refuses them, and what they leave.
//! Memory at one address for CPU and GPU.

use std::sync::{Arc, Mutex, PoisonError};

use gpu_hal::Shortage;
use kernel_door::{Door, DoorRange, Errno};
use nvgpu_sys::{address_space, nvmap as sys};
use nvmap::Nvmap;
use orin_sim::{Call, Config, Failure, SoftwareOrin};
use proptest::prelude::*;
use tegra_hcq::{Buffer, Device, DeviceKind, Error, FaultKind, args};
use test_support::{Bench, Numbers, TIMEOUT, assert_live, config, cubin, try_open};

/// Bytes from one seam to the next.
const PART: usize = 256 << 20;
/// Elements of a buffer with two seams.
const LEN: usize = (600 << 20) / 4;
/// Elements before and after a seam that tests use.
const REACH: usize = 2048;

/// An Orin Nano whose memory is in pieces of 256 MiB, 1 GiB of it used by another program.
fn fragmented_nano() -> (SoftwareOrin, Device, Nvmap, Vec<nvmap::DmaBuf>) {
    let nano = Config { largest_free_range: 256 << 20, ..Config::of("nano-8".parse().unwrap()) }
        .with_release(config().release);
    let (orin, device) = try_open(nano);
    let door: Arc<dyn Door> = Arc::new(orin.clone());
    let nvmap = Nvmap::open(&door).unwrap();
    let others = (0..4).map(|_| nvmap.buffer(256 << 20).allocate_unmapped().unwrap()).collect();
    (orin, device.unwrap(), nvmap, others)
}

/// Bytes of real memory behind the mappings that begin in `len` bytes at `start`.
fn resident(start: usize, len: usize) -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut inside, mut kib) = (false, 0);
    for line in maps.lines() {
        let first = line.split_whitespace().next().unwrap();
        if let Some((from, _)) = first.split_once('-') {
            inside = usize::from_str_radix(from, 16).is_ok_and(|from| (start..start + len).contains(&from));
        } else if inside && first == "Rss:" {
            kib += line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap();
        }
    }
    kib << 10
}

#[test]
fn six_gib_fit_an_orin_nano_without_a_free_range_above_256_mib() {
    const BYTES: usize = 6 << 30;
    let (orin, device, nvmap, _others) = fragmented_nano();
    let memory = device.memory().unwrap();
    assert_eq!(memory.total, 8 << 30);
    assert!(memory.available <= 7 << 30 && memory.available > (7 << 30) - (64 << 20), "{memory:?}");
    let single = nvmap.buffer(BYTES as u64).label("one handle").allocate().unwrap_err();
    assert_eq!(single.errno(), Some(Errno::NOMEM));

    let before = orin.live();
    let mut weights = device.alloc::<u32>(BYTES / 4).unwrap().named("weights");
    let live = orin.live();
    let parts = BYTES / PART;
    assert_eq!((live.handles, live.mappings), (before.handles + parts, before.mappings + parts));
    assert_eq!((live.gpu_mappings, live.buffers), (before.gpu_mappings + parts, before.buffers + parts));
    assert_eq!(live.memory_bytes, before.memory_bytes + BYTES as u64);
    let wanted = Numbers::new(3).vec_u32(32);
    for seam in (1..parts).map(|part| part * PART / 4) {
        weights.slice_mut(seam - 16..seam + 16).unwrap().copy_from_slice(&wanted).unwrap();
        assert_eq!(weights.slice(seam - 16..seam + 16).unwrap().to_vec().unwrap(), wanted);
    }
    let address = weights.cpu_address().unwrap().unwrap().as_ptr().addr();
    let resident = resident(address, BYTES);
    assert!((parts * 4096..16 << 20).contains(&resident), "{resident} bytes of real memory");
    drop(weights);
    device.trim();
    assert_live(&orin, before);
}

#[test]
fn what_refuses_an_allocation_is_named_with_what_would_fit() {
    let (orin, device, _nvmap, others) = fragmented_nano();
    let before = orin.live();
    let refused = |bytes: u64| match device.alloc::<u8>(bytes as usize).unwrap_err() {
        error @ Error::OutOfMemory { shortage, memory, .. } => {
            (shortage.unwrap(), memory.unwrap().largest, error.to_string())
        }
        error => panic!("{error}"),
    };
    let fail = |code, nth| orin.fail(Failure { call: Call::Ioctl(code), nth, errno: Errno::NOMEM });
    let largest = device.memory().unwrap().largest;
    let (shortage, fits, text) = refused(9 << 30);
    assert_eq!((shortage, fits), (Shortage::Total, largest));
    assert!(
        text.contains("more than the total memory") && text.contains(&format!("{largest} bytes would fit"))
    );
    let (shortage, fits, text) = refused(largest + 1);
    assert_eq!((shortage, fits), (Shortage::Available, largest));
    assert!(text.contains("more than the available memory"), "{text}");
    // Three parts are there, the fourth is not.
    fail(sys::alloc_code(config().release), 4);
    let (shortage, fits, text) = refused(1 << 30);
    assert_eq!((shortage, fits), (Shortage::Fragments, 3 * PART as u64));
    assert!(text.contains("too fragmented for it; 805306368 bytes would fit now"), "{text}");
    fail(address_space::code::ALLOC_SPACE, 1);
    let (shortage, fits, text) = refused(1 << 30);
    assert_eq!((shortage, fits), (Shortage::Addresses, 0));
    assert!(text.contains("no range of GPU addresses") && !text.contains("would fit"), "{text}");
    assert_live(&orin, before);
    // What is said to fit does.
    for fits in [largest as usize, 3 * PART] {
        drop(device.alloc::<u8>(fits).unwrap());
        device.trim();
    }
    drop(others);
}

#[test]
fn a_failure_in_any_part_leaves_nothing() {
    let (orin, device) = try_open(config());
    let device = device.unwrap();
    let before = orin.live();
    for (call, count) in [
        (Call::Ioctl(sys::code::CREATE), 3),
        (Call::Ioctl(sys::alloc_code(config().release)), 3),
        (Call::Ioctl(sys::code::GET_FD), 3),
        (Call::Ioctl(sys::code::PARAMETERS), 3),
        (Call::Mmap, 3),
        (Call::Ioctl(address_space::code::ALLOC_SPACE), 1),
        (Call::Ioctl(address_space::code::MAP_BUFFER_BATCH), 1),
    ] {
        for nth in 1..=count {
            orin.fail(Failure { call, nth, errno: Errno::IO });
            let error = device.alloc::<u32>(LEN).unwrap_err();
            assert!(error.to_string().contains("nput/output error"), "{call:?} {nth}: {error}");
            assert_live(&orin, before);
        }
    }
    // The figures are a courtesy: without them, the allocation itself decides.
    orin.fail(Failure { call: Call::Ioctl(sys::code::QUERY_HEAP_PARAMS), nth: 1, errno: Errno::IO });
    for _ in 0..20 {
        drop(device.alloc::<u32>(LEN).unwrap());
        device.trim();
    }
    assert_live(&orin, before);
}

#[test]
fn faults_and_replays_see_one_buffer() {
    let mut bench = Bench::new("faults");
    let mut buffer = bench.device.alloc::<u32>(LEN).unwrap().named("composed");
    let seam = PART / 4;
    let basics = tegra_hcq::Program::load(&bench.device, &cubin("basics")).unwrap();
    buffer.slice_mut(seam - 8..seam + 8).unwrap().copy_from_slice(&[5; 16]).unwrap();
    let mut copy = bench.device.alloc_zeroed::<u32>(16).unwrap();
    let mut graph = bench.device.graph();
    unsafe {
        let across = buffer.slice(seam - 8..seam + 8).unwrap();
        graph.launch(&basics.kernel("increment").unwrap(), 1, 32, &args![across, 16_u32]).unwrap();
    }
    graph.copy(buffer.slice(seam - 8..seam + 8).unwrap(), &mut copy).unwrap();
    let mut graph = graph.build().unwrap();
    for value in [6, 7] {
        bench.queue.replay(&mut graph).unwrap();
        bench.queue.wait(TIMEOUT).unwrap();
        assert_eq!(copy.to_vec().unwrap(), [value; 16]);
    }
    drop(graph);
    let view = buffer.view().unwrap();
    assert_eq!((view.len(), &view[seam - 8..seam + 8]), (LEN, &[7; 16][..]));
    drop(view);
    // A store behind the end: the report names the buffer, not its last part.
    let beyond = buffer.gpu_va() + (LEN * 4).next_multiple_of(2 << 20) as u64 + 64;
    let error = unsafe { bench.try_run("fault_write", 1, 1, &args![beyond, 1_u32]) }.unwrap_err();
    let Error::Fault(fault) = &error else { panic!("{error}") };
    assert!(matches!(fault.kind, FaultKind::Mmu), "{error}");
    let near = fault.nearest.as_ref().unwrap();
    assert_eq!((near.name.as_str(), near.va), ("composed", buffer.gpu_va()), "{error}");
}

#[test]
fn devices_copy_across_seams() {
    let devices = [0, 1].map(|index| Device::open_nth(DeviceKind::Sim, index).unwrap());
    let [mut source, mut target] = devices.each_ref().map(|device| device.alloc::<u32>(LEN).unwrap());
    let (from, to) = (PART / 4 - 3000, PART / 2 - 1000);
    let values = Numbers::new(8).vec_u32(5000);
    source.slice_mut(from..from + 5000).unwrap().copy_from_slice(&values).unwrap();
    let mut link = devices[0].link(&devices[1]).unwrap();
    let [mut one, mut other] = devices.each_ref().map(|device| device.queue().unwrap());
    let of = source.slice(from..from + 5000).unwrap();
    let into = target.slice_mut(to..to + 5000).unwrap();
    link.copy(&mut one, of, &mut other, into).unwrap().wait(TIMEOUT).unwrap();
    assert_eq!(target.slice(to..to + 5000).unwrap().to_vec().unwrap(), values);
}

/// One operation on elements around the seams: element 0 is `REACH` before the first seam, element `2 * REACH` is
/// `REACH` before the second one.
#[derive(Clone, Debug)]
enum Step {
    /// By the CPU.
    Write { buffer: usize, seam: usize, at: usize, values: Vec<u32> },
    /// By a staged copy.
    Upload { buffer: usize, seam: usize, at: usize, values: Vec<u32> },
    /// By a kernel.
    Increment { buffer: usize, seam: usize, at: usize, len: usize },
    /// By the copy engine, from one buffer to the other.
    Copy { from: usize, seams: [usize; 2], at: [usize; 2], len: usize },
    /// By the copy engine, 16 columns of 64.
    Rectangle { from: usize, seams: [usize; 2], at: [usize; 2], rows: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Ranges that cross the seam, begin or end at it, or lie beside it.
    let at = REACH - 300..REACH + 20;
    let values = || prop::collection::vec(any::<u32>(), 1..400);
    let step =
        prop_oneof![
            (0..2_usize, 0..2_usize, at.clone(), values())
                .prop_map(|(buffer, seam, at, values)| Step::Write { buffer, seam, at, values }),
            (0..2_usize, 0..2_usize, at.clone(), values())
                .prop_map(|(buffer, seam, at, values)| Step::Upload { buffer, seam, at, values }),
            (0..2_usize, 0..2_usize, at.clone(), 1..400_usize)
                .prop_map(|(buffer, seam, at, len)| Step::Increment { buffer, seam, at, len }),
            (0..2_usize, [0..2_usize, 0..2], [at.clone(), at.clone()], 1..400_usize)
                .prop_map(|(from, seams, at, len)| Step::Copy { from, seams, at, len }),
            (0..2_usize, [0..2_usize, 0..2], [0..16_usize, 0..16], 1..16_usize)
                .prop_map(|(from, seams, at, rows)| Step::Rectangle { from, seams, at, rows }),
        ];
    prop::collection::vec(step, 1..8)
}

/// Two buffers with two seams each, and what the elements around the seams must be.
struct Seams {
    bench: Bench,
    buffers: [Buffer<u32>; 2],
    expected: [[Vec<u32>; 2]; 2],
}

impl Seams {
    fn new() -> Self {
        let bench = Bench::new("basics");
        let buffers = [(); 2].map(|()| bench.device.alloc(LEN).unwrap());
        let expected = [(); 2].map(|()| [(); 2].map(|()| vec![0; 2 * REACH]));
        Self { bench, buffers, expected }
    }

    /// First element of the window around a seam.
    fn window(seam: usize) -> usize {
        (seam + 1) * PART / 4 - REACH
    }

    fn run(&mut self, step: Step) -> Result<(), Error> {
        let queue = &mut self.bench.queue;
        match step {
            Step::Write { buffer, seam, at, values } => {
                let start = Self::window(seam) + at;
                self.buffers[buffer].slice_mut(start..start + values.len())?.copy_from_slice(&values)?;
                self.expected[buffer][seam][at..at + values.len()].copy_from_slice(&values);
            }
            Step::Upload { buffer, seam, at, values } => {
                let start = Self::window(seam) + at;
                queue.upload(&values, self.buffers[buffer].slice_mut(start..start + values.len())?)?;
                self.expected[buffer][seam][at..at + values.len()].copy_from_slice(&values);
            }
            Step::Increment { buffer, seam, at, len } => {
                let start = Self::window(seam) + at;
                let kernel = self.bench.program.kernel("increment")?;
                let data = self.buffers[buffer].slice(start..start + len)?;
                unsafe { queue.launch(&kernel, 4, 128, &args![data, len as u32]) }?;
                for value in &mut self.expected[buffer][seam][at..at + len] {
                    *value = value.wrapping_add(1);
                }
            }
            Step::Copy { from, seams, at, len } => {
                let [source, target] = [0, 1].map(|end| Self::window(seams[end]) + at[end]);
                let [a, b] = &mut self.buffers;
                let (of, to) = if from == 0 { (&*a, b) } else { (&*b, a) };
                queue.copy(of.slice(source..source + len)?, to.slice_mut(target..target + len)?)?;
                let values = self.expected[from][seams[0]][at[0]..at[0] + len].to_vec();
                self.expected[1 - from][seams[1]][at[1]..at[1] + len].copy_from_slice(&values);
            }
            Step::Rectangle { from, seams, at, rows } => {
                // The seam is in the middle of the rows.
                let window = |end: usize| Self::window(seams[end]) + REACH - 8 * 64;
                let [a, b] = &mut self.buffers;
                let (of, to) = if from == 0 { (&*a, b) } else { (&*b, a) };
                let source = of.slice(window(0)..window(0) + 16 * 64)?.plane(64)?;
                let target = to.slice_mut(window(1)..window(1) + 16 * 64)?.plane(64)?;
                let columns = |end: usize| at[end]..at[end] + 16;
                queue.copy_2d(source.part(columns(0), 0..rows)?, target.part(columns(1), 0..rows)?)?;
                for row in 0..rows {
                    let begin = |end: usize| REACH - 8 * 64 + row * 64 + at[end];
                    let values = self.expected[from][seams[0]][begin(0)..begin(0) + 16].to_vec();
                    self.expected[1 - from][seams[1]][begin(1)..begin(1) + 16].copy_from_slice(&values);
                }
            }
        }
        // Accesses of the CPU wait for submitted work only.
        self.bench.queue.submit().map(drop)
    }

    fn check(&mut self) -> Result<(), Error> {
        self.bench.queue.wait(TIMEOUT)?;
        for (buffer, expected) in self.buffers.iter().zip(&self.expected) {
            for (seam, expected) in expected.iter().enumerate() {
                let window = buffer.slice(Self::window(seam)..Self::window(seam) + 2 * REACH)?;
                assert!(window.to_vec()? == *expected, "the CPU's view around seam {seam}");
                let download = self.bench.queue.download(window)?;
                assert!(download.wait(TIMEOUT)? == *expected, "the GPU's view around seam {seam}");
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_work_across_seams_gives_what_one_memory_gives(steps in steps()) {
        static SEAMS: Mutex<Option<Seams>> = Mutex::new(None);
        let mut seams = SEAMS.lock().unwrap();
        let seams = seams.get_or_insert_with(Seams::new);
        for step in steps {
            seams.run(step).unwrap();
        }
        seams.check().unwrap();
    }
}

/// Held by the tests of unified memory: the boards of a process have the same GPU addresses.
static ADDRESSES: Mutex<()> = Mutex::new(());

/// Address of a buffer, the same for both.
fn common_address(buffer: &Buffer<u32>) -> u64 {
    let address = buffer.cpu_address().unwrap().unwrap().as_ptr() as u64;
    assert_eq!(address, buffer.gpu_va());
    address
}

#[test]
fn unified_memory_is_at_one_address_for_cpu_and_gpu() {
    let _alone = ADDRESSES.lock().unwrap_or_else(PoisonError::into_inner);
    let mut bench = Bench::new("basics");
    let increment = bench.program.kernel("increment").unwrap();
    let live = bench.orin.live();
    // In a slab, of its own, and in several parts.
    for len in [4, 100_000, LEN] {
        let mut buffer = bench.device.alloc_unified::<u32>(len).unwrap();
        let address = common_address(&buffer);
        let ends = [0, len - 4, PART / 4 - 2].map(|at| at.min(len - 4));
        for at in ends {
            let pointer = (address as usize + 4 * at) as *mut u32;
            // SAFETY: inside the buffer, which no work uses.
            (0..4).for_each(|word| unsafe { pointer.add(word).write_volatile(word as u32) });
            let block = [&(pointer as u64).to_le_bytes()[..], &4_u32.to_le_bytes()].concat();
            unsafe { bench.queue.launch_raw(&increment, 1, 4, 0, &block) }.unwrap();
            bench.queue.wait(TIMEOUT).unwrap();
            // SAFETY: as above.
            let seen: Vec<_> = (0..4).map(|word| unsafe { pointer.add(word).read_volatile() }).collect();
            assert_eq!(seen, [1, 2, 3, 4]);
            assert_eq!(buffer.slice(at..at + 4).unwrap().to_vec().unwrap(), seen);
        }
        bench.queue.fill(buffer.slice_mut(..4).unwrap(), 9).unwrap();
        bench.queue.wait(TIMEOUT).unwrap();
        assert_eq!(buffer.view().unwrap()[..4], [9; 4]);
        drop(buffer);
        bench.device.trim();
        // Nothing is left: the addresses are free.
        drop(DoorRange::reserve_at(address as usize, 4096).unwrap());
    }
    assert_live(&bench.orin, live);
}

#[test]
fn unified_memory_avoids_what_the_process_has_mapped() {
    let _alone = ADDRESSES.lock().unwrap_or_else(PoisonError::into_inner);
    let device = Device::open(DeviceKind::Sim).unwrap();
    let first = device.alloc_unified::<u32>(100_000).unwrap();
    let address = common_address(&first);
    drop(first);
    device.trim();
    // Something else of the process takes the addresses that the kernel chooses for the GPU.
    let taken = DoorRange::reserve_at(address as usize, 4096).unwrap();
    let other = device.alloc_unified::<u32>(100_000).unwrap();
    assert_ne!(common_address(&other), address);
    // So does another device, whose GPU has addresses of its own.
    let boards = [0, 1, 1].map(|index| Device::open_nth(DeviceKind::Sim, index).unwrap());
    let buffers = boards.each_ref().map(|board| board.alloc_unified::<u32>(PART / 2).unwrap());
    let mut addresses = buffers.each_ref().map(common_address);
    addresses.sort_unstable();
    assert!(addresses.windows(2).all(|pair| pair[0] + 2 * PART as u64 <= pair[1]), "{addresses:x?}");
    drop(taken);
}
