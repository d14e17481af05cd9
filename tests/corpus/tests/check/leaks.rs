//! leakcheck: programs that forget objects, each with its repaired twin.

use std::cell::RefCell;
use std::mem::{ManuallyDrop, forget};
use std::rc::Rc;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock};

use orin_sim::check::{Kind, Tools};
use tegra_hcq::{Buffer, Device, HostMemory, Program, Result, args, check};
use test_support::{TIMEOUT, cubin};

/// A case: name, the objects that are leaked, the error, its repaired twin.
type Case = (&'static str, &'static [&'static str], fn(&Device) -> Result<()>, fn(&Device) -> Result<()>);

fn buffer(device: &Device, name: &str) -> Result<Buffer<u32>> {
    Ok(device.alloc_zeroed(64)?.named(name))
}

/// A node of a list whose end points back to its start.
struct Node {
    _data: Buffer<u32>,
    next: RefCell<Option<Rc<Node>>>,
}

fn ring(device: &Device, closed: bool) -> Result<()> {
    let node =
        |name| Ok::<_, tegra_hcq::Error>(Rc::new(Node { _data: buffer(device, name)?, next: None.into() }));
    let (first, second) = (node("first")?, node("second")?);
    *first.next.borrow_mut() = Some(Rc::clone(&second));
    if closed {
        *second.next.borrow_mut() = Some(first);
    }
    Ok(())
}

/// Fails after the first of two steps.
fn two_steps(device: &Device, forgetful: bool) -> Result<()> {
    let staging = buffer(device, "staging")?.into_raw();
    let fails = device.alloc::<u32>(usize::MAX);
    if fails.is_err() && forgetful {
        return Ok(());
    }
    // SAFETY: the pointer is that of the box, once.
    drop(unsafe { Box::from_raw(staging) });
    Ok(())
}

/// Gives a buffer to code that knows pointers only.
trait IntoRaw {
    fn into_raw(self) -> *mut Buffer<u32>;
}

impl IntoRaw for Buffer<u32> {
    fn into_raw(self) -> *mut Buffer<u32> {
        Box::into_raw(Box::new(self))
    }
}

static CACHE: Mutex<Vec<(u32, Buffer<u32>)>> = Mutex::new(Vec::new());
static ONCE: OnceLock<Buffer<u32>> = OnceLock::new();

fn add(device: &Device) -> Result<Program> {
    Program::load(device, &cubin("basics"))
}

const CASES: [Case; 14] = [
    (
        "forgotten buffer",
        &["kept"],
        |device| {
            forget(buffer(device, "kept")?);
            Ok(())
        },
        |device| {
            drop(buffer(device, "kept")?);
            Ok(())
        },
    ),
    (
        "forgotten list of buffers",
        &["one", "two"],
        |device| {
            forget(vec![buffer(device, "one")?, buffer(device, "two")?]);
            Ok(())
        },
        |device| {
            drop(vec![buffer(device, "one")?, buffer(device, "two")?]);
            Ok(())
        },
    ),
    (
        "leaked box",
        &["constant"],
        |device| {
            let _: &'static Buffer<u32> = Box::leak(Box::new(buffer(device, "constant")?));
            Ok(())
        },
        |device| {
            let _ = Box::new(buffer(device, "constant")?);
            Ok(())
        },
    ),
    ("circle of references", &["first", "second"], |device| ring(device, true), |device| ring(device, false)),
    (
        "manual drop that does not happen",
        &["manual"],
        |device| {
            let _ = ManuallyDrop::new(buffer(device, "manual")?);
            Ok(())
        },
        |device| {
            let mut manual = ManuallyDrop::new(buffer(device, "manual")?);
            // SAFETY: it is not used again.
            unsafe { ManuallyDrop::drop(&mut manual) };
            Ok(())
        },
    ),
    (
        "count of references that another language holds",
        &["shared"],
        |device| {
            let _ = Arc::into_raw(Arc::new(buffer(device, "shared")?));
            Ok(())
        },
        |device| {
            let raw = Arc::into_raw(Arc::new(buffer(device, "shared")?));
            // SAFETY: the pointer is that of the count above, once.
            drop(unsafe { Arc::from_raw(raw) });
            Ok(())
        },
    ),
    ("early return", &["staging"], |device| two_steps(device, true), |device| two_steps(device, false)),
    (
        "cache that only grows",
        &["cached"],
        |device| {
            CACHE.lock().unwrap().push((1, buffer(device, "cached")?));
            Ok(())
        },
        |device| {
            CACHE.lock().unwrap().push((2, buffer(device, "cached")?));
            CACHE.lock().unwrap().retain(|(key, _)| *key != 2);
            Ok(())
        },
    ),
    (
        "static that is made once",
        &["table"],
        |device| {
            let made = buffer(device, "table")?;
            assert!(ONCE.set(made).is_ok());
            Ok(())
        },
        |device| {
            let once = OnceLock::new();
            assert!(once.set(buffer(device, "table")?).is_ok());
            Ok(())
        },
    ),
    (
        "message that is never received",
        &["message"],
        |device| {
            let (sender, receiver) = channel();
            sender.send(buffer(device, "message")?).unwrap();
            forget(receiver);
            Ok(())
        },
        |device| {
            let (sender, receiver) = channel();
            sender.send(buffer(device, "message")?).unwrap();
            drop(receiver);
            Ok(())
        },
    ),
    (
        "callback that is never removed",
        &["captured"],
        |device| {
            let captured = buffer(device, "captured")?;
            let callback: Box<dyn Fn() -> u64> = Box::new(move || captured.gpu_va());
            forget(callback);
            Ok(())
        },
        |device| {
            let captured = buffer(device, "captured")?;
            let callback: Box<dyn Fn() -> u64> = Box::new(move || captured.gpu_va());
            assert_ne!(callback(), 0);
            Ok(())
        },
    ),
    (
        "kernel that keeps its program",
        &["program"],
        |device| {
            forget(add(device)?.kernel("increment")?);
            Ok(())
        },
        |device| {
            drop(add(device)?.kernel("increment")?);
            Ok(())
        },
    ),
    (
        "signal",
        &["signal"],
        |device| {
            forget(device.signal(0)?);
            Ok(())
        },
        |device| {
            drop(device.signal(0)?);
            Ok(())
        },
    ),
    (
        "graph that keeps its program and buffers",
        &["data", "program"],
        |device| {
            forget(graph(device)?);
            Ok(())
        },
        |device| {
            drop(graph(device)?);
            Ok(())
        },
    ),
];

/// A graph that has run once.
fn graph(device: &Device) -> Result<tegra_hcq::Graph> {
    let program = add(device)?;
    let data = buffer(device, "data")?;
    let mut queue = device.queue()?;
    let mut builder = device.graph();
    // SAFETY: the launch stays inside of the buffer, which the graph keeps alive.
    unsafe { builder.launch(&program.kernel("increment")?, 1, 64, &args![&data, 64_u32])? };
    let mut graph = builder.build()?;
    queue.replay(&mut graph)?.wait(TIMEOUT)?;
    Ok(graph)
}

#[test]
fn each_leak_is_found_and_nothing_in_its_twin() {
    for (name, objects, bug, fix) in CASES {
        let device = check::open(Tools::LEAKCHECK).unwrap();
        fix(&device).unwrap();
        let found = check::findings_at_end(&device);
        assert!(found.is_empty(), "repaired {name}: {}", check::text(&found));
        bug(&device).unwrap();
        let found = check::findings_at_end(&device);
        assert!(found.iter().all(|finding| finding.kind == Kind::Leak), "{name}: {}", check::text(&found));
        let mut names: Vec<&str> =
            found.iter().map(|finding| finding.object.as_ref().unwrap().name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, objects, "{name}: {}", check::text(&found));
        // It says who allocated it.
        assert!(found.iter().all(|finding| !finding.object.as_ref().unwrap().allocated.is_empty()), "{name}");
    }
}

#[test]
fn imported_memory_that_is_forgotten_is_a_leak() {
    let device = check::open(Tools::LEAKCHECK).unwrap();
    let import = || device.import(HostMemory::<u32>::new(1024).unwrap()).unwrap();
    drop(import());
    assert!(check::findings_at_end(&device).is_empty());
    forget(import());
    let found = check::findings_at_end(&device);
    assert_eq!(found.len(), 1, "{}", check::text(&found));
    assert!(found[0].message.starts_with("imported memory (4096 bytes)"), "{}", found[0].message);
}
