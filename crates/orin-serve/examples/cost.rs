//! Costs of calls: made by the kernel, answered by the supervisor, and answered by the model in the process.
//!
//! `cargo run --release -p orin-serve --example cost`. The program serves a copy of itself.

use std::hint::black_box;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nvgpu_sys::door::{Door, DoorFd, OpenFlags};
use nvgpu_sys::nvmap::{AvailableHeaps, CreateHandle, GET_AVAILABLE_HEAPS};
use nvgpu_sys::{LinuxDoor, nvmap, paths};
use orin_serve::Session;
use orin_sim::{Config, SoftwareOrin};

/// Calls per measurement; the best of several counts.
const CALLS: u32 = 2000;
const MEASUREMENTS: u32 = 15;

/// The best mean time of a call.
fn time(mut call: impl FnMut()) -> Duration {
    let measure = |_| {
        let start = Instant::now();
        (0..CALLS).for_each(|_| call());
        start.elapsed() / CALLS
    };
    (0..MEASUREMENTS).map(measure).min().unwrap_or_default()
}

/// Requests through a door: a cheap one, and one that makes an object.
fn requests(door: &Arc<dyn Door>) -> Option<[Duration; 2]> {
    let node = DoorFd::open(door, paths::NVMAP, OpenFlags::READ_WRITE | OpenFlags::CLOSE_ON_EXEC).ok()?;
    let cheap = time(|| {
        let mut heaps = AvailableHeaps::default();
        black_box(GET_AVAILABLE_HEAPS.send(&node, &mut heaps)).ok();
    });
    let create = time(|| {
        let mut handle = CreateHandle { size_or_fd: 4096, handle: 0 };
        if nvmap::CREATE.send(&node, &mut handle).is_ok() {
            nvmap::FREE.send(&node, handle.handle).ok();
        }
    });
    Some([cheap, create])
}

/// Calls of the host: a path, a descriptor, a request of another device.
fn host_calls() -> [Duration; 3] {
    let file = std::fs::File::open("/dev/null").ok();
    [
        time(|| {
            black_box(std::fs::exists("/etc/hostname")).ok();
        }),
        time(|| {
            black_box(file.as_ref().map(|file| file.metadata().is_ok()));
        }),
        time(|| {
            black_box(rustix::io::ioctl_fionread(std::io::stdin())).ok();
        }),
    ]
}

/// Prints what the served copy measures.
fn client() {
    let door: Arc<dyn Door> = Arc::new(LinuxDoor);
    let times = requests(&door).into_iter().flatten().chain(host_calls());
    let words: Vec<String> = times.map(|time| format!("{:.2}", time.as_secs_f64() * 1e6)).collect();
    println!("{}", words.join(" "));
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("client") {
        client();
        return ExitCode::SUCCESS;
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let orin = SoftwareOrin::new(Config::default())?;
    let in_process = requests(&(Arc::new(orin.clone()) as Arc<dyn Door>)).ok_or("no node in the process")?;
    let native = host_calls();
    let (reader, writer) = std::io::pipe()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("client").stdin(Stdio::null()).stdout(writer);
    let mut session = Session::start(&orin, command, None)?;
    session.wait()?;
    let text = std::io::read_to_string(reader)?;
    let served: Vec<f64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let [first, second, third, fourth, fifth] = served[..] else {
        return Err("the client printed no times".into());
    };
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    println!("{:34} {:>10} {:>10}   microseconds", "call", "elsewhere", "served");
    for (name, elsewhere, served) in [
        ("GET_AVAILABLE_HEAPS (in process)", in_process[0], first),
        ("CREATE and FREE (in process)", in_process[1], second),
        ("stat of another path (kernel)", native[0], third),
        ("fstat (kernel)", native[1], fourth),
        ("FIONREAD (kernel)", native[2], fifth),
    ] {
        println!("{name:34} {:10.2} {served:10.2}", micros(elsewhere));
    }
    Ok(())
}
