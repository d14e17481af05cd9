//! Images of every kind: with a fake nvJitLink and a fake ptxas, and with NVIDIA's where they are installed.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::thread;
use std::time::Duration;

use cubin::FileKind;
use tegra_hcq::{
    Cache, CompileError as Error, CompileRequestError, Compiled, Device, DeviceKind, JitOptions, LinkInput,
    Linker, Program, args,
};
use tempfile::TempDir;

use crate::compile::build_fake;

const ORIN: (u32, u32) = (8, 7);
const PTX: &str = include_str!("../../cubin/tests/data/tiny.ptx");
const CUBIN: &[u8] = include_bytes!("../../cubin/tests/data/tiny.cubin");
const OBJECT: &[u8] = include_bytes!("../../cubin/tests/data/tiny.relocatable.cubin");
const FAT: &[u8] = include_bytes!("../../cubin/tests/data/lz4.fatbin");

/// Fakes of nvJitLink and of ptxas in a folder, which a test may remove.
struct Tools(TempDir);

impl Tools {
    fn new() -> Option<Self> {
        let root = tempfile::tempdir().unwrap();
        build_fake("fake_nvjitlink.c", root.path(), "libnvJitLink.so.12")?;
        let script = "#!/bin/sh\necho \"fake: a remark\"\ngrep -q invalid input.ptx && { echo \"input.ptx, line 1; \
                      error : invalid\" >&2; exit 255; }\necho \"assembled $*\" > output.cubin\n";
        let ptxas = root.path().join("ptxas");
        std::fs::write(&ptxas, script).unwrap();
        std::fs::set_permissions(&ptxas, PermissionsExt::from_mode(0o755)).unwrap();
        Some(Self(root))
    }

    fn without(self, file: &str) -> Self {
        std::fs::remove_file(self.0.path().join(file)).unwrap();
        self
    }

    fn linker(&self) -> Linker {
        let cache = Cache::at(self.0.path().join("cache"), 1 << 20);
        unsafe { Linker::find_in(self.0.path()) }.with_cache(Some(cache))
    }

    fn link(&self, inputs: &[(&str, &[u8])]) -> Result<Compiled, Error> {
        self.linker().link(&self::inputs(inputs), &JitOptions::default(), ORIN)
    }
}

fn inputs<'a>(inputs: &[(&'a str, &'a [u8])]) -> Vec<LinkInput<'a>> {
    inputs.iter().map(|&(name, data)| LinkInput { name, data }).collect()
}

fn text(compiled: &Compiled) -> &str {
    std::str::from_utf8(&compiled.cubin).unwrap().trim_end()
}

/// PTX with another line in place of its version.
fn versioned(version: &str) -> String {
    PTX.replace("6.0", version)
}

#[test]
fn each_kind_of_image_goes_where_it_must() {
    let Some(tools) = Tools::new() else { return };
    let size = PTX.len() + 1;
    let link = |inputs: &[(&str, &[u8])]| text(&tools.link(inputs).unwrap()).to_owned();
    let ptx = format!("| 2 {size} a");
    for (data, expected) in [
        (PTX.as_bytes(), &*ptx),
        (format!("{PTX}\0\0behind").as_bytes(), &ptx),
        // A fat binary without code for this GPU, but with PTX: without the comment.
        (include_bytes!("../../cubin/tests/data/plain.fatbin"), "| 2 333 a"),
        (OBJECT, "| 1 2816 a"),
        (b"\x7fELF of a CPU", "| 5 13 a"),
        (b"!<arch>\n", "| 6 8 a"),
    ] {
        let linked = link(&[("a", data)]);
        assert!(
            linked.starts_with("link ") && linked.ends_with(&format!(": -arch=sm_87 {expected}")),
            "{linked}"
        );
    }
    // Members of a library: nvJitLink takes only those that are host objects.
    let member =
        |content: &[u8]| [format!("{:<48}{:<10}`\n", "member/", content.len()).as_bytes(), content].concat();
    let (object, host) = (member(OBJECT), member(b"\x7fELF of the CPU"));
    let library = [&b"!<arch>\n"[..], &object, &object].concat();
    assert!(link(&[("a", &library)]).ends_with(" -arch=sm_87 | 1 2816 a | 1 2816 a"));
    let library = [&b"!<arch>\n"[..], &object, &host].concat();
    assert!(link(&[("a", &library)]).ends_with(&format!(" -arch=sm_87 | 1 2816 a | 6 {} a", library.len())));
    let both = link(&[("a.ptx", PTX.as_bytes()), ("b.o", OBJECT)]);
    assert!(both.ends_with(&format!("| 2 {size} a.ptx | 1 2816 b.o")), "{both}");
    // Cubins for the device need no tool.
    for image in [CUBIN, FAT] {
        let linked = tools.link(&[("a", image)]).unwrap();
        assert!(linked.cubin == CUBIN && linked.by.is_empty() && !linked.cached);
    }
    let specific = versioned("8.0").replace("sm_50", "sm_90a");
    let linker = tools.linker();
    let linked = linker.link(&inputs(&[("a", specific.as_bytes())]), &JitOptions::default(), (9, 0)).unwrap();
    assert!(text(&linked).contains(" -arch=sm_90a "), "{}", text(&linked));
}

#[test]
fn the_second_time_comes_from_the_cache_without_the_tools() {
    let Some(tools) = Tools::new() else { return };
    let options = JitOptions { verbose: true, ..JitOptions::default() };
    let input = inputs(&[("a.ptx", PTX.as_bytes())]);
    let first = tools.linker().link(&input, &options, ORIN).unwrap();
    assert_eq!((&*first.log, first.cached), ("fake info: 8 registers\n", false));
    assert!(first.by.starts_with("nvJitLink (/"), "{}", first.by);
    let second = tools.linker().link(&input, &options, ORIN).unwrap();
    assert!(second.cached);
    assert_eq!((&second.cubin, &second.log, &second.by), (&first.cubin, &first.log, &first.by));
    for (name, options, sm) in [
        ("a.ptx", JitOptions::default(), ORIN),
        ("b.ptx", options.clone(), ORIN),
        ("a.ptx", options.clone(), (8, 6)),
    ] {
        let other = inputs(&[(name, PTX.as_bytes())]);
        assert!(!tools.linker().link(&other, &options, sm).unwrap().cached, "{name} {options:?}");
    }
    // Another version of a tool.
    let library =
        std::fs::File::options().append(true).open(tools.0.path().join("libnvJitLink.so.12")).unwrap();
    library.set_modified(std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1)).unwrap();
    assert!(!tools.linker().link(&input, &options, ORIN).unwrap().cached);
}

#[test]
fn options_are_those_of_the_tool() {
    let Some(tools) = Tools::new() else { return };
    let old = versioned("3.0");
    let all = |optimisation, debug| JitOptions {
        max_registers: Some(40),
        optimisation: Some(optimisation),
        line_info: true,
        debug,
        verbose: true,
        other: vec!["-Xptxas=-x".to_owned(), "-y".to_owned()],
    };
    for (level, debug, linked, assembled) in [
        (0, false, "-maxrregcount=40 -lineinfo -O0", "-maxrregcount=40 -lineinfo -O0"),
        (2, true, "-maxrregcount=40 -g -Xptxas=-O2", "-maxrregcount=40 -g -O2"),
        (4, true, "-maxrregcount=40 -g", "-maxrregcount=40 -g"),
    ] {
        let link =
            |text: &str| tools.linker().link(&inputs(&[("a", text.as_bytes())]), &all(level, debug), ORIN);
        let by_library = link(PTX).unwrap();
        let expected = format!(": -arch=sm_87 {linked} -verbose -Xptxas=-x -y | ");
        assert!(text(&by_library).contains(&expected), "{}", text(&by_library));
        let by_program = link(&old).unwrap();
        let expected = format!("assembled -arch=sm_87 {assembled} -v -x -y -o output.cubin input.ptx");
        assert_eq!(text(&by_program), expected);
        assert!(by_program.by.starts_with("ptxas (/") && by_program.log == "fake: a remark\n");
    }
    let refuse = |option: &str| {
        let options = JitOptions { other: vec![option.to_owned()], ..JitOptions::default() };
        tools.linker().link(&inputs(&[("a", PTX.as_bytes())]), &options, ORIN).unwrap_err()
    };
    assert!(matches!(refuse("-arch=sm_80"), Error::Request(CompileRequestError::Architecture { .. })));
    assert!(matches!(refuse("-unknown"), Error::NvJitLink { call: "nvJitLinkCreate", status: 1 }));
}

#[test]
fn ptxas_takes_what_nvjitlink_refuses() {
    let Some(tools) = Tools::new() else { return };
    let (old, new) = (versioned("3.0"), versioned("9.9"));
    for ptx in [&old, &new] {
        assert!(text(&tools.link(&[("a", ptx.as_bytes())]).unwrap()).starts_with("assembled "));
    }
    // Not among other inputs: they need the linker.
    let both = tools.link(&[("a", old.as_bytes()), ("b", OBJECT)]).unwrap();
    assert!(text(&both).starts_with("link "));

    let tools = tools.without("libnvJitLink.so.12");
    assert!(text(&tools.link(&[("a", PTX.as_bytes())]).unwrap()).starts_with("assembled "));
    let error = tools.link(&[("a", PTX.replace("ret;", "invalid").as_bytes())]).unwrap_err();
    assert!(matches!(&error, Error::Compilation { log, .. } if log.contains("line 1")), "{error}");
    let error = tools.link(&[("b", OBJECT)]).unwrap_err();
    assert!(matches!(error, Error::NoNvJitLink { .. }), "{error}");

    let tools = tools.without("ptxas");
    let error = tools.link(&[("a", PTX.as_bytes())]).unwrap_err();
    assert!(matches!(&error, Error::NoNvJitLink { tried } if tried.len() == 2), "{error}");
    assert!(error.to_string().contains("pip install nvidia-nvjitlink-cu12"), "{error}");
    let error = tools.link(&[("a", old.as_bytes())]).unwrap_err();
    assert!(matches!(error, Error::NoPtxas { .. }), "{error}");
    assert!(error.to_string().contains("pip install nvidia-cuda-nvcc-cu12"), "{error}");
}

#[test]
fn errors_are_told_apart() {
    let Some(tools) = Tools::new() else { return };
    let tools = tools.without("ptxas");
    let invalid = PTX.replace("ret;", "invalid");
    let external = format!("{PTX}\n.extern f;");
    let newer = versioned("8.0").replace("sm_50", "sm_90");
    let lto = b"\xed\x43\x4e\x7f\x01\x3e\x02\x54";
    // A fat binary whose only entry is of the kind of LTO IR.
    let mut fat_lto = include_bytes!("../../cubin/tests/data/plain.fatbin")[..16 + 64 + 2728].to_vec();
    fat_lto[8..16].copy_from_slice(&(64 + 2728_u64).to_le_bytes());
    fat_lto[16] = 8;
    let is = |data: &[u8], matches: fn(&Error) -> bool| {
        let error = tools.link(&[("k.ptx", data)]).unwrap_err();
        assert!(matches(&error), "{error:?}");
        assert!(!error.to_string().is_empty());
    };
    is(
        invalid.as_bytes(),
        |e| matches!(e, Error::Compilation { name, log } if name == "k.ptx" && log.contains("line 1")),
    );
    is(
        versioned("9.9").as_bytes(),
        |e| matches!(e, Error::UnsupportedPtx { log, .. } if log.contains("'8.8'")),
    );
    is(newer.as_bytes(), |e| {
        matches!(e, Error::Cubin(cubin::Error::WrongArchitecture { cubin: 90, gpu: 87, .. }))
    });
    is(lto, |e| matches!(e, Error::NotAnImage { found: FileKind::LtoIr, .. }));
    is(&fat_lto, |e| matches!(e, Error::NotAnImage { found: FileKind::LtoIr, .. }));
    is(b"\xb1\x43\x62\x46\x01\0\0\0", |e| matches!(e, Error::NotAnImage { found: FileKind::FatWrapper, .. }));
    is(b"", |e| matches!(e, Error::NotAnImage { found: FileKind::Empty, .. }));
    is(b"int main() {}", |e| matches!(e, Error::NotAnImage { found: FileKind::Text, .. }));
    is(&FAT[..40], |e| matches!(e, Error::Cubin(cubin::Error::BadFatBinary { .. })));
    is(&OBJECT[..100], |e| matches!(e, Error::Cubin(cubin::Error::Truncated { .. })));
    is(external.as_bytes(), |e| matches!(e, Error::UnresolvedSymbols { symbols, .. } if symbols == &["f"]));
    let defined = PTX.replace("ret;", ".func (f)");
    assert!(tools.link(&[("k.ptx", external.as_bytes()), ("f.ptx", defined.as_bytes())]).is_ok());

    let link = |inputs: &[(&str, &[u8])], sm| {
        tools.linker().link(&self::inputs(inputs), &JitOptions::default(), sm).unwrap_err()
    };
    let old_gpu = link(&[("a", FAT)], (7, 5));
    assert!(matches!(old_gpu, Error::Cubin(cubin::Error::NoFittingEntry { gpu: 75, .. })), "{old_gpu}");
    let object = link(&[("a", OBJECT)], (8, 6));
    assert!(matches!(object, Error::Cubin(cubin::Error::WrongArchitecture { .. })), "{object}");
    let linked = link(&[("a", CUBIN), ("b", OBJECT)], ORIN);
    assert!(matches!(&linked, Error::Request(CompileRequestError::LinkedCubin { name }) if name == "a"));
    assert!(matches!(link(&[], ORIN), Error::Request(CompileRequestError::NoInput)));
}

/// While nvJitLink links, it calls `libcuda.so.1`, which may be a program on this library.
#[test]
fn no_lock_is_held_while_nvjitlink_runs() {
    let Some(tools) = Tools::new() else { return };
    let linker = &tools.linker();
    thread::scope(|scope| {
        let link = |name| {
            let ptx = format!("{PTX}// together {name}\n");
            linker
                .link(&inputs(&[(name, ptx.as_bytes())]), &JitOptions::default(), ORIN)
                .map(|linked| linked.cached)
        };
        let threads = ["a", "b"].map(|name| scope.spawn(move || link(name)));
        for thread in threads {
            assert!(matches!(thread.join().unwrap(), Ok(false)));
        }
    });
}

/// NVIDIA's tools; `None`, with a message, if they are not installed.
fn real() -> Option<(Linker, TempDir)> {
    let root = tempfile::tempdir().unwrap();
    let linker = Linker::find().with_cache(Some(Cache::at(root.path(), 1 << 20)));
    // Without nvJitLink, ptxas compiles PTX; objects need nvJitLink.
    match linker.link(&inputs(&[("tiny.o", OBJECT)]), &JitOptions::default(), ORIN) {
        Ok(_) => Some((linker, root)),
        Err(error @ Error::NoNvJitLink { .. }) => {
            println!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Runs `tiny` of an image: a value into each element.
fn run(linker: &Linker, image: &[u8]) {
    let device = Device::open(DeviceKind::Sim).unwrap();
    let linked = linker.link(&inputs(&[("tiny", image)]), &JitOptions::default(), ORIN).unwrap();
    run_program(&device, &Program::load(&device, &linked.cubin).unwrap());
}

fn run_program(device: &Device, program: &Program) {
    let out = device.alloc_zeroed::<u32>(8).unwrap();
    let mut queue = device.queue().unwrap();
    unsafe { queue.launch(&program.kernel("tiny").unwrap(), 1, 8, &args![&out, 5_u32]) }.unwrap();
    queue.wait(Duration::from_secs(60)).unwrap();
    assert_eq!(out.to_vec().unwrap(), [5; 8]);
}

#[test]
fn a_fat_binary_with_code_for_the_device_runs_without_tools() {
    let device = Device::open(DeviceKind::Sim).unwrap();
    let load = |image: &[u8]| Program::from_image(&device, "tiny", image, &JitOptions::default());
    for image in [FAT, CUBIN, include_bytes!("../../cubin/tests/data/group.fatbin")] {
        run_program(&device, &load(image).unwrap());
    }
    let other = load(include_bytes!("../../cubin/tests/data/tiny.sm_80.cubin")).unwrap_err();
    assert!(
        matches!(other, tegra_hcq::Error::Cubin(cubin::Error::WrongArchitecture { cubin: 80, gpu: 87, .. })),
        "{other}"
    );
}

/// As nvcc does: an object of the CPU with a fat binary of relocatable code, alone and in a library.
fn run_objects(linker: &Linker) {
    let folder = tempfile::tempdir().unwrap();
    let fat = concat!(env!("CARGO_MANIFEST_DIR"), "/../cubin/tests/data/object.fatbin");
    let source = format!(
        ".section __nv_relfatbin,\"a\"\n.balign 8\nfat: .incbin \"{fat}\"\n.section .nvFatBinSegment,\"aw\"\n\
         .balign 8\n.long 0x466243b1, 1\n.quad fat, 0\n"
    );
    std::fs::write(folder.path().join("tiny.s"), source).unwrap();
    for command in [&["cc", "-c", "tiny.s"][..], &["ar", "rcs", "libtiny.a", "tiny.o"]] {
        match Command::new(command[0]).args(&command[1..]).current_dir(folder.path()).status() {
            Ok(status) => assert!(status.success(), "{command:?}"),
            Err(error) => return println!("SKIPPED: {}: {error}", command[0]),
        }
    }
    for file in ["tiny.o", "libtiny.a"] {
        run(linker, &std::fs::read(folder.path().join(file)).unwrap());
    }
}

#[test]
fn the_real_tools_make_programs_that_run_of_every_image() {
    let Some((linker, _root)) = real() else { return };
    let plain = include_bytes!("../../cubin/tests/data/plain.fatbin");
    for image in [PTX.as_bytes(), CUBIN, OBJECT, FAT, plain] {
        run(&linker, image);
    }
    run_objects(&linker);
    let old = versioned("3.0").replace("sm_50", "sm_20");
    match linker.link(&inputs(&[("old", old.as_bytes())]), &JitOptions::default(), ORIN) {
        Err(error @ Error::NoPtxas { .. }) => println!("SKIPPED: {error}"),
        result => {
            assert!(result.unwrap().by.starts_with("ptxas "));
            run(&linker, old.as_bytes());
        }
    }
}

#[test]
fn the_real_tools_say_what_is_wrong() {
    let Some((linker, _root)) = real() else { return };
    let head = ".version 7.0\n.target sm_80\n.address_size 64\n";
    let caller = format!("{head}.extern .func f;\n.visible .entry k() {{\ncall f;\nret;\n}}");
    let function = format!("{head}.visible .func f() {{\nret;\n}}");
    let options = JitOptions { verbose: true, max_registers: Some(32), ..JitOptions::default() };
    let link = |list: &[(&str, &str)]| {
        let list: Vec<_> = list.iter().map(|(name, text)| (*name, text.as_bytes())).collect();
        linker.link(&inputs(&list), &options, ORIN)
    };
    let linked = link(&[("k.ptx", &caller), ("f.ptx", &function)]).unwrap();
    let names: Vec<_> =
        cubin::Cubin::parse(&linked.cubin).unwrap().kernels().iter().map(|k| k.name.clone()).collect();
    assert_eq!(names, ["k"]);
    assert!(linked.log.contains("Compiling entry function 'k'"), "{}", linked.log);
    for (text, matches) in [
        (
            &*caller,
            (|e| matches!(e, Error::UnresolvedSymbols { symbols, .. } if symbols == &["f"]))
                as fn(&Error) -> bool,
        ),
        (
            &caller.replace("ret", "rot"),
            |e| matches!(e, Error::Compilation { log, .. } if log.contains("'rot'")),
        ),
        (
            &caller.replace("7.0", "99.0"),
            |e| matches!(e, Error::UnsupportedPtx { log, .. } if log.contains("99.0")),
        ),
    ] {
        let error = link(&[("k.ptx", text)]).unwrap_err();
        assert!(matches(&error), "{error:?}");
    }
}
