//! Tests of `cargo xtask check-headers` with synthetic headers: correct, wrong, incomplete, not compilable.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use super::orin_dev;

/// A correct nvmap header with two structs and two requests.
const RIGHT: &str = "
#include <linux/ioctl.h>
#include <linux/types.h>
struct nvmap_alloc_handle { __u32 handle; __u32 heap_mask; __u32 flags; __u32 align; __s32 numa_nid; };
struct nvmap_heap_size { __u32 heap; __u64 size; };
#define NVMAP_IOC_ALLOC _IOW('N', 3, struct nvmap_alloc_handle)
#define NVMAP_IOC_GET_HEAP_SIZE _IOR('N', 26, struct nvmap_heap_size)
";

/// Returns whether a C compiler is available; otherwise prints that the test is skipped.
fn compiler() -> bool {
    let there = Command::new("cc").arg("--version").output().is_ok_and(|output| output.status.success());
    if !there {
        eprintln!("SKIPPED: no C compiler (cc) on this machine");
    }
    there
}

fn write(folder: &TempDir, path: &str, text: &str) {
    let file = folder.path().join(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}

fn check(folder: &Path, options: &[&str]) -> Output {
    orin_dev().env_remove("CC").args(["check-headers", "--l4t"]).arg(folder).args(options).output().unwrap()
}

/// Exit code and JSON of a comparison.
fn compared(folder: &TempDir) -> (Option<i32>, Value) {
    let output = check(folder.path(), &["--json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let json = serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{error}: {text}\n{}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code(), json)
}

fn item<'a>(json: &'a Value, name: &str) -> &'a Value {
    json["items"].as_array().unwrap().iter().find(|item| item["name"] == name).unwrap()
}

fn status<'a>(json: &'a Value, name: &str) -> &'a str {
    item(json, name)["status"].as_str().unwrap()
}

#[test]
fn equal_items_are_ok_and_missing_items_are_absent() {
    if !compiler() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    write(&folder, "nvidia-oot/include/uapi/linux/nvmap.h", RIGHT);
    let (code, json) = compared(&folder);
    assert_eq!(code, Some(0));
    for name in [
        "struct nvmap_alloc_handle",
        "nvmap_alloc_handle.numa_nid",
        "nvmap_heap_size.size",
        "NVMAP_IOC_ALLOC",
        "NVMAP_IOC_GET_HEAP_SIZE",
    ] {
        assert_eq!(status(&json, name), "ok", "{name}");
    }
    // A struct that the header lacks, and a whole header that does not exist.
    assert_eq!(status(&json, "struct nvmap_rw_handle"), "absent");
    assert_eq!(status(&json, "NVMAP_IOC_WRITE"), "absent");
    assert_eq!(status(&json, "struct nvgpu_alloc_as_args"), "absent");
    assert_eq!(json["summary"]["drift"], 0);
    assert_eq!(item(&json, "nvmap_heap_size.size")["theirs"]["offset"], 8);
}

#[test]
fn a_moved_field_and_a_changed_number_are_drift() {
    if !compiler() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let wrong = RIGHT
        .replace("__u32 flags; __u32 align;", "__u64 flags; __u32 align;")
        .replace("_IOR('N', 26", "_IOR('N', 99");
    write(&folder, "nvmap.h", &wrong);
    let (code, json) = compared(&folder);
    assert_eq!(code, Some(1));
    assert_eq!(status(&json, "struct nvmap_alloc_handle"), "DRIFT");
    assert_eq!(item(&json, "struct nvmap_alloc_handle")["theirs"], 24);
    assert_eq!(status(&json, "nvmap_alloc_handle.heap_mask"), "ok");
    assert_eq!(status(&json, "nvmap_alloc_handle.flags"), "DRIFT");
    assert_eq!(status(&json, "nvmap_alloc_handle.align"), "DRIFT");
    // The request number includes the size.
    assert_eq!(status(&json, "NVMAP_IOC_ALLOC"), "DRIFT");
    assert_eq!(status(&json, "NVMAP_IOC_GET_HEAP_SIZE"), "DRIFT");
    assert_eq!(status(&json, "nvmap_heap_size.size"), "ok");
}

/// The nvmap header of R39 with a part of its declarations.
const R39: &str = "
#include <linux/ioctl.h>
#include <linux/types.h>
struct nvmap_alloc_handle { __u32 handle, heap_mask, flags, align; __s32 numa_nid; __u64 va; };
struct nvmap_query_heap_params { __u32 heap_mask; __u32 flags; __u8 contig; __u64 total; __u64 free;
    __u64 largest_free_block; __u32 granule_size; __s32 numa_id; };
#define NVMAP_IOC_ALLOC _IOW('N', 3, struct nvmap_alloc_handle)
#define NVMAP_IOC_QUERY_HEAP_PARAMS _IOR('N', 105, struct nvmap_query_heap_params)
#define NVMAP_IOC_QUERY_HEAP_PARAMS_NUMA _IOR('N', 108, struct nvmap_query_heap_params)
";

#[test]
fn headers_are_compared_with_the_rows_of_their_release() {
    if !compiler() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    write(&folder, "nvmap.h", R39);
    let (code, json) = compared(&folder);
    assert_eq!((code, &json["release"]["compared_with"]), (Some(0), &Value::from("r39.2")));
    assert!(json["release"]["looks_like"].as_str().unwrap().contains("r39"), "{}", json["release"]);
    for name in ["nvmap_alloc_handle.va", "NVMAP_IOC_ALLOC", "NVMAP_IOC_QUERY_HEAP_PARAMS_NUMA"] {
        assert_eq!(status(&json, name), "ok", "{name}");
    }
    // The same headers, as those of another release.
    let output = check(folder.path(), &["--json", "--release", "r36.4.7"]);
    assert_eq!(output.status.code(), Some(1));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(status(&json, "struct nvmap_alloc_handle"), "DRIFT");
    assert_eq!(item(&json, "NVMAP_IOC_QUERY_HEAP_PARAMS_NUMA")["ours"], Value::Null);
    assert_eq!(status(&json, "NVMAP_IOC_QUERY_HEAP_PARAMS_NUMA"), "DRIFT");
    // A request that R39 no longer has.
    let kept = "struct nvmap_heap_size { __u32 heap; __u64 size; };\n\
                #define NVMAP_IOC_GET_HEAP_SIZE _IOR('N', 26, struct nvmap_heap_size)\n";
    write(&folder, "nvmap.h", &format!("{R39}{kept}"));
    let output = check(folder.path(), &["--json", "--release", "r39.2"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), status(&json, "NVMAP_IOC_GET_HEAP_SIZE")), (Some(1), "DRIFT"));
    let output = check(folder.path(), &["--release", "r35"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("known are r36.4.3, r36.4.7, r39.2"));
}

#[test]
fn a_missing_field_does_not_hide_the_rest() {
    if !compiler() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    write(&folder, "linux/nvmap.h", &RIGHT.replace(" __s32 numa_nid;", ""));
    let (code, json) = compared(&folder);
    assert_eq!(code, Some(1), "without the field, the struct is smaller");
    assert_eq!(status(&json, "nvmap_alloc_handle.numa_nid"), "absent");
    assert_eq!(status(&json, "nvmap_alloc_handle.align"), "ok");
    assert_eq!(status(&json, "struct nvmap_heap_size"), "ok");
    assert_eq!(item(&json, "struct nvmap_alloc_handle")["theirs"], 16);
    assert_eq!(json["release"]["looks_like"], "older than r36");
}

#[test]
fn bit_fields_kernel_structs_and_neighbours_are_read() {
    if !compiler() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    write(&folder, "base.h", "#include <linux/ioctl.h>\n#include <linux/types.h>\n");
    write(
        &folder,
        "nvgpu-ctrl.h",
        "#include \"base.h\"\n#include <linux/base.h>\n\
         struct nvgpu_gpu_l2_fb_args { __u8 l2_flush:1, l2_invalidate:1, fb_flush:1; __u8 reserved[4]; } __packed;\n\
         #define NVGPU_GPU_IOCTL_FLUSH_L2 _IOWR('G', 12, struct nvgpu_gpu_l2_fb_args)\n",
    );
    write(
        &folder,
        "nvmap.h",
        "#include \"base.h\"\n#ifdef __KERNEL__\n#ifdef CONFIG_COMPAT\n\
         struct nvmap_cache_op_32 { __u32 addr; __u32 handle; __u32 len; __s32 op; };\n#endif\n#endif\n",
    );
    let (code, json) = compared(&folder);
    assert_eq!(code, Some(0));
    assert_eq!(status(&json, "struct nvgpu_gpu_l2_fb_args"), "ok");
    assert_eq!(status(&json, "nvgpu_gpu_l2_fb_args.l2_flush"), "unchecked");
    assert_eq!(status(&json, "NVGPU_GPU_IOCTL_FLUSH_L2"), "ok");
    assert_eq!(status(&json, "struct nvmap_cache_op_32"), "ok");
}

#[test]
fn the_table_names_differences() {
    if !compiler() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    write(&folder, "nvmap.h", &RIGHT.replace("__u32 heap_mask", "__u64 heap_mask"));
    let output = check(folder.path(), &["--differences"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find(|line| line.contains("nvmap_alloc_handle.heap_mask")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(
        words,
        ["nvmap_alloc_handle.heap_mask", "at", "4,", "4", "bytes", "at", "8,", "8", "bytes", "DRIFT"]
    );
    assert!(!text.contains("nvmap_heap_size"), "equal items are omitted:\n{text}");
    assert!(text.contains("looks like: "), "{text}");
}

#[test]
fn a_header_that_does_not_compile_is_named_with_the_reason() {
    if !compiler() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    write(&folder, "nvmap.h", "#include <linux/not-there-at-all.h>\n");
    let output = check(folder.path(), &[]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("nvmap.h") && text.contains("not-there-at-all.h"), "{text}");
}

#[test]
fn wrong_use_is_exit_code_2_with_a_cure() {
    let folder = tempfile::tempdir().unwrap();
    for (output, expected) in
        [(check(Path::new("/no/such/folder"), &[]), "not a folder"), (check(folder.path(), &[]), "nvgpu.h")]
    {
        assert_eq!(output.status.code(), Some(2));
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(expected), "{text}");
    }
    write(&folder, "nvmap.h", RIGHT);
    let output = check(folder.path(), &["--cc", "no-such-compiler"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("--cc"));
}

/// As in CI: the folder comes from the environment, and all five headers are required.
#[test]
fn ci_names_the_folder_by_the_environment_and_demands_all_headers() {
    if !compiler() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    write(&folder, "nvidia-oot/include/uapi/linux/nvmap.h", RIGHT);
    let run = |folder: Option<&Path>, options: &[&str]| {
        let mut command = orin_dev();
        command.env_remove("CC").env_remove("L4T_HEADERS").arg("check-headers").args(options);
        if let Some(folder) = folder {
            command.env("L4T_HEADERS", folder);
        }
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, text) = run(None, &[]);
    assert_eq!(code, Some(2));
    assert!(text.contains("L4T_HEADERS"), "{text}");
    assert_eq!(run(Some(folder.path()), &[]).0, Some(0));
    let (code, text) = run(Some(folder.path()), &["--complete"]);
    assert_eq!(code, Some(2));
    assert!(text.contains("nvgpu-as.h") && !text.contains("nvmap.h"), "{text}");
    let other =
        ["nvgpu.h", "nvgpu-ctrl.h", "nvgpu-as.h"].map(|name| format!("nvgpu/include/uapi/linux/{name}"));
    for path in other.iter().map(String::as_str).chain(["nvidia-oot/include/uapi/linux/host1x-fence.h"]) {
        write(&folder, path, "#include <linux/types.h>\n");
    }
    assert_eq!(run(Some(folder.path()), &["--complete"]), (Some(0), String::new()));
    // A difference is exit code 1 here as well.
    write(&folder, "nvidia-oot/include/uapi/linux/nvmap.h", &RIGHT.replace("_IOW('N', 3", "_IOW('N', 4"));
    assert_eq!(run(Some(folder.path()), &["--complete"]).0, Some(1));
}

#[test]
fn a_compiler_for_32_bit_machines_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder, "nvmap.h", RIGHT);
    let probe = folder.path().join("probe.c");
    fs::write(&probe, "#include <linux/types.h>\n#include <stddef.h>\n").unwrap();
    let has_m32 = Command::new("cc")
        .args(["-m32", "-fsyntax-only"])
        .arg(&probe)
        .output()
        .is_ok_and(|output| output.status.success());
    if !has_m32 {
        eprintln!("SKIPPED: cc on this machine does not compile for 32-bit machines");
        return;
    }
    let output = check(folder.path(), &["--cc", "cc -m32"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("32-bit"));
}
