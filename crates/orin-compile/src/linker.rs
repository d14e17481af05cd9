//! Images to cubins: PTX, objects and libraries by NVIDIA's nvJitLink, and PTX by ptxas where nvJitLink does not do.

use std::borrow::Cow;
use std::env;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, OnceLock};
use std::time::SystemTime;

use cubin::fatbin::{FatBinary, Features, Kind};
use cubin::{Contents, FileKind};

use super::cache::{Cache, Key, Parts};
use super::library::Output;
use super::nvjitlink::NvJitLink;
use super::ptx::{self, Head};
use super::search::{NVJITLINK, PTXAS, Search};
use super::{Compiled, archive, ptxas, sets_architecture};
use crate::error::{Error, RequestError, Result};

/// The oldest version of PTX that nvJitLink takes, because it compiles to relocatable code.
const RELOCATABLE_PTX: (u32, u32) = (3, 1);
/// ELF type of an object.
const ET_REL: u8 = 1;
/// File of the dynamic loader, which is written when libraries are installed.
const LOADER_CACHE: &str = "/etc/ld.so.cache";

/// The linker shared by the whole process.
static SHARED: LazyLock<Linker> = LazyLock::new(Linker::find);

/// How to compile and link an image: the options of CUDA's just-in-time compiler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JitOptions {
    /// Most registers of a thread; `None` leaves the number to the compiler.
    pub max_registers: Option<u32>,
    /// Optimisation level, 0 to 4; `None`, and everything from 3 on, is the highest.
    pub optimisation: Option<u32>,
    /// Record file and line of each instruction.
    pub line_info: bool,
    /// Compile for debugging, without optimisation of the code.
    pub debug: bool,
    /// Add registers, memory and time of each kernel to the log.
    pub verbose: bool,
    /// Other options, in nvJitLink's spelling: `-ftz=1`, `-Xptxas=-v`. ptxas gets them without the prefix `-Xptxas=`.
    pub other: Vec<String>,
}

/// One input of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkInput<'a> {
    /// Its name in error messages.
    pub name: &'a str,
    /// A cubin, PTX (with or without a zero byte at its end), a fat binary, an object file of a CPU with device code,
    /// or a static library (`.a`) of such files. A link takes all members of a library that are not objects of a CPU.
    pub data: &'a [u8],
}

/// An input, out of its fat binary, of a kind that nvJitLink takes.
#[derive(Clone, Debug)]
pub(super) struct Input<'a> {
    pub(super) name: &'a str,
    pub(super) kind: FileKind,
    pub(super) data: Cow<'a, [u8]>,
}

/// NVIDIA's tools that make cubins of PTX and objects: nvJitLink, and ptxas for PTX that nvJitLink refuses (`.version`
/// below 3.1, or newer than its own), or if there is no nvJitLink. They are loaded when they are needed first, and not
/// for results that are in the cache. Several threads may use a linker concurrently; it holds no lock while NVIDIA's
/// code runs, because nvJitLink loads `libcuda.so.1` and calls it.
///
/// ```
/// use orin_compile::{JitOptions, LinkInput, Linker};
///
/// # fn main() -> orin_compile::Result<()> {
/// # let data = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/vector_add.cubin"));
/// // A cubin needs no linker.
/// let input = LinkInput { name: "vector_add.cubin", data };
/// let linked = Linker::shared().link(&[input], &JitOptions::default(), (8, 7))?;
/// assert_eq!(linked.cubin, data);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Linker {
    library: OnceLock<NvJitLink>,
    libraries: Search,
    assemblers: Search,
    cache: Option<Cache>,
}

impl Linker {
    /// Searches nvJitLink and ptxas, without loading them, and opens the user's cache ([`Cache::user`]). The
    /// environment variables `NVGPU_NVJITLINK` and `NVGPU_PTXAS` name the file or its folder; otherwise the search is
    /// that of [`Compiler::load`](super::Compiler::load), for ptxas with the folders of `PATH`.
    pub fn find() -> Self {
        Self::of(Search::of_environment(&NVJITLINK), Search::of_environment(&PTXAS)).with_cache(Cache::user())
    }

    /// As [`Linker::find`], in one folder only.
    ///
    /// # Safety
    ///
    /// The files `libnvJitLink.so*` and `ptxas` in it are NVIDIA's, or have the same functions: loading a library runs
    /// its code.
    pub unsafe fn find_in(folder: impl AsRef<Path>) -> Self {
        let place = folder.as_ref().as_os_str();
        Self::of(Search::chosen(&NVJITLINK, place), Search::chosen(&PTXAS, place)).with_cache(Cache::user())
    }

    /// The linker shared by all callers of this function, found at the first call.
    pub fn shared() -> &'static Self {
        &SHARED
    }

    fn of(libraries: Search, assemblers: Search) -> Self {
        Self { library: OnceLock::new(), libraries, assemblers, cache: None }
    }

    /// Replaces the cache; `None` disables it.
    #[must_use]
    pub fn with_cache(mut self, cache: Option<Cache>) -> Self {
        self.cache = cache;
        self
    }

    /// Makes one loadable cubin of inputs for a GPU of SM version `sm`, (8, 7) for the Orin. A single cubin that is
    /// linked already is returned as it is, whatever its architecture. Of a fat binary, the entry for the GPU is taken
    /// ([`FatBinary::select`]). Other results are cached; the key covers inputs, options and architecture, and path,
    /// size and time of the tools that were found. The time is not limited.
    ///
    /// # Errors
    ///
    /// - [`Error::NotAnImage`] if an input is none, with what it is.
    /// - [`Error::Cubin`] with [`cubin::Error::WrongArchitecture`] or [`cubin::Error::NoFittingEntry`] if an input is
    ///   for other GPUs, or another of its errors if an input is damaged.
    /// - [`Error::Compilation`] with the log if the PTX is invalid or the inputs cannot be linked.
    /// - [`Error::UnsupportedPtx`] with the log if the PTX is newer than the tools.
    /// - [`Error::UnresolvedSymbols`] if a function or variable is defined nowhere.
    /// - [`Error::NoNvJitLink`] or [`Error::NoPtxas`] if the tool is missing, with what was tried and the cure.
    /// - [`Error::Request`] if there is no input, an option sets the architecture, a text contains a zero byte,
    ///   or a linked cubin is one of several inputs; [`Error::NvJitLink`] if nvJitLink fails otherwise, for example on
    ///   an unknown option.
    pub fn link(&self, inputs: &[LinkInput<'_>], options: &JitOptions, sm: (u32, u32)) -> Result<Compiled> {
        let gpu = sm.0 * 10 + sm.1;
        if let Some(option) = options.other.iter().find(|option| sets_architecture(option)) {
            return Err(RequestError::Architecture { option: option.clone(), sm_version: sm }.into());
        }
        let mut opened = Vec::new();
        for input in inputs {
            open(*input, gpu, &mut opened)?;
        }
        let inputs = opened;
        if let [Input { kind: FileKind::Cubin, data, .. }] = &inputs[..]
            && data.get(16) != Some(&ET_REL)
        {
            let output = Output { cubin: data.to_vec(), ..Output::default() };
            return Ok(Compiled::new(output, &[], false));
        }
        if inputs.is_empty() {
            return Err(RequestError::NoInput.into());
        }
        let mut features = Features::Common;
        for input in &inputs {
            features = features.max(check(input, gpu)?);
        }
        let arch = format!("-arch=sm_{gpu}{}", features.suffix());
        let entry = self.cache.as_ref().map(|cache| (cache, self.key(&inputs, options, &arch)));
        if let Some(output) = entry.as_ref().and_then(|(cache, key)| cache.get(*key)) {
            return Ok(Compiled::new(output, &[], true));
        }
        let output = self.run(&inputs, options, &arch)?;
        if let Some((cache, key)) = entry {
            cache.put(key, &output);
        }
        Ok(Compiled::new(output, &[], false))
    }

    /// Chooses the tool, and runs it.
    fn run(&self, inputs: &[Input<'_>], options: &JitOptions, arch: &str) -> Result<Output> {
        let with_arch = |options: Vec<String>| [vec![arch.to_owned()], options].concat();
        let whole = match inputs {
            [input @ Input { kind: FileKind::Ptx, .. }] => str::from_utf8(&input.data)
                .ok()
                .and_then(ptx::define_shared)
                .map(|text| Input { data: text.into_bytes().into(), ..input.clone() }),
            _ => None,
        };
        let inputs = whole.as_ref().map_or(inputs, core::slice::from_ref);
        let link = || self.library()?.link(inputs, &with_arch(options.for_nvjitlink()));
        // ptxas makes a loadable cubin of one input only.
        let [input @ Input { kind: FileKind::Ptx, .. }] = inputs else { return link() };
        let assemble = || ptxas::compile(&self.assemblers, input, &with_arch(options.for_ptxas()));
        if head(input)?.version.is_some_and(|version| version < RELOCATABLE_PTX) {
            return assemble();
        }
        let error = match link() {
            Err(
                error @ (Error::NoNvJitLink { .. }
                | Error::StaticProgram { .. }
                | Error::UnsupportedPtx { .. }),
            ) => error,
            result => return result,
        };
        match (assemble(), error) {
            // The first tool's error says how to get it.
            (Err(Error::NoPtxas { tried, .. }), Error::NoNvJitLink { tried: first }) => {
                Err(Error::NoNvJitLink { tried: [first, tried].concat() })
            }
            (Err(Error::NoPtxas { .. }), error) => Err(error),
            (result, _) => result,
        }
    }

    /// The library, loaded at the first call that succeeds. Two threads may load it at once, which is one library.
    fn library(&self) -> Result<&NvJitLink> {
        match self.library.get() {
            Some(library) => Ok(library),
            None => {
                let library = NvJitLink::load(&self.libraries)?;
                Ok(self.library.get_or_init(|| library))
            }
        }
    }

    /// The key of a link. The tools are not loaded for it: their files are part of it instead.
    fn key(&self, inputs: &[Input<'_>], options: &JitOptions, arch: &str) -> Key {
        let mut parts = Parts::new("link");
        parts.add(arch.as_bytes());
        parts.list(options.for_nvjitlink().iter().map(String::as_bytes));
        parts.list(inputs.iter().flat_map(|input| [input.name.as_bytes(), &input.data]));
        let candidates = self.libraries.candidates.iter().chain(&self.assemblers.candidates);
        for path in candidates.map(PathBuf::as_path).chain([Path::new(LOADER_CACHE)]) {
            parts.add(path.as_os_str().as_encoded_bytes());
            // A name without a folder is the dynamic loader's.
            let metadata = path.metadata().ok().filter(|_| path.is_absolute());
            let time = metadata.as_ref().and_then(|metadata| metadata.modified().ok());
            let time = time.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
            parts.add(&metadata.map_or(0, |metadata| metadata.len()).to_le_bytes());
            parts.add(&time.map_or(0, |time| time.as_nanos()).to_le_bytes());
        }
        parts.add(env::var_os("LD_LIBRARY_PATH").unwrap_or_default().as_encoded_bytes());
        parts.key()
    }
}

impl JitOptions {
    /// Those that both tools spell alike.
    fn common(&self) -> Vec<String> {
        let registers = self.max_registers.map(|count| format!("-maxrregcount={count}"));
        // The compilers warn about both.
        let lines = self.line_info && !self.debug;
        let flags = [(self.debug, "-g"), (lines, "-lineinfo")];
        registers
            .into_iter()
            .chain(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| (*flag).to_owned()))
            .collect()
    }

    /// nvJitLink has only the levels 0 and 3.
    fn for_nvjitlink(&self) -> Vec<String> {
        let level = match self.optimisation {
            Some(0) => Some("-O0".to_owned()),
            Some(level @ 1..=2) => Some(format!("-Xptxas=-O{level}")),
            _ => None,
        };
        let verbose = self.verbose.then(|| "-verbose".to_owned());
        self.common().into_iter().chain(level).chain(verbose).chain(self.other.iter().cloned()).collect()
    }

    fn for_ptxas(&self) -> Vec<String> {
        let level = self.optimisation.filter(|level| *level < 3).map(|level| format!("-O{level}"));
        let verbose = self.verbose.then(|| "-v".to_owned());
        let other =
            self.other.iter().map(|option| option.strip_prefix("-Xptxas=").unwrap_or(option).to_owned());
        self.common().into_iter().chain(level).chain(verbose).chain(other).collect()
    }
}

/// Finds out what an input is, takes the entry for the GPU out of a fat binary, and device code that is not inside of
/// host objects out of a library.
fn open<'a>(input: LinkInput<'a>, gpu: u32, inputs: &mut Vec<Input<'a>>) -> Result<()> {
    let LinkInput { name, data } = input;
    let borrowed = |kind| Input { name, kind, data: Cow::Borrowed(data) };
    let not = |found| Err(Error::NotAnImage { name: name.to_owned(), found });
    let input = match FileKind::of(data) {
        FileKind::FatBinary => {
            let fat = FatBinary::parse(data)?;
            let entry = match fat.select(gpu) {
                Err(_) if fat.entries().iter().any(|entry| entry.kind == Kind::LtoIr) => {
                    return not(FileKind::LtoIr);
                }
                entry => entry?,
            };
            let data = entry.data()?;
            if entry.kind == Kind::Ptx {
                ptx(name, &data)
            } else {
                Input { name, kind: FileKind::Cubin, data: Cow::Owned(data.into_owned()) }
            }
        }
        FileKind::Ptx => ptx(name, data),
        kind @ (FileKind::Cubin | FileKind::Elf) => borrowed(kind),
        FileKind::Library => {
            // nvJitLink reads host objects only.
            let kinds = || archive::members(data).map(|member| (FileKind::of(member), member));
            let is_device = |kind| matches!(kind, FileKind::Cubin | FileKind::FatBinary | FileKind::Ptx);
            for (_, data) in kinds().filter(|(kind, _)| is_device(*kind)) {
                open(LinkInput { name, data }, gpu, inputs)?;
            }
            if kinds().any(|(kind, _)| is_device(kind)) && !kinds().any(|(kind, _)| kind == FileKind::Elf) {
                return Ok(());
            }
            borrowed(FileKind::Library)
        }
        found => return not(found),
    };
    inputs.push(input);
    Ok(())
}

/// PTX with exactly one zero byte at its end, which nvJitLink requires.
fn ptx<'a>(name: &'a str, text: &[u8]) -> Input<'a> {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    Input { name, kind: FileKind::Ptx, data: Cow::Owned([text, b"\0"].concat()) }
}

/// Whether an input of a link is for the GPU. Returns which other GPUs it is for.
fn check(input: &Input<'_>, gpu: u32) -> Result<Features> {
    match input.kind {
        FileKind::Ptx => {
            let Head { sm, features, .. } = head(input)?;
            let Some(cubin) = sm else { return Ok(features) };
            if features.permit(cubin, gpu) {
                return Ok(features);
            }
            let reason = "PTX can be compiled for its .target and newer GPUs, that of sm_NNa only for exactly this one";
            let accelerated = features == Features::Specific;
            Err(cubin::Error::WrongArchitecture { cubin, accelerated, gpu, reason }.into())
        }
        FileKind::Cubin => {
            let contents = Contents::read(&input.data)?;
            if contents.e_type != u16::from(ET_REL) {
                return Err(RequestError::LinkedCubin { name: input.name.to_owned() }.into());
            }
            contents.check_arch(gpu)?;
            Ok(if contents.accelerated { Features::Specific } else { Features::Common })
        }
        _ => Ok(Features::Common),
    }
}

/// The head of PTX.
fn head(input: &Input<'_>) -> Result<Head> {
    let text = core::str::from_utf8(&input.data);
    let text =
        text.map_err(|_| Error::NotAnImage { name: input.name.to_owned(), found: FileKind::Binary })?;
    Ok(Head::of(text))
}

/// The error of a tool, by its log.
pub(super) fn failure(name: &str, log: String) -> Error {
    let name = name.to_owned();
    let symbols: Vec<String> = log.lines().filter_map(unresolved).collect();
    if !symbols.is_empty() {
        return Error::UnresolvedSymbols { name, symbols, log };
    }
    if log.contains("Unsupported .version") {
        return Error::UnsupportedPtx { name, log };
    }
    Error::Compilation { name, log }
}

/// The symbol of a line about one that is defined nowhere: of nvJitLink, or of ptxas.
fn unresolved(line: &str) -> Option<String> {
    let found = ["Undefined reference to '", "Unresolved extern function '", "Unresolved extern variable '"];
    let rest = found.iter().find_map(|text| line.split_once(text))?.1;
    Some(rest.split_once('\'')?.0.to_owned())
}
