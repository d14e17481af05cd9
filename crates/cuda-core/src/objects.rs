//! Handles: numbers that programs hold as opaque pointers.
//!
//! A handle is never dereferenced. It is the key of a slot map, with the generation of its slot, so a handle that was
//! invented, freed or names an object of another kind is an error. Handles are never 0, 1 or 2, which stand for default
//! streams.

use core::any::Any;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use parking_lot::RwLock;
use slotmap::{Key as _, KeyData, SlotMap};

use crate::code::{Code, Failure, Result};

slotmap::new_key_type! { struct Key; }

/// Type of objects that a handle names.
pub trait Kind: Any + Send + Sync {
    /// The result of a call that gets a handle of no such object.
    const UNKNOWN: Code = Code::InvalidHandle;
    /// Whether threads remember objects of this kind: see [`with_target`](crate::with_target).
    const REMEMBERED: bool = false;
}

/// An object of any kind.
#[derive(Clone, Debug)]
struct Object {
    object: Arc<dyn Any + Send + Sync>,
    /// Handle of the context whose end removes it; 0 for none.
    context: u64,
}

impl Object {
    fn downcast<T: Kind>(self) -> Option<Arc<T>> {
        self.object.downcast().ok()
    }
}

/// All objects of the process.
#[derive(Debug, Default)]
pub struct Objects {
    all: RwLock<SlotMap<Key, Object>>,
    /// How many objects that threads may remember were removed.
    removals: AtomicU64,
}

fn key(handle: u64) -> Key {
    KeyData::from_ffi(handle).into()
}

impl Objects {
    /// Stores what `make` creates, which is told its handle.
    ///
    /// # Errors
    ///
    /// The error of `make`.
    pub fn insert<T: Kind>(&self, make: impl FnOnce(u64) -> Result<T>) -> Result<Arc<T>> {
        self.insert_for(0, make)
    }

    /// As [`Objects::insert`], for an object that [`Objects::remove_of`] removes with its context.
    ///
    /// # Errors
    ///
    /// The error of `make`.
    pub(crate) fn insert_for<T: Kind>(
        &self,
        context: u64,
        make: impl FnOnce(u64) -> Result<T>,
    ) -> Result<Arc<T>> {
        let mut made = None;
        self.all.write().try_insert_with_key(|key| {
            let object = Arc::new(make(key.data().as_ffi())?);
            made = Some(Arc::clone(&object));
            Ok::<Object, Failure>(Object { object, context })
        })?;
        // PANIC: `try_insert_with_key` has called the closure, which returns `Ok` only after it has set `made`.
        Ok(made.expect("the object was made"))
    }

    /// The object that a handle names.
    ///
    /// # Errors
    ///
    /// [`Kind::UNKNOWN`] if it names none of this kind.
    pub fn get<T: Kind>(&self, handle: u64) -> Result<Arc<T>> {
        let object = self.all.read().get(key(handle)).cloned();
        object.and_then(Object::downcast).ok_or_else(|| T::UNKNOWN.into())
    }

    /// Removes an object. Its handle names nothing from then on.
    ///
    /// # Errors
    ///
    /// As [`Objects::get`].
    pub fn remove<T: Kind>(&self, handle: u64) -> Result<Arc<T>> {
        let mut objects = self.all.write();
        let found = objects.get(key(handle)).cloned().and_then(Object::downcast);
        let object = found.ok_or(T::UNKNOWN)?;
        objects.remove(key(handle));
        if T::REMEMBERED {
            self.removals.fetch_add(1, Ordering::Release);
        }
        Ok(object)
    }

    /// Removes the objects that belong to a context.
    pub(crate) fn remove_of(&self, context: u64) {
        let mut objects = self.all.write();
        let keys: Vec<Key> =
            objects.iter().filter(|(_, own)| own.context == context).map(|(key, _)| key).collect();
        let removed: Vec<Object> = keys.into_iter().filter_map(|key| objects.remove(key)).collect();
        self.removals.fetch_add(1, Ordering::Release);
        drop(objects);
        // Without the lock: objects remove others when they are dropped.
        drop(removed);
    }

    /// Grows with each removed object that threads may remember.
    pub(crate) fn removals(&self) -> u64 {
        self.removals.load(Ordering::Acquire)
    }

    /// All objects of a kind for which `test` holds.
    pub fn all<T: Kind>(&self, test: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
        let mut objects: Vec<Arc<T>> =
            self.all.read().values().cloned().filter_map(Object::downcast).collect();
        // Without the lock: the test may take locks of the objects, whose holders create objects.
        objects.retain(|object| test(object));
        objects
    }
}
