//! A control loop with a neural network in it, as a robot runs it a thousand times a second.
//!
//! Three masses on three axes follow a point that goes round and round. Each cycle measures, lets the
//! network compute, adds what it says to a PID controller, smooths the sum and accelerates the masses.
//! The network is a recorded graph: twelve numbers are stored in a buffer that the GPU reads in place, the graph
//! is replayed, four numbers are read where the GPU has written them. No cycle makes a system call or an
//! allocation.
//!
//! The network's weights are random: it computes as much as a trained one, and what it says has little
//! weight.

mod plant;
mod timing;

use std::time::Duration;

use tegra_hcq::{Device, Graph, Queue, QueueOptions, WaitPolicy};

pub use plant::{Course, LowPass, Pid, Plant};
pub use timing::{Plan, Timing, run};

use crate::Numbers;
use crate::nn::{Mlp, Model};
use crate::reference::{MlpWeights, RowReference};

/// Axes of the plant.
pub const AXES: usize = 3;
/// Numbers that go into the network.
pub const SENSORS: usize = 4 * AXES;
/// Numbers that come out of it.
pub const ACTIONS: usize = AXES + 1;
/// Lengths of the rows between the network's layers: (12 + 1) * 128 + (128 + 1) * 128 + (128 + 1) * 4 =
/// 18,692 parameters.
pub const WIDTHS: [usize; 4] = [SENSORS, 128, 128, ACTIONS];
/// How far the GPU's numbers may be from the reference's.
pub const TOLERANCE: f64 = 1e-4;

/// Acceleration that the network can add on each axis, in m/s^2.
const SAY: f64 = 0.5;
/// Share by which it can change the controller's gain.
const GAIN_SAY: f64 = 0.05;
/// Accelerations are this much larger than the numbers that tell the network about them.
const COMMAND_SCALE: f64 = 10.0;
/// Time constant of the filter behind the controller, in seconds.
const SMOOTHING: f64 = 0.01;

/// Why a loop ended early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The GPU, or the way to it.
    #[error(transparent)]
    Gpu(#[from] tegra_hcq::Error),

    /// The network's output is not what the CPU computes.
    #[error(
        "cycle {cycle}: output {output} of the network is {got} instead of {want} (tolerance {TOLERANCE:e})"
    )]
    Disagrees {
        /// Cycles before this one.
        cycle: u64,
        /// Which of the outputs.
        output: usize,
        /// What the GPU has computed.
        got: f32,
        /// What the CPU has computed.
        want: f64,
    },
}

/// Plant, controller and network.
#[derive(Debug)]
pub struct ControlLoop {
    queue: Queue,
    graph: Graph,
    policy: Mlp,
    reference: RowReference,
    course: Course,
    plant: Plant,
    pid: Pid,
    filter: LowPass,
    /// Seconds from one cycle to the next, for the plant.
    step: f64,
    /// Longest time that the GPU may take for a cycle.
    timeout: Duration,
    cycles: u64,
    sensors: [f32; SENSORS],
    actions: [f32; ACTIONS],
}

impl ControlLoop {
    /// A loop whose cycles are `step` seconds apart as far as the plant is concerned; more than 0.02 is more
    /// than the controller can handle. `seed` chooses the network's weights. A GPU that takes longer than
    /// `timeout` for a cycle ends it with an error.
    ///
    /// # Errors
    ///
    /// When there is no memory or no queue left.
    pub fn new(device: &Device, seed: u64, step: f64, timeout: Duration) -> Result<Self, Error> {
        let weights = MlpWeights::random(&mut Numbers::new(seed), &WIDTHS);
        let reference = RowReference::new(weights.clone());
        let policy = Mlp::new(device, weights, 1)?;
        Ok(Self {
            queue: device.queue_with(&QueueOptions::default().wait(WaitPolicy::Spin))?,
            graph: policy.graph(device)?,
            policy,
            reference,
            course: Course,
            plant: Plant::at(Course.position(0.0)),
            pid: Pid::default(),
            filter: LowPass::new(SMOOTHING, step),
            step,
            timeout,
            cycles: 0,
            sensors: [0.0; SENSORS],
            actions: [0.0; ACTIONS],
        })
    }

    /// Number of weights and of elements of the biases.
    pub fn parameters(&self) -> usize {
        self.policy.parameters()
    }

    /// What the network saw in the last cycle.
    pub fn sensors(&self) -> &[f32; SENSORS] {
        &self.sensors
    }

    /// What the network said in the last cycle.
    pub fn actions(&self) -> &[f32; ACTIONS] {
        &self.actions
    }

    /// How far the masses are from the point that they follow, in metres.
    pub fn distance(&self) -> f64 {
        let target = self.course.position(self.now());
        target.iter().zip(self.plant.position).map(|(to, at)| (to - at).powi(2)).sum::<f64>().sqrt()
    }

    /// One cycle: measure, compute, act. Makes no system call and no allocation.
    ///
    /// # Errors
    ///
    /// When the GPU faults or takes longer than the time-out.
    pub fn cycle(&mut self) -> Result<(), Error> {
        self.sense();
        self.policy.input().view_within(self.timeout)?.copy_from_slice(&self.sensors);
        self.queue.replay(&mut self.graph)?.wait(self.timeout)?;
        self.actions.copy_from_slice(&self.policy.output().view_within(self.timeout)?);
        self.act();
        self.cycles += 1;
        Ok(())
    }

    /// Holds the last cycle's actions against the CPU's; returns the largest difference. Makes no system
    /// call and no allocation either.
    ///
    /// # Errors
    ///
    /// [`Error::Disagrees`] when it exceeds [`TOLERANCE`].
    pub fn check(&mut self) -> Result<f64, Error> {
        let want = self.reference.forward(&self.sensors);
        let mut largest = 0.0_f64;
        for (output, (&got, &want)) in self.actions.iter().zip(want).enumerate() {
            let difference = (f64::from(got) - want).abs();
            if difference.is_nan() || difference > TOLERANCE {
                return Err(Error::Disagrees { cycle: self.cycles.saturating_sub(1), output, got, want });
            }
            largest = largest.max(difference);
        }
        Ok(largest)
    }

    /// Time on the plant's clock, in seconds.
    fn now(&self) -> f64 {
        self.cycles as f64 * self.step
    }

    /// Distance, velocities and the last command, axis by axis.
    fn sense(&mut self) {
        let (position, velocity) = (self.course.position(self.now()), self.course.velocity(self.now()));
        for axis in 0..AXES {
            let numbers = [
                position[axis] - self.plant.position[axis],
                velocity[axis],
                self.plant.velocity[axis],
                self.filter.value[axis] / COMMAND_SCALE,
            ];
            for (kind, number) in numbers.into_iter().enumerate() {
                // CAST: the network computes in 32 bits.
                self.sensors[kind * AXES + axis] = number as f32;
            }
        }
    }

    /// Controller, network and filter decide on the acceleration.
    fn act(&mut self) {
        let (position, velocity) = (self.course.position(self.now()), self.course.velocity(self.now()));
        let say = |action: f32| f64::from(action).tanh();
        let gain = 1.0 + GAIN_SAY * say(self.actions[AXES]);
        for axis in 0..AXES {
            let error = position[axis] - self.plant.position[axis];
            let rate = velocity[axis] - self.plant.velocity[axis];
            let wanted =
                gain * self.pid.command(axis, error, rate, self.step) + SAY * say(self.actions[axis]);
            let acceleration = self.filter.next(axis, wanted);
            self.plant.accelerate(axis, acceleration, self.step);
        }
    }
}

#[cfg(test)]
mod tests {
    use tegra_hcq::DeviceKind;

    use super::*;

    fn control() -> ControlLoop {
        let device = Device::open(DeviceKind::Sim).unwrap();
        ControlLoop::new(&device, 1, 1e-3, crate::TIMEOUT).unwrap()
    }

    #[test]
    fn the_network_has_the_parameters_that_the_text_says() {
        assert_eq!(control().parameters(), 18_692);
    }

    #[test]
    fn the_network_agrees_with_the_reference_and_the_masses_follow() {
        let mut control = control();
        let mut seen = Vec::new();
        for _ in 0..500 {
            control.cycle().unwrap();
            assert!(control.check().unwrap() <= TOLERANCE);
            seen.push(*control.actions());
        }
        seen.dedup();
        assert!(seen.len() > 400, "the network's output hardly moves: {} values", seen.len());
        assert!(control.distance() < 0.2, "{} m apart", control.distance());
    }

    #[test]
    fn a_wrong_output_is_named() {
        let mut control = control();
        control.cycle().unwrap();
        control.actions[2] += 1.0;
        let error = control.check().unwrap_err().to_string();
        assert!(error.starts_with("cycle 0: output 2 of the network is "), "{error}");
        control.actions[2] = f32::NAN;
        assert!(control.check().is_err());
    }
}
