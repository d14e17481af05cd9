//! Files of CUDA C++ or PTX: what `orin compile` and build scripts compile.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cubin::FileKind;

use crate::error::{RequestError, Result};
use crate::{Compiled, Compiler, JitOptions, LinkInput, Linker, Source, includes};

/// The architectures whose cubins this project loads: name, and major and minor SM version.
pub const ARCHITECTURES: [(&str, (u32, u32)); 5] =
    [("sm_80", (8, 0)), ("sm_86", (8, 6)), ("sm_87", (8, 7)), ("sm_89", (8, 9)), ("sm_90", (9, 0))];

/// Spellings of NVRTC's option for line information.
const LINE_INFO: [&str; 2] = ["--generate-line-info", "-lineinfo"];

/// An architecture, `sm_87` or `87`, as major and minor SM version.
///
/// # Errors
///
/// A text that lists the known architectures.
///
/// ```
/// assert_eq!(orin_compile::architecture("sm_87"), Ok((8, 7)));
/// assert_eq!(
///     orin_compile::architecture("sm_72").unwrap_err(),
///     "known architectures are sm_80, sm_86, sm_87, sm_89, sm_90"
/// );
/// ```
pub fn architecture(text: &str) -> Result<(u32, u32), String> {
    let found = ARCHITECTURES.iter().find(|(name, _)| *name == text || name[3..] == *text);
    let all = ARCHITECTURES.map(|(name, _)| name).join(", ");
    found.map(|(_, sm)| *sm).ok_or_else(|| format!("known architectures are {all}"))
}

/// How to compile a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileOptions {
    /// Folders that are searched for headers, before those of CUDA.
    pub include: Vec<PathBuf>,
    /// Macros: `NAME` or `NAME=VALUE`.
    pub define: Vec<String>,
    /// Record file and line of each instruction.
    pub line_info: bool,
    /// Further options, in the spelling of NVRTC or, for PTX, of nvJitLink.
    pub other: Vec<String>,
}

impl FileOptions {
    /// Compiles CUDA C++ with [`Compiler::shared`], or PTX, which is recognised by its contents, with
    /// [`Linker::shared`]. `name` identifies the file in messages and in line information; includes in quotes are
    /// searched in its folder.
    ///
    /// # Errors
    ///
    /// Those of [`Compiler::load`], [`Compiler::compile`] and [`Linker::link`]; [`RequestError::PtxOptions`] for PTX
    /// with folders or macros.
    pub fn compile(&self, name: &str, text: &str, sm: (u32, u32)) -> Result<Compiled> {
        if FileKind::of(text.as_bytes()) == FileKind::Ptx {
            return self.link(name, text, sm);
        }
        let source = Source::new(text).name(name);
        let source = self.spelled().into_iter().fold(source, |source, option| source.option(option));
        Compiler::shared()?.compile(&source, sm)
    }

    fn link(&self, name: &str, text: &str, sm: (u32, u32)) -> Result<Compiled> {
        if !self.include.is_empty() || !self.define.is_empty() {
            return Err(RequestError::PtxOptions.into());
        }
        let options = JitOptions {
            line_info: self.has_line_info(),
            other: self.other.clone(),
            ..JitOptions::default()
        };
        Linker::shared().link(&[LinkInput { name, data: text.as_bytes() }], &options, sm)
    }

    /// Whether to add the option: the compilers refuse it twice.
    fn has_line_info(&self) -> bool {
        self.line_info && !self.other.iter().any(|option| LINE_INFO.contains(&option.as_str()))
    }

    /// The options in NVRTC's spelling.
    pub fn spelled(&self) -> Vec<String> {
        let mut options = Vec::new();
        options.extend(self.include.iter().map(|folder| format!("--include-path={}", folder.display())));
        options.extend(self.define.iter().map(|text| format!("--define-macro={text}")));
        options.extend(self.has_line_info().then(|| LINE_INFO[0].to_owned()));
        options.extend_from_slice(&self.other);
        options
    }

    /// The files that a source with this name may include, by path, with their contents. CUDA's own headers are not
    /// among them. `None` if they cannot be determined: an include by macro, an option that reads other files.
    pub fn includes(&self, name: &str, text: &str) -> Option<BTreeMap<PathBuf, Vec<u8>>> {
        includes::files(name, [text], &self.spelled(), &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_are_those_whose_cubins_are_loaded() {
        assert_eq!((architecture("sm_87"), architecture("90")), (Ok((8, 7)), Ok((9, 0))));
        for text in ["sm_", "sm_8", "compute_87", "", "sm_8x", "sm_72", "sm_99", "sm_087"] {
            let error = architecture(text).unwrap_err();
            assert_eq!(error, "known architectures are sm_80, sm_86, sm_87, sm_89, sm_90", "{text}");
        }
    }
}
