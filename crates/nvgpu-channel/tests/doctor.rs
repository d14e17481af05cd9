//! The doctor on machines in various states: a software Orin behind the door, with synthetic system files.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::common::boot;
use kernel_door::Errno;
use nvgpu_channel::system::{Identity, Permissions};
use nvgpu_channel::{Devfreq, Error, GpuFlags, Report, Severity, System, examine};
use nvgpu_sys::ctrl;
use orin_sim::{Call, Config, Failure, LiveCounts, Node, Nodes};

/// A synthetic machine of text files, directories, links and owners.
#[derive(Debug, Default)]
struct Machine {
    texts: Mutex<BTreeMap<PathBuf, String>>,
    directories: BTreeMap<PathBuf, Vec<&'static str>>,
    links: BTreeMap<PathBuf, PathBuf>,
    owners: BTreeMap<PathBuf, Permissions>,
    groups: Vec<u32>,
    /// Whether files can be written.
    root: bool,
}

impl Machine {
    /// An AGX Orin in its initial state, with a user in group video (44).
    fn orin() -> Self {
        let mut machine = Self { groups: vec![1000, 44], ..Self::default() };
        machine.text("/proc/device-tree/compatible", "nvidia,p3737-0000+p3701-0005\0nvidia,tegra234\0");
        machine.text("/proc/device-tree/model", "NVIDIA Jetson AGX Orin Developer Kit\0");
        machine.text("/proc/sys/kernel/osrelease", "5.15.148-tegra\n");
        machine.text(
            "/etc/nv_tegra_release",
            "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic\n",
        );
        machine.text("/etc/group", "root:x:0:\nvideo:x:44:ubuntu\nrender:x:104:\n");
        machine.text("/sys/class/devfreq/17000000.gpu/device/power/runtime_status", "active\n");
        machine.text("/sys/class/devfreq/17000000.gpu/device/railgate_enable", "0\n");
        machine.text("/sys/class/devfreq/17000000.gpu/min_freq", "306000000\n");
        machine.text("/sys/class/devfreq/17000000.gpu/max_freq", "1300500000\n");
        machine.text("/sys/class/devfreq/17000000.gpu/cur_freq", "612000000\n");
        machine.directories.insert("/proc".into(), vec!["1", "77", "cpuinfo", "self"]);
        machine.directories.insert("/proc/1/fd".into(), vec![]);
        machine.directories.insert("/proc/77/fd".into(), vec!["0", "9"]);
        machine.links.insert("/proc/self".into(), "77".into());
        machine.links.insert("/proc/77/fd/9".into(), "/dev/nvgpu/igpu0/ctrl".into());
        machine
    }

    fn text(&mut self, path: &str, text: &str) {
        self.texts.get_mut().unwrap().insert(path.into(), text.into());
    }

    fn node(&mut self, path: &str, group: u32, mode: u32) {
        self.owners.insert(path.into(), Permissions { user: 0, group, mode });
    }
}

fn absent<T>(value: Option<T>) -> io::Result<T> {
    value.ok_or_else(|| io::ErrorKind::NotFound.into())
}

impl System for Machine {
    fn read(&self, path: &Path) -> io::Result<String> {
        absent(self.texts.lock().unwrap().get(path).cloned())
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        if !self.root {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let mut texts = self.texts.lock().unwrap();
        *absent(texts.get_mut(path))? = format!("{text}\n");
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        absent(self.directories.get(path)).map(|names| names.iter().map(|name| (*name).to_owned()).collect())
    }

    fn link(&self, path: &Path) -> io::Result<PathBuf> {
        absent(self.links.get(path).cloned())
    }

    fn permissions(&self, path: &Path) -> io::Result<Permissions> {
        absent(self.owners.get(path).copied())
    }

    fn identity(&self) -> Identity {
        Identity { user: 1000, groups: self.groups.clone() }
    }
}

/// Examines a board and its machine; the board must be unchanged afterwards.
fn diagnose(config: Config, machine: &Machine) -> Report {
    let (orin, door) = boot(config);
    let report = examine(&door, Some(machine));
    assert_eq!(orin.live(), LiveCounts::default(), "the doctor leaked");
    report
}

fn severity(report: &Report, subject: &str) -> Severity {
    report.about(subject).unwrap_or_else(|| panic!("nothing about {subject}:\n{report}")).severity
}

/// Text and cure about a subject.
fn words(report: &Report, subject: &str) -> String {
    let finding = report.about(subject).unwrap_or_else(|| panic!("nothing about {subject}:\n{report}"));
    format!("{} -> {}", finding.text, finding.cure.as_deref().unwrap_or_default())
}

#[test]
fn a_healthy_orin_has_no_errors() {
    let report = diagnose(Config::default(), &Machine::orin());
    assert!(!report.has_errors(), "{report}");
    assert!(words(&report, "machine").contains("AGX Orin"));
    assert!(words(&report, "driver").contains("L4T R36.4.3, kernel 5.15.148-tegra (JetPack 6.2)"));
    assert!(words(&report, "interface").contains("as in r36.4.3, NVMAP_IOC_ALLOC 0x40144e03"), "{report}");
    assert!(words(&report, "GPU").contains("ga10b, 16 SMs of version 8.7"));
    assert!(words(&report, "channel").contains("token 511; open, it holds "));
    assert!(words(&report, "CUDA").contains("no libcuda"));
    for subject in
        ["driver", "memory node", "GPU node", "features", "memory", "power", "GPU time", "other users"]
    {
        assert_eq!(severity(&report, subject), Severity::Ok, "{report}");
    }
    // Clocks that follow the load are not a problem, but could be steadier.
    assert!(words(&report, "clocks").contains("jetson_clocks"), "{report}");
}

#[test]
fn a_software_orin_has_no_machine_around_it() {
    let (_orin, door) = boot(Config::default());
    let report = nvgpu_channel::Gpu::open(&door).unwrap().doctor(None);
    assert!(!report.has_errors(), "{report}");
    assert!(words(&report, "machine").contains("no hardware"));
    assert_eq!(report.about("other users"), None);
    assert_eq!(report.about("power"), None);
}

#[test]
fn another_machine_is_told_so_and_asked_nothing_else() {
    let mut machine = Machine::default();
    machine.text("/proc/device-tree/compatible", "raspberrypi,5-model-b\0brcm,bcm2712\0");
    machine.text("/proc/device-tree/model", "Raspberry Pi 5\0");
    for machine in [machine, Machine::default()] {
        let report = diagnose(Config::default(), &machine);
        assert_eq!((report.findings.len(), report.worst()), (1, Severity::Error));
        let words = words(&report, "machine");
        assert!(words.contains("not a Jetson Orin") && words.contains("--device sim"), "{words}");
    }
}

#[test]
fn permissions_have_the_cure_that_fits() {
    let nodes = Nodes { ctrl: Node::Denied, ..Nodes::default() };
    let config = || Config { nodes, ..Config::default() };
    let path = "/dev/nvgpu/igpu0/ctrl";

    let mut outsider = Machine::orin();
    outsider.groups = vec![1000];
    outsider.node(path, 44, 0o660);
    let report = diagnose(config(), &outsider);
    assert!(report.has_errors());
    assert!(words(&report, "GPU node").contains("usermod -aG video"), "{report}");
    // Checks of a node that does not open are skipped.
    assert_eq!(report.about("GPU"), None);

    let mut renamed = Machine::orin();
    renamed.groups = vec![1000];
    renamed.node(path, 104, 0o660);
    assert!(words(&diagnose(config(), &renamed), "GPU node").contains("group render"));
    renamed.node(path, 4711, 0o660);
    assert!(words(&diagnose(config(), &renamed), "GPU node").contains("group 4711"));

    let mut contained = Machine::orin();
    contained.node(path, 44, 0o660);
    assert!(words(&diagnose(config(), &contained), "GPU node").contains("container"));

    let mut locked = Machine::orin();
    locked.node(path, 0, 0o600);
    assert!(words(&diagnose(config(), &locked), "GPU node").contains("udev"));
    // If the node cannot be inspected, the remedy is the default one.
    assert!(words(&diagnose(config(), &Machine::orin()), "GPU node").contains("group video"));
}

#[test]
fn missing_nodes_have_the_cure_that_fits() {
    let nodes = Nodes { ctrl: Node::Absent, ..Nodes::default() };
    let mut machine = Machine::orin();
    let report = diagnose(Config { nodes, ..Config::default() }, &machine);
    assert!(words(&report, "GPU node").contains("modprobe nvgpu"), "{report}");
    machine.node("/dev/nvgpu/igpu0/power", 0, 0o600);
    let report = diagnose(Config { nodes, ..Config::default() }, &machine);
    assert!(words(&report, "GPU node").contains("/dev/nvgpu/igpu0/power"), "{report}");

    let nodes = Nodes { nvmap: Node::Absent, ..Nodes::default() };
    let report = diagnose(Config { nodes, ..Config::default() }, &Machine::orin());
    assert_eq!(severity(&report, "memory node"), Severity::Error);
    assert!(words(&report, "memory node").contains("modprobe nvmap"), "{report}");

    // Kernels run without the log.
    let nodes = Nodes { kernel_log: Node::Denied, ..Nodes::default() };
    let report = diagnose(Config { nodes, ..Config::default() }, &Machine::orin());
    assert_eq!(severity(&report, "kernel log"), Severity::Warning);
    assert!(words(&report, "kernel log").contains("dmesg_restrict"), "{report}");
    assert!(!report.has_errors());
    let nodes = Nodes { kernel_log: Node::Absent, ..Nodes::default() };
    let report = diagnose(Config { nodes, ..Config::default() }, &Machine::orin());
    assert!(words(&report, "kernel log").contains("--device /dev/kmsg"), "no module creates it: {report}");

    let failures = vec![Failure { call: Call::Open, nth: 1, errno: Errno::MFILE }];
    let report = diagnose(Config { failures, ..Config::default() }, &Machine::orin());
    assert!(words(&report, "memory node").contains("ulimit"), "{report}");
}

#[test]
fn old_drivers_and_other_chips_are_errors() {
    let with = |change: fn(&mut ctrl::Characteristics)| {
        let mut config = Config::default();
        change(&mut config.characteristics);
        diagnose(config, &Machine::orin())
    };
    let report = with(|gpu| gpu.ioctl_channel_nr_last = 127);
    assert!(words(&report, "GPU").contains("JetPack 6"), "{report}");
    let report = with(|gpu| gpu.compute_class = 0xc5c0);
    assert!(words(&report, "GPU").contains("0xc5c0"), "{report}");
    assert_eq!(report.about("channel"), None);
    // A missing optional feature is a warning that states the consequence.
    let report = with(|gpu| gpu.flags &= !GpuFlags::SUPPORT_FAULT_RECOVERY.bits());
    assert_eq!(severity(&report, "features"), Severity::Warning);
    assert!(words(&report, "features").contains("SUPPORT_FAULT_RECOVERY: a faulting kernel"), "{report}");
    assert!(!report.has_errors());

    let mut machine = Machine::orin();
    machine.text("/etc/nv_tegra_release", "# R35 (release), REVISION: 5.0, GCID: 1\n");
    let report = diagnose(Config::default(), &machine);
    assert_eq!(severity(&report, "driver"), Severity::Warning);
    assert!(words(&report, "driver").contains("R35.5.0"), "{report}");
    machine.text("/etc/nv_tegra_release", "");
    assert!(words(&diagnose(Config::default(), &machine), "driver").contains("unknown"));
}

#[test]
fn what_fails_on_the_way_up_is_named() {
    for (code, name) in [
        (ctrl::code::ALLOC_AS, "ALLOC_AS"),
        (nvgpu_sys::channel::code::SETUP_BIND, "SETUP_BIND"),
        (nvgpu_sys::channel::code::ALLOC_OBJ_CTX, "ALLOC_OBJ_CTX"),
    ] {
        let failures = vec![Failure { call: Call::Ioctl(code), nth: 1, errno: Errno::NODEV }];
        let report = diagnose(Config { failures, ..Config::default() }, &Machine::orin());
        assert_eq!(severity(&report, "channel"), Severity::Error);
        let words = words(&report, "channel");
        assert!(words.contains(name) && words.contains("dmesg"), "{words}");
    }
    // A request that the kernel does not know is not cured by a reboot.
    let failures =
        vec![Failure { call: Call::Ioctl(ctrl::code::GET_CHARACTERISTICS), nth: 1, errno: Errno::NOTTY }];
    let report = diagnose(Config { failures, ..Config::default() }, &Machine::orin());
    let words_of_gpu = words(&report, "GPU");
    assert!(words_of_gpu.contains("no known form") && words_of_gpu.contains("JetPack"), "{words_of_gpu}");
    let failures = vec![Failure { call: Call::Ioctl(ctrl::code::GET_GPU_TIME), nth: 1, errno: Errno::BUSY }];
    let report = diagnose(Config { failures, ..Config::default() }, &Machine::orin());
    assert_eq!(severity(&report, "GPU time"), Severity::Error);
}

#[test]
fn little_memory_and_idle_power_down_are_warnings() {
    let report = diagnose(Config { memory_bytes: 100 << 20, ..Config::default() }, &Machine::orin());
    assert_eq!(severity(&report, "memory"), Severity::Warning);
    assert!(
        words(&report, "memory").contains("100 of 100 MiB available; one allocation may take 98 MiB now"),
        "{report}"
    );

    let mut machine = Machine::orin();
    machine.text("/sys/class/devfreq/17000000.gpu/device/power/runtime_status", "suspended\n");
    machine.text("/sys/class/devfreq/17000000.gpu/device/railgate_enable", "1\n");
    let mut config = Config::default();
    config.characteristics.flags |= GpuFlags::CAN_RAILGATE.bits();
    let report = diagnose(config, &machine);
    assert_eq!(severity(&report, "power"), Severity::Warning);
    let words = words(&report, "power");
    assert!(words.contains("suspended") && words.contains("railgate_enable"), "{words}");
}

#[test]
fn other_users_are_named() {
    let mut machine = Machine::orin();
    machine.directories.insert("/proc".into(), vec!["1", "77", "812", "900"]);
    machine.directories.insert("/proc/812/fd".into(), vec!["3", "4"]);
    machine.links.insert("/proc/812/fd/3".into(), "/dev/null".into());
    machine.links.insert("/proc/812/fd/4".into(), "/dev/nvhost-ctrl-gpu".into());
    machine.text("/proc/812/comm", "Xorg\n");
    machine.node("/usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1", 0, 0o644);
    let report = diagnose(Config::default(), &machine);
    assert_eq!(severity(&report, "other users"), Severity::Warning);
    let words_of = |subject| words(&report, subject);
    assert!(words_of("other users").contains("Xorg (812)"), "{report}");
    assert!(words_of("other users").contains("without root"), "process 900 cannot be inspected");
    assert!(words_of("CUDA").contains("libcuda.so.1"));
}

#[test]
fn a_memory_node_that_is_only_readable_is_enough() {
    let nodes = Nodes { nvmap: Node::ReadOnly, ..Nodes::default() };
    let report = diagnose(Config { nodes, ..Config::default() }, &Machine::orin());
    assert_eq!(severity(&report, "memory node"), Severity::Ok);
    assert!(words(&report, "memory node").contains("for reading only"), "{report}");
    assert!(report.findings.iter().all(|finding| finding.severity != Severity::Error), "{report}");
}

#[test]
fn lines_say_severity_subject_text_and_cure() {
    let nodes = Nodes { nvmap: Node::Denied, ..Nodes::default() };
    let report = diagnose(Config { nodes, ..Config::default() }, &Machine::orin());
    let text = report.to_string();
    let line = text.lines().find(|line| line.contains("/dev/nvmap")).unwrap();
    assert!(line.starts_with("error    memory node"), "{text}");
    assert!(text.contains("-> add yourself to group video"), "{text}");
    assert_eq!(report.findings.iter().filter(|finding| finding.severity == Severity::Error).count(), 1);
    assert!(report.findings.iter().all(|finding| finding.severity == Severity::Ok || finding.cure.is_some()));
}

#[test]
fn devfreq_is_raised_and_restored_by_root_alone() {
    let system = Arc::new(Machine { root: true, ..Machine::orin() });
    let devfreq = Devfreq::new(Arc::clone(&system) as _);
    let state = devfreq.state().unwrap();
    assert_eq!((state.min_hz, state.max_hz, state.current_hz), (306_000_000, 1_300_500_000, 612_000_000));
    let boost = devfreq.boost().unwrap();
    assert_eq!(devfreq.state().unwrap().min_hz, 1_300_500_000);
    drop(boost);
    assert_eq!(devfreq.state().unwrap().min_hz, 306_000_000);

    let error = Devfreq::new(Arc::new(Machine::orin())).boost().unwrap_err();
    assert!(matches!(error, Error::File { kind: io::ErrorKind::PermissionDenied, .. }));
    assert!(error.to_string().contains("min_freq") && error.to_string().contains("run as root"), "{error}");
    let error = Devfreq::new(Arc::new(Machine::default())).state().unwrap_err();
    assert!(error.to_string().contains("not a Jetson Orin"), "{error}");
    let mut broken = Machine::orin();
    broken.text("/sys/class/devfreq/17000000.gpu/min_freq", "fast\n");
    let error = Devfreq::new(Arc::new(broken)).state().unwrap_err();
    assert!(error.to_string().contains("\"fast\" is not a number"), "{error}");
}

/// A machine with a release of L4T.
fn with_release(text: &str) -> Machine {
    let mut machine = Machine::orin();
    machine.text("/etc/nv_tegra_release", text);
    machine
}

#[test]
fn each_release_says_what_was_checked() {
    for (text, severity_of_driver, wanted) in [
        ("# R35 (release), REVISION: 6.1, GCID: 39721438, BOARD: t186ref\n", Severity::Warning, "JetPack 5"),
        ("# R36 (release), REVISION: 2.0, GCID: 35084178, BOARD: generic\n", Severity::Ok, "headers equal"),
        ("# R36 (release), REVISION: 3.0, GCID: 36191598, BOARD: generic\n", Severity::Ok, "JetPack 6.0)"),
        ("# R36 (release), REVISION: 4.0, GCID: 37537400, BOARD: generic\n", Severity::Ok, "JetPack 6.1)"),
        ("# R36 (release), REVISION: 4.4, GCID: 41062509, BOARD: generic\n", Severity::Ok, "JetPack 6.2.1)"),
        (
            "# R36 (release), REVISION: 4.7, GCID: 42132812, BOARD: generic\n",
            Severity::Ok,
            "available at once",
        ),
        ("# R36 (release), REVISION: 5.0, GCID: 1, BOARD: generic\n", Severity::Ok, "JetPack 6.2.2)"),
        ("# R38 (release), REVISION: 2.0, GCID: 41844464, BOARD: generic\n", Severity::Warning, "Thor"),
        ("# R39 (release), REVISION: 2.0, GCID: 1, BOARD: generic\n", Severity::Ok, "JetPack 7.2)"),
        ("# R41 (release), REVISION: 1.0, GCID: 1, BOARD: generic\n", Severity::Warning, "never compared"),
        ("# R32 (release), REVISION: 7.1, GCID: 1, BOARD: t186ref\n", Severity::Warning, "JetPack 4"),
        ("Ubuntu 24.04\n", Severity::Warning, "unknown"),
    ] {
        let report = diagnose(Config::default(), &with_release(text));
        // The machine has the kernel of R36.
        let other_kernel = words(&report, "driver").contains("not the release's");
        assert_eq!(other_kernel, text.starts_with("# R") && !text.starts_with("# R36"), "{report}");
        assert_eq!(severity(&report, "driver"), severity_of_driver, "{text}: {report}");
        assert!(words(&report, "driver").contains(wanted), "{text}: {report}");
        let never_ran = words(&report, "driver").contains("never run")
            || text.starts_with("# R3")
            || text.starts_with('U');
        assert!(never_ran, "{report}");
    }
}

#[test]
fn the_boot_services_choice_is_judged_where_both_drivers_can_stand() {
    let release = "# R39 (release), REVISION: 2.0, GCID: 1, BOARD: generic\n";
    let with = |choice: Option<&str>, modules: &str| {
        let mut machine = with_release(release);
        machine.text("/proc/modules", modules);
        if let Some(choice) = choice {
            machine.directories.insert("/run".into(), vec!["lock", "nvidia-gpu-variant"]);
            machine.text("/run/nvidia-gpu-variant", choice);
        }
        diagnose(Config::default(), &machine)
    };
    let nvgpu = "nvgpu 2654208 23 - Live 0x0\nnvidia 1 0 - Live 0x0\n";
    assert_eq!(severity(&with(Some("nvgpu-l4t\n"), nvgpu), "boot service"), Severity::Ok);
    assert_eq!(severity(&with(None, nvgpu), "boot service"), Severity::Ok);
    let report = with(Some("openrm-l4t\n"), "nvidia 1 0 - Live 0x0\n");
    assert!(words(&report, "boot service").contains("Thor") && report.has_errors(), "{report}");
    for report in [with(Some("nvgpu-l4t"), ""), with(None, "snd_nvgpu 1 0 - Live 0x0\n")] {
        assert!(
            words(&report, "boot service").contains("nv-load-display-modules") && report.has_errors(),
            "{report}"
        );
    }
    // Before, there is one driver.
    assert_eq!(diagnose(Config::default(), &Machine::orin()).about("boot service"), None);
}

#[test]
fn containers_get_the_command_line_that_passes_the_gpu_in() {
    let mut machine = Machine::orin();
    for path in ["/dev/nvmap", "/dev/nvgpu/igpu0/ctrl", "/dev/host1x-fence"] {
        machine.node(path, 44, 0o660);
    }
    machine.node("/dev/kmsg", 0, 0o600);
    let report = diagnose(Config::default(), &machine);
    let command = report.about("container").unwrap().cure.clone().unwrap();
    assert_eq!(
        command,
        "docker run --rm -it --device /dev/nvmap --device /dev/nvgpu/igpu0/ctrl --device /dev/host1x-fence --device \
         /dev/kmsg --group-add 44 --cap-add SYSLOG -v /etc/nv_tegra_release:/etc/nv_tegra_release:ro IMAGE orin doctor"
    );
    assert_eq!(severity(&report, "container"), Severity::Ok);
    // Another distribution gives the nodes to other groups.
    machine.node("/dev/nvgpu/igpu0/ctrl", 107, 0o660);
    let report = diagnose(Config::default(), &machine);
    let command = words(&report, "container");
    assert!(command.contains("--group-add 44 --group-add 107"), "{command}");

    machine.node("/.dockerenv", 0, 0o755);
    let report = diagnose(Config::default(), &machine);
    assert!(words(&report, "container").contains("has the GPU's nodes"), "{report}");
    let nodes = Nodes { nvmap: Node::Absent, ..Nodes::default() };
    let report = diagnose(Config { nodes, ..Config::default() }, &machine);
    assert!(words(&report, "container").contains("on the host: docker run"), "{report}");
    assert_eq!(severity(&report, "container"), Severity::Warning);
}

#[test]
fn the_nodes_of_the_command_line_are_enough() {
    // A container has exactly the nodes of its command line; nothing else opens.
    #[derive(Debug)]
    struct Container {
        behind: Arc<dyn kernel_door::Door>,
        nodes: Vec<String>,
    }
    // SAFETY: the door behind answers, or nothing is opened.
    unsafe impl kernel_door::forward::Forward for Container {
        fn behind(&self) -> &dyn kernel_door::Door {
            &*self.behind
        }

        fn open(
            &self,
            path: &core::ffi::CStr,
            flags: kernel_door::OpenFlags,
        ) -> Result<std::os::fd::RawFd, Errno> {
            let known = self.nodes.iter().any(|node| node.as_bytes() == path.to_bytes());
            if known || path.to_bytes().starts_with(b"/sys/") {
                self.behind.open(path, flags)
            } else {
                Err(Errno::NOENT)
            }
        }
    }
    let (_orin, behind) = boot(Config::default());
    let report = examine(&behind, Some(&Machine::orin()));
    let command = report.about("container").unwrap().cure.clone().unwrap();
    let nodes =
        command.split("--device ").skip(1).filter_map(|rest| rest.split(' ').next()).map(str::to_owned);
    let door: Arc<dyn kernel_door::Door> = Arc::new(Container { behind, nodes: nodes.collect() });
    let report = examine(&door, Some(&Machine::orin()));
    assert!(!report.has_errors(), "{report}");
    assert_eq!(severity(&report, "channel"), Severity::Ok);
}
