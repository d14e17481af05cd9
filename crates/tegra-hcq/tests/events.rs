//! The `tracing` events of the library. A program of its own: threads of other tests change which events are on.

#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "each launch runs a kernel of this repository within its buffers, or makes it fault outside of all memory"
)]

use std::io;
use std::sync::{Arc, Mutex};

use tegra_hcq::args;
use test_support::{Bench, TIMEOUT};
use tracing_subscriber::fmt::MakeWriter;

/// Collects the output.
#[derive(Clone, Debug, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl io::Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Text {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// The output at a level for opening, loading, a faulting launch, a recovery and a launch.
fn trace_of(level: tracing::Level) -> String {
    let text = Text::default();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(level).with_ansi(false).with_writer(text.clone());
    tracing::subscriber::with_default(subscriber.finish(), || {
        let mut bench = Bench::new("faults");
        let data = bench.device.alloc_from(&[5_u32]).unwrap();
        unsafe { bench.try_run("fault_write", 1, 1, &args![0x40_0000_0000_u64, 1_u32]) }.unwrap_err();
        bench.device.recover().unwrap();
        let kernel = bench.program.kernel("fault_no_bound").unwrap();
        unsafe { bench.queue.launch(&kernel, 1, 1, &args![&data, &data]) }.unwrap();
        bench.queue.wait(TIMEOUT).unwrap();
    });
    let bytes = text.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn each_level_has_its_events() {
    let trace = trace_of(tracing::Level::TRACE);
    for expected in [
        "open{name=sim}",
        "compute_class=0xc7c0",
        "load{cubin_bytes=",
        "program loaded kernels=",
        "queue opened queue=0",
        "launch queue=0 value=3 kernel=\"fault_write\" grid=1x1x1 block=1x1x1 shared_bytes=0",
        "submit queue=0 value=3 engine=Compute",
        "wait{queue=0 value=3",
        "channel group stopped",
        "recover",
        "queue opened anew after a recovery queue=0",
    ] {
        assert!(trace.contains(expected), "{expected} is missing in:\n{trace}");
    }
    let debug = trace_of(tracing::Level::DEBUG);
    assert!(debug.contains("program loaded") && !debug.contains("launch queue="), "{debug}");
    let info = trace_of(tracing::Level::INFO);
    assert!(info.contains("device opened") && info.contains("device recovered"), "{info}");
    assert!(!info.contains("program loaded"), "{info}");
}
