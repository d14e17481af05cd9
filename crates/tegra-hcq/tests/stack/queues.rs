//! Queues: signals, waiting on the GPU, memory operations, several queues and threads.

use std::sync::Mutex;
use std::time::Duration;

use tegra_hcq::{Error, HostMemory, MemoryUse, QueueOptions, Until, WaitPolicy, args};
use test_support::{Bench, TIMEOUT, assert_live};

#[test]
fn a_signal_is_raised_after_the_work_before_it() {
    let mut bench = Bench::new("basics");
    let signal = bench.device.signal(0).unwrap();
    let data = bench.device.alloc_from(&[0_u32; 32]).unwrap();
    let kernel = bench.program.kernel("increment").unwrap();
    for value in 1..=20_u64 {
        unsafe { bench.queue.launch(&kernel, 1, 32, &args![&data, 32_u32]) }.unwrap();
        bench.queue.signal(&signal, value << 33).unwrap();
        bench.queue.submit().unwrap();
        signal.wait(value << 33, TIMEOUT).unwrap();
        assert_eq!(data.to_vec().unwrap(), [value as u32; 32]);
    }
    assert!(signal.gpu_time_ns() > 0);
}

#[test]
fn a_queue_waits_for_a_signal_that_the_cpu_sets_late() {
    for policy in [WaitPolicy::Sleep, WaitPolicy::Spin] {
        let mut bench = Bench::with_options("basics", &QueueOptions::default().wait(policy));
        let signal = bench.device.signal(0).unwrap();
        let data = bench.device.alloc_from(&[0_u32; 32]).unwrap();
        let kernel = bench.program.kernel("increment").unwrap();
        bench.queue.wait_signal(&signal, 1).unwrap();
        unsafe { bench.queue.launch(&kernel, 1, 32, &args![&data, 32_u32]) }.unwrap();
        let fence = bench.queue.submit().unwrap();
        assert!(matches!(fence.wait(Duration::from_millis(200)), Err(Error::Timeout { .. })));
        assert!(!fence.is_done());
        signal.set(1);
        fence.wait(TIMEOUT).unwrap();
        assert_eq!(data.to_vec().unwrap(), [1; 32]);
    }
}

#[test]
fn timestamps_give_a_kernel_s_duration() {
    let mut bench = Bench::new("basics");
    let (start, end) = (bench.device.signal(0).unwrap(), bench.device.signal(0).unwrap());
    let out = bench.device.alloc::<u32>(32).unwrap();
    let kernel = bench.program.kernel("spin").unwrap();
    bench.queue.timestamp(&start, 1).unwrap();
    unsafe { bench.queue.launch(&kernel, 1, 32, &args![&out, 5000_u32]) }.unwrap();
    bench.queue.timestamp(&end, 1).unwrap();
    bench.queue.wait(TIMEOUT).unwrap();
    assert!(end.gpu_time_ns() > start.gpu_time_ns());
    let (gpu_ns, _) = bench.device.clock_pair().unwrap();
    assert!(gpu_ns >= end.gpu_time_ns(), "the same clock");
}

#[test]
fn words_are_written_and_polled_in_order() {
    let mut bench = Bench::new("basics");
    let mut other = bench.device.queue().unwrap();
    let mut flags = bench.device.alloc_zeroed::<u32>(4).unwrap();
    let data = bench.device.alloc_from(&[0_u32; 32]).unwrap();
    let kernel = bench.program.kernel("increment").unwrap();
    other.poll(&flags, 2, Until::Equal(5)).unwrap();
    other.poll(&flags, 3, Until::AnySet(6)).unwrap();
    unsafe { other.launch(&kernel, 1, 32, &args![&data, 32_u32]) }.unwrap();
    let fence = other.submit().unwrap();
    assert!(fence.wait(Duration::from_millis(50)).is_err());
    bench.queue.write(&mut flags, 3, 4).unwrap();
    bench.queue.write(&mut flags, 2, 5).unwrap();
    bench.queue.wait(TIMEOUT).unwrap();
    fence.wait(TIMEOUT).unwrap();
    assert_eq!(data.to_vec().unwrap(), [1; 32]);
    assert_eq!(flags.to_vec().unwrap(), [0, 0, 5, 4]);
    assert!(bench.queue.write(&mut flags, 4, 1).is_err(), "outside the buffer");
}

#[test]
fn the_cpu_s_writes_are_seen_after_a_barrier() {
    let mut bench = Bench::new("basics");
    let mut data = bench.device.alloc_zeroed::<u32>(32).unwrap();
    let mut result = bench.device.alloc_zeroed::<u32>(32).unwrap();
    let kernel = bench.program.kernel("increment").unwrap();
    for value in 0..255_u32 {
        data.view().unwrap().fill(value);
        bench.queue.memory_barrier().unwrap();
        unsafe { bench.queue.launch(&kernel, 1, 32, &args![&data, 32_u32]) }.unwrap();
        bench.queue.memory_barrier().unwrap();
        bench.queue.copy(&data, &mut result).unwrap();
        bench.queue.wait(TIMEOUT).unwrap();
        assert_eq!(result.to_vec().unwrap(), [value + 1; 32]);
    }
}

#[test]
fn parts_of_buffers_are_arguments_and_copied() {
    let mut bench = Bench::new("basics");
    let data = bench.device.alloc_from(&[0_u32; 100]).unwrap();
    let mut target = bench.device.alloc_zeroed::<u32>(100).unwrap();
    let fill = bench.program.kernel("fill_u32").unwrap();
    unsafe { bench.queue.launch(&fill, 1, 32, &args![data.slice(10..20).unwrap(), 3_u32, 10_u32]) }.unwrap();
    bench.queue.copy(data.slice(5..15).unwrap(), target.slice_mut(90..).unwrap()).unwrap();
    bench.queue.fill(target.slice_mut(..=1).unwrap(), 8).unwrap();
    bench.queue.wait(TIMEOUT).unwrap();
    let expected: Vec<u32> = (0..100).map(|i| if (10..20).contains(&i) { 3 } else { 0 }).collect();
    assert_eq!(data.to_vec().unwrap(), expected);
    let got = target.to_vec().unwrap();
    assert_eq!(got[90..], [0, 0, 0, 0, 0, 3, 3, 3, 3, 3]);
    assert_eq!(got[..3], [8, 8, 0]);
    assert!(data.slice(90..101).is_err() && data.slice(101..).is_err());
    assert!(bench.queue.copy(data.slice(..3).unwrap(), &mut target).is_err(), "lengths differ");
}

#[test]
fn the_timeline_passes_32_bits() {
    let options = QueueOptions::default().first_value((1 << 32) - 20);
    let mut bench = Bench::with_options("basics", &options);
    let data = bench.device.alloc_from(&[0_u32; 32]).unwrap();
    let mut copy = bench.device.alloc_zeroed::<u32>(32).unwrap();
    let kernel = bench.program.kernel("increment").unwrap();
    for round in 1..=40 {
        unsafe { bench.queue.launch(&kernel, 1, 32, &args![&data, 32_u32]) }.unwrap();
        bench.queue.copy(&data, &mut copy).unwrap();
        bench.queue.wait(TIMEOUT).unwrap();
        assert_eq!(copy.to_vec().unwrap(), [round; 32]);
    }
}

#[test]
fn a_chain_of_queues_runs_in_turn() {
    let mut bench = Bench::new("basics");
    let data = bench.device.alloc_from(&[0_u32; 32]).unwrap();
    let kernel = bench.program.kernel("increment").unwrap();
    let mut queues: Vec<_> = (0..4).map(|_| bench.device.queue().unwrap()).collect();
    let mut last = bench.queue.submit().unwrap();
    for round in 0..40 {
        let queue = &mut queues[round % 4];
        queue.wait_fence(&last).unwrap();
        unsafe { queue.launch(&kernel, 1, 32, &args![&data, 32_u32]) }.unwrap();
        last = queue.submit().unwrap();
    }
    last.wait(TIMEOUT).unwrap();
    assert_eq!(data.to_vec().unwrap(), [40; 32]);
}

#[test]
fn threads_submit_at_the_same_time() {
    const THREADS: usize = 4;
    const ROUNDS: u32 = 200;
    let bench = Bench::new("basics");
    let shared = Mutex::new(bench.device.queue().unwrap());
    let common = bench.device.alloc_from(&[0_u32; 32]).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let kernel = bench.program.kernel("increment").unwrap();
                let mut own = bench.device.queue().unwrap();
                let data = bench.device.alloc_from(&[0_u32; 32]).unwrap();
                for _ in 0..ROUNDS {
                    unsafe { own.launch(&kernel, 1, 32, &args![&data, 32_u32]) }.unwrap();
                    own.submit().unwrap();
                    let mut queue = shared.lock().unwrap();
                    unsafe { queue.launch(&kernel, 1, 32, &args![&common, 32_u32]) }.unwrap();
                    queue.submit().unwrap();
                    drop(bench.device.alloc::<u32>(100).unwrap());
                }
                own.wait(TIMEOUT).unwrap();
                assert_eq!(data.to_vec().unwrap(), [ROUNDS; 32]);
            });
        }
    });
    assert_eq!(common.to_vec().unwrap(), [ROUNDS * THREADS as u32; 32]);
}

#[test]
fn memory_of_the_process_is_used_in_place() {
    let mut bench = Bench::new("basics");
    let values: Vec<u32> = (0..2048).collect();
    let mut data = bench.device.import(HostMemory::from_slice(&values).unwrap()).unwrap();
    let mut copy = bench.device.alloc_zeroed::<u32>(2048).unwrap();
    bench.queue.copy(&data, &mut copy).unwrap();
    let kernel = bench.program.kernel("increment").unwrap();
    unsafe { bench.queue.launch(&kernel, 64, 32, &args![&data, 2048_u32]) }.unwrap();
    bench.queue.wait(TIMEOUT).unwrap();
    assert_eq!(copy.to_vec().unwrap(), values);
    let view = data.view().unwrap();
    assert!(view.iter().zip(&values).all(|(new, old)| *new == old + 1));

    let live = bench.orin.live();
    for _ in 0..10 {
        drop(bench.device.import(HostMemory::<u8>::new(8192).unwrap()).unwrap());
    }
    assert_live(&bench.orin, live);
}

#[test]
fn memory_of_a_file_is_seen_through_the_file() {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    let mut bench = Bench::new("basics");
    let file = memfd_create("shared", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, 8192).unwrap();
    // SAFETY: nothing else maps the file.
    let map = |len: usize| unsafe { HostMemory::<u32>::of_file(&file, len) };
    let open = map(64).expect_err("another process could make the file shorter");
    assert!(open.to_string().contains("F_SEAL_SHRINK"), "{open}");
    fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    for len in [0, 2049, usize::MAX / 4, usize::MAX] {
        map(len).expect_err("the file has 2,048 elements");
    }
    let data = bench.device.import(map(2048).unwrap()).unwrap();
    rustix::io::pwrite(&file, &41_u32.to_le_bytes(), 4000).unwrap();
    let kernel = bench.program.kernel("increment").unwrap();
    unsafe { bench.queue.launch(&kernel, 64, 32, &args![&data, 2048_u32]) }.unwrap();
    bench.queue.wait(TIMEOUT).unwrap();
    let mut words = [0_u32; 2];
    rustix::io::pread(&file, bytemuck::bytes_of_mut(&mut words), 3996).unwrap();
    assert_eq!(words, [1, 42]);
}

#[test]
fn every_use_of_memory_works_for_both_sides() {
    let mut bench = Bench::new("basics");
    let kernel = bench.program.kernel("increment").unwrap();
    for purpose in [MemoryUse::Device, MemoryUse::Upload, MemoryUse::ReadBack, MemoryUse::Signals] {
        let mut data = bench.device.alloc_for::<u32>(500, purpose).unwrap();
        data.copy_from_slice(&[4; 500]).unwrap();
        unsafe { bench.queue.launch(&kernel, 16, 32, &args![&data, 500_u32]) }.unwrap();
        bench.queue.wait(TIMEOUT).unwrap();
        assert_eq!(data.to_vec().unwrap(), [5; 500], "{purpose:?}");
        assert_eq!(data.purpose(), purpose);
    }
}

#[test]
fn several_submissions_share_one_doorbell() {
    let mut bench = Bench::new("basics");
    let mut data = bench.device.alloc_from(&[0_u32; 32]).unwrap();
    let ones = bench.device.alloc_from(&[1_u32; 32]).unwrap();
    let kernel = bench.program.kernel("increment").unwrap();
    let mut builder = bench.device.graph();
    unsafe { builder.launch(&kernel, 1, 32, &args![&data, 32_u32]) }.unwrap();
    let mut graph = builder.build().unwrap();
    let fences = bench
        .queue
        .together(|queue| {
            let mut fences = Vec::new();
            // More replays than the graph has instances, on both engines.
            for _ in 0..10 {
                unsafe { queue.launch(&kernel, 1, 32, &args![&data, 32_u32]) }?;
                fences.push(queue.submit()?);
            }
            let early = fences[9].wait(TIMEOUT);
            assert!(matches!(early, Err(Error::NotSubmitted)), "the doorbell has not been rung: {early:?}");
            queue.copy(&ones, &mut data)?;
            for _ in 0..3 {
                fences.push(queue.replay(&mut graph)?);
            }
            unsafe { queue.launch(&kernel, 1, 32, &args![&data, 32_u32]) }?;
            Ok(fences)
        })
        .unwrap();
    for fence in &fences {
        fence.wait(TIMEOUT).unwrap();
    }
    assert_eq!(data.to_vec().unwrap(), [5; 32]);

    // Full rings, with an error in between.
    let result: Result<(), Error> = bench.queue.together(|queue| {
        for _ in 0..3000 {
            unsafe { queue.launch(&kernel, 1, 32, &args![&data, 32_u32]) }?;
            queue.submit()?;
            queue.replay(&mut graph)?;
        }
        Err(Error::NotSubmitted)
    });
    assert!(result.is_err());
    bench.queue.wait(TIMEOUT).unwrap();
    assert_eq!(data.to_vec().unwrap(), [6005; 32]);
}

#[test]
fn a_panic_between_submissions_with_one_doorbell_leaves_a_queue_that_rings() {
    let mut bench = Bench::new("basics");
    let data = bench.device.alloc_from(&[0_u32; 32]).unwrap();
    let kernel = bench.program.kernel("increment").unwrap();
    let queue = &mut bench.queue;
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        queue.together(|queue| -> Result<(), Error> {
            unsafe { queue.launch(&kernel, 1, 32, &args![&data, 32_u32]) }?;
            queue.submit()?;
            panic!("a bug of the caller");
        })
    }));
    assert!(panicked.is_err());
    // What was submitted before the panic has been sent, and so is what follows.
    queue.wait(TIMEOUT).unwrap();
    assert_eq!(data.to_vec().unwrap(), [1; 32]);
    unsafe { queue.launch(&kernel, 1, 32, &args![&data, 32_u32]) }.unwrap();
    queue.submit().unwrap().wait(TIMEOUT).unwrap();
    assert_eq!(data.to_vec().unwrap(), [2; 32]);
}

#[test]
fn fills_take_bytes_words_and_floats() {
    let mut bench = Bench::new("basics");
    let mut bytes = bench.device.alloc_zeroed::<i8>(1001).unwrap();
    let mut floats = bench.device.alloc_zeroed::<f32>(1001).unwrap();
    let mut halves = bench.device.alloc_zeroed::<i16>(1001).unwrap();
    bench.queue.fill(bytes.slice_mut(1..1000).unwrap(), -3).unwrap();
    bench.queue.fill(&mut floats, -0.5).unwrap();
    bench.queue.fill(halves.slice_mut(1..1000).unwrap(), -300).unwrap();
    let part = halves.slice_mut(..77 * 13).unwrap().plane(77).unwrap().part(3..8, 2..6).unwrap();
    bench.queue.fill_2d(part, 0x1234).unwrap();
    bench.queue.wait(TIMEOUT).unwrap();
    let got = bytes.to_vec().unwrap();
    assert!(got[1..1000].iter().all(|byte| *byte == -3) && got[0] == 0 && got[1000] == 0);
    assert_eq!(floats.to_vec().unwrap(), [-0.5; 1001]);
    let inside = |at: usize| (3..8).contains(&(at % 77)) && (2..6).contains(&(at / 77));
    let edge = |at: usize| if at == 0 || at == 1000 { 0 } else { -300 };
    let wanted: Vec<_> = (0..1001).map(|at| if inside(at) { 0x1234 } else { edge(at) }).collect();
    assert_eq!(halves.to_vec().unwrap(), wanted);

    let mut builder = bench.device.graph();
    builder.fill(bytes.slice_mut(3..5).unwrap(), 7).unwrap();
    builder.fill(floats.slice_mut(..1).unwrap(), 2.5).unwrap();
    builder.fill(halves.slice_mut(1..2).unwrap(), 5).unwrap();
    let mut graph = builder.build().unwrap();
    bench.queue.replay(&mut graph).unwrap().wait(TIMEOUT).unwrap();
    assert_eq!(bytes.to_vec().unwrap()[2..6], [-3, 7, 7, -3]);
    assert_eq!(floats.to_vec().unwrap()[..2], [2.5, -0.5]);
    assert_eq!(halves.to_vec().unwrap()[..3], [0, 5, -300]);
}

#[test]
fn memory_that_is_dropped_waits_for_queues_that_may_use_any() {
    let mut bench = Bench::with_options("basics", &QueueOptions::default().any_memory(true));
    let kernel = bench.program.kernel("increment").unwrap();
    let (device, queue) = (&bench.device, &mut bench.queue);
    let kept = device.alloc_from(&[0_u32; 32]).unwrap();
    let mut builder = device.graph();
    unsafe { builder.launch(&kernel, 1, 32, &args![&kept, 32_u32]) }.unwrap();
    let mut graph = builder.build().unwrap();
    for (round, way) in ["open", "submitted", "graph", "idle"].into_iter().enumerate() {
        let gate = device.signal(0).unwrap();
        let buffer = device.alloc_zeroed::<u32>(64).unwrap();
        let va = buffer.gpu_va();
        if way != "idle" {
            queue.wait_signal(&gate, 1).unwrap();
            let block = [&va.to_le_bytes()[..], &64_u32.to_le_bytes()].concat();
            unsafe { queue.launch_raw(&kernel, 2, 32, 0, &block) }.unwrap();
        }
        if way == "graph" {
            queue.replay(&mut graph).unwrap();
        } else if way == "submitted" {
            queue.submit().unwrap();
        }
        drop(buffer);
        let next = device.alloc::<u32>(64).unwrap();
        assert_eq!(next.gpu_va() == va, way == "idle", "{way}: {round}");
        gate.set(1);
        queue.wait(TIMEOUT).unwrap();
        drop(next);
        // The queue has ended its work, so both blocks are free.
        let again = [device.alloc::<u32>(64).unwrap(), device.alloc::<u32>(64).unwrap()];
        assert!(again.iter().any(|buffer| buffer.gpu_va() == va), "{way}");
    }

    // A queue that names what it uses keeps nothing else.
    let mut named = device.queue().unwrap();
    let gate = device.signal(0).unwrap();
    named.wait_signal(&gate, 1).unwrap();
    named.submit().unwrap();
    let buffer = device.alloc::<u32>(64).unwrap();
    let va = buffer.gpu_va();
    drop(buffer);
    assert_eq!(device.alloc::<u32>(64).unwrap().gpu_va(), va);
    gate.set(1);
}

/// Sends its name when it is dropped.
struct Dropped(&'static str, std::sync::mpsc::Sender<&'static str>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.1.send(self.0).unwrap();
    }
}

#[test]
fn functions_of_the_process_run_between_the_work_before_and_after_them() {
    for policy in [WaitPolicy::Sleep, WaitPolicy::Spin] {
        let mut bench = Bench::with_options("basics", &QueueOptions::default().wait(policy));
        let increment = bench.program.kernel("increment").unwrap();
        let (device, queue) = (&bench.device, &mut bench.queue);
        let data = device.alloc_unified::<u32>(32).unwrap();
        unsafe { device.write_raw(&[0; 128], data.gpu_va()) }.unwrap();
        let address = data.gpu_va() as usize;
        let seen = std::sync::Arc::new(Mutex::new(Vec::new()));
        let mut after = Vec::new();
        queue
            .together(|queue| {
                for round in 0..20 {
                    unsafe { queue.launch(&increment, 1, 32, &args![&data, 32_u32]) }?;
                    let seen = std::sync::Arc::clone(&seen);
                    queue.host_function(move || {
                        std::thread::sleep(Duration::from_millis(u64::from(round % 3 == 0)));
                        let word = address as *mut u32;
                        // SAFETY: inside of the buffer; the queue's work before has ended, and that after waits.
                        let value = unsafe { word.read_volatile() };
                        seen.lock().unwrap().push(value);
                        // SAFETY: as above.
                        unsafe { word.write_volatile(10 * value) };
                        assert_ne!(round, 7, "a panic that the test expects");
                    })?;
                    after.push(queue.download(&data)?);
                    if round % 5 == 0 {
                        queue.host_function(|| {})?;
                    }
                    unsafe { queue.fill_raw(data.gpu_va(), round, 1) }?;
                }
                Ok(())
            })
            .unwrap();
        queue.wait(TIMEOUT).unwrap();
        let wanted: Vec<u32> = (0..20_u32).map(|round| if round == 0 { 1 } else { round }).collect();
        assert_eq!(*seen.lock().unwrap(), wanted, "{policy:?}");
        let after = after.into_iter().map(|values| values.wait(TIMEOUT).unwrap()[0]);
        assert_eq!(after.collect::<Vec<_>>(), wanted.iter().map(|value| 10 * value).collect::<Vec<_>>());
        assert_eq!(data.to_vec().unwrap()[0], 19);
    }
}

#[test]
fn functions_whose_work_fails_are_dropped() {
    let (sender, dropped) = std::sync::mpsc::channel();
    let never = |name| {
        let guard = Dropped(name, sender.clone());
        move || {
            let _guard = guard;
            panic!("called without its work");
        }
    };
    let mut bench = Bench::new("faults");
    let write = bench.program.kernel("fault_write").unwrap();
    unsafe { bench.queue.launch(&write, 1, 1, &args![0x40_0000_0000_u64, 1_u32]) }.unwrap();
    bench.queue.host_function(never("after a fault")).unwrap();
    assert_eq!(dropped.recv_timeout(TIMEOUT), Ok("after a fault"));
    assert!(matches!(bench.queue.wait(TIMEOUT), Err(Error::Fault(_))));
    assert!(matches!(bench.queue.host_function(never("refused")), Err(Error::Fault(_))));
    assert_eq!(dropped.try_recv(), Ok("refused"));
    // A recovered queue runs functions.
    bench.device.recover().unwrap();
    let guard = Dropped("called", sender.clone());
    bench.queue.host_function(move || drop(guard)).unwrap();
    bench.queue.wait(TIMEOUT).unwrap();
    assert_eq!(dropped.try_recv(), Ok("called"));

    // Work that hangs, on a queue that is dropped.
    let options = QueueOptions::default().timeout(Duration::from_millis(100));
    let mut queue = bench.device.queue_with(&options).unwrap();
    let gate = bench.device.signal(0).unwrap();
    queue.wait_signal(&gate, 1).unwrap();
    queue.host_function(never("hanging")).unwrap();
    queue.submit().unwrap();
    drop(queue);
    assert_eq!(dropped.recv_timeout(TIMEOUT), Ok("hanging"));
    // The last function of a queue that is dropped in time runs.
    let mut queue = bench.device.queue().unwrap();
    let guard = Dropped("last", sender.clone());
    queue.host_function(move || drop(guard)).unwrap();
    drop(queue);
    assert_eq!(dropped.recv_timeout(TIMEOUT), Ok("last"));
}

#[test]
fn a_queue_beside_another_works_with_it_and_after_it() {
    let options = QueueOptions::default().wait(WaitPolicy::Spin);
    let mut bench = Bench::with_options("basics", &options);
    bench.queue.set_overlap(true);
    let increment = bench.program.kernel("increment").unwrap();
    let data = bench.device.alloc_from(&[0_u32; 32]).unwrap();
    let first = bench.queue.submit().unwrap();
    let mut beside = bench.device.queue_beside(&first, &options).unwrap();
    beside.set_overlap(true);
    for _ in 0..10 {
        unsafe { bench.queue.launch(&increment, 1, 32, &args![&data, 32_u32]) }.unwrap();
        bench.queue.submit().unwrap();
    }
    let fence = bench.queue.submit().unwrap();
    beside.wait_fence(&fence).unwrap();
    unsafe { beside.launch(&increment, 1, 32, &args![&data, 32_u32]) }.unwrap();
    beside.wait(TIMEOUT).unwrap();
    assert_eq!(data.to_vec().unwrap(), [11; 32]);

    let Bench { device, queue, .. } = bench;
    drop(queue);
    unsafe { beside.launch(&increment, 1, 32, &args![&data, 32_u32]) }.unwrap();
    beside.wait(TIMEOUT).unwrap();
    // The fence is all that is left of its queue.
    let mut last = device.queue_beside(&first, &options).unwrap();
    last.set_overlap(true);
    unsafe { last.launch(&increment, 1, 32, &args![&data, 32_u32]) }.unwrap();
    last.wait(TIMEOUT).unwrap();
    assert_eq!(data.to_vec().unwrap(), [13; 32]);

    let other = Bench::new("basics");
    let refused = other.device.queue_beside(&first, &options);
    assert!(matches!(refused, Err(Error::OtherDevice(_))), "{refused:?}");
}
