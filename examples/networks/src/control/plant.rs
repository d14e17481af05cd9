//! The controlled system, the course that it follows, and the classical part of the controller.

use std::f64::consts::TAU;

use super::AXES;

/// A mass on each axis: acceleration integrated twice.
#[derive(Clone, Debug)]
pub struct Plant {
    /// Metres.
    pub position: [f64; AXES],
    /// Metres per second.
    pub velocity: [f64; AXES],
}

impl Plant {
    /// At rest.
    pub fn at(position: [f64; AXES]) -> Self {
        Self { position, velocity: [0.0; AXES] }
    }

    /// Accelerates one axis for `step` seconds, in m/s^2.
    pub fn accelerate(&mut self, axis: usize, acceleration: f64, step: f64) {
        self.velocity[axis] += acceleration * step;
        self.position[axis] += self.velocity[axis] * step;
    }
}

/// A point on a circle with a radius of one metre that rises and falls twice per revolution of four seconds.
#[derive(Clone, Copy, Debug)]
pub struct Course;

impl Course {
    const RATE: f64 = TAU / 4.0;
    const HEIGHT: f64 = 0.25;

    /// Position at a time in seconds, in metres.
    pub fn position(self, time: f64) -> [f64; AXES] {
        let angle = Self::RATE * time;
        [angle.cos(), angle.sin(), Self::HEIGHT * (2.0 * angle).sin()]
    }

    /// Velocity at a time in seconds, in metres per second.
    pub fn velocity(self, time: f64) -> [f64; AXES] {
        let angle = Self::RATE * time;
        let circle = [-angle.sin(), angle.cos(), 2.0 * Self::HEIGHT * (2.0 * angle).cos()];
        circle.map(|x| x * Self::RATE)
    }
}

/// A controller with proportional, integral and derivative part.
#[derive(Clone, Debug)]
pub struct Pid {
    /// Acceleration per metre, in 1/s^2.
    pub proportional: f64,
    /// Acceleration per metre and second, in 1/s^3.
    pub integral: f64,
    /// Acceleration per metre per second, in 1/s.
    pub derivative: f64,
    /// Largest acceleration of the integral part, in m/s^2.
    pub limit: f64,
    sum: [f64; AXES],
}

impl Default for Pid {
    fn default() -> Self {
        Self { proportional: 40.0, integral: 10.0, derivative: 9.0, limit: 2.0, sum: [0.0; AXES] }
    }
}

impl Pid {
    /// The acceleration for a distance of `error` metres that grows by `rate` metres per second, `step`
    /// seconds after the last.
    pub fn command(&mut self, axis: usize, error: f64, rate: f64, step: f64) -> f64 {
        let sum = self.sum[axis] + self.integral * error * step;
        self.sum[axis] = sum.clamp(-self.limit, self.limit);
        self.proportional * error + self.sum[axis] + self.derivative * rate
    }
}

/// A filter of first order.
#[derive(Clone, Debug)]
pub struct LowPass {
    /// The last output.
    pub value: [f64; AXES],
    share: f64,
}

impl LowPass {
    /// A filter with a time constant for values `step` apart, both in seconds.
    pub fn new(constant: f64, step: f64) -> Self {
        Self { value: [0.0; AXES], share: step / (constant + step) }
    }

    /// Adds the next value and returns the smoothed one.
    pub fn next(&mut self, axis: usize, value: f64) -> f64 {
        self.value[axis] += self.share * (value - self.value[axis]);
        self.value[axis]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_acceleration_gives_the_known_distance() {
        let mut plant = Plant::at([0.0; AXES]);
        for _ in 0..10_000 {
            plant.accelerate(1, 2.0, 1e-4);
        }
        assert!((plant.position[1] - 1.0).abs() < 1e-3, "{plant:?}");
        assert!((plant.velocity[1] - 2.0).abs() < 1e-9, "{plant:?}");
        assert_eq!((plant.position[0], plant.position[2]), (0.0, 0.0));
    }

    #[test]
    fn the_velocity_of_the_course_is_the_slope_of_its_position() {
        for time in [0.0, 0.3, 1.7] {
            let (before, after) = (Course.position(time - 1e-6), Course.position(time + 1e-6));
            for axis in 0..AXES {
                let slope = (after[axis] - before[axis]) / 2e-6;
                assert!((slope - Course.velocity(time)[axis]).abs() < 1e-6, "axis {axis} at {time}");
            }
        }
    }

    #[test]
    fn the_integral_part_is_bounded() {
        let mut pid = Pid { proportional: 0.0, derivative: 0.0, ..Pid::default() };
        for _ in 0..1000 {
            pid.command(0, 5.0, 0.0, 1.0);
        }
        assert_eq!(pid.command(0, 5.0, 0.0, 1.0), pid.limit);
        assert_eq!(pid.command(1, 0.0, 0.0, 1.0), 0.0);
    }

    #[test]
    fn a_step_has_risen_by_63_per_cent_after_the_time_constant() {
        let mut filter = LowPass::new(0.1, 1e-4);
        let risen = (0..1000).map(|_| filter.next(2, 1.0)).last().unwrap();
        assert!((risen - 0.632).abs() < 1e-3, "{risen}");
    }
}
