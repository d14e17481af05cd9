//! Every table of rules, and the table of error numbers that the rules show.
//!
//! `data/kernel-errnos.json` lists which condition of which request gives which errno on the real driver. Each of its
//! rows names the rule that produces it here, or why there is none, and the releases that it holds for.

use kernel_door::Errno;
use nvgpu_sys::Release;
use serde::Deserialize;

use crate::support::rules::{Rule, check};
use crate::{
    rules_as, rules_channel, rules_ctrl, rules_host1x, rules_nvmap, rules_releases, rules_tsg, rules_work,
};

/// The releases with the interface of R36.
const R36: &[Release] = &[Release::R36_4_3, Release::R36_4_7];
/// The first release alone.
const R36_4_3: &[Release] = &[Release::R36_4_3];
/// The releases whose nvmap compares sizes with the available memory.
const SINCE_R36_4_7: &[Release] = &[Release::R36_4_7, Release::R39_2];
/// The releases with the interface of R39.
const R39: &[Release] = &[Release::R39_2];

/// One test for each table, and [`TABLES`]. A table holds for all releases, or for those after the comma.
macro_rules! tables {
    ($($name:ident = $table:path $(, $releases:path)?;)*) => {
        $(
            #[test]
            fn $name() {
                check($table, tables!(@releases $($releases)?));
            }
        )*

        /// All tables by name, with their releases.
        const TABLES: &[(&str, &[Rule], &[Release])] =
            &[$((stringify!($name), $table, tables!(@releases $($releases)?))),*];
    };
    (@releases) => { &Release::ALL };
    (@releases $releases:path) => { $releases };
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
    nvmap_cache_lists = rules_nvmap::contents::CACHE_LISTS, R36;
    nvmap_caches = rules_nvmap::contents::CACHES;
    nvmap_cpu_mappings = rules_nvmap::mappings::MAPPINGS;
    nvmap_dma_buf = rules_nvmap::contents::DMA_BUF;
    nvmap_handles = rules_nvmap::handles::HANDLES;
    nvmap_imports = rules_nvmap::mappings::IMPORTS;
    nvmap_node = rules_nvmap::NODE;
    nvmap_queries = rules_nvmap::queries::QUERIES;
    nvmap_queries_r36 = rules_nvmap::queries::R36_QUERIES, R36;
    nvmap_ranges = rules_nvmap::ranges::RANGES;
    nvmap_transfers = rules_nvmap::contents::TRANSFERS;
    nvmap_transfers_r36 = rules_nvmap::contents::R36_TRANSFERS, R36;
    of_r36 = rules_releases::OF_R36, R36;
    of_r36_4_3 = rules_releases::OF_R36_4_3, R36_4_3;
    of_r39 = rules_releases::OF_R39, R39;
    since_r36_4_7 = rules_releases::SINCE_R36_4_7, SINCE_R36_4_7;
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
    tsg_tokens_r36 = rules_tsg::R36_TOKENS, R36;
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
    /// Names of the releases that it holds for; all if absent.
    #[serde(default = "all")]
    releases: Vec<String>,
    /// `table: rule`.
    rule: Option<String>,
    /// The reason why no rule produces it.
    absent: Option<String>,
}

fn all() -> Vec<String> {
    names(&Release::ALL)
}

fn names(releases: &[Release]) -> Vec<String> {
    releases.iter().map(ToString::to_string).collect()
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
        let (_, rules, releases) = TABLES.iter().find(|(name, ..)| *name == table)?;
        rules.iter().find(|(name, ..)| *name == rule).map(|(_, answer, ..)| (answer, names(releases)))
    };
    let wrong = |row: &Row| match (&row.rule, &row.absent) {
        (Some(rule), None) => match find(rule) {
            None => Some(format!("there is no rule '{rule}'")),
            Some((answer, releases)) => (answer.err() != errno(&row.errno) || releases != row.releases)
                .then(|| format!("'{rule}' shows {answer:?} of {releases:?}, not {}", row.errno)),
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
