//! Text files of the board: the release, the memory, and the GPU in sysfs.

use core::ffi::CStr;

use nvgpu_sys::ctrl::GpuFlags;
use nvgpu_sys::paths;

use super::Kernel;

/// Power state of the GPU: the deepest of its files in sysfs.
pub(super) const RUNTIME_STATUS: &CStr = c"/sys/class/devfreq/17000000.gpu/device/power/runtime_status";
/// Largest free CMA memory of the model, in bytes.
const CMA_BYTES: u64 = 64 << 20;

impl Kernel {
    /// The contents of a text file of the board; `None` if there is no such file.
    pub(super) fn text(&self, path: &CStr) -> Option<String> {
        let facts = self.facts();
        if path == paths::DEVFREQ_MAX_FREQ {
            return Some(format!("{}\n", self.config.characteristics.max_freq));
        } else if path == paths::DEVFREQ_MIN_FREQ {
            return Some("0\n".to_owned());
        } else if path == paths::DEVFREQ_CUR_FREQ {
            return Some(format!("{}\n", self.frequency()));
        } else if path == RUNTIME_STATUS {
            return Some("active\n".to_owned());
        }
        match path.to_bytes() {
            b"/etc/nv_tegra_release" => Some(format!("{}\n", facts.l4t)),
            b"/proc/sys/kernel/osrelease" => Some(format!("{}\n", facts.linux)),
            b"/proc/meminfo" => Some(self.meminfo()),
            b"/sys/class/devfreq/17000000.gpu/device/railgate_enable" => {
                let flags = GpuFlags::from_bits_retain(self.config.characteristics.flags);
                Some(format!("{}\n", u8::from(flags.contains(GpuFlags::CAN_RAILGATE))))
            }
            b"/sys/class/devfreq/17000000.gpu/device/enable_3d_scaling" => {
                facts.scaling_switch.then(|| "1\n".to_owned())
            }
            _ => None,
        }
    }

    /// `/proc/meminfo`. Free CMA memory counts as available, but nvmap cannot have it.
    fn meminfo(&self) -> String {
        let (total, free) = self.state.lock().nvmap.system_memory();
        let cma = CMA_BYTES.min(total - free);
        let row = |name: &str, bytes: u64| format!("{:16}{:>8} kB\n", format!("{name}:"), bytes >> 10);
        let rows =
            [("MemTotal", total), ("MemFree", free + cma), ("MemAvailable", free + cma), ("CmaFree", cma)];
        rows.map(|(name, bytes)| row(name, bytes)).concat()
    }
}
