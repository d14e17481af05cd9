//! Time from the start of a process to the first result of a kernel.
//!
//! The benchmark program starts itself with arguments that make it call [`first_result`] and print [`REPORT`] on
//! success.

#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "each launch runs a kernel of this repository within its buffers, or makes it fault outside of all memory"
)]

use core::fmt;
use core::str::FromStr;
use std::ffi::OsString;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tegra_hcq::{Device, DeviceName, args};

use crate::TIMEOUT;
use crate::cuda::{Argument, Cuda};
use crate::error::{Error, Result};
use crate::kernels::BASICS;

/// Output of a child process after a correct result.
pub const REPORT: &str = "first result";
/// Number of elements that the kernel increments.
const ELEMENTS: u32 = 1000;

/// The library that produces the first result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A device of this library.
    Device(DeviceName),
    /// CUDA.
    Cuda,
    /// The CUDA library of this project.
    OwnCuda,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(name) => name.fmt(f),
            Self::Cuda => f.write_str("cuda"),
            Self::OwnCuda => f.write_str("own-cuda"),
        }
    }
}

impl FromStr for Target {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Ok(match name {
            "cuda" => Self::Cuda,
            "own-cuda" => Self::OwnCuda,
            _ => Self::Device(name.parse()?),
        })
    }
}

/// The command line of a child process, without the [`Target`], which is the last argument.
#[derive(Clone, Debug)]
pub struct StartUp {
    /// The program.
    pub program: PathBuf,
    /// Its arguments before the target.
    pub arguments: Vec<OsString>,
    /// Its arguments for a copy that calls [`served::client`](crate::served::client).
    pub client: Vec<OsString>,
}

/// Opens a device, runs a kernel and checks its result. Called by the child process.
///
/// # Errors
///
/// Returns an error if a step fails or the result is wrong.
pub fn first_result(target: Target) -> Result<()> {
    let got = match target {
        Target::Device(name) => ours(name)?,
        Target::Cuda => by_cuda(&Cuda::open()?)?,
        Target::OwnCuda => by_cuda(&Cuda::own()?)?,
    };
    match got.iter().position(|value| *value != 1) {
        Some(at) => Err(Error::WrongResult(format!("element {at} is {}, not 1", got[at]))),
        None => Ok(()),
    }
}

fn ours(name: DeviceName) -> Result<Vec<u32>> {
    let device = Device::open(name)?;
    let increment = BASICS.load(&device)?.kernel("increment")?;
    let data = device.alloc_from(&[0_u32; ELEMENTS as usize])?;
    let mut queue = device.queue()?;
    unsafe { queue.launch(&increment, ELEMENTS.div_ceil(128), 128, &args![&data, ELEMENTS]) }?;
    queue.wait(TIMEOUT)?;
    Ok(data.to_vec()?)
}

fn by_cuda(cuda: &Cuda) -> Result<Vec<u32>> {
    let (increment, stream) = (cuda.kernel(&BASICS, "increment")?, cuda.stream()?);
    let mut bytes = vec![0; ELEMENTS as usize * size_of::<u32>()];
    let mut data = cuda.memory(bytes.len())?;
    data.copy_from(&bytes)?;
    let arguments = [data.argument(), Argument::U32(ELEMENTS)];
    stream.launch(&mut increment.launch([ELEMENTS.div_ceil(128), 1, 1], [128, 1, 1], &arguments)?)?;
    stream.wait()?;
    data.copy_to(&mut bytes)?;
    let words = bytes.chunks_exact(size_of::<u32>());
    Ok(words.map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect())
}

/// Starts a child process and waits for its report. Returns the time from start to report.
///
/// # Errors
///
/// [`Error::Child`] if there is no program to start, or if it does not report within [`TIMEOUT`].
pub fn measure(start_up: Option<&StartUp>, target: Target) -> Result<Duration> {
    let Some(StartUp { program, arguments, .. }) = start_up else {
        let reason = "this program has no command for it".to_owned();
        return Err(Error::Child { program: "(none)".to_owned(), reason });
    };
    let failure = |reason: String| Error::Child { program: program.display().to_string(), reason };
    let start = Instant::now();
    let mut child = Command::new(program)
        .args(arguments)
        .arg(target.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failure(error.to_string()))?;
    let report = read_report(&mut child, start);
    let elapsed = start.elapsed();
    if report.is_err() {
        // The child may hang. An error means that it has already ended.
        let _ = child.kill();
    }
    let output = child.wait_with_output().map_err(|error| failure(error.to_string()))?;
    report.map_err(|reason| {
        let said = String::from_utf8_lossy(&output.stderr);
        failure(format!("{reason}; its error output: {}", said.trim_end()))
    })?;
    Ok(elapsed)
}

/// Reads the report. Returns the reason if there is no valid report.
fn read_report(child: &mut Child, start: Instant) -> Result<(), String> {
    let output = child.stdout.as_mut().ok_or("it has no output")?;
    let mut got = Vec::new();
    while got.len() < REPORT.len() {
        let left = TIMEOUT.saturating_sub(start.elapsed());
        let timeout = Timespec::try_from(left).map_err(|error| error.to_string())?;
        let ready = poll(&mut [PollFd::new(output, PollFlags::IN)], Some(&timeout));
        if ready.map_err(|error| error.to_string())? == 0 {
            return Err(format!("it did not report within {TIMEOUT:?}"));
        }
        let mut bytes = [0; 64];
        match output.read(&mut bytes).map_err(|error| error.to_string())? {
            0 => return Err("it ended without a report".to_owned()),
            count => got.extend_from_slice(&bytes[..count]),
        }
    }
    if got.starts_with(REPORT.as_bytes()) { Ok(()) } else { Err("it printed something else".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tegra_hcq::DeviceKind;

    fn shell(script: &str) -> StartUp {
        let arguments = ["-c", script].map(OsString::from).to_vec();
        StartUp { program: "/bin/sh".into(), arguments, client: Vec::new() }
    }

    #[test]
    fn the_software_orin_gives_a_first_result() {
        first_result(Target::Device(DeviceKind::Sim.into())).unwrap();
    }

    #[test]
    fn a_report_ends_the_time() {
        measure(Some(&shell("echo first result")), Target::Cuda).unwrap();
    }

    #[test]
    fn a_child_that_fails_is_quoted() {
        let start_up = shell("echo no device >&2; exit 1");
        let error = measure(Some(&start_up), Target::Cuda).unwrap_err().to_string();
        assert!(error.contains("/bin/sh") && error.contains("no device"), "{error}");
        let error = measure(Some(&shell("echo something else")), Target::Cuda).unwrap_err().to_string();
        assert!(error.contains("something else"), "{error}");
        assert!(measure(None, Target::Cuda).is_err());
    }

    #[test]
    fn targets_have_names() {
        for target in [Target::Cuda, Target::Device(DeviceKind::Sim.into())] {
            assert_eq!(target.to_string().parse::<Target>().unwrap(), target);
        }
        assert!("nothing".parse::<Target>().is_err());
    }
}
