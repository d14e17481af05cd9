//! Cubins of programs that do not register what they load: the user gives them, or a search finds them.
//!
//! The model recognises a function by its machine code in GPU memory: each instruction that no relocation changes must
//! be equal. Functions with equal code cannot be distinguished; a finding then names all of them.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use cubin::Cubin;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use super::finding::Located;
use super::program::Image;
use crate::mmu::View;

/// SM version of the Orin's GPU.
const SM: u32 = 87;
/// Load address for the comparison. The value is arbitrary, but fits all fields of relocations.
const BASE: u64 = 1 << 20;
/// Bytes that identify a kernel well enough: a collision costs one search.
const BEGINNING: usize = 1024;
/// Number of names of one piece of code that a finding lists.
const NAMES: usize = 3;

/// A file that is not a cubin for the Orin.
///
/// ```
/// use orin_sim::check::{BadCubin, Checker, Tools};
///
/// let refused = Checker::new(Tools::MEMCHECK).add_cubin(b"no ELF");
/// assert!(matches!(refused, Err(BadCubin::Unreadable(_))));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadCubin {
    /// The file cannot be parsed.
    #[error(transparent)]
    Unreadable(cubin::Error),
    /// The code is for another GPU.
    #[error("a cubin for another GPU: {0}")]
    OtherGpu(#[source] cubin::Error),
}

/// Returns cubins, and files that may be cubins.
type Search = dyn Fn() -> Vec<Vec<u8>> + Send + Sync;

/// The cubins of a checker or profiler.
#[derive(Default)]
pub(crate) struct Known {
    cubins: RwLock<Vec<KnownCubin>>,
    search: OnceLock<Box<Search>>,
    searched: Mutex<Searched>,
}

/// The kernels searched for, and the cubins found.
#[derive(Default)]
struct Searched {
    /// The first instructions of kernels.
    kernels: HashSet<Vec<u8>>,
    files: HashSet<Vec<u8>>,
}

impl core::fmt::Debug for Known {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Known").field("cubins", &self.cubins).finish_non_exhaustive()
    }
}

impl Known {
    pub(crate) fn add(&self, file: &[u8]) -> Result<(), BadCubin> {
        let known = KnownCubin::read(file)?;
        self.cubins.write().push(known);
        Ok(())
    }

    /// Sets the search; only the first one counts.
    pub(crate) fn search_by(&self, search: Box<Search>) {
        let _ = self.search.set(search);
    }

    /// All cubins, after a search if none contains the kernel whose code is at `start`.
    fn for_kernel(&self, view: &View, start: u64) -> RwLockReadGuard<'_, Vec<KnownCubin>> {
        let is_known =
            || self.cubins.read().iter().any(|cubin| cubin.kernels_at(view, start).next().is_some());
        if let Some(search) = self.search.get().filter(|_| !is_known()) {
            let mut searched = self.searched.lock();
            if searched.kernels.insert(beginning(view, start)) {
                for file in search() {
                    // Cubins for other GPUs may be there as well, and damaged ones.
                    if !searched.files.contains(&file) && self.add(&file).is_ok() {
                        searched.files.insert(file);
                    }
                }
            }
        }
        self.cubins.read()
    }

    /// The image of the kernel whose code is at `start`, and its offset there.
    pub(crate) fn kernel(&self, view: &View, start: u64) -> Option<(Arc<Image>, u64)> {
        self.for_kernel(view, start).iter().find_map(|cubin| {
            let offset = cubin.kernels_at(view, start).next()?;
            Some((Arc::clone(&cubin.image), offset))
        })
    }

    /// The instruction at `pc`, executed by the kernel whose code is at `start`; `None` if no cubin has it.
    /// `disassemble` gets its offset in the function.
    pub(super) fn locate(
        &self,
        view: &View,
        start: u64,
        pc: u64,
        disassemble: impl Fn(u64) -> String,
    ) -> Option<Located> {
        locate(&self.for_kernel(view, start), view, start, pc, disassemble)
    }
}

/// The first [`BEGINNING`] bytes at an address, or those that are mapped.
fn beginning(view: &View, va: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut instruction = [0; 16];
    while bytes.len() < BEGINNING && view.read(va + bytes.len() as u64, &mut instruction).is_ok() {
        bytes.extend_from_slice(&instruction);
    }
    bytes
}

/// A cubin that the user has given, or that was found.
#[derive(Debug)]
struct KnownCubin {
    image: Arc<Image>,
    functions: Vec<KnownFunction>,
}

/// The code of a function.
#[derive(Debug)]
struct KnownFunction {
    /// Offset in the image.
    offset: u64,
    is_kernel: bool,
    /// Its instructions; `None` for those that relocations change.
    words: Vec<Option<u128>>,
}

impl KnownFunction {
    /// Whether its code is at `va`.
    fn is_at(&self, view: &View, va: u64) -> bool {
        let mut instruction = [0; 16];
        // An empty function would match anywhere.
        !self.words.is_empty()
            && (va..).step_by(16).zip(&self.words).all(|(at, word)| {
                view.read(at, &mut instruction).is_ok()
                    && word.is_none_or(|word| word == u128::from_le_bytes(instruction))
            })
    }
}

impl KnownCubin {
    fn read(file: &[u8]) -> Result<Self, BadCubin> {
        let mut cubin = Cubin::parse(file).map_err(BadCubin::Unreadable)?;
        // Words with addresses are not compared.
        let undefined: Vec<String> = cubin.undefined().map(str::to_owned).collect();
        undefined.iter().for_each(|name| cubin.define(name, BASE));
        cubin.check_arch(SM).map_err(BadCubin::OtherGpu)?;
        let bytes = cubin.initialised_at(BASE).map_err(BadCubin::Unreadable)?;
        let relocated: HashSet<u64> = cubin.relocated().map(|at| at & !15).collect();
        let function = |offset: u64, len: u64, is_kernel| {
            // CAST: a cubin has at most 4 GiB.
            let (start, end) = (offset as usize, (offset + len) as usize);
            let code = bytes.get(start..end).unwrap_or_default();
            let words = (offset..).step_by(16).zip(code.chunks_exact(16)).map(|(at, word)| {
                // PANIC: the chunks have 16 bytes.
                let word = u128::from_le_bytes(word.try_into().expect("16 bytes"));
                (!relocated.contains(&at)).then_some(word)
            });
            KnownFunction { offset, is_kernel, words: words.collect() }
        };
        let kernels = cubin.kernels().iter();
        let mut functions: Vec<KnownFunction> =
            kernels.map(|kernel| function(kernel.code_offset, kernel.code_bytes, true)).collect();
        let starts: HashSet<u64> = functions.iter().map(|kernel| kernel.offset).collect();
        let others = cubin.functions().iter().filter(|function| !starts.contains(&function.offset));
        functions.extend(others.map(|other| function(other.offset, other.bytes, false)));
        // It has been parsed above.
        let image = Arc::new(Image::of(file).unwrap_or_default());
        Ok(Self { image, functions })
    }

    /// Offsets in the image of the kernels whose code is at `va`.
    fn kernels_at(&self, view: &View, va: u64) -> impl Iterator<Item = u64> {
        let kernels = self.functions.iter().filter(|function| function.is_kernel);
        kernels.filter(move |kernel| kernel.is_at(view, va)).map(|kernel| kernel.offset)
    }

    /// Offsets in the image of the instruction at `pc`, if it belongs to a function that kernels call.
    fn called_at(&self, view: &View, pc: u64) -> impl Iterator<Item = u64> {
        let mut instruction = [0; 16];
        let word = view.read(pc, &mut instruction).is_ok().then(|| u128::from_le_bytes(instruction));
        let others = self.functions.iter().filter(|function| !function.is_kernel);
        others.flat_map(move |function| {
            // The instructions at `pc` are compared first: usually they differ.
            let same = function.words.iter().map(move |other| word.is_some() && *other == word);
            let distances = (0..).step_by(16).zip(same).filter_map(|(at, same)| same.then_some(at));
            let starts =
                distances.filter(move |at| pc.checked_sub(*at).is_some_and(|va| function.is_at(view, va)));
            starts.map(move |at: u64| function.offset + at)
        })
    }
}

/// Implements [`Known::locate`].
fn locate(
    cubins: &[KnownCubin],
    view: &View,
    start: u64,
    pc: u64,
    disassemble: impl Fn(u64) -> String,
) -> Option<Located> {
    // CAST: addresses have 49 bits.
    let distance = pc.wrapping_sub(start) as i64;
    let (mut own, mut called, mut other) = (Vec::new(), Vec::new(), Vec::new());
    for cubin in cubins {
        let image = &*cubin.image;
        let kernels: Vec<u64> = cubin.kernels_at(view, start).collect();
        let same = |kernel: u64| kernel.checked_add_signed(distance);
        let inside = |kernel: &u64| {
            same(*kernel).filter(|at| image.extent(*kernel).is_some_and(|own| own.contains(at)))
        };
        own.extend(kernels.iter().filter_map(inside).map(|offset| (image, offset)));
        for offset in cubin.called_at(view, pc) {
            // Copies of one function are distinguished by the distance from their kernel, if they are loaded as linked.
            let near = kernels.iter().any(|kernel| same(*kernel) == Some(offset));
            if near { &mut called } else { &mut other }.push((image, offset));
        }
    }
    let found = [own, called, other].into_iter().find(|found| !found.is_empty())?;
    unite(found.into_iter().filter_map(|(image, offset)| image.locate(offset, &disassemble)))
}

/// Code with several names: all names, and the line if there is only one.
fn unite(found: impl Iterator<Item = Located>) -> Option<Located> {
    let found: Vec<Located> = found.collect();
    let mut names: Vec<&str> = Vec::new();
    for at in &found {
        if !names.contains(&at.kernel.as_str()) {
            names.push(&at.kernel);
        }
    }
    let more = names.len() > NAMES;
    names.truncate(NAMES);
    let kernel = names.join(" or ") + if more { " or others" } else { "" };
    let mut lines = found.iter().filter_map(|at| Some((at.file.as_ref()?, at.line?)));
    let line = lines.next().filter(|line| lines.all(|other| other == *line));
    let first = found.first()?;
    Some(Located {
        kernel,
        offset: first.offset,
        instruction: first.instruction.clone(),
        file: line.map(|(file, _)| file.clone()),
        line: line.map(|(_, line)| line),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;
    use crate::mmu::{AddressSpace, MappedRange};

    const VA: u64 = 0x7_1000_0000;

    /// An address space with an image at [`VA`].
    fn loaded(file: &[u8]) -> (Arc<Memory>, View) {
        let image = Cubin::parse(file).unwrap().image_at(VA).unwrap();
        let len = image.len().next_multiple_of(4096);
        let memory = Arc::new(Memory::new("code", len).unwrap());
        for (at, word) in image.chunks_exact(4).enumerate() {
            memory.store(4 * at, u32::from_le_bytes(word.try_into().unwrap()));
        }
        let space = AddressSpace::new();
        let range = MappedRange {
            va: VA,
            len: len as u64,
            memory: Arc::clone(&memory),
            offset: 0,
            writable: true,
            cached: false,
        };
        space.map(range);
        (memory, space.view())
    }

    fn name(cubins: &[KnownCubin], view: &View, start: u64, pc: u64) -> Option<String> {
        Some(locate(cubins, view, start, pc, |_| String::new())?.kernel)
    }

    #[test]
    fn functions_are_recognised_where_they_are_loaded() {
        let files: [&[u8]; 3] = [
            include_bytes!("../../../../kernels/calls.cubin"),
            include_bytes!("../../../../kernels/globals.cubin"),
            include_bytes!("../../../../kernels/check/debug/frames.cubin"),
        ];
        let known: Vec<KnownCubin> = files.iter().map(|file| KnownCubin::read(file).unwrap()).collect();
        let (mut called, mut relocated) = (0, 0);
        for file in files {
            let cubin = Cubin::parse(file).unwrap();
            let (_memory, view) = loaded(file);
            let image = Image::of(file).unwrap();
            relocated += cubin.relocated().count();
            for (kernel, function) in cubin
                .kernels()
                .iter()
                .flat_map(|kernel| cubin.functions().iter().map(move |function| (kernel, function)))
            {
                let is_kernel = cubin.kernels().iter().any(|kernel| kernel.code_offset == function.offset);
                if is_kernel && function.name != kernel.name {
                    continue;
                }
                called += u32::from(!is_kernel);
                for offset in [function.offset, function.offset + function.bytes / 32 * 16] {
                    let found = name(&known, &view, VA + kernel.code_offset, VA + offset);
                    let expected = image.function(offset).map(|(name, _)| name.to_owned());
                    assert_eq!(found, expected, "{offset:#x} after {}", kernel.name);
                }
            }
        }
        assert!(called > 0 && relocated > 0);
    }

    #[test]
    fn cubins_are_searched_for_once_for_each_kernel() {
        use std::sync::atomic::{AtomicU32, Ordering};
        let file = include_bytes!("../../../../kernels/saxpy.cubin");
        let other = include_bytes!("../../../../kernels/sm_90/vector_add.cubin");
        let (_memory, view) = loaded(file);
        let start = VA + Cubin::parse(file).unwrap().kernel("saxpy").unwrap().code_offset;
        let (known, calls) = (Known::default(), Arc::new(AtomicU32::new(0)));
        assert_eq!(known.for_kernel(&view, start).len(), 0);
        let count = Arc::clone(&calls);
        known.search_by(Box::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
            vec![b"damaged".to_vec(), other.to_vec(), file.to_vec(), file.to_vec()]
        }));
        for (start, cubins, searches) in
            [(start, 1, 1), (start, 1, 1), (start + 16, 1, 2), (start + 16, 1, 2), (VA - 16, 1, 3)]
        {
            assert_eq!(known.for_kernel(&view, start).len(), cubins);
            assert_eq!(calls.load(Ordering::Relaxed), searches);
        }
        assert_eq!(name(&known.cubins.read(), &view, start, start).as_deref(), Some("saxpy"));
    }

    #[test]
    fn changed_code_is_not_recognised_and_equal_code_has_all_names() {
        let file = include_bytes!("../../../../kernels/saxpy.cubin");
        let (memory, view) = loaded(file);
        let renamed = |name: &[u8; 5]| {
            let mut other = file.to_vec();
            let places: Vec<usize> =
                (0..other.len() - 5).filter(|at| other[*at..].starts_with(b"saxpy")).collect();
            places.iter().for_each(|at| other[*at..at + 5].copy_from_slice(name));
            KnownCubin::read(&other).unwrap()
        };
        let offset = Cubin::parse(file).unwrap().kernel("saxpy").unwrap().code_offset;
        let (start, pc) = (VA + offset, VA + offset + 0x40);
        let same = [KnownCubin::read(file).unwrap(), KnownCubin::read(file).unwrap()];
        assert_eq!(name(&same, &view, start, pc).as_deref(), Some("saxpy"));
        let mut several = vec![renamed(b"saxpy"), renamed(b"daxpy"), renamed(b"caxpy")];
        assert_eq!(name(&several, &view, start, pc).as_deref(), Some("saxpy or daxpy or caxpy"));
        several.push(renamed(b"zaxpy"));
        assert_eq!(name(&several, &view, start, pc).as_deref(), Some("saxpy or daxpy or caxpy or others"));
        assert_eq!(name(&several, &view, start + 16, pc), None);
        assert_eq!(name(&several, &view, start, start.wrapping_sub(16)), None);
        memory.store(offset as usize + 0x80, 0);
        assert_eq!(name(&several, &view, start, pc), None);
    }
}
