//! The kernel model through its public door: allowed calls, refusals with their errno, and the kernel log. Tests of
//! process-wide resources, or that need their own process, are separate test targets.

mod bringup;
mod camera;
mod disturbances;
mod foreign;
mod lifetime;
mod log;
mod processes;
mod reference;
mod requests;
mod rules;
mod rules_as;
mod rules_channel;
mod rules_ctrl;
mod rules_host1x;
mod rules_nvmap;
mod rules_recovery;
mod rules_releases;
mod rules_tsg;
mod rules_work;
mod served;
mod support;
mod sync_files;
mod syncpoints;
mod work;
