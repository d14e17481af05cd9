//! System-call traces of strace, with the names of the GPU driver's requests.
//!
//! strace does not know the requests of nvgpu, nvmap and host1x and prints their numbers, or the name
//! of another driver's request with the same number. The meaning of a number depends on the node,
//! so the decoder follows every descriptor from the call that opened it.

mod descriptors;
mod line;
mod print;
mod request;
mod trace;

use std::io::{self, BufRead, Read, Write};

use crate::commands::Verdict;
use print::Printer;
use trace::Decoder;

/// Longest line in bytes; the rest of a longer line is skipped.
const LINE_LIMIT: u64 = 64 << 10;

/// Decodes a trace line by line, so it may be larger than memory. Writes one
/// line for each request, then a summary, as text or as one JSON object per line.
///
/// Accepts any bytes. The summary counts the lines that cannot be parsed. With such lines, or without any request of
/// the GPU's driver, the input is [`Verdict::Damaged`], and the summary says why.
///
/// # Errors
///
/// Returns the error of reading `input` or writing `output`.
pub fn decode(mut input: impl BufRead, output: impl Write, json: bool) -> io::Result<Verdict> {
    let mut printer = Printer::new(output, json);
    let mut decoder = Decoder::default();
    let mut buffer = Vec::new();
    while next_line(&mut input, &mut buffer)? {
        if let Some(call) = decoder.line(&String::from_utf8_lossy(&buffer)) {
            printer.call(&call)?;
        }
    }
    for call in decoder.end() {
        printer.call(&call)?;
    }
    let summary = decoder.summary();
    printer.summary(summary)?;
    Ok(if summary.problems().is_empty() { Verdict::Whole } else { Verdict::Damaged })
}

/// Reads the next line, at most [`LINE_LIMIT`] of it; false at the end.
fn next_line(reader: &mut impl BufRead, buffer: &mut Vec<u8>) -> io::Result<bool> {
    buffer.clear();
    if reader.by_ref().take(LINE_LIMIT).read_until(b'\n', buffer)? == 0 {
        return Ok(false);
    }
    let mut complete = buffer.ends_with(b"\n");
    while !complete {
        let rest = reader.fill_buf()?;
        let end = rest.iter().position(|byte| *byte == b'\n');
        let length = end.map_or(rest.len(), |end| end + 1);
        complete = end.is_some() || rest.is_empty();
        reader.consume(length);
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decoded(trace: &[u8], json: bool) -> String {
        let mut output = Vec::new();
        let _ = decode(trace, &mut output, json).unwrap();
        String::from_utf8(output).unwrap()
    }

    /// Opening, bring-up, a fault of the program and the other drivers' calls in between, as the
    /// CUDA runtime's trace on an Orin shows them.
    const TRACE: &str = r#"openat(AT_FDCWD, "/etc/ld.so.cache", O_RDONLY|O_CLOEXEC) = 3
close(3)                                = 0
openat(AT_FDCWD, "/dev/nvmap", O_RDWR|O_SYNC|O_CLOEXEC) = 3
ioctl(3, TCGETS, 0xffffe1a2b3c8)        = -1 ENOTTY (Inappropriate ioctl for device)
openat(AT_FDCWD, "/dev/nvgpu/igpu0/ctrl", O_RDWR|O_CLOEXEC) = 4
ioctl(4, _IOC(_IOC_READ|_IOC_WRITE, 0x47, 0x5, 0x10), 0xffffe1a2b3f0) = 0
openat(AT_FDCWD, "/dev/dri/renderD128", O_RDWR|O_CLOEXEC) = 7
ioctl(7, DRM_IOCTL_VERSION, 0xffffe1a2) = 0
ioctl(7, _IOC(_IOC_READ|_IOC_WRITE, 0x48, 0xe, 0x10), 0xffffe1a2) = -1 ENOTTY (Inappropriate ioctl for device)
openat(AT_FDCWD, "/dev/host1x-fence", O_RDWR) = 6
ioctl(6, _IOC(_IOC_READ|_IOC_WRITE, 0x58, 0x10, 0x8), 0xffffe1a2) = 0
close(6)                                = 0
ioctl(4, _IOC(_IOC_READ|_IOC_WRITE, 0x47, 0x8, 0x40), 0xffffe1a2b360) = -1 EINVAL (Invalid argument)
ioctl(4, NVGPU_GPU_IOCTL_ALLOC_AS, {big_page_size=0, as_fd=6}) = 0
ioctl(6, _IOC(_IOC_READ|_IOC_WRITE, 0x41, 0x6, 0x20), 0xffffe1a2b360) = 0
ioctl(4, _IOC(_IOC_READ|_IOC_WRITE, 0x47, 0x9, 0x18), 0xffffe1a2b360) = 0
ioctl(8, TCGETA, 0)                     = 0
ioctl(8, _IOC(_IOC_READ|_IOC_WRITE, 0x54, 0x12, 0x10), 0xffffe1a2b360) = 0
ioctl(8, SNDCTL_TMR_STOP or TCSETSW, {c_iflag=, ...}) = 0
ioctl(9, 0xc0684880, 0xffffe1a2b360)    = 0
ioctl(3, _IOC(_IOC_NONE, 0x4e, 0x4, 0), 0x8000001f) = 0
ioctl(4, _IOC(_IOC_READ|_IOC_WRITE, 0x47, 0x63, 0x10), 0xffffe1a2) = -1 ENOTTY (Inappropriate ioctl for device)
mmap(NULL, 65536, PROT_READ|PROT_WRITE, MAP_SHARED, 4, 0) = 0xffff8a010000
ioctl(1, TCGETS, {c_iflag=ICRNL, ...})  = 0
ioctl(4, _IOC(_IOC_READ|_IOC_WRITE
+++ exited with 0 +++
"#;

    #[test]
    fn a_bring_up_reads_as_names() {
        insta::assert_snapshot!(decoded(TRACE.as_bytes(), false));
    }

    #[test]
    fn json_says_the_same() {
        let text = decoded(TRACE.as_bytes(), true);
        let objects: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let (summary, calls) = objects.split_last().unwrap();
        assert_eq!(summary["kind"], "summary");
        assert!(calls.iter().all(|call| call["kind"] == "ioctl"));
        let named = |name: &str| calls.iter().find(|call| call["request"] == name).unwrap();
        let failed = &calls[3];
        assert_eq!(failed["request"], "NVGPU_GPU_IOCTL_ALLOC_AS");
        assert_eq!(failed["errno"], "EINVAL");
        assert_eq!(failed["result"], serde_json::Value::Null);
        let setup = named("NVGPU_IOCTL_CHANNEL_SETUP_BIND");
        assert_eq!(setup["role"], "channel");
        assert_eq!(setup["role_inferred"], true);
        assert_eq!(setup["size"], 104);
        assert_eq!(setup["result"], 0);
        assert_eq!(named("NVGPU_IOCTL_TSG_ENABLE")["code"], "0x00005403");
        insta::assert_snapshot!(serde_json::to_string_pretty(summary).unwrap());
    }

    #[test]
    fn an_endless_line_is_cut_and_the_next_one_read() {
        let mut trace = b"ioctl(4, \"".to_vec();
        trace.resize(300_000, b'x');
        trace.extend(b"\nopenat(AT_FDCWD, \"/dev/nvmap\", O_RDWR) = 3\n");
        trace.extend(b"ioctl(3, _IOC(_IOC_READ|_IOC_WRITE, 0x4e, 0, 0x8), 0xff) = 0");
        let text = decoded(&trace, true);
        assert!(text.contains("NVMAP_IOC_CREATE"), "{text}");
        assert!(text.lines().last().unwrap().contains("\"lines\":3"), "{text}");
    }

    #[test]
    fn a_trace_without_the_gpu_or_with_cut_lines_is_reported() {
        let verdict = |trace: &str| {
            let mut output = Vec::new();
            let verdict = decode(trace.as_bytes(), &mut output, false).unwrap();
            (verdict, String::from_utf8(output).unwrap())
        };
        let whole = "ioctl(3, _IOC(_IOC_READ|_IOC_WRITE, 0x4e, 0, 0x8), 0xff) = 0\n";
        let (clean, text) = verdict(whole);
        assert_eq!(clean, Verdict::Whole, "{text}");
        let (cut, text) = verdict(&format!("{whole}ioctl(3, _IOC(_IOC_READ|_IOC_WR"));
        assert_eq!(cut, Verdict::Damaged);
        assert!(text.contains("problem: 1 line is cut or damaged"), "{text}");
        for nothing in ["", "openat(AT_FDCWD, \"/etc/passwd\", O_RDONLY) = 3\n"] {
            let (without, text) = verdict(nothing);
            assert_eq!(without, Verdict::Damaged);
            assert!(text.contains("problem: no request of the GPU's driver"), "{text}");
            assert!(decoded(nothing.as_bytes(), true).contains("\"problems\":[\"no request"), "{text}");
        }
    }

    /// Pieces of traces in any order are the inputs most likely to confuse the parser.
    fn piece() -> impl Strategy<Value = String> {
        prop_oneof![
            proptest::sample::select(TRACE.lines().map(str::to_owned).collect::<Vec<_>>()),
            proptest::sample::select(vec![
                "ioctl(".to_owned(),
                ")".into(),
                " = ".into(),
                ", ".into(),
                "<unfinished ...>".into(),
                "<... ioctl resumed>".into(),
                "[pid 7] ".into(),
                "7 ".into(),
                "12:00:00 ".into(),
                "_IOC(_IOC_READ, 0x47, 0x5, 0x10)".into(),
                "close_range(0, 4294967295, 0) = 0".into(),
                "dup2(4, 2147483647) = 2147483647".into(),
                "clone(flags=0) = 9".into(),
                "\"".into(),
                "\\".into(),
                "{channel_fd=".into(),
                "4</dev/nvmap".into(),
                ">".into(),
                "\n".into(),
                "99999999999999999999".into(),
                "-1 ENOTTY".into(),
                "\u{e9}".into(),
            ]),
            ".{0,12}",
        ]
    }

    proptest! {
        #[test]
        fn no_text_stops_the_decoder(pieces in proptest::collection::vec(piece(), 0..40)) {
            let text = pieces.concat();
            decoded(text.as_bytes(), false);
            for line in decoded(text.as_bytes(), true).lines() {
                serde_json::from_str::<serde_json::Value>(line).unwrap();
            }
        }

        #[test]
        fn no_bytes_stop_the_decoder(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            decoded(&bytes, false);
        }
    }
}
