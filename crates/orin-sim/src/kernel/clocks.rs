//! The clock requests of the control node (`ioctl_ctrl.c`, `common/clk_arb/clk_arb_gp10b.c`).
//!
//! There is one clock domain, the GPCs. A frequency requested through an open of the node is in effect while that open
//! exists. The highest requested frequency wins, rounded up to a point of the table.

use gpu_log::ChannelLine;
use nvgpu_sys::ctrl::{
    CLK_DOMAIN_GPCCLK, CLK_FLAG_SPECIFIC_DOMAINS, CLK_TYPE_ACTUAL, CLK_TYPE_EFFECTIVE, CLK_TYPE_TARGET,
    ClkGetInfo, ClkInfo, ClkRange, ClkRangeArgs, ClkSetInfo, ClkVfPoint, ClkVfPointsArgs, code,
};
use rustix::io::Errno;
use zerocopy::{Immutable, IntoBytes};

use super::Kernel;
use super::argument::Argument;
use super::process::fds::{self, Object};
use super::process::task::Task;

/// Lowest point of the frequency table, in Hz.
const LOWEST_HZ: u64 = 306_000_000;
/// Distance of the points in Hz. The highest point is the maximum of the characteristics.
const STEP_HZ: u64 = 102_000_000;
/// Number of clock domains.
const DOMAINS: u16 = 1;
/// Kinds of frequency of a domain.
const KINDS: u16 = 3;

/// Address of an element of a user array.
fn element<T>(base: u64, at: u16) -> u64 {
    base.wrapping_add(u64::from(at) * size_of::<T>() as u64)
}

fn store<T: IntoBytes + Immutable>(task: &Task<'_>, address: u64, value: &T) -> Result<(), Errno> {
    if task.write_bytes(address, value.as_bytes()) > 0 { Err(Errno::FAULT) } else { Ok(()) }
}

fn check_domain(domain: u32) -> Result<(), Errno> {
    if domain == CLK_DOMAIN_GPCCLK { Ok(()) } else { Err(Errno::INVAL) }
}

/// Common rules of the queries. Returns the number of entries to fill; `None` if only the number was requested.
fn entries(flags: u32, count: &mut u16, most: u16) -> Result<Option<u16>, Errno> {
    match flags {
        0 if *count == 0 => {
            *count = DOMAINS;
            Ok(None)
        }
        0 if *count < DOMAINS => Err(Errno::INVAL),
        0 => Ok(Some(DOMAINS)),
        CLK_FLAG_SPECIFIC_DOMAINS if *count <= most => Ok(Some(*count)),
        _ => Err(Errno::INVAL),
    }
}

impl Kernel {
    /// The points of the table, lowest first.
    fn frequencies(&self) -> Vec<u64> {
        let maximum = self.config.characteristics.max_freq;
        let steps = (0..).map(|step| LOWEST_HZ + step * STEP_HZ).take_while(|hz| *hz < maximum);
        steps.chain([maximum]).collect()
    }

    /// The current frequency of the GPCs, in Hz.
    pub(super) fn frequency(&self) -> u64 {
        let wanted = self.state.lock().frequencies.values().copied().max().unwrap_or(self.config.clock_hz);
        let points = self.frequencies();
        let maximum = points.last().copied().unwrap_or(wanted);
        points.into_iter().find(|hz| *hz >= wanted).unwrap_or(maximum)
    }

    /// Handles all clock requests except CLK_GET_VF_POINTS. `instance` is the open of the node.
    pub(super) fn clock(&self, instance: u64, argument: &mut Argument<'_>) -> Result<(), Errno> {
        let task = argument.task();
        match argument.code() {
            code::CLK_GET_RANGE => argument.call(|args: &mut ClkRangeArgs| self.clock_range(task, args)),
            code::CLK_GET_INFO => argument.call(|args: &mut ClkGetInfo| self.clock_info(task, args)),
            _ => argument.call(|args: &mut ClkSetInfo| self.set_clock(task, instance, args)),
        }
    }

    fn clock_range(&self, task: &Task<'_>, args: &mut ClkRangeArgs) -> Result<(), Errno> {
        let Some(count) = entries(args.flags, &mut args.num_entries, DOMAINS)? else { return Ok(()) };
        for at in 0..count {
            let address = element::<ClkRange>(args.clk_range_entries, at);
            if args.flags != 0 {
                check_domain(task.read::<ClkRange>(address)?.clk_domain)?;
            }
            let max_hz = self.config.characteristics.max_freq;
            let min_hz = LOWEST_HZ.min(max_hz);
            store(task, address, &ClkRange { flags: 0, clk_domain: CLK_DOMAIN_GPCCLK, min_hz, max_hz })?;
        }
        args.num_entries = count;
        Ok(())
    }

    /// CLK_GET_VF_POINTS. If there is no room for any point, `max_entries` returns the number of points. Returns the
    /// number of bytes of a point that could not be stored.
    pub(super) fn clock_points(&self, argument: &mut Argument<'_>) -> Result<usize, Errno> {
        let (task, mut left) = (argument.task(), 0);
        argument.call(|args: &mut ClkVfPointsArgs| {
            if args.flags != 0 {
                return Err(Errno::INVAL);
            }
            args.num_entries = 0;
            check_domain(args.clk_domain)?;
            let points = self.frequencies();
            let count = u16::try_from(points.len()).map_err(|_| Errno::INVAL)?;
            if args.max_entries == 0 {
                args.max_entries = count;
                return Ok(());
            }
            if args.max_entries < count {
                return Err(Errno::INVAL);
            }
            for (at, freq_hz) in (0..).zip(points) {
                let point = ClkVfPoint { freq_hz };
                let place = element::<ClkVfPoint>(args.clk_vf_point_entries, at);
                left = task.write_bytes(place, point.as_bytes());
                if left > 0 {
                    return Ok(());
                }
            }
            args.num_entries = count;
            Ok(())
        })?;
        Ok(left)
    }

    fn clock_info(&self, task: &Task<'_>, args: &mut ClkGetInfo) -> Result<(), Errno> {
        let most = KINDS * DOMAINS;
        let Some(count) = entries(args.flags, &mut args.num_entries, most)? else { return Ok(()) };
        for at in 0..count {
            let address = element::<ClkInfo>(args.clk_info_entries, at);
            let clk_type = if args.flags == 0 {
                args.clk_type
            } else {
                let info: ClkInfo = task.read(address)?;
                check_domain(info.clk_domain)?;
                info.clk_type
            };
            if ![CLK_TYPE_TARGET, CLK_TYPE_ACTUAL, CLK_TYPE_EFFECTIVE].contains(&clk_type) {
                return Err(Errno::INVAL);
            }
            let freq_hz = self.frequency();
            store(task, address, &ClkInfo { flags: 0, clk_type, clk_domain: CLK_DOMAIN_GPCCLK, freq_hz })?;
        }
        args.num_entries = count;
        Ok(())
    }

    fn set_clock(&self, task: &Task<'_>, instance: u64, args: &mut ClkSetInfo) -> Result<(), Errno> {
        if args.flags != 0 {
            return Err(Errno::INVAL);
        }
        if args.num_entries == 0 || args.num_entries > DOMAINS {
            let count = args.num_entries;
            self.log.error("nvgpu_gpu_clk_set_info", ChannelLine::ClockEntries { count: count.into() });
            return Err(Errno::INVAL);
        }
        let info: ClkInfo = task.read(args.clk_info_entries)?;
        check_domain(info.clk_domain)?;
        let descriptor = fds::readable(task, |number| format!("nvgpu-clk_arb-fd{number}"))?;
        let mut state = self.state.lock();
        args.completion_fd = state.fds.insert(task, descriptor, Object::ClockRequest)?;
        state.frequencies.insert(instance, info.freq_hz);
        Ok(())
    }
}
