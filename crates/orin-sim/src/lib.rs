#![doc = include_str!("../README.md")]
//! # Where to find what
//!
//! - The board: [`SoftwareOrin`], [`Config`]; members of the family: [`Board`], [`PowerMode`], [`Profile`] in
//!   [`board`]; the kernel's releases: [`release`].
//! - Settings from the environment: [`Settings`], [`SettingsError`], [`RefusedRequest`] in [`settings`] and [`config`].
//! - Disturbances: [`Failure`], [`Call`], [`RandomFailures`], [`FaultPlan`], [`Stall`], [`Refusal`], [`MmuOrder`],
//!   [`Node`], [`Nodes`]; encodings that do not work in [`quirks`]: [`Quirks`], [`BrokenChain`], [`ChainEffect`].
//! - Other drivers: [`ForeignFence`]; in [`camera`] a synthetic camera, [`Camera`], with [`CameraOptions`],
//!   [`FrameFormat`], [`FrameLayout`], [`FramePlane`], [`FrameFences`], [`CameraFault`], [`Frame`], [`CameraError`].
//! - What a test observes: [`LiveCounts`], [`ProcessCounts`], [`NodeKind`], [`SegmentWatcher`]; errors of
//!   kernels and drivers in [`check`], costs of kernels in [`kernel_profile`].
//! - The process that the model serves: its memory ([`CallerMemory`]), or all of it ([`Caller`], [`CallerDoor`],
//!   [`Opened`]), in [`caller`]: [`CallerFile`](caller::CallerFile), [`CallerMapping`](caller::CallerMapping),
//!   [`parse_mapping`](caller::parse_mapping).
//! - Unmodified programs on the model: `serve`, with the feature `serve`.
//! - The kernel model: [`kernel`]. The GPU without it: engines and channels in [`gpu`], address translation in [`mmu`],
//!   physical memory in [`memory`], the interpreter in [`sm`].

mod at_exit;
pub mod board;
pub mod caller;
pub mod camera;
pub mod check;
mod chip;
pub mod config;
pub mod gpu;
pub mod kernel;
pub mod kernel_profile;
pub mod memory;
pub mod mmu;
mod procfs;
pub mod quirks;
pub mod release;
mod segments;
#[cfg(feature = "serve")]
pub mod serve;
pub mod settings;
pub mod sm;

pub use board::{Board, PowerMode, Profile};
pub use caller::{Caller, CallerMemory};
pub use camera::{
    Camera, CameraError, CameraFault, CameraOptions, Frame, FrameFences, FrameFormat, FrameLayout, FramePlane,
};
pub use config::{Call, Config, Failure, FaultPlan, MmuOrder, Node, Nodes, RandomFailures, Refusal, Stall};
pub use kernel::{CallerDoor, ForeignFence, LiveCounts, NodeKind, Opened, ProcessCounts, SoftwareOrin};
pub use quirks::{BrokenChain, ChainEffect, Quirks};
pub use segments::SegmentWatcher;
pub use settings::{RefusedRequest, Settings, SettingsError};
