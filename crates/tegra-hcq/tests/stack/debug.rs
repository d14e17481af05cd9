//! `{:?}` of the public types: short enough to read in a terminal.

use std::fmt::Debug;

use tegra_hcq::{Buffer, Error, Fault, HostMemory, Work, args};
use test_support::{Bench, TIMEOUT};

/// Longest text of an object, in characters.
const LIMIT: usize = 240;

/// Fails if the object's text has more than one line or is long; returns the text.
fn short(object: &dyn Debug) -> String {
    let text = format!("{object:?}");
    assert!(text.len() <= LIMIT && !text.contains('\n'), "{} characters: {text}", text.len());
    text
}

#[test]
fn objects_print_one_line() {
    let mut bench = Bench::new("basics");
    let mut data = bench.device.alloc_from(&[0_u32; 64]).unwrap();
    let kernel = bench.program.kernel("increment").unwrap();
    let mut builder = bench.device.graph();
    for _ in 0..20 {
        unsafe { builder.launch(&kernel, 1, 32, &args![&data, 32_u32]) }.unwrap();
    }
    assert_eq!(short(&builder), "GraphBuilder { steps: 20, instances: 4, .. }");
    let mut graph = builder.build().unwrap();
    let fence = bench.queue.replay(&mut graph).unwrap();
    fence.wait(TIMEOUT).unwrap();
    assert_eq!(short(&graph), "Graph { steps: 20, instances: 4, .. }");
    assert!(short(&fence).starts_with("Fence { queue: 0, value: "), "{fence:?}");
    assert!(short(&fence).ends_with(", done: true }"), "{fence:?}");
    let names = short(&bench.program);
    assert!(names.starts_with("Program { kernels: ") && names.contains(", ..]"), "{names}");
    assert_eq!(short(&bench.device), "Device { name: sim, chip: \"ga10b\", .. }");
    assert!(short(&bench.queue).starts_with("Queue { number: 0, wait: Sleep, health: Working, submitted: "));
    let signal = bench.device.signal(7).unwrap();
    assert!(short(&signal).starts_with("Signal { value: 7, gpu_va: 0x"), "{signal:?}");
    assert!(short(&data).contains("len: 64"), "{data:?}");
    short(&fence.clone().within(TIMEOUT));
    short(&kernel);
    short(&args![&data]);
    short(&data.slice(1..2).unwrap());
    short(&data.slice_mut(1..2).unwrap());
    short(&data.view().unwrap());
    short(&bench.device.import(HostMemory::<u8>::new(100_000).unwrap()).unwrap());
    short(&HostMemory::<u8>::new(100_000).unwrap());
    short(&bench.device.memory_usage());
    short(&Work::Copy { bytes: 5 });
}

#[test]
fn an_error_prints_its_text_and_a_fault_its_data_in_numbers() {
    let mut bench = Bench::new("faults");
    let kernel = bench.program.kernel("fault_write").unwrap();
    unsafe { bench.queue.launch(&kernel, 1, 1, &args![0x40_0000_0000_u64, 1_u32]) }.unwrap();
    let error = bench.queue.wait(TIMEOUT).unwrap_err();
    assert_eq!(format!("{error:?}"), error.to_string());
    assert!(error.to_string().starts_with("GPU fault: MMU fault"), "{error}");
    let Error::Fault(fault) = error else { panic!("{error}") };
    let Fault { submissions, .. } = &*fault;
    assert!(submissions.iter().any(|submission| !submission.launches.is_empty()));
    let text = format!("{fault:?}");
    assert!(text.starts_with(&format!("Fault({fault}; ")), "{text}");
    assert!(text.len() < fault.to_string().len() + 60, "{text}");
    for submission in submissions {
        short(submission);
        submission.launches.iter().for_each(|launch| drop(short(launch)));
    }
    let other = Bench::new("basics");
    let foreign: Buffer<u32> = other.device.alloc(4).unwrap();
    let error = bench.device.recover().and_then(|_| bench.queue.copy(&foreign, &mut bench.device.alloc(4)?));
    assert_eq!(format!("{:?}", error.unwrap_err()), "the source of the copy belongs to another device");
}
