//! Recorded graphs: order, patching, many replays, interplay with ordinary work and with faults.

use tegra_hcq::{Error, Program, args};
use test_support::{Bench, Numbers, TIMEOUT, cubin};

#[test]
fn steps_run_in_order_and_see_each_other() {
    let mut bench = Bench::new("basics");
    let data = bench.device.alloc_from(&[0_u32; 100]).unwrap();
    let mut copy = bench.device.alloc_from(&[0_u32; 100]).unwrap();
    let fill = bench.program.kernel("fill_u32").unwrap();
    let increment = bench.program.kernel("increment").unwrap();
    let mut builder = bench.device.graph();
    unsafe { builder.launch(&fill, 4, 32, &args![&data, 7_u32, 100_u32]) }.unwrap();
    for _ in 0..5 {
        unsafe { builder.launch(&increment, 4, 32, &args![&data, 100_u32]) }.unwrap();
    }
    builder.copy(&data, &mut copy).unwrap();
    unsafe { builder.launch(&increment, 4, 32, &args![&data, 100_u32]) }.unwrap();
    let mut graph = builder.build().unwrap();
    assert_eq!(graph.len(), 8);
    for _ in 0..10 {
        bench.queue.replay(&mut graph).unwrap();
    }
    bench.queue.wait(TIMEOUT).unwrap();
    assert_eq!(data.to_vec().unwrap(), [13; 100]);
    assert_eq!(copy.to_vec().unwrap(), [12; 100]);
}

#[test]
fn a_thousand_kernels_are_one_entry() {
    let mut bench = Bench::new("basics");
    let data = bench.device.alloc_from(&[0_u32; 1]).unwrap();
    let increment = bench.program.kernel("increment").unwrap();
    let mut builder = bench.device.graph();
    for _ in 0..1000 {
        unsafe { builder.launch(&increment, 1, 1, &args![&data, 1_u32]) }.unwrap();
    }
    let mut graph = builder.build().unwrap();
    for _ in 0..3 {
        bench.queue.replay(&mut graph).unwrap();
    }
    bench.queue.wait(TIMEOUT).unwrap();
    assert_eq!(data.to_vec().unwrap(), [3000]);
}

#[test]
fn arguments_and_sizes_change_between_replays_without_waiting() {
    let mut bench = Bench::new("basics");
    let outputs: Vec<_> = (0..20).map(|_| bench.device.alloc_zeroed::<u32>(64).unwrap()).collect();
    let fill = bench.program.kernel("fill_u32").unwrap();
    let mut builder = bench.device.graph();
    let node = unsafe { builder.launch(&fill, 1, 32, &args![&outputs[0], 0_u32, 64_u32]) }.unwrap();
    let mut graph = builder.build().unwrap();
    for (round, out) in outputs.iter().enumerate() {
        unsafe { graph.set_argument(node, 0, out) }.unwrap();
        unsafe { graph.set_argument(node, 1, round as u32 + 1) }.unwrap();
        unsafe { graph.set_size(node, 1 + round as u32 % 2, 32) }.unwrap();
        bench.queue.replay(&mut graph).unwrap();
    }
    bench.queue.wait(TIMEOUT).unwrap();
    for (round, out) in outputs.iter().enumerate() {
        let written = 32 * (1 + round % 2);
        let got = out.to_vec().unwrap();
        assert_eq!(got[..written], vec![round as u32 + 1; written], "replay {round}");
        assert!(got[written..].iter().all(|word| *word == 0), "replay {round}");
    }
}

#[test]
fn graphs_and_ordinary_work_keep_their_order() {
    let mut bench = Bench::new("basics");
    let mut a = bench.device.alloc_from(&[1_u32; 256]).unwrap();
    let b = bench.device.alloc_from(&[0_u32; 256]).unwrap();
    let increment = bench.program.kernel("increment").unwrap();
    let mut builder = bench.device.graph();
    unsafe { builder.launch(&increment, 8, 32, &args![&a, 256_u32]) }.unwrap();
    let mut graph = builder.build().unwrap();
    for round in 0..50_u32 {
        // Copy engine, then graph, then an ordinary launch that is not submitted yet, then the graph.
        bench.queue.copy(&b, &mut a).unwrap();
        bench.queue.replay(&mut graph).unwrap();
        unsafe { bench.queue.launch(&increment, 8, 32, &args![&a, 256_u32]) }.unwrap();
        bench.queue.replay(&mut graph).unwrap();
        if round % 7 == 0 {
            assert_eq!(a.to_vec().unwrap(), [3; 256], "round {round}");
        }
    }
    bench.queue.wait(TIMEOUT).unwrap();
    assert_eq!(a.to_vec().unwrap(), [3; 256]);
}

#[test]
fn copies_and_fills_of_any_size_and_alignment() {
    let mut bench = Bench::new("basics");
    let mut numbers = Numbers::new(3);
    let bytes: Vec<u8> = (0..5000).map(|_| numbers.u32() as u8).collect();
    let source = bench.device.alloc_from(&bytes).unwrap();
    for (start, len) in [(0, 5000), (16, 1024), (1, 17), (4999, 1), (3, 4000)] {
        let mut target = bench.device.alloc_zeroed::<u8>(5000).unwrap();
        let mut builder = bench.device.graph();
        builder.copy(source.slice(start..start + len).unwrap(), target.slice_mut(..len).unwrap()).unwrap();
        let mut graph = builder.build().unwrap();
        bench.queue.replay(&mut graph).unwrap().wait(TIMEOUT).unwrap();
        let got = target.to_vec().unwrap();
        assert_eq!(got[..len], bytes[start..start + len], "{len} bytes from {start}");
        assert!(got[len..].iter().all(|byte| *byte == 0));
    }
    let mut words = bench.device.alloc_zeroed::<u32>(1000).unwrap();
    let mut builder = bench.device.graph();
    let node = builder.fill(words.slice_mut(1..999).unwrap(), 0xdead_beef).unwrap();
    let mut graph = builder.build().unwrap();
    bench.queue.replay(&mut graph).unwrap().wait(TIMEOUT).unwrap();
    let got = words.to_vec().unwrap();
    assert!(got[1..999].iter().all(|word| *word == 0xdead_beef) && got[0] == 0 && got[999] == 0);
    let error = graph.set_copy(node, &source, &mut bench.device.alloc::<u8>(5000).unwrap()).unwrap_err();
    assert!(error.to_string().contains("not a copy"), "{error}");
}

#[test]
fn a_copy_can_be_redirected() {
    let mut bench = Bench::new("basics");
    let sources: Vec<_> = (0..4_u32).map(|n| bench.device.alloc_from(&[n; 100]).unwrap()).collect();
    let mut target = bench.device.alloc_zeroed::<u32>(101).unwrap();
    let mut builder = bench.device.graph();
    let node = builder.copy(&sources[0], target.slice_mut(..100).unwrap()).unwrap();
    let mut graph = builder.build().unwrap();
    for (n, source) in sources.iter().enumerate() {
        // From element 1 the destination is no longer 16-byte aligned.
        let start = n % 2;
        graph.set_copy(node, source, target.slice_mut(start..start + 100).unwrap()).unwrap();
        bench.queue.replay(&mut graph).unwrap().wait(TIMEOUT).unwrap();
        assert_eq!(target.slice(start..start + 100).unwrap().to_vec().unwrap(), [n as u32; 100]);
    }
}

#[test]
fn a_graph_keeps_programs_and_buffers() {
    let mut bench = Bench::new("basics");
    let out = bench.device.alloc_zeroed::<u32>(32).unwrap();
    let mut graph = {
        let program = Program::load(&bench.device, &cubin("basics")).unwrap();
        let temporary = bench.device.alloc_from(&[41_u32; 32]).unwrap();
        let mut builder = bench.device.graph();
        let kernel = program.kernel("increment").unwrap();
        unsafe { builder.launch(&kernel, 1, 32, &args![&temporary, 32_u32]) }.unwrap();
        let mut out = out;
        builder.copy(&temporary, &mut out).unwrap();
        let graph = builder.build().unwrap();
        (graph, out)
    };
    // Memory freed by the graph would be reused and overwritten here.
    let others: Vec<_> = (0..50).map(|_| bench.device.alloc_from(&[0_u32; 32]).unwrap()).collect();
    bench.queue.replay(&mut graph.0).unwrap().wait(TIMEOUT).unwrap();
    assert_eq!(graph.1.to_vec().unwrap(), [42; 32]);
    assert!(others.iter().all(|other| other.to_vec().unwrap() == [0; 32]));
    let before = bench.device.memory_usage().in_use;
    drop(graph);
    assert!(bench.device.memory_usage().in_use < before);
}

#[test]
fn one_graph_on_two_queues_takes_turns() {
    let mut bench = Bench::new("basics");
    let mut other = bench.device.queue().unwrap();
    let data = bench.device.alloc_from(&[0_u32; 32]).unwrap();
    let increment = bench.program.kernel("increment").unwrap();
    let mut builder = bench.device.graph();
    unsafe { builder.launch(&increment, 1, 32, &args![&data, 32_u32]) }.unwrap();
    let mut graph = builder.build().unwrap();
    for _ in 0..20 {
        let fence = bench.queue.replay(&mut graph).unwrap();
        other.wait_fence(&fence).unwrap();
        let fence = other.replay(&mut graph).unwrap();
        bench.queue.wait_fence(&fence).unwrap();
    }
    bench.queue.wait(TIMEOUT).unwrap();
    assert_eq!(data.to_vec().unwrap(), [40; 32]);
}

#[test]
fn a_fault_in_a_graph_names_its_kernel_and_the_graph_runs_again() {
    let mut bench = Bench::new("faults");
    let out = bench.device.alloc_from(&[0_u32; 1]).unwrap();
    let kernel = bench.program.kernel("fault_write").unwrap();
    let mut builder = bench.device.graph();
    let node = unsafe { builder.launch(&kernel, 1, 1, &args![0x40_0000_0000_u64, 9_u32]) }.unwrap();
    let mut graph = builder.build().unwrap();
    let fence = bench.queue.replay(&mut graph).unwrap();
    let Err(Error::Fault(fault)) = fence.wait(TIMEOUT) else { panic!("expected a fault") };
    assert_eq!(fault.address, Some(0x40_0000_0000));
    assert_eq!(fault.location.as_ref().unwrap().kernel, "fault_write");
    assert!(matches!(bench.queue.replay(&mut graph), Err(Error::Fault(_))));
    assert_eq!(bench.device.recover().unwrap().faults.len(), 1);
    unsafe { graph.set_argument(node, 0, &out) }.unwrap();
    for _ in 0..10 {
        bench.queue.replay(&mut graph).unwrap().wait(TIMEOUT).unwrap();
    }
    assert_eq!(out.to_vec().unwrap(), [9]);
}

#[test]
fn invalid_steps_and_changes_are_refused() {
    let mut bench = Bench::new("basics");
    let out = bench.device.alloc_zeroed::<u32>(4).unwrap();
    let fill = bench.program.kernel("fill_u32").unwrap();
    assert!(bench.device.graph().build().is_err(), "no steps");
    let mut builder = bench.device.graph();
    assert!(builder.instances(0).is_err() && builder.instances(65).is_err());
    assert!(unsafe { builder.launch(&fill, 1, 32, &args![&out, 1_u32]) }.is_err(), "too few arguments");
    assert!(unsafe { builder.launch(&fill, 0, 32, &args![&out, 1_u32, 4_u32]) }.is_err(), "no blocks");
    let node = unsafe { builder.launch(&fill, 1, 32, &args![&out, 1_u32, 4_u32]) }.unwrap();
    let mut empty = bench.device.alloc::<u32>(0).unwrap();
    assert!(builder.fill(&mut empty, 1).is_err());
    let mut graph = builder.build().unwrap();
    assert!(unsafe { graph.set_argument(node, 3, 1_u32) }.is_err(), "no such argument");
    assert!(unsafe { graph.set_argument(node, 1, 1_u64) }.is_err(), "wrong size");
    assert!(unsafe { graph.set_size(node, 1, 2048) }.is_err(), "block too large");
    let mut stranger = Bench::new("basics");
    assert!(matches!(stranger.queue.replay(&mut graph), Err(Error::OtherDevice(_))));
    bench.queue.replay(&mut graph).unwrap().wait(TIMEOUT).unwrap();
    assert_eq!(out.to_vec().unwrap(), [1; 4], "refused changes changed nothing");
}

#[test]
fn a_graph_is_refused_while_one_of_its_buffers_is_viewed() {
    let mut bench = Bench::new("basics");
    let mut data = bench.device.alloc_zeroed::<u32>(32).unwrap();
    let kernel = bench.program.kernel("increment").unwrap();
    let mut builder = bench.device.graph();
    unsafe { builder.launch(&kernel, 1, 32, &args![&data, 32_u32]) }.unwrap();
    let mut graph = builder.build().unwrap();
    for round in 0..10_u32 {
        let mut view = data.view().unwrap();
        assert!(matches!(bench.queue.replay(&mut graph), Err(Error::Viewed)));
        assert!(view.iter().all(|word| *word == round * 2));
        view.fill(round * 2 + 1);
        drop(view);
        bench.queue.replay(&mut graph).unwrap();
    }
    assert_eq!(data.to_vec().unwrap(), [20; 32]);
}
