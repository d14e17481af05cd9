//! `orin llm`, on random models.

use std::fs;
use std::path::Path;
use std::process::Output;

use infer::model::Model;
use infer::reference::{CacheFormat, Reference};
use infer::synthetic::Recipe;
use serde_json::Value;
use tempfile::TempDir;

/// A folder with a tiny model.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tiny.gguf"), Recipe::tiny_llama().to_bytes().unwrap()).unwrap();
    folder
}

fn orin(folder: &Path, arguments: &[&str]) -> Output {
    let program = orin_cli::testing::Program::new(env!("CARGO_BIN_EXE_orin"), folder);
    program.command(&[&["llm"], arguments].concat()).output().unwrap()
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
    assert_eq!(value("chat"), "LLaMA 3");
    assert!(value("formats").starts_with("F32 5.12 KiB, F16 2.50 MiB"), "{lines}");
    let arguments = ["info", "--model", "tiny.gguf", "--json", "--ctx", "100", "--bandwidth", "1000"];
    let json: Value = serde_json::from_slice(&orin(folder.path(), &arguments).stdout).unwrap();
    let model = Model::open(folder.path().join("tiny.gguf")).unwrap();
    assert_eq!(json["weights_bytes"], model.weight_bytes());
    assert_eq!(json["cache_bytes"], 2 * 2 * 128 * 2 * 100);
    assert_eq!(json["memory_bytes"], model.weight_bytes() + 2 * 2 * 128 * 2 * 100);
    let limit = 1e12 / model.bytes_per_token() as f64;
    assert!((json["computed_limit_tokens_per_s"].as_f64().unwrap() - limit).abs() < 0.1);
    assert_eq!(json["stop_tokens"], serde_json::json!([508, 511]));

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
    for (file, words) in [("cut.gguf", "truncated or damaged"), ("other", "it is not a GGUF file")] {
        for arguments in [&["info"][..], &["logits", "--tokens", "-", "--out", "none", "--reference"]] {
            let program = orin_cli::testing::Program::new(env!("CARGO_BIN_EXE_orin"), folder.path());
            let mut command = program.command(&[&["llm"], arguments, &["--model", file]].concat());
            let tokens = fs::write(folder.path().join("tokens"), "1").map(|()| folder.path().join("tokens"));
            command.stdin(fs::File::open(tokens.unwrap()).unwrap());
            let output = command.output().unwrap();
            let errors = text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{errors}");
            assert!(errors.contains(file) && errors.contains("byte ") && errors.contains(words), "{errors}");
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

    for (tokens, words) in
        [("", "has no tokens"), ("1 x", "\"x\" is not a token"), ("512", "token 512 is not")]
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
    let arguments = ["random", "--shape", "tiny-qwen3", "--format", "q4_k", "--mixed", "-o", "m.gguf"];
    let output = orin(folder.path(), &arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let model = Model::open(folder.path().join("m.gguf")).unwrap();
    let formats: Vec<String> = model.file().tensors().map(|tensor| tensor.block.to_string()).collect();
    assert!(model.shape().architecture.name() == "qwen3");
    assert!(["Q4_K", "Q6_K", "F32"].iter().all(|format| formats.contains(&(*format).to_owned())));
    let unknown = orin(folder.path(), &["random", "--shape", "huge", "-o", "m.gguf"]);
    assert!(text(&unknown.stderr).contains("llama-1b"), "{}", text(&unknown.stderr));
}
