//! Compilation at run time: with a fake NVRTC built by the C compiler, and with the real library if installed. A test
//! without its compiler or library says so and passes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tegra_hcq::{Cache, CompileError, Compiled, Compiler, Device, DeviceKind, Error, Program, Source, args};
use tempfile::TempDir;

const ORIN: (u32, u32) = (8, 7);
const TIMEOUT: Duration = Duration::from_secs(120);
const VECTOR_ADD: &str = include_str!("../../../kernels/vector_add.cu");

/// Builds a library from the C source beside this file, in a folder. Returns `None`, with a message, if there is no C
/// compiler for the test's architecture, or if the test is a static program, which cannot load libraries.
pub(crate) fn build_fake(source: &str, folder: &Path, name: &str) -> Option<PathBuf> {
    if cfg!(target_feature = "crt-static") {
        println!("SKIPPED: a statically linked test cannot load libraries");
        return None;
    }
    let library = folder.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source);
    let status = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).status();
    match status {
        Ok(status) => assert!(status.success(), "the stub compiles"),
        Err(error) => {
            println!("SKIPPED: no C compiler to build a fake library: {error}");
            return None;
        }
    }
    // e_machine of the ELF header. An emulated test finds the compiler of the host architecture.
    let machine = |path: &Path| std::fs::read(path).unwrap()[18..20].to_vec();
    if machine(&library) != machine(&std::env::current_exe().unwrap()) {
        println!("SKIPPED: the C compiler targets another architecture");
        return None;
    }
    Some(library)
}

/// The fake library, built in its own folder, with a cache next to it.
struct Fake {
    root: TempDir,
    library: PathBuf,
}

impl Fake {
    fn new() -> Option<Self> {
        let root = tempfile::tempdir().unwrap();
        let library = build_fake("fake_nvrtc.c", root.path(), "libnvrtc.so.12")?;
        Some(Self { root, library })
    }

    fn cache(&self) -> Cache {
        Cache::at(self.root.path().join("cache"), 1 << 20)
    }

    fn compiler(&self) -> Compiler {
        unsafe { Compiler::load_from(&self.library) }.expect("the stub loads").with_cache(Some(self.cache()))
    }

    fn entries(&self) -> Vec<PathBuf> {
        let Ok(files) = std::fs::read_dir(self.cache().folder()) else { return Vec::new() };
        files.map(|file| file.unwrap().path()).collect()
    }
}

/// The real NVRTC with its own cache; `None`, with a message, if it is not installed.
fn real() -> Option<(Compiler, TempDir)> {
    let root = tempfile::tempdir().unwrap();
    match Compiler::load() {
        Ok(compiler) if compiler.version().0 > 12 => {
            println!("SKIPPED: cubins of NVRTC {:?} cannot be loaded yet", compiler.version());
            None
        }
        Ok(compiler) => Some((compiler.with_cache(Some(Cache::at(root.path(), 1 << 20))), root)),
        Err(error @ CompileError::NoNvrtc { .. }) => {
            println!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn text(compiled: &Compiled) -> &str {
    std::str::from_utf8(&compiled.cubin).unwrap()
}

#[test]
fn the_second_time_comes_from_the_cache_for_another_compiler_too() {
    let Some(fake) = Fake::new() else { return };
    let source = Source::new("warn").option("-DN=1").expression("f<int>");
    let first = fake.compiler().compile(&source, ORIN).unwrap();
    assert!(!first.cached);
    assert!(text(&first).ends_with(": --gpu-architecture=sm_87 -DN=1"), "{}", text(&first));
    assert_eq!(first.log, "fake: a warning\n");
    assert_eq!(first.lowered_name("f<int>"), Some("_Zf<int>"));
    assert_eq!(first.lowered_name("f"), None);

    // A second compiler shares only the folder with the first one.
    let second = fake.compiler().compile(&source, ORIN).unwrap();
    assert!(second.cached);
    assert_eq!((&second.cubin, &second.log), (&first.cubin, &first.log));
    assert_eq!(second.lowered_name("f<int>"), Some("_Zf<int>"));

    let other = fake.compiler().compile(&source, (8, 6)).unwrap();
    assert!(!other.cached && text(&other).contains("sm_86"), "{}", text(&other));
    let off = fake.compiler().with_cache(None).compile(&source, ORIN).unwrap();
    assert!(!off.cached);
    assert_ne!(off.cubin, first.cubin, "another compilation has another number");
}

#[test]
fn a_damaged_entry_is_compiled_again_and_replaced() {
    let Some(fake) = Fake::new() else { return };
    let (compiler, source) = (fake.compiler(), Source::new("x"));
    let first = compiler.compile(&source, ORIN).unwrap();
    let [entry] = &fake.entries()[..] else { panic!("one entry") };
    let mut bytes = std::fs::read(entry).unwrap();
    *bytes.last_mut().unwrap() ^= 0x20;
    std::fs::write(entry, bytes).unwrap();

    let second = compiler.compile(&source, ORIN).unwrap();
    assert!(!second.cached);
    assert_ne!(second.cubin, first.cubin);
    let third = compiler.compile(&source, ORIN).unwrap();
    assert!(third.cached);
    assert_eq!(third.cubin, second.cubin);
}

#[test]
fn a_changed_include_file_is_noticed() {
    let Some(fake) = Fake::new() else { return };
    let header = fake.root.path().join("value.h");
    let source = Source::new("#include <value.h>").option(format!("-I{}", fake.root.path().display()));
    let compile = || fake.compiler().compile(&source, ORIN).unwrap().cached;
    std::fs::write(&header, "1").unwrap();
    assert_eq!((compile(), compile()), (false, true));
    std::fs::write(&header, "2").unwrap();
    assert_eq!((compile(), compile()), (false, true));
    let by_macro = Source::new("#include HEADER");
    fake.compiler().compile(&by_macro, ORIN).unwrap();
    assert!(!fake.compiler().compile(&by_macro, ORIN).unwrap().cached);
}

/// The library in the layout of NVIDIA's Python packages.
#[test]
fn cuda_s_headers_beside_the_library_are_searched_last() {
    let Some(fake) = Fake::new() else { return };
    let packages = fake.root.path().join("nvidia");
    for file in [
        "cuda_nvrtc/lib/libnvrtc.so.12",
        "cuda_nvrtc/include/nvrtc.h",
        "cuda_runtime/include/cuda_fp16.h",
        "cuda_cccl/include/nv/target",
        "cuda_nvcc/include/crt/mma.h",
    ] {
        std::fs::create_dir_all(packages.join(file).parent().unwrap()).unwrap();
        std::fs::write(packages.join(file), "").unwrap();
    }
    let library = packages.join("cuda_nvrtc/lib/libnvrtc.so.12");
    std::fs::copy(&fake.library, &library).unwrap();
    let compiler = || unsafe { Compiler::load_from(&library) }.unwrap().with_cache(Some(fake.cache()));
    let folders = compiler().header_folders().to_vec();
    let ends = ["cuda_runtime/include", "cuda_cccl/include", "cuda_nvcc/include"];
    assert!(
        folders.iter().zip(ends).all(|(folder, end)| folder.ends_with(end)) && folders.len() == 3,
        "{folders:?}"
    );
    let source = Source::new("#include <cuda_fp16.h>").option("-Imine");
    let compile = || compiler().compile(&source, ORIN).unwrap();
    let options: String =
        folders.iter().map(|folder| format!(" --include-path={}", folder.display())).collect();
    assert!(text(&compile()).ends_with(&format!("sm_87 -Imine{options}")), "{}", text(&compile()));
    assert!(compile().cached);
    std::fs::write(packages.join("cuda_runtime/include/cuda_fp16.h"), "another release").unwrap();
    assert_eq!((compile().cached, compile().cached), (false, true));

    let missing =
        compiler().compile(&Source::new("lacks stdint.h").name("x.cu"), ORIN).unwrap_err().to_string();
    let hint = "hint: NVRTC has no standard library, so there is no <stdint.h>: include <cuda/std/cstdint>";
    let begin = format!("x.cu does not compile:\nfake: cannot open source file \"stdint.h\"\n{hint}");
    assert!(missing.starts_with(&begin), "{missing}");
}

#[test]
fn a_cache_that_cannot_be_written_costs_compilations_only() {
    let Some(fake) = Fake::new() else { return };
    let compiler = fake.compiler().with_cache(Some(Cache::at("/proc/no/such/folder", 1 << 20)));
    for _ in 0..2 {
        assert!(!compiler.compile(&Source::new("x"), ORIN).unwrap().cached);
    }
}

#[test]
fn errors_carry_the_log_and_leave_nothing_in_the_cache() {
    let Some(fake) = Fake::new() else { return };
    let compile = |source: Source| fake.compiler().compile(&source, ORIN).unwrap_err();
    let error = compile(Source::new("error").name("mine.cu"));
    assert_eq!(error.to_string(), "mine.cu does not compile:\nfake: an error");
    let error = compile(Source::new("x").option("--unknown"));
    assert_eq!(error.to_string(), "nvrtcCompileProgram: NVRTC_ERROR_INVALID_OPTION\nfake: unknown option");
    assert!(compile(Source::new("empty")).to_string().contains("no cubin was made"));
    let error = compile(Source::new("x").option("-arch=sm_80"));
    assert!(matches!(error, CompileError::Request(_)), "{error}");
    let error = compile(Source::new("x\0y"));
    assert_eq!(error.to_string(), "the source has a zero byte at offset 1");
    assert_eq!(fake.entries(), Vec::<PathBuf>::new());
}

#[test]
fn a_library_without_the_functions_is_refused_by_the_missing_name() {
    let Some(fake) = Fake::new() else { return };
    let empty = fake.root.path().join("empty.c");
    std::fs::write(&empty, "int nothing;\n").unwrap();
    let library = fake.root.path().join("libempty.so");
    let status = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(empty).status();
    assert!(status.unwrap().success());
    let error = unsafe { Compiler::load_from(&library) }.unwrap_err().to_string();
    assert!(error.contains("undefined symbol: nvrtcVersion"), "{error}");
}

#[test]
fn many_threads_share_compiler_and_cache() {
    let Some(fake) = Fake::new() else { return };
    let compiler = fake.compiler();
    thread::scope(|scope| {
        for thread in 0..4 {
            let compiler = &compiler;
            scope.spawn(move || {
                for round in 0..20 {
                    let source = Source::new(format!("source {}", (round + thread) % 5));
                    let compiled = compiler.compile(&source, ORIN).unwrap();
                    assert!(text(&compiled).starts_with("compilation "));
                }
            });
        }
    });
    assert_eq!(fake.entries().len(), 5);
}

#[test]
fn the_real_compiler_makes_a_program_that_runs() {
    let Some((compiler, _root)) = real() else { return };
    let source = Source::new(VECTOR_ADD).name("vector_add.cu");
    let compiled = compiler.compile(&source, ORIN).unwrap();
    assert_eq!(compiled.log, "");
    let again = compiler.compile(&source, ORIN).unwrap();
    assert!(again.cached);
    assert_eq!(again.cubin, compiled.cubin);

    let device = Device::open(DeviceKind::Sim).unwrap();
    let program = Program::load(&device, &compiled.cubin).unwrap();
    let add = unsafe { program.typed::<(&[f32], &[f32], &mut [f32], u32)>("vector_add") }.unwrap();
    let a: Vec<f32> = (0..1000).map(|i| i as f32 * 0.25).collect();
    let b: Vec<f32> = (0..1000).map(|i| 1000.0 - i as f32).collect();
    let sum: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    let (a, b) = (device.alloc_from(&a).unwrap(), device.alloc_from(&b).unwrap());
    let mut c = device.alloc_zeroed::<f32>(1000).unwrap();
    let mut queue = device.queue().unwrap();
    add.launch(&mut queue, 4, 256, (&a, &b, &mut c, 1000)).unwrap();
    queue.wait(TIMEOUT).unwrap();
    assert_eq!(c.to_vec().unwrap(), sum);
}

#[test]
fn the_real_compiler_reports_errors_and_warnings() {
    let Some((compiler, _root)) = real() else { return };
    let bad = Source::new("__global__ void k() { undefined_name = 1; }").name("bad.cu");
    let error = compiler.compile(&bad, ORIN).unwrap_err();
    assert!(matches!(error, CompileError::Compilation { .. }), "{error}");
    let text = error.to_string();
    assert!(text.starts_with("bad.cu does not compile:\nbad.cu(1): error: "), "{text}");
    assert!(text.contains("undefined_name"), "{text}");

    let unused = Source::new("extern \"C\" __global__ void k() { int unused; }");
    let compiled = compiler.compile(&unused, ORIN).unwrap();
    assert!(compiled.log.contains("unused"), "{}", compiled.log);
    let again = compiler.compile(&unused, ORIN).unwrap();
    assert!(again.cached);
    assert_eq!(again.log, compiled.log);

    let error = compiler.compile(&Source::new("").option("--no-such-option"), ORIN).unwrap_err();
    assert!(error.to_string().contains("--no-such-option"), "{error}");
    assert!(compiler.compile(&Source::new(""), (8, 99)).is_err());
}

#[test]
fn the_real_compiler_takes_headers_options_and_templates() {
    let Some((compiler, _root)) = real() else { return };
    let source = Source::new(
        "#include <factor.h>\n\
         template <class T> __global__ void scale(T* data) { data[threadIdx.x] *= FACTOR + EXTRA; }",
    )
    .header("factor.h", "#define FACTOR 3")
    .option("-DEXTRA=2")
    .expression("scale<int>");
    let compiled = compiler.compile(&source, ORIN).unwrap();
    let name = compiled.lowered_name("scale<int>").unwrap();

    let device = Device::open(DeviceKind::Sim).unwrap();
    let program = Program::load(&device, &compiled.cubin).unwrap();
    let data = device.alloc_from(&[1_i32, 2, -3, 4]).unwrap();
    let mut queue = device.queue().unwrap();
    unsafe { queue.launch(&program.kernel(name).unwrap(), 1, 4, &args![&data]) }.unwrap();
    queue.wait(TIMEOUT).unwrap();
    assert_eq!(data.to_vec().unwrap(), [5, 10, -15, 20]);
}

#[test]
fn the_real_compiler_finds_cuda_s_headers() {
    let Some((compiler, _root)) = real() else { return };
    let has = |file: &str| compiler.header_folders().iter().any(|folder| folder.join(file).is_file());
    for (header, needs, text) in [
        ("cuda_fp16.h", "cuda_fp16.h", "*(__half *)p = __float2half(1.5f);"),
        ("cooperative_groups.h", "nv/target", "*p = cooperative_groups::this_thread_block().size();"),
        (
            "mma.h",
            "crt/mma.h",
            "nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> f; *p = f.num_elements;",
        ),
        ("cuda/std/cstdint", "nv/target", "*(cuda::std::uint8_t *)p = 200;"),
    ] {
        let source = format!("#include <{header}>\nextern \"C\" __global__ void k(int *p) {{ {text} }}");
        match compiler.compile(&Source::new(source), ORIN) {
            Ok(compiled) => assert!(!compiled.cubin.is_empty() && has(needs)),
            Err(error) if has(needs) => panic!("{header}: {error}"),
            Err(error) => {
                println!("SKIPPED: {header} is not installed");
                assert!(error.to_string().contains("hint: "), "{error}");
            }
        }
    }
}

#[test]
fn the_real_compiler_serves_threads_at_a_time() {
    let Some((compiler, _root)) = real() else { return };
    let compiler = compiler.with_cache(None);
    let compile = &|n: u32| {
        let source = Source::new(format!("extern \"C\" __global__ void k(int* p) {{ *p = {n}; }}"));
        compiler.compile(&source, ORIN).unwrap().cubin
    };
    let cubins = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|n| scope.spawn(move || (n, compile(n)))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    for (n, cubin) in cubins {
        assert_eq!(cubin, compile(n), "the same source gives the same bytes");
    }
}

#[test]
fn a_program_is_compiled_in_one_call() {
    let Some((compiler, _root)) = real() else { return };
    let shared = compiler.share();
    assert!(Arc::ptr_eq(&shared, &Compiler::shared().unwrap()));
    let device = Device::open(DeviceKind::Sim).unwrap();
    let source = "extern \"C\" __global__ void set(int* out) { *out = VALUE; }";
    let program = Program::compile(&device, source, &["-DVALUE=42"]).unwrap();
    let set = unsafe { program.typed::<(&mut [i32],)>("set") }.unwrap();
    let mut out = device.alloc_zeroed::<i32>(1).unwrap();
    let mut queue = device.queue().unwrap();
    set.launch(&mut queue, 1, 1, (&mut out,)).unwrap();
    queue.wait(TIMEOUT).unwrap();
    assert_eq!(out.to_vec().unwrap(), [42]);
    let error = Program::compile(&device, "nonsense", &[]).unwrap_err();
    assert!(matches!(error, Error::Compile(CompileError::Compilation { .. })), "{error}");
}
