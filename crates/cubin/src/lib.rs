#![doc = include_str!("../README.md")]
//! # Where to find what
//!
//! - Loading: [`Cubin`]; alignment and slack of its image: [`CONSTANT_ALIGN`], [`PREFETCH_SLACK_BYTES`].
//! - Functions: [`Function`]. Kernels: [`Kernel`], [`Param`], [`ConstantBank`], [`Reference`].
//! - Variables: [`Global`], [`Space`].
//! - Inspection: [`Contents`], [`Section`], [`Symbol`], [`Attribute`], [`Relocation`].
//! - Fat binaries: [`fatbin`]. Length of an image in memory: [`Extent`].
//! - Failures: [`Error`]. Files of another kind: [`FileKind`].
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod arch;
mod callgraph;
mod contents;
mod elf;
mod error;
mod extent;
pub mod fatbin;
mod file_kind;
mod frames;
mod image;
mod info;
mod kernel;
mod names;
mod parse;

use alloc::string::{String, ToString};
use alloc::vec::Vec;

pub use contents::{Attribute, Contents, Relocation, Section, Symbol};
pub use error::Error;
pub use extent::Extent;
pub use file_kind::FileKind;
pub use image::{CONSTANT_ALIGN, PREFETCH_SLACK_BYTES};
pub use kernel::{ConstantBank, Kernel, Param, Reference};

use image::Image;

/// Version of this crate.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Memory space of a module's variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// Global memory: `__device__`.
    Global,
    /// A constant bank: `__constant__`. A write by the host takes effect for launches that invalidate the constant
    /// caches after it.
    Constant,
}

/// A variable of a module, accessible to the host by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Global {
    /// Name in the symbol table (mangled for C++ names in namespaces, and for static locals).
    pub name: String,
    /// Memory space.
    pub space: Space,
    /// Offset of its first byte in the image, in bytes.
    pub offset: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Whether it is `__managed__`: the host uses it by its address as well.
    pub managed: bool,
}

/// A function in the code of a module: a kernel, or a function that kernels call.
///
/// ```
/// # let file = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/globals.cubin"));
/// let cubin = cubin::Cubin::parse(file)?;
/// let kernel = cubin.kernel("filter5")?;
/// let function = cubin.functions().iter().find(|function| function.name == "filter5").expect("the kernel");
/// assert_eq!(function.offset, kernel.code_offset);
/// # Ok::<(), cubin::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Name in the symbol table, mangled for C++.
    pub name: String,
    /// Offset of its first instruction in the image, in bytes.
    pub offset: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Registers per thread; 0 if the file has no attribute for it, as for functions in the section of a kernel.
    pub registers: u32,
    /// Its own stack frame in bytes, without those of the functions that it calls; 0 if unknown.
    pub frame_bytes: u32,
}

/// A parsed cubin: the data for loading and launching its kernels. It does not borrow the file.
#[derive(Clone, Debug)]
pub struct Cubin {
    sm: u32,
    virtual_sm: Option<u32>,
    accelerated: bool,
    kernels: Vec<Kernel>,
    functions: Vec<Function>,
    globals: Vec<Global>,
    image: Image,
}

impl Cubin {
    /// Parses a whole-program cubin (ELF type `ET_EXEC`, CUDA ABI version 7 or 8: toolkits 11 to 13).
    ///
    /// Work and memory are bounded by a small multiple of `bytes.len()`, for any input.
    ///
    /// # Errors
    ///
    /// One of the variants of [`Error`], with the table, section, symbol or attribute at fault.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        parse::parse(bytes, false)
    }

    /// Parses an object file (ET_REL) of functions, whose image other programs call: see [`Cubin::define`]. Such a
    /// function has the calling convention of CUDA's ABI. It must use no constant bank but 0.
    ///
    /// # Errors
    ///
    /// As [`Cubin::parse`]; [`Error::UnexpectedType`] for a whole program.
    pub fn parse_object(bytes: &[u8]) -> Result<Self, Error> {
        parse::parse(bytes, true)
    }

    /// Names of the functions that the code uses and the file does not define, such as `vprintf` and `malloc`, which
    /// CUDA's driver provides. The image can be made once all of them are [defined](Cubin::define).
    pub fn undefined(&self) -> impl Iterator<Item = &str> {
        self.image.undefined.iter().filter(|one| one.address.is_none()).map(|one| &*one.name)
    }

    /// Defines an undefined function: its GPU address. Another name has no effect.
    ///
    /// ```
    /// # let file = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/printf.cubin"));
    /// let mut cubin = cubin::Cubin::parse(file)?;
    /// assert_eq!(cubin.undefined().collect::<Vec<_>>(), ["vprintf"]);
    /// cubin.define("vprintf", 0x1_0000);
    /// assert!(cubin.image_at(0x20_0000).is_ok());
    /// # Ok::<(), cubin::Error>(())
    /// ```
    pub fn define(&mut self, name: &str, address: u64) {
        if let Some(one) = self.image.undefined.iter_mut().find(|one| one.name == name) {
            one.address = Some(address);
        }
    }

    /// The SM version that the code was compiled for: 87 is compute capability 8.7.
    pub fn sm(&self) -> u32 {
        self.sm
    }

    /// The version of the PTX architecture that the code was compiled from: 87 for `compute_87`. `None` for cubins of
    /// toolkit 13, where its place is unknown.
    pub fn virtual_sm(&self) -> Option<u32> {
        self.virtual_sm
    }

    /// Whether the code was compiled for the architecture-specific feature set (`sm_90a`). Such code runs on exactly
    /// that compute capability.
    pub fn is_accelerated(&self) -> bool {
        self.accelerated
    }

    /// Checks whether a GPU of SM version `gpu_sm` (87 for compute capability 8.7) can run the code.
    ///
    /// CUDA's rule of binary compatibility: code compiled for X.y runs on X.z if z >= y. Code for Tegra chips (sm_53,
    /// sm_62, sm_72, sm_87, sm_101) runs only on the chip that it was compiled for, and Tegra chips run no other code
    /// (CUDA C++ Programming Guide, "Binary Compatibility"). For sm_87 the compiler also inserts a hardware
    /// workaround at the start of each kernel, which code for sm_80 and sm_86 lacks. Architecture-specific code
    /// (`sm_90a`) runs only on its own compute capability.
    ///
    /// # Errors
    ///
    /// [`Error::WrongArchitecture`], with both architectures.
    pub fn check_arch(&self, gpu_sm: u32) -> Result<(), Error> {
        arch::check(self.sm, self.accelerated, gpu_sm)
    }

    /// All kernels, sorted by name.
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    /// The kernel with this name. The name of a C++ kernel that is not `extern "C"` is mangled.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchKernel`], with the names of all kernels.
    pub fn kernel(&self, name: &str) -> Result<&Kernel, Error> {
        match self.kernels.binary_search_by(|k| k.name.as_str().cmp(name)) {
            Ok(at) => Ok(&self.kernels[at]),
            Err(_) => Err(Error::NoSuchKernel {
                name: name.to_string(),
                available: self.kernels.iter().map(|k| k.name.clone()).collect(),
            }),
        }
    }

    /// All functions, sorted by offset. The code of a kernel may contain functions that it calls.
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// All variables in global and constant memory, sorted by name.
    pub fn globals(&self) -> &[Global] {
        &self.globals
    }

    /// The `__device__` or `__constant__` variable with this name.
    pub fn global(&self, name: &str) -> Option<&Global> {
        let at = self.globals.binary_search_by(|g| g.name.as_str().cmp(name)).ok()?;
        Some(&self.globals[at])
    }

    /// Offsets in the image of the words and instructions whose content depends on where the image is loaded, in the
    /// order of the file's tables.
    ///
    /// ```
    /// # let file = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/globals.cubin"));
    /// let cubin = cubin::Cubin::parse(file)?;
    /// // The kernels access variables.
    /// assert!(cubin.relocated().any(|offset| offset < cubin.image_bytes()));
    /// # Ok::<(), cubin::Error>(())
    /// ```
    pub fn relocated(&self) -> impl Iterator<Item = u64> {
        self.image.relocated()
    }

    /// Size of the image in GPU memory in bytes, a multiple of [`CONSTANT_ALIGN`].
    ///
    /// The size includes at least [`PREFETCH_SLACK_BYTES`] after the last instruction, as the instruction prefetcher
    /// needs.
    pub fn image_bytes(&self) -> u64 {
        self.image.bytes()
    }

    /// Required alignment of the load address in bytes: a power of two, at least [`CONSTANT_ALIGN`] and at most 4096.
    pub fn image_align(&self) -> u64 {
        self.image.align()
    }

    /// Size in bytes of the first part of the image, which the file initialises. The rest of the image is zero. The
    /// part is at most a small multiple of the file.
    pub fn initialised_bytes(&self) -> u64 {
        self.image.initialised_bytes()
    }

    /// The image for GPU memory at `base_va`: code, constant banks from 2 on, and variables, relocated.
    ///
    /// A small file can declare zeroed variables of 4 GiB. [`Cubin::initialised_at`] allocates no memory for them.
    ///
    /// # Errors
    ///
    /// [`Error::BadBase`] if `base_va` is not aligned to [`Cubin::image_align`] or if the image would end above the
    /// 49-bit address space; [`Error::BadRelocation`] if an address does not fit its field;
    /// [`Error::UnresolvedSymbol`] if a function is undefined; [`Error::ImageTooLarge`] if the host has no memory for
    /// it.
    pub fn image_at(&self, base_va: u64) -> Result<Vec<u8>, Error> {
        self.front_at(base_va, self.image.bytes())
    }

    /// The first [`Cubin::initialised_bytes`] of [`Cubin::image_at`].
    ///
    /// # Errors
    ///
    /// As [`Cubin::image_at`].
    pub fn initialised_at(&self, base_va: u64) -> Result<Vec<u8>, Error> {
        self.front_at(base_va, self.image.initialised_bytes())
    }

    /// The first `bytes` bytes of the image, at least its initialised part.
    fn front_at(&self, base_va: u64, bytes: u64) -> Result<Vec<u8>, Error> {
        self.image.check_base(base_va)?;
        let too_large = || Error::ImageTooLarge { bytes };
        let len = usize::try_from(bytes).map_err(|_| too_large())?;
        let mut front = Vec::new();
        front.try_reserve_exact(len).map_err(|_| too_large())?;
        front.resize(len, 0);
        self.image.write(base_va, &mut front)?;
        Ok(front)
    }

    /// Writes the image for load address `base_va` to `out`, including zeros.
    ///
    /// `out` is ordinary host memory; copy it to GPU memory afterwards.
    ///
    /// # Errors
    ///
    /// As [`Cubin::image_at`], and [`Error::WrongImageLength`] if the length of `out` is not [`Cubin::image_bytes`].
    pub fn write_image(&self, base_va: u64, out: &mut [u8]) -> Result<(), Error> {
        if u64::try_from(out.len()) != Ok(self.image.bytes()) {
            return Err(Error::WrongImageLength { given: out.len(), needed: self.image.bytes() });
        }
        self.image.check_base(base_va)?;
        out.fill(0);
        self.image.write(base_va, out)
    }
}
