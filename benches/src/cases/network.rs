//! Inference with the control loop's network, and the loop itself. CUDA has no counterpart here.

use std::time::Duration;

use fastrand::Rng;
use networks::control::{ControlLoop, WIDTHS};
use networks::weights::{MlpWeights, RowForward};
use networks::{Mlp, Model};
use tegra_hcq::{Queue, WaitPolicy};

use crate::TIMEOUT;
use crate::bench::{Bench, timed};
use crate::case::Case;
use crate::error::{Error, Result};

/// Seed for the network's weights.
const SEED: u64 = 1;
/// Interval between the loop's cycles on the plant's clock.
const STEP: Duration = Duration::from_millis(1);
/// Tolerance for the difference between the GPU's and the CPU's output.
const TOLERANCE: f64 = 1e-4;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "network/launches",
            "18,692 parameters: store the input, launch, spin, read the output",
            launches,
        ),
        Case::new(
            "network/graph",
            "18,692 parameters: store the input, replay, spin, read the output",
            graph,
        ),
        Case::new("network/control_cycle", "one cycle of the control loop: sense, infer, act", control),
    ]
}

fn launches(bench: &mut Bench<'_>) -> Result<()> {
    infer(bench, |_| {
        Ok(Box::new(|queue: &mut Queue, network: &mut Mlp| {
            network.forward(queue)?;
            Ok(queue.submit()?.wait(TIMEOUT)?)
        }))
    })
}

fn graph(bench: &mut Bench<'_>) -> Result<()> {
    let device = bench.device();
    infer(bench, |network| {
        let mut graph = network.graph(device)?;
        Ok(Box::new(move |queue: &mut Queue, _: &mut Mlp| Ok(queue.replay(&mut graph)?.wait(TIMEOUT)?)))
    })
}

/// Computes the output from the input and waits for it.
type Forward<'a> = Box<dyn FnMut(&mut Queue, &mut Mlp) -> Result<()> + 'a>;

fn infer<'a>(bench: &mut Bench<'_>, make: impl FnOnce(&mut Mlp) -> Result<Forward<'a>>) -> Result<()> {
    let weights = MlpWeights::random(&mut Rng::with_seed(SEED), &WIDTHS);
    let mut network = Mlp::new(bench.device(), weights.clone(), 1)?;
    let mut forward = make(&mut network)?;
    let mut queue = bench.queue(WaitPolicy::Spin)?;
    let mut rng = Rng::with_seed(SEED);
    let input: Vec<f32> = (0..WIDTHS[0]).map(|_| rng.f32() * 2.0 - 1.0).collect();
    let mut output = vec![0.0; WIDTHS[WIDTHS.len() - 1]];
    bench.measure_alone(1, &mut || {
        timed(|| {
            network.input().view_within(TIMEOUT)?.copy_from_slice(&input);
            forward(&mut queue, &mut network)?;
            output.copy_from_slice(&network.output().view_within(TIMEOUT)?);
            Ok(())
        })
    })?;
    let mut cpu = RowForward::new(weights);
    let wanted = cpu.forward(&input);
    match output.iter().zip(wanted).find(|(got, wanted)| !(f64::from(**got) - *wanted).abs().le(&TOLERANCE)) {
        Some((got, wanted)) => Err(Error::WrongResult(format!("the network returned {got}, not {wanted}"))),
        None => Ok(()),
    }
}

fn control(bench: &mut Bench<'_>) -> Result<()> {
    let mut control = ControlLoop::new(bench.device(), SEED, STEP.as_secs_f64(), TIMEOUT)?;
    bench.measure_alone(1, &mut || timed(|| Ok(control.cycle()?)))?;
    control.check()?;
    Ok(())
}
