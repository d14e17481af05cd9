//! A build script with its options on the command line, for the tests of the crate:
//! `build_script FOLDER [-DMACRO] [-IFOLDER] [--committed=FOLDER] [--name=NAME] [--arch=SM] SOURCE ...`.

use orin_build::{Error, Kernels};

fn main() -> Result<(), Error> {
    let mut words = std::env::args().skip(1);
    let mut kernels = Kernels::new().out_dir(words.next().unwrap_or_default());
    for word in words {
        kernels = match word.split_at_checked(2) {
            Some(("-D", text)) => kernels.define(text),
            Some(("-I", folder)) => kernels.include(folder),
            _ => match word.split_once('=') {
                Some(("--committed", folder)) => kernels.committed(folder),
                Some(("--name", name)) => kernels.name(name),
                Some(("--arch", arch)) => kernels.arch(arch),
                _ => kernels.file(word),
            },
        };
    }
    kernels.compile()
}
