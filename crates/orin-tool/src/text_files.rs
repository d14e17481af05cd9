//! A machine of text files, for tests.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use nvgpu_channel::system::{Identity, Permissions, System};

/// Texts by path. Every other path is absent, and nothing can be written.
#[derive(Debug, Default)]
pub(crate) struct Files(pub(crate) BTreeMap<&'static str, &'static str>);

impl System for Files {
    fn read(&self, path: &Path) -> io::Result<String> {
        let text = self.0.get(path.to_str().unwrap_or_default());
        text.map(|text| (*text).to_owned()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn write(&self, _: &Path, _: &str) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn list(&self, _: &Path) -> io::Result<Vec<String>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn link(&self, _: &Path) -> io::Result<PathBuf> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn permissions(&self, _: &Path) -> io::Result<Permissions> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn identity(&self) -> Identity {
        Identity::default()
    }
}
