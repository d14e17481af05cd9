//! The recorder of executed instructions.

use crate::support::{Machine, Params};
use orin_sim::sm::Coverage;

#[test]
fn executions_are_counted_by_name_with_modifiers() {
    let mut machine = Machine::kernels("vector_add");
    let coverage = Coverage::new();
    machine.options.coverage = Some(coverage.clone());
    assert!(coverage.counts().is_empty());
    let (a, b, c) = (machine.zeros(4 * 1000), machine.zeros(4 * 1000), machine.zeros(4 * 1000));
    let params = Params::new().buffer(&a).buffer(&b).buffer(&c).u32(1000);
    // 1000 threads are 32 warps, of which the last has eight lanes within bounds; the 33rd has none.
    let stats = machine.run("vector_add", [33, 1, 1], [32, 1, 1], &params);
    let counts = coverage.counts();
    assert_eq!((counts["FADD"], counts["LDG.E"], counts["STG.E"]), (32, 64, 32), "{counts:?}");
    assert_eq!(counts["EXIT"], 2 + 32, "two warps have lanes that leave early: {counts:?}");
    assert!(counts.values().sum::<u64>() <= stats.warp_instructions);
    // A second launch adds to the first.
    machine.run("vector_add", [33, 1, 1], [32, 1, 1], &params);
    assert_eq!(coverage.counts()["FADD"], 64);
}

#[test]
fn results_do_not_depend_on_the_recorder() {
    let run = |coverage: Option<Coverage>| {
        let mut machine = Machine::kernels("mandelbrot");
        machine.options.coverage = coverage;
        let out = machine.zeros(4 * 64 * 64);
        let params = Params::new().buffer(&out).u32(64).u32(64).f32(-2.0).f32(-1.25).f32(0.04).u32(100);
        let stats = machine.run("mandelbrot", [4, 8, 1], [16, 8, 1], &params);
        (out.u32s(), stats)
    };
    assert_eq!(run(None), run(Some(Coverage::new())));
}
