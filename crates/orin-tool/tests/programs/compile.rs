//! `orin compile` as a program: with a fake NVRTC that repeats its options, with the real libraries if they are
//! installed, and without any. A test without its compiler or library says so and passes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use orin_cli::ExitStatus::{Failure, Success, Usage};
use orin_cli::testing::{Program, shared_library};
use orin_compile::{Compiler, Error, JitOptions, LinkInput, Linker};

const VECTOR_ADD: &str = include_str!("../../../../kernels/vector_add.cu");
const PTX: &str = "\
.version 8.0
.target sm_80
.address_size 64
.visible .entry set(.param .u64 out)
{
  .reg .u64 %rd<3>;
  .reg .u32 %r<2>;
  ld.param.u64 %rd1, [out];
  cvta.to.global.u64 %rd2, %rd1;
  mov.u32 %r1, 42;
  st.global.u32 [%rd2], %r1;
  ret;
}
";

fn program(folder: &Path) -> Program {
    Program::new(env!("CARGO_BIN_EXE_orin"), folder).env("NVGPU_CACHE", "off")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The fake NVRTC of `tegra-hcq`'s tests; `None`, with a message, if it cannot be built for this architecture.
fn fake(folder: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tegra-hcq/tests/fake_nvrtc.c");
    shared_library(&source, folder.join("libnvrtc.so.12"))
}

#[test]
fn without_a_compiler_the_text_says_how_to_get_one() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.cu"), VECTOR_ADD).unwrap();
    fs::write(folder.path().join("a.ptx"), PTX).unwrap();
    let program = program(folder.path())
        .env("NVGPU_NVRTC", "/no/such")
        .env("NVGPU_NVJITLINK", "/no/such")
        .env("NVGPU_PTXAS", "/no/such");
    for (file, package) in
        [("a.cu", "pip install nvidia-cuda-nvrtc-cu12"), ("a.ptx", "pip install nvidia-nvjitlink-cu12")]
    {
        let output = program.command(&["compile", file]).output().unwrap();
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("/no/such: ") && text.contains(package) && text.contains("JetPack"), "{text}");
    }
    assert!(!folder.path().join("a.cubin").exists());
}

#[test]
fn wrong_requests_are_refused_before_the_compiler_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.cu"), VECTOR_ADD).unwrap();
    fs::write(folder.path().join("empty.cu"), "").unwrap();
    fs::copy(env!("CARGO_BIN_EXE_orin"), folder.path().join("program")).unwrap();
    let cubin = include_bytes!("../../../../kernels/saxpy.cubin");
    fs::write(folder.path().join("k.cubin"), cubin).unwrap();
    let program = program(folder.path()).env("NVGPU_NVRTC", "/no/such");
    for (line, words) in [
        (&["compile", "absent.cu"][..], "absent.cu: No such file"),
        (&["compile", "-"], "name the cubin with --output"),
        (&["compile", "a.cu", "-o", "a.cu"], "would be overwritten"),
        (&["compile", "a.cu", "-o", "no/such/a.cubin"], "no/such/a.cubin cannot be written"),
        (&["compile", "a.cu", "--arch", "fermi"], "[possible values: sm_80, sm_86, sm_87, sm_89, sm_90]"),
        (&["compile", "a.cu", "--arch", "sm_72"], "[possible values: sm_80, sm_86, sm_87, sm_89, sm_90]"),
        (&["compile", "k.cubin"], "k.cubin: a cubin, not CUDA C++ or PTX; `orin decode cubin` prints it"),
        (&["compile", "program"], "program: a program or library for a CPU, not CUDA C++ or PTX"),
        (&["compile", "empty.cu"], "empty.cu: an empty file, not CUDA C++ or PTX"),
        (&["compile", "a.cu", "-line"], "invalid value 'ine'"),
    ] {
        let output = program.command(line).output().unwrap();
        let text = stderr(&output);
        assert!(output.status.code() == Some(2) && text.contains(words), "{line:?}: {text}");
    }
}

#[test]
fn options_reach_the_compiler_and_errors_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let Some(library) = fake(folder.path()) else { return };
    fs::write(folder.path().join("a.cu"), "kernel").unwrap();
    fs::write(folder.path().join("wrong.cu"), "error").unwrap();
    fs::write(folder.path().join("wrong.cubin"), "old").unwrap();
    for name in ["one", "two"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    let program = program(folder.path()).env("NVGPU_NVRTC", library);
    let line = [
        "compile",
        "a.cu",
        "-o",
        "-",
        "--arch",
        "sm_80",
        "-I",
        "one",
        "-I",
        "two",
        "-D",
        "N=4",
        "--option=-G",
    ];
    let output = program.command(&line).output().unwrap();
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let options = "--gpu-architecture=sm_80 --include-path=one --include-path=two --define-macro=N=4 -G";
    assert!(text.ends_with(options), "{text}");

    // Line information in both spellings, and a source from standard input.
    for spelling in ["--line-info", "-lineinfo"] {
        let mut command = program.command(&["compile", "-", "-o", "-", spelling]);
        let output = command.stdin(fs::File::open(folder.path().join("a.cu")).unwrap()).output().unwrap();
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(text.ends_with("--gpu-architecture=sm_87 --generate-line-info"), "{text}");
    }
    // NVRTC refuses it twice.
    let line = ["compile", "a.cu", "-o", "-", "-lineinfo", "--option=--generate-line-info"];
    let text = String::from_utf8(program.command(&line).output().unwrap().stdout).unwrap();
    assert!(text.ends_with("--gpu-architecture=sm_87 --generate-line-info"), "{text}");

    let output = program.command(&["compile", "wrong.cu"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stderr(&output), "error: wrong.cu does not compile:\nfake: an error\n");
    assert_eq!(fs::read(folder.path().join("wrong.cubin")).unwrap(), b"old", "the old cubin is kept");
    program.check(&["compile", "a.cu", "-o", "-"], Success);
}

#[test]
fn the_real_compiler_makes_a_cubin_and_names_the_line_of_an_error() {
    match Compiler::load() {
        Ok(compiler) if compiler.version().0 <= 12 => {}
        Ok(compiler) => {
            return println!("SKIPPED: cubins of NVRTC {:?} cannot be loaded yet", compiler.version());
        }
        Err(error) => return println!("SKIPPED: {error}"),
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.cu"), VECTOR_ADD).unwrap();
    fs::write(folder.path().join("wrong.cu"), "__global__ void f(int *x)\n{\n    *x = y;\n}\n").unwrap();
    let program = program(folder.path());
    program.check(&["compile", "a.cu"], Success);
    program.check(&["compile", "a.cu", "--json"], Success);
    program.check(&["decode", "cubin", "a.cubin"], Success);
    program.check(&["compile", "wrong.cu"], Failure);
    fs::write(folder.path().join("none.cu"), "// no kernel\n").unwrap();
    let none = program.command(&["compile", "none.cu"]).output().unwrap();
    let text = String::from_utf8(none.stdout).unwrap();
    assert!(
        text.ends_with("no kernel: the source has no function declared extern \"C\" __global__\n"),
        "{text}"
    );
    let text = stderr(&program.command(&["compile", "wrong.cu"]).output().unwrap());
    assert!(text.contains("wrong.cu(3): error") && text.contains("*x = y;"), "{text}");
}

#[test]
fn the_real_linker_compiles_ptx_and_names_the_line_of_an_error() {
    let input = LinkInput { name: "a.ptx", data: PTX.as_bytes() };
    if let Err(error @ Error::NoNvJitLink { .. }) =
        Linker::find().link(&[input], &JitOptions::default(), (8, 7))
    {
        return println!("SKIPPED: {error}");
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.ptx"), PTX).unwrap();
    fs::write(folder.path().join("wrong.ptx"), PTX.replace("mov.u32", "mvo.u32")).unwrap();
    let program = program(folder.path());
    program.check(&["compile", "a.ptx"], Success);
    program.check(&["decode", "cubin", "a.cubin"], Success);
    program.check(&["compile", "a.ptx", "-D", "N"], Usage);
    program.check(&["compile", "a.ptx", "--line-info", "-o", "lines.cubin"], Success);
    let output = program.command(&["compile", "wrong.ptx"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("line 10; error"), "{}", stderr(&output));
}
