//! `cuLink*`: several images become one cubin.

use std::sync::Arc;

use parking_lot::Mutex;
use tegra_hcq::{Compiled, JitOptions, LinkInput};

use crate::code::Result;
use crate::context::Context;
use crate::image;

/// A link in progress.
#[derive(Debug)]
pub struct Link {
    options: JitOptions,
    /// Name and content of each input.
    inputs: Mutex<Vec<(String, Vec<u8>)>>,
    /// The result, which the program reads until the link is destroyed.
    cubin: Mutex<Arc<[u8]>>,
}

impl Link {
    /// Begins a link.
    pub fn new(options: JitOptions) -> Self {
        Self { options, inputs: Mutex::default(), cubin: Mutex::new(Arc::default()) }
    }

    /// Adds an input.
    pub fn add(&self, name: String, data: Vec<u8>) {
        self.inputs.lock().push((name, data));
    }

    /// Links; the cubin lives as long as the link, or until the next call.
    ///
    /// # Errors
    ///
    /// As [`image::link`].
    pub fn complete(&self, context: &Context) -> Result<(Arc<[u8]>, Compiled)> {
        // Without the lock: the compiler calls back into the driver API.
        let inputs = self.inputs.lock().clone();
        let inputs: Vec<_> = inputs.iter().map(|(name, data)| LinkInput { name, data }).collect();
        let compiled = image::link(context, &inputs, &self.options)?;
        let cubin: Arc<[u8]> = compiled.cubin.as_slice().into();
        *self.cubin.lock() = Arc::clone(&cubin);
        Ok((cubin, compiled))
    }
}
