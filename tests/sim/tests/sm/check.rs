//! Checks of kernels whose program does not tell the model about its objects, as a served one.

use orin_sim::check::{Checker, Kind, Place, Tools};
use orin_sim::sm::SmOptions;

use crate::support::{Machine, Params};

/// The findings about `saxpy` on 1,000 elements.
fn saxpy(elements: u32) -> Vec<(Kind, u64, Place, u64)> {
    let mut machine = Machine::kernels("saxpy");
    let checker = Checker::new(Tools::MEMCHECK);
    machine.options = SmOptions { check: Some(checker.clone()), ..SmOptions::default() };
    let (x, y) = (machine.f32s(&[1.0; 1000]), machine.f32s(&[2.0; 1000]));
    let params = Params::new().f32(3.0).buffer(&x).buffer(&y).u32(elements);
    machine.run("saxpy", [4, 1, 1], [256, 1, 1], &params);
    assert_eq!(y.f32s(), [5.0; 1000]);
    let findings = checker.findings().into_iter().map(|finding| {
        let object = finding.object.unwrap();
        (finding.kind, object.bytes, object.place, finding.count)
    });
    findings.collect()
}

#[test]
fn the_rest_of_the_last_page_is_out_of_bounds() {
    assert_eq!(saxpy(1000), []);
    // Loads of both vectors, and the store.
    assert_eq!(saxpy(1004), [(Kind::OutOfBounds, 4000, Place::Past(0), 4); 3]);
}
