//! Tests of the program `orin` and of its decoders.

mod bring_up;
mod bytes;
mod check;
mod compile;
mod completions;
mod cuda;
mod decode;
mod decode_strace;
mod dmesg;
mod exit_codes;
mod info;
mod llm;
mod llm_serve;
mod new;
mod profile_kernel;
mod run;
#[path = "../../../../fuzz/src/runner.rs"]
mod runner;
mod serve;
mod timeline;
