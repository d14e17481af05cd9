//! A control loop with a neural network in it, as robots run it a thousand times a second.
//!
//! Three masses on three axes follow a point that moves on a circle. Each cycle measures, runs the network, adds its
//! output to that of a PID controller, smooths the sum and accelerates the masses. The network is a recorded graph:
//! the CPU stores twelve numbers in a buffer that the GPU reads in place, replays the graph, and reads four numbers
//! from the buffer that the GPU has written. A cycle makes no system call and no allocation.
//!
//! The network's weights are random. It computes as much as a trained one; its output has little influence.

mod plant;
mod timing;

use std::time::Duration;

use fastrand::Rng;
use tegra_hcq::{Device, Graph, Queue, QueueOptions, WaitPolicy};

pub use plant::{Course, LowPass, Pid, Plant};
pub use timing::{Plan, Timing, run};

use crate::error::{Error, Result};
use crate::weights::{MlpWeights, RowForward};
use crate::{Mlp, Model};

/// Axes of the plant.
pub const AXES: usize = 3;
/// Inputs of the network.
pub const SENSORS: usize = 4 * AXES;
/// Outputs of the network.
pub const ACTIONS: usize = AXES + 1;
/// Lengths of the rows between the network's layers: (12 + 1) * 128 + (128 + 1) * 128 + (128 + 1) * 4 =
/// 18,692 parameters.
pub const WIDTHS: [usize; 4] = [SENSORS, 128, 128, ACTIONS];
/// Largest accepted difference between the outputs of GPU and CPU.
pub const TOLERANCE: f64 = 1e-4;

/// Largest acceleration that the network adds on each axis, in m/s^2.
const SAY: f64 = 0.5;
/// Largest share by which the network changes the controller's gain.
const GAIN_SAY: f64 = 0.05;
/// Acceleration in m/s^2 per unit of the network's inputs.
const COMMAND_SCALE: f64 = 10.0;
/// Time constant of the filter after the controller, in seconds.
const SMOOTHING: f64 = 0.01;

/// Plant, controller and network.
#[derive(Debug)]
pub struct ControlLoop {
    queue: Queue,
    graph: Graph,
    policy: Mlp,
    reference: RowForward,
    course: Course,
    plant: Plant,
    pid: Pid,
    filter: LowPass,
    /// Time between two cycles on the plant's clock, in seconds.
    step: f64,
    /// Longest time for the GPU's part of a cycle.
    timeout: Duration,
    cycles: u64,
    sensors: [f32; SENSORS],
    actions: [f32; ACTIONS],
}

impl ControlLoop {
    /// A loop whose cycles are `step` seconds apart on the plant's clock, at most 0.02 for a stable controller. `seed`
    /// selects the network's weights. A cycle that takes the GPU longer than `timeout` ends with an error.
    ///
    /// # Errors
    ///
    /// An error of the device if there is no memory or no queue left.
    pub fn new(device: &Device, seed: u64, step: f64, timeout: Duration) -> Result<Self> {
        let weights = MlpWeights::random(&mut Rng::with_seed(seed), &WIDTHS);
        let reference = RowForward::new(weights.clone());
        let mut policy = Mlp::new(device, weights, 1)?;
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

    /// Number of weights and biases.
    pub fn parameters(&self) -> usize {
        self.policy.parameters()
    }

    /// The network's inputs in the last cycle.
    pub fn sensors(&self) -> &[f32; SENSORS] {
        &self.sensors
    }

    /// The network's outputs in the last cycle.
    pub fn actions(&self) -> &[f32; ACTIONS] {
        &self.actions
    }

    /// Distance between the masses and the point that they follow, in metres.
    pub fn distance(&self) -> f64 {
        let target = self.course.position(self.now());
        target.iter().zip(self.plant.position).map(|(to, at)| (to - at).powi(2)).sum::<f64>().sqrt()
    }

    /// One cycle: measure, compute, act. Makes no system call and no allocation.
    ///
    /// # Errors
    ///
    /// An error of the device if the GPU faults or exceeds the time-out.
    pub fn cycle(&mut self) -> Result<()> {
        self.sense();
        self.policy.input().view_within(self.timeout)?.copy_from_slice(&self.sensors);
        self.queue.replay(&mut self.graph)?.wait(self.timeout)?;
        self.actions.copy_from_slice(&self.policy.output().view_within(self.timeout)?);
        self.act();
        self.cycles += 1;
        Ok(())
    }

    /// Compares the last cycle's actions with the CPU's and returns the largest difference. Makes no system call and no
    /// allocation.
    ///
    /// # Errors
    ///
    /// [`Error::Disagrees`] if the difference exceeds [`TOLERANCE`].
    pub fn check(&mut self) -> Result<f64> {
        let want = self.reference.forward(&self.sensors);
        let mut largest = 0.0_f64;
        for (output, (&got, &want)) in self.actions.iter().zip(want).enumerate() {
            let difference = (f64::from(got) - want).abs();
            if difference.is_nan() || difference > TOLERANCE {
                let cycle = self.cycles.saturating_sub(1);
                return Err(Error::Disagrees { cycle, output, got, want, tolerance: TOLERANCE });
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
        ControlLoop::new(&device, 1, 1e-3, Duration::from_secs(120)).unwrap()
    }

    #[test]
    fn the_network_has_the_documented_parameters() {
        assert_eq!(control().parameters(), 18_692);
    }

    #[test]
    fn the_network_agrees_with_the_cpu_and_the_masses_follow() {
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
