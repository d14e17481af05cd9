//! Handles: numbers that programs hold as opaque pointers.
//!
//! A handle is never dereferenced. It is the key of a slot map, with the generation of its slot, so a handle that was
//! invented, freed or names an object of another kind is an error. Handles are never 0, 1 or 2, which stand for default
//! streams.

use std::sync::Arc;

use parking_lot::RwLock;
use slotmap::{Key as _, KeyData, SlotMap};

use crate::code::{Code, Result};
use crate::context::Context;
use crate::event::Event;
use crate::graph::{Executable, Graph, Node};
use crate::link::Link;
use crate::module::{Function, Library, LibraryKernel, Module};
use crate::pool::Pool;
use crate::stream::Stream;

slotmap::new_key_type! { struct Key; }

/// Type of objects that a handle names.
pub trait Kind: Sized + Send + Sync + 'static {
    /// The result of a call that gets a handle of no such object.
    const UNKNOWN: Code = Code::InvalidHandle;

    #[doc(hidden)]
    fn wrap(object: Arc<Self>) -> Object;

    #[doc(hidden)]
    fn pick(object: &Object) -> Option<&Arc<Self>>;
}

macro_rules! kinds {
    ($($kind:ident $($unknown:ident)?;)*) => {
        /// An object of any kind.
        #[derive(Debug)]
        #[expect(missing_docs, reason = "the variants are the kinds")]
        pub enum Object { $($kind(Arc<$kind>),)* }

        $(impl Kind for $kind {
            $(const UNKNOWN: Code = Code::$unknown;)?

            fn wrap(object: Arc<Self>) -> Object {
                Object::$kind(object)
            }

            fn pick(object: &Object) -> Option<&Arc<Self>> {
                if let Object::$kind(object) = object { Some(object) } else { None }
            }
        })*
    };
}

kinds! {
    Context InvalidContext;
    Stream;
    Event;
    Module;
    Function;
    Library;
    LibraryKernel;
    Graph InvalidValue;
    Node InvalidValue;
    Executable InvalidValue;
    Pool InvalidValue;
    Link;
}

/// All objects of the process.
#[derive(Debug, Default)]
pub struct Objects(RwLock<SlotMap<Key, Object>>);

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
        let mut objects = self.0.write();
        let key = objects
            .try_insert_with_key(|key| make(key.data().as_ffi()).map(|object| T::wrap(Arc::new(object))))?;
        // PANIC: `wrap` and `pick` of a kind are each other's inverse.
        Ok(Arc::clone(T::pick(&objects[key]).expect("the object was inserted as this kind")))
    }

    /// The object that a handle names.
    ///
    /// # Errors
    ///
    /// [`Kind::UNKNOWN`] if it names none of this kind.
    pub fn get<T: Kind>(&self, handle: u64) -> Result<Arc<T>> {
        let objects = self.0.read();
        objects.get(key(handle)).and_then(T::pick).cloned().ok_or_else(|| T::UNKNOWN.into())
    }

    /// Whether the handle names an object of this kind.
    pub fn is<T: Kind>(&self, handle: u64) -> bool {
        self.0.read().get(key(handle)).and_then(T::pick).is_some()
    }

    /// Removes an object. Its handle names nothing from then on.
    ///
    /// # Errors
    ///
    /// As [`Objects::get`].
    pub fn remove<T: Kind>(&self, handle: u64) -> Result<Arc<T>> {
        let mut objects = self.0.write();
        let found = objects.get(key(handle)).and_then(T::pick).cloned();
        let object = found.ok_or(T::UNKNOWN)?;
        objects.remove(key(handle));
        Ok(object)
    }

    /// All objects of a kind for which `test` holds.
    pub fn all<T: Kind>(&self, test: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
        let objects = self.0.read();
        objects.values().filter_map(T::pick).filter(|object| test(object)).cloned().collect()
    }
}
