//! Profiles: every operation is recorded with times on one clock, and none is lost.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use tegra_hcq::{Profile, Span, Work, args};
use test_support::{Bench, TIMEOUT};

/// Largest difference between CPU and GPU clocks on a busy machine, in nanoseconds.
const CLOCKS: u64 = 50_000_000;

fn since_epoch() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}

/// Spans of one queue: in order, without overlap, and between `from` and now.
fn check(spans: &[Span], from: u64) {
    let to = since_epoch();
    for span in spans {
        assert!(span.called <= span.encoded && span.encoded <= span.submitted, "{spans:#?}");
        assert!(span.start <= span.end, "{span:?}");
        assert!(from <= span.called + CLOCKS && span.submitted <= to + CLOCKS, "{span:?}");
        assert!(span.called <= span.start + CLOCKS && span.end <= to + CLOCKS, "{span:?}");
    }
    // The steps of a graph are inside of its span.
    let whole: Vec<&Span> = spans.iter().filter(|span| span.step.is_none()).collect();
    for pair in whole.windows(2) {
        assert!(pair[0].called <= pair[1].called && pair[0].end <= pair[1].start, "{pair:?}");
    }
}

/// A launch, a copy, a fill and a replay of a graph.
fn mixed(bench: &mut Bench) -> Profile {
    let data = bench.device.alloc_from(&[0_u32; 64]).unwrap();
    let mut copy = bench.device.alloc_zeroed::<u32>(64).unwrap();
    let kernel = bench.program.kernel("increment").unwrap();
    let mut builder = bench.device.graph();
    unsafe { builder.launch(&kernel, 2, 32, &args![&data, 64_u32]) }.unwrap();
    unsafe { builder.launch(&kernel, 2, 32, &args![&data, 64_u32]) }.unwrap();
    let mut graph = builder.build().unwrap();

    let queue = &mut bench.queue;
    unsafe { queue.launch(&kernel, 2, 32, &args![&data, 64_u32]) }.unwrap();
    queue.submit().unwrap();
    queue.profile(true).unwrap();
    unsafe { queue.launch(&kernel, 2, 32, &args![&data, 64_u32]) }.unwrap();
    unsafe { queue.launch(&kernel, (1, 1, 1), 64, &args![&data, 64_u32]) }.unwrap();
    queue.copy(&data, &mut copy).unwrap();
    let fence = queue.replay(&mut graph).unwrap();
    queue.fill(copy.slice_mut(..10).unwrap(), 9).unwrap();
    queue.profile(false).unwrap();
    unsafe { queue.launch(&kernel, 2, 32, &args![&data, 64_u32]) }.unwrap();
    queue.wait(TIMEOUT).unwrap();
    fence.wait(TIMEOUT).unwrap();
    assert_eq!(data.to_vec().unwrap(), [6; 64]);
    let copied = copy.to_vec().unwrap();
    assert_eq!((copied[9], copied[10]), (9, 3), "a copy lies between the launches and the graph");
    queue.take_profile().unwrap()
}

#[test]
fn launches_copies_fills_and_replays_are_recorded_while_it_is_on() {
    let mut bench = Bench::new("basics");
    let from = since_epoch();
    let profile = mixed(&mut bench);
    let launch = |grid: u32, block: u32| Work::Launch {
        kernel: "increment".to_owned(),
        grid: grid.into(),
        block: block.into(),
    };
    let works: Vec<&Work> = profile.spans.iter().map(|span| &span.work).collect();
    let expected = [
        launch(2, 32),
        launch(1, 64),
        Work::Copy { bytes: 256 },
        Work::Graph { steps: 2 },
        launch(2, 32),
        launch(2, 32),
        Work::Fill { bytes: 40 },
    ];
    assert_eq!(works, expected.iter().collect::<Vec<_>>());
    assert!(profile.unfinished.is_empty());
    check(&profile.spans, from);
    let [graph, first, second] = &profile.spans[3..6] else { panic!("{profile:#?}") };
    assert_eq!([first.step, second.step], [Some(0), Some(1)]);
    assert_eq!([first.start, first.end, second.end], [graph.start, second.start, graph.end]);
    assert!(profile.spans.iter().all(|span| span.gpu_time() > Duration::ZERO));
    assert!(bench.queue.take_profile().unwrap().is_empty(), "the profile was already taken");
}

#[test]
fn recorded_launches_remain_chained() {
    let mut bench = Bench::new("basics");
    let data = bench.device.alloc_from(&[0_u32]).unwrap();
    let kernel = bench.program.kernel("increment").unwrap();
    bench.queue.profile(true).unwrap();
    for _ in 0..2 {
        for _ in 0..50 {
            unsafe { bench.queue.launch(&kernel, 1, 1, &args![&data, 1_u32]) }.unwrap();
        }
        bench.queue.submit().unwrap();
    }
    let profile = bench.queue.take_profile().unwrap();
    check(&profile.spans, 0);
    // Each begins at the very time stamp that ends the one before, except the first of the second batch.
    let apart = profile.spans.windows(2).filter(|pair| pair[0].end != pair[1].start).count();
    assert_eq!((profile.spans.len(), apart), (100, 1));
    assert_eq!(data.to_vec().unwrap(), [100]);
    // Without recording, the last descriptor may release the timeline again.
    bench.queue.profile(false).unwrap();
    unsafe { bench.queue.launch(&kernel, 1, 1, &args![&data, 1_u32]) }.unwrap();
    bench.queue.wait(TIMEOUT).unwrap();
    assert_eq!(data.to_vec().unwrap(), [101]);
}

#[test]
fn every_replay_has_the_times_of_its_steps() {
    let mut bench = Bench::new("basics");
    let data = bench.device.alloc_from(&[0_u32; 64]).unwrap();
    let kernel = bench.program.kernel("increment").unwrap();
    let mut builder = bench.device.graph();
    let nodes: Vec<_> =
        (0..100).map(|_| unsafe { builder.launch(&kernel, 2, 32, &args![&data, 64_u32]) }.unwrap()).collect();
    let mut graph = builder.build().unwrap();
    let mut other = bench.device.queue().unwrap();
    bench.queue.replay(&mut graph).unwrap().wait(TIMEOUT).unwrap();
    bench.queue.profile(true).unwrap();
    other.profile(true).unwrap();
    // More replays than instances, on two queues, with a change in between.
    for round in 0..6 {
        bench.queue.replay(&mut graph).unwrap();
        other.wait_fence(&bench.queue.submit().unwrap()).unwrap();
        if round == 3 {
            unsafe { graph.set_size(nodes[7], 1, 64) }.unwrap();
        }
        other.replay(&mut graph).unwrap();
        bench.queue.wait_fence(&other.submit().unwrap()).unwrap();
    }
    for queue in [&mut bench.queue, &mut other] {
        let profile = queue.take_profile().unwrap();
        check(&profile.spans, 0);
        assert_eq!((profile.spans.len(), profile.unfinished.len()), (6 * 101, 0));
        for replay in profile.spans.chunks(101) {
            assert_eq!(replay[0].work, Work::Graph { steps: 100 });
            assert!(replay[1..].windows(2).all(|pair| pair[0].end == pair[1].start), "chained: {replay:#?}");
            let sum: Duration = replay[1..].iter().map(Span::gpu_time).sum();
            // Each end is rounded to the CPU's clock.
            assert!(sum.abs_diff(replay[0].gpu_time()) < Duration::from_nanos(10), "{replay:#?}");
        }
        queue.profile(false).unwrap();
    }
    // Instances stop recording.
    for _ in 0..6 {
        bench.queue.replay(&mut graph).unwrap();
    }
    bench.queue.wait(TIMEOUT).unwrap();
    assert!(bench.queue.take_profile().unwrap().is_empty());
    assert_eq!(data.to_vec().unwrap(), [1900; 64]);
}

#[test]
fn named_ranges_are_in_the_profile_and_in_the_trace() {
    let mut bench = Bench::new("basics");
    let data = bench.device.alloc_from(&[0_u32; 64]).unwrap();
    let kernel = bench.program.kernel("increment").unwrap();
    let queue = &mut bench.queue;
    drop(queue.span("nothing is recorded yet"));
    queue.profile(true).unwrap();
    let frame = queue.span("frame");
    for _ in 0..3 {
        let _layer = queue.span("layer");
        unsafe { queue.launch(&kernel, 2, 32, &args![&data, 64_u32]) }.unwrap();
    }
    let open = queue.take_profile().unwrap();
    let names = |profile: &Profile| profile.ranges.iter().map(|range| range.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&open), ["layer"; 3]);
    for (range, span) in open.ranges.iter().zip(&open.spans) {
        assert_eq!(range.gpu, Some((span.start, span.end)));
        assert!(range.called <= span.called && span.encoded <= range.ended);
    }
    drop(frame);
    let mut rest = queue.take_profile().unwrap();
    assert_eq!(
        (names(&rest), rest.ranges[0].gpu),
        (vec!["frame".to_owned()], None),
        "its work was taken before"
    );
    rest.merge(open);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    rest.write_chrome_trace(&path).unwrap();
    let trace: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let ranges =
        |track: u64| events.iter().filter(|event| event["cat"] == "span" && event["tid"] == track).count();
    assert_eq!((ranges(1), ranges(2)), (4, 3));
    let process = events.iter().find(|event| event["name"] == "process_name").unwrap();
    assert!(process["args"]["name"].as_str().unwrap().starts_with("stack-"), "{process}");
}

#[test]
fn a_table_adds_up() {
    let mut bench = Bench::new("basics");
    let profile = mixed(&mut bench);
    let table = profile.table();
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 5, "{table}");
    assert!(lines[0].starts_with("name") && lines[0].ends_with("share"), "{table}");
    let row = lines.iter().find(|line| line.starts_with("increment")).unwrap();
    assert_eq!(row.split_whitespace().nth(1), Some("4"), "two launches, two steps: {table}");
    let graph = lines.iter().find(|line| line.starts_with("graph of 2 steps")).unwrap();
    assert!(graph.ends_with("µs") || graph.ends_with("ms"), "its steps have the share: {table}");
    let shares = lines[1..]
        .iter()
        .filter(|line| line.ends_with('%'))
        .map(|line| line.rsplit_once(' ').unwrap().1.trim_end_matches('%'));
    let total: f64 = shares.map(|share| share.parse::<f64>().unwrap()).sum();
    assert!((total - 100.0).abs() < 0.3, "{table}");
}

#[test]
fn a_trace_has_call_doorbell_and_run_of_each_operation() {
    let mut bench = Bench::new("basics");
    let mut other = bench.device.queue().unwrap();
    let mut profile = mixed(&mut bench);
    let data = bench.device.alloc_from(&[0_u32; 64]).unwrap();
    other.profile(true).unwrap();
    let kernel = bench.program.kernel("increment").unwrap();
    unsafe { other.launch(&kernel, 2, 32, &args![&data, 64_u32]) }.unwrap();
    profile.merge(other.take_profile().unwrap());

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    profile.write_chrome_trace(&path).unwrap();
    let trace: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let count = |phase: &str, category: &str| {
        events.iter().filter(|event| event["ph"] == phase && event["cat"] == category).count()
    };
    assert_eq!((count("X", "cpu"), count("i", "cpu"), count("X", "gpu")), (6, 6, 8));
    assert_eq!((count("s", "flow"), count("f", "flow")), (6, 6));
    let tracks: std::collections::BTreeSet<&str> = events
        .iter()
        .filter(|event| event["name"] == "thread_name")
        .map(|event| event["args"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        tracks.into_iter().collect::<Vec<_>>(),
        ["queue 0: CPU", "queue 0: GPU", "queue 1: CPU", "queue 1: GPU"]
    );
    for event in events.iter().filter(|event| event["ph"] != "M") {
        assert!(event["ts"].as_f64().unwrap() >= 0.0 && event["tid"].is_u64(), "{event}");
    }
    let run = events.iter().find(|event| event["cat"] == "gpu" && event["name"] == "increment").unwrap();
    assert_eq!(run["args"]["grid"], "2x1x1");

    let missing = folder.path().join("no/such/folder.json");
    let text = profile.write_chrome_trace(&missing).unwrap_err().to_string();
    assert!(text.contains("no/such/folder.json"), "{text}");
}

#[test]
fn more_work_than_the_ring_holds_is_recorded_whole() {
    let mut bench = Bench::new("basics");
    let data = bench.device.alloc_from(&[0_u32]).unwrap();
    let kernel = bench.program.kernel("increment").unwrap();
    bench.queue.profile(true).unwrap();
    // More than twice the ring size, in batches that the queue submits by itself.
    let count = 9000;
    for _ in 0..count {
        unsafe { bench.queue.launch(&kernel, 1, 1, &args![&data, 1_u32]) }.unwrap();
    }
    let profile = bench.queue.take_profile().unwrap();
    assert_eq!((profile.spans.len(), profile.unfinished.len()), (count, 0));
    check(&profile.spans, 0);
    assert_eq!(data.to_vec().unwrap(), [9000]);
}

#[test]
fn work_cut_off_by_a_fault_is_reported_as_unfinished() {
    let mut bench = Bench::new("faults");
    let data = bench.device.alloc_from(&[5_u32]).unwrap();
    let out = bench.device.alloc_zeroed::<u32>(1).unwrap();
    let good = bench.program.kernel("fault_no_bound").unwrap();
    let bad = bench.program.kernel("fault_write").unwrap();
    bench.queue.profile(true).unwrap();
    for round in 0..2 {
        unsafe { bench.queue.launch(&good, 1, 1, &args![&data, &out]) }.unwrap();
        unsafe { bench.queue.launch(&bad, 1, 1, &args![0x40_0000_0000_u64, 1_u32]) }.unwrap();
        unsafe { bench.queue.launch(&good, 1, 1, &args![&data, &out]) }.unwrap();
        assert!(bench.queue.wait(TIMEOUT).is_err());
        if round == 1 {
            // Taken after the recovery, it is unchanged.
            bench.device.recover().unwrap();
        }
        let profile = bench.queue.take_profile().unwrap();
        assert_eq!(profile.spans.len(), 1);
        let names: Vec<String> = profile.unfinished.iter().map(|work| work.work.name()).collect();
        assert_eq!(names, ["fault_write", "fault_no_bound"]);
        assert!(profile.unfinished.iter().all(|work| work.submitted.is_some()));
        assert!(profile.table().contains("2 more never finished"), "{}", profile.table());
        bench.device.recover().unwrap();
    }
    unsafe { bench.queue.launch(&good, 1, 1, &args![&data, &out]) }.unwrap();
    let profile = bench.queue.take_profile().unwrap();
    assert_eq!(
        (profile.spans.len(), profile.unfinished.len()),
        (1, 0),
        "a rebuilt queue continues to record"
    );
}
