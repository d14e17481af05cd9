//! Texture and surface references: what a kernel names at compile time, and the program binds before launches.

use std::sync::Arc;

use parking_lot::Mutex;
use tegra_hcq::Device;

use crate::array::{Array, Element, Mipmapped, Owner};
use crate::code::{Failure, Result};
use crate::driver::{Gpu, driver};
use crate::objects::Kind;
use crate::texture::{Lookup, Resource};

/// What is bound to a reference.
#[derive(Clone, Debug)]
pub enum Bound {
    /// An array.
    Array(Arc<Array>),
    /// An array with levels.
    Mipmapped(Arc<Mipmapped>),
    /// Bytes of memory at an address.
    Linear(u64, usize),
    /// Memory in lines: the address, texels of a line, lines, bytes from one line to the next.
    Pitch(u64, [usize; 3]),
}

/// How a reference is looked up.
#[derive(Clone, Debug)]
pub struct State {
    /// Texels of memory.
    pub element: Element,
    /// Addressing, filters, flags.
    pub lookup: Lookup,
    /// What is bound.
    pub bound: Option<Bound>,
    /// The texture or surface object of it, once a launch has needed it.
    made: Option<u64>,
}

/// A reference (`CUtexref`, `CUsurfref`).
#[derive(Debug)]
pub struct Reference {
    handle: u64,
    context: u64,
    device: Device,
    gpu: &'static Gpu,
    /// Whether it is one of a surface.
    pub surface: bool,
    /// Whether it belongs to a module, with which it ends.
    pub of_module: bool,
    state: Mutex<State>,
}

impl Kind for Reference {}

impl Reference {
    /// Creates one to which nothing is bound.
    ///
    /// # Errors
    ///
    /// [`Code::NotInitialized`](crate::Code::NotInitialized).
    pub fn create(gpu: &'static Gpu, owner: Owner<'_>, surface: bool, of_module: bool) -> Result<Arc<Self>> {
        let (context, device) = (owner.context, owner.device.clone());
        let lookup = Lookup { addressing: [1; 3], ..Lookup::default() };
        // CU_AD_FORMAT_FLOAT.
        let element = Element { format: 0x20, channels: 1 };
        let state = Mutex::new(State { element, lookup, bound: None, made: None });
        driver()?.objects.insert_for(context, |handle| {
            Ok(Self { handle, context, device, gpu, surface, of_module, state })
        })
    }

    /// Its handle.
    pub fn handle(&self) -> u64 {
        self.handle
    }

    /// What it is now.
    pub fn state(&self) -> State {
        self.state.lock().clone()
    }

    /// Changes it for later launches.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidHandle`](crate::Code::InvalidHandle) if its texture object is gone.
    pub fn change(&self, change: impl FnOnce(&mut State)) -> Result<()> {
        let mut state = self.state.lock();
        change(&mut state);
        // Work that was launched keeps what it uses.
        state.made.take().map_or(Ok(()), |made| self.gpu.textures.destroy(made, self.surface))
    }

    /// Where its textures are created.
    fn owner(&self) -> Result<Owner<'_>> {
        Ok(Owner { device: &self.device, context: self.context, objects: &driver()?.objects })
    }

    /// The number that a kernel gets.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`](crate::Code::InvalidValue) if nothing is bound, or nothing that fits.
    pub(crate) fn number(&self) -> Result<u64> {
        let mut state = self.state.lock();
        if let Some(made) = state.made {
            return Ok(made);
        }
        let (textures, owner, element) = (&self.gpu.textures, self.owner()?, state.element);
        let resource = match state.bound.clone() {
            None => return Err(Failure::invalid("nothing is bound to a texture or surface reference")),
            Some(Bound::Array(array)) => Resource::Array(array),
            Some(Bound::Mipmapped(array)) => Resource::Mipmapped(array),
            Some(Bound::Linear(address, bytes)) => Resource::Linear { address, element, bytes },
            Some(Bound::Pitch(address, [width, height, pitch])) => {
                Resource::Pitch { address, element, width, height, pitch }
            }
        };
        let made = match resource {
            Resource::Array(array) if self.surface => textures.create_surface(owner, array)?,
            resource => textures.create(owner, resource, state.lookup, None)?,
        };
        state.made = Some(made);
        Ok(made)
    }
}
