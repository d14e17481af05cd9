//! A failed open reports a reason and leaks nothing; neither do drops in any order.

use std::sync::Arc;

use kernel_door::Errno;
use orin_sim::{Config, LiveCounts, Node, Nodes, SoftwareOrin};
use tegra_hcq::{Device, DeviceKind, Error, LaunchError, Program, args};
use test_support::probe::Probe;
use test_support::{Bench, TIMEOUT, assert_live, cubin, try_open};

/// Open descriptors of this process.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Shared mappings of memory files in this process: all that the software Orin creates.
fn mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("memfd:")).count()
}

#[test]
fn a_machine_without_an_orin_is_reported() {
    if std::path::Path::new("/dev/nvgpu/igpu0/ctrl").exists() {
        eprintln!("skipped: this machine has an Orin GPU");
        return;
    }
    let error = Device::open(DeviceKind::Nvgpu).unwrap_err().to_string();
    assert!(error.contains("/dev/nv") && error.contains("No such file"), "{error}");
    assert_eq!(Device::open(DeviceKind::Auto).unwrap().info().kind, DeviceKind::Sim);
}

#[test]
fn the_reason_and_the_cure_are_named() {
    let open = |config| try_open(config).1.unwrap_err().to_string();
    let nodes =
        |ctrl, nvmap| Config { nodes: Nodes { ctrl, nvmap, ..Nodes::default() }, ..test_support::config() };
    let text = open(nodes(Node::Absent, Node::Present));
    assert!(text.contains("/dev/nvgpu/igpu0/ctrl"), "{text}");
    let text = open(nodes(Node::Present, Node::Absent));
    assert!(text.contains("/dev/nvmap"), "{text}");
    let text = open(nodes(Node::Denied, Node::Present));
    assert!(text.contains("video"), "{text}");
    let mut old = test_support::config();
    old.characteristics.flags &= !(1 << 30);
    let text = open(old);
    assert!(text.contains("USERMODE_SUBMIT") && text.contains("r36"), "{text}");
}

/// Where a cubin contains the size of the first zeroed section whose name begins so, and that name.
fn size_field(file: &[u8], name: &str) -> (usize, String) {
    const NOBITS: u32 = 8;
    let sections = cubin::Contents::read(file).unwrap().sections;
    let wanted = |section: &cubin::Section| section.kind == NOBITS && section.name.starts_with(name);
    let index = sections.iter().position(wanted).unwrap();
    let headers = u64::from_le_bytes(file[40..48].try_into().unwrap()) as usize;
    (headers + 64 * index + 32, sections[index].name.clone())
}

/// A cubin of a few KiB can declare gigabytes of variables: the loader allocates on the host only what the file
/// contains.
#[test]
fn a_hostile_cubin_is_refused_before_its_size_is_allocated() {
    let config = Config { memory_bytes: 256 << 20, ..test_support::config() };
    let (orin, device) = try_open(config);
    let device = device.unwrap();
    let before = orin.live();
    let huge = include_bytes!("../../../../crates/cubin/tests/data/huge.cubin");
    let error = Program::load(&device, huge).unwrap_err();
    assert!(matches!(error, Error::Cubin(cubin::Error::ImageTooLarge { .. })), "{error}");
    // 3 GiB: a legal size that this board does not have.
    let mut large = huge.to_vec();
    let (at, _) = size_field(&large, ".nv.global");
    large[at..at + 8].copy_from_slice(&(3_u64 << 30).to_le_bytes());
    let error = Program::load(&device, &large).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
    assert_live(&orin, before);
    // 1 MiB: the variables read as zero, also in memory that was used before.
    large[at..at + 8].copy_from_slice(&(1_u64 << 20).to_le_bytes());
    drop(device.alloc_from(&vec![0xff_u8; 1 << 20]).unwrap());
    let program = Program::load(&device, &large).unwrap();
    assert_eq!(program.variable::<u32>("zeroed").unwrap().get().unwrap(), [0; 64]);
}

/// Sizes of stack and shared memory that do not fit their fields are errors, not overflows.
#[test]
fn hostile_sizes_of_a_kernel_are_refused() {
    let Bench { device, mut queue, .. } = Bench::new("basics");
    // Frame and minimum stack of every function: records of format 4 with two words, symbol and size.
    let mut file = cubin("basics");
    let sizes: Vec<usize> = [[4, 0x11, 8, 0], [4, 0x12, 8, 0]]
        .iter()
        .flat_map(|head| (0..file.len() - 12).filter(|at| file[*at..*at + 4] == *head).collect::<Vec<_>>())
        .collect();
    assert!(sizes.len() >= 2);
    for bytes in [u32::MAX - 1, u32::MAX - 0x23f, 1 << 24] {
        sizes.iter().for_each(|at| file[at + 8..at + 12].copy_from_slice(&bytes.to_le_bytes()));
        let error = Program::load(&device, &file).unwrap_err();
        assert!(matches!(error, Error::Encoding(_)), "{bytes:#x}: {error}");
    }
    // Static shared memory: the section's size in its header.
    let mut file = cubin("reduce");
    let (at, name) = size_field(&file, ".nv.shared.");
    let kernel = name.trim_start_matches(".nv.shared.");
    for bytes in [u32::MAX, u32::MAX - 0x3ff, 1 << 20] {
        file[at..at + 8].copy_from_slice(&u64::from(bytes).to_le_bytes());
        let kernel = Program::load(&device, &file).unwrap().kernel(kernel).unwrap();
        let error = unsafe { queue.launch(&kernel, 1, 32, &[]) }.unwrap_err();
        assert!(matches!(error, Error::Launch(LaunchError::SharedMemory { .. })), "{bytes:#x}: {error}");
        // 164 KiB of an SM 8.7, of which the system reserves 1 KiB.
        assert!(error.to_string().ends_with("a block has at most 166912 bytes of both"), "{error}");
    }
}

#[test]
fn memory_runs_out_with_a_number_and_the_device_stays_usable() {
    let config = Config { memory_bytes: 256 << 20, ..test_support::config() };
    let (orin, device) = try_open(config);
    let device = device.unwrap();
    let program = Program::load(&device, &cubin("basics")).unwrap();
    let mut queue = device.queue().unwrap();
    let before = orin.live();
    let error = device.alloc::<u8>(1 << 30).unwrap_err();
    assert!(error.to_string().contains("1073741824 bytes"), "{error}");
    assert_live(&orin, before);
    let out = device.alloc::<u32>(4).unwrap();
    unsafe { queue.launch(&program.kernel("fill_u32").unwrap(), 1, 4, &args![&out, 3_u32, 4_u32]) }.unwrap();
    queue.wait(TIMEOUT).unwrap();
    assert_eq!(out.to_vec().unwrap(), [3; 4]);
}

/// Everything a process does with a device, once.
fn one_life() {
    let mut bench = Bench::new("basics");
    let mut other = bench.device.queue().unwrap();
    let a = bench.device.alloc_from(&[1_u32; 5000]).unwrap();
    let mut b = bench.device.alloc::<u32>(5000).unwrap();
    unsafe { bench.run("increment", 20, 256, &args![&a, 5000_u32]) };
    other.copy(&a, &mut b).unwrap();
    let fence = other.submit().unwrap();
    // Dropped in an unusual order: work in flight, queue before fence, buffers last.
    drop(bench);
    drop(other);
    fence.wait(TIMEOUT).unwrap();
    assert_eq!(b.to_vec().unwrap(), vec![2; 5000]);
}

#[test]
fn nothing_leaks_over_many_devices_and_faults() {
    let fault = || {
        let mut bench = Bench::new("faults");
        let error =
            unsafe { bench.try_run("fault_write", 1, 1, &args![0x40_0000_0000_u64, 1_u32]) }.unwrap_err();
        assert!(matches!(error, Error::Fault(_)), "{error}");
    };
    // Other tests of this process open devices as well. This is the only test that compares counts across
    // devices, so it does so in a child process.
    if std::env::var_os("LEAK_CHILD").is_none() {
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["resources::nothing_leaks_over_many_devices_and_faults", "--exact", "--test-threads=1"])
            .env("LEAK_CHILD", "1")
            .status()
            .unwrap();
        assert!(status.success());
        return;
    }
    one_life();
    fault();
    let before = (descriptors(), mappings());
    for _ in 0..10 {
        one_life();
        fault();
    }
    assert_eq!((descriptors(), mappings()), before, "descriptors and mappings");
}

#[test]
fn buffers_and_queues_release_their_resources() {
    let (orin, device) = try_open(test_support::config());
    let device = device.unwrap();
    drop(device.queue().unwrap());
    device.trim();
    let before = orin.live();
    for round in 0..100 {
        let buffer = device.alloc::<u8>(1 << 20).unwrap();
        if round % 10 == 0 {
            let queue = device.queue().unwrap();
            drop(buffer);
            drop(queue);
        }
    }
    assert!(device.trim() > 0, "memory was kept for recycling");
    assert_live(&orin, before);
}

#[test]
fn a_buffer_dropped_in_flight_lives_until_its_launch_has_ended() {
    let mut bench = Bench::new("basics");
    let kernel = bench.program.kernel("spin").unwrap();
    let before = bench.device.memory_usage().in_use;
    for _ in 0..20 {
        let out = bench.device.alloc::<u32>(64).unwrap();
        unsafe { bench.queue.launch(&kernel, 2, 32, &args![&out, 2000_u32]) }.unwrap();
        bench.queue.submit().unwrap();
        drop(out);
    }
    assert!(bench.device.memory_usage().in_use >= before, "the GPU may still write the dropped buffer");
    bench.queue.wait(TIMEOUT).unwrap();
    bench.device.trim();
    assert_eq!(bench.device.memory_usage().in_use, before);
}

#[test]
fn the_number_of_queues_has_a_limit_that_is_named() {
    let (_orin, device) = try_open(test_support::config());
    let device = device.unwrap();
    let mut queues: Vec<_> = (0..tegra_hcq::MAX_QUEUES).map(|_| device.queue().unwrap()).collect();
    let error = device.queue().unwrap_err();
    assert!(matches!(error, Error::TooManyQueues(_)), "{error}");
    queues.pop();
    assert!(device.queue().is_ok());
}

#[test]
fn every_failing_step_of_bring_up_is_an_error_without_leaks() {
    // Fails the n-th call of the whole sequence, for every n, until the sequence completes.
    let mut failures = 0;
    for nth in 0.. {
        assert!(nth < 500, "bring-up makes no more calls than that");
        let orin = SoftwareOrin::new(test_support::config()).unwrap();
        let probe = Arc::new(Probe::failing(orin.clone(), nth, Errno::NOMEM));
        let device = Device::open_through(Arc::clone(&probe) as _, DeviceKind::Sim);
        let result = device.and_then(|device| device.queue().map(drop));
        assert_live(&orin, LiveCounts::default());
        match result {
            Ok(()) if !probe.has_failed() => break,
            // The kernel log is optional: a device opens without it.
            Ok(()) => {}
            Err(error) => {
                failures += 1;
                assert!(error.to_string().contains("memory"), "call {nth}: {error}");
            }
        }
    }
    assert!(failures > 40, "only {failures} calls failed");
}
