//! The kernel driver of the model through its public door: what is allowed, what is refused with which errno, and
//! what the kernel log says. Tests of what a whole process holds, or that need one to themselves, are beside this
//! folder.

mod bringup;
mod disturbances;
mod errnos;
mod lifetime;
mod log;
mod processes;
mod reference;
mod requests;
mod rules_as;
mod rules_channel;
mod rules_ctrl;
mod rules_host1x;
mod rules_nvmap;
mod rules_recovery;
mod rules_tsg;
mod rules_work;
mod support;
mod syncpoints;
mod work;
