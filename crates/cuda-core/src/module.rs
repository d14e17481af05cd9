//! Modules, libraries and their functions.
//!
//! A module belongs to a context. A library is an image that each context loads when it asks for its module; its
//! kernels stand for the function of whatever context is current.

use core::sync::atomic::{AtomicU32, Ordering};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tegra_hcq::{Attributes, Kernel, Program};

use crate::cluster::Clusters;
use crate::code::{Code, Failure, Result};
use crate::context::Context;
use crate::driver::driver;
use crate::objects::Kind;
use crate::reference::Reference;

/// Bytes of dynamic shared memory that a launch may have without `cuFuncSetAttribute`, static memory included.
const USUAL_SHARED: u32 = 48 << 10;

/// A loaded module.
#[derive(Debug)]
pub struct Module {
    handle: u64,
    context: u64,
    /// The program.
    pub program: Program,
    functions: Mutex<BTreeMap<String, Arc<Function>>>,
    /// Texture and surface references, by name.
    references: BTreeMap<String, Arc<Reference>>,
}

/// What the program has set of a function for launches as before CUDA 4.
#[derive(Clone, Debug, Default)]
pub struct OldLaunch {
    /// Threads of a block; none at first.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block in bytes.
    pub shared_bytes: u32,
    /// The parameter block, as far as it was set.
    pub parameters: Vec<u8>,
}

/// A kernel of a module.
#[derive(Debug)]
pub struct Function {
    handle: u64,
    /// Handle of its module.
    pub module: u64,
    /// Handle of its context.
    pub context: u64,
    /// The kernel.
    pub kernel: Kernel,
    /// What it uses.
    pub attributes: Attributes,
    /// Offset and size of each parameter in the parameter block, in bytes.
    pub parameters: Vec<(usize, usize)>,
    /// Size of the parameter block in bytes.
    pub parameter_bytes: usize,
    max_dynamic_shared: AtomicU32,
    carveout: AtomicU32,
    /// Its clusters.
    pub clusters: Clusters,
    /// Offsets of its texture and surface references in the parameter block.
    pub(crate) references: Vec<(usize, Arc<Reference>)>,
    /// For launches as before CUDA 4.
    pub old_launch: Mutex<OldLaunch>,
    /// Its name, with a zero byte at the end for C.
    pub c_name: std::ffi::CString,
}

impl Kind for Module {}

impl Module {
    /// Loads a cubin.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidImage`], [`Code::NoBinaryForGpu`], [`Code::OutOfMemory`] and others, with the loader's reason.
    pub fn load(context: &Context, cubin: &[u8]) -> Result<Arc<Self>> {
        let program = Program::load(&context.device, cubin)?;
        context.gpu.memory.enter_variables(context.handle, &program)?;
        let mut references = BTreeMap::new();
        for (name, surface) in program.reference_names() {
            if !references.contains_key(name) {
                let reference = Reference::create(context.gpu, context.owner()?, surface, true)?;
                references.insert(name.to_owned(), reference);
            }
        }
        driver()?.objects.insert(|handle| {
            Ok(Self { handle, context: context.handle, program, functions: Mutex::default(), references })
        })
    }

    /// Its handle.
    pub fn handle(&self) -> u64 {
        self.handle
    }

    /// Handle of its context.
    pub fn context(&self) -> u64 {
        self.context
    }

    /// The function with a name.
    ///
    /// # Errors
    ///
    /// [`Code::NotFound`] if there is none, [`Code::NotSupported`] if it uses textures.
    pub fn function(&self, name: &str) -> Result<Arc<Function>> {
        let mut functions = self.functions.lock();
        if let Some(function) = functions.get(name) {
            return Ok(Arc::clone(function));
        }
        let kernel = self.program.kernel(name)?;
        let function = driver()?.objects.insert(|handle| Function::of(handle, self, kernel))?;
        functions.insert(name.to_owned(), Arc::clone(&function));
        Ok(function)
    }

    /// Address and size in bytes of a variable.
    ///
    /// # Errors
    ///
    /// [`Code::NotFound`] if there is none.
    pub fn variable(&self, name: &str) -> Result<(u64, usize)> {
        let variable = self.program.variable::<u8>(name)?;
        Ok((variable.gpu_va(), variable.len()))
    }

    /// As [`Module::variable`], for a variable that the host uses by its address.
    ///
    /// # Errors
    ///
    /// [`Code::NotFound`] if there is none.
    pub fn managed(&self, name: &str) -> Result<(u64, usize)> {
        let variable = self.program.variable::<u8>(name)?;
        if !variable.is_managed() {
            return Err(Failure::new(Code::NotFound, format!("{name} is not managed")));
        }
        Ok((variable.gpu_va(), variable.len()))
    }

    /// The texture or surface reference with a name.
    ///
    /// # Errors
    ///
    /// [`Code::NotFound`] if there is none.
    pub fn reference(&self, name: &str, surface: bool) -> Result<Arc<Reference>> {
        let found = self.references.get(name).filter(|reference| reference.surface == surface);
        found.cloned().ok_or_else(|| Failure::new(Code::NotFound, format!("no reference {name}")))
    }

    /// Unloads the module.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidHandle`] if it was unloaded already; the fault of the context's work.
    pub fn unload(&self, context: &Context) -> Result<()> {
        let objects = &driver()?.objects;
        objects.remove::<Self>(self.handle)?;
        for function in self.functions.lock().values() {
            objects.remove::<Function>(function.handle)?;
        }
        for reference in self.references.values() {
            reference.change(|state| state.bound = None)?;
            objects.remove::<Reference>(reference.handle())?;
        }
        context.gpu.memory.leave_variables(&self.program);
        Ok(())
    }
}

impl Kind for Function {
    const REMEMBERED: bool = true;
}

impl Function {
    fn of(handle: u64, module: &Module, kernel: Kernel) -> Result<Self> {
        let attributes = kernel.attributes();
        let parameters: Vec<_> = kernel.parameter_offsets().zip(kernel.parameter_sizes()).collect();
        let references =
            kernel.references().map(|(name, offset, surface)| Ok((offset, module.reference(name, surface)?)));
        let references = references.collect::<Result<_>>()?;
        let c_name = std::ffi::CString::new(kernel.name()).map_err(|_| Code::InvalidImage)?;
        Ok(Self {
            handle,
            module: module.handle,
            context: module.context,
            attributes,
            parameter_bytes: kernel.parameter_bytes(),
            parameters,
            max_dynamic_shared: AtomicU32::new(USUAL_SHARED.saturating_sub(attributes.static_shared_bytes)),
            carveout: AtomicU32::new(u32::MAX),
            clusters: Clusters::of(&kernel),
            kernel,
            references,
            old_launch: Mutex::default(),
            c_name,
        })
    }

    /// Its handle.
    pub fn handle(&self) -> u64 {
        self.handle
    }

    /// Most bytes of dynamic shared memory that a launch may have.
    pub fn max_dynamic_shared(&self) -> u32 {
        self.max_dynamic_shared.load(Ordering::Relaxed)
    }

    /// Sets the most bytes of dynamic shared memory.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if a block cannot have as many.
    pub fn set_max_dynamic_shared(&self, bytes: i32) -> Result<()> {
        let most = self.attributes.max_dynamic_shared_bytes;
        let bytes = u32::try_from(bytes).ok().filter(|bytes| *bytes <= most).ok_or_else(|| {
            Failure::invalid(format!("{bytes} bytes of dynamic shared memory; a block has up to {most}"))
        })?;
        self.max_dynamic_shared.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// The part of shared memory that the program prefers, in per cent; `u32::MAX` by default. It is a hint, and the
    /// driver chooses by the launches.
    pub fn carveout(&self) -> u32 {
        self.carveout.load(Ordering::Relaxed)
    }

    /// Sets [`Function::carveout`].
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if it is not -1 to 100.
    pub fn set_carveout(&self, percent: i32) -> Result<()> {
        if !(-1..=100).contains(&percent) {
            return Err(Failure::invalid(format!("a carveout of {percent} per cent")));
        }
        self.carveout.store(percent.cast_unsigned(), Ordering::Relaxed);
        Ok(())
    }
}

/// A library: an image that contexts load on demand.
#[derive(Debug)]
pub struct Library {
    handle: u64,
    cubin: Vec<u8>,
    /// The module of each context that has asked for one.
    modules: Mutex<HashMap<u64, Arc<Module>>>,
    kernels: Mutex<BTreeMap<String, Arc<LibraryKernel>>>,
    names: Vec<String>,
}

/// A kernel of a library (`CUkernel`).
#[derive(Debug)]
pub struct LibraryKernel {
    handle: u64,
    library: Weak<Library>,
    name: String,
}

impl Kind for Library {}

impl Library {
    /// Keeps a cubin.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidImage`] if it is none.
    pub fn load(cubin: Vec<u8>) -> Result<Arc<Self>> {
        let parsed = cubin::Cubin::parse(&cubin).map_err(tegra_hcq::Error::from)?;
        let names = parsed.kernels().iter().map(|kernel| kernel.name.clone()).collect();
        driver()?.objects.insert(|handle| {
            Ok(Self { handle, cubin, modules: Mutex::default(), kernels: Mutex::default(), names })
        })
    }

    /// Its handle.
    pub fn handle(&self) -> u64 {
        self.handle
    }

    /// Names of its kernels.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The module of a context.
    ///
    /// # Errors
    ///
    /// As [`Module::load`].
    pub fn module(&self, context: &Context) -> Result<Arc<Module>> {
        let mut modules = self.modules.lock();
        if let Some(module) = modules.get(&context.handle) {
            return Ok(Arc::clone(module));
        }
        let module = Module::load(context, &self.cubin)?;
        modules.insert(context.handle, Arc::clone(&module));
        Ok(module)
    }

    /// The kernel with a name.
    ///
    /// # Errors
    ///
    /// [`Code::NotFound`] if there is none.
    pub fn kernel(self: &Arc<Self>, name: &str) -> Result<Arc<LibraryKernel>> {
        if !self.names.iter().any(|known| known == name) {
            let names = self.names.join(", ");
            return Err(Failure::new(Code::NotFound, format!("no kernel {name}; the library has {names}")));
        }
        let mut kernels = self.kernels.lock();
        if let Some(kernel) = kernels.get(name) {
            return Ok(Arc::clone(kernel));
        }
        let (library, owned) = (Arc::downgrade(self), name.to_owned());
        let kernel = driver()?.objects.insert(|handle| Ok(LibraryKernel { handle, library, name: owned }))?;
        kernels.insert(name.to_owned(), Arc::clone(&kernel));
        Ok(kernel)
    }

    /// Drops the module of a context that ends.
    pub(crate) fn forget(&self, context: u64) {
        let module = self.modules.lock().remove(&context);
        drop(module);
    }

    /// Removes the library and what was loaded of it.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidHandle`] if it was removed already.
    pub fn unload(&self) -> Result<()> {
        let driver = driver()?;
        driver.objects.remove::<Self>(self.handle)?;
        for kernel in self.kernels.lock().values() {
            driver.objects.remove::<LibraryKernel>(kernel.handle)?;
        }
        let modules = core::mem::take(&mut *self.modules.lock());
        for module in modules.into_values() {
            // A context that has ended has unloaded it.
            if let Ok(context) = driver.objects.get::<Context>(module.context) {
                // The code may be running; a fault stays with its context.
                let _ = context.settle();
                let _ = module.unload(&context);
            }
        }
        Ok(())
    }
}

impl Kind for LibraryKernel {
    const REMEMBERED: bool = true;
}

impl LibraryKernel {
    /// Its handle.
    pub fn handle(&self) -> u64 {
        self.handle
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its library.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidHandle`] if the library was unloaded.
    pub fn library(&self) -> Result<Arc<Library>> {
        self.library.upgrade().ok_or_else(|| Code::InvalidHandle.into())
    }

    /// The function in a context.
    ///
    /// # Errors
    ///
    /// As [`Library::module`].
    pub fn function(&self, context: &Context) -> Result<Arc<Function>> {
        self.library()?.module(context)?.function(&self.name)
    }
}

/// The function that a handle of a function or of a library's kernel names.
///
/// # Errors
///
/// [`Code::InvalidHandle`] if it names neither, or a function of another context.
pub fn function(context: &Context, handle: u64) -> Result<Arc<Function>> {
    let objects = &driver()?.objects;
    match objects.get::<Function>(handle) {
        Ok(function) if function.context == context.handle => Ok(function),
        Ok(_) => Err(Failure::new(Code::InvalidHandle, "the function belongs to another context")),
        Err(_) => objects.get::<LibraryKernel>(handle)?.function(context),
    }
}
