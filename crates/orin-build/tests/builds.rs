//! Builds of kernels by a build script, with a fake NVRTC that gives a cubin of the corpus, with the real one where it
//! is installed, and without any.

use std::fs;
use std::path::{Path, PathBuf};

use orin_cli::testing::{Program, example, shared_library};
use tempfile::TempDir;

const SAXPY: &str = include_str!("../../../kernels/saxpy.cu");
const CUBIN: &[u8] = include_bytes!("../../../kernels/saxpy.cubin");

/// A package with sources, in which build scripts run.
struct Package(TempDir);

impl Package {
    fn new() -> Self {
        let package = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(package.path("out")).unwrap();
        package.write("kernels/saxpy.cu", &format!("#include \"shared.cuh\"\n{SAXPY}"));
        package.write("kernels/shared.cuh", "#define SHARED 1\n");
        package.write("fake.cubin", "");
        fs::write(package.path("fake.cubin"), CUBIN).unwrap();
        package
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// The program with a compiler; `None`, with a message, if the fake one cannot be built for this architecture.
    fn with_fake(&self) -> Option<Program> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tegra-hcq/tests/fake_nvrtc.c");
        let library = shared_library(&source, self.path("libnvrtc.so.12"))?;
        Some(self.program(library))
    }

    fn without_compiler(&self) -> Program {
        self.program("/no/such/library".into())
    }

    fn program(&self, library: PathBuf) -> Program {
        program_in(self).env("NVGPU_NVRTC", library)
    }
}

/// The build script with the compiler of the environment.
fn program_in(package: &Package) -> Program {
    example("build_script", package.0.path()).env("NVGPU_CACHE", "off")
}

/// What a build script prints for cargo, or its error.
fn build(program: &Program, arguments: &str) -> Result<String, String> {
    let words: Vec<&str> = ["out"].into_iter().chain(arguments.split_whitespace()).collect();
    let output = program.command(&words).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

#[test]
fn a_program_gets_the_cubin_and_the_names_of_its_kernels() {
    let package = Package::new();
    let Some(program) = package.with_fake() else { return };
    let said = build(&program, "-DCUBIN=fake.cubin -Ikernels kernels/saxpy.cu").unwrap();
    for line in ["kernels/saxpy.cu", "kernels/shared.cuh"] {
        assert!(said.contains(&format!("cargo::rerun-if-changed={line}\n")), "{said}");
    }
    assert!(said.contains("cargo::rerun-if-env-changed=NVGPU_NVRTC\n"), "{said}");
    assert_eq!(fs::read(package.path("out/saxpy.sm_87.cubin")).unwrap(), CUBIN);
    let generated = package.read("out/kernels.rs");
    for line in [
        "/// Kernels of `kernels/saxpy.cu`, for sm_87, by NVRTC 12.99.",
        "pub mod r#saxpy {",
        "pub const CUBIN: &[u8] = include_bytes!(\"saxpy.sm_87.cubin\");",
        "/// Name of the kernel `saxpy`: 4 parameters of 4, 8, 8, 4 bytes, ",
        "pub const SAXPY: &str = \"saxpy\";",
    ] {
        assert!(generated.contains(line), "{line}: {generated}");
    }
    build(&program, "-DCUBIN=fake.cubin --name=fast kernels/saxpy.cu").unwrap();
    assert!(package.read("out/fast.rs").contains("include_bytes!(\"saxpy.fast.sm_87.cubin\")"));
}

#[test]
fn a_committed_cubin_is_used_until_an_input_changes() {
    let package = Package::new();
    let Some(program) = package.with_fake() else { return };
    let line = "-DCUBIN=fake.cubin --committed=kernels kernels/saxpy.cu";
    build(&program, line).unwrap();
    let lock = package.read("kernels/kernels.lock");
    assert!(lock.lines().nth(1).is_some_and(|line| line.starts_with("saxpy.sm_87.cubin ")), "{lock}");
    // Cargo would run the script again after files that are newer than its run.
    let time = |name: &str| package.path(name).metadata().unwrap().modified().unwrap();
    assert!(time("kernels/kernels.lock") <= time("kernels/saxpy.cu").max(time("kernels/shared.cuh")));

    let none = package.without_compiler();
    let said = build(&none, line).unwrap();
    assert!(!said.contains("rerun-if-env-changed"), "no compiler was searched: {said}");
    assert_eq!(fs::read(package.path("out/saxpy.sm_87.cubin")).unwrap(), CUBIN);

    let changed =
        "has changed since kernels/saxpy.sm_87.cubin was compiled, and it cannot be compiled here: ";
    let stale = |line: &str, reason: &str| {
        let error = build(&none, line).unwrap_err();
        assert!(error.starts_with("Error: kernels/saxpy.cu: ") && error.contains(reason), "{error}");
        assert!(error.contains("pip install nvidia-cuda-nvrtc-cu12"), "{error}");
    };
    stale(&format!("{line} -DOTHER"), changed);
    stale(&format!("{line} --arch=sm_80"), "kernels/kernels.lock has no saxpy.sm_80.cubin");
    package.write("kernels/shared.cuh", "#define SHARED 2\n");
    stale(line, changed);
    build(&program, line).unwrap();
    assert_ne!(package.read("kernels/kernels.lock"), lock);
    build(&none, line).unwrap();
    package.write("kernels/saxpy.sm_87.cubin", "damaged");
    stale(line, "kernels/saxpy.sm_87.cubin differs from kernels/kernels.lock");
    fs::remove_file(package.path("kernels/saxpy.sm_87.cubin")).unwrap();
    stale(line, "kernels/saxpy.sm_87.cubin: No such file");
    // An entry without its cubin is removed.
    package.write("kernels/other.cu", SAXPY);
    build(&program, "-DCUBIN=fake.cubin --committed=kernels kernels/other.cu").unwrap();
    let lock = package.read("kernels/kernels.lock");
    assert!(lock.contains("other.sm_87.cubin") && !lock.contains("saxpy.sm_87"), "{lock}");
    package.write("kernels/kernels.lock", "# head\nnonsense\n");
    let error = build(&program, line).unwrap_err();
    assert!(error.contains("kernels/kernels.lock:2: not an entry"), "{error}");
}

#[test]
fn each_error_names_its_cause_and_cure() {
    let package = Package::new();
    let Some(program) = package.with_fake() else { return };
    fs::create_dir_all(package.path("other")).unwrap();
    package.write("other/saxpy.cu", SAXPY);
    package.write("kernels/wrong.cu", "error");
    package.write("kernels/macro.cu", "#include NAME\n");
    let none = package.without_compiler();
    for (program, line, words) in [
        (&program, "", "Error: no kernels to compile: add Kernels::file(\"kernels/NAME.cu\")"),
        (&program, "absent.cu", "Error: reading absent.cu: No such file or directory"),
        (&program, "fake.cubin", "Error: fake.cubin: a cubin, not CUDA C++ or PTX"),
        (
            &program,
            "--arch=sm_72 kernels/saxpy.cu",
            "Error: Kernels::arch(\"sm_72\"): known architectures are sm_80",
        ),
        (&program, "kernels/wrong.cu", "Error: kernels/wrong.cu does not compile:\nfake: an error"),
        (&program, "kernels/saxpy.cu", "Error: kernels/saxpy.cu: "),
        (
            &program,
            "-DCUBIN=fake.cubin kernels/saxpy.cu other/saxpy.cu",
            "Error: kernels/saxpy.cu and other/saxpy.cu both become `saxpy` in Rust",
        ),
        (
            &program,
            "--committed=kernels kernels/macro.cu",
            "Error: kernels/macro.cu: the set of included files is unknown",
        ),
        (&program, "-DCUBIN=fake.cubin --arch=sm_90 kernels/saxpy.cu", "Error: kernels/saxpy.cu: "),
        (&none, "kernels/saxpy.cu", "with Kernels::committed, builds need it only after a change"),
    ] {
        let error = build(program, line).unwrap_err();
        assert!(error.contains(words), "{line}: {error}");
    }
}

/// The same bytes in each folder: the line information does not name it.
#[test]
fn the_real_compiler_makes_the_committed_cubin() {
    let package = Package::new();
    let line = "--committed=kernels kernels/saxpy.cu";
    if let Err(error) = build(&program_in(&package), line) {
        assert!(error.contains("NVRTC cannot be loaded"), "{error}");
        return println!("SKIPPED: {error}");
    }
    let cubin = fs::read(package.path("kernels/saxpy.sm_87.cubin")).unwrap();
    let has = |text: &[u8]| cubin.windows(text.len()).any(|window| window == text);
    assert!(has(b"/proc/self/cwd/kernels\0") && !has(package.0.path().as_os_str().as_encoded_bytes()));
    let other = Package::new();
    build(&program_in(&other), line).unwrap();
    assert_eq!(fs::read(other.path("kernels/saxpy.sm_87.cubin")).unwrap(), cubin);
    package.write("kernels/saxpy.cu", "__global__ void f(int *x)\n{\n    *x = y;\n}\n");
    let error = build(&program_in(&package), line).unwrap_err();
    assert!(error.contains("kernels/saxpy.cu(3): error"), "{error}");
}
