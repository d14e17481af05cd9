//! The two ends in one process: what each makes of a peer that is slow, wrong or gone.

#[path = "../../../fuzz/src/runner.rs"]
mod runner;
#[path = "../../../fuzz/src/share.rs"]
mod share;

mod rules;
mod wrong;
