//! Advice on headers that NVRTC does not find: it has no standard library, and CUDA's headers come in several packages.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Beginnings of the names of CUDA's headers, and the packages that contain them.
const PACKAGES: [(&[&str], Package); 3] = [
    (&["nv/", "cuda/", "cub/", "thrust/"], Package { wheel: "nvidia-cuda-cccl-cu12", apt: "cuda-cccl-12-6" }),
    (&["crt/"], Package { wheel: "nvidia-cuda-nvcc-cu12", apt: "cuda-crt-12-6" }),
    (
        &["cuda_", "cuda.h", "cooperative_groups", "mma.h", "vector_", "math_constants.h", "device_"],
        Package { wheel: "nvidia-cuda-runtime-cu12", apt: "cuda-cudart-dev-12-6" },
    ),
];
/// C headers whose functions NVRTC knows without a header.
const BUILT_IN: [(&str, &str); 5] = [
    ("assert", "assert needs no header"),
    ("math", "sqrtf, sin and the like need no header"),
    ("stdio", "printf needs no header"),
    ("stdlib", "malloc and free need no header"),
    ("string", "memcpy and memset need no header"),
];
/// Headers of C.
const C: [&str; 16] = [
    "assert", "complex", "ctype", "errno", "float", "inttypes", "limits", "math", "setjmp", "signal",
    "stdarg", "stddef", "stdint", "stdio", "stdlib", "string",
];
/// Headers of libcu++, which is not installed if its folder is unknown.
const LIBCU: [&str; 24] = [
    "array",
    "atomic",
    "barrier",
    "bit",
    "cfloat",
    "chrono",
    "climits",
    "cmath",
    "complex",
    "concepts",
    "cstddef",
    "cstdint",
    "cstdlib",
    "cstring",
    "functional",
    "initializer_list",
    "iterator",
    "latch",
    "limits",
    "optional",
    "ratio",
    "semaphore",
    "tuple",
    "type_traits",
];

/// Where a header comes from, in the packages of CUDA 12.
struct Package {
    wheel: &'static str,
    apt: &'static str,
}

/// Lines of advice on a failed compilation; empty if there is none. `folders` are those with CUDA's headers.
pub(super) fn on(log: &str, folders: &[PathBuf]) -> String {
    let missing = |line| {
        let name = between(line, "open source file \"").into_iter().next()?;
        let of_host = || on_host_header(Path::new(line.split_once('(')?.0), folders);
        // The program cannot change what CUDA's own headers include.
        on_package(name, folders).or_else(of_host).or_else(|| on_header(name, folders))
    };
    let mut lines: BTreeSet<String> = log.lines().filter_map(missing).collect();
    let is_integer = |name: &&str| name.ends_with("_t") && name.trim_start_matches('u').starts_with("int");
    if lines.is_empty() && between(log, "identifier \"").iter().any(is_integer) {
        lines.extend(on_header("stdint.h", folders));
    }
    lines.iter().map(|line| format!("\nhint: {line}")).collect()
}

/// What follows a text up to a quotation mark, each time.
fn between<'l>(log: &'l str, start: &str) -> Vec<&'l str> {
    log.split(start).skip(1).filter_map(|rest| rest.split_once('"')).map(|(name, _)| name).collect()
}

/// A header of a package that is not installed.
fn on_package(name: &str, folders: &[PathBuf]) -> Option<String> {
    let is_in = |(beginnings, _): &&(&[&str], Package)| {
        beginnings.iter().any(|beginning| name.starts_with(beginning))
    };
    let (_, package) = PACKAGES.iter().find(is_in)?;
    Some(format!("<{name}> is one of CUDA's headers: {}", install(package, folders)))
}

/// A header of CUDA that includes one of the standard library.
fn on_host_header(including: &Path, folders: &[PathBuf]) -> Option<String> {
    let header = folders.iter().find_map(|folder| including.strip_prefix(folder).ok())?;
    let instead = match header.components().next()?.as_os_str().to_str()? {
        "cub" => {
            "include what the kernel uses from <cub/block/...> and <cub/warp/...> instead of <cub/cub.cuh>"
        }
        "thrust" => "Thrust's algorithms are calls of the CPU",
        _ => "include it inside of #ifndef __CUDACC_RTC__",
    };
    Some(format!("<{}> is a header for the CPU, which NVRTC cannot compile: {instead}", header.display()))
}

/// A header of the standard library.
fn on_header(name: &str, folders: &[PathBuf]) -> Option<String> {
    let stem = name.strip_suffix(".h").filter(|stem| C.contains(stem));
    let is_cpp = stem.is_none() && !name.contains(['.', '/']);
    if stem.is_none() && !is_cpp {
        return None;
    }
    // <cstdint> is <stdint.h>.
    let c = stem.or_else(|| name.strip_prefix('c').filter(|rest| C.contains(rest)));
    let begin = format!("NVRTC has no standard library, so there is no <{name}>");
    if let Some((_, text)) = BUILT_IN.iter().find(|(known, _)| c == Some(known)) {
        return Some(format!("{begin}: {text}"));
    }
    let counterpart = c.map_or_else(|| name.to_owned(), |c| format!("c{c}"));
    let file = Path::new("cuda/std").join(&counterpart);
    let home = folders.iter().find(|folder| folder.join("cuda/std").is_dir());
    let known = match home {
        Some(folder) => folder.join(&file).is_file(),
        None => LIBCU.contains(&counterpart.as_str()),
    };
    if !known {
        return Some(format!(
            "{begin}, and libcu++ has no counterpart: keep it for the CPU inside of #ifndef __CUDACC_RTC__"
        ));
    }
    let get = home.map_or_else(|| format!(" ({})", install(&PACKAGES[0].1, folders)), |_| String::new());
    let example = if c == Some("stdint") { "; unsigned and long long need no header" } else { "" };
    Some(format!("{begin}: include <{}>, whose names are in cuda::std{get}{example}", file.display()))
}

/// How to get a package.
fn install(package: &Package, folders: &[PathBuf]) -> String {
    let Package { wheel, apt } = package;
    let searched: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
    let searched = if searched.is_empty() { "no folder".to_owned() } else { searched.join(", ") };
    format!(
        "install {wheel} (pip) or {apt} (apt) of NVRTC's release, or name a folder by -I; searched: {searched}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(name: &str, folders: &[PathBuf]) -> String {
        on(
            &format!(
                "x.cu(1): catastrophic error: cannot open source file \"{name}\"\n  #include <{name}>\n"
            ),
            folders,
        )
    }

    #[test]
    fn each_missing_header_has_its_advice() {
        let root = tempfile::tempdir().unwrap();
        let folders = [root.path().to_owned()];
        std::fs::create_dir_all(root.path().join("cuda/std")).unwrap();
        std::fs::write(root.path().join("cuda/std/cstdint"), "").unwrap();
        for (name, without, with) in [
            ("stdint.h", "include <cuda/std/cstdint>", "cuda::std; unsigned and"),
            ("cstdint", "install nvidia-cuda-cccl-cu12 (pip)", "include <cuda/std/cstdint>"),
            ("cassert", "assert needs no header", "assert needs no header"),
            ("stdio.h", "printf needs no header", "printf needs no header"),
            ("math.h", "sqrtf, sin and the like need no header", "need no header"),
            ("cstring", "memcpy and memset need no header", "need no header"),
            ("type_traits", "include <cuda/std/type_traits>", "no counterpart"),
            (
                "vector",
                "no counterpart: keep it for the CPU inside of #ifndef __CUDACC_RTC__",
                "no counterpart",
            ),
            ("nv/target", "install nvidia-cuda-cccl-cu12 (pip) or cuda-cccl-12-6 (apt)", "searched: /"),
            ("crt/mma.h", "install nvidia-cuda-nvcc-cu12", "searched: /"),
            ("cuda_fp16.h", "nvidia-cuda-runtime-cu12 (pip) or cuda-cudart-dev-12-6", "searched: /"),
        ] {
            let (bare, full) = (missing(name, &[]), missing(name, &folders));
            assert!(bare.starts_with("\nhint: ") && bare.contains(without), "{name}: {bare}");
            assert!(full.contains(with) && full.matches("hint").count() == 1, "{name}: {full}");
        }
        for (header, advice) in [
            (
                "cub/detail/choose_offset.cuh",
                "from <cub/block/...> and <cub/warp/...> instead of <cub/cub.cuh>",
            ),
            ("thrust/version.h", "calls of the CPU"),
            ("other.h", "#ifndef __CUDACC_RTC__"),
        ] {
            let path = root.path().join(header);
            let log =
                format!("{}(44): catastrophic error: cannot open source file \"cstdint\"\n", path.display());
            let hint = on(&log, &folders);
            let begin = format!("\nhint: <{header}> is a header for the CPU");
            assert!(hint.starts_with(&begin) && hint.contains(advice), "{hint}");
            assert!(on(&log, &[]).contains("include <cuda/std/cstdint>"));
        }
        assert_eq!(missing("mine.h", &[]) + &missing("folder/mine", &[]), "");
        let undefined = on("x.cu(1): error: identifier \"uint32_t\" is undefined\n", &[]);
        assert!(undefined.contains("<cuda/std/cstdint>"), "{undefined}");
        assert_eq!(on("x.cu(1): error: identifier \"size\" is undefined\n", &[]), "");
    }
}
