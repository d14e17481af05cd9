#![doc = include_str!("../README.md")]

pub mod board;
pub mod caller;
mod chip;
pub mod config;
pub mod gpu;
pub mod kernel;
pub mod memory;
pub mod mmu;
pub mod settings;
pub mod sm;
pub mod strict;

pub use board::{Board, PowerMode, Profile};
pub use caller::CallerMemory;
pub use config::{Call, Config, Failure, FaultPlan, MmuOrder, Node, Nodes, RandomFailures, Refusal, Stall};
pub use kernel::{LiveCounts, ProcessCounts, SoftwareOrin};
pub use settings::{RefusedRequest, Settings, SettingsError};
