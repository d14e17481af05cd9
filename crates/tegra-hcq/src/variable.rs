//! Variables of a program: `__device__` and `__constant__`, by name.
//!
//! They lie in the program's image, behind its code. A `__device__` variable is ordinary global memory, to which
//! code comes through an address in constant bank 4 or in its instructions. A `__constant__` variable is a part
//! of constant bank 3, which SMs read through a cache of their own; each launch invalidates what the cache has
//! of the kernel's banks, so that a launch sees what was written before it.

use core::fmt;
use core::marker::PhantomData;
use std::sync::{Arc, PoisonError};

use gpu_hal::volatile;

use crate::error::{RangeError, Result};
use crate::limits::DEFAULT_TIMEOUT;
use crate::memory::Pod;
use crate::program::Program;
use crate::program::code::ProgramCode;

/// A variable of a program as `len` elements of `T`. Keeps the program loaded.
///
/// The program's kernels share it, on whatever queue they run: a launch made on another thread while
/// [`Variable::set`] writes may see some elements old and some new.
pub struct Variable<T: Pod> {
    program: Arc<ProgramCode>,
    /// Offset in the image, in bytes.
    offset: usize,
    len: usize,
    constant: bool,
    _elements: PhantomData<T>,
}

impl Program {
    /// Names of the `__device__` and `__constant__` variables, sorted. Those in C++ namespaces, and static
    /// ones inside functions, have mangled names.
    pub fn variable_names(&self) -> impl Iterator<Item = &str> {
        self.loaded().globals.iter().map(|global| global.name.as_str())
    }

    /// The variable called `name`, as elements of `T`: one for a plain variable, more for an array or when
    /// `T` is a part of it.
    ///
    /// ```
    /// # use tegra_hcq::{Device, DeviceKind, Program};
    /// # #[cfg(feature = "sim")]
    /// # fn main() -> tegra_hcq::Result<()> {
    /// # let device = Device::open(DeviceKind::Sim)?;
    /// # let cubin = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels/globals.cubin"));
    /// let program = Program::load(&device, cubin)?;
    /// let taps = program.variable::<f32>("taps")?; // __constant__ float taps[5]
    /// assert_eq!(taps.get()?, [0.0625, 0.25, 0.375, 0.25, 0.0625]);
    /// taps.set(&[0.2; 5])?;
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sim"))] fn main() {}
    /// ```
    ///
    /// # Errors
    ///
    /// When there is none, naming those there are; [`Error::Range`](crate::Error::Range) when it does not consist of
    /// whole `T`.
    pub fn variable<T: Pod>(&self, name: &str) -> Result<Variable<T>> {
        let code = self.loaded();
        let found = code.globals.binary_search_by(|global| global.name.as_str().cmp(name));
        let Ok(index) = found else {
            let available = self.variable_names().map(str::to_owned).collect();
            return Err(cubin::Error::NoSuchVariable { name: name.to_owned(), available }.into());
        };
        let global = &code.globals[index];
        let element = size_of::<T>() as u64;
        if element == 0 || !global.bytes.is_multiple_of(element) {
            return Err(RangeError::VariableSize {
                name: name.to_owned(),
                bytes: global.bytes,
                element_bytes: element,
            }
            .into());
        }
        Ok(Variable {
            program: Arc::clone(code),
            // CAST: inside of the image, which is mapped.
            offset: global.offset as usize,
            len: (global.bytes / element) as usize,
            constant: global.space == cubin::Space::Constant,
            _elements: PhantomData,
        })
    }
}

impl<T: Pod> Variable<T> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether it is `__constant__`, which kernels cannot write.
    pub fn is_constant(&self) -> bool {
        self.constant
    }

    /// Address of the first element on the GPU.
    pub fn gpu_va(&self) -> u64 {
        self.program.memory.gpu_va() + self.offset as u64
    }

    /// Waits for the launches of the program, then returns the elements.
    ///
    /// # Errors
    ///
    /// The wait's errors: [`Error::Fault`], [`Error::Timeout`] or [`Error::NotSubmitted`].
    pub fn get(&self) -> Result<Vec<T>> {
        let mut elements = vec![T::zeroed(); self.len];
        self.wait()?;
        let _alone = self.program.variables.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the cubin's parser checked that the variable lies in the image, and `len` elements are as
        // long as the variable; the program keeps the memory; no other thread writes while the lock is held;
        // any bits are a value of a `Pod`.
        unsafe {
            let source = self.program.memory.cpu().add(self.offset);
            volatile::load(source, bytemuck::cast_slice_mut(&mut elements));
        }
        Ok(elements)
    }

    /// Waits for the launches of the program, then writes the elements. Later launches see them.
    ///
    /// # Errors
    ///
    /// [`Error::Range`](crate::Error::Range) when the lengths differ; the wait's errors, as for [`Variable::get`].
    pub fn set(&self, elements: &[T]) -> Result<()> {
        if elements.len() != self.len {
            let (given, len) = (elements.len(), self.len);
            return Err(RangeError::VariableLength { given, len }.into());
        }
        self.wait()?;
        let _alone = self.program.variables.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: as in `get`, with the roles exchanged.
        unsafe {
            let target = self.program.memory.cpu().add(self.offset);
            volatile::store(target, bytemuck::cast_slice(elements));
        }
        Ok(())
    }

    fn wait(&self) -> Result<()> {
        let memory = &self.program.memory;
        memory.heap().wait_for(memory.uses(), DEFAULT_TIMEOUT)
    }
}

impl<T: Pod> fmt::Debug for Variable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Variable")
            .field("type", &core::any::type_name::<T>())
            .field("len", &self.len)
            .field("constant", &self.constant)
            .field("gpu_va", &format_args!("{:#x}", self.gpu_va()))
            .finish()
    }
}
