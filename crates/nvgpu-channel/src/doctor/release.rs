//! Releases of L4T and JetPack: what is known about each, and which driver a board's boot service picked.

use std::path::Path;

use super::Report;
use crate::system::System;

/// A release, as `/etc/nv_tegra_release` names it: `# R36 (release), REVISION: 4.3, GCID: ...`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Release {
    major: u32,
    minor: u32,
    patch: u32,
}

impl Release {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.lines().next()?.trim_start_matches('#').split(',');
        let major = parts.next()?.split_whitespace().next()?.strip_prefix('R')?.parse().ok()?;
        let revision = parts.find_map(|part| part.trim().strip_prefix("REVISION:"))?.trim();
        let (minor, patch) = revision.split_once('.').unwrap_or((revision, "0"));
        Some(Self { major, minor: minor.parse().ok()?, patch: patch.parse().ok()? })
    }
}

/// What is known about the releases from one on, up to the next row.
struct Row {
    from: Release,
    /// The JetPack that contains them.
    jetpack: &'static str,
    /// Version of their kernel.
    kernel: &'static str,
    /// What of them was compared with this crate.
    checked: &'static str,
    /// Whether the driver interface is one that this crate knows.
    supported: bool,
}

const fn row(
    (major, minor, patch): (u32, u32, u32),
    jetpack: &'static str,
    kernel: &'static str,
    checked: &'static str,
    supported: bool,
) -> Row {
    Row { from: Release { major, minor, patch }, jetpack, kernel, checked, supported }
}

/// What holds for the releases between two of which headers were read.
const BETWEEN: &str = "its headers lie between two releases that are equal; never run";
/// What holds for the releases after R36.4.3 up to R36.5.
const LATE_36: &str =
    "no header was read, but nvgpu.h of R36.5 has the requests and structs of R36.4.3; never run";

/// The releases in ascending order. The names of JetPacks are those of NVIDIA's archive of Jetson Linux.
const ROWS: [Row; 13] = [
    row((0, 0, 0), "JetPack 4 or older", "4", "it does not know the Orin", false),
    row((34, 0, 0), "JetPack 5.0 preview", "5.10", "never compared, never run", false),
    row(
        (35, 0, 0),
        "JetPack 5",
        "5.10",
        "never compared, never run; `cargo xtask check-headers` compares its headers",
        false,
    ),
    row((36, 0, 0), "JetPack 6.0 preview", "5.15", "its headers equal those of R36.4.3; never run", true),
    row((36, 3, 0), "JetPack 6.0", "5.15", BETWEEN, true),
    row((36, 4, 0), "JetPack 6.1", "5.15", BETWEEN, true),
    row(
        (36, 4, 3),
        "JetPack 6.2",
        "5.15",
        "requests, kernel model and error numbers are those of R36.4.3's sources; never run by this library",
        true,
    ),
    row((36, 4, 4), "JetPack 6.2.1", "5.15", LATE_36, true),
    row(
        (36, 4, 7),
        "JetPack 6.2.1, update",
        "5.15",
        "as R36.4.4, but nvmap refuses an allocation above the memory that is available at once; never run",
        true,
    ),
    row(
        (36, 5, 0),
        "JetPack 6.2.2",
        "5.15",
        "a published copy of its nvgpu.h has the requests and structs of R36.4.3; never run",
        true,
    ),
    row(
        (38, 0, 0),
        "JetPack 7.0 or 7.1",
        "6.8",
        "it is for Jetson Thor and does not support the Orin",
        false,
    ),
    row(
        (39, 0, 0),
        "JetPack 7.2",
        "6.8",
        "characteristics and allocations have another form, known from published headers of its time; never run",
        true,
    ),
    row((40, 0, 0), "JetPack 8 or later", "6.8", "never compared, never run", false),
];

/// Remedy for a release with another driver interface.
const CURE: &str = "the known driver interfaces are those of L4T r36 and r39: install JetPack 6 or 7.2; if you cannot, \
                    run `orin bring-up` and report what you see";

/// Checks the releases of L4T and the kernel.
pub(super) fn examine(report: &mut Report, system: &dyn System) {
    let kernel = system.read(Path::new("/proc/sys/kernel/osrelease")).unwrap_or_default();
    let kernel = match kernel.trim() {
        "" => "unknown",
        kernel => kernel,
    };
    let text = system.read(Path::new("/etc/nv_tegra_release")).unwrap_or_default();
    let Some(release) = Release::parse(&text) else {
        report.warning("driver", format!("L4T release unknown, kernel {kernel}"), CURE);
        return;
    };
    let Release { major, minor, patch } = release;
    // PANIC: the first row begins at 0.
    let row = ROWS.iter().rev().find(|row| row.from <= release).expect("every release has a row");
    let usual = kernel.strip_prefix(row.kernel).is_some_and(|rest| rest.starts_with(['.', '-']));
    let note = if usual { String::new() } else { format!(", not the release's {}", row.kernel) };
    let text =
        format!("L4T R{major}.{minor}.{patch}, kernel {kernel}{note} ({}): {}", row.jetpack, row.checked);
    if row.supported {
        report.ok("driver", text);
    } else {
        report.warning("driver", text, CURE);
    }
    if major >= 39 {
        boot_service(report, system);
    }
}

/// The name of nvgpu's variant in the boot service's choice.
const NVGPU: &str = "nvgpu-l4t";
/// The name of the variant of NVIDIA's open kernel modules.
const OPEN_RM: &str = "openrm-l4t";

/// Checks which driver the service nv-load-display-modules picked.
///
/// Since R39, one root file system can contain both drivers. The service loads the one of the chip and stores its
/// choice in a file of `/run` whose name begins with `nvidia-gp` (NVIDIA's developer guide r39.2, page
/// "nv-load-display-modules Service").
fn boot_service(report: &mut Report, system: &dyn System) {
    const SUBJECT: &str = "boot service";
    let folder = Path::new("/run");
    let names = system.list(folder).unwrap_or_default();
    let choices = names.iter().filter(|name| name.starts_with("nvidia-gp"));
    let texts: Vec<_> = choices.filter_map(|name| system.read(&folder.join(name)).ok()).collect();
    let picked = |variant: &str| texts.iter().any(|text| text.contains(variant));
    let modules = system.read(Path::new("/proc/modules")).unwrap_or_default();
    let loaded = modules.lines().any(|line| line.split_whitespace().next() == Some("nvgpu"));
    let service = "check `systemctl status nv-load-display-modules`; it loads nvgpu on an Orin";
    match (picked(NVGPU), picked(OPEN_RM), loaded) {
        (true, _, true) => report.ok(SUBJECT, format!("picked {NVGPU}; the module nvgpu is loaded")),
        (true, _, false) => {
            report.error(SUBJECT, format!("picked {NVGPU}, but the module nvgpu is not loaded"), service);
        }
        (false, true, _) => {
            let text =
                format!("picked {OPEN_RM}, the driver of Jetson Thor, which does not drive the Orin's GPU");
            report.error(SUBJECT, text, service);
        }
        (false, false, true) => report.ok(SUBJECT, "its choice is not stored; the module nvgpu is loaded"),
        (false, false, false) => {
            report.error(SUBJECT, "its choice is not stored, and the module nvgpu is not loaded", service);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_parsed_and_ordered() {
        let parse =
            |text: &str| Release::parse(text).map(|release| (release.major, release.minor, release.patch));
        assert_eq!(parse("# R36 (release), REVISION: 4.3, GCID: 1, BOARD: generic\n"), Some((36, 4, 3)));
        assert_eq!(parse("# R36 (release), REVISION: 3.0, GCID: 1"), Some((36, 3, 0)));
        assert_eq!(parse("# R38 (release), REVISION: 2, GCID: 1"), Some((38, 2, 0)));
        for text in
            ["", "# R36", "# R36 (release), GCID: 1", "# Rx (release), REVISION: 1.0", "36, REVISION: 1.0"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
        assert!(ROWS.windows(2).all(|pair| pair[0].from < pair[1].from));
    }
}
