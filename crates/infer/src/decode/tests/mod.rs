//! The decoder on the software Orin, compared with 64-bit floats on the CPU.

mod attention;
mod batch;
mod choice;
mod copies;
mod persistent;

use std::sync::Arc;

use orin_sim::{Config, SoftwareOrin};
use tegra_hcq::{Device, DeviceKind};

use super::{Engine, Memory, SessionOptions};
use crate::blocks::BlockType;
use crate::error::Error;
use crate::model::{KvFormat, Model};
use crate::reference::{CacheFormat, Reference};
use crate::synthetic::Recipe;

const TOKENS: [u32; 3] = [17, 300, 511];

/// A device with 4 SMs, as an Orin Nano 4 GB has: launches for tiny models have a block for each SM.
fn device() -> Device {
    let config = Config { tpc_masks: [0b11, 0], ..Config::default() };
    Device::open_through(Arc::new(SoftwareOrin::new(config).unwrap()), DeviceKind::Sim).unwrap()
}

/// A device with 16 SMs.
fn large_device() -> Device {
    Device::open(DeviceKind::Sim).unwrap()
}

/// Relative error over all logits, token by token.
fn relative_error(recipe: &Recipe, tokens: &[u32]) -> f64 {
    relative_errors(&device(), recipe, tokens).0
}

/// The same on a device, and the error of the same model whose products round their inputs to 8 bits.
fn relative_errors(device: &Device, recipe: &Recipe, tokens: &[u32]) -> (f64, f64) {
    let model = Model::from_bytes(recipe.to_bytes().unwrap()).unwrap();
    let mut reference = Reference::with_context(&model, CacheFormat::Half, 128).unwrap();
    let mut coarse = Reference::with_context(&model, CacheFormat::Half, 128).unwrap().with_eight_bits();
    let engine = Engine::load(device, &model, 128, |_, _| ()).unwrap();
    let mut session = engine.session(128).unwrap();
    let (mut error, mut coarse_error, mut norm) = (0.0, 0.0, 0.0);
    for token in tokens {
        let expected = reference.step(*token).unwrap();
        session.feed(&[*token]).unwrap();
        for (got, expected) in session.logits().unwrap().iter().zip(&expected) {
            error += (f64::from(*got) - expected).powi(2);
            norm += expected.powi(2);
        }
        for (got, expected) in coarse.step(*token).unwrap().iter().zip(&expected) {
            coarse_error += (got - expected).powi(2);
        }
    }
    ((error / norm).sqrt(), (coarse_error / norm).sqrt())
}

#[test]
fn every_format_agrees_with_64_bit_floats() {
    for block in BlockType::ALL {
        let recipe = Recipe { block, layers: 1, ..Recipe::tiny_llama() };
        let (error, coarse) = relative_errors(&device(), &recipe, &TOKENS[..2]);
        println!("{block}: {error:e}, with 8 bits {coarse:e}");
        assert!(error < 1e-3, "{block}: {error:e}");
        // Ten times closer than 8-bit activations.
        assert!(block.weights() == 1 || 10.0 * error < coarse, "{block}: {error:e}, with 8 bits {coarse:e}");
    }
}

#[test]
fn every_architecture_agrees_with_64_bit_floats() {
    let recipes = [Recipe::tiny_qwen2(), Recipe::tiny_qwen3(), Recipe::tiny_gpt2(), Recipe::tiny_qwen3moe()];
    for recipe in recipes {
        for recipe in [small(recipe.clone(), BlockType::Q8_0), recipe] {
            let error = relative_error(&recipe, &[17, 30]);
            println!("{} {}: {error:e}", recipe.architecture, recipe.block);
            assert!(error < 1e-3, "{} {}: {error:e}", recipe.architecture, recipe.block);
        }
    }
    for (recipe, block) in small_architectures() {
        let error = relative_error(&small(recipe.clone(), block), &[17, 30, 51, 5, 17]);
        println!("{} {block}: {error:e}", recipe.architecture);
        assert!(error < 1e-3, "{} {block}: {error:e}", recipe.architecture);
    }
}

/// Architectures beside those that the first tests of this module evaluate, each with a format.
fn small_architectures() -> [(Recipe, BlockType); 8] {
    [
        (Recipe { window: 3, ..Recipe::tiny_gemma3() }, BlockType::Q8_0),
        (Recipe { rotated: 24, ..Recipe::tiny_phi3() }, BlockType::F16),
        (Recipe { window: 3, ..Recipe::tiny_mistral() }, BlockType::F16),
        (Recipe::tiny_mistral3(), BlockType::Q8_0),
        (Recipe::tiny_granite(), BlockType::F32),
        (Recipe::tiny_smollm3(), BlockType::F16),
        (Recipe::tiny_lfm2(), BlockType::F16),
        (Recipe { window: 3, experts: [5, 2], ..Recipe::tiny_gpt_oss() }, BlockType::Mxfp4),
    ]
}

#[test]
fn results_of_wide_models_are_normalised() {
    // More columns than the threads of a block take at once.
    let recipe = Recipe { layers: 1, ..small(Recipe::tiny_gemma3(), BlockType::F16) };
    let error = relative_error(&Recipe { width: 2304, heads: 1, kv_heads: 1, ffn: 32, ..recipe }, &[17, 30]);
    assert!(error < 1e-3, "{error:e}");
}

#[test]
fn convolutions_see_what_a_cut_context_ends_with() {
    let recipe = Recipe {
        width: 32,
        heads: 1,
        kv_heads: 1,
        head_size: 32,
        ffn: 32,
        vocabulary: 64,
        ..Recipe::tiny_lfm2()
    };
    // Each step of a convolution multiplies three products: in halves, its error is more than that of an attention.
    let recipe = Recipe { block: BlockType::F32, has_tokens: false, ..recipe };
    let model = Model::from_bytes(recipe.to_bytes().unwrap()).unwrap();
    let engine = Engine::load(&device(), &model, 512, |_, _| ()).unwrap();
    let tokens: Vec<u32> = (0..200).map(|token| token * 7 % 64).collect();
    let expected = |tokens: &[u32]| {
        let mut reference = Reference::new(&model, CacheFormat::Half).unwrap();
        tokens.iter().map(|token| reference.step(*token).unwrap()).last().unwrap()
    };
    let mut session = engine.session(512).unwrap();
    session.feed(&tokens).unwrap();
    // The inputs of the last positions are kept; those before position 100 are computed again.
    for len in [200, 199, 150, 20, 1] {
        session.truncate(len).unwrap();
        session.feed(&[9]).unwrap();
        let expected = expected(&[&tokens[..len], &[9]].concat());
        let error = relative_distance(&session.logits().unwrap(), &expected);
        assert!(error < 1e-4, "{len}: {error:e}");
        session.truncate(len).unwrap();
    }
    // A prompt in batches continues a context.
    session.feed(&tokens[1..60]).unwrap();
    session.feed(&tokens[60..180]).unwrap();
    let error = relative_distance(&session.logits().unwrap(), &expected(&tokens[..180]));
    assert!(error < 1e-4, "{error:e}");
}

#[test]
fn long_contexts_have_frequencies_of_their_own() {
    let recipe = Recipe { rotated: 24, ..small(Recipe::tiny_phi3(), BlockType::F16) };
    let model = Model::from_bytes(recipe.to_bytes().unwrap()).unwrap();
    let engine = Engine::load(&device(), &model, 256, |_, _| ()).unwrap();
    let logits = [128, 129].map(|context| {
        let mut session = engine.session(context).unwrap();
        session.feed(&[17, 30, 51]).unwrap();
        let mut reference = Reference::with_context(&model, CacheFormat::Half, context).unwrap();
        let expected = [17, 30, 51].map(|token| reference.step(token).unwrap());
        let logits = session.logits().unwrap();
        let error = relative_distance(&logits, &expected[2]);
        assert!(error < 1e-3, "{context}: {error:e}");
        logits
    });
    assert_ne!(logits[0], logits[1]);
}

#[test]
fn few_rows_are_shared_by_warps_and_rows_end_within_tiles() {
    // 16 SMs: batches of two pairs of rows in 3 steps, and of 2 to 4 rows in one step of 16 units.
    let small = Recipe { width: 64, heads: 2, kv_heads: 1, head_size: 32, ffn: 352, ..Recipe::tiny_llama() };
    for block in [BlockType::F32, BlockType::Q8_0] {
        let recipe = Recipe { block, vocabulary: 301, ..small.clone() };
        let (error, _) = relative_errors(&large_device(), &recipe, &[17, 300]);
        assert!(error < 1e-3, "{block}: {error:e}");
    }
}

#[test]
fn the_hidden_vector_makes_the_logits() {
    for recipe in [Recipe::tiny_gpt2(), Recipe::tiny_qwen2(), small(Recipe::tiny_gemma3(), BlockType::F32)] {
        let recipe = Recipe { block: BlockType::F32, layers: 1, ..recipe };
        let model = Model::from_bytes(recipe.to_bytes().unwrap()).unwrap();
        let engine = Engine::load(&device(), &model, 64, |_, _| ()).unwrap();
        let mut session = engine.session(64).unwrap();
        session.feed(&[5, 9]).unwrap();
        let (hidden, logits, output) = (session.hidden().unwrap(), session.logits().unwrap(), model.output());
        let mut rows = vec![0.0; output.inputs * output.outputs];
        output.block.dequantise(output.bytes, &mut rows).unwrap();
        let row =
            |row: &[f32]| row.iter().zip(&hidden).map(|(weight, x)| f64::from(*weight) * x).sum::<f64>();
        let made: Vec<f64> = rows.chunks(output.inputs).map(row).collect();
        assert!(relative_distance(&logits, &made) < 1e-5, "{}", recipe.architecture);
    }
}

#[test]
fn contexts_are_kept_dropped_and_continued_with_the_same_bits() {
    // From 257 tokens on, several blocks share the context; before and after, both heads have blocks of their own.
    let recipe = Recipe {
        block: BlockType::Q8_0,
        layers: 1,
        width: 64,
        heads: 2,
        kv_heads: 1,
        head_size: 32,
        ffn: 32,
        vocabulary: 300,
        ..Recipe::tiny_llama()
    };
    let model = Model::from_bytes(recipe.to_bytes().unwrap()).unwrap();
    let engine = Engine::load(&device(), &model, 300, |_, _| ()).unwrap();
    let mut session = engine.session(300).unwrap();
    let prompt: Vec<u32> = (0..250).map(|token| token * 7 % 300).collect();
    session.feed(&prompt).unwrap();
    let logits = session.logits().unwrap();
    let tokens: Vec<u32> = session.tokens(12).unwrap().map(Result::unwrap).collect();
    let end = session.logits().unwrap();

    // The device worked ahead of this iterator.
    session.truncate(250).unwrap();
    assert_eq!(session.logits().unwrap(), logits);
    let mut again = session.tokens(12).unwrap();
    assert_eq!((again.next().unwrap().unwrap(), again.next().unwrap().unwrap()), (tokens[0], tokens[1]));
    drop(again);
    assert_eq!(session.len(), 252);
    assert_eq!(session.tokens(10).unwrap().map(Result::unwrap).collect::<Vec<_>>(), tokens[2..]);
    assert_eq!(session.logits().unwrap(), end);

    // Another session, fed with the same tokens in the same way: those that were produced one by one.
    let mut other = engine.session(300).unwrap();
    other.feed(&prompt).unwrap();
    tokens.iter().for_each(|token| other.feed(&[*token]).unwrap());
    assert_eq!(other.logits().unwrap(), end);
    let reference = |tokens: &[u32]| {
        let mut reference = Reference::new(&model, CacheFormat::Half).unwrap();
        tokens.iter().map(|token| reference.step(*token).unwrap()).last().unwrap()
    };
    let expected = reference(session.context_tokens());
    let error: f64 =
        end.iter().zip(&expected).map(|(got, expected)| (f64::from(*got) - expected).powi(2)).sum();
    let norm: f64 = expected.iter().map(|expected| expected.powi(2)).sum();
    assert!((error / norm).sqrt() < 1e-3, "{:e}", (error / norm).sqrt());
}

#[test]
fn blocks_share_the_heads_of_a_short_context_in_every_way() {
    // The software Orin has 16 SMs: a block for each of three heads, two for three heads, one for two heads.
    for (kv_heads, heads) in [(1, 3), (8, 24), (9, 18)] {
        let width = heads * 8;
        let recipe =
            Recipe { width, heads, kv_heads, head_size: 8, ..small(Recipe::tiny_llama(), BlockType::F16) };
        let (error, _) = relative_errors(&large_device(), &recipe, &[17, 30, 51]);
        assert!(error < 1e-3, "{heads} heads, {kv_heads} keys: {error:e}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let model = Model::from_bytes(choice::thin(Recipe::tiny_llama()).to_bytes().unwrap()).unwrap();
    let engine = Engine::load(&device(), &model, 8, |_, _| ()).unwrap();
    assert!(matches!(engine.session(1025), Err(Error::ContextTooLong { wanted: 1025, most: 1024 })));
    assert!(matches!(engine.session(0), Err(Error::ContextTooLong { wanted: 0, .. })));
    let mut session = engine.session(8).unwrap();
    assert!(matches!(session.logits(), Err(Error::EmptyContext)));
    assert!(matches!(session.tokens(1), Err(Error::EmptyContext)));
    assert!(matches!(session.feed(&[512]), Err(Error::UnknownToken { token: 512, vocabulary: 512 })));
    assert!(matches!(session.feed(&[0; 9]), Err(Error::PromptTooLong { tokens: 9, context: 8 })));
    session.feed(&[0; 6]).unwrap();
    assert_eq!(session.tokens(100).unwrap().count(), 2, "the context is full then");
    assert!(session.tokens(1).unwrap().next().is_none());

    let many = Recipe { experts: [20, 17], ..small(Recipe::tiny_gpt_oss(), BlockType::Mxfp4) };
    let many = Model::from_bytes(many.to_bytes().unwrap()).unwrap();
    let error = Engine::load(&device(), &many, 8, |_, _| ()).unwrap_err();
    assert!(matches!(&error, Error::Experts(why) if why.contains("20 experts, of which a token uses 17")));

    let needed = Memory::of(&model, 8, KvFormat::F16).unwrap();
    let error = Error::Memory { needed: Memory { weights: 3 << 30, ..needed }, free: 1 << 30 };
    assert!(error.to_string().contains("3072 for weights"), "{error}");
    assert!(error.to_string().contains("1024 MB are free"), "{error}");
}

#[test]
fn experts_agree_with_64_bit_floats_in_mixed_formats() {
    // Rows of gate and up that end within a round of a block, three bands for each of five experts, a quantised format
    // behind one of floats, and the other way round.
    let moe = Recipe { layers: 1, ffn: 96, experts: [40, 5], ..Recipe::tiny_qwen3moe() };
    let recipes = [
        Recipe { block: BlockType::Q4K, mixed: true, ffn: 256, ..moe.clone() },
        Recipe { block: BlockType::Q4_0, ..moe.clone() },
        Recipe { block: BlockType::F32, experts: [3, 1], ..moe.clone() },
        Recipe { block: BlockType::Bf16, mixed: true, ffn: 256, ..moe },
    ];
    for recipe in recipes {
        let error = relative_error(&recipe, &TOKENS[..2]);
        println!("{}: {error:e}", recipe.block);
        assert!(error < 1e-3, "{}: {error:e}", recipe.block);
    }
}

#[test]
fn mixed_formats_take_one_launch_more() {
    let mixed = Recipe { block: BlockType::Q4K, mixed: true, ..Recipe::tiny_llama() };
    let model = Model::from_bytes(mixed.to_bytes().unwrap()).unwrap();
    let engine = Engine::load(&device(), &model, 64, |_, _| ()).unwrap();
    // Values of every other layer are in another format than queries and keys.
    assert_eq!(engine.session(64).unwrap().launches_per_token(), 2 + 5 + 6);
    // GPUs with other numbers of SMs add in another order: an H200 had 1.08e-3.
    assert!(relative_error(&mixed, &TOKENS) < 1.5e-3);
}

/// Relative error of the logits after a prompt, of which all tokens but the last go through the layers together.
fn prompt_error(recipe: &Recipe, len: u32) -> f64 {
    let model = Model::from_bytes(recipe.to_bytes().unwrap()).unwrap();
    let engine = Engine::load(&device(), &model, 128, |_, _| ()).unwrap();
    let prompt: Vec<u32> = (0..len).map(|token| (token * 37 + 11) % 64).collect();
    let mut reference = Reference::with_context(&model, CacheFormat::Half, 128).unwrap();
    let expected = prompt.iter().map(|token| reference.step(*token).unwrap()).last().unwrap();
    let mut session = engine.session(128).unwrap();
    session.feed(&prompt).unwrap();
    relative_distance(&session.logits().unwrap(), &expected)
}

fn relative_distance(got: &[f32], expected: &[f64]) -> f64 {
    let error: f64 = got.iter().zip(expected).map(|(got, want)| (f64::from(*got) - want).powi(2)).sum();
    (error / expected.iter().map(|want| want.powi(2)).sum::<f64>()).sqrt()
}

/// A model as small as a format allows, whose sizes are no multiples of the tiles of products.
fn small(recipe: Recipe, block: BlockType) -> Recipe {
    let columns = block.weights().max(32);
    let size = |rows: usize| rows.next_multiple_of(columns);
    let heads = size(96) / 32;
    let kv_heads = if recipe.kv_heads == recipe.heads || heads % 2 == 1 { heads } else { heads / 2 };
    let (width, ffn) = (size(96), size(160));
    Recipe { block, width, heads, kv_heads, head_size: 32, ffn, vocabulary: 64, has_tokens: false, ..recipe }
}

#[test]
fn prompts_in_batches_agree_with_64_bit_floats_in_every_format() {
    for block in BlockType::ALL {
        let error = prompt_error(&small(Recipe::tiny_llama(), block), 18);
        println!("{block}: {error:e}");
        // Products have the same bound in all formats; what a model makes of it differs by its random weights.
        assert!(error < 1.7e-3, "{block}: {error:e}");
    }
    let mixed = Recipe { mixed: true, ..small(Recipe::tiny_llama(), BlockType::Q4K) };
    let error = prompt_error(&mixed, 18);
    assert!(error < 1e-3, "mixed: {error:e}");
}

#[test]
fn prompts_in_batches_agree_with_64_bit_floats_in_every_architecture() {
    let recipes = [Recipe::tiny_qwen2(), Recipe::tiny_qwen3(), Recipe::tiny_gpt2()];
    for recipe in recipes {
        let error = prompt_error(&small(recipe.clone(), BlockType::F16), 18);
        println!("{}: {error:e}", recipe.architecture);
        assert!(error < 1e-3, "{}: {error:e}", recipe.architecture);
    }
    for (recipe, block) in small_architectures() {
        let error = prompt_error(&small(recipe.clone(), block), 18);
        println!("{} {block}: {error:e}", recipe.architecture);
        assert!(error < 1e-3, "{} {block}: {error:e}", recipe.architecture);
    }
    // More tokens than share weights.
    for block in [BlockType::Q8_0, BlockType::F16] {
        let experts = Recipe { experts: [5, 2], ..small(Recipe::tiny_qwen3moe(), block) };
        let error = prompt_error(&experts, 40);
        println!("experts in {block}: {error:e}");
        assert!(error < 1e-3, "experts in {block}: {error:e}");
    }
}

#[test]
fn prompts_one_by_one_are_as_exact_as_produced_tokens() {
    let model = Model::from_bytes(small(Recipe::tiny_llama(), BlockType::F16).to_bytes().unwrap()).unwrap();
    let engine = Engine::load(&device(), &model, 64, |_, _| ()).unwrap();
    let prompt: Vec<u32> = (0..18).collect();
    let logits = [1, 512].map(|tokens| {
        let mut session = engine.session_with(64, &SessionOptions::default().prompt_batch(tokens)).unwrap();
        session.feed(&prompt).unwrap();
        session.logits().unwrap()
    });
    let mut reference = Reference::new(&model, CacheFormat::Half).unwrap();
    let expected = prompt.iter().map(|token| reference.step(*token).unwrap()).last().unwrap();
    let [one_by_one, together] = logits.map(|logits| relative_distance(&logits, &expected));
    assert!(one_by_one < 1e-4 && one_by_one < together && together < 1e-3, "{one_by_one:e}, {together:e}");
}

#[test]
fn long_prompts_come_in_several_batches_with_the_same_bits() {
    // Heads of 72 columns take the wide kernel; the queries' tile ends within the batch, keys and values take two.
    let recipe = Recipe {
        width: 72,
        heads: 1,
        kv_heads: 1,
        head_size: 72,
        ..small(Recipe::tiny_llama(), BlockType::F16)
    };
    let model = Model::from_bytes(recipe.to_bytes().unwrap()).unwrap();
    let engine = Engine::load(&device(), &model, 128, |_, _| ()).unwrap();
    let prompt: Vec<u32> = (0..101).map(|token| token * 7 % 64).collect();
    let mut whole = engine.session(128).unwrap();
    whole.feed(&prompt).unwrap();
    let logits = whole.logits().unwrap();
    let mut parts = engine.session_with(128, &SessionOptions::default().prompt_batch(40)).unwrap();
    parts.feed(&prompt).unwrap();
    assert_eq!(parts.logits().unwrap(), logits);
    let mut reference = Reference::new(&model, CacheFormat::Half).unwrap();
    let expected = prompt.iter().map(|token| reference.step(*token).unwrap()).last().unwrap();
    let error = relative_distance(&logits, &expected);
    assert!(error < 1e-3, "{error:e}");
    // What follows sees the whole prompt; a shorter context is computed again.
    assert_eq!(whole.tokens(3).unwrap().count(), 3);
    whole.truncate(101).unwrap();
    assert_eq!(whole.logits().unwrap(), logits);
    whole.truncate(20).unwrap();
    whole.feed(&prompt[20..]).unwrap();
    assert_eq!(whole.context_tokens(), prompt);
    assert!(relative_distance(&whole.logits().unwrap(), &expected) < 1e-3);
}

/// Resident bytes of this process's map of a file; `None` if the machine does not report them, as qemu.
fn resident(path: &std::path::Path) -> Option<usize> {
    let maps = std::fs::read_to_string("/proc/self/smaps").ok()?;
    let (_, own) = maps.split_once(path.to_str()?)?;
    let line = own.lines().find_map(|line| line.strip_prefix("Rss:"))?;
    let kibibytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

#[test]
fn loading_keeps_a_few_pages_of_the_file() {
    let recipe = Recipe { block: BlockType::F16, vocabulary: 40_000, layers: 1, ..Recipe::tiny_llama() };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, recipe.to_bytes().unwrap()).unwrap();
    let model = Model::open(&path).unwrap();
    if resident(&path).is_none() {
        println!("skipped: the machine does not report resident pages");
        return;
    }
    let (mut most, mut calls) = (0, 0);
    let engine = Engine::load(&device(), &model, 64, |_, _| {
        most = most.max(resident(&path).unwrap());
        calls += 1;
    });
    // The embedding has 20 MB; pieces have 8 MiB.
    assert!(engine.is_ok() && model.file().len() > 20_000_000);
    assert!(most > 7 << 20 && most < 14 << 20, "{most} bytes of the file are resident after {calls} pieces");
}

#[test]
fn a_stream_has_the_tokens_of_the_iterator_and_wakes_its_task() {
    use core::pin::pin;
    use core::task::{Context, Poll, Waker};
    use std::sync::Arc;
    use std::thread::{self, Thread};

    use futures_core::Stream;

    struct Unpark(Thread);

    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let recipe = Recipe { layers: 1, width: 64, heads: 1, kv_heads: 1, ffn: 64, ..Recipe::tiny_llama() };
    let model = Model::from_bytes(recipe.to_bytes().unwrap()).unwrap();
    let engine = Engine::load(&device(), &model, 8, |_, _| ()).unwrap();
    let mut session = engine.session(8).unwrap();
    session.feed(&[3, 4]).unwrap();
    let expected: Vec<u32> = session.tokens(4).unwrap().map(Result::unwrap).collect();
    session.truncate(2).unwrap();
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut made = Vec::new();
    {
        let mut stream = pin!(session.stream(100).unwrap());
        assert_eq!(stream.size_hint(), (0, Some(6)));
        loop {
            match stream.as_mut().poll_next(&mut Context::from_waker(&waker)) {
                Poll::Ready(Some(token)) => made.push(token.unwrap()),
                Poll::Ready(None) => break,
                // Nothing else wakes this thread in time.
                Poll::Pending => thread::park_timeout(std::time::Duration::from_secs(60)),
            }
        }
    }
    assert_eq!((made.len(), &made[..4]), (6, &expected[..]));
    assert_eq!(session.len(), 8);
    // Dropped early: what was made in excess is not part of the context.
    session.truncate(2).unwrap();
    drop(session.stream(6).unwrap());
    assert_eq!(session.len(), 2);
}
