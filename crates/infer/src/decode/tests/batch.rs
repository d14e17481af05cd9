//! Batches on the software Orin, compared with each session alone.

use super::device;
use crate::blocks::BlockType;
use crate::decode::{Batch, BatchOptions, Engine, Memory, Sampling, Session, SessionOptions};
use crate::error::Error;
use crate::model::{KvFormat, Model};
use crate::reference::{CacheFormat, Reference};
use crate::synthetic::Recipe;

/// Prompts of different lengths, each with its own choice of tokens.
fn prompts(count: usize) -> Vec<(Vec<u32>, Sampling)> {
    let sampling = |seed| match seed % 3 {
        0 => Sampling::default(),
        1 => Sampling { temperature: 1.2, seed, ..Sampling::default() },
        _ => Sampling { temperature: 0.9, top_k: 20, penalty: 1.3, seed, ..Sampling::default() },
    };
    let prompt = |number: u64| (0..1 + number % 4).map(|at| (number * 31 + at * 7) as u32 % 200).collect();
    (0..count as u64).map(|number| (prompt(number), sampling(number))).collect()
}

fn session(engine: &Engine, context: usize, (prompt, sampling): &(Vec<u32>, Sampling)) -> Session {
    let mut session = engine.session(context).unwrap();
    session.feed(prompt).unwrap();
    session.set_sampling(sampling).unwrap();
    session
}

/// A model whose launches take little time.
const fn small(recipe: Recipe) -> Recipe {
    Recipe { layers: 1, heads: 2, kv_heads: 1, head_size: 128, ffn: 256, vocabulary: 300, ..recipe }
}

/// Compares a batch with the same sessions alone: tokens, and all bits of the logits at the end.
fn compare(recipe: &Recipe, count: usize, steps: usize) {
    let model = Model::from_bytes(recipe.to_bytes().unwrap()).unwrap();
    let engine = Engine::load(&device(), &model, 64, |_, _| ()).unwrap();
    let bits = |session: &mut Session| -> Vec<u32> {
        session.logits().unwrap().iter().map(|logit| logit.to_bits()).collect()
    };
    let mut batch = engine.batch_with(count, &BatchOptions::default().tensor_cores_from(usize::MAX)).unwrap();
    let mut expected = Vec::new();
    for prompt in prompts(count) {
        let mut session = session(&engine, 64, &prompt);
        let tokens: Vec<u32> = session.tokens(steps).unwrap().map(Result::unwrap).collect();
        let bits = bits(&mut session);
        session.truncate(prompt.0.len()).unwrap();
        session.set_sampling(&prompt.1).unwrap();
        expected.push((batch.join(session).unwrap(), tokens, bits));
    }
    let mut made = vec![Vec::new(); count];
    for _ in 0..steps {
        for (slot, token) in batch.step().unwrap() {
            made[slot.number()].push(*token);
        }
    }
    let what = format!("{} {}, {count} sequences", recipe.architecture, recipe.block);
    for ((slot, tokens, logits), made) in expected.into_iter().zip(&made) {
        assert_eq!(made, &tokens, "{what}");
        let mut left = batch.leave(slot).unwrap();
        assert!(left.context_tokens().ends_with(&tokens), "{what}");
        assert!(bits(&mut left) == logits, "{what}: other logits");
    }
}

#[test]
fn a_batch_has_the_bits_of_each_session_alone() {
    let llama = small(Recipe::tiny_llama());
    let recipes = [
        // Rows of the last product have a whole step of columns and a part of one.
        Recipe { block: BlockType::Q6K, ffn: 1280, ..llama.clone() },
        Recipe { block: BlockType::F16, width: 64, ffn: 384, ..llama.clone() },
        Recipe { block: BlockType::F32, width: 64, ffn: 64, ..llama.clone() },
        Recipe { block: BlockType::Q4K, mixed: true, ..llama },
        Recipe { block: BlockType::Q8_0, width: 64, ffn: 64, ..small(Recipe::tiny_qwen2()) },
        Recipe { block: BlockType::Q5K, ..small(Recipe::tiny_qwen3()) },
        Recipe { block: BlockType::Bf16, kv_heads: 1, heads: 1, width: 128, ..small(Recipe::tiny_gpt2()) },
        Recipe { block: BlockType::F16, width: 64, ffn: 64, ..small(Recipe::tiny_gemma3()) },
        Recipe { block: BlockType::Q8_0, width: 64, ffn: 64, ..small(Recipe::tiny_granite()) },
        Recipe { block: BlockType::F16, width: 64, ffn: 64, layers: 3, ..small(Recipe::tiny_lfm2()) },
    ];
    for recipe in recipes {
        compare(&recipe, 2, 1);
    }
    let experts = Recipe { experts: [6, 2], ..small(Recipe::tiny_qwen3moe()) };
    compare(&Recipe { block: BlockType::Q4K, mixed: true, ..experts.clone() }, 4, 1);
    // More vectors than an expert's entry has, all of the same two experts.
    let all = Recipe { experts: [2, 2], width: 32, head_size: 32, ffn: 32, ..experts };
    compare(&Recipe { block: BlockType::F16, ..all }, 9, 1);
    let oss = Recipe { width: 64, head_size: 32, ffn: 64, experts: [5, 2], ..small(Recipe::tiny_gpt_oss()) };
    compare(&oss, 4, 1);
}

#[test]
fn many_sessions_share_a_step() {
    // Two groups for the products.
    let block = BlockType::Q8_0;
    let tiny = Recipe { block, width: 32, head_size: 32, ffn: 32, ..small(Recipe::tiny_llama()) };
    compare(&tiny, 9, 1);
}

/// The state of a session of a batch after some steps: its tokens, the bits of the logits that gave the last one, and
/// of those that follow.
type After = (Vec<u32>, Vec<u32>, Vec<u32>);

/// A greedy session after a prompt.
fn greedy(engine: &Engine, prompt: Vec<u32>) -> Session {
    session(engine, 64, &(prompt, Sampling::default()))
}

/// Makes steps of sessions, which then have their contexts back.
fn after(steps: usize, batch: &mut Batch, sessions: &mut [Option<Session>]) -> Vec<After> {
    let mut slots = Vec::new();
    for session in &mut *sessions {
        slots.push(batch.join(session.take().unwrap()).unwrap());
    }
    for _ in 0..steps {
        batch.step().unwrap();
    }
    let bits = |logits: Vec<f32>| logits.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    let mut after = |(session, slot): (&mut Option<Session>, _)| {
        let mut left = batch.leave(slot).unwrap();
        let mut chosen_from = vec![0.0; left.engine.shape.vocabulary];
        left.chosen_from(&mut chosen_from).unwrap();
        let after = (left.context_tokens().to_vec(), bits(chosen_from), bits(left.logits().unwrap()));
        left.truncate(left.len() - steps).unwrap();
        *session = Some(left);
        after
    };
    sessions.iter_mut().zip(slots).map(&mut after).collect()
}

/// The largest error of both logits, relative to their norm, and checks that the last token has the largest logit.
fn error_after(model: &Model, (tokens, chosen_from, follow): &After) -> f64 {
    let mut reference = Reference::new(model, CacheFormat::Half).unwrap();
    let expected: Vec<Vec<f64>> = tokens.iter().map(|token| reference.step(*token).unwrap()).collect();
    let (last, before) = (tokens.len() - 1, tokens.len() - 2);
    let logit = |bits: &u32| f32::from_bits(*bits);
    let best = (0..chosen_from.len())
        .rev()
        .max_by(|a, b| logit(&chosen_from[*a]).total_cmp(&logit(&chosen_from[*b])));
    assert_eq!(best, Some(tokens[last] as usize), "not the largest logit");
    let error = |got: &[u32], expected: &[f64]| {
        let terms = got.iter().zip(expected);
        let square: f64 = terms.map(|(got, expected)| (f64::from(logit(got)) - expected).powi(2)).sum();
        (square / expected.iter().map(|x| x * x).sum::<f64>()).sqrt()
    };
    error(chosen_from, &expected[before]).max(error(follow, &expected[last]))
}

#[test]
fn steps_on_the_tensor_cores_agree_with_64_bit_floats() {
    let tiny = |recipe: Recipe| Recipe { width: 64, head_size: 32, ffn: 64, ..small(recipe) };
    let recipes = [
        // Blocks share the columns of the last product. Formats are mixed.
        Recipe { block: BlockType::Q6K, ffn: 768, ..small(Recipe::tiny_llama()) },
        Recipe { block: BlockType::Q4K, mixed: true, ..small(Recipe::tiny_llama()) },
        Recipe { block: BlockType::F32, ..tiny(Recipe::tiny_llama()) },
        Recipe { block: BlockType::Q8_0, ..tiny(Recipe::tiny_qwen2()) },
        Recipe { block: BlockType::F16, kv_heads: 2, ..tiny(Recipe::tiny_gpt2()) },
        Recipe { block: BlockType::F16, layers: 2, ..tiny(Recipe::tiny_gemma3()) },
        Recipe { block: BlockType::Q8_0, ..tiny(Recipe::tiny_granite()) },
        Recipe { block: BlockType::F32, layers: 3, ..tiny(Recipe::tiny_lfm2()) },
        Recipe { experts: [5, 2], layers: 2, ..tiny(Recipe::tiny_gpt_oss()) },
    ];
    let options = BatchOptions::default().tensor_cores_from(2);
    for recipe in recipes {
        let model = Model::from_bytes(recipe.to_bytes().unwrap()).unwrap();
        let engine = Engine::load(&device(), &model, 64, |_, _| ()).unwrap();
        let mut batch = engine.batch_with(2, &options).unwrap();
        let mut sessions = [vec![3, 150], vec![77]].map(|prompt| Some(greedy(&engine, prompt)));
        for after in after(2, &mut batch, &mut sessions) {
            let error = error_after(&model, &after);
            let what = format!("{} {}", recipe.architecture, recipe.block);
            println!("{what}: {error:e}");
            assert!(error < 1e-3, "{what}: {error:e}");
        }
    }
}

#[test]
fn a_step_on_the_tensor_cores_does_not_depend_on_the_other_sessions() {
    let tiny = Recipe { width: 64, head_size: 32, ffn: 64, vocabulary: 80, ..small(Recipe::tiny_llama()) };
    let recipe = Recipe { block: BlockType::Q8_0, has_tokens: false, ..tiny };
    let model = Model::from_bytes(recipe.to_bytes().unwrap()).unwrap();
    let engine = Engine::load(&device(), &model, 64, |_, _| ()).unwrap();
    let mut sessions: Vec<_> = (0..6).map(|first| Some(greedy(&engine, vec![first * 7]))).collect();
    let mut many = engine.batch(10).unwrap();
    let six = after(1, &mut many, &mut sessions);
    assert!(error_after(&model, &six[5]) < 1e-3);
    // Again, with the same graph.
    assert!(after(1, &mut many, &mut sessions) == six, "other bits in the second run");
    let mut two = engine.batch_with(2, &BatchOptions::default().tensor_cores_from(2)).unwrap();
    assert!(after(1, &mut two, &mut sessions[4..]) == six[4..], "other bits with one other session");
    // Vectors of the larger kernels.
    let mut more: Vec<_> = (0..17).map(|first| Some(greedy(&engine, vec![first * 4 % 63]))).collect();
    more[16] = sessions[5].take();
    let mut largest = engine.batch(17).unwrap();
    assert!(after(1, &mut largest, &mut more)[16] == six[5], "other bits with 16 other sessions");
    sessions[5] = more[16].take();
    // Five have the bits of each alone.
    let five = after(1, &mut many, &mut sessions[1..]);
    let mut alone = engine.batch(1).unwrap();
    assert!(after(1, &mut alone, &mut sessions[5..]) == five[4..], "other bits alone");
    assert!(five[4].1 != six[5].1 && five[4].2 != six[5].2, "the tensor cores round");
}

#[test]
fn sessions_join_and_leave_between_steps() {
    let recipe =
        Recipe { block: BlockType::Q4_0, width: 64, head_size: 32, ffn: 64, ..small(Recipe::tiny_llama()) };
    let model = Model::from_bytes(recipe.to_bytes().unwrap()).unwrap();
    let engine = Engine::load(&device(), &model, 64, |_, _| ()).unwrap();
    let prompts = prompts(3);
    let alone = |number: usize, tokens: usize| -> Vec<u32> {
        session(&engine, 64, &prompts[number]).tokens(tokens).unwrap().map(Result::unwrap).collect()
    };
    let mut batch = engine.batch(2).unwrap();
    assert!(batch.step().unwrap().is_empty() && batch.is_empty());
    let mut made = [Vec::new(), Vec::new(), Vec::new()];
    // One alone; two; the first leaves and a short one joins in its slot, whose context is soon full.
    let first = batch.join(session(&engine, 64, &prompts[0])).unwrap();
    made[0].push(batch.step().unwrap()[0].1);
    let second = batch.join(session(&engine, 64, &prompts[1])).unwrap();
    for _ in 0..2 {
        let tokens = batch.step().unwrap();
        made[0].push(tokens[0].1);
        made[1].push(tokens[1].1);
    }
    assert!(matches!(batch.join(session(&engine, 64, &prompts[2])), Err(Error::BatchFull(2))));
    let left = batch.leave(first).unwrap();
    assert_eq!(left.len(), prompts[0].0.len() + 3);
    assert!(matches!(batch.leave(first), Err(Error::EmptySlot(0))));
    let context = prompts[2].0.len() + 2;
    let third = batch.join(session(&engine, context, &prompts[2])).unwrap();
    assert_eq!((third, batch.slots().collect::<Vec<_>>()), (first, vec![first, second]));
    for _ in 0..4 {
        for (slot, token) in batch.step().unwrap() {
            made[if *slot == third { 2 } else { 1 }].push(*token);
        }
    }
    assert_eq!(made.each_ref().map(Vec::len), [3, 6, 2]);
    for (number, made) in made.iter().enumerate() {
        assert_eq!(made, &alone(number, made.len()), "sequence {number}");
    }
}

#[test]
fn a_mask_limits_a_session_of_a_batch() {
    let model = Model::from_bytes(small(Recipe::tiny_llama()).to_bytes().unwrap()).unwrap();
    let engine = Engine::load(&device(), &model, 64, |_, _| ()).unwrap();
    let logits = greedy(&engine, vec![3]).logits().unwrap();
    let (mut batch, mut chosen_from) = (engine.batch(3).unwrap(), vec![0.0; logits.len()]);
    let slots: Vec<_> = (0..2).map(|_| batch.join(greedy(&engine, vec![3])).unwrap()).collect();
    assert!(matches!(batch.chosen_from(slots[0], &mut chosen_from), Err(Error::NothingChosen)));
    let best = (0..300).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap() as u32;
    let others = super::choice::mask(300, |token| token != best);
    batch.set_mask(slots[0], Some(&others)).unwrap();
    let second = (0..300).filter(|token| *token != best as usize);
    let second = second.max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap() as u32;
    assert_eq!(batch.step().unwrap(), [(slots[0], second), (slots[1], best)]);
    // What the mask does not allow has its logit as well.
    batch.chosen_from(slots[0], &mut chosen_from).unwrap();
    assert_eq!(chosen_from, logits);
    // Alone, and without the mask again.
    let mut left = batch.leave(slots[0]).unwrap();
    for (mask, expected) in [(Some(&others[..]), second), (None, best)] {
        left.truncate(1).unwrap();
        left.set_mask(mask).unwrap();
        assert_eq!(left.tokens(1).unwrap().next().unwrap().unwrap(), expected);
    }
    // Bits behind the vocabulary allow nothing.
    let mut outside = vec![0; 10];
    outside[9] = 1 << (300 % 32);
    assert!(matches!(batch.set_mask(slots[1], Some(&outside)), Err(Error::EmptyMask)));
    assert!(matches!(batch.set_mask(slots[1], Some(&[1; 9])), Err(Error::Length { len: 9, needed: 10, .. })));
    assert!(matches!(batch.set_mask(slots[0], None), Err(Error::EmptySlot(0))));
}

#[test]
fn what_a_batch_cannot_take_is_refused() {
    let recipe = small(Recipe::tiny_llama());
    let model = Model::from_bytes(recipe.to_bytes().unwrap()).unwrap();
    let engine = Engine::load(&device(), &model, 64, |_, _| ()).unwrap();
    assert!(matches!(engine.batch(33), Err(Error::BatchFull(32))));
    assert!(matches!(engine.batch(0), Err(Error::BatchFull(0))));
    let mut batch = engine.batch(2).unwrap();
    assert!(matches!(batch.join(engine.session(64).unwrap()), Err(Error::EmptyContext)));
    let other = Engine::load(&device(), &model, 64, |_, _| ()).unwrap();
    assert!(matches!(batch.join(other.session(64).unwrap()), Err(Error::OtherEngine)));
}

/// A model whose batches of prompts are quick on the software Orin.
fn thin() -> Model {
    let heads = Recipe { width: 64, heads: 1, kv_heads: 1, head_size: 64, ..small(Recipe::tiny_llama()) };
    let recipe = Recipe { block: BlockType::F16, ffn: 64, vocabulary: 64, has_tokens: false, ..heads };
    Model::from_bytes(recipe.to_bytes().unwrap()).unwrap()
}

#[test]
fn sessions_share_the_memory_of_prompts() {
    let (model, device) = (thin(), device());
    let engine = Engine::load(&device, &model, 1024, |_, _| ()).unwrap();
    let prompts = Memory::on(&device, &model, 1024, KvFormat::F16).unwrap().prompts;
    let options = SessionOptions::default().prompt_batch(1);
    let mut used = device.memory_usage().in_use;
    let mut more = || {
        let before = std::mem::replace(&mut used, device.memory_usage().in_use);
        used - before
    };
    let none = engine.session_with(1024, &options).unwrap();
    let without = more();
    let first = engine.session(1024).unwrap();
    let with = more();
    assert!(with >= without + prompts, "{with} and {without} bytes, {prompts} for prompts");
    let others = [engine.session(1024).unwrap(), engine.session(512).unwrap()];
    let rest = more();
    assert!(rest <= 2 * without, "{rest} bytes for two more sessions, {without} for the first");
    drop((none, first, others));
}

#[test]
fn sessions_and_a_batch_take_the_memory_that_was_stated() {
    let (model, device) = (thin(), device());
    let stated = Memory::on(&device, &model, 1024, KvFormat::F16).unwrap().sessions(3).total();
    let start = device.memory().unwrap().available;
    let engine = Engine::load(&device, &model, 1024, |_, _| ()).unwrap();
    let mut batch = engine.batch(3).unwrap();
    for first in [1, 2, 3] {
        let mut session = engine.session(1024).unwrap();
        session.feed(&[first]).unwrap();
        batch.join(session).unwrap();
    }
    batch.step().unwrap();
    let used = start - device.memory().unwrap().available;
    assert!(used <= stated && stated < 2 * used, "{used} bytes used, {stated} stated");
}

#[test]
fn prompts_of_sessions_at_the_same_time_have_the_bits_of_each_alone() {
    let model = thin();
    let engine = Engine::load(&device(), &model, 64, |_, _| ()).unwrap();
    let prompt = |first: u32| -> Vec<u32> { (0..40).map(|at| (first + at * 7) % 64).collect() };
    let logits = |session: &mut Session| session.logits().unwrap();
    let alone = |first| {
        let engine = Engine::load(&device(), &model, 64, |_, _| ()).unwrap();
        let mut session = engine.session(64).unwrap();
        session.feed(&prompt(first)).unwrap();
        logits(&mut session)
    };
    let expected = [alone(1), alone(2), alone(3)];
    // The second session is larger: the shared memory grows while the first may still use it.
    let small = SessionOptions::default().prompt_batch(20);
    let mut first = engine.session_with(64, &small).unwrap();
    first.feed(&prompt(1)).unwrap();
    let mut second = engine.session(64).unwrap();
    second.feed(&prompt(2)).unwrap();
    let third = std::thread::scope(|scope| {
        let fed = scope.spawn(|| {
            let mut session = engine.session(64).unwrap();
            session.feed(&prompt(3)).unwrap();
            logits(&mut session)
        });
        first.truncate(0).unwrap();
        first.feed(&prompt(1)).unwrap();
        fed.join().unwrap()
    });
    assert!([logits(&mut first), logits(&mut second), third] == expected);
}
