//! Every table of rules, and the table of error numbers that the rules show.
//!
//! `data/kernel-errnos.json` lists which condition of which request gives which errno on the real driver. Each of its
//! rows names the rule that produces it here, or why there is none.

use kernel_door::Errno;
use serde::Deserialize;

use crate::support::rules::{Rule, check};
use crate::{rules_as, rules_channel, rules_ctrl, rules_host1x, rules_nvmap, rules_tsg, rules_work};

/// One test for each table, and [`TABLES`].
macro_rules! tables {
    ($($name:ident = $table:path;)*) => {
        $(
            #[test]
            fn $name() {
                check($table);
            }
        )*

        /// All tables by name.
        const TABLES: &[(&str, &[Rule])] = &[$((stringify!($name), $table)),*];
    };
}

tables! {
    channel_contexts = rules_channel::contexts::CONTEXTS;
    channel_node = rules_channel::NODE;
    channel_preemption_modes = rules_channel::contexts::PREEMPTION;
    channel_setup = rules_channel::setup::SETUP;
    channel_watchdog_notifier_and_control = rules_channel::control::CONTROL;
    ctrl_buffers = rules_ctrl::BUFFERS;
    ctrl_copies_to_user = rules_ctrl::COPIES;
    ctrl_doorbell = rules_ctrl::DOORBELL;
    ctrl_node = rules_ctrl::NODE;
    ctrl_objects = rules_ctrl::OBJECTS;
    ctrl_rare_requests = rules_ctrl::RARE;
    door_descriptors = rules_ctrl::DESCRIPTORS;
    fences = rules_host1x::FENCES;
    nvmap_allocation = rules_nvmap::handles::ALLOCATION;
    nvmap_caches = rules_nvmap::contents::CACHES;
    nvmap_cpu_mappings = rules_nvmap::mappings::MAPPINGS;
    nvmap_dma_buf = rules_nvmap::contents::DMA_BUF;
    nvmap_handles = rules_nvmap::handles::HANDLES;
    nvmap_imports = rules_nvmap::mappings::IMPORTS;
    nvmap_node = rules_nvmap::NODE;
    nvmap_queries = rules_nvmap::queries::QUERIES;
    nvmap_ranges = rules_nvmap::ranges::RANGES;
    nvmap_transfers = rules_nvmap::contents::TRANSFERS;
    space_mapping = rules_as::mapping::MAPPING;
    space_modification = rules_as::mapping::MODIFICATION;
    space_node = rules_as::NODE;
    space_other_requests = rules_as::OTHERS;
    space_overlaps_and_reuse = rules_as::mapping::OVERLAPS;
    space_remap = rules_as::remap::REMAP;
    space_reservations = rules_as::reservations::RESERVATIONS;
    tsg_binding = rules_tsg::BINDING;
    tsg_control_and_events = rules_tsg::EVENTS;
    tsg_error_states_and_l2 = rules_tsg::ERROR_STATES;
    tsg_node = rules_tsg::NODE;
    tsg_scheduling = rules_tsg::SCHEDULING;
    tsg_subcontexts = rules_tsg::SUBCONTEXTS;
    tsg_tokens = rules_tsg::TOKENS;
    tsg_unbinding = rules_tsg::UNBINDING;
    work_depth_culling = rules_work::CULLING;
    work_power_references = rules_work::POWER;
    work_submission = rules_work::SUBMISSION;
    work_waiting = rules_work::WAITING;
}

#[derive(Deserialize)]
struct Row {
    ioctl: String,
    condition: String,
    errno: String,
    /// `table: rule`.
    rule: Option<String>,
    /// The reason why no rule produces it.
    absent: Option<String>,
}

fn errno(name: &str) -> Option<Errno> {
    Some(match name {
        "OK" => return None,
        "EPERM" => Errno::PERM,
        "ENOENT" => Errno::NOENT,
        "EINTR" => Errno::INTR,
        "EBADF" => Errno::BADF,
        "EAGAIN" => Errno::AGAIN,
        "ENOMEM" => Errno::NOMEM,
        "EACCES" => Errno::ACCESS,
        "EFAULT" => Errno::FAULT,
        "EBUSY" => Errno::BUSY,
        "EEXIST" => Errno::EXIST,
        "ENODEV" => Errno::NODEV,
        "EINVAL" => Errno::INVAL,
        "ENOTTY" => Errno::NOTTY,
        "ENOSPC" => Errno::NOSPC,
        "ENOSYS" => Errno::NOSYS,
        "ETIMEDOUT" => Errno::TIMEDOUT,
        other => panic!("the table has a new errno: {other}"),
    })
}

#[test]
fn every_row_is_produced_by_a_rule_or_names_why_not() {
    let rows: Vec<Row> = serde_json::from_str(include_str!("../data/kernel-errnos.json")).unwrap();
    let find = |name: &str| {
        let (table, rule) = name.split_once(": ")?;
        let (_, rules) = TABLES.iter().find(|(name, _)| *name == table)?;
        rules.iter().find(|(name, ..)| *name == rule)
    };
    let wrong = |row: &Row| match (&row.rule, &row.absent) {
        (Some(rule), None) => match find(rule) {
            None => Some(format!("there is no rule '{rule}'")),
            Some((_, answer, ..)) => (answer.err() != errno(&row.errno))
                .then(|| format!("'{rule}' shows {answer:?}, not {}", row.errno)),
        },
        (None, Some(_)) => None,
        _ => Some("neither a rule nor a reason".to_owned()),
    };
    let wrong: Vec<String> = rows
        .iter()
        .filter_map(|row| Some(format!("{}: {}: {}", row.ioctl, row.condition, wrong(row)?)))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(rows.iter().filter(|row| row.absent.is_some()).count(), 3, "rows without a rule");
}
