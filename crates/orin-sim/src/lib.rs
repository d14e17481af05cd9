#![doc = include_str!("../README.md")]

mod chip;
pub mod config;
pub mod gpu;
pub mod kernel;
pub mod memory;
pub mod mmu;
pub mod sm;
pub mod strict;

pub use config::{Call, Config, Failure, FaultPlan, Node, Nodes, RandomFailures, Stall};
pub use kernel::{LiveCounts, ProcessCounts, SoftwareOrin};
