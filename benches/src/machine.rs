//! Facts about the machine for a report.

use std::fs;
use std::path::Path;

/// A machine. Unknown facts are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Name of the board (device tree) or the CPU.
    pub model: Option<String>,
    /// The CPU's architecture, as the compiler calls it.
    pub architecture: &'static str,
    /// CPUs that the process may use.
    pub cpus: usize,
    /// Memory in bytes.
    pub memory: Option<u64>,
    /// Memory in bytes that can be allocated without swapping.
    pub available: Option<u64>,
    /// Release of the running kernel.
    pub kernel: Option<String>,
    /// Release of L4T, on a Jetson.
    pub l4t: Option<String>,
    /// Frequency governor of the first CPU.
    pub governor: Option<String>,
}

impl Machine {
    /// Describes this machine.
    pub fn here() -> Self {
        Self::under(Path::new("/"))
    }

    /// Describes the machine whose root directory is `root`.
    fn under(root: &Path) -> Self {
        let read = |path: &str| fs::read_to_string(root.join(path)).ok();
        let line = |path: &str| read(path).and_then(|text| first_line(&text));
        let cpuinfo = read("proc/cpuinfo").unwrap_or_default();
        let meminfo = read("proc/meminfo").unwrap_or_default();
        Self {
            model: line("proc/device-tree/model").or_else(|| field(&cpuinfo, "model name")),
            architecture: std::env::consts::ARCH,
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory: kibibytes(&meminfo, "MemTotal"),
            available: kibibytes(&meminfo, "MemAvailable"),
            kernel: line("proc/sys/kernel/osrelease"),
            l4t: line("etc/nv_tegra_release"),
            governor: line("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        }
    }
}

/// The first line without surrounding white space. The strings of a device tree end with a zero byte.
fn first_line(text: &str) -> Option<String> {
    let line = text.lines().next()?.trim_matches(|letter: char| letter.is_whitespace() || letter == '\0');
    (!line.is_empty()).then(|| line.to_owned())
}

/// The value of the first line `name : value`.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

fn kibibytes(meminfo: &str, name: &str) -> Option<u64> {
    let number: u64 = field(meminfo, name)?.strip_suffix("kB")?.trim().parse().ok()?;
    number.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_known_facts() {
        let machine = Machine::here();
        assert!(machine.cpus >= 1 && !machine.architecture.is_empty());
        assert!(machine.memory.unwrap() >= machine.available.unwrap());
        assert!(machine.kernel.is_some());
    }

    #[test]
    fn a_board_is_named_by_its_device_tree() {
        let text = "NVIDIA Jetson AGX Orin Developer Kit\0";
        assert_eq!(first_line(text).unwrap(), "NVIDIA Jetson AGX Orin Developer Kit");
        assert_eq!(first_line("\n"), None);
    }

    #[test]
    fn missing_facts_are_none() {
        let machine = Machine::under(Path::new("/no/such/root"));
        assert_eq!((machine.model, machine.memory, machine.governor), (None, None, None));
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let cpuinfo = "model\t: 85\nmodel name\t: A CPU @ 2 GHz\n";
        assert_eq!(field(cpuinfo, "model name").unwrap(), "A CPU @ 2 GHz");
        assert_eq!(kibibytes("MemTotal:  2048 kB\n", "MemTotal"), Some(2 << 20));
        assert_eq!(kibibytes("MemTotal:  many kB\n", "MemTotal"), None);
    }
}
