//! `orin llm`, on random models.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use infer::chat::{Conversation, Message, Role, Template};
use infer::decode::{Engine, Memory};
use infer::gguf::Writer;
use infer::model::{KvFormat, Model};
use infer::reference::{CacheFormat, Reference};
use infer::synthetic::Recipe;
use infer::tokenizer::{Controls, Tokenizer};
use orin_cli::testing::Program;
use orin_sim::{Config, SoftwareOrin};
use rustix::process::Signal;
use serde_json::{Value, json};
use tegra_hcq::{Device, DeviceKind};
use tempfile::TempDir;

/// A folder with a tiny model.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tiny.gguf"), Recipe::tiny_llama().to_bytes().unwrap()).unwrap();
    folder
}

fn orin(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, &[&["llm"], arguments].concat()).output().unwrap()
}

/// A command whose software Orin has 4 SMs: a launch for a tiny model has a block for each.
pub(crate) fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Program::new(env!("CARGO_BIN_EXE_orin"), folder).command(arguments);
    command.env("ORIN_SIM_BOARD", "nano-4");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn info_names_shape_formats_memory_and_speed() {
    let folder = folder();
    let output = orin(folder.path(), &["info", "--model", "tiny.gguf"]);
    let lines = text(&output.stdout);
    let value = |name: &str| {
        let line = lines.lines().find(|line| line.split_whitespace().next() == Some(name)).unwrap();
        line[name.len()..].trim_start().to_owned()
    };
    assert_eq!(value("architecture"), "llama");
    assert_eq!(value("positions"), "rotation of neighbours, base 500000, with factors");
    assert_eq!(value("tokenizer"), "BPE, words of llama-bpe");
    assert_eq!(value("chat"), "template");
    assert!(value("formats").starts_with("F32 5.12 KiB, F16 2.50 MiB"), "{lines}");
    let arguments = ["info", "--model", "tiny.gguf", "--json", "--ctx", "100", "--bandwidth", "1000"];
    let json: Value = serde_json::from_slice(&orin(folder.path(), &arguments).stdout).unwrap();
    let model = Model::open(folder.path().join("tiny.gguf")).unwrap();
    let memory = Memory::of(&model, 100, KvFormat::F16).unwrap();
    assert_eq!(json["weights_bytes"], memory.weights);
    assert_eq!(json["cache_bytes"], 2 * 2 * 128 * 2 * 100);
    assert_eq!(json["memory_bytes"], memory.total());
    let several = orin(folder.path(), &[&arguments[..], &["--parallel", "4", "--kv", "q8_0"]].concat());
    let several: Value = serde_json::from_slice(&several.stdout).unwrap();
    assert_eq!(several["cache_bytes"], 4 * 2 * 2 * 2 * (64 + 2 * 2) * 100);
    assert_eq!(several["prompts_bytes"], json["prompts_bytes"]);
    let four = Memory::of(&model, 100, KvFormat::Q8_0).unwrap().sessions(4);
    let printed = ["queues_bytes", "other_bytes", "memory_bytes"].map(|row| several[row].as_u64().unwrap());
    assert_eq!(printed, [four.queues, four.others, four.total()]);
    let limit = 1e12 / model.bytes_per_token() as f64;
    assert!((json["computed_limit_tokens_per_s"].as_f64().unwrap() - limit).abs() < 0.1);
    assert_eq!(json["stop_tokens"], serde_json::json!([508, 511]));
    let boards = json["boards"].as_array().unwrap();
    let of = |board: &Value, key: &str| board[key].as_u64().unwrap();
    assert!(boards.iter().all(|board| of(board, "longest_context") == 1024), "{boards:?}");
    assert!(boards.windows(2).all(|two| of(&two[0], "usable_bytes") <= of(&two[1], "usable_bytes")));
    assert!(lines.contains("Orin Nano 8 GB: up to 1024 positions, at most "), "{lines}");

    let long = orin(folder.path(), &["info", "--model", "tiny.gguf", "--ctx", "1025"]);
    let errors = text(&long.stderr);
    assert!(long.status.code() == Some(2) && errors.contains("1024 positions"), "{errors}");
}

#[test]
fn damaged_and_foreign_files_are_refused_with_the_reason() {
    let folder = folder();
    let bytes = fs::read(folder.path().join("tiny.gguf")).unwrap();
    fs::write(folder.path().join("cut.gguf"), &bytes[..bytes.len() / 2]).unwrap();
    fs::write(folder.path().join("other"), "no model\n").unwrap();
    let file = |name: &str, keys: &[(&str, u32)]| {
        let mut writer = Writer::new();
        keys.iter().for_each(|(key, value)| {
            writer.key(key, infer::gguf::Value::U32(*value));
        });
        let texts = infer::gguf::Array::Texts(["a", "b"].into_iter().collect());
        writer.key("tokenizer.ggml.tokens", infer::gguf::Value::Array(texts));
        let mut bytes = Vec::new();
        writer.write(&mut bytes).unwrap();
        fs::write(folder.path().join(name), bytes).unwrap();
    };
    file("part.gguf", &[("split.no", 1), ("split.count", 3)]);
    file("vocabulary.gguf", &[]);
    for (file, words) in [
        ("cut.gguf", "truncated or damaged"),
        ("other", "other: text, not a GGUF model"),
        ("part.gguf", "its name has to end with -00002-of-00003.gguf"),
        ("vocabulary.gguf", "the file has a vocabulary and no weights"),
    ] {
        for arguments in [&["info"][..], &["logits", "--tokens", "-", "--out", "none", "--reference"]] {
            let program = Program::new(env!("CARGO_BIN_EXE_orin"), folder.path());
            let mut command = program.command(&[&["llm"], arguments, &["--model", file]].concat());
            let tokens = fs::write(folder.path().join("tokens"), "1").map(|()| folder.path().join("tokens"));
            command.stdin(fs::File::open(tokens.unwrap()).unwrap());
            let output = command.output().unwrap();
            let errors = text(&output.stderr);
            assert_eq!(output.status.code(), Some(if file == "other" { 2 } else { 1 }), "{errors}");
            assert!(errors.contains(file) && errors.contains(words), "{errors}");
            assert_eq!(errors.contains("byte "), file == "cut.gguf", "{errors}");
        }
    }
}

#[test]
fn logits_of_the_reference_are_those_of_the_library() {
    let folder = folder();
    fs::write(folder.path().join("tokens"), "1 2\n500").unwrap();
    let arguments =
        ["logits", "--model", "tiny.gguf", "--tokens", "tokens", "--out", "logits.f64", "--reference"];
    let output = orin(folder.path(), &arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let model = Model::open(folder.path().join("tiny.gguf")).unwrap();
    let mut reference = Reference::new(&model, CacheFormat::Half).unwrap();
    let logits: Vec<f64> = [1, 2, 500].iter().flat_map(|token| reference.step(*token).unwrap()).collect();
    let bytes: Vec<u8> = logits.iter().flat_map(|logit| logit.to_le_bytes()).collect();
    assert!(fs::read(folder.path().join("logits.f64")).unwrap() == bytes);

    // A model with factors for short and for long contexts.
    fs::write(folder.path().join("phi.gguf"), Recipe::tiny_phi3().to_bytes().unwrap()).unwrap();
    let phi = ["logits", "--model", "phi.gguf", "--tokens", "tokens", "--out", "phi.f64", "--reference"];
    let output = orin(folder.path(), &phi);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let model = Model::open(folder.path().join("phi.gguf")).unwrap();
    let mut reference = Reference::with_context(&model, CacheFormat::Half, 3).unwrap();
    let logits: Vec<f64> = [1, 2, 500].iter().flat_map(|token| reference.step(*token).unwrap()).collect();
    let bytes: Vec<u8> = logits.iter().flat_map(|logit| logit.to_le_bytes()).collect();
    assert!(fs::read(folder.path().join("phi.f64")).unwrap() == bytes);

    for (tokens, words) in
        [(" ", "has no tokens"), ("1 x", "\"x\" is not the number of a token"), ("512", "token 512 is not")]
    {
        fs::write(folder.path().join("tokens"), tokens).unwrap();
        let output = orin(folder.path(), &arguments);
        let errors = text(&output.stderr);
        assert!(output.status.code() == Some(2) && errors.contains(words), "{errors}");
    }
    let many: Vec<String> = (0..1025).map(|token| (token % 512).to_string()).collect();
    fs::write(folder.path().join("tokens"), many.join(" ")).unwrap();
    let output = orin(folder.path(), &arguments);
    assert!(
        output.status.code() == Some(2) && text(&output.stderr).contains("1024"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn random_models_have_the_shape_and_the_format() {
    let folder = folder();
    let arguments = ["random", "--shape", "tiny-qwen3", "--format", "q4_k_m", "-o", "m.gguf"];
    let output = orin(folder.path(), &arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let model = Model::open(folder.path().join("m.gguf")).unwrap();
    let formats: Vec<String> = model.file().tensors().map(|tensor| tensor.block.to_string()).collect();
    assert!(model.shape().architecture.name() == "qwen3");
    assert!(["Q4_K", "Q6_K", "F32"].iter().all(|format| formats.contains(&(*format).to_owned())));
    // Its own mixture, without an option.
    let arguments = ["random", "--shape", "tiny-gpt-oss", "-o", "oss.gguf"];
    assert!(orin(folder.path(), &arguments).status.success());
    let info = orin(folder.path(), &["info", "--model", "oss.gguf", "--json"]);
    let info: Value = serde_json::from_slice(&info.stdout).unwrap();
    let facts = ["activation", "window", "chat"].map(|name| info[name].as_str().unwrap_or_default());
    let expected =
        ["clamped silu with gate", "32 positions in 1 layers", "template with tools, called by <|channel|>"];
    assert_eq!(facts, expected, "{info}");
    // 17 bytes for 32 weights of 8 experts in 2 layers.
    assert_eq!(info["formats"]["MXFP4"], 2 * 8 * 3 * 256 * 256 / 32 * 17);
    let unknown = orin(folder.path(), &["random", "--shape", "huge", "-o", "m.gguf"]);
    assert!(text(&unknown.stderr).contains("llama-1b"), "{}", text(&unknown.stderr));
}

/// A folder with a model that the software Orin runs quickly.
pub(crate) fn quick() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let recipe = Recipe { layers: 1, ffn: 256, ..Recipe::tiny_llama() };
    fs::write(folder.path().join("m.gguf"), recipe.to_bytes().unwrap()).unwrap();
    folder
}

/// The text that the library makes of a prompt on the software Orin.
pub(crate) fn continued(folder: &Path, prompt: &str, count: usize) -> String {
    let model = Model::open(folder.join("m.gguf")).unwrap();
    let tokenizer = Tokenizer::new(model.file()).unwrap();
    let config = Config { tpc_masks: [0b11, 0], ..Config::default() };
    let orin = SoftwareOrin::new(config).unwrap();
    let device = Device::open_through(Arc::new(orin), DeviceKind::Sim).unwrap();
    let mut session = Engine::load(&device, &model, 64, |_, _| ()).unwrap().session(64).unwrap();
    session.feed(&tokenizer.encode_prompt(prompt, Controls::Find)).unwrap();
    let tokens: Vec<u32> = session.tokens(count).unwrap().collect::<Result<_, _>>().unwrap();
    assert!(tokens.iter().all(|token| !tokenizer.is_stop(*token)), "choose another prompt");
    String::from_utf8_lossy(&tokenizer.decode(&tokens)).into_owned()
}

#[test]
fn run_prints_the_text_and_the_statistics() {
    let folder = quick();
    let want = continued(folder.path(), "The", 3);
    let arguments = ["run", "--model", "m.gguf", "--device", "sim", "-n", "3", "--ctx", "64"];
    let output = orin(folder.path(), &[&arguments[..], &["--prompt", "The"]].concat());
    let errors = text(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(text(&output.stdout), format!("{want}\n"));
    for words in [
        "device   software Orin, which",
        "load     ",
        "prefill  3 tokens in ",
        "decode   3 tokens in ",
        "keys and values",
    ] {
        assert!(errors.contains(words), "{errors}");
    }
    // A conversation: each line is a turn.
    let chat = ["llm", "run", "--model", "m.gguf", "--device", "sim", "-n", "1", "--chat"];
    let mut command = command(folder.path(), &chat);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"a\nb\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let errors = text(&output.stderr);
    assert!(output.status.success() && errors.contains("decode   2 tokens"), "{errors}");
    let answers: Vec<String> = text(&output.stdout).lines().map(str::to_owned).collect();
    assert_eq!(answers.len(), 2);
    let turns = [(Role::User, "a"), (Role::Assistant, answers[0].as_str()), (Role::User, "b")];
    let turns = turns.map(|(role, text)| Message::new(role, text));
    let model = Model::open(folder.path().join("m.gguf")).unwrap();
    let tokenizer = Tokenizer::new(model.file()).unwrap();
    let prompt = Template::of(model.file()).unwrap().encode(&tokenizer, &Conversation::new(turns)).unwrap();
    let whole = prompt.tokens.len();
    assert!(errors.contains(&format!("prefill  {whole} tokens")), "each is read once, of {whole}: {errors}");
}

#[test]
fn requests_that_cannot_be_met_are_refused_before_the_device_is_opened() {
    let folder = quick();
    fs::write(folder.path().join("gpt2.gguf"), Recipe::tiny_gpt2().to_bytes().unwrap()).unwrap();
    let bare = Recipe { has_tokens: false, ..Recipe::tiny_llama() };
    fs::write(folder.path().join("bare.gguf"), bare.to_bytes().unwrap()).unwrap();
    let long = "word ".repeat(20);
    // There is no such device: its absence would be the reason otherwise.
    let device = ["--device", "nvrm:77"];
    for (arguments, code, words) in [
        (
            &["run", "-m", "m.gguf", "--prompt", &long, "--ctx", "32"][..],
            2,
            "tokens, but the context holds 32",
        ),
        (&["run", "-m", "m.gguf", "--prompt", "x", "--ctx", "1025"], 2, "the model has 1024 positions"),
        (&["run", "-m", "m.gguf", "--prompt", "x", "--temp=-1"], 2, "temperature"),
        (&["run", "-m", "m.gguf"], 2, "give --prompt, or --chat"),
        (&["run", "m.gguf"], 2, "give --prompt, or --chat"),
        (&["run", "-m", "m.gguf", "m.gguf"], 2, "cannot be used with"),
        (&["run"], 2, "required arguments were not provided"),
        (&["run", "-m", "gpt2.gguf", "--chat", "--prompt", "x"], 1, "does not support conversations"),
        (&["run", "-m", "gpt2.gguf", "--prompt", ""], 2, "the prompt is empty"),
        (&["run", "-m", "bare.gguf", "--prompt", "x"], 1, "no vocabulary"),
        (&["bench", "-m", "m.gguf", "-p", "2000"], 2, "the model has 1024 positions"),
        (&["bench", "-m", "m.gguf", "-p", "0", "-n", "0"], 2, "nothing to measure"),
        (&["bench", "-m", "m.gguf", "-n", "0", "--batch", "2"], 2, "give -n"),
        (&["bench", "-m", "m.gguf", "--trace", "none/trace.json"], 2, "none/trace.json"),
        (
            &["bench", "-m", "m.gguf", "--against", "llama-bench=/none/x"],
            2,
            "llama-bench=/none/x: No such file",
        ),
        (&["bench", "-m", "m.gguf", "--against", "llama-batched-bench=sh"], 2, "give --batch"),
        (
            &["bench", "-m", "m.gguf", "--against", "other=x"],
            2,
            "give llama-bench=PATH or llama-batched-bench=PATH",
        ),
        (&["serve", "-m", "m.gguf", "--ctx", "1025"], 2, "the model has 1024 positions"),
        (&["serve", "-m", "bare.gguf"], 1, "no vocabulary"),
    ] {
        let output = orin(folder.path(), &[arguments, &device].concat());
        let errors = text(&output.stderr);
        assert!(output.status.code() == Some(code) && errors.contains(words), "{arguments:?}: {errors}");
    }
}

#[test]
fn logits_of_the_device_are_near_the_reference() {
    let folder = quick();
    fs::write(folder.path().join("tokens"), "1 2").unwrap();
    let arguments = ["logits", "-m", "m.gguf", "--tokens", "tokens", "--out", "l.f32", "--device", "sim"];
    let output = orin(folder.path(), &arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let bytes = fs::read(folder.path().join("l.f32")).unwrap();
    let (floats, _) = bytes.as_chunks::<4>();
    let model = Model::open(folder.path().join("m.gguf")).unwrap();
    let mut reference = Reference::new(&model, CacheFormat::Half).unwrap();
    let exact: Vec<f64> = [1, 2].iter().flat_map(|token| reference.step(*token).unwrap()).collect();
    assert_eq!(floats.len(), exact.len());
    let wrong = |(bytes, exact): (&[u8; 4], &f64)| (f64::from(f32::from_le_bytes(*bytes)) - exact).abs();
    let worst = floats.iter().zip(&exact).map(wrong).fold(0.0, f64::max);
    assert!(worst < 1e-2, "{worst}");
}

/// Writes a program that looks like one of llama.cpp's benches; returns it as an argument.
fn rival(folder: &Path, name: &str, script: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    format!("{name}={}", path.display())
}

#[test]
fn bench_compares_with_the_better_setting_of_the_rival() {
    let folder = quick();
    let test = |prompt, made, attention, rate| {
        let (prompt, made): (usize, usize) = (prompt, made);
        let mut test = json!({ "n_prompt": prompt, "n_gen": made });
        (test["flash_attn"], test["avg_ts"]) = (Value::Bool(attention), json!(rate));
        test
    };
    let tests =
        [test(3, 0, false, 2.0), test(0, 2, false, 0.001), test(3, 0, true, 1.0), test(0, 2, true, 0.002)];
    let script = format!("echo \"$@\" >> calls\necho '{}'", json!(tests));
    let against = rival(folder.path(), "llama-bench", &script);
    let arguments = ["bench", "-m", "m.gguf", "--device", "sim", "-p", "3", "-n", "2", "-d", "1", "-r", "1"];
    let more = ["--against", &against, "--against-args", "-t 1", "--json", "r.json"];
    let output = orin(folder.path(), &[&arguments[..], &more].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines = text(&output.stdout);
    for words in [
        "times are those of the software Orin",
        "computed, not measured: at an Orin's",
        "prefill 3 ",
        "decode 2 ",
        "flash attention true",
        "ratio",
    ] {
        assert!(lines.contains(words), "{lines}");
    }
    let calls = fs::read_to_string(folder.path().join("calls")).unwrap();
    assert_eq!(calls, "-m m.gguf -ngl 99 -fa 0,1 -r 1 -o json -p 3 -n 2 -d 1 -t 1\n");
    let report: Value = serde_json::from_slice(&fs::read(folder.path().join("r.json")).unwrap()).unwrap();
    let decode = &report["tests"][1];
    let rate = decode["tokens_per_s"].as_f64().unwrap();
    assert_eq!(decode["rival"]["tokens_per_s"], 0.002);
    assert!((decode["ratio"].as_f64().unwrap() - rate / 0.002).abs() < 1e-6 * rate / 0.002);
    assert_eq!(report["tests"][0]["rival"]["setting"], "flash attention false");
    assert!(report["launches_per_token"].as_u64().unwrap() <= 6 + 3, "{report}");

    rival(folder.path(), "llama-bench", "echo 'no such model' >&2; exit 3");
    let output = orin(folder.path(), &[&arguments[..], &more[..2]].concat());
    let errors = text(&output.stderr);
    assert!(output.status.code() == Some(1) && errors.contains("no such model"), "{errors}");
}

#[test]
fn bench_measures_one_launch_for_all_layers() {
    let folder = quick();
    let arguments = [
        "bench",
        "-m",
        "m.gguf",
        "--device",
        "sim",
        "-p",
        "0",
        "-n",
        "1",
        "-r",
        "1",
        "--layers",
        "persistent",
    ];
    let profile = ["--json", "-", "--profile", "--trace", "trace.json"];
    let output = orin(folder.path(), &[&arguments[..], &profile].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let trace = fs::read_to_string(folder.path().join("trace.json")).unwrap();
    for recorded in [text(&output.stderr), trace] {
        assert!(recorded.contains("decode_f16_8") && recorded.contains("sample"), "{recorded}");
    }
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["launches_per_token"], &report["tests"][0]["name"]), (&json!(2), &json!("decode 1")));
    let output = orin(folder.path(), &[&arguments[..], &["--batch", "2"]].concat());
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}

/// A program that prints what `llama-batched-bench` prints for one token after one: without flash attention, `off` and
/// half of it tokens per second, with it `on` and half of it.
fn batched_rival(folder: &Path) -> String {
    let row = r#"echo '{"n_kv_max": 768, "flash_attn": 1, "pp": 1, "tg": 1, "pl": '$1', "speed_tg": '$2'}'"#;
    let script = format!(
        "echo \"$@\" >> calls\nrow() {{ {row}; }}\n\
         case \"$*\" in *'-fa on'*) row 1 0.5; row 3 1000000;; *) row 1 0.25; row 3 2000000;; esac\necho"
    );
    rival(folder, "llama-batched-bench", &script)
}

#[test]
fn bench_measures_batches_and_compares_them() {
    let folder = quick();
    let against = batched_rival(folder.path());
    let arguments =
        ["bench", "-m", "m.gguf", "--device", "sim", "-p", "0", "-n", "1", "-r", "1", "--batch", "1,3"];
    let more = ["--against", &against, "--against-args", "-t 1", "--json", "r.json"];
    let output = orin(folder.path(), &[&arguments[..], &more].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&fs::read(folder.path().join("r.json")).unwrap()).unwrap();
    let tests = report["tests"].as_array().unwrap();
    let named: Vec<_> = tests.iter().map(|test| (&test["name"], &test["launches"])).collect();
    let names = [json!("decode 1, batch 1"), json!("decode 1, batch 3")];
    // One layer alone, and with the launches that prepare vectors for several sequences.
    assert_eq!(named, [(&names[0], &json!(2 + 5)), (&names[1], &json!(3 + 9))]);
    let best = |test: &Value| (test["rival"]["tokens_per_s"].clone(), test["rival"]["setting"].clone());
    assert_eq!(best(&tests[0]), (json!(0.5), json!("flash attention true")));
    assert_eq!(best(&tests[1]), (json!(2e6), json!("flash attention false")));
    let (rate, ratio) = (&tests[1]["tokens_per_s"], &tests[1]["ratio"]);
    assert!((rate.as_f64().unwrap() / 2e6 / ratio.as_f64().unwrap() - 1.0).abs() < 1e-9, "{report}");
    let lines = text(&output.stdout);
    for words in ["µs per step", "llama.cpp 0.5 (flash attention true), ratio "] {
        assert!(lines.contains(words), "{lines}");
    }
    let calls = fs::read_to_string(folder.path().join("calls")).unwrap();
    let call = |attention| {
        format!(
            "-m m.gguf -ngl 99 -fa {attention} --output-format jsonl -npp 1 -ntg 1 -npl 1,3 -c 768 -t 1\n"
        )
    };
    assert_eq!(calls, call("off") + &call("on"));

    for (script, words) in [
        ("echo 'error: invalid argument: on' >&2; exit 1", "invalid argument: on"),
        ("echo 'main: n_kv_max = 768'", "it begins with \"main: n_kv_max = 768\""),
        ("", "no result of 1 sequences"),
    ] {
        rival(folder.path(), "llama-batched-bench", script);
        let output = orin(folder.path(), &[&arguments[..], &more[..2]].concat());
        let errors = text(&output.stderr);
        let is_named = errors.contains("llama-batched-bench") && errors.contains(words);
        assert!(output.status.code() == Some(1) && is_named, "{errors}");
    }
}

#[test]
fn ctrl_c_ends_a_text_with_its_statistics() {
    let folder = quick();
    let program = Program::new(env!("CARGO_BIN_EXE_orin"), folder.path());
    let arguments = ["llm", "run", "-m", "m.gguf", "--device", "sim", "--prompt", "The", "-n", "900"];
    let output = program.interrupt(&arguments, Signal::INT, Duration::from_millis(500));
    let errors = text(&output.stderr);
    assert!(output.status.code() == Some(130) && errors.contains("decode   "), "{errors}");
}
