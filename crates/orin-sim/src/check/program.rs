//! Metadata of a loaded cubin: kernels, parameters and source lines.

use cubin::{Contents, Cubin, Function};
use gimli::{DebugLine, DebugLineOffset, LittleEndian};

use super::finding::Located;

/// Base of the addresses of functions that are not loaded. An image has at most 4 GiB.
const NOWHERE: u64 = 1 << 40;

/// A parameter of a kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameter {
    /// Offset in constant bank 0 in bytes.
    pub(super) offset: u32,
    /// Size in bytes.
    pub(super) bytes: u32,
}

/// A kernel of an image.
#[derive(Debug)]
struct Kernel {
    /// Offset of its code in the image in bytes.
    offset: u64,
    bytes: u64,
    parameters: Vec<Parameter>,
}

/// A row of the line table: the source of the instructions from `offset` on.
#[derive(Debug)]
struct Line {
    /// Offset in the image.
    offset: u64,
    /// Index in the files.
    file: usize,
    line: u32,
}

/// A variable of an image.
#[derive(Debug)]
pub(super) struct Variable {
    pub(super) name: String,
    /// Offset in the image in bytes.
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// A loaded image.
#[derive(Debug, Default)]
pub(crate) struct Image {
    kernels: Vec<Kernel>,
    /// By offset.
    functions: Vec<Function>,
    /// Variables in global memory, by offset.
    pub(super) variables: Vec<Variable>,
    /// `__constant__` variables, by offset in their bank.
    constants: Vec<Variable>,
    files: Vec<String>,
    /// By offset.
    lines: Vec<Line>,
}

impl Image {
    /// Reads a cubin; `None` if it cannot be parsed.
    pub(crate) fn of(file: &[u8]) -> Option<Self> {
        let cubin = Cubin::parse(file).or_else(|_| Cubin::parse_object(file)).ok()?;
        let kernels: Vec<Kernel> = cubin
            .kernels()
            .iter()
            .map(|kernel| Kernel {
                offset: kernel.code_offset,
                bytes: kernel.code_bytes,
                parameters: kernel
                    .params
                    .iter()
                    .map(|param| Parameter {
                        offset: kernel.param_base + u32::from(param.offset),
                        bytes: param.bytes.into(),
                    })
                    .collect(),
            })
            .collect();
        let globals = cubin.globals().iter().filter(|global| global.space == cubin::Space::Global);
        let mut variables: Vec<Variable> = globals
            .map(|global| Variable { name: global.name.clone(), offset: global.offset, bytes: global.bytes })
            .collect();
        variables.sort_by_key(|variable| variable.offset);
        let bank = cubin.kernels().iter().find_map(|kernel| kernel.constant(3)).map_or(0, |bank| bank.offset);
        let constants = cubin.globals().iter().filter(|global| global.space == cubin::Space::Constant);
        let in_bank = |global: &cubin::Global| {
            let offset = global.offset.checked_sub(bank)?;
            Some(Variable { name: global.name.clone(), offset, bytes: global.bytes })
        };
        let mut constants: Vec<Variable> = constants.filter_map(in_bank).collect();
        constants.sort_by_key(|variable| variable.offset);
        let functions = cubin.functions().to_vec();
        let mut image =
            Self { kernels, functions, variables, constants, files: Vec::new(), lines: Vec::new() };
        // A program without line information has no such section.
        let _ = image.read_lines(file);
        image.lines.sort_by_key(|line| line.offset);
        Some(image)
    }

    /// Reads the line table. Relocations give the first address of each sequence the offset of its function.
    fn read_lines(&mut self, file: &[u8]) -> Option<()> {
        let contents = Contents::read(file).ok()?;
        let index = contents.sections.iter().position(|section| section.name == ".debug_line")?;
        let mut bytes = file.get(contents.sections[index].range.clone()?)?.to_vec();
        for relocation in contents.relocations.iter().filter(|relocation| relocation.section == index) {
            let symbol = contents.symbols.get(usize::try_from(relocation.symbol).ok()?)?;
            let function = self.functions.iter().find(|function| function.name == symbol.name);
            let offset = function.map_or(NOWHERE, |function| function.offset);
            let at = usize::try_from(relocation.offset).ok()?;
            bytes.get_mut(at..at.checked_add(8)?)?.copy_from_slice(&offset.to_le_bytes());
        }
        let section = DebugLine::new(&bytes, LittleEndian);
        let mut at = 0;
        while at < bytes.len() {
            let program = section.program(DebugLineOffset(at), 8, None, None).ok()?;
            // Version 2 begins with a 32-bit length, which does not include itself.
            at += 4 + program.header().unit_length();
            self.read_rows(program)?;
        }
        Some(())
    }

    fn read_rows(
        &mut self,
        program: gimli::IncompleteLineProgram<gimli::EndianSlice<'_, LittleEndian>>,
    ) -> Option<()> {
        let header = program.header().clone();
        let mut rows = program.rows();
        while let Ok(Some((_, row))) = rows.next_row() {
            if row.end_sequence() || row.address() >= NOWHERE {
                continue;
            }
            let (Some(line), Some(entry)) = (row.line(), row.file(&header)) else { continue };
            let gimli::AttributeValue::String(name) = entry.path_name() else { continue };
            let name = name.to_string_lossy();
            let file = self.files.iter().position(|file| *file == name).unwrap_or_else(|| {
                self.files.push(name.into_owned());
                self.files.len() - 1
            });
            let line = u32::try_from(line.get()).ok()?;
            self.lines.push(Line { offset: row.address(), file, line });
        }
        Some(())
    }

    /// The innermost function at an offset of the image.
    fn innermost(&self, offset: u64) -> Option<&Function> {
        let after = self.functions.partition_point(|function| function.offset <= offset);
        self.functions[..after].iter().rev().find(|function| offset - function.offset < function.bytes)
    }

    /// Name of the function at an offset of the image, and the offset in it.
    pub(crate) fn function(&self, offset: u64) -> Option<(&str, u64)> {
        let function = self.innermost(offset)?;
        Some((&function.name, offset - function.offset))
    }

    /// The offsets of the innermost function at an offset of the image.
    pub(crate) fn extent(&self, offset: u64) -> Option<core::ops::Range<u64>> {
        let function = self.innermost(offset)?;
        Some(function.offset..function.offset + function.bytes)
    }

    /// Source file and line of the instruction at an offset of the image.
    pub(crate) fn line(&self, offset: u64) -> Option<(&str, u32)> {
        let after = self.lines.partition_point(|line| line.offset <= offset);
        let line = &self.lines[after.checked_sub(1)?];
        // A kernel without lines must not get those of the one before it.
        let same = |function: &&Function| (function.offset..=offset).contains(&line.offset);
        let inside = |function: &&Function| offset - function.offset < function.bytes;
        let around = self.functions.iter().filter(|function| function.offset <= offset);
        around.filter(inside).find(same)?;
        Some((&self.files[line.file], line.line))
    }

    /// The instruction at an offset of the image; `None` outside of functions. `disassemble` gets its offset in the
    /// function.
    pub(crate) fn locate(&self, offset: u64, disassemble: impl FnOnce(u64) -> String) -> Option<Located> {
        let (function, within) = self.function(offset)?;
        let line = self.line(offset);
        Some(Located {
            kernel: function.to_owned(),
            offset: within,
            instruction: disassemble(within),
            file: line.map(|(file, _)| file.to_owned()),
            line: line.map(|(_, line)| line),
        })
    }

    /// The `__constant__` variables, by offset in their bank.
    pub(super) fn constants(&self) -> &[Variable] {
        &self.constants
    }

    /// Parameters of the kernel at an offset of the image.
    pub(super) fn parameters(&self, offset: u64) -> Option<&[Parameter]> {
        let inside = |kernel: &&Kernel| (kernel.offset..kernel.offset + kernel.bytes).contains(&offset);
        Some(&self.kernels.iter().find(inside)?.parameters)
    }
}
