//! User objects: data of the program that lives as long as the graphs that use it.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use crate::code::{Code, Failure, Result};
use crate::driver::driver;
use crate::objects::Kind;

/// The function of the program that destroys an object.
type Destroy = Arc<dyn Fn() + Send + Sync>;

/// Data of the program, with the number of references to it. The release of the last destroys it.
pub struct UserObject {
    handle: u64,
    references: AtomicU64,
    destroy: Destroy,
}

impl fmt::Debug for UserObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { handle, references, .. } = self;
        f.debug_struct("UserObject")
            .field("handle", handle)
            .field("references", references)
            .finish_non_exhaustive()
    }
}

impl Kind for UserObject {
    const UNKNOWN: Code = Code::InvalidValue;
}

impl UserObject {
    /// Creates an object with `references` references; `destroy` is called after the last was released.
    ///
    /// # Errors
    ///
    /// [`Code::NotInitialized`].
    pub fn create(references: u64, destroy: Arc<dyn Fn() + Send + Sync>) -> Result<Arc<Self>> {
        let make = |handle| Ok(Self { handle, references: AtomicU64::new(references), destroy });
        driver()?.objects.insert(make)
    }

    /// Its handle.
    pub fn handle(&self) -> u64 {
        self.handle
    }

    /// Adds references.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if another thread has just released the last one.
    pub fn retain(&self, count: u64) -> Result<()> {
        let add = |references| if references > 0 { Some(references + count) } else { None };
        let added = self.references.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
        added.map(drop).map_err(|_| Failure::invalid("the user object has no references"))
    }

    /// Removes references; the last destroys the object.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if there are fewer.
    pub fn release(&self, count: u64) -> Result<()> {
        let subtract = |references: u64| references.checked_sub(count);
        let before = self.references.fetch_update(Ordering::AcqRel, Ordering::Acquire, subtract);
        let before = before.map_err(|references| {
            Failure::invalid(format!("{count} references of a user object that has {references}"))
        })?;
        if before == count && count > 0 {
            let _ = driver()?.objects.remove::<Self>(self.handle);
            (self.destroy)();
        }
        Ok(())
    }
}

/// References that a graph holds.
#[derive(Debug)]
struct Held {
    object: Arc<UserObject>,
    count: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        // There are as many at least. In a child that is forked nothing is destroyed.
        let _ = self.object.release(self.count);
    }
}

/// The user objects of a graph.
#[derive(Debug, Default)]
pub struct Users(Vec<Held>);

impl Users {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds references, which the caller passes on.
    pub fn add(&mut self, object: Arc<UserObject>, count: u64) {
        match self.0.iter_mut().find(|held| Arc::ptr_eq(&held.object, &object)) {
            Some(held) => held.count += count,
            None => self.0.push(Held { object, count }),
        }
    }

    /// Adds a reference to each object of `others`.
    pub(crate) fn share(&mut self, others: &Self) {
        for held in &others.0 {
            // The other has references, so that one can be added.
            if held.object.retain(1).is_ok() {
                self.add(Arc::clone(&held.object), 1);
            }
        }
    }

    /// Takes references away, which the caller releases.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if the graph has fewer.
    pub fn remove(&mut self, object: &Arc<UserObject>, count: u64) -> Result<()> {
        let held = self.0.iter_mut().find(|held| Arc::ptr_eq(&held.object, object) && held.count >= count);
        let held =
            held.ok_or_else(|| Failure::invalid("the graph has fewer references of the user object"))?;
        held.count -= count;
        self.0.retain(|held| held.count > 0);
        Ok(())
    }
}
