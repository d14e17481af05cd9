//! Time, clocks and sensors.

use kernel_door::uapi_struct;

uapi_struct! {
    /// A pair of timestamps.
    unsafe plain CpuTimeCorrelationSample = "nvgpu_gpu_get_cpu_time_correlation_sample", 16 bytes {
        /// CPU clock, in the units of the source.
        0 => cpu_timestamp: u64;
        /// GPU clock in nanoseconds.
        8 => gpu_timestamp: u64;
    }

    /// Argument of [`GET_CPU_TIME_CORRELATION_INFO`](super::GET_CPU_TIME_CORRELATION_INFO).
    unsafe plain GetCpuTimeCorrelationInfo = "nvgpu_gpu_get_cpu_time_correlation_info_args", 264 bytes {
        /// Out: the pairs.
        0 => samples: [CpuTimeCorrelationSample; 16];
        /// Pairs wanted, at most 16.
        256 => count: u32;
        /// [`TIME_SOURCE_TSC`](super::TIME_SOURCE_TSC) or [`TIME_SOURCE_OSTIME`](super::TIME_SOURCE_OSTIME).
        260 => source_id: u32;
    }

    /// Result of [`GET_GPU_TIME`](super::GET_GPU_TIME).
    unsafe plain GetGpuTime = "nvgpu_gpu_get_gpu_time_args", 16 bytes {
        /// PTIMER in nanoseconds, in steps of 32.
        0 => gpu_timestamp: u64;
        /// Not used.
        8 => reserved: u64;
    }

    /// Range of a clock domain; result of [`CLK_GET_RANGE`](super::CLK_GET_RANGE).
    unsafe plain ClkRange = "nvgpu_gpu_clk_range", 24 bytes {
        /// Not used.
        0 => flags: u32;
        /// Clock domain.
        4 => clk_domain: u32;
        /// Lowest frequency in Hz.
        8 => min_hz: u64;
        /// Highest frequency in Hz.
        16 => max_hz: u64;
    }

    /// Argument of [`CLK_GET_RANGE`](super::CLK_GET_RANGE).
    pointing(clk_range_entries) ClkRangeArgs = "nvgpu_gpu_clk_range_args", 16 bytes {
        /// 0, or [`CLK_FLAG_SPECIFIC_DOMAINS`](super::CLK_FLAG_SPECIFIC_DOMAINS).
        0 => flags: u32;
        /// Not used.
        4 => pad0: u16;
        /// Capacity of the array; 0 requests the number of entries.
        6 => num_entries: u16;
        /// Array of [`ClkRange`].
        8 => clk_range_entries: u64;
    }

    /// One frequency; result of [`CLK_GET_VF_POINTS`](super::CLK_GET_VF_POINTS).
    unsafe plain ClkVfPoint = "nvgpu_gpu_clk_vf_point", 8 bytes {
        /// Frequency in Hz.
        0 => freq_hz: u64;
    }

    /// Argument of [`CLK_GET_VF_POINTS`](super::CLK_GET_VF_POINTS).
    pointing(clk_vf_point_entries) ClkVfPointsArgs = "nvgpu_gpu_clk_vf_points_args", 24 bytes {
        /// 0.
        0 => flags: u32;
        /// Clock domain.
        4 => clk_domain: u32;
        /// Capacity of the array; 0 requests the number of entries.
        8 => max_entries: u16;
        /// Out: entries there are.
        10 => num_entries: u16;
        /// Not used.
        12 => reserved: u32;
        /// Array of [`ClkVfPoint`].
        16 => clk_vf_point_entries: u64;
    }

    /// A frequency of a clock domain.
    unsafe plain ClkInfo = "nvgpu_gpu_clk_info", 16 bytes {
        /// Not used.
        0 => flags: u16;
        /// One of the `CLK_TYPE_*` values.
        2 => clk_type: u16;
        /// Clock domain.
        4 => clk_domain: u32;
        /// Frequency in Hz.
        8 => freq_hz: u64;
    }

    /// Argument of [`CLK_GET_INFO`](super::CLK_GET_INFO).
    pointing(clk_info_entries) ClkGetInfo = "nvgpu_gpu_clk_get_info_args", 16 bytes {
        /// 0, or [`CLK_FLAG_SPECIFIC_DOMAINS`](super::CLK_FLAG_SPECIFIC_DOMAINS).
        0 => flags: u32;
        /// One of the `CLK_TYPE_*` values, or 0 for all.
        4 => clk_type: u16;
        /// Capacity of the array; 0 requests the number of entries.
        6 => num_entries: u16;
        /// Array of [`ClkInfo`].
        8 => clk_info_entries: u64;
    }

    /// Argument of [`CLK_SET_INFO`](super::CLK_SET_INFO).
    pointing(clk_info_entries) ClkSetInfo = "nvgpu_gpu_clk_set_info_args", 24 bytes {
        /// 0.
        0 => flags: u32;
        /// Not used.
        4 => pad0: u16;
        /// Entries at the address: 1.
        6 => num_entries: u16;
        /// Array of [`ClkInfo`].
        8 => clk_info_entries: u64;
        /// Out: a descriptor that becomes readable once the clock has changed.
        16 => completion_fd: i32;
        /// Not read.
        20 => padding: u32, "";
    }

    /// Argument of [`GET_EVENT_FD`](super::GET_EVENT_FD).
    unsafe plain GetEventFd = "nvgpu_gpu_get_event_fd_args", 8 bytes {
        /// 0.
        0 => flags: u32;
        /// Out: the descriptor.
        4 => event_fd: i32;
    }

    /// Argument of [`GET_VOLTAGE`](super::GET_VOLTAGE).
    unsafe plain GetVoltage = "nvgpu_gpu_get_voltage_args", 16 bytes {
        /// Not used.
        0 => reserved: u64;
        /// Rail: one of the `VOLTAGE_*` values.
        8 => which: u32;
        /// Out: microvolts.
        12 => voltage: u32;
    }

    /// Result of [`GET_CURRENT`](super::GET_CURRENT).
    unsafe plain GetCurrent = "nvgpu_gpu_get_current_args", 16 bytes {
        /// Not used.
        0 => reserved: [u32; 3];
        /// Milliamperes.
        12 => current: u32, "currnt";
    }

    /// Result of [`GET_POWER`](super::GET_POWER).
    unsafe plain GetPower = "nvgpu_gpu_get_power_args", 16 bytes {
        /// Not used.
        0 => reserved: [u32; 3];
        /// Milliwatts.
        12 => power: u32;
    }

    /// Result of [`GET_TEMPERATURE`](super::GET_TEMPERATURE).
    unsafe plain GetTemperature = "nvgpu_gpu_get_temperature_args", 16 bytes {
        /// Not used.
        0 => reserved: [u32; 3];
        /// Degrees Celsius with 8 fraction bits.
        12 => temp_f24_8: i32;
    }

    /// Argument of [`SET_THERM_ALERT_LIMIT`](super::SET_THERM_ALERT_LIMIT).
    unsafe plain SetThermAlertLimit = "nvgpu_gpu_set_therm_alert_limit_args", 16 bytes {
        /// Not used.
        0 => reserved: [u32; 3];
        /// Degrees Celsius with 8 fraction bits.
        12 => temp_f24_8: i32;
    }
}

/// Voltage rail: the core.
pub const VOLTAGE_CORE: u32 = 1;
/// Voltage rail: the SRAMs.
pub const VOLTAGE_SRAM: u32 = 2;
/// Voltage rail: the bus.
pub const VOLTAGE_BUS: u32 = 3;
