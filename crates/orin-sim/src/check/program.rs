//! What a loaded cubin says about its code: kernels, parameters and source lines.

use cubin::{Contents, Cubin};
use gimli::{DebugLine, DebugLineOffset, LittleEndian};

/// A function of an image.
#[derive(Debug)]
struct Function {
    name: String,
    /// Offset in the image in bytes.
    offset: u64,
    bytes: u64,
}

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
    function: Function,
    parameters: Vec<Parameter>,
}

/// A row of the line table: the source of the instructions from `offset` on.
#[derive(Debug)]
struct Line {
    /// Index of the kernel.
    kernel: usize,
    /// Offset in the kernel.
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
#[derive(Debug)]
pub(super) struct Image {
    kernels: Vec<Kernel>,
    /// Variables in global memory, by offset.
    pub(super) variables: Vec<Variable>,
    files: Vec<String>,
    /// By kernel and offset.
    lines: Vec<Line>,
}

impl Image {
    /// Reads a cubin; `None` if it cannot be parsed.
    pub(super) fn of(file: &[u8]) -> Option<Self> {
        let cubin = Cubin::parse(file).ok()?;
        let kernels: Vec<Kernel> = cubin
            .kernels()
            .iter()
            .map(|kernel| Kernel {
                function: Function {
                    name: kernel.name.clone(),
                    offset: kernel.code_offset,
                    bytes: kernel.code_bytes,
                },
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
        let mut image = Self { kernels, variables, files: Vec::new(), lines: Vec::new() };
        // A program without line information has no such section.
        let _ = image.read_lines(file);
        image.lines.sort_by_key(|line| (line.kernel, line.offset));
        Some(image)
    }

    /// Reads the line table. Relocations give the first address of each sequence the number of its kernel.
    fn read_lines(&mut self, file: &[u8]) -> Option<()> {
        let contents = Contents::read(file).ok()?;
        let index = contents.sections.iter().position(|section| section.name == ".debug_line")?;
        let mut bytes = file.get(contents.sections[index].range.clone()?)?.to_vec();
        for relocation in contents.relocations.iter().filter(|relocation| relocation.section == index) {
            let symbol = contents.symbols.get(usize::try_from(relocation.symbol).ok()?)?;
            let kernel = self.kernels.iter().position(|kernel| kernel.function.name == symbol.name);
            let number = kernel.map_or(u64::from(u32::MAX), |kernel| kernel as u64);
            let at = usize::try_from(relocation.offset).ok()?;
            bytes.get_mut(at..at.checked_add(8)?)?.copy_from_slice(&(number << 32).to_le_bytes());
        }
        let section = DebugLine::new(&bytes, LittleEndian);
        let mut at = 0;
        while at < bytes.len() {
            let program = section.program(DebugLineOffset(at), 8, None, None).ok()?;
            // Version 2 has a length of 32 bits before what it counts.
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
            let kernel = usize::try_from(row.address() >> 32).ok()?;
            if row.end_sequence() || kernel >= self.kernels.len() {
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
            self.lines.push(Line { kernel, offset: row.address() & 0xffff_ffff, file, line });
        }
        Some(())
    }

    fn kernel(&self, offset: u64) -> Option<usize> {
        self.kernels.iter().position(|Kernel { function, .. }| {
            offset.checked_sub(function.offset).is_some_and(|within| within < function.bytes)
        })
    }

    /// Name of the function at an offset of the image, and the offset in it.
    pub(super) fn function(&self, offset: u64) -> Option<(&str, u64)> {
        let Kernel { function, .. } = &self.kernels[self.kernel(offset)?];
        Some((&function.name, offset - function.offset))
    }

    /// Source file and line of the instruction at an offset of the image.
    pub(super) fn line(&self, offset: u64) -> Option<(&str, u32)> {
        let kernel = self.kernel(offset)?;
        let within = offset - self.kernels[kernel].function.offset;
        let after = self.lines.partition_point(|line| (line.kernel, line.offset) <= (kernel, within));
        let line = self.lines.get(after.checked_sub(1)?).filter(|line| line.kernel == kernel)?;
        Some((&self.files[line.file], line.line))
    }

    /// Parameters of the kernel at an offset of the image.
    pub(super) fn parameters(&self, offset: u64) -> Option<&[Parameter]> {
        Some(&self.kernels[self.kernel(offset)?].parameters)
    }
}
