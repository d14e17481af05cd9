//! Containers: the options with which `docker run` passes the GPU in.

use std::path::Path;

use super::Report;
use super::nodes::NODES;
use crate::system::System;

/// Files that container engines create in a container: Docker, Podman.
const MARKS: [&str; 2] = ["/.dockerenv", "/run/.containerenv"];
/// Group `video` on Ubuntu, in case the nodes cannot be inspected.
const VIDEO: u32 = 44;

/// The command line that runs the doctor in a container with what it needs of this machine. Groups are numbers, because
/// an image may name them differently.
fn command(system: &dyn System) -> String {
    let mut command = "docker run --rm -it".to_owned();
    let mut groups = Vec::new();
    for node in &NODES {
        let path = node.path.to_string_lossy();
        command.push_str(&format!(" --device {path}"));
        if node.path == nvgpu_sys::paths::KMSG {
            continue;
        }
        let group = system.permissions(Path::new(&*path)).map_or(VIDEO, |permissions| permissions.group);
        if group != 0 && !groups.contains(&group) {
            groups.push(group);
        }
    }
    groups.iter().for_each(|group| command.push_str(&format!(" --group-add {group}")));
    // The kernel log needs the capability besides its node.
    command.push_str(" --cap-add SYSLOG -v /etc/nv_tegra_release:/etc/nv_tegra_release:ro IMAGE orin doctor");
    command
}

/// Reports whether this is a container, and how to start one. `reachable` is whether the required nodes opened.
pub(super) fn examine(report: &mut Report, system: &dyn System, reachable: bool) {
    let inside = MARKS.iter().any(|path| system.permissions(Path::new(path)).is_ok());
    let command = command(system);
    match (inside, reachable) {
        (true, false) => {
            report.warning(
                "container",
                "this is a container without all of the GPU's nodes",
                format!("on the host: {command}"),
            );
        }
        (true, true) => report.ok("container", "this is a container, and it has the GPU's nodes"),
        (false, _) => {
            let text = "none; to use the GPU in one, pass in nodes and groups".to_owned();
            report.push(super::Severity::Ok, "container", text, Some(command));
        }
    }
}
