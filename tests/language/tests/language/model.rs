//! Models: shapes and tensors that must agree, and results on the CPU.

use infer::Error;
use infer::blocks::BlockType;
use infer::gguf::{Array, File, PartFault, Texts, Value, Writer};
use infer::model::{Architecture, KvFormat, Model, ModelFault, RopePairs};
use infer::reference::{CacheFormat, Reference};
use infer::synthetic::Recipe;

/// A model that is built and evaluated within milliseconds.
const fn small(recipe: Recipe) -> Recipe {
    Recipe { width: 32, heads: 2, head_size: 16, ffn: 48, vocabulary: 300, context: 64, ..recipe }
}

const ALL: [Recipe; 13] = [
    Recipe { kv_heads: 1, ..small(Recipe::tiny_llama()) },
    Recipe { kv_heads: 1, ..small(Recipe::tiny_qwen2()) },
    Recipe { kv_heads: 1, head_size: 32, ..small(Recipe::tiny_qwen3()) },
    Recipe { kv_heads: 2, ..small(Recipe::tiny_gpt2()) },
    Recipe { kv_heads: 1, experts: [3, 2], ..small(Recipe::tiny_qwen3moe()) },
    Recipe { kv_heads: 1, window: 2, ..small(Recipe::tiny_gemma3()) },
    Recipe { kv_heads: 1, rotated: 12, ..small(Recipe::tiny_phi3()) },
    Recipe { kv_heads: 1, window: 2, ..small(Recipe::tiny_mistral()) },
    Recipe { kv_heads: 1, ..small(Recipe::tiny_mistral3()) },
    Recipe { kv_heads: 1, ..small(Recipe::tiny_granite()) },
    Recipe { kv_heads: 1, ..small(Recipe::tiny_smollm3()) },
    Recipe { kv_heads: 1, ..small(Recipe::tiny_lfm2()) },
    Recipe { kv_heads: 1, ffn: 64, window: 2, experts: [3, 2], ..small(Recipe::tiny_gpt_oss()) },
];

fn model(recipe: &Recipe) -> Model {
    Model::from_bytes(recipe.to_bytes().unwrap()).unwrap()
}

/// A file with the contents of another, of which keys and tensors can be changed.
struct Edit {
    values: Vec<(String, Value)>,
    tensors: Vec<(String, Vec<usize>, BlockType, Vec<u8>)>,
}

impl Edit {
    fn of(recipe: &Recipe) -> Self {
        let file = File::from_bytes(recipe.to_bytes().unwrap()).unwrap();
        let tensor = |tensor: infer::gguf::Tensor<'_>| {
            (tensor.name.to_owned(), tensor.dims.to_vec(), tensor.block, tensor.bytes.to_vec())
        };
        Self {
            values: file.values().map(|(key, value)| (key.to_owned(), value.clone())).collect(),
            tensors: file.tensors().map(tensor).collect(),
        }
    }

    fn set(mut self, key: &str, value: Value) -> Self {
        self = self.without(key);
        self.values.push((key.to_owned(), value));
        self
    }

    fn without(mut self, key: &str) -> Self {
        self.values.retain(|(known, _)| known != key);
        self
    }

    fn without_tensor(mut self, name: &str) -> Self {
        self.tensors.retain(|tensor| tensor.0 != name);
        self
    }

    fn tensor(mut self, name: &str, dims: &[usize], block: BlockType, byte: u8) -> Self {
        self = self.without_tensor(name);
        let bytes = block.bytes_for(dims.iter().product()).unwrap();
        self.tensors.push((name.to_owned(), dims.to_vec(), block, vec![byte; bytes]));
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        self.values.iter().for_each(|(key, value)| writer.key(key, value.clone()));
        for (name, dims, block, bytes) in &self.tensors {
            let row = block.bytes_for(dims[0]).unwrap();
            writer.tensor(name, dims, *block, move |at| bytes[at * row..][..row].to_vec()).unwrap();
        }
        let mut file = Vec::new();
        writer.write(&mut file).unwrap();
        file
    }

    fn accepted(&self) -> Model {
        Model::from_bytes(self.bytes()).unwrap()
    }

    fn refused(&self) -> ModelFault {
        match Model::from_bytes(self.bytes()) {
            Err(Error::Model(fault)) => fault,
            other => panic!("{other:?}"),
        }
    }
}

fn llama() -> Edit {
    Edit::of(&Recipe::tiny_llama())
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

#[test]
fn foreign_architectures_are_refused_by_name() {
    let fault = llama().set("general.architecture", text("deepseek2")).refused();
    assert_eq!(fault, ModelFault::Architecture("deepseek2".to_owned()));
    assert!(
        fault.to_string().contains("deepseek2") && fault.to_string().contains("llama, qwen2, qwen3, gpt2")
    );
    assert!(matches!(llama().without("general.architecture").refused(), ModelFault::MissingKey(_)));
    let error = Model::from_bytes(llama().set("general.architecture", Value::U8(1)).bytes()).unwrap_err();
    assert!(matches!(error, Error::Value { .. }), "{error}");
}

#[test]
fn parts_that_change_results_are_refused() {
    let refused = |key: &str, value: Value| llama().set(key, value).refused();
    assert!(matches!(refused("llama.expert_count", Value::U32(8)), ModelFault::Unsupported { .. }));
    let other = refused("llama.rope.scaling.type", text("longrope"));
    assert_eq!(other, ModelFault::RopeScaling("longrope".to_owned()));
    for (recipe, key, value) in [
        (Recipe::tiny_gemma3(), "gemma3.final_logit_softcapping", Value::F32(30.0)),
        (
            Recipe::tiny_gemma3(),
            "gemma3.attention.sliding_window_pattern",
            Value::Array(Array::Bool(vec![true])),
        ),
        (Recipe::tiny_granite(), "granite.attention.sliding_window", Value::U32(32)),
        (Recipe::tiny_granite(), "granite.logit_scale", Value::F32(0.0)),
        (Recipe::tiny_phi3(), "phi3.rope.dimension_count", Value::U32(66)),
        (Recipe::tiny_mistral3(), "mistral3.rope.scaling.yarn_beta_slow", Value::F32(-1.0)),
        (Recipe::tiny_lfm2(), "lfm2.shortconv.l_cache", Value::U32(4)),
        (Recipe::tiny_lfm2(), "lfm2.attention.head_count_kv", Value::Array(Array::I32(vec![0, 0, 2]))),
        (Recipe::tiny_lfm2(), "lfm2.attention.head_count_kv", Value::Array(Array::I32(vec![0, 1, 2, 0]))),
        (Recipe::tiny_gpt_oss(), "gpt-oss.expert_weights_scale", Value::F32(2.5)),
        (Recipe::tiny_gpt_oss(), "gpt-oss.rope.freq_base_swa", Value::F32(10_000.0)),
    ] {
        let fault = Edit::of(&recipe).set(key, value).refused();
        assert!(fault.to_string().contains(&format!("`{key}`")), "{key}: {fault}");
    }
    let windows = Edit::of(&Recipe::tiny_gpt_oss()).without("gpt-oss.attention.sliding_window").refused();
    assert_eq!(windows, ModelFault::MissingKey("gpt-oss.attention.sliding_window".to_owned()));
    let one = Edit::of(&Recipe::tiny_phi3()).without_tensor("rope_factors_long.weight").refused();
    assert_eq!(one, ModelFault::MissingTensor("rope_factors_long.weight".to_owned()));
    assert!(matches!(refused("llama.rope.freq_base", Value::F32(0.5)), ModelFault::Float { .. }));
    let other = llama().tensor("blk.0.attn_sinks", &[4], BlockType::F32, 0).refused();
    assert_eq!(other, ModelFault::UnknownTensor("blk.0.attn_sinks".to_owned()));
    // A tensor of a layer that the keys do not have.
    let fewer = llama().set("llama.block_count", Value::U32(1)).refused();
    assert!(matches!(fewer, ModelFault::UnknownTensor(name) if name.starts_with("blk.1.")));
    llama().tensor("blk.0.attn_rot_embd", &[32], BlockType::F32, 0).accepted();
    let experts = |key: &str, value| {
        Edit::of(&Recipe::tiny_qwen3moe()).set(&format!("qwen3moe.{key}"), Value::U32(value)).refused()
    };
    assert!(matches!(experts("expert_shared_count", 1), ModelFault::Unsupported { .. }));
    assert!(matches!(experts("expert_used_count", 9), ModelFault::Size { size: 9, most: 8, .. }));
    assert!(matches!(experts("expert_count", 0), ModelFault::Size { size: 0, .. }));
    assert!(matches!(experts("expert_feed_forward_length", 128), ModelFault::Dimensions { .. }));
}

#[test]
fn keys_must_agree_with_each_other() {
    let set = |key: &str, value: u32| llama().set(&format!("llama.{key}"), Value::U32(value)).refused();
    for key in
        ["block_count", "embedding_length", "attention.head_count", "feed_forward_length", "context_length"]
    {
        assert!(matches!(set(key, 0), ModelFault::Size { size: 0, .. }), "{key}");
        assert!(matches!(set(key, u32::MAX), ModelFault::Size { .. }), "{key}");
        assert!(
            matches!(llama().without(&format!("llama.{key}")).refused(), ModelFault::MissingKey(_)),
            "{key}"
        );
    }
    assert!(matches!(set("attention.head_count_kv", 3), ModelFault::Heads { .. }));
    assert!(matches!(set("attention.key_length", 63), ModelFault::Differs { .. }));
    assert!(matches!(set("attention.value_length", 32), ModelFault::Differs { .. }));
    assert!(matches!(set("rope.dimension_count", 32), ModelFault::Differs { .. }));
    assert!(matches!(set("block_count", 1000), ModelFault::Size { size: 1000, .. }));
    assert!(matches!(set("block_count", 3), ModelFault::MissingTensor(name) if name.starts_with("blk.2.")));
    for (key, value) in
        [("attention.head_count", 8), ("attention.head_count_kv", 1), ("embedding_length", 512)]
    {
        assert!(matches!(set(key, value), ModelFault::Dimensions { .. }), "{key}");
    }
    assert!(matches!(set("feed_forward_length", 1024), ModelFault::Dimensions { .. }));
    let layers = llama().set("llama.block_count", text("two"));
    assert!(matches!(Model::from_bytes(layers.bytes()).unwrap_err(), Error::Value { .. }));
}

#[test]
fn the_vocabulary_must_agree_with_the_embedding() {
    let tokens = |count: usize| {
        let texts: Vec<String> = (0..count).map(|token| token.to_string()).collect();
        Value::Array(Array::Texts(texts.iter().map(String::as_str).collect::<Texts>()))
    };
    let tokens_of = |edit: Edit, count| edit.set("tokenizer.ggml.tokens", tokens(count));
    assert!(matches!(tokens_of(llama(), 511).refused(), ModelFault::Differs { value: 512, needed: 511, .. }));
    let fewer = tokens_of(llama().without("llama.vocab_size"), 511);
    assert!(matches!(fewer.refused(), ModelFault::Dimensions { name, .. } if name == "token_embd.weight"));
    assert!(matches!(tokens_of(llama().without("llama.vocab_size"), 0).refused(), ModelFault::Size { .. }));
    let without = llama().without("tokenizer.ggml.tokens");
    let other = Edit { tensors: Vec::new(), ..llama() };
    let stated = without.set("llama.vocab_size", Value::U32(100)).refused();
    assert!(matches!(stated, ModelFault::Dimensions { .. }));
    let neither = llama().without("tokenizer.ggml.tokens").without("llama.vocab_size");
    assert_eq!(neither.accepted().shape().vocabulary, 512);
    assert_eq!(other.refused(), ModelFault::VocabularyOnly);
    let part = llama().set("split.count", Value::U16(3)).set("split.no", Value::U16(0));
    assert_eq!(part.refused(), ModelFault::Part { number: 1, count: 3 });
    llama().set("split.count", Value::U16(1)).accepted();
}

/// The parts of a model, with the keys that divided models have.
fn divided(edit: &Edit, count: usize) -> Vec<Edit> {
    let number = |number: usize| Value::U16(number as u16);
    let share = edit.tensors.len().div_ceil(count);
    let part = |(at, tensors): (usize, &[_])| {
        let values = if at == 0 { edit.values.clone() } else { Vec::new() };
        let part = Edit { values, tensors: <[_]>::to_vec(tensors) };
        part.set("split.no", number(at)).set("split.count", number(count))
    };
    let mut parts: Vec<Edit> = edit.tensors.chunks(share).enumerate().map(part).collect();
    let all = Value::I32(edit.tensors.len() as i32);
    parts[0].values.push(("split.tensors.count".to_owned(), all));
    parts
}

#[test]
fn a_model_in_several_files_is_opened_by_any_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let name = |number: usize| path(&format!("tiny-{number:05}-of-00003.gguf"));
    let (whole, mut parts) = (llama(), divided(&llama(), 3));
    let write = |parts: &[Edit]| {
        for (at, part) in parts.iter().enumerate() {
            std::fs::write(name(at + 1), part.bytes()).unwrap();
        }
    };
    write(&parts);
    let known = whole.accepted();
    for number in 1..=3 {
        let model = Model::open(name(number)).unwrap();
        assert_eq!((model.file().parts(), model.shape()), (3, known.shape()));
        assert_eq!(model.weight_bytes(), known.weight_bytes());
        for tensor in known.file().tensors() {
            let same = model.file().tensor(tensor.name).unwrap();
            assert_eq!((same.dims, same.block, same.bytes), (tensor.dims, tensor.block, tensor.bytes));
            model.file().release(same.bytes);
        }
        assert!(model.file().unchanged().is_ok());
    }

    let refused = |at: usize| match Model::open(name(at)) {
        Err(Error::Part { path, fault }) => (path, fault),
        other => panic!("{other:?}"),
    };
    std::fs::copy(name(2), path("other.gguf")).unwrap();
    let Err(Error::Part { fault, .. }) = Model::open(path("other.gguf")) else {
        panic!("a part by another name")
    };
    assert!(matches!(fault, PartFault::Name { suffix } if suffix == "-00002-of-00003.gguf"));
    std::fs::write(name(3), &parts[2].bytes()[..100]).unwrap();
    assert!(matches!(refused(1), (path, PartFault::Damaged(_)) if path == name(3)));
    std::fs::copy(name(2), name(3)).unwrap();
    assert!(matches!(refused(1), (path, PartFault::Number { number: 2, count: 3 }) if path == name(3)));
    let first = parts[0].tensors[0].clone();
    parts[2].tensors.push(first.clone());
    write(&parts);
    assert!(
        matches!(refused(2), (path, PartFault::DuplicateTensor(twice)) if path == name(3) && twice == first.0)
    );
    parts[2].tensors.truncate(1);
    write(&parts);
    assert!(matches!(refused(1).1, PartFault::Tensors { count, found } if found < count));
    std::fs::remove_file(name(2)).unwrap();
    assert!(matches!(Model::open(name(1)), Err(Error::Open { path, .. }) if path == name(2)));
}

#[test]
fn tensors_must_agree_with_the_keys() {
    for recipe in &ALL {
        let names: Vec<String> = Edit::of(recipe).tensors.iter().map(|tensor| tensor.0.clone()).collect();
        for name in names {
            let is_optional = name.contains("bias")
                && match recipe.architecture {
                    Architecture::GptOss => false,
                    Architecture::Gpt2 => name.starts_with("blk") && !name.contains("norm"),
                    _ => true,
                }
                || ["rope_freqs.weight", "output.weight"].contains(&name.as_str());
            let fault = |edit: Edit| match Model::from_bytes(edit.bytes()) {
                Ok(_) => None,
                Err(Error::Model(fault)) => Some(fault),
                Err(other) => panic!("{other}"),
            };
            let missing = fault(Edit::of(recipe).without_tensor(&name));
            let is_joined = name.ends_with("attn_qkv.weight");
            match missing {
                None => assert!(is_optional, "{name}"),
                Some(ModelFault::MissingTensor(missing)) => assert!(missing == name || is_joined, "{name}"),
                Some(other) => panic!("{name}: {other}"),
            }
            let changed = fault(Edit::of(recipe).tensor(&name, &[32, 5], BlockType::F32, 0));
            assert!(matches!(changed, Some(ModelFault::Dimensions { .. })), "{name}: {changed:?}");
        }
    }
    let quantised = llama().tensor("output_norm.weight", &[256], BlockType::Q8_0, 0).refused();
    assert!(matches!(quantised, ModelFault::Vector { block: BlockType::Q8_0, .. }));
    let factors = llama().tensor("rope_freqs.weight", &[32], BlockType::F32, 0).refused();
    assert!(matches!(factors, ModelFault::Element { index: 0, .. }));
}

#[test]
fn shapes_are_those_of_the_recipes() {
    for recipe in &ALL {
        let model = model(recipe);
        let shape = model.shape();
        assert_eq!(
            (
                shape.architecture,
                shape.layers.len(),
                shape.width,
                shape.heads,
                shape.kv_heads,
                shape.head_size,
                shape.ffn
            ),
            (
                recipe.architecture,
                recipe.layers,
                recipe.width,
                recipe.heads,
                recipe.kv_heads,
                recipe.head_size,
                recipe.ffn
            )
        );
        assert_eq!(
            (shape.vocabulary, shape.context, shape.tied),
            (recipe.vocabulary, recipe.context, recipe.tied)
        );
        let pairs = shape.ropes.first().map(|rope| rope.pairs);
        let want = match recipe.architecture {
            Architecture::Gpt2 => None,
            Architecture::Llama | Architecture::Mistral3 | Architecture::Granite | Architecture::SmolLm3 => {
                Some(RopePairs::Neighbours)
            }
            _ => Some(RopePairs::Halves),
        };
        assert_eq!(pairs, want);
        let layers: Vec<_> = shape.layers.iter().map(|layer| (layer.window, layer.rope)).collect();
        match recipe.architecture {
            Architecture::Gemma3 => assert_eq!(layers, [(Some(2), Some(1)), (None, Some(0))]),
            Architecture::GptOss => assert_eq!(layers, [(Some(2), Some(0)), (None, Some(0))]),
            Architecture::SmolLm3 => assert_eq!(layers[2..], [(None, Some(0)), (None, None)]),
            Architecture::Lfm2 => {
                assert_eq!(layers[1..], [(None, None), (None, Some(0)), (None, None)]);
                assert_eq!((shape.convolutions(4), shape.cached(3), shape.first_outputs(3)), (3, 1, 96));
                assert_eq!(shape.kv_bytes(KvFormat::F16, 10), Some(2 * 16 * 2 * 10));
            }
            Architecture::Llama if recipe.window > 0 => assert_eq!(layers, [(Some(2), Some(0)); 2]),
            _ => assert!(layers.iter().all(|layer| *layer == (None, want.map(|_| 0)))),
        }
        let scales = [shape.embedding_scale, shape.attention_scale, shape.residual_scale, shape.logit_scale];
        let size = (shape.head_size as f64).sqrt().recip();
        let close = |want: [f64; 4]| scales.iter().zip(want).all(|(got, want)| (got - want).abs() < 1e-6);
        assert!(close(match recipe.architecture {
            Architecture::Gemma3 => [32.0_f64.sqrt(), size, 1.0, 1.0],
            Architecture::Granite => [12.0, 0.1, 0.22, 0.125],
            _ => [1.0, size, 1.0, 1.0],
        }));
        assert_eq!(model.position_embedding().is_some(), want.is_none());
        assert_eq!(model.output().name, if recipe.tied { "token_embd.weight" } else { "output.weight" });
    }
}

/// Frequency of a pair of a head of 64 with a base of a million.
fn plain_million(pair: usize) -> f64 {
    1e6_f64.powf(-2.0 * pair as f64 / 64.0)
}

#[test]
fn frequencies_are_scaled() {
    let plain = llama().without_tensor("rope_freqs.weight").accepted().rope_frequencies(0, 1024);
    assert_eq!((plain.len(), plain[0]), (32, 1.0));
    let scaled = model(&Recipe::tiny_llama()).rope_frequencies(0, 1024);
    let ratio: Vec<f64> = plain.iter().zip(&scaled).map(|(plain, scaled)| plain / scaled).collect();
    // LLaMA 3.2: the first 15 are kept, the last 14 are divided by 32.
    assert!(ratio[..15].iter().all(|ratio| (ratio - 1.0).abs() < 1e-6), "{ratio:?}");
    assert!(ratio[18..].iter().all(|ratio| (ratio - 32.0).abs() < 1e-5), "{ratio:?}");
    for (ratio, want) in ratio[15..18].iter().zip([1.6513, 3.2923, 9.6667]) {
        assert!((ratio - want).abs() < 1e-4, "{ratio} {want}");
    }
    let linear = llama()
        .without_tensor("rope_freqs.weight")
        .set("llama.rope.scaling.type", text("linear"))
        .set("llama.rope.scaling.factor", Value::F32(4.0));
    assert_eq!(linear.accepted().rope_frequencies(0, 1024)[0], 0.25);

    // YaRN: the context of 64 positions was 4, so no frequency makes 32 turns within it; the first makes 4 / (2 pi).
    let yarn = model(&Recipe { context: 64, ..Recipe::tiny_mistral3() });
    let all_divided = yarn.rope_frequencies(0, 64);
    assert_eq!((all_divided[1], yarn.shape().ropes[0].magnitude), (plain_million(1) / 16.0, 1.0));
    let yarn = model(&Recipe { context: 32_768, ..Recipe::tiny_mistral3() });
    let ratio: Vec<f64> =
        yarn.rope_frequencies(0, 64).iter().enumerate().map(|(at, got)| got / plain_million(at)).collect();
    // 2,048 positions: 32 turns for pair 5.37, one for pair 13.40.
    assert!(ratio[..=5].iter().all(|ratio| *ratio == 1.0), "{ratio:?}");
    assert!(ratio[14..].iter().all(|ratio| *ratio == 1.0 / 16.0), "{ratio:?}");
    // The shares between are thirds of a third: pair 8 is 3 of 9 steps away from pair 5.
    assert!((ratio[8] - (2.0 / 3.0 + 1.0 / 3.0 / 16.0)).abs() < 1e-12, "{ratio:?}");
    // Scores grow from the original context on: later positions are not supported.
    let grows =
        Edit::of(&Recipe::tiny_mistral3()).set("mistral3.attention.temperature_scale", Value::F32(0.1));
    assert_eq!(grows.accepted().shape().context, 64);
}

#[test]
fn bytes_are_counted() {
    let one = Recipe { has_tokens: false, ..Recipe::llama_1b() };
    // The figures of the whole model follow from the shape: 1 layer has 49,889,280 bytes of matrices in Q6_K.
    let layer = (2048 * (3072 + 2048) + 3 * 2048 * 8192) / 256 * 210;
    assert_eq!((one.layers * layer, 128_256 * 2048 / 256 * 210), (16 * 49_889_280, 215_470_080));
    let tiny = model(&Recipe::tiny_llama());
    let matrices = 2 * (2 * (256 * (256 + 128 + 128 + 256) + 3 * 256 * 512) + 512 * 256);
    let vectors = 4 * (32 + 256 + 2 * 2 * 256);
    assert_eq!(tiny.weight_bytes(), matrices + vectors);
    assert_eq!(tiny.bytes_per_token(), matrices + vectors + 2 * 256);
    let untied = model(&Recipe { tied: false, ..Recipe::tiny_llama() });
    assert_eq!(untied.bytes_per_token(), tiny.bytes_per_token());
    let gpt2 = model(&Recipe::tiny_gpt2());
    assert_eq!(gpt2.bytes_per_token(), gpt2.weight_bytes() - 4 * 256 * 512 + 4 * 256 + 2 * 256);
    assert_eq!(tiny.shape().kv_bytes(KvFormat::F16, usize::MAX / 64), None);
    // 2 layers, key and value of 2 heads: 64 integers and 2 scales each.
    assert_eq!(tiny.shape().kv_bytes(KvFormat::Q8_0, 100), Some(2 * 2 * 2 * (64 + 2 * 2) * 100));
    assert_eq!(tiny.shape().kv_bytes_read(KvFormat::F16, 100), 2 * 2 * 128 * 2 * 100);
    // 2 of 8 experts; the embedding is not the output matrix.
    let experts = model(&Recipe::tiny_qwen3moe());
    let unread = 2 * (2 * 6 * 3 * 256 * 256 + 512 * 256 - 256);
    assert_eq!(experts.bytes_per_token(), experts.weight_bytes() - unread);
    // 17 bytes for 32 weights, and biases.
    let experts = model(&Recipe::tiny_gpt_oss());
    let unread = 2 * 6 * 3 * (256 * 256 / 32 * 17 + 256 * 4) + 511 * 256 / 32 * 34;
    assert_eq!(experts.bytes_per_token(), experts.weight_bytes() - unread);
}

#[test]
fn long_prompts_are_refused() {
    let model = model(&Recipe::tiny_llama());
    let admit = |prompt, context| model.shape().admit(prompt, context);
    admit(1023, 1024).unwrap();
    assert!(matches!(admit(1024, 1024), Err(Error::PromptTooLong { tokens: 1024, context: 1024 })));
    assert!(matches!(admit(usize::MAX, 8), Err(Error::PromptTooLong { .. })));
    assert!(matches!(admit(1, 1025), Err(Error::ContextTooLong { wanted: 1025, most: 1024 })));
    let mut reference = Reference::new(&model, CacheFormat::Half).unwrap();
    assert!(matches!(reference.step(512), Err(Error::UnknownToken { token: 512, vocabulary: 512 })));
    assert!(reference.is_empty());
}

/// Logits of some tokens.
fn logits(model: &Model, format: CacheFormat, tokens: &[u32]) -> Vec<Vec<f64>> {
    logits_within(model, format, tokens, model.shape().context)
}

/// The same in a context of `context` positions.
fn logits_within(model: &Model, format: CacheFormat, tokens: &[u32], context: usize) -> Vec<Vec<f64>> {
    let mut reference = Reference::with_context(model, format, context).unwrap();
    tokens.iter().map(|token| reference.step(*token).unwrap()).collect()
}

fn distance(left: &[f64], right: &[f64]) -> f64 {
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>();
    let difference = square(&mut left.iter().zip(right).map(|(left, right)| left - right));
    (difference / square(&mut right.iter().copied())).sqrt()
}

#[test]
fn results_depend_on_every_tensor_and_on_the_order_of_tokens() {
    let tokens = [3, 200, 41, 7];
    for recipe in &ALL {
        let right = logits(&model(recipe), CacheFormat::Half, &tokens);
        assert!(right.iter().flatten().all(|logit| logit.is_finite()));
        let exact = logits(&model(recipe), CacheFormat::Exact, &tokens);
        let rounding = distance(&right[3], &exact[3]);
        assert!(rounding > 0.0 && rounding < 2e-3, "{:?}: {rounding:e}", recipe.architecture);
        // Scales of 32 components and 7 bits: an eighth to a twentieth of the precision of halves.
        let integers = distance(&logits(&model(recipe), CacheFormat::Q8_0, &tokens)[3], &exact[3]);
        assert!((4.0 * rounding..2e-2).contains(&integers), "{:?}: {integers:e}", recipe.architecture);
        println!(
            "{:?}: keys and values in halves {rounding:e}, in integers {integers:e}",
            recipe.architecture
        );
        let turned = logits(&model(recipe), CacheFormat::Half, &[200, 3, 41, 7]);
        assert!(distance(&turned[3], &right[3]) > 1e-3, "{:?}", recipe.architecture);

        // Phi 3 has other factors of frequencies in long contexts.
        let short = logits_within(&model(recipe), CacheFormat::Half, &tokens, 8);
        let is_phi = recipe.architecture == Architecture::Phi3;
        assert_eq!(distance(&short[3], &right[3]) > 1e-3, is_phi, "{:?}", recipe.architecture);
        let edit = Edit::of(recipe);
        for (at, (name, ..)) in edit.tensors.iter().enumerate() {
            let mut changed = Edit::of(recipe);
            // An exponent's bit of the last row: of a float, or of a scale.
            let bytes = &mut changed.tensors[at].3;
            let row = bytes.len() / changed.tensors[at].1.get(1).copied().unwrap_or(1);
            let first = if name == "token_embd.weight" { 7 * row } else { 0 };
            let bytes = &mut changed.tensors[at].3;
            let end = if name.contains("embd") { first + row } else { bytes.len() };
            bytes[first..end].chunks_exact_mut(2).for_each(|half| half[1] ^= 1);
            let (changed, is_short) = (changed.accepted(), name == "rope_factors_short.weight");
            let context = if is_short { 8 } else { 64 };
            let right = if is_short { &short } else { &right };
            let other = logits_within(&changed, CacheFormat::Half, &tokens, context);
            assert!(distance(&other[3], &right[3]) > 1e-9, "{name}");
        }
    }
}

#[test]
fn biases_of_experts_reach_the_limits_of_the_activation() {
    let recipe = &ALL[12];
    let logits_with = |name: &str, bias: f32| {
        let mut edit = Edit::of(recipe);
        for tensor in edit.tensors.iter_mut().filter(|tensor| tensor.0.ends_with(name)) {
            tensor.3.as_chunks_mut().0.fill(bias.to_le_bytes());
        }
        logits(&edit.accepted(), CacheFormat::Exact, &[3, 200]).remove(1)
    };
    // Gate and up have an upper limit, up has a lower one, and a gate far below 0 gives 0.
    for (name, bias) in [("ffn_gate_exps.bias", 1.0), ("ffn_up_exps.bias", 1.0), ("ffn_up_exps.bias", -1.0)] {
        let [inside, at, beyond] = [3.0, 50.0, 100.0].map(|size| logits_with(name, bias * size));
        assert!(at == beyond && distance(&inside, &at) > 0.1, "{name} {bias}");
    }
    let [far, farther] = [-50.0, -100.0].map(|bias| logits_with("ffn_gate_exps.bias", bias));
    assert!(distance(&far, &farther) < 1e-12);
    // A bias of all experts does not change their choice or their shares.
    let [one, other] = [0.0, 30.0].map(|bias| logits_with("ffn_gate_inp.bias", bias));
    assert!(distance(&one, &other) < 1e-12);
}

#[test]
fn formats_give_similar_sizes_of_numbers() {
    for block in BlockType::ALL {
        let recipe = Recipe { block, layers: 1, mixed: block == BlockType::Q4K, ..Recipe::tiny_llama() };
        let model = model(&recipe);
        let formats: Vec<BlockType> = model.file().tensors().map(|tensor| tensor.block).collect();
        assert!(formats.contains(&block));
        assert_eq!(formats.contains(&BlockType::Q6K), recipe.mixed || block == BlockType::Q6K);
        let logits = logits(&model, CacheFormat::Half, &[1, 2, 3]);
        let rms = (logits[2].iter().map(|logit| logit * logit).sum::<f64>() / 512.0).sqrt();
        assert!((0.5..2.0).contains(&rms), "{block}: {rms}");
    }
}

#[test]
fn the_same_recipe_makes_the_same_file() {
    let recipe = Recipe { block: BlockType::Q5K, ..Recipe::tiny_qwen2() };
    assert_eq!(recipe.to_bytes().unwrap(), recipe.to_bytes().unwrap());
    let other = Recipe { seed: 2, ..recipe.clone() };
    assert_ne!(recipe.to_bytes().unwrap(), other.to_bytes().unwrap());
    let wrong = Recipe { width: 200, ..recipe };
    assert!(wrong.write(std::io::sink()).is_err());
}
