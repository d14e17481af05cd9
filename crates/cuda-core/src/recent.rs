//! What a thread's last launch named: most launches name the same, and need not look it up.
//!
//! Counting references is a read-modify-write too: see [`lock`](crate::lock). What a thread remembers it borrows.

use core::cell::RefCell;
use std::sync::Arc;

use crate::code::{Code, Result};
use crate::context::{Context, current_handle};
use crate::driver::driver;
use crate::module::Function;
use crate::stream::Stream;

/// What a launch needs.
#[derive(Clone, Debug)]
pub struct Target {
    /// The context of the stream.
    pub context: Arc<Context>,
    /// The stream.
    pub stream: Arc<Stream>,
    /// The kernel.
    pub function: Arc<Function>,
}

/// The handles of a launch as the program gives them: stream, function, and a number that says how to read the stream.
pub type Names = (u64, u64, u8);

/// A target, and when it is valid.
#[derive(Debug)]
struct Remembered {
    names: Names,
    /// The current context at that time.
    current: u64,
    /// [`removals`](crate::objects::Objects::removals) at that time.
    removals: u64,
    target: Target,
}

thread_local! {
    static RECENT: RefCell<Option<Remembered>> = const { RefCell::new(None) };
}

/// Calls `work` with what `names` name: that of the thread's last call, or what `find` finds.
///
/// # Errors
///
/// Those of `find`, the state of the contexts, and [`Code::Deinitialized`] at the end of the thread.
pub fn with_target<R>(
    names: Names,
    find: impl FnOnce() -> Result<Target>,
    work: impl FnOnce(&Target) -> Result<R>,
) -> Result<R> {
    let objects = &driver()?.objects;
    let (current, removals) = (current_handle()?, objects.removals());
    let fits = |recent: &Remembered| {
        recent.names == names
            && recent.current == current
            && recent.removals == removals
            && current == recent.target.context.handle
    };
    RECENT
        .try_with(|recent| {
            let mut recent = recent.borrow_mut();
            let old = match &*recent {
                Some(remembered) if fits(remembered) => {
                    remembered.target.context.check()?;
                    return work(&remembered.target);
                }
                _ => recent.take(),
            };
            // Dropped before the launch; it may free a module.
            drop(old);
            let target = find()?;
            work(&recent.insert(Remembered { names, current, removals, target }).target)
        })
        .map_err(|_| Code::Deinitialized)?
}
