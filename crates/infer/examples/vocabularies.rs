//! Compares the tokens of texts with those of other programs.
//!
//! `cargo run --release -p orin-infer --example vocabularies -- FOLDER` reads, for each vocabulary `F.gguf` of a
//! folder, texts from `F.gguf.inp` and their tokens from `F.gguf.out`, in the form of llama.cpp's folder `models`:
//! lines `__ggml_vocab_test__` separate texts, each line of tokens belongs to one of them. It prints how many of them
//! are equal, and the speed on the texts together. The exit code is 1 if a text differs.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use infer::gguf::File;
use infer::tokenizer::{Controls, Tokenizer};

/// What separates texts.
const SEPARATOR: &str = "\n__ggml_vocab_test__\n";

/// Characters that the speed is measured on.
const MEASURED: usize = 4 << 20;

/// A file's path with another ending behind it.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Compares a vocabulary's texts. Returns whether all are equal.
fn compare(path: &Path) -> Result<bool, Box<dyn Error>> {
    let tokenizer = match File::open(path).and_then(|file| Tokenizer::new(&file)) {
        Ok(tokenizer) => tokenizer,
        Err(error) => {
            println!("  refused: {error}");
            return Ok(true);
        }
    };
    let (texts, ids) = (beside(path, ".inp"), beside(path, ".out"));
    if !texts.exists() {
        println!("  no texts");
        return Ok(true);
    }
    let (texts, ids) = (std::fs::read_to_string(texts)?, std::fs::read_to_string(ids)?);
    let (mut equal, mut all) = (0, 0);
    let ids: Vec<&str> = ids.lines().collect();
    let texts: Vec<&str> = texts.strip_suffix(SEPARATOR).unwrap_or(&texts).split(SEPARATOR).collect();
    if texts.len() != ids.len() {
        return Err(format!("{} texts, but {} lines of tokens", texts.len(), ids.len()).into());
    }
    for (text, ids) in texts.iter().zip(ids) {
        let wanted = ids.split_whitespace().map(str::parse).collect::<Result<Vec<u32>, _>>()?;
        let tokens = tokenizer.encode(text, Controls::AsText);
        all += 1;
        if tokens == wanted {
            equal += 1;
        } else {
            println!("  {text:?}: {tokens:?}, not {wanted:?}");
        }
        if tokenizer.decode(&tokens) != text.as_bytes() {
            println!("  {text:?} becomes {:?}", String::from_utf8_lossy(&tokenizer.decode(&tokens)));
        }
    }
    let long: String = texts.iter().cycle().flat_map(|text| text.chars()).take(MEASURED).collect();
    let start = Instant::now();
    let count = tokenizer.encode(&long, Controls::AsText).len();
    let speed = long.len() as f64 / start.elapsed().as_secs_f64() / 1e6;
    println!(
        "  {equal} of {all} texts are equal; {speed:.1} MB/s, {:.2} bytes per token",
        long.len() as f64 / count as f64
    );
    Ok(equal == all)
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let folder = std::env::args_os().nth(1).ok_or("give a folder with vocabularies")?;
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "gguf"));
    paths.sort();
    let mut are_equal = true;
    for path in paths {
        println!("{}", path.display());
        are_equal &= compare(&path)?;
    }
    Ok(if are_equal { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
