#![doc = include_str!("../README.md")]
//! # Where to find what
//!
//! - The process: [`init`], [`driver`], [`Driver`], [`Gpu`], [`DEVICES`]; what version of CUDA it sees: [`version()`],
//!   [`VERSION`]; handles: [`Objects`], [`Kind`].
//! - Results: [`Code`], [`Failure`], [`Result`].
//! - Contexts: [`Context`], and each thread's stack of them in [`context`].
//! - Work: [`Stream`], [`StreamKind`], [`PRIORITIES`], [`Event`], [`Work`]: [`Launch`], [`LaunchSize`],
//!   [`Parameters`], [`MemoryCopy`], [`Side`], [`Fill`], [`HostCall`], [`Words`], [`WordStep`]; what a thread's last
//!   calls named: [`with_target`], [`Target`], [`record`], [`query_recorded`], [`Recording`], [`Names`]; graphs:
//!   [`Graph`], [`Node`], [`Executable`], [`Mismatch`], [`Attribute`], [`GraphMemory`], [`Capture`], [`Mode`],
//!   [`UserObject`], [`Users`].
//! - Memory: [`memory`], [`pool`], [`Pool`]; virtual memory: [`mapped`]; arrays and textures: [`mod@array`],
//!   [`texture`], [`reference`](mod@reference); memory and events of other processes: [`ipc`]; hints of managed memory:
//!   [`hints`].
//! - Checks: `findings`, with the feature `sim`.
//! - Code: [`image`], [`Link`], [`Module`], [`Library`], [`Function`], [`LibraryKernel`], [`function`],
//!   [`OldLaunch`], [`cluster`].

pub mod array;
mod branches;
#[cfg(feature = "sim")]
mod check;
pub mod cluster;
mod code;
pub mod context;
mod device;
mod driver;
mod event;
mod executable;
mod exports;
mod graph;
mod graph_memory;
pub mod hints;
mod ids;
pub mod image;
pub mod ipc;
mod link;
mod lock;
pub mod mapped;
pub mod memory;
mod module;
mod objects;
pub mod pool;
mod recent;
mod recording;
pub mod reference;
mod shared_event;
mod stream;
pub mod texture;
mod user_object;
mod version;
mod words;
mod work;

#[cfg(feature = "sim")]
pub use check::findings;
pub use code::{Code, Failure, Result};
pub use context::Context;
pub use driver::{DEVICES, Driver, Gpu, driver, init};
pub use event::Event;
pub use executable::Executable;
pub use graph::{Attribute, Capture, Graph, Mismatch, Mode, Node};
pub use graph_memory::GraphMemory;
pub use link::Link;
pub use module::{Function, Library, LibraryKernel, Module, OldLaunch, function};
pub use objects::{Kind, Objects};
pub use pool::Pool;
pub use recent::{Names, Recording, Target, query_recorded, record, with_target};
pub use stream::{Kind as StreamKind, PRIORITIES, Stream};
pub use user_object::{UserObject, Users};
pub use version::{VERSION, version};
pub use words::{WordStep, Words};
pub use work::{Fill, HostCall, Launch, LaunchSize, MemoryCopy, Parameters, Side, Work};
