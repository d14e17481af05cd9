//! Contents of a pack: files, checksums, archive.

use std::fmt::Write;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use clap::CommandFactory;
use orin_cli::Output;
use sha2::{Digest, Sha256};

use super::glibc::Version;
use super::library;

/// The examples in C.
const C_EXAMPLES: [&str; 3] = ["control_loop.c", "matmul.c", "vector_add.c"];
/// Modification time of every file in the archive unless `SOURCE_DATE_EPOCH` is set: the start of 1980, in
/// Unix seconds. Equal content gives equal archives.
const ARCHIVE_TIME: &str = "315532800";

/// Recipe of a container that has the static program and nothing else.
const CONTAINER: &str = "\
# podman build -t orin . && podman run --rm orin info --device sim
# On a Jetson: podman run --rm --device /dev/nvmap --device /dev/nvgpu --group-add keep-groups orin doctor
FROM scratch
COPY orin /orin
ENTRYPOINT [\"/orin\"]
";

/// A built program.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) content: Vec<u8>,
}

/// Contents of a pack.
#[derive(Debug)]
pub(super) struct Pack<'a> {
    /// Name of the folder, and of the archive without its extension.
    pub(super) name: &'a str,
    pub(super) triple: &'a str,
    /// The oldest glibc for its programs; `None` if they are static.
    pub(super) glibc: Option<Version>,
    pub(super) programs: &'a [Program],
    /// Completion scripts, manual pages and licences: file name and content.
    pub(super) documents: &'a [(String, Vec<u8>)],
    /// The C library and the CUDA library.
    pub(super) library: &'a [library::File],
}

/// The written files.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) folder: PathBuf,
    pub(super) files: usize,
    pub(super) archive: PathBuf,
    pub(super) archive_bytes: u64,
}

impl Pack<'_> {
    /// Writes folder and archive into `out` and replaces earlier ones, once the new
    /// ones are complete.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read or written, or `tar` or `gzip` fails.
    pub(super) fn write(&self, root: &Path, out: &Path) -> Result<Made> {
        let output = Output::prepare(out.join(format!("{}.tar.gz", self.name)))?;
        let staging =
            tempfile::Builder::new().prefix(".dist-").tempdir_in(out).context("creating a folder")?;
        let folder = staging.path().join(self.name);
        let mut names = self.fill(root, &folder)?;
        names.sort();
        let sums = check_sums(&folder, &names)?;
        put(&folder, "SHA256SUMS", sums.as_bytes(), 0o644)?;
        let archive_name = format!("{}.tar.gz", self.name);
        archive(staging.path(), self.name, &archive_name)?;

        let made = Made {
            folder: out.join(self.name),
            files: names.len() + 1,
            archive: out.join(&archive_name),
            archive_bytes: fs::metadata(staging.path().join(&archive_name))?.len(),
        };
        if made.folder.exists() {
            fs::remove_dir_all(&made.folder)
                .with_context(|| format!("replacing {}", made.folder.display()))?;
        }
        fs::rename(&folder, &made.folder).with_context(|| format!("writing {}", made.folder.display()))?;
        output.write(&fs::read(staging.path().join(&archive_name)).context("reading the archive")?)?;
        Ok(made)
    }

    /// Writes all files except the checksums; returns their names.
    fn fill(&self, root: &Path, folder: &Path) -> Result<Vec<String>> {
        let mut names = Vec::new();
        let mut add = |name: String, content: &[u8], mode| {
            put(folder, &name, content, mode)?;
            names.push(name);
            anyhow::Ok(())
        };
        for program in self.programs {
            add(program.name.to_owned(), &program.content, 0o755)?;
        }
        for (name, content) in self.documents {
            add(name.clone(), content, 0o644)?;
        }
        for (name, content, mode) in self.library {
            add(name.clone(), content, *mode)?;
        }
        if self.glibc.is_some() {
            for name in C_EXAMPLES {
                add(format!("c/{name}"), &read(&root.join("examples/c").join(name))?, 0o644)?;
            }
            library::link(&folder.join(library::LIB))?;
        } else {
            add("Containerfile".to_owned(), CONTAINER.as_bytes(), 0o644)?;
        }
        for entry in fs::read_dir(root.join("kernels")).context("reading the folder kernels")? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "cubin") {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                add(format!("kernels/{name}"), &read(&path)?, 0o644)?;
            }
        }
        for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
            add(name.to_owned(), &read(&root.join(name))?, 0o644)?;
        }
        add("README.md".to_owned(), self.readme().as_bytes(), 0o644)?;
        Ok(names)
    }

    /// The README of the pack.
    fn readme(&self) -> String {
        let Self { name, triple, .. } = self;
        let tool = orin_tool::Cli::command();
        let mut commands = String::new();
        let mut list = |program: &str, command: &clap::Command| {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            // Writing to a String cannot fail.
            let _ = writeln!(commands, "- `./{program} {}`: {about}", command.get_name());
        };
        tool.get_subcommands()
            .filter(|command| !command.is_hide_set())
            .for_each(|command| list("orin", command));
        let own = if self.glibc.is_some() { "orin-dev" } else { "orin" };
        crate::board_commands().iter().for_each(|command| list(own, command));
        let Some(glibc) = self.glibc else {
            return static_readme(name, triple, &commands);
        };
        format!(
            "# {name}

Drives the GPU of an NVIDIA Jetson Orin without CUDA. These programs are for {triple}
and need glibc {glibc} or newer and libgcc (part of every Ubuntu). Check the files with `sha256sum -c SHA256SUMS`.

## First steps

On a Jetson with JetPack 6 your user must be in group `video` (`sudo usermod -aG video $USER`, then log in
again). Without an Orin, the programs use the software Orin, a model of its GPU, and say so.

```console
$ ./orin bring-up         # the first command on a board: runs the driver's first steps and writes a report
$ ./orin doctor           # checks everything that a launch needs, and says how to fix what is missing
$ ./vector_add            # adds two vectors on the GPU and checks the sum
$ ./orin-dev test-device  # runs the device tests; takes minutes
$ ./orin-dev bench        # measures launches, copies, graphs and memory
```

## Commands

{commands}
`--help` describes the options of each command. Where a message says `cargo xtask`, use `./orin-dev`, or `./orin` if
it has the command.
`completions/` has completion scripts of `orin` for bash, fish and zsh; `man -l man/orin.1` shows its manual page.

## Examples

- `./vector_add` adds two vectors.
- `./from_source` compiles a kernel, if NVRTC is installed, and runs it.
- `./control_loop` steers a simulated mass with a neural network and measures each cycle.
- `./real_time` runs a periodic loop as a real-time thread and measures how late it wakes.

`./orin run` runs any kernel of a cubin for `sm_87`, for example one of `kernels/`:

```console
$ head -c 4000 /dev/zero > x.bin
$ ./orin run --cubin kernels/saxpy.cubin --kernel saxpy --grid 4 --block 256 \\
      --arg f32:2 --arg in:x.bin --arg inout:x.bin:y.bin --arg u32:1000
```

`orin cuda` runs programs that use CUDA's driver API (numba, Triton, tinygrad, C), with the library in
`lib/orin/cuda`:

```console
$ ./orin cuda -- python3 train.py
```

`lib/` and `include/` are the C library; `c/` has two programs for it:

```console
$ cc c/vector_add.c -o vector_add_c -Iinclude -Llib -ltegra_hcq -Wl,-rpath,'$ORIGIN/lib'
$ ./vector_add_c kernels/vector_add.cubin
```

Exit codes: 0 success, 1 failure, 2 usage error.

Licence: MIT OR Apache-2.0, at your option; see the files LICENSE-MIT and LICENSE-APACHE.
"
        )
    }
}

/// The README of a pack with one static program.
fn static_readme(name: &str, triple: &str, commands: &str) -> String {
    format!(
        "# {name}

`orin` drives the GPU of an NVIDIA Jetson Orin without CUDA. This program is for {triple}
and needs nothing but a Linux kernel: no C library, no loader, no other file. Check the files with
`sha256sum -c SHA256SUMS`.

On a Jetson your user needs read and write access to /dev/nvmap and to the nodes below /dev/nvgpu/igpu0. Without an
Orin, the program uses the software Orin, a model of its GPU, and says so.

```console
$ ./orin bring-up         # the first command on a board: runs the driver's first steps and writes a report
$ ./orin doctor           # checks everything that a launch needs, and says how to fix what is missing
$ ./orin test-device      # runs the device tests; takes minutes
$ ./orin bench            # measures launches, copies, graphs and memory
```

A static program cannot load libraries, so `./orin compile` and everything else that compiles CUDA C++ or PTX fails at
once with an error that says so; cubins run. There is no static CUDA library either: `./orin cuda` needs that of another
pack, by `ORIN_LIBCUDA`. `Containerfile` makes an image of the program alone.

## Commands

{commands}
`--help` describes the options of each command. Where a message says `cargo xtask` or `orin-dev`, use `./orin`.

Exit codes: 0 success, 1 failure, 2 usage error.

Licence: MIT OR Apache-2.0, at your option; see the files LICENSE-MIT and LICENSE-APACHE.
"
    )
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("reading {}", path.display()))
}

/// Writes one file of the pack with a fixed mode.
pub(super) fn put(folder: &Path, name: &str, content: &[u8], mode: u32) -> Result<()> {
    let path = folder.join(name);
    let parent = path.parent().unwrap_or(folder);
    let written = fs::create_dir_all(parent)
        .and_then(|()| fs::set_permissions(parent, Permissions::from_mode(0o755)))
        .and_then(|()| fs::write(&path, content))
        .and_then(|()| fs::set_permissions(&path, Permissions::from_mode(mode)));
    written.with_context(|| format!("writing {}", path.display()))
}

/// A line per file, as `sha256sum -c` reads it.
fn check_sums(folder: &Path, names: &[String]) -> Result<String> {
    let mut text = String::new();
    for name in names {
        for byte in Sha256::digest(read(&folder.join(name))?) {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        let _ = writeln!(text, "  {name}");
    }
    Ok(text)
}

/// Packs the folder `name` of `place`: sorted, without owners, with one modification time.
fn archive(place: &Path, name: &str, archive_name: &str) -> Result<()> {
    let time = std::env::var("SOURCE_DATE_EPOCH").unwrap_or_else(|_| ARCHIVE_TIME.to_owned());
    let mut tar = Command::new("tar");
    tar.current_dir(place).args(["--create", "--format=ustar", "--sort=name", "--numeric-owner"]);
    tar.args(["--owner=0", "--group=0", &format!("--mtime=@{time}"), "--use-compress-program=gzip -n -9"]);
    tar.arg(format!("--file={archive_name}")).arg(name);
    xtask::workspace::run_command(&mut tar)
        .context("packing with GNU tar and gzip (apt-get install tar gzip)")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
    }

    fn write(out: &Path) -> Made {
        let programs = [
            Program { name: "orin-dev", content: b"first".to_vec() },
            Program { name: "vector_add", content: b"second".to_vec() },
        ];
        let glibc = Some(Version::new(2, 34));
        let documents = [("man/orin.1".to_owned(), b"page".to_vec())];
        let triple = "aarch64-unknown-linux-gnu";
        let library = [("lib/libtegra_hcq.so.1".to_owned(), b"library".to_vec(), 0o755)];
        let pack = Pack {
            name: "pack-1.0",
            triple,
            glibc,
            programs: &programs,
            documents: &documents,
            library: &library,
        };
        pack.write(workspace(), out).unwrap()
    }

    #[test]
    fn a_pack_is_complete_and_its_checksums_match() {
        let out = tempfile::tempdir().unwrap();
        let made = write(out.path());
        for name in [
            "orin-dev",
            "man/orin.1",
            "c/vector_add.c",
            "kernels/saxpy.cubin",
            "LICENSE-MIT",
            "LICENSE-APACHE",
            "README.md",
        ] {
            assert!(made.folder.join(name).is_file(), "{name}");
        }
        assert_eq!(fs::read(made.folder.join("lib/libtegra_hcq.so")).unwrap(), b"library");
        let mode = |name| fs::metadata(made.folder.join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("orin-dev"), mode("README.md"), mode("kernels")), (0o755, 0o644, 0o755));
        let sums = fs::read_to_string(made.folder.join("SHA256SUMS")).unwrap();
        assert_eq!(sums.lines().count() + 1, made.files);
        let check = Command::new("sha256sum")
            .args(["-c", "--quiet", "SHA256SUMS"])
            .current_dir(&made.folder)
            .status();
        assert!(check.unwrap().success());
        let left: Vec<_> =
            fs::read_dir(out.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "folder and archive, nothing else: {left:?}");
    }

    #[test]
    fn equal_content_makes_equal_archives_and_other_files_stay() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let archive = fs::read(write(first.path()).archive).unwrap();
        fs::write(second.path().join("precious"), "x").unwrap();
        fs::create_dir(second.path().join("pack-1.0")).unwrap();
        fs::write(second.path().join("pack-1.0/stale"), "x").unwrap();
        let made = write(second.path());
        assert!(archive == fs::read(made.archive).unwrap(), "two packs of the same files differ");
        assert!(!made.folder.join("stale").exists() && second.path().join("precious").exists());
    }

    #[test]
    fn the_readme_names_what_works_on_a_board() {
        let glibc = Some(Version::new(2, 34));
        let pack = Pack { name: "p", triple: "t", glibc, programs: &[], documents: &[], library: &[] };
        let readme = pack.readme();
        for part in [
            "glibc 2.34",
            "./orin doctor",
            "./orin dmesg",
            "./orin-dev test-device",
            "./orin-dev bench",
            "./orin run",
            "./orin cuda -- ",
        ] {
            assert!(readme.contains(part), "{part}: {readme}");
        }
        for command in crate::FOR_THE_WORKSPACE {
            assert!(!readme.contains(&format!("`./orin-dev {command}`")), "{command} needs the sources");
        }
        let readme = Pack { glibc: None, ..pack }.readme();
        assert!(!readme.contains("glibc") && !readme.contains("./orin-dev"), "{readme}");
        assert!(
            readme.contains("- `./orin test-device`: ") && readme.contains("- `./orin info`: "),
            "{readme}"
        );
    }
}
