//! The checks of the software Orin: every planted error of `kernels/check` is found at its line, and nothing in the
//! repaired twins and in the corpus.

mod leaks;
mod vendor;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, thread};

use orin_sim::check::{Checker, Finding, Kind, Suppressions, Tools};
use orin_sim::kernel_profile::{Profiler, Selection};
use orin_sim::sm::SmOptions;
use orin_sim::{Config, SoftwareOrin};
use tegra_hcq::{Buffer, Device, Error, Program, args, check};
use test_corpus::planted::{self, Planted};
use test_corpus::{cases, cubins, on_the_model, run};
use test_support::{TIMEOUT, try_open, workspace};

/// Runs a kernel on a software Orin with all tools for kernels, and its own. Returns the findings.
fn findings(cubin: &[u8], planted: &Planted) -> Vec<Finding> {
    let device = check::open(Tools::KERNELS | planted.tool.parse().unwrap()).unwrap();
    // A kernel that faults leaves the device in error. A model that has panicked is no fault: it never answers.
    if let Err(error) = launch(&device, cubin, planted) {
        assert!(!matches!(error, tegra_hcq::Error::Timeout { .. }), "{}: {error}", planted.kernel);
    }
    check::findings_at_end(&device)
}

/// Runs a kernel. Returns its results.
fn launch(device: &Device, cubin: &[u8], planted: &Planted) -> tegra_hcq::Result<Vec<i32>> {
    let program = Program::load(device, cubin)?;
    let n = planted.n as usize;
    let numbers: Vec<i32> = (0..planted.n as i32).collect();
    let out = device.alloc_zeroed::<i32>(n)?.named("out");
    let input = device.alloc_from(&numbers)?.named("in");
    let raw = device.alloc::<i32>(n)?.named("raw");
    let freed = device.alloc_zeroed::<i32>(n)?.named("freed");
    let stale = freed.gpu_va();
    drop(freed);
    let mut queue = device.queue()?;
    let kernel = program.kernel(&planted.kernel)?;
    let arguments = args![&out, &input, &raw, stale, n as u32];
    // SAFETY: the software Orin drops stores outside of live objects; the buffers outlive the launch.
    unsafe { queue.launch_with_shared(&kernel, planted.grid, planted.block, planted.shared, &arguments)? };
    queue.submit()?.wait(TIMEOUT)?;
    out.to_vec()
}

/// The error is found, at its line if the cubin has lines; nothing is found in a repaired kernel.
fn judge(planted: &Planted, found: &[Finding], lines: bool) -> Result<(), String> {
    let text = check::text(found);
    let Some((kind, line)) = planted.error else {
        return if found.is_empty() { Ok(()) } else { Err(format!("{}: {text}", planted.kernel)) };
    };
    let hit = |finding: &&Finding| {
        // Either side of a race.
        let mut places = finding.at.iter().chain(finding.other.as_ref().map(|other| &other.at));
        finding.kind == kind && (!lines || places.any(|at| at.line == Some(line)))
    };
    match found.iter().find(hit) {
        Some(_) => Ok(()),
        None => Err(format!("{}: {} at line {line} is not found, but\n{text}", planted.kernel, kind.id())),
    }
}

/// All planted errors and repaired kernels, with the findings of all tools.
fn found(variant: &str) -> Vec<(Planted, Vec<Finding>)> {
    let folder = workspace().join("kernels/check").join(variant);
    let of = |planted: Planted| {
        let cubin = fs::read(folder.join(&planted.file).with_extension("cubin")).unwrap();
        let found = findings(&cubin, &planted);
        (planted, found)
    };
    planted::all().into_iter().map(of).collect()
}

/// As [`found`], of cubins with line information.
fn found_with_lines() -> &'static [(Planted, Vec<Finding>)] {
    static FOUND: LazyLock<Vec<(Planted, Vec<Finding>)>> = LazyLock::new(|| found("lines"));
    &FOUND
}

/// Judges the findings of all kernels.
fn judge_all(found: &[(Planted, Vec<Finding>)], lines: bool) {
    let mut wrong = Vec::new();
    let mut counts = BTreeMap::new();
    for (planted, found) in found {
        assert_eq!(planted.kernel.starts_with("bug_"), planted.error.is_some(), "{}", planted.kernel);
        *counts.entry((planted.file.as_str(), planted.error.is_some())).or_insert(0) += 1;
        wrong.extend(judge(planted, found, lines).err());
        let mut kinds: Vec<&str> = found.iter().map(|finding| finding.kind.id()).collect();
        let mut expected = planted.kinds();
        // One for each pair of instructions; without lines one for each copy of an unrolled loop.
        let unrolled = |kind: &str| !lines && ["beyond-frame", "inactive-lane"].contains(&kind);
        for kinds in [&mut kinds, &mut expected] {
            kinds.dedup_by(|kind, before| kind == before && (kind.ends_with("-race") || unrolled(kind)));
        }
        if kinds != expected {
            wrong.push(format!("{}: {kinds:?} instead of {expected:?}", planted.kernel));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for file in ["mem", "race", "init", "sync"] {
        assert_eq!(counts[&(file, true)], counts[&(file, false)], "{file}: each error has its twin");
        assert!(counts[&(file, true)] >= 12, "{file}");
    }
    assert!(counts.values().sum::<i32>() >= 2 * 60);
}

#[test]
fn planted_errors_are_found_at_their_lines() {
    judge_all(found_with_lines(), true);
}

#[test]
fn planted_errors_are_found_without_lines() {
    let mut all = found("plain");
    for (planted, found) in
        all.extract_if(.., |(planted, _)| planted.kernel.ends_with("_barrier_of_each_role"))
    {
        assert_eq!(found, [], "{} is an error by its source lines", planted.kernel);
    }
    judge_all(&all, false);
}

/// Kernels with an error in a function of CUDA's headers, which has no lines: code for debugging calls it.
const IN_HEADERS: [&str; 8] = [
    "bug_atomic_past_end",
    "bug_atomic",
    "bug_mask_without_caller",
    "bug_different_masks",
    "bug_mask_of_others",
    "bug_in_function",
    "bug_half_a_warp_leaves",
    "bug_sum_without_lanes",
];

#[test]
fn planted_errors_are_found_in_code_for_debugging() {
    let mut all = found("debug");
    for (planted, _) in &mut all {
        match (planted.kernel.as_str(), &mut planted.error) {
            // Constants are read by their address in memory.
            ("bug_constant", Some((kind, _))) => *kind = Kind::OutOfBounds,
            // The barrier of the other branch is reported. The text names this one.
            ("bug_both_branches", Some((_, line))) => *line += 4,
            _ => {}
        }
    }
    let (headers, own): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|(planted, _)| IN_HEADERS.contains(&planted.kernel.as_str()));
    assert_eq!((headers.len(), own.len() + headers.len()), (IN_HEADERS.len(), found_with_lines().len()));
    for (planted, found) in headers {
        judge(&planted, &found, false).unwrap();
        assert!(
            found.iter().flat_map(|finding| &finding.at).all(|at| at.line.is_none()),
            "{}",
            planted.kernel
        );
    }
    let wrong: Vec<_> = own.iter().filter_map(|(planted, found)| judge(planted, found, true).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The results of a kernel of `kernels/check` without checks, under a random order of warps if there is a seed.
fn results(kernel: &str, seed: Option<u64>) -> Vec<i32> {
    let planted = planted::all().into_iter().find(|planted| planted.kernel == kernel).unwrap();
    let cubin = workspace().join("kernels/check/plain").join(&planted.file).with_extension("cubin");
    let sm = SmOptions { seed, ..SmOptions::default() };
    let (_orin, device) = try_open(Config { sm, ..Config::default() });
    launch(&device.unwrap(), &fs::read(cubin).unwrap(), &planted).unwrap()
}

/// A kernel that does not wait for its copies reads what shared memory had before, which is 0.
#[test]
fn copies_are_visible_when_their_threads_have_waited() {
    let reversed = |from: i32| (0..64).map(move |thread| from + 63 - thread);
    let sums: Vec<i32> = reversed(0).map(|first| 4 * first + 64 * (1 + 2 + 3)).collect();
    let copied: Vec<i32> = reversed(0).collect();
    for (name, right, stale) in [
        ("copy_in_flight", &copied, &vec![0; 64]),
        ("arrival_before_copy", &copied, &vec![0; 64]),
        // The copies of the last two stages are in flight.
        ("stages", &sums, &reversed(0).map(|first| 2 * first + 64).collect()),
    ] {
        let run = |role: &str, seed| results(&format!("{role}_{name}"), seed)[..64].to_vec();
        assert_eq!((run("fix", None), run("bug", None)), (right.clone(), stale.clone()), "{name}");
        let seeds = 1..8;
        assert!(seeds.clone().all(|seed| run("fix", Some(seed)) == *right), "{name}");
        let found: BTreeSet<_> = seeds.map(|seed| run("bug", Some(seed))).collect();
        assert!(found.len() > 1, "{name}: copies are complete at one of two times");
    }
}

#[test]
fn the_corpus_has_no_errors() {
    let checker = Checker::new(Tools::KERNELS | Tools::WARPCHECK);
    // Several threads reach a vertex at once and store the same values: a race that cannot change the result. Another
    // kernel multiplies values of lanes that are not there by 0.
    let known = "global-race breadth_first\nshared-race breadth_first\nwarp-race breadth_first\n\
                 inactive-lane group_shuffles_apart";
    checker.suppress(Suppressions::parse(known).unwrap());
    let sm = SmOptions { check: Some(checker.clone()), ..SmOptions::default() };
    let results = on_the_model(Config { sm, ..Config::default() }, cases());
    let results = results.unwrap_or_else(|error| panic!("{error}\n{}", check::text(&checker.findings())));
    for (case, out) in &results {
        run::judge(case, out, case.expected(), "the CPU").unwrap();
    }
    assert!(checker.findings_at_end().is_empty(), "{}", check::text(&checker.findings()));
    assert!(checker.suppressed() > 0);
    assert!(cubins::FILES.len() > 10);
}

#[test]
fn a_kernel_may_use_only_the_parts_that_it_gets() {
    let cubin = fs::read(workspace().join("kernels/saxpy.cubin")).unwrap();
    let run = |n: u32, whole: bool| {
        let device = check::open(Tools::MEMCHECK).unwrap();
        let program = Program::load(&device, &cubin).unwrap();
        let mut both = device.alloc_zeroed::<f32>(200).unwrap().named("both");
        let address = both.gpu_va();
        let (x, y) = both.split_at_mut(100).unwrap();
        let mut queue = device.queue().unwrap();
        let arguments = args![1.0_f32, &x, &y, n];
        // The same address as a number: the kernel may use all of the buffer.
        let numbers = args![1.0_f32, address, &y, n];
        let kernel = program.kernel("saxpy").unwrap();
        // SAFETY: the launch stays inside of the buffer, which outlives it.
        unsafe { queue.launch(&kernel, 1, 128, if whole { &numbers } else { &arguments }) }.unwrap();
        queue.submit().unwrap().wait(TIMEOUT).unwrap();
        check::findings(&device)
    };
    assert_eq!(run(100, false), []);
    let found = run(120, false);
    // Elements 100 to 119 of x are in y, which the launch passes as well; those of y are beyond the buffer.
    assert_eq!(found.len(), 2, "{}", check::text(&found));
    assert_eq!(run(100, true), []);
}

#[test]
fn a_slice_ends_where_it_ends() {
    let cubin = fs::read(workspace().join("kernels/saxpy.cubin")).unwrap();
    let device = check::open(Tools::MEMCHECK).unwrap();
    let program = Program::load(&device, &cubin).unwrap();
    let x = device.alloc_zeroed::<f32>(200).unwrap().named("x");
    let y = device.alloc_zeroed::<f32>(200).unwrap().named("y");
    let mut queue = device.queue().unwrap();
    let part = x.slice(..100).unwrap();
    // SAFETY: the launch stays inside of the buffers, which outlive it.
    let launched = unsafe {
        queue.launch(&program.kernel("saxpy").unwrap(), 1, 128, &args![1.0_f32, part, &y, 110_u32])
    };
    launched.unwrap();
    queue.submit().unwrap().wait(TIMEOUT).unwrap();
    let found = check::findings(&device);
    assert_eq!((found.len(), found[0].count), (1, 10), "{}", check::text(&found));
    assert!(found[0].message.contains("outside of the part of the object"), "{}", found[0].message);
    assert!(found[0].to_string().contains("400 bytes into x"), "{}", found[0]);
}

#[test]
fn a_slice_in_a_graph_ends_where_it_ends() {
    let cubin = fs::read(workspace().join("kernels/saxpy.cubin")).unwrap();
    let device = check::open(Tools::MEMCHECK).unwrap();
    let kernel = Program::load(&device, &cubin).unwrap().kernel("saxpy").unwrap();
    let x = device.alloc_zeroed::<f32>(200).unwrap().named("x");
    let y = device.alloc_zeroed::<f32>(200).unwrap().named("y");
    let mut queue = device.queue().unwrap();
    let mut replay = |graph: &mut tegra_hcq::Graph| {
        let before = check::findings(&device).iter().map(|finding| finding.count).sum::<u64>();
        queue.replay(graph).unwrap().wait(TIMEOUT).unwrap();
        check::findings(&device).iter().map(|finding| finding.count).sum::<u64>() - before
    };
    let mut builder = device.graph();
    let arguments = args![1.0_f32, x.slice(..100).unwrap(), &y, 110_u32];
    // SAFETY: the launch stays inside of the buffers, which outlive it.
    let node = unsafe { builder.launch(&kernel, 1, 128, &arguments) }.unwrap();
    let mut graph = builder.build().unwrap();
    assert_eq!((replay(&mut graph), replay(&mut graph)), (10, 10), "elements 100 to 109, in both instances");
    // SAFETY: as above.
    unsafe { graph.set_argument(node, 1, x.slice(..110).unwrap()) }.unwrap();
    assert_eq!((replay(&mut graph), replay(&mut graph)), (0, 0), "the same address, more elements");
    // SAFETY: as above.
    unsafe { graph.set_argument(node, 1, x.slice(10..105).unwrap()) }.unwrap();
    assert_eq!((replay(&mut graph), replay(&mut graph)), (15, 15));
}

#[test]
fn errors_name_the_bytes_without_the_red_zone() {
    let device = check::open(Tools::MEMCHECK).unwrap();
    let error = device.alloc::<u8>(1 << 40).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { wanted, .. } if wanted == 1 << 40), "{error}");
}

/// The driver composes buffers above 128 MiB of several.
#[test]
fn a_buffer_of_several_parts_is_one_object() {
    const LEN: usize = (200 << 20) / 4;
    const SEAM: usize = (128 << 20) / 4;
    let cubin = fs::read(workspace().join("kernels/basics.cubin")).unwrap();
    let device = check::open(Tools::MEMCHECK).unwrap();
    let kernel = Program::load(&device, &cubin).unwrap().kernel("increment").unwrap();
    let buffer = device.alloc::<u32>(LEN).unwrap().named("composed");
    let mut queue = device.queue().unwrap();
    for (start, beyond) in [(SEAM - 16, 0_u32), (LEN - 32, 3)] {
        let arguments = args![buffer.slice(start..start + 32).unwrap(), 32 + beyond];
        // SAFETY: the software Orin drops stores outside of live objects.
        unsafe { queue.launch(&kernel, 1, 64, &arguments) }.unwrap();
        queue.wait(TIMEOUT).unwrap();
    }
    let found = check::findings_at_end(&device);
    let text = check::text(&found);
    assert!(found.iter().all(|finding| finding.kind == Kind::OutOfBounds), "{text}");
    let objects: Vec<_> = found.iter().filter_map(|finding| finding.object.as_ref()).collect();
    assert!(!objects.is_empty(), "{text}");
    let whole =
        |near: &&orin_sim::check::NearObject| near.name == "composed" && near.bytes == (LEN * 4) as u64;
    assert!(objects.iter().all(whole), "{text}");
}

#[test]
fn without_other_memory_that_in_quarantine_is_used_again() {
    const BYTES: usize = 24 << 20;
    let sm = SmOptions { check: Some(Checker::new(Tools::MEMCHECK)), ..SmOptions::default() };
    let (orin, device) = try_open(Config { sm, ..Config::default() });
    let device = device.unwrap();
    drop(device.alloc::<u8>(BYTES).unwrap());
    orin.limit_allocations(orin.live().memory_bytes);
    device.alloc::<u8>(BYTES).unwrap();
}

/// A kernel that reads or writes beyond a buffer often has a wrong result as well, on which the test fails first.
#[test]
fn a_test_that_fails_by_its_result_shows_the_findings_too() {
    let cubin = fs::read(workspace().join("kernels/basics.cubin")).unwrap();
    let failed = |words: u32| {
        let test = || {
            check::clean(|device| {
                let kernel = Program::load(device, &cubin)?.kernel("increment")?;
                let data = device.alloc_zeroed::<u32>(32)?;
                let mut queue = device.queue()?;
                // SAFETY: the software Orin drops stores outside of live objects.
                unsafe { queue.launch(&kernel, 1, 64, &args![&data, words]) }?;
                queue.wait(TIMEOUT)?;
                assert_eq!(data.to_vec()?[0], 2, "the result");
                Ok(())
            });
        };
        let panic = std::panic::catch_unwind(test).unwrap_err();
        panic.downcast_ref::<String>().cloned().unwrap_or_default()
    };
    let text = failed(33);
    assert!(text.contains("the checks had found") && text.contains("out-of-bounds"), "{text}");
    let text = failed(32);
    assert!(text.contains("the result") && !text.contains("the checks"), "{text}");
}

#[test]
fn launches_run_while_objects_change() {
    let cubin = fs::read(workspace().join("kernels/basics.cubin")).unwrap();
    check::clean_of(Tools::MEMCHECK, |device| {
        let kernel = Program::load(device, &cubin)?.kernel("increment")?;
        let (data, other) = (device.alloc_zeroed::<u32>(32)?, device.alloc::<u32>(1)?);
        let mut queue = device.queue()?;
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    other.set_name("other");
                }
            });
            let launches = (0..3000).try_for_each(|_| {
                // SAFETY: the kernel changes the 32 words of the buffer, which outlives it.
                unsafe { queue.launch(&kernel, 1, 32, &args![&data, 32_u32]) }?;
                queue.submit().map(drop)
            });
            let done = launches.and_then(|()| queue.wait(TIMEOUT));
            ended.store(true, Ordering::Relaxed);
            done
        })?;
        assert_eq!(data.to_vec()?, [3000; 32]);
        Ok(())
    });
}

#[test]
fn the_gpu_must_not_write_what_the_cpu_has_a_view_of() {
    let cubin = fs::read(workspace().join("kernels/basics.cubin")).unwrap();
    let run = |keep: bool| {
        let device = check::open(Tools::KERNELS).unwrap();
        let program = Program::load(&device, &cubin).unwrap();
        let mut words = device.alloc_zeroed::<u32>(64).unwrap().named("words");
        let (address, mut queue) = (words.gpu_va(), device.queue().unwrap());
        let mut view = Some(words.view().unwrap());
        view.as_mut().unwrap()[0] = 7;
        view = view.filter(|_| keep);
        // The library knows the address as a number only, so it does not refuse the launch.
        let arguments = args![address, 64_u32];
        // SAFETY: the kernel changes 64 words of the buffer, which outlives it. Nothing uses the view meanwhile.
        unsafe { queue.launch(&program.kernel("increment").unwrap(), 2, 32, &arguments) }.unwrap();
        queue.submit().unwrap().wait(TIMEOUT).unwrap();
        drop(view);
        assert_eq!(words.to_vec().unwrap()[..2], [8, 1]);
        check::findings(&device)
    };
    assert_eq!(run(false), []);
    let found = run(true);
    assert_eq!(
        (found.len(), found[0].kind, found[0].count),
        (1, Kind::CpuRace, 64),
        "{}",
        check::text(&found)
    );
    let object = found[0].object.as_ref().unwrap();
    assert!(object.name == "words" && !object.viewed.is_empty(), "{}", found[0]);
}

#[test]
fn copies_must_not_write_what_the_cpu_has_a_view_of() {
    let device = check::open(Tools::KERNELS).unwrap();
    let mut words = device.alloc_from(&[7_u32; 64]).unwrap().named("words");
    let others = device.alloc_zeroed::<u32>(64).unwrap();
    let mut queue = device.queue().unwrap();
    let mut copy = |words: &mut Buffer<u32>| {
        queue.copy(&others, words).unwrap();
        queue.submit().unwrap().wait(TIMEOUT).unwrap();
        check::findings(&device)
    };
    drop(words.view().unwrap());
    assert_eq!(copy(&mut words), []);
    // A view that the program forgets is never closed.
    core::mem::forget(words.view().unwrap());
    let found = copy(&mut words);
    assert_eq!((found.len(), found[0].kind), (1, Kind::CpuRace), "{}", check::text(&found));
    assert!(found[0].message.starts_with("copy engine: write of 256 bytes"), "{}", found[0]);
    assert!(!found[0].object.as_ref().unwrap().viewed.is_empty(), "{}", found[0]);
}

/// The CPU submits to two queues, one after the other, and waits for neither.
#[test]
fn two_queues_without_order_are_found() {
    let cubin = fs::read(workspace().join("kernels/basics.cubin")).unwrap();
    let unordered = |ordered: bool| {
        let device = check::open(Tools::ORDERING).unwrap();
        let kernel = Program::load(&device, &cubin).unwrap().kernel("increment").unwrap();
        let words = device.alloc_zeroed::<u32>(64).unwrap();
        let mut queues = [device.queue().unwrap(), device.queue().unwrap()];
        for queue in &mut queues {
            // SAFETY: the kernel changes 64 words of the buffer, which outlives it.
            unsafe { queue.launch(&kernel, 2, 32, &args![&words, 64_u32]) }.unwrap();
        }
        let [first, second] = &mut queues;
        let fence = first.submit().unwrap();
        if ordered {
            fence.wait(TIMEOUT).unwrap();
        }
        second.submit().unwrap().wait(TIMEOUT).unwrap();
        first.wait(TIMEOUT).unwrap();
        check::findings(&device).iter().filter(|finding| finding.kind == Kind::Unordered).count()
    };
    // The host may interrupt this thread between the two calls for longer than the model waits.
    assert!((0..20).any(|_| unordered(false) > 0));
    assert_eq!((0..3).map(|_| unordered(true)).sum::<usize>(), 0);
}

#[test]
fn a_buffer_that_is_never_freed_is_a_leak() {
    let device = check::open(Tools::LEAKCHECK).unwrap();
    let kept = device.alloc::<u8>(100).unwrap().named("kept");
    drop(device.alloc::<u8>(50).unwrap().named("dropped"));
    let leaks = check::findings_at_end(&device);
    assert_eq!(leaks.len(), 1);
    assert!(leaks[0].to_string().starts_with("leakcheck: leak: kept (100 bytes) is alive at the end"));
    drop(kept);
}

#[test]
fn profiles_name_the_kernels_of_loaded_programs() {
    let profiler = Profiler::new(Selection::default());
    let sm = SmOptions { profile: Some(profiler.clone()), ..SmOptions::default() };
    let (_orin, device) = try_open(Config { sm, ..Config::default() });
    let device = device.unwrap();
    let cubin = fs::read(workspace().join("kernels/check/lines/mem.cubin")).unwrap();
    let planted = planted::all().into_iter().find(|planted| planted.error.is_none()).unwrap();
    launch(&device, &cubin, &planted).unwrap();
    let profiles = profiler.profiles();
    assert_eq!((profiles.len(), &profiles[0].kernel), (1, &planted.kernel));
    let lines = profiles[0].lines();
    assert!(lines.iter().any(|line| line.file.ends_with("mem.cu") && line.counts.global.requests > 0));
    // A profile alone examines nothing.
    assert!(check::findings_at_end(&device).is_empty());
}

#[test]
fn without_a_checker_nothing_is_found() {
    let (orin, device) = try_open(Config::default());
    assert!(orin.checker().is_none() && check::findings(&device.unwrap()).is_empty());
    assert!(SoftwareOrin::new(Config::default()).is_ok());
}
