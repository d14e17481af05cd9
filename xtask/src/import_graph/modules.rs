//! The modules of a crate: their files and imports.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use proc_macro2::TokenStream;

use super::circles::Graph;
use super::paths::{Contents, Segments};

/// Maximum length of a chain of re-exports.
const DEPTH: usize = 16;

/// The modules of one crate.
pub(crate) struct Modules {
    /// Source files in declaration order, starting with the crate's root.
    files: Vec<PathBuf>,
    /// The module of each file.
    owners: Vec<Segments>,
    /// The file of each module; inline modules are in their parent's file.
    modules: BTreeMap<Segments, usize>,
    /// Contents of each file.
    contents: Vec<Contents>,
}

impl Modules {
    /// Reads the crate with the root file `root`, and the files that it declares.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, is not Rust, or declares a module without a file.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let mut crate_modules =
            Self { files: Vec::new(), owners: Vec::new(), modules: BTreeMap::new(), contents: Vec::new() };
        let folder = root.parent().unwrap_or(Path::new("."));
        crate_modules.read_file(root.to_owned(), Vec::new(), folder)?;
        Ok(crate_modules)
    }

    /// Reads the file of `module`. Its children are in `folder`.
    fn read_file(&mut self, file: PathBuf, module: Segments, folder: &Path) -> Result<()> {
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let tokens: TokenStream = text.parse().map_err(|error| anyhow!("{}: {error}", file.display()))?;
        let mut contents = Contents::read(tokens, &module);
        let index = self.files.len();
        self.files.push(file.clone());
        self.owners.push(module.clone());
        self.modules.insert(module.clone(), index);
        for inline in &contents.inline {
            self.modules.insert(inline.clone(), index);
        }
        let declarations = std::mem::take(&mut contents.declarations);
        self.contents.push(contents);
        for declaration in declarations {
            // Modules between the file's own and the declared one are folders.
            let inner: PathBuf = declaration.module[module.len()..].iter().collect();
            let own = folder.join(inner);
            let candidates = match &declaration.path {
                Some(path) => vec![file.parent().unwrap_or(Path::new(".")).join(path)],
                None => vec![own.with_extension("rs"), own.join("mod.rs")],
            };
            let found = candidates.iter().find(|candidate| candidate.is_file());
            let child = found.with_context(|| format!("{}: no file for {own:?}", file.display()))?.clone();
            let below = match &declaration.path {
                Some(_) => child.parent().unwrap_or(Path::new(".")).to_owned(),
                None => own,
            };
            self.read_file(child, declaration.module, &below)?;
        }
        Ok(())
    }

    /// All source files.
    pub(crate) fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// The files that each file imports, without its own descendants.
    pub(crate) fn imports(&self) -> Graph {
        let imports = self.contents.iter().enumerate().map(|(file, contents)| {
            let used = contents.mentions.iter().filter(|mention| match &mention.import {
                Some(import) => !import.is_public || contents.names.contains(&import.name),
                None => true,
            });
            let targets = used.filter_map(|mention| self.target(&mention.module, &mention.path, 0));
            targets
                .filter(|&other| !self.owners[other].starts_with(&self.owners[file]))
                .collect::<BTreeSet<usize>>()
        });
        imports.collect()
    }

    /// The file that defines the target of `path` in `module`; `None` if it is in another crate.
    fn target(&self, module: &[String], path: &[String], depth: usize) -> Option<usize> {
        let path = self.absolute(module, path)?;
        // PANIC: the crate's root, the empty path, is a module.
        let len =
            (0..=path.len()).rev().find(|&len| self.modules.contains_key(&path[..len])).expect("a root");
        let (module, rest) = path.split_at(len);
        let here = self.modules[module];
        let Some(name) = rest.first().filter(|_| depth < DEPTH) else { return Some(here) };
        if self.contents[here].defined.contains(&(module.to_vec(), name.clone())) {
            return Some(here);
        }
        // The module imports the name from elsewhere.
        let imports = self.contents[here].mentions.iter().filter(|mention| mention.module == module);
        for (mention, import) in
            imports.filter_map(|mention| mention.import.as_ref().map(|import| (mention, import)))
        {
            if import.name == *name {
                return self.target(module, &mention.path, depth + 1);
            }
            if import.name == "*" {
                let below = [mention.path.as_slice(), std::slice::from_ref(name)].concat();
                let found = self.target(module, &below, depth + 1);
                if found
                    .is_some_and(|file| self.contents[file].defined.iter().any(|(_, other)| other == name))
                {
                    return found;
                }
            }
        }
        Some(here)
    }

    /// The absolute path of `path` in `module`; `None` if it leads to another crate.
    fn absolute(&self, module: &[String], path: &[String]) -> Option<Segments> {
        let (first, mut rest) = path.split_first()?;
        let mut start = match first.as_str() {
            "crate" => Vec::new(),
            "self" => module.to_vec(),
            "super" => module[..module.len().checked_sub(1)?].to_vec(),
            name => self.named(module, name)?,
        };
        while let Some(("super", after)) = rest.split_first().map(|(word, after)| (word.as_str(), after)) {
            start.pop()?;
            rest = after;
        }
        start.extend_from_slice(rest);
        Some(start)
    }

    /// The module called `name` in `module`: a child, or one renamed by a `use`.
    fn named(&self, module: &[String], name: &str) -> Option<Segments> {
        let child = [module, &[name.to_owned()]].concat();
        if self.modules.contains_key(&child) {
            return Some(child);
        }
        let mentions = &self.contents[self.modules[module]].mentions;
        let mention = mentions.iter().find(|mention| {
            let import = mention.import.as_ref();
            mention.module == module
                && import.is_some_and(|import| import.name == name)
                && mention.path[0] != name
        })?;
        self.absolute(module, &mention.path).filter(|path| self.modules.contains_key(path))
    }
}
