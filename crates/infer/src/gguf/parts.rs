//! Models in several files.

use std::path::{Path, PathBuf};

use super::{Data, File, PartFault};
use crate::error::{Error, Result};

/// Which of how many files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// From 0 on.
    number: u16,
    count: u16,
}

impl File {
    /// Which of several files this is; `None` if the model has one.
    pub(super) fn part(&self) -> Result<Option<Part>> {
        let count = self.integer("split.count")?.unwrap_or(0);
        let number = self.integer("split.no")?.unwrap_or(0);
        Ok((count > 1).then_some(Part { number, count }))
    }
}

/// The end of a file's name.
fn suffix(Part { number, count }: Part) -> String {
    format!("-{:05}-of-{count:05}.gguf", u32::from(number) + 1)
}

/// Opens the others of the files to which `file` at `path` belongs.
pub(super) fn open(path: &Path, file: File, part: Part) -> Result<File> {
    let refused = |path: &Path, fault| Error::Part { path: path.to_owned(), fault };
    let name = path.file_name().and_then(|name| name.to_str());
    let Some(stem) = name.and_then(|name| name.strip_suffix(&suffix(part))) else {
        return Err(refused(path, PartFault::Name { suffix: suffix(part) }));
    };
    let path_of = |number: u16| -> PathBuf {
        path.with_file_name(format!("{stem}{}", suffix(Part { number, ..part })))
    };
    let mut given = Some(file);
    let mut whole: Option<File> = None;
    for number in 0..part.count {
        let path = path_of(number);
        let mut file = match given.take_if(|_| number == part.number) {
            Some(file) => file,
            None => {
                let in_part = |error| match error {
                    Error::Gguf { .. } => refused(&path, PartFault::Damaged(Box::new(error))),
                    error => error,
                };
                let (header, data) = Data::open(&path).map_err(in_part)?;
                File::of(header, data)
            }
        };
        let own = file.part()?;
        if own != Some(Part { number, ..part }) {
            let (own, count) = own.map_or((1, 1), |own| (u32::from(own.number) + 1, own.count));
            return Err(refused(&path, PartFault::Number { number: own, count }));
        }
        match &mut whole {
            None => whole = Some(file),
            Some(whole) => {
                for (name, (_, info)) in core::mem::take(&mut file.tensors) {
                    if whole.tensors.insert(name.clone(), (whole.parts.len(), info)).is_some() {
                        return Err(refused(&path, PartFault::DuplicateTensor(name)));
                    }
                }
                whole.order.append(&mut file.order);
                whole.parts.append(&mut file.parts);
            }
        }
    }
    // PANIC: there are at least two parts.
    let whole = whole.expect("a part");
    match whole.integer::<usize>("split.tensors.count")? {
        Some(count) if count != whole.order.len() => {
            let found = whole.order.len();
            Err(refused(&path_of(0), PartFault::Tensors { count, found }))
        }
        _ => Ok(whole),
    }
}
