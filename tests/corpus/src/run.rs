//! Runs a case on a device.

#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "each launch runs a kernel of this repository within its buffers, or makes it fault outside of all memory"
)]

use std::time::Duration;

use tegra_hcq::{Arg, Buffer, Device, Program, Queue};

use super::case::{Argument, Case};
use super::compare::{Difference, Tolerance, compare, show};
use super::data::{Data, POISON};

/// Guard bytes after every output, which must not change.
const GUARD: usize = 64;

/// Runs a case and reads its outputs.
///
/// # Errors
///
/// Those of the device, and writes past the end of a buffer.
pub fn run(
    device: &Device,
    program: &Program,
    queue: &mut Queue,
    case: &Case,
    patience: Duration,
) -> Result<Vec<Data>, RunError> {
    let kernel = program.kernel(case.kernel)?;
    // The checks of the software Orin find an access past the end themselves.
    let guard = if tegra_hcq::check::checker(device).is_some() { 0 } else { GUARD };
    let buffers: Vec<Option<Buffer<u8>>> = case
        .arguments
        .iter()
        .map(|argument| {
            let (Argument::Input(data) | Argument::Output(data)) = argument else { return Ok(None) };
            let mut bytes = data.bytes.clone();
            bytes.resize(bytes.len() + guard, POISON);
            device.alloc_from(&bytes).map(Some)
        })
        .collect::<Result<_, _>>()?;
    let arguments: Vec<Arg<'_>> = case
        .arguments
        .iter()
        .zip(&buffers)
        .map(|(argument, buffer)| match (argument, buffer) {
            (Argument::Scalar(bytes), _) => Arg::Bytes(bytes),
            (_, Some(buffer)) => Arg::from(buffer),
            (_, None) => unreachable!("every pointer has a buffer"),
        })
        .collect();
    unsafe {
        queue.launch_with_shared(
            &kernel,
            (case.grid[0], case.grid[1], case.grid[2]),
            (case.block[0], case.block[1], case.block[2]),
            case.shared_bytes,
            &arguments,
        )
    }?;
    queue.wait(patience)?;
    let mut outputs = Vec::new();
    for (index, (argument, buffer)) in case.arguments.iter().zip(&buffers).enumerate() {
        let (Argument::Output(data), Some(buffer)) = (argument, buffer) else { continue };
        let mut bytes = buffer.to_vec()?;
        let guard = bytes.split_off(data.bytes.len());
        if let Some(at) = guard.iter().position(|byte| *byte != POISON) {
            return Err(RunError::Overrun { kernel: case.kernel, argument: index, at });
        }
        outputs.push(Data { kind: data.kind, bytes });
    }
    Ok(outputs)
}

/// Compares outputs with expected ones, within the case's tolerance.
///
/// # Errors
///
/// If an element is beyond the tolerance; the error names it.
pub fn judge(case: &Case, got: &[Data], wanted: &[Data], whose: &str) -> Result<Difference, RunError> {
    let mut total = Difference::default();
    for (output, (got, wanted)) in got.iter().zip(wanted).enumerate() {
        let difference = compare(got, wanted, case.tolerance);
        if let Some(element) = difference.first_wrong {
            let word = |data: &Data| show(data.kind, data.words().nth(element).unwrap_or_default());
            return Err(RunError::Wrong(Box::new(Mismatch {
                kernel: case.kernel,
                output,
                element,
                got: word(got),
                wanted: word(wanted),
                whose: whose.to_owned(),
                tolerance: case.tolerance,
            })));
        }
        total = total.and(difference);
    }
    Ok(total)
}

/// Why a case fails.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The device returned an error.
    #[error(transparent)]
    Device(#[from] tegra_hcq::Error),
    /// A kernel wrote past the end of a buffer.
    #[error("{kernel}: argument {argument} was written {at} bytes past its end")]
    Overrun {
        /// The kernel.
        kernel: &'static str,
        /// Index of the argument.
        argument: usize,
        /// Distance from the end of the buffer.
        at: usize,
    },
    /// A wrong result.
    #[error(transparent)]
    Wrong(Box<Mismatch>),
}

/// An element outside the case's tolerance.
#[derive(Debug, thiserror::Error)]
#[error(
    "{kernel}: element {element} of output {output} is {got}, but {whose} has {wanted} (tolerance: {tolerance})"
)]
pub struct Mismatch {
    /// The kernel.
    pub kernel: &'static str,
    /// Index among the outputs.
    pub output: usize,
    /// Index of the element.
    pub element: usize,
    /// Computed value.
    pub got: String,
    /// Expected value.
    pub wanted: String,
    /// Source of the expected value.
    pub whose: String,
    /// Tolerance.
    pub tolerance: Tolerance,
}
