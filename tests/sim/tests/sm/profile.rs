//! Profiles of kernels: counts that are known from the code.

use orin_sim::kernel_profile::{
    Bound, Cost, Counts, KernelProfile, Port, Profiler, Selection, compare, html, json, merge, parse, text,
};
use orin_sim::sm::{GridStats, SmOptions};

use crate::support::{Machine, Params};

const SOURCE: &str = include_str!("../sass/profile.cu");
const CUBIN: &[u8] = include_bytes!("../sass/profile.cubin");

/// A machine that profiles selected launches. It knows the program by its code, as that of a served program.
fn machine(selection: Selection) -> (Machine, Profiler) {
    let profiler = Profiler::new(selection);
    profiler.add_cubin(CUBIN).unwrap();
    let mut machine = Machine::load(CUBIN);
    machine.options = SmOptions { profile: Some(profiler.clone()), ..SmOptions::default() };
    (machine, profiler)
}

/// The profile of one launch of `kernel`.
fn profile(
    kernel: &str,
    grid: u32,
    block: u32,
    params: impl Fn(&mut Machine) -> Params,
) -> (KernelProfile, GridStats) {
    let (mut machine, profiler) = machine(Selection::default());
    let params = params(&mut machine);
    let stats = machine.run(kernel, [grid, 1, 1], [block, 1, 1], &params);
    let mut profiles = profiler.profiles();
    assert_eq!(profiles.len(), 1);
    let profile = profiles.remove(0);
    assert_eq!((profile.kernel.as_str(), profile.launches, profile.incomplete), (kernel, 1, 0));
    let all = profile.totals().all;
    assert_eq!((all.executed, all.active), (stats.warp_instructions, stats.lane_instructions));
    (profile, stats)
}

/// The counts of the source line with a comment.
fn at(profile: &KernelProfile, comment: &str) -> Counts {
    let wanted = format!("// {comment}");
    let line = (1..).zip(SOURCE.lines()).find(|(_, line)| line.ends_with(&wanted)).unwrap().0;
    let lines = profile.lines();
    let found = lines.iter().find(|found| found.line == line && found.file.ends_with("profile.cu"));
    found.unwrap_or_else(|| panic!("no line {line} in {lines:?}")).counts
}

/// The counts of the only executed instruction with a mnemonic.
fn only(profile: &KernelProfile, mnemonic: &str) -> Counts {
    let named = |text: &str| text.split_whitespace().any(|word| word == mnemonic);
    let mut found =
        profile.instructions.iter().filter(|place| place.counts.executed > 0 && named(&place.at.instruction));
    let first = found.next().unwrap_or_else(|| panic!("no {mnemonic}"));
    assert!(found.next().is_none(), "several {mnemonic}");
    first.counts
}

#[test]
fn sectors_follow_the_stride() {
    // Words apart, sectors of a warp's request.
    for (stride, sectors) in [(0, 1), (1, 4), (2, 8), (3, 12), (8, 32), (32, 32)] {
        let (profile, _) = profile_of_stride(stride);
        let (load, store) = (at(&profile, "LOAD").global, at(&profile, "STORE").global);
        let needed = if stride == 0 { 4 } else { 128 };
        assert_eq!((load.requests, load.sectors), (4, 4 * sectors), "stride {stride}");
        assert_eq!((load.needed_bytes, load.requested_bytes), (4 * needed, 4 * 128), "stride {stride}");
        assert_eq!(load.ideal_sectors, 4 * u64::from(needed as u32).div_ceil(32));
        assert_eq!((store.requests, store.sectors, store.excess_sectors()), (4, 16, 0));
        let totals = profile.totals();
        assert_eq!((totals.loads.global, totals.stores.global), (load, store));
        // No sector is loaded by two warps, but that of stride 0.
        let distinct = if stride == 0 { 1 } else { 4 * sectors };
        assert_eq!((profile.read_bytes, profile.written_bytes), (32 * distinct, 4 * 128));
    }
}

#[test]
fn passes_follow_the_banks() {
    for (stride, ways) in [(1, 1), (2, 2), (4, 4), (32, 32), (33, 1), (0, 1)] {
        let (profile, _) = profile("banks", 1, 32, |machine| {
            let out = machine.zeros(4 * 32);
            Params::new().buffer(&out).u32(stride)
        });
        let shared = at(&profile, "SHARED").shared;
        assert_eq!((shared.requests, shared.passes, shared.worst), (1, ways, ways), "stride {stride}");
        assert_eq!((shared.conflicts(), shared.collisions), (ways - 1, 0));
        let back = at(&profile, "BACK");
        assert_eq!((back.shared.requests, back.shared.passes, back.global.sectors), (1, 1, 4));
    }
}

#[test]
fn wide_accesses_need_more_passes_and_no_conflicts() {
    let (profile, _) = profile("wide", 1, 32, |machine| {
        let (out, input) = (machine.zeros(16 * 32), machine.zeros(16 * 32));
        Params::new().buffer(&out).buffer(&input)
    });
    let (four, two) = (at(&profile, "FOUR"), at(&profile, "TWO").shared);
    assert_eq!((four.shared.passes, four.shared.ideal_passes, four.global.sectors), (4, 4, 16));
    assert_eq!((two.passes, two.ideal_passes, two.worst), (2, 2, 1));
    // The first half of every 16 bytes: two lanes of a half warp share a bank.
    let totals = profile.totals();
    assert_eq!((totals.loads.shared.requests, totals.loads.shared.passes), (2, 4 + 2));
    assert_eq!(totals.loads.shared.worst, 2);
}

#[test]
fn threads_of_a_loop_go_different_ways() {
    let (profile, _) = profile("rounds", 3, 32, |machine| {
        let out = machine.zeros(4 * 32);
        Params::new().buffer(&out)
    });
    // Of 32 threads 8 leave before the loop, 8 after each round: the branch back executes 3 times, and goes different
    // ways twice. The last time no thread takes it.
    let back = profile.instructions.iter().find(|place| place.branch && place.counts.executed == 3 * 3);
    let back = back.unwrap().counts;
    assert_eq!((back.threads, back.active, back.skipped), (3 * 48, 3 * 24, 3));
    assert_eq!((back.divergent, back.predicated_off()), (3 * 2, 3 * 24));
    assert_eq!(profile.totals().all.divergent, 3 * 3);
    // The first branch of the program, that before the loop, and the branch back.
    assert_eq!(profile.totals().branches, 3 * (1 + 1 + 3));
    assert_eq!(only(&profile, "SHF.R.U32.HI").threads, 3 * 48);
}

#[test]
fn threads_without_their_guard_are_predicated_off() {
    let run = |n| {
        let run = profile("guarded", 1, 32, |machine| {
            let out = machine.zeros(4 * 32);
            Params::new().buffer(&out).u32(n)
        });
        run.0
    };
    let some = run(20);
    let mut exits = some.instructions.iter().filter(|place| place.at.instruction.ends_with("EXIT"));
    let first = exits.next().unwrap().counts;
    assert_eq!((first.executed, first.threads, first.active), (1, 32, 12));
    assert_eq!((first.predicated_off(), first.skipped, first.divergent), (20, 0, 0));
    let store = at(&some, "GUARDED");
    assert_eq!((store.global.requests, store.global.sectors, store.global.needed_bytes), (1, 3, 80));
    assert_eq!(exits.next().unwrap().counts.threads, 20);
    // Nobody leaves: the first EXIT is executed by no thread.
    let all = run(32);
    let first = all.instructions.iter().find(|place| place.at.instruction.ends_with("EXIT")).unwrap().counts;
    assert_eq!((first.executed, first.skipped, first.threads, first.active), (1, 1, 32, 0));
    // All leave: what follows is not executed, but listed.
    let none = run(0);
    let store = none.instructions.iter().find(|place| place.at.instruction.contains("STG")).unwrap();
    assert_eq!((store.counts, store.access.as_deref()), (Counts::default(), Some("store")));
}

#[test]
fn atomics_on_a_word_of_another_lane_are_counted() {
    let (profile, _) = profile("counters", 1, 32, |machine| {
        let out = machine.zeros(4 * 8);
        Params::new().buffer(&out)
    });
    let meet = at(&profile, "MEET").shared;
    assert_eq!((meet.requests, meet.passes, meet.collisions), (1, 1, 28));
    let totals = profile.totals();
    assert_eq!((totals.atomics.shared, totals.atomics.global.sectors), (meet, 1));
    assert_eq!(totals.atomics.global.needed_bytes, 32);
    assert_eq!((profile.read_bytes, profile.written_bytes), (32, 32));
}

#[test]
fn local_memory_lies_interleaved() {
    let (profile, _) = profile("frame", 1, 32, |machine| {
        let out = machine.zeros(4 * 32);
        Params::new().buffer(&out).u32(0)
    });
    assert_eq!(at(&profile, "SAME").local.sectors, 4, "the words of 8 lanes are a sector");
    let other = at(&profile, "OTHER");
    assert_eq!((other.local.requests, other.local.sectors, other.local.ideal_sectors), (1, 8, 4));
    assert_eq!((profile.read_bytes, profile.written_bytes), (0, 128), "local memory is not global");
}

#[test]
fn asynchronous_copies_count_on_both_sides() {
    let (profile, _) = profile("copied", 1, 32, |machine| {
        let (out, input) = (machine.zeros(16 * 32), machine.zeros(16 * 32));
        Params::new().buffer(&out).buffer(&input)
    });
    let copies = profile.totals().copies;
    assert_eq!((copies.global.sectors, copies.shared.passes, copies.shared.worst), (16, 4, 1));
    assert_eq!((profile.read_bytes, profile.written_bytes), (512, 512));
}

#[test]
fn launches_are_selected_and_added() {
    let kernels = vec!["str*".to_owned()];
    let (mut machine, profiler) = machine(Selection { kernels, skip: 1, count: Some(2) });
    let (out, input) = (machine.zeros(4 * 32), machine.zeros(4 * 32));
    let strided = Params::new().buffer(&out).buffer(&input).u32(1);
    for grid in [1, 1, 1, 2] {
        machine.run("banks", [1, 1, 1], [32, 1, 1], &Params::new().buffer(&out).u32(1));
        machine.run("strided", [grid, 1, 1], [16, 1, 1], &strided);
    }
    let profiles = profiler.profiles();
    assert_eq!(profiles.len(), 1);
    assert_eq!((profiles[0].kernel.as_str(), profiles[0].launches), ("strided", 2));
    assert_eq!(at(&profiles[0], "LOAD").global.requests, 2);
    // Another shape is another profile.
    let (mut machine, profiler) = self::machine(Selection::default());
    let (out, input) = (machine.zeros(4 * 32), machine.zeros(4 * 32));
    let strided = Params::new().buffer(&out).buffer(&input).u32(1);
    for grid in [1, 2, 1] {
        machine.run("strided", [grid, 1, 1], [16, 1, 1], &strided);
    }
    let launches: Vec<_> =
        profiler.profiles().iter().map(|profile| (profile.grid[0], profile.launches)).collect();
    assert_eq!(launches, [(1, 2), (2, 1)]);
}

#[test]
fn a_launch_that_faults_is_incomplete() {
    let (mut machine, profiler) = machine(Selection::default());
    let out = machine.zeros(4 * 32);
    let params = Params::new().buffer(&out).u64(0).u32(1);
    assert!(machine.try_run("strided", [1, 1, 1], [32, 1, 1], &params, 0).is_err());
    // A grid that is stopped.
    let mut grid = machine.grid("strided", [1, 1, 1], [32, 1, 1], &params, 0);
    grid.step(5).unwrap();
    drop(grid);
    let profiles = profiler.profiles();
    assert_eq!((profiles[0].launches, profiles[0].incomplete), (2, 2));
    assert_eq!(at(&profiles[0], "LOAD").executed, at(&profiles[0], "LOAD").executed.max(1));
    assert_eq!(at(&profiles[0], "STORE").global.requests, 0);
    assert!(text(&profiles, None).contains("2 ended early"));
}

#[test]
fn unknown_programs_have_addresses() {
    let profiler = Profiler::new(Selection::default());
    let mut machine = Machine::load(CUBIN);
    machine.options.profile = Some(profiler.clone());
    let out = machine.zeros(4 * 32);
    machine.run("banks", [1, 1, 1], [32, 1, 1], &Params::new().buffer(&out).u32(4));
    let profile = profiler.profiles().remove(0);
    assert!(profile.kernel.starts_with("0x5"), "{}", profile.kernel);
    assert!(profile.lines().is_empty());
    assert_eq!(only(&profile, "STS").shared.passes, 4);
}

#[test]
fn counts_do_not_depend_on_the_host() {
    let run = |threads, profiled: bool| {
        let profiler = Profiler::new(Selection::default());
        let mut machine = Machine::kernels("mandelbrot");
        machine.options.threads = Some(threads);
        machine.options.profile = profiled.then(|| profiler.clone());
        let out = machine.zeros(4 * 64 * 64);
        let params = Params::new().buffer(&out).u32(64).u32(64).f32(-2.0).f32(-1.25).f32(0.04).u32(100);
        let stats = machine.run("mandelbrot", [4, 8, 1], [16, 8, 1], &params);
        (out.u32s(), stats, profiler.profiles())
    };
    let (out, stats, profiles) = run(1, true);
    assert_eq!((out, stats, profiles.clone()), run(4, true));
    let plain = run(2, false);
    assert_eq!((stats, &[][..]), (plain.1, &plain.2[..]));
    let totals = profiles[0].totals();
    assert_eq!(totals.all.executed, stats.warp_instructions);
    assert!(totals.all.divergent > 0 && totals.threads_per_warp() < 32.0);
    assert_eq!(totals.mix.values().sum::<u64>(), stats.warp_instructions);
}

#[test]
fn profiles_are_written_in_three_forms() {
    let (profile, _) = profile("banks", 1, 32, |machine| {
        let out = machine.zeros(4 * 32);
        Params::new().buffer(&out).u32(32)
    });
    let profiles = vec![profile];
    let page = html(&profiles, None, None, |file| file.ends_with("profile.cu").then(|| SOURCE.to_owned()));
    for part in
        ["<h2 id=\"k0\">banks", "STS [R7], R4", "32.0 of 1.0", "room[threadIdx.x * stride &amp; 1023]"]
    {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    assert_eq!(page.matches("http").count(), 0, "no links to anything else");
    assert_eq!(text(&profiles, None), include_str!("banks.txt"));
    assert_eq!(text(&[profiles[0].clone(), profiles[0].clone()], None).matches("\n\nbanks: ").count(), 1);
    let whole = json(&profiles, None);
    assert_eq!(whole["profiles"][0]["totals"]["stores"]["shared"]["passes"], 32);
    assert_eq!(parse(&whole.to_string()).unwrap(), profiles);
    let lines = format!("{0}\n{0}\n", serde_json::to_string(&profiles[0]).unwrap());
    let merged = merge(parse(&lines).unwrap());
    assert_eq!((merged.len(), merged[0].launches), (1, 2));
    assert_eq!(merged[0].totals().stores.shared.passes, 64);
}

/// Time in seconds of a limit of a bound; 0 if it has none.
fn limit(bound: &Bound, name: &str) -> f64 {
    bound.limits.iter().find(|limit| limit.name == name).map_or(0.0, |limit| limit.seconds)
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-12 * b.abs()
}

/// A launch of `banks`: 35 instructions, `stride` words between lanes.
fn banks(stride: u32) -> KernelProfile {
    let (profile, _) = profile("banks", 1, 32, |machine| {
        let out = machine.zeros(4 * 32);
        Params::new().buffer(&out).u32(stride)
    });
    profile
}

#[test]
fn bounds_follow_from_counts() {
    let board = "agx-64".parse().unwrap();
    // One SM at 1.3 GHz: 32 passes of the store, one of the load, one request to global memory.
    let profile = banks(32);
    let bound = Bound::of(&profile, board);
    assert_eq!(bound.limit(), Some("load/store"));
    assert!(close(bound.seconds, 34.0 / 1.3e9), "{bound:?}");
    // Four instructions per clock.
    assert!(close(limit(&bound, "issue slots"), 35.0 / 4.0 / 1.3e9), "{bound:?}");
    assert!(close(bound.cold_seconds, bound.seconds), "128 bytes take less time");
    // A smaller board has a lower clock, but as many SMs as the block needs.
    assert!(close(Bound::of(&profile, "nano-8:7w".parse().unwrap()).seconds, 34.0 / 0.408e9));
    // Without conflicts the issue slots bind. Two launches take the time of one.
    let mut fast = banks(1);
    let once = Bound::of(&fast, board);
    assert_eq!(once.limit(), Some("issue slots"));
    assert!(close(limit(&once, "load/store"), 3.0 / 1.3e9));
    fast = merge(vec![fast.clone(), fast]).remove(0);
    assert_eq!((fast.launches, Bound::of(&fast, board)), (2, once));
    // 2 blocks on 2 SMs: 8 requests of 128 bytes.
    let (strided, _) = profile_of_stride(1);
    assert!(close(limit(&Bound::of(&strided, board), "load/store"), 8.0 / 2.0 / 1.3e9));
    let parts: f64 = strided.instructions.iter().map(|one| one.counts.executed as f64).sum();
    assert!(close(limit(&Bound::of(&strided, board), "issue slots"), parts / 4.0 / 2.0 / 1.3e9));
}

/// Two blocks of two warps, each thread of which loads and stores a word.
fn profile_of_stride(stride: u32) -> (KernelProfile, GridStats) {
    profile("strided", 2, 64, |machine| {
        let (out, input) = (machine.zeros(4 * 128), machine.zeros(4 * 128 * 32));
        Params::new().buffer(&out).buffer(&input).u32(stride)
    })
}

#[test]
fn memory_bounds_leave_out_what_caches_hold() {
    let mut profile = banks(1);
    let mib = f64::from(1 << 20);
    (profile.read_bytes, profile.written_bytes) = (100 << 20, 50 << 20);
    // 4 MiB of L2 and 4 of the system cache, for data that is read and for data that is written.
    let agx = Bound::of(&profile, "agx-64".parse().unwrap());
    assert_eq!(agx.limit(), Some("memory"));
    assert!(close(agx.seconds, (150.0 - 16.0) * mib / 204.8e9), "{agx:?}");
    assert!(close(agx.cold_seconds, 150.0 * mib / 204.8e9), "{agx:?}");
    let nano = Bound::of(&profile, "nano-4".parse().unwrap());
    assert!(close(nano.seconds, (150.0 - 12.0) * mib / 34.128e9), "{nano:?}");
    // Data that the caches may hold: not a limit.
    (profile.read_bytes, profile.written_bytes) = (8 << 20, 8 << 20);
    let cached = Bound::of(&profile, "agx-64".parse().unwrap());
    assert_eq!((cached.limit(), limit(&cached, "memory")), (Some("issue slots"), 0.0));
    assert!(close(cached.cold_seconds, 16.0 * mib / 204.8e9), "{cached:?}");
    // Twice as many launches with the same data each.
    let (launches, bytes) = (2, [16 << 20, 16 << 20]);
    (profile.launches, [profile.read_bytes, profile.written_bytes]) = (launches, bytes);
    assert_eq!(limit(&Bound::of(&profile, "agx-64".parse().unwrap()), "memory"), 0.0);
}

#[test]
fn tensor_cores_multiply_at_their_rate() {
    // Sections are aligned to 16 bytes in the file. Quarters of a clock of one SM.
    let mut seen = std::collections::BTreeMap::new();
    let files = [&include_bytes!("../sass/tensor.cubin")[..], include_bytes!("../sass/sparse.cubin")];
    for word in files.iter().flat_map(|file| file.chunks_exact(16)) {
        let word = u128::from_le_bytes(word.try_into().unwrap());
        let text = sass::disassemble(word, 0).unwrap_or_default();
        if let Some(name) = text.split_whitespace().find(|name| name.contains("MMA.")) {
            seen.insert(name.to_owned(), Cost::of(word).quarters);
        }
    }
    let seen: Vec<(&str, u64)> = seen.iter().map(|(name, quarters)| (name.as_str(), *quarters)).collect();
    // 16 x 8 products of 256 bits in two clocks. The rate of DMMA is not published: an issue slot.
    let expected = [
        ("BMMA.168256.XOR.POPC", 8),
        ("DMMA.884", 1),
        ("HMMA.16816.F32", 8),
        ("HMMA.SP.16832.F32", 8),
        ("IMMA.16832.S8.S8", 8),
        ("IMMA.SP.16832.S8.U8", 4),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn a_bound_and_its_shares_are_printed() {
    let board = Some("nx-16:15w".parse().unwrap());
    let profiles = [banks(32)];
    insta::assert_snapshot!(text(&profiles, board));
    let page = html(&profiles, board, None, |_| None);
    assert!(page.contains("<th>of bound") && page.contains("<td>94.1 %"), "{page}");
    assert!(!html(&profiles, None, None, |_| None).contains("of bound"));
    let whole = json(&profiles, board);
    assert_eq!(whole["profiles"][0]["bound"]["limits"][0]["name"], Port::LoadStore.name());
    assert_eq!(parse(&whole.to_string()).unwrap(), profiles);
}

#[test]
fn runs_are_compared() {
    let rounds = |grid| {
        let (profile, _) = profile("rounds", grid, 32, |machine| {
            let out = machine.zeros(4 * 32);
            Params::new().buffer(&out)
        });
        profile
    };
    let board = Some("agx-64".parse().unwrap());
    let (strided, _) = profile_of_stride(1);
    let before = [strided.clone(), rounds(3), banks(1)];
    let mut copies = profile("copied", 1, 32, |machine| {
        let (out, input) = (machine.zeros(16 * 32), machine.zeros(16 * 32));
        Params::new().buffer(&out).buffer(&input)
    });
    copies.0.occupancy.sms = 8;
    let now = [merge(vec![banks(32), banks(32)]).remove(0), rounds(4), copies.0];
    let changes = compare(&before, &now, board);
    insta::assert_snapshot!(changes);
    assert_eq!(changes.over(1e9).map(|kernel| kernel.kernel.as_str()).collect::<Vec<_>>(), ["banks"]);
    assert_eq!(changes.over(30.0).count(), 2);
    let page = html(&now, board, Some(&changes), |_| None);
    for part in [
        "Changes since the baseline",
        "<td class=\"w\">new",
        "only in the baseline: strided: grid 2, block 64",
    ] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    // A line inserted above shifts none: lines are those of the same text.
    let mut runs = [banks(1), banks(32)];
    let all: String = (1..200).map(|line| format!("text {line}\n")).collect();
    runs[0].record_source(|_| Some(all.clone()));
    for instruction in &mut runs[1].instructions {
        instruction.at.line = instruction.at.line.map(|line| line + 1);
    }
    let by_number = compare(&runs[..1], &runs[1..], None).kernels.remove(0).lines;
    assert!(by_number.len() > 1 && by_number.iter().all(|line| line.before.is_none()));
    runs[1].record_source(|_| Some(format!("inserted\n{all}")));
    let shifted = compare(&runs[..1], &runs[1..], None);
    let lines: Vec<_> = shifted.kernels[0].lines.iter().map(|line| (line.line, line.before)).collect();
    assert_eq!(lines, [(16, Some(15))]);
    assert!(shifted.to_string().contains("  profile.cu:16 (before: 15)\n"), "{shifted}");
    assert_eq!(parse(&json(&runs, None).to_string()).unwrap(), runs);
    // Equal runs do not change; a board with other SMs is named.
    let same = compare(&before, &before, board);
    assert!(same.kernels.iter().all(|kernel| kernel.increase() == 0.0 && kernel.lines.is_empty()));
    assert_eq!(same.to_string().matches(": no change\n").count(), 3);
    let mut other = before.clone();
    other[0].occupancy.sms = 8;
    assert!(
        compare(&before, &other, None).to_string().contains("a board with 16 SMs, this run of one with 8")
    );
}
