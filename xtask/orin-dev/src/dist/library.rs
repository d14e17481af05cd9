//! The C library and the CUDA library: built for a target, and laid out as files below a prefix.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, ensure};
use orin_cli::{UsageError, say};

use super::pack::put;
use super::toolchain::{Target, Toolchain};
use super::{BOARD_GLIBC, check_place, glibc};
use xtask::workspace;

/// Name of the shared library that programs look for when they start; `build.rs` of the crate stores it in the library.
const SONAME: &str = "libtegra_hcq.so.1";
/// Name that the linker looks for.
const LINK_NAME: &str = "libtegra_hcq.so";
/// What a program needs in addition if it is linked with the archive.
const STATIC_LIBS: &str = "-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc";

/// Where `orin cuda` looks for the CUDA library, below the prefix of `orin`. The dynamic linker does not search there,
/// so a program gets this library instead of NVIDIA's only if it is asked for.
pub(super) const CUDA: &str = "lib/orin/cuda/libcuda.so.1";
/// Where it looks for CUDA's run-time library and for cuBLAS, in both versions each.
pub(super) const CUDA_LIBRARIES: [[&str; 2]; 2] = [
    ["lib/orin/cuda/libcudart.so.12", "lib/orin/cuda/libcudart.so.13"],
    ["lib/orin/cuda/libcublas.so.12", "lib/orin/cuda/libcublas.so.13"],
];

/// The folder of libraries below a prefix, unless the user names another one.
pub(super) const LIB: &str = "lib";

/// Options of the command.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Folder for include/, lib/, lib/pkgconfig/ and lib/orin/cuda/, for example /usr/local; created if missing
    #[arg(long, value_name = "DIR")]
    prefix: PathBuf,
    /// The folder below the prefix that gets the C library and pkgconfig/, for example lib64 or lib/aarch64-linux-gnu
    #[arg(long, value_name = "DIR", default_value = LIB)]
    libdir: String,
    /// Machine that the library is for; default: this one
    #[arg(long, value_enum)]
    target: Option<Target>,
    /// Build for this glibc and newer ones, such as 2.17, with cargo-zigbuild; default: for this machine's
    #[arg(long, value_name = "VERSION")]
    glibc: Option<glibc::Version>,
}

/// The built libraries.
#[derive(Debug)]
pub(super) struct Library {
    /// The C library.
    pub(super) shared: Vec<u8>,
    /// The C library, to be linked statically.
    pub(super) archive: Vec<u8>,
    /// `libcuda.so.1`, the run-time library and cuBLAS, if they were asked for.
    pub(super) cuda: Option<[Vec<u8>; 3]>,
}

/// What to build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The C library.
    C,
    /// The C library and the CUDA library.
    All,
}

/// One file: its place below the prefix, its content and its mode.
pub(super) type File = (String, Vec<u8>, u32);

/// Builds and installs.
pub(crate) fn run(options: &Options) -> Result<()> {
    let root = workspace::root()?;
    let target = target(options.target)?;
    let mut parts = Path::new(&options.libdir).components();
    let is_below = !options.libdir.is_empty() && parts.all(|part| matches!(part, Component::Normal(_)));
    ensure!(is_below, UsageError(format!("--libdir: {} is not a folder below the prefix", options.libdir)));
    check_place(&options.prefix)?;
    let toolchain = Toolchain::find(target, options.glibc)?;
    say!("building for {} with all optimisations; the first build takes minutes", target.triple())?;
    let library = build(&root, toolchain, Wanted::All)?;
    let glibc = library.glibc()?;
    let mut files = library.files(&root, &options.libdir)?;
    files.push((format!("{}/libtegra_hcq.a", options.libdir), library.archive, 0o644));
    fs::create_dir_all(&options.prefix).with_context(|| format!("creating {}", options.prefix.display()))?;
    for (name, content, mode) in &files {
        put(&options.prefix, name, content, *mode)?;
    }
    link(&options.prefix.join(&options.libdir))?;
    for (name, ..) in &files {
        say!("wrote    {}", options.prefix.join(name).display())?;
    }
    say!("needs    glibc {glibc} or newer")?;
    let flags = options.prefix.join(&options.libdir).join("pkgconfig");
    say!(
        "next     export PKG_CONFIG_PATH={}; cc program.c $(pkg-config --cflags --libs tegra_hcq)",
        flags.display()
    )?;
    say!(
        "next     cargo install --path crates/orin-tool --root {0}; {0}/bin/orin cuda -- PROGRAM",
        options.prefix.display()
    )?;
    Ok(())
}

/// The target of an installation, by default this machine.
///
/// # Errors
///
/// Returns a [`UsageError`] for a target with musl, and for another kind of machine.
fn target(given: Option<Target>) -> Result<Target> {
    let target = given.map_or_else(Target::host, Ok)?;
    ensure!(
        !target.is_musl(),
        UsageError(format!("a library for musl is not installed: give {}", target.with_glibc().triple()))
    );
    Ok(target)
}

/// Builds libraries; cargo prints its progress to standard error.
pub(super) fn build(root: &Path, toolchain: Toolchain, wanted: Wanted) -> Result<Library> {
    let mut command = toolchain.command(root);
    command.args(["--package", "tegra-hcq-capi", "--lib"]);
    if wanted == Wanted::All {
        command.args(["-p", "orin-libcuda", "-p", "orin-libcudart", "-p", "orin-libcublas"]);
    }
    let output = command.spawn().and_then(std::process::Child::wait_with_output).context("starting cargo")?;
    ensure!(output.status.success(), "the build failed: see above");
    let read = |name: &str, extension: &str| {
        let path = library(&output.stdout, name, extension)
            .with_context(|| format!("cargo did not build {name} as *.{extension}"))?;
        fs::read(&path).with_context(|| format!("reading {}", path.display()))
    };
    let c = "tegra_hcq_capi";
    let cuda = match wanted {
        Wanted::C => None,
        Wanted::All => Some([read("cuda", "so")?, read("cudart", "so")?, read("cublas", "so")?]),
    };
    let library = Library { shared: read(c, "so")?, archive: read(c, "a")?, cuda };
    if toolchain.target == Target::Arm64 {
        let glibc = library.glibc()?;
        ensure!(
            glibc <= BOARD_GLIBC,
            "the libraries need glibc {glibc}, JetPack 6 has {BOARD_GLIBC}: build on an older system, or with --glibc \
             {BOARD_GLIBC}"
        );
    }
    Ok(library)
}

/// The path of a built library with an extension, from cargo's messages. `name` is that of cargo's target.
fn library(messages: &[u8], name: &str, extension: &str) -> Option<PathBuf> {
    let lines = messages.split(|&byte| byte == b'\n');
    let mut artifacts = lines
        .filter_map(|line| serde_json::from_slice::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == name && message["reason"] == "compiler-artifact");
    artifacts.find_map(|message| {
        let files =
            message["filenames"].as_array()?.iter().filter_map(|name| name.as_str().map(PathBuf::from));
        files.into_iter().find(|path| path.extension().is_some_and(|found| found == extension))
    })
}

impl Library {
    /// The oldest C library that runs the shared libraries.
    pub(super) fn glibc(&self) -> Result<glibc::Version> {
        let shared = std::iter::once(&self.shared).chain(self.cuda.iter().flatten());
        let needed: Vec<_> = shared.map(|content| glibc::needed(content)).collect::<Result<_>>()?;
        needed.into_iter().max().flatten().context("the libraries use no C library")
    }

    /// The shared libraries, the header and the file for pkg-config; the C library is in `libdir`.
    pub(super) fn files(&self, root: &Path, libdir: &str) -> Result<Vec<File>> {
        let header = root.join("crates/tegra-hcq-capi/include/tegra_hcq.h");
        let header = fs::read(&header).with_context(|| format!("reading {}", header.display()))?;
        let mut files = vec![
            (format!("{libdir}/{SONAME}"), self.shared.clone(), 0o755),
            ("include/tegra_hcq.h".to_owned(), header, 0o644),
            (format!("{libdir}/pkgconfig/tegra_hcq.pc"), pkg_config(libdir).into_bytes(), 0o644),
        ];
        if let Some([driver, others @ ..]) = &self.cuda {
            files.push((CUDA.to_owned(), driver.clone(), 0o755));
            for (names, library) in CUDA_LIBRARIES.iter().zip(others) {
                files.extend(names.map(|name| (name.to_owned(), library.clone(), 0o755)));
            }
        }
        Ok(files)
    }
}

/// Links the name for linkers to the shared library in a folder.
pub(super) fn link(folder: &Path) -> Result<()> {
    let link = folder.join(LINK_NAME);
    match fs::remove_file(&link) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("replacing {}", link.display()));
        }
        _ => {}
    }
    symlink(SONAME, &link).with_context(|| format!("writing {}", link.display()))
}

/// The file for pkg-config. Its prefix is where the file is, so the folder can be moved.
fn pkg_config(libdir: &str) -> String {
    let up = "/..".repeat(Path::new(libdir).components().count());
    format!(
        "prefix=${{pcfiledir}}/..{up}\nlibdir=${{prefix}}/{libdir}\nincludedir=${{prefix}}/include\n\n\
         Name: tegra_hcq\nDescription: Run CUDA kernels on the Jetson Orin's GPU without CUDA\n\
         Version: {}\nLibs: -L${{libdir}} -ltegra_hcq\nLibs.private: {STATIC_LIBS}\nCflags: -I${{includedir}}\n",
        env!("CARGO_PKG_VERSION")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paths_of_the_library_are_in_cargos_messages() {
        let messages = br#"{"reason":"compiler-artifact","target":{"name":"tegra_hcq"},"filenames":["/t/h.rlib"]}
{"reason":"build-script-executed","target":{"name":"tegra_hcq_capi"}}
{"reason":"compiler-artifact","target":{"name":"cuda"},"filenames":["/t/libcuda.so","/t/libcuda.rlib"]}
{"reason":"compiler-artifact","target":{"name":"tegra_hcq_capi"},"filenames":["/t/l.rlib","/t/l.so","/t/l.a"]}"#;
        for (name, extension, path) in [
            ("tegra_hcq_capi", "so", Some("/t/l.so")),
            ("tegra_hcq_capi", "a", Some("/t/l.a")),
            ("tegra_hcq_capi", "dll", None),
            ("cuda", "so", Some("/t/libcuda.so")),
            ("cuda", "a", None),
        ] {
            assert_eq!(library(messages, name, extension), path.map(PathBuf::from), "{name} {extension}");
        }
    }

    #[test]
    fn files_are_below_the_prefix_and_linkers_find_the_library() {
        let folder = tempfile::tempdir().expect("a folder");
        let [shared, archive, cuda, runtime, blas] =
            ["so", "a", "cuda", "cudart", "cublas"].map(|content| content.as_bytes().to_vec());
        let library = Library { shared, archive, cuda: Some([cuda, runtime, blas]) };
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        for (name, content, mode) in library.files(root, LIB).expect("the header exists") {
            put(folder.path(), &name, &content, mode).expect("a new file");
        }
        // A second installation replaces the first.
        link(&folder.path().join(LIB)).expect("a new link");
        link(&folder.path().join(LIB)).expect("the link is replaced");
        assert_eq!(fs::read(folder.path().join("lib/libtegra_hcq.so")).expect("the library"), b"so");
        // Folders that the dynamic linker searches get no libcuda.so.1.
        assert_eq!(fs::read(folder.path().join(CUDA)).expect("the library"), b"cuda");
        assert!(!folder.path().join("lib/libcuda.so.1").exists());
        for (names, content) in CUDA_LIBRARIES.into_iter().zip(["cudart", "cublas"]) {
            for name in names {
                assert_eq!(fs::read(folder.path().join(name)).expect("the library"), content.as_bytes());
            }
        }
        assert!(pkg_config(LIB).starts_with("prefix=${pcfiledir}/../..\nlibdir=${prefix}/lib\n"));
        let deep = pkg_config("lib/aarch64-linux-gnu");
        assert!(deep.starts_with("prefix=${pcfiledir}/../../..\nlibdir=${prefix}/lib/aarch64-linux-gnu\n"));
    }
}
