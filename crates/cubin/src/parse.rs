//! Converts sections and symbols to kernels, variables and an image.
//!
//! | section | content |
//! |---|---|
//! | `.text.K` | code of kernel K |
//! | `.nv.constant0.K` | parameters |
//! | `.nv.constantN[.K]` | other constant banks |
//! | `.nv.shared.K` | static shared memory |
//! | `.nv.info[.K]` | attributes |
//! | `.nv.global.init`, `.nv.global` | variables |
//!
//! `sh_info` of a code section contains the number of registers in bits 24 to 31, and the entry symbol below. Bits 20
//! to 26 of its `sh_flags` are the number of barriers; in ABI version 8 that is an attribute. `sh_info` of any other
//! section of a kernel is the index of the kernel's code section.

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use crate::elf::{self, Elf, Section, Symbol, u64_at};
use crate::error::Error;
use crate::image::{Class, Field, Image, Relocation, Target};
use crate::info::{self, attributes};
use crate::kernel::{ConstantBank, Kernel, Param, Reference};
use crate::{Cubin, Function, Global, Space, callgraph, frames};

/// Largest constant bank, in bytes.
const MAX_CONSTANT_BYTES: u64 = 1 << 16;
/// Highest constant bank with a section type. A launch descriptor has eight banks.
const LAST_CONSTANT_BANK: u8 = 17;
/// Size of an instruction, in bytes.
const INSTRUCTION_BYTES: u64 = 16;

pub(crate) fn parse(bytes: &[u8], is_object: bool) -> Result<Cubin, Error> {
    let elf = Elf::parse(bytes, is_object)?;
    let (mut image, places) = place_sections(&elf)?;
    relocations(&elf, &places, &mut image)?;
    let facts = facts(&elf)?;
    let kernels = kernels(&elf, &places, &facts)?;
    let functions = functions(&elf, &places, &facts);
    let globals = globals(&elf, &places)?;
    let virtual_sm = elf.header.virtual_sm();
    Ok(Cubin { sm: elf.sm, virtual_sm, accelerated: elf.accelerated, kernels, functions, globals, image })
}

/// The bank number in `.nv.constantN` or `.nv.constantN.KERNEL`.
fn constant_bank(name: &str) -> Option<u8> {
    let rest = name.strip_prefix(".nv.constant")?;
    rest.split('.').next()?.parse().ok()
}

/// Class of a section in the image; `None` if it is not loaded.
fn class(section: &Section<'_>) -> Option<Class> {
    if section.flags & elf::SHF_ALLOC == 0 {
        return None;
    }
    match section.kind {
        elf::SHT_PROGBITS if section.is_code() => Some(Class::Code),
        // Each launch builds bank 0; the file contains only zeros for it.
        elf::SHT_PROGBITS if constant_bank(section.name) == Some(0) => None,
        elf::SHT_PROGBITS if constant_bank(section.name).is_some() => Some(Class::Constant),
        elf::SHT_PROGBITS => Some(Class::Data),
        elf::SHT_NOBITS if section.name == ".nv.global" => Some(Class::Zeroed),
        _ => None,
    }
}

/// Lays out the image. Returns the offset of each section in it, by section index.
fn place_sections(elf: &Elf<'_>) -> Result<(Image, Vec<Option<u64>>), Error> {
    let mut image = Image::new();
    let mut places = vec![None; elf.sections.len()];
    for wanted in Class::ALL {
        for (section, place) in elf.sections.iter().zip(&mut places) {
            if class(section) != Some(wanted) {
                continue;
            }
            if wanted == Class::Code
                && (section.bytes == 0 || !section.bytes.is_multiple_of(INSTRUCTION_BYTES))
            {
                return Err(
                    section.bad("its size is not a positive multiple of the 16 bytes of an instruction")
                );
            }
            if constant_bank(section.name).is_some_and(|bank| bank > LAST_CONSTANT_BANK) {
                return Err(section.bad("there are only constant banks 0 to 17"));
            }
            if wanted == Class::Constant && section.bytes > MAX_CONSTANT_BYTES {
                return Err(section.bad("it is longer than the 64 KiB of a constant bank"));
            }
            *place = Some(image.place(section.name, wanted, section.align, section.bytes, section.data)?);
        }
    }
    Ok((image, places))
}

fn relocations(elf: &Elf<'_>, places: &[Option<u64>], image: &mut Image) -> Result<(), Error> {
    for table in elf.sections.iter().filter(|s| matches!(s.kind, elf::SHT_REL | elf::SHT_RELA)) {
        let target = usize::try_from(table.info).ok().filter(|&i| i < elf.sections.len());
        let Some(target) = target else {
            return Err(table.bad("it relocates a section that does not exist"));
        };
        let section = &elf.sections[target];
        if section.name.starts_with(CONSTANT0) {
            // Read with its kernel.
            continue;
        }
        let Some(place) = places[target] else {
            if section.flags & elf::SHF_ALLOC != 0 && !table.data.is_empty() {
                return Err(table.bad("it relocates a section that is not loaded"));
            }
            // Debug information.
            continue;
        };
        let explicit = table.kind == elf::SHT_RELA;
        let entry_bytes = if explicit { 24 } else { 16 };
        if !table.data.len().is_multiple_of(entry_bytes) {
            return Err(table.bad("its size is not a multiple of its entries'"));
        }
        for entry in table.data.chunks_exact(entry_bytes) {
            relocation(elf, places, (section, place), entry, image)?;
        }
    }
    Ok(())
}

/// Decodes one relocation entry of a section at an offset of the image, and adds it unless it has no effect.
fn relocation(
    elf: &Elf<'_>,
    places: &[Option<u64>],
    (section, start): (&Section<'_>, u64),
    entry: &[u8],
    image: &mut Image,
) -> Result<(), Error> {
    // PANIC: an entry has 16 or 24 bytes.
    let (offset, info) = u64_at(entry, 0).zip(u64_at(entry, 8)).expect("inside of the entry");
    // CAST: the two halves of r_info.
    let (kind, symbol) = (info as u32, (info >> 32) as u32);
    let bad = |reason| Error::BadRelocation { section: section.name.to_string(), offset, reason };
    let field = match kind {
        // No relocation, a marker for bits that the linker cleared, or a YIELD that the linker may remove.
        0 | 68 | 69 | 72 | 73 => return Ok(()),
        1 | 3 => Field::Data32,
        2 | 4 => Field::Data64,
        55 => Field::Whole32,
        56 => Field::Low32,
        57 => Field::High32,
        58 => Field::Call47,
        70 => Field::DataLow32,
        71 => Field::DataHigh32,
        75 => Field::Call55,
        // CAST: eight types each.
        76..=83 => Field::DataByte((kind - 76) as u8),
        84..=91 => Field::DataByte((kind - 84) as u8),
        _ => {
            return Err(Error::UnknownRelocation { section: section.name.to_string(), offset, kind });
        }
    };
    let place = usize::try_from(offset)
        .ok()
        .zip(usize::try_from(field.span()).ok())
        .and_then(|(at, span)| section.data.get(at..at.checked_add(span)?))
        .ok_or_else(|| bad("it lies outside of the section"))?;
    let addend = match entry.get(16..) {
        Some(bytes) if !bytes.is_empty() => u64_at(bytes, 0).unwrap_or(0).cast_signed(),
        _ => implicit_addend(field, place)
            .ok_or_else(|| bad("it has an addend inside of a part of an address"))?,
    };
    let target = match target_of(elf, places, section, symbol, image)? {
        Target::Image(offset) => offset.checked_add(addend).map(Target::Image),
        Target::Undefined(index, _) => Some(Target::Undefined(index, addend)),
    };
    let target = target.ok_or_else(|| bad("its addend overflows"))?;
    image.relocate(Relocation { at: start + offset, field, target });
    Ok(())
}

/// The addend of an entry of a `.rel` table, which is stored at the place to patch. In instructions it is always 0:
/// the two halves of an address are relocated separately, without a carry between them.
fn implicit_addend(field: Field, place: &[u8]) -> Option<i64> {
    match field {
        Field::Data32 => elf::u32_at(place, 0).map(i64::from),
        Field::Data64 => u64_at(place, 0).map(u64::cast_signed),
        // Parts of an address are relocated separately too.
        Field::DataLow32 | Field::DataHigh32 => (elf::u32_at(place, 0)? == 0).then_some(0),
        Field::DataByte(_) => (*place.first()? == 0).then_some(0),
        Field::Whole32 | Field::Low32 | Field::High32 => (elf::u32_at(place, 4)? == 0).then_some(0),
        Field::Call47 | Field::Call55 => {
            let instruction = u128::from_le_bytes(*place.first_chunk()?);
            (instruction & field.call_mask() == 0).then_some(0)
        }
    }
}

/// The target that a symbol is.
fn target_of(
    elf: &Elf<'_>,
    places: &[Option<u64>],
    user: &Section<'_>,
    symbol: u32,
    image: &mut Image,
) -> Result<Target, Error> {
    let found = usize::try_from(symbol).ok().and_then(|i| elf.symbols.get(i));
    let Some(symbol) = found else {
        return Err(user.bad("a relocation names a symbol that does not exist"));
    };
    let place = places.get(usize::from(symbol.section)).copied().flatten();
    if let Some(offset) = place.and_then(|p| i64::try_from(p.checked_add(symbol.value)?).ok()) {
        return Ok(Target::Image(offset));
    }
    if symbol.section == 0
        && symbol.kind == elf::STT_FUNC
        && let Some(index) = image.undefined(symbol.name, user.name)
    {
        return Ok(Target::Undefined(index, 0));
    }
    Err(Error::UnresolvedSymbol {
        symbol: symbol.name.to_string(),
        section: user.name.to_string(),
        undefined: symbol.section == 0,
    })
}

/// The function symbols of loaded sections; others are left out.
fn functions(elf: &Elf<'_>, places: &[Option<u64>], facts: &Facts) -> Vec<Function> {
    let place = |symbol: &elf::Symbol<'_>| {
        let section = usize::from(symbol.section);
        let inside = symbol.value.checked_add(symbol.bytes)? <= elf.sections.get(section)?.bytes;
        places[section].filter(|_| inside && elf.sections[section].is_code())
    };
    let all = elf.symbols.iter().enumerate();
    let found = all.filter(|(_, symbol)| symbol.kind == elf::STT_FUNC).filter_map(|(index, symbol)| {
        Some(Function {
            name: String::from(symbol.name),
            offset: place(symbol)? + symbol.value,
            bytes: symbol.bytes,
            registers: facts.registers[index].unwrap_or(0),
            frame_bytes: facts.frame_bytes[index].unwrap_or(0),
        })
    });
    let mut functions: Vec<Function> = found.collect();
    functions.sort_by(|a, b| (a.offset, &a.name).cmp(&(b.offset, &b.name)));
    functions
}

/// Variables in global and constant memory.
fn globals(elf: &Elf<'_>, places: &[Option<u64>]) -> Result<Vec<Global>, Error> {
    let mut globals = Vec::new();
    for symbol in elf.symbols.iter().filter(|s| s.kind == elf::STT_OBJECT) {
        let Some(section) = elf.sections.get(usize::from(symbol.section)) else { continue };
        let Some(place) = places[usize::from(symbol.section)] else { continue };
        if symbol.value.checked_add(symbol.bytes).is_none_or(|end| end > section.bytes) {
            return Err(Error::BadSymbol {
                symbol: symbol.name.to_string(),
                reason: "it reaches beyond its section",
            });
        }
        let space = match class(section) {
            Some(Class::Constant) => Space::Constant,
            Some(Class::Data | Class::Zeroed) => Space::Global,
            _ => continue,
        };
        globals.push(Global {
            name: symbol.name.to_string(),
            space,
            offset: place + symbol.value,
            bytes: symbol.bytes,
            managed: symbol.other & elf::STO_CUDA_MANAGED != 0,
        });
    }
    globals.sort_by(|a: &Global, b| a.name.cmp(&b.name));
    match globals.windows(2).find(|pair| pair[0].name == pair[1].name) {
        Some(pair) => Err(Error::DuplicateGlobal { name: pair[0].name.clone() }),
        None => Ok(globals),
    }
}

/// Facts about each symbol, from the module's attribute list and call graph.
struct Facts {
    registers: Vec<Option<u32>>,
    frame_bytes: Vec<Option<u32>>,
    stack_bytes: Vec<Option<u32>>,
    /// Whether the function is recursive, calls a recursive function, or calls through pointers.
    unbounded: Vec<bool>,
    /// Largest frame of a function other than a kernel, by code section.
    callee_frame_bytes: Vec<u32>,
}

fn facts(elf: &Elf<'_>) -> Result<Facts, Error> {
    let symbols = elf.symbols.len();
    let mut facts = Facts {
        registers: vec![None; symbols],
        frame_bytes: vec![None; symbols],
        stack_bytes: vec![None; symbols],
        unbounded: vec![false; symbols],
        callee_frame_bytes: Vec::new(),
    };
    for section in elf.sections.iter().filter(|s| s.kind == elf::SHT_CUDA_INFO && s.info == 0) {
        for attribute in attributes(section) {
            let attribute = attribute?;
            let table = match attribute.number {
                info::REGCOUNT => &mut facts.registers,
                info::FRAME_SIZE => &mut facts.frame_bytes,
                info::MIN_STACK_SIZE => &mut facts.stack_bytes,
                _ => continue,
            };
            let [symbol, value] = attribute.words()?;
            let entry = usize::try_from(symbol).ok().and_then(|i| table.get_mut(i));
            *entry.ok_or_else(|| section.bad("an attribute names a symbol that does not exist"))? =
                Some(value);
        }
    }
    facts.callee_frame_bytes = callee_frames(elf, &facts.frame_bytes);
    for section in elf.sections.iter().filter(|s| s.kind == elf::SHT_CUDA_CALLGRAPH) {
        let unbounded = callgraph::unbounded(section, symbols)?;
        facts.unbounded.iter_mut().zip(unbounded).for_each(|(all, one)| *all |= one);
    }
    Ok(facts)
}

/// Start of the names of functions in a kernel's section: the compiler's helpers (`$__internal_`), such as the slow
/// path of a division, and functions that only this kernel calls (`$KERNEL$FUNCTION`). For sm_90, NVRTC 12.6 records
/// the frame of the kernel for them; their own is in the code.
const WITHIN: &str = "$";

/// Largest frame of a function other than a kernel, by code section: from the attributes, and from the code after the
/// kernel.
fn callee_frames(elf: &Elf<'_>, attributes: &[Option<u32>]) -> Vec<u32> {
    let mut frames = vec![0; elf.sections.len()];
    // Offset of the first such function. They follow the kernel.
    let mut starts: Vec<Option<u64>> = vec![None; elf.sections.len()];
    for (symbol, frame) in elf.symbols.iter().zip(attributes) {
        let section = usize::from(symbol.section);
        if symbol.kind == elf::STT_FUNC && symbol.other & elf::STO_CUDA_ENTRY == 0 && section < frames.len() {
            starts[section] = Some(starts[section].unwrap_or(u64::MAX).min(symbol.value));
            let own = frame.filter(|_| !symbol.name.starts_with(WITHIN)).unwrap_or(0);
            frames[section] = own.max(frames[section]);
        }
    }
    for ((section, start), frame) in elf.sections.iter().zip(starts).zip(&mut frames) {
        let code =
            start.filter(|_| section.is_code()).and_then(|at| section.data.get(usize::try_from(at).ok()?..));
        *frame = code.map_or(0, frames::frame_bytes).max(*frame);
    }
    frames
}

/// All sections that belong to one kernel.
#[derive(Clone, Default)]
struct Owned<'s, 'a> {
    info: Option<&'s Section<'a>>,
    constant0: Option<&'s Section<'a>>,
    shared: Option<&'s Section<'a>>,
    constants: Vec<ConstantBank>,
}

/// Groups sections by the code section that they belong to. Also returns the constant banks of the module.
fn owners<'s, 'a>(
    elf: &'s Elf<'a>,
    places: &[Option<u64>],
) -> Result<(Vec<Owned<'s, 'a>>, Vec<ConstantBank>), Error> {
    let mut owned = vec![Owned::default(); elf.sections.len()];
    let mut module = Vec::new();
    for (section, place) in elf.sections.iter().zip(places) {
        let slot = usize::try_from(section.info)
            .ok()
            .filter(|&i| elf.sections.get(i).is_some_and(Section::is_code))
            .and_then(|i| owned.get_mut(i));
        let bank = constant_bank(section.name);
        let single = match (slot, section.kind) {
            (Some(owner), elf::SHT_CUDA_INFO) => &mut owner.info,
            (Some(owner), elf::SHT_PROGBITS) if bank == Some(0) => &mut owner.constant0,
            (Some(owner), elf::SHT_NOBITS) if section.name.starts_with(".nv.shared.") => &mut owner.shared,
            (slot, elf::SHT_PROGBITS) => {
                if let (Some(bank), Some(offset)) = (bank, *place)
                    && section.bytes > 0
                {
                    // CAST: at most 64 KiB, as checked when it was placed.
                    let constant = ConstantBank { bank, offset, bytes: section.bytes as u32 };
                    slot.map_or(&mut module, |owner| &mut owner.constants).push(constant);
                }
                continue;
            }
            _ => continue,
        };
        if single.replace(section).is_some() {
            return Err(section.bad("its kernel has two of this kind"));
        }
    }
    Ok((owned, module))
}

fn kernels(elf: &Elf<'_>, places: &[Option<u64>], facts: &Facts) -> Result<Vec<Kernel>, Error> {
    let (owned, module) = owners(elf, places)?;
    let mut kernels = Vec::new();
    let mut seen = vec![false; elf.sections.len()];
    for (index, symbol) in elf.symbols.iter().enumerate() {
        if symbol.kind != elf::STT_FUNC || symbol.other & elf::STO_CUDA_ENTRY == 0 {
            continue;
        }
        let bad = |reason| Error::BadSymbol { symbol: symbol.name.to_string(), reason };
        let at = usize::from(symbol.section);
        let (section, place) = match (elf.sections.get(at), places.get(at).copied().flatten()) {
            (Some(section), Some(place)) if section.is_code() => (section, place),
            _ => return Err(bad("it is a kernel outside of any code section")),
        };
        // One kernel per section: the attributes and banks of several could not be distinguished.
        if core::mem::replace(&mut seen[at], true) {
            return Err(if kernels.iter().any(|k: &Kernel| k.name == symbol.name) {
                Error::DuplicateKernel { name: symbol.name.to_string() }
            } else {
                bad("it shares its code section with another kernel")
            });
        }
        let mut kernel =
            code_of(symbol, section, place).ok_or_else(|| bad("it reaches beyond its section"))?;
        kernel.registers = facts.registers[index]
            .or((section.info >> 24 != 0).then_some(section.info >> 24))
            .ok_or_else(|| Error::Incomplete { kernel: kernel.name.clone(), what: "register count" })?;
        stack(&mut kernel, facts, index, at);
        banks(&mut kernel, &owned[at], &module)?;
        if let Some(section) = owned[at].info {
            launch_attributes(&mut kernel, section)?;
        }
        if let Some(constant0) = owned[at].constant0 {
            references(&mut kernel, elf, constant0)?;
        }
        check_params(&kernel)?;
        kernels.push(kernel);
    }
    kernels.sort_by(|a, b| a.name.cmp(&b.name));
    match kernels.windows(2).find(|pair| pair[0].name == pair[1].name) {
        Some(pair) => Err(Error::DuplicateKernel { name: pair[0].name.clone() }),
        None => Ok(kernels),
    }
}

/// A kernel with the data of its symbol and code section; `None` if the symbol is not valid.
fn code_of(symbol: &Symbol<'_>, section: &Section<'_>, place: u64) -> Option<Kernel> {
    let end = symbol.value.checked_add(symbol.bytes)?;
    let whole =
        symbol.value.is_multiple_of(INSTRUCTION_BYTES) && symbol.bytes.is_multiple_of(INSTRUCTION_BYTES);
    if !whole || symbol.bytes == 0 || end > section.bytes {
        return None;
    }
    Some(Kernel {
        name: String::from(symbol.name),
        registers: 0,
        shared_bytes: 0,
        local_bytes: 0,
        unbounded_stack: false,
        max_threads: None,
        required_threads: None,
        cluster: None,
        // CAST: seven bits.
        barriers: (section.flags >> 20 & 0x7f) as u32,
        param_base: 0,
        param_bytes: 0,
        params: Vec::new(),
        constant0_bytes: 0,
        code_offset: place + symbol.value,
        code_bytes: symbol.bytes,
        constants: Vec::new(),
        references: Vec::new(),
    })
}

/// Name of constant bank 0 of a kernel, up to the kernel's name.
const CONSTANT0: &str = ".nv.constant0.";

/// The texture and surface references of a kernel: relocations of its constant bank 0.
fn references(kernel: &mut Kernel, elf: &Elf<'_>, constant0: &Section<'_>) -> Result<(), Error> {
    let is_own = |table: &&Section<'_>| {
        let target = usize::try_from(table.info).ok().and_then(|target| elf.sections.get(target));
        matches!(table.kind, elf::SHT_REL | elf::SHT_RELA)
            && target.is_some_and(|target| target.name == constant0.name)
    };
    for table in elf.sections.iter().filter(is_own) {
        if table.kind != elf::SHT_REL || !table.data.len().is_multiple_of(16) {
            return Err(table.bad("its entries are not those of a constant bank 0"));
        }
        for entry in table.data.chunks_exact(16) {
            // PANIC: an entry has 16 bytes.
            let (offset, info) = u64_at(entry, 0).zip(u64_at(entry, 8)).expect("inside of the entry");
            let section = || constant0.name.to_string();
            // CAST: the two halves of r_info.
            let (kind, symbol) = (info as u32, (info >> 32) as usize);
            // R_CUDA_TEX_HEADER_INDEX, R_CUDA_SURF_HEADER_INDEX.
            if !matches!(kind, 6 | 52) {
                return Err(Error::UnknownRelocation { section: section(), offset, kind });
            }
            let place = u32::try_from(offset).ok().filter(|at| {
                at.is_multiple_of(4) && at.checked_add(4).is_some_and(|end| end <= kernel.constant0_bytes)
            });
            let (Some(offset), Some(symbol)) = (place, elf.symbols.get(symbol)) else {
                let reason = "it lies outside of the section, or names no symbol";
                return Err(Error::BadRelocation { section: section(), offset, reason });
            };
            kernel.references.push(Reference { name: symbol.name.to_string(), offset, surface: kind == 52 });
        }
    }
    kernel.references.sort_by_key(|reference| reference.offset);
    if let Some(first) = kernel.references.first() {
        // A kernel without parameters.
        kernel.param_base = kernel.param_base.min(first.offset);
    }
    Ok(())
}

/// Stack size. The compiler marks a stack of unknown size with a minimum stack of all ones. If functions are compiled
/// into the kernel's own section, the call graph does not list them, and the minimum stack may be smaller than one of
/// their frames.
fn stack(kernel: &mut Kernel, facts: &Facts, symbol: usize, section: usize) {
    let own = facts.frame_bytes[symbol].unwrap_or(0);
    let least = facts.stack_bytes[symbol].filter(|&bytes| bytes != u32::MAX);
    let one_callee = match facts.callee_frame_bytes[section] {
        0 => 0,
        frame => own.saturating_add(frame),
    };
    let no_limit = least.is_none() && facts.stack_bytes[symbol].is_some();
    kernel.local_bytes = least.unwrap_or(0).max(own).max(one_callee);
    kernel.unbounded_stack = no_limit || facts.unbounded[symbol] || least.unwrap_or(0) < one_callee;
}

/// Constant banks and shared memory.
fn banks(kernel: &mut Kernel, owned: &Owned<'_, '_>, module: &[ConstantBank]) -> Result<(), Error> {
    let missing = || Error::Incomplete { kernel: kernel.name.clone(), what: "section .nv.constant0" };
    let constant0 = owned.constant0.ok_or_else(missing)?;
    kernel.constant0_bytes = u32::try_from(constant0.bytes)
        .ok()
        .filter(|&b| u64::from(b) <= MAX_CONSTANT_BYTES)
        .ok_or_else(|| constant0.bad("it is longer than the 64 KiB of a constant bank"))?;
    // A kernel without parameters has no attribute with their offset.
    kernel.param_base = kernel.constant0_bytes;
    if let Some(shared) = owned.shared {
        kernel.shared_bytes =
            u32::try_from(shared.bytes).map_err(|_| shared.bad("it is longer than 4 GiB"))?;
    }
    kernel.constants = owned.constants.iter().chain(module).copied().collect();
    kernel.constants.sort_by_key(|c| c.bank);
    if kernel.constants.windows(2).any(|pair| pair[0].bank == pair[1].bank) {
        return Err(constant0.bad("its kernel has two constant banks of one number"));
    }
    Ok(())
}

/// The kernel's own attribute list.
fn launch_attributes(kernel: &mut Kernel, section: &Section<'_>) -> Result<(), Error> {
    for attribute in attributes(section) {
        let attribute = attribute?;
        match attribute.number {
            info::MAX_THREADS => kernel.max_threads = Some(attribute.words()?),
            info::NUM_BARRIERS => kernel.barriers = attribute.byte()?.into(),
            info::REQNTID => kernel.required_threads = Some(attribute.words()?),
            info::CBANK_PARAM_SIZE => kernel.param_bytes = attribute.half()?.into(),
            info::PARAM_CBANK => {
                let [_symbol, place] = attribute.words()?;
                kernel.param_base = place & 0xffff;
                kernel.param_bytes = place >> 16;
            }
            info::CTA_PER_CLUSTER => kernel.cluster = Some(attribute.words()?),
            info::KPARAM_INFO | info::KPARAM_INFO_V2 => kernel.params.push(param(section, &attribute)?),
            _ => {}
        }
    }
    // The compiler lists parameters in reverse order.
    kernel.params.sort_by_key(|p| p.ordinal);
    Ok(())
}

/// A record of a parameter. Its words: index (0); ordinal and offset; in version 2 the size, otherwise alignment,
/// space, bank, and the size in bits 18 to 31.
///
/// It stays out of the loop over records: there, rustc 1.95 compiled the push of both versions so that all numbers of
/// version 2 were 0, with optimisation 2 and 3 and several codegen units.
#[inline(never)]
fn param(section: &Section<'_>, attribute: &info::Attribute<'_>) -> Result<Param, Error> {
    let [_index, place, size] = attribute.words()?;
    let bytes = if attribute.number == info::KPARAM_INFO { size >> 18 } else { size };
    let bytes = u16::try_from(bytes).map_err(|_| section.bad("a parameter is longer than 64 KiB"))?;
    // CAST: two 16-bit fields.
    Ok(Param { ordinal: place as u16, offset: (place >> 16) as u16, bytes })
}

fn check_params(kernel: &Kernel) -> Result<(), Error> {
    let bad = |reason| Err(Error::BadParameters { kernel: kernel.name.clone(), reason });
    if kernel.param_base.saturating_add(kernel.param_bytes) > kernel.constant0_bytes {
        return bad("they reach beyond constant bank 0");
    }
    let mut end = 0;
    for (position, param) in kernel.params.iter().enumerate() {
        if usize::from(param.ordinal) != position {
            return bad("their numbering has a gap");
        }
        if u32::from(param.offset) < end {
            return bad("they overlap");
        }
        end = u32::from(param.offset) + u32::from(param.bytes);
    }
    if end > kernel.param_bytes { bad("they reach beyond the parameter block") } else { Ok(()) }
}
