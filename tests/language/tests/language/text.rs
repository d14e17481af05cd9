//! Texts and tokens.

use infer::Error;
use infer::gguf::{Array, File, Texts, Value, Writer};
use infer::synthetic::Recipe;
use infer::tokenizer::{Controls, Decoder, Splitter, Tokenizer, TokenizerFault, byte_character};
use proptest::prelude::*;
use unicode_normalization::UnicodeNormalization;

/// Texts, and their words for LLaMA 3, Qwen 2 and GPT-2 by the regular expressions of these models.
const WORDS: [(&str, [&str; 3]); 13] = [
    (
        "I'm we'LL they'Ve 'tis'",
        [
            "I|'m| we|'LL| they|'Ve| '|tis|'",
            "I|'m| we|'LL| they|'Ve| '|tis|'",
            "I|'m| we|'|LL| they|'|Ve| '|tis|'",
        ],
    ),
    ("x'ſK don'", ["x|'ſ|K| don|'", "x|'ſ|K| don|'", "x|'|ſK| don|'"]),
    ("he'd they're i'll it's don't", ["he|'d| they|'re| i|'ll| it|'s| don|'t"; 3]),
    ("  leading trailing  ", [" | leading| trailing|  "; 3]),
    ("a\n\n b\r\n  \n c \t\n", ["a|\n\n| b|\r\n  \n| c| \t\n"; 3]),
    (
        "1234567 12 ½²Ⅷ٣४",
        ["123|456|7| |12| |½²Ⅷ|٣४", "1|2|3|4|5|6|7| |1|2| |½|²|Ⅷ|٣|४", "1234567| 12| ½²Ⅷ٣४"],
    ),
    ("naïve e\u{301} 日本 한국", ["naïve| e|\u{301}| 日本| 한국"; 3]),
    (
        "x+=1;\n\n  y!!\r\n",
        ["x|+=|1|;\n\n| | y|!!\r\n", "x|+=|1|;\n\n| | y|!!\r\n", "x|+=|1|;|\n\n | y|!!|\r\n"],
    ),
    (
        "a\u{a0}b\u{3000} c\u{2028}d",
        [
            "a|\u{a0}b|\u{3000}| c|\u{2028}d",
            "a|\u{a0}b|\u{3000}| c|\u{2028}d",
            "a|\u{a0}|b|\u{3000}| c|\u{2028}|d",
        ],
    ),
    (" \n", [" \n"; 3]),
    ("   ", ["   "; 3]),
    ("😀👍🏽 ok", ["😀👍🏽| ok"; 3]),
    (
        "_id $x 'quoted' ''s",
        ["_id| $|x| '|quoted|'| ''|s", "_id| $|x| '|quoted|'| ''|s", "_|id| $|x| '|quoted|'| ''|s"],
    ),
];

/// Rules by name, texts, and their words.
const MORE_WORDS: [(&str, &str, &str); 15] = [
    ("smollm", "a 123 b's", "a| |1|2|3| b|'s"),
    ("tekken", "CamelCase HTML x1/2\n", "Camel|Case| HTML| x|1|/|2|\n"),
    ("tekken", "don't e\u{301}t", "don|'t| e\u{301}t"),
    ("gpt-4o", "CamelCase HTMLs don't 12345", "Camel|Case| HTMLs| don't| |123|45"),
    // The rule for marks finds letters, too.
    ("deepseek-llm", "Größe 12\n日本,  x", "Gr|öß|e| |12|\n|日本|,| | x"),
    ("deepseek-coder", "a1b, (x)\n", "a|1|b|,| (|x|)|\n"),
    ("deepseek-v3", "1234 日本ab .x  y", "123|4| |日本|ab| .|x| | y"),
    ("qwen35", "किताब e\u{301}t 12", "किताब| e\u{301}t| |1|2"),
    ("superbpe", "a 1234567 b", "a |1|234|567| b"),
    ("tiny_aya", "12345 1234a x1234", "12|345| |123|4|a| x|1|234"),
    ("afmoe", "x1234 日本", "x|1|234| |日本"),
    ("falcon", "a+b 12345!", "a|+|b| |123|45|!"),
    ("bloom", "a, b(c  d", "a|,| b|(|c| | d"),
    ("laguna", "a\n\n b", "a|\n\n| b"),
    ("gemma4", "a b\n\nc", "a b|\n\n|c"),
];

#[test]
fn words_are_those_of_the_regular_expressions() {
    let named = |name| Splitter::from_name(name).unwrap();
    for (text, expected) in WORDS {
        for (name, expected) in ["llama-bpe", "qwen2", "gpt-2"].into_iter().zip(expected) {
            assert_eq!(named(name).split(text).join("|"), expected, "{name}");
        }
    }
    for (name, text, expected) in MORE_WORDS {
        assert_eq!(named(name).split(text).join("|"), expected, "{name}");
    }
    for name in Splitter::names() {
        for (text, _) in WORDS {
            assert_eq!(named(name).split(text).concat(), text, "{name}");
        }
        assert!(named(name).split("").is_empty());
    }
    for (name, same) in [("llama3", "llama-bpe"), ("llama4", "gpt-4o"), ("starcoder", "smollm")] {
        assert_eq!(named(name).name(), same);
    }
    assert_eq!(Splitter::from_name("gpt2"), None);
}

/// A vocabulary: the bytes, more tokens, control tokens, and merges.
pub(crate) struct Vocabulary {
    pre: &'static str,
    tokens: Vec<String>,
    pub(crate) controls: Vec<&'static str>,
    merges: Vec<String>,
    more: Vec<(&'static str, Value)>,
}

impl Vocabulary {
    pub(crate) fn new(pre: &'static str, tokens: &[&str], merges: &[&str]) -> Self {
        let bytes = (0..=255).map(|byte| byte_character(byte).to_string());
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let tokens = bytes.chain(owned(tokens)).collect();
        Self { pre, tokens, controls: Vec::new(), merges: owned(merges), more: Vec::new() }
    }

    pub(crate) fn with(mut self, key: &'static str, value: Value) -> Self {
        self.more.push((key, value));
        self
    }

    pub(crate) fn file(&self) -> File {
        let mut writer = Writer::new();
        let texts = |texts: Vec<&str>| Value::Array(Array::Texts(texts.into_iter().collect::<Texts>()));
        let tokens: Vec<&str> =
            self.tokens.iter().map(String::as_str).chain(self.controls.iter().copied()).collect();
        let kinds = (0..tokens.len()).map(|token| if token < self.tokens.len() { 1 } else { 3 }).collect();
        let mut values = vec![
            ("tokenizer.ggml.model", Value::Text("gpt2".to_owned())),
            ("tokenizer.ggml.pre", Value::Text(self.pre.to_owned())),
            ("tokenizer.ggml.tokens", texts(tokens)),
            ("tokenizer.ggml.token_type", Value::Array(Array::I32(kinds))),
            ("tokenizer.ggml.merges", texts(self.merges.iter().map(String::as_str).collect())),
        ];
        for (key, value) in &self.more {
            values.retain(|(known, _)| known != key);
            values.push((key, value.clone()));
        }
        values.iter().for_each(|(key, value)| writer.key(key, value.clone()));
        let mut bytes = Vec::new();
        writer.write(&mut bytes).unwrap();
        File::from_bytes(bytes).unwrap()
    }

    fn tokenizer(&self) -> Tokenizer {
        Tokenizer::new(&self.file()).unwrap()
    }

    fn refused(&self) -> TokenizerFault {
        match Tokenizer::new(&self.file()) {
            Err(Error::Tokenizer(fault)) => fault,
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

#[test]
fn merges_happen_in_the_order_of_the_list() {
    let tokens = ["ab", "bc", "abc", "Ġa"];
    let encode = |merges: &[&str], text: &str| {
        let tokenizer = Vocabulary::new("qwen2", &tokens, merges).tokenizer();
        let tokens = tokenizer.encode(text, Controls::AsText);
        let names: Vec<String> = tokens
            .iter()
            .map(|token| String::from_utf8_lossy(tokenizer.bytes(*token)).into_owned())
            .collect();
        names.join("|")
    };
    assert_eq!(encode(&["a b", "b c"], "abc"), "ab|c");
    assert_eq!(encode(&["b c", "a b"], "abc"), "a|bc");
    assert_eq!(encode(&["b c", "a b", "a bc"], "abcab abc"), "abc|ab| |abc");
    assert_eq!(encode(&["Ġ a", "a b"], "ab ab"), "ab| a|b");
    assert_eq!(encode(&[], "aé"), "a|\u{fffd}|\u{fffd}");
}

#[test]
fn llama_takes_words_that_are_tokens_before_it_merges() {
    let tokens = ["ab", "abc"];
    let lens = ["llama-bpe", "qwen2"].map(|pre| {
        let tokenizer = Vocabulary::new(pre, &tokens, &["a b"]).tokenizer();
        (tokenizer.encode("abc", Controls::AsText).len(), tokenizer.encode("abcd", Controls::AsText).len())
    });
    assert_eq!(lens, [(1, 3), (2, 3)]);
}

#[test]
fn control_tokens_are_found_only_where_they_are_wanted() {
    let mut vocabulary = Vocabulary::new("llama-bpe", &[], &[])
        .with("tokenizer.ggml.bos_token_id", Value::U32(256))
        .with("tokenizer.ggml.eos_token_id", Value::U32(257));
    vocabulary.controls = vec!["<|begin|>", "<|eot_id|>", "<|eot_id|><|eot_id|>"];
    let tokenizer = vocabulary.tokenizer();
    assert_eq!(tokenizer.encode("a<|eot_id|>b", Controls::Find), [97, 257, 98]);
    assert_eq!(tokenizer.encode("<|eot_id|><|eot_id|><|eot_id|>", Controls::Find), [258, 257]);
    assert_eq!(tokenizer.encode("a<|eot_id|>b", Controls::AsText).len(), 12);
    assert_eq!(tokenizer.encode_prompt("", Controls::AsText), [256]);
    assert_eq!(tokenizer.encode_prompt("a", Controls::Find), [256, 97]);
    // A text that was made for a tokenizer that adds nothing.
    assert_eq!(tokenizer.encode_prompt("<|begin|>a", Controls::Find), [256, 97]);
    assert_eq!(tokenizer.encode_prompt("<|begin|>", Controls::AsText).len(), 10);
    assert_eq!(tokenizer.decode(&[97, 257, 98, 9999]), b"ab");
    assert_eq!((tokenizer.bos(), tokenizer.stops().collect::<Vec<_>>()), (Some(256), vec![257]));
    assert!(tokenizer.is_stop(257) && tokenizer.is_control(257) && !tokenizer.is_control(97));
    let off = vocabulary.with("tokenizer.ggml.add_bos_token", Value::Bool(false)).tokenizer();
    assert_eq!(off.bos(), None);
}

#[test]
fn answers_end_with_the_tokens_of_the_file_and_with_those_of_known_names() {
    let stops = [
        "<|end_of_text|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|endoftext|>",
        "<|im_end|>",
        "<|end|>",
        "<end_of_turn>",
    ];
    let mut vocabulary =
        Vocabulary::new("qwen2", &["stop"], &[]).with("tokenizer.ggml.eot_token_id", Value::U32(7));
    vocabulary.controls = [&stops[..], &["<|other|>"]].concat();
    let tokenizer = vocabulary.tokenizer();
    assert_eq!(
        tokenizer.stops().collect::<Vec<_>>(),
        [&[7][..], &[257, 258, 259, 260, 261, 262, 263]].concat()
    );
    assert!(!tokenizer.is_stop(256) && !tokenizer.is_stop(264));
    assert_eq!((tokenizer.control("<|end|>"), tokenizer.control("stop")), (Some(262), None));
    assert_eq!((tokenizer.len(), tokenizer.is_empty()), (256 + 1 + 8, false));
    assert_eq!((tokenizer.bytes(256), tokenizer.bytes(265)), (&b"stop"[..], &[][..]));
    let mut decoder = Decoder::default();
    assert_eq!([97, 264, 256].map(|token| decoder.push(&tokenizer, token)), ["a", "", "stop"]);
    // Messages of gpt-oss end inside of an answer.
    let mut harmony = Vocabulary::new("gpt-4o", &[], &[]);
    harmony.controls = vec!["<|end|>", "<|return|>", "<|call|>"];
    assert_eq!(harmony.tokenizer().stops().collect::<Vec<_>>(), [257, 258]);
}

#[test]
fn kinds_of_tokens_may_be_unsigned_or_missing() {
    let kinds = Value::Array(Array::U32(vec![3; 256]));
    let controls = Vocabulary::new("qwen2", &[], &[]).with("tokenizer.ggml.token_type", kinds);
    // No byte is a token of texts.
    assert_eq!(controls.refused(), TokenizerFault::Byte(9));
    let file = Vocabulary::new("qwen2", &[], &[]).file();
    let mut writer = Writer::new();
    for (key, value) in file.values().filter(|(key, _)| *key != "tokenizer.ggml.token_type") {
        writer.key(key, value.clone());
    }
    let mut bytes = Vec::new();
    writer.write(&mut bytes).unwrap();
    let tokenizer = Tokenizer::new(&File::from_bytes(bytes).unwrap()).unwrap();
    assert!(!tokenizer.is_control(97));
    assert_eq!(tokenizer.encode("a", Controls::AsText), [97]);
}

#[test]
fn tokens_that_are_added_by_users_are_found_in_all_texts() {
    let mut vocabulary = Vocabulary::new("qwen2", &[], &[]);
    vocabulary.controls = vec!["<think>", "<|endoftext|>", "<|user|>"];
    let mut kinds = vec![1; 256];
    kinds.extend([4, 3, 4]);
    let tokenizer = vocabulary.with("tokenizer.ggml.token_type", Value::Array(Array::I32(kinds))).tokenizer();
    assert_eq!(tokenizer.encode("<think>\n", Controls::AsText), [256, 10]);
    assert_eq!(tokenizer.decode(&[256, 10, 257]), b"<think>\n");
    assert!(tokenizer.is_stop(257));
    // The name says that it is none of texts.
    assert_eq!(tokenizer.encode("<|user|>", Controls::AsText).len(), 8);
    assert_eq!(tokenizer.encode("<|user|>", Controls::Find), [258]);
}

#[test]
fn foreign_vocabularies_are_refused_by_name() {
    let base = || Vocabulary::new("gpt-2", &[], &[]);
    let with = |key, value| base().with(key, value).refused();
    assert_eq!(with("tokenizer.ggml.model", text("no_vocab")), TokenizerFault::NoVocabulary);
    for model in ["t5", "bert"] {
        assert_eq!(with("tokenizer.ggml.model", text(model)), TokenizerFault::Model(model.to_owned()));
    }
    assert_eq!(with("tokenizer.ggml.pre", text("kimi-k2")), TokenizerFault::Splitter("kimi-k2".to_owned()));
    let file = Recipe { has_tokens: false, ..Recipe::tiny_llama() }.to_bytes().unwrap();
    let error = Tokenizer::new(&File::from_bytes(file).unwrap()).unwrap_err();
    assert!(matches!(error, Error::Tokenizer(TokenizerFault::NoVocabulary)));
}

#[test]
fn vocabularies_that_contradict_themselves_are_refused() {
    let base = || Vocabulary::new("gpt-2", &["ab"], &["a b"]);
    let with = |key, value| base().with(key, value).refused();
    let kinds = Value::Array(Array::I32(vec![1; 256]));
    assert_eq!(with("tokenizer.ggml.token_type", kinds), TokenizerFault::Kinds { kinds: 256, count: 257 });
    let none = Value::Array(Array::Texts(Texts::default()));
    assert_eq!(with("tokenizer.ggml.tokens", none), TokenizerFault::Count(0));
    for key in ["tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"] {
        let fault = with(key, Value::U32(257));
        assert_eq!(fault, TokenizerFault::Special { key, token: 257, vocabulary: 257 });
    }
    for merge in ["a", "a c", "ab c", "c ab", "a  b", "", "é é"] {
        let fault = Vocabulary::new("gpt-2", &["ab"], &["a b", merge]).refused();
        assert_eq!(fault, TokenizerFault::Merge { index: 1, merge: merge.to_owned() });
    }
    let mut without = base();
    without.tokens[65] = "xyz".to_owned();
    assert_eq!(without.refused(), TokenizerFault::Byte(65));
    // Bytes that no text has, and control characters, may be missing; a text outside of the alphabet is no byte's.
    let mut without = base();
    (without.tokens[0xc0], without.tokens[1], without.tokens[2]) = ("x".into(), "y".into(), "\u{2}".into());
    let tokenizer = without.tokenizer();
    assert_eq!(tokenizer.encode("a\u{1}b\u{2}", Controls::AsText), [97, 98]);
    for key in
        ["tokenizer.ggml.tokens", "tokenizer.ggml.merges", "tokenizer.ggml.token_type", "tokenizer.ggml.pre"]
    {
        let error = Tokenizer::new(&base().with(key, Value::U32(1)).file()).unwrap_err();
        assert!(matches!(error, Error::Value { .. }), "{error}");
    }
}

/// A vocabulary of SentencePiece: `<unk>`, `<s>`, `</s>`, the bytes, pieces with their scores, and added tokens.
fn scored(pieces: &[(&str, f32)], added: &[&str]) -> Vocabulary {
    let bytes = (0..256).map(|byte| format!("<0x{byte:02X}>"));
    let tokens = ["<unk>", "<s>", "</s>"].map(str::to_owned).into_iter().chain(bytes);
    let tokens = tokens.chain(pieces.iter().map(|(piece, _)| (*piece).to_owned()));
    let tokens = tokens.chain(added.iter().map(|&text| text.to_owned())).collect::<Vec<_>>();
    let kind = |token: usize| match token {
        0 => 2,
        1 | 2 => 3,
        3..259 => 6,
        token if token < 259 + pieces.len() => 1,
        _ => 4,
    };
    let kinds = (0..tokens.len()).map(kind).collect();
    let scores = (0..tokens.len())
        .map(|token| token.checked_sub(259).and_then(|at| pieces.get(at)).map_or(0.0, |p| p.1));
    let scores = Value::Array(Array::F32(scores.collect()));
    let vocabulary = Vocabulary { tokens, ..Vocabulary::new("default", &[], &[]) };
    let kinds = Value::Array(Array::I32(kinds));
    let vocabulary =
        vocabulary.with("tokenizer.ggml.model", text("llama")).with("tokenizer.ggml.scores", scores);
    vocabulary.with("tokenizer.ggml.token_type", kinds)
}

/// The pieces of a text: spaces as they are, bytes by their numbers.
fn pieces(tokenizer: &Tokenizer, text: &str, controls: Controls) -> String {
    let tokens = tokenizer.encode(text, controls);
    let names = tokens.iter().map(|token| match token {
        3..259 => format!("{:02x}", token - 3),
        token => String::from_utf8(tokenizer.bytes(*token).to_vec()).unwrap(),
    });
    names.collect::<Vec<_>>().join("|")
}

#[test]
fn sentence_pieces_are_merged_by_their_scores() {
    let all = [
        ("\u{2581}", -10.0),
        ("a", -11.0),
        ("b", -12.0),
        ("c", -13.0),
        ("<", -20.0),
        ("s", -20.0),
        (">", -20.0),
        ("ab", -2.0),
        ("bc", -1.0),
        ("abc", -5.0),
        ("\u{2581}a", -1.5),
        ("aa", -3.0),
        ("s>", -1.0),
        ("日本", -1.0),
    ];
    let vocabulary = scored(&all, &["<think>", "  "]);
    let tokenizer = vocabulary.tokenizer();
    assert_eq!((tokenizer.splitter(), tokenizer.adds_space()), (None, true));
    let encode = |text: &str| pieces(&tokenizer, text, Controls::AsText);
    for (text, expected) in [
        ("", ""),
        ("abc", " a|bc"),
        ("cabc", " |c|abc"),
        // Equal scores: from the left.
        ("baaa", " |b|aa|a"),
        ("é", " |c3|a9"),
        // Two characters without tokens make a piece.
        ("日本", " |日本"),
        ("日 本", " |e6|97|a5| |e6|9c|ac"),
        ("\u{2581}", " |e2|96|81"),
        // The names of control tokens and of bytes are texts.
        ("<s>", " |<|s>"),
        ("<0x0A>", " |<|30|78|30|41|>"),
        // Each text between added tokens has a space in front.
        ("a<think>a", " a|<think>| a"),
        ("b  c", " |b|  | |c"),
    ] {
        assert_eq!(encode(text), expected, "{text:?}");
    }
    assert_eq!(pieces(&tokenizer, "<s>a", Controls::Find), "<s>| a");
    assert_eq!(tokenizer.decode(&tokenizer.encode("a b é", Controls::AsText)), "a b é".as_bytes());
    // The file lacks the keys: SentencePiece's own numbers.
    assert_eq!((tokenizer.bos(), tokenizer.stops().collect::<Vec<_>>()), (Some(1), vec![2]));
    let bare = vocabulary.with("tokenizer.ggml.add_space_prefix", Value::Bool(false)).tokenizer();
    assert_eq!(pieces(&bare, "a<think>a", Controls::AsText), "a|<think>|a");
    let mut decoder = Decoder::default();
    let parts = bare.encode("é", Controls::AsText).into_iter().map(|token| decoder.push(&bare, token));
    assert_eq!(parts.collect::<Vec<_>>(), ["", "é"]);
}

#[test]
fn gemma_merges_characters_by_a_list() {
    let all = [
        ("\u{2581}", 0.0),
        ("a", 0.0),
        ("b", 0.0),
        ("\n", 0.0),
        ("\u{2581}a", 0.0),
        ("ab", 0.0),
        ("\n\n", 0.0),
    ];
    let mut vocabulary = scored(&all, &[]).with("tokenizer.ggml.model", text("gemma4"));
    vocabulary.merges = ["\u{2581} a", "a b", "\n \n"].map(str::to_owned).to_vec();
    let tokenizer = vocabulary.tokenizer();
    let encode = |text: &str| pieces(&tokenizer, text, Controls::AsText);
    assert_eq!(encode("ab ab\n\na"), "ab| a|b|\n\n|a");
    assert_eq!(encode("é b"), "c3|a9| |b");
    assert_eq!((tokenizer.adds_space(), tokenizer.splitter()), (false, Splitter::from_name("gemma4")));
}

#[test]
fn sentence_pieces_that_contradict_themselves_are_refused() {
    let base = || scored(&[("a", -1.0)], &[]);
    let scores = Value::Array(Array::F32(vec![0.0; 3]));
    assert_eq!(
        base().with("tokenizer.ggml.scores", scores).refused(),
        TokenizerFault::Scores { scores: 3, count: 260 }
    );
    let error = Tokenizer::new(&base().with("tokenizer.ggml.scores", Value::U32(1)).file()).unwrap_err();
    assert!(matches!(error, Error::Value { .. }));
    let mut without = base();
    without.tokens[3 + 65] = "<0x1>".to_owned();
    assert_eq!(without.refused(), TokenizerFault::Byte(65));
    let other = Vocabulary::new("gpt-2", &[], &[]).with("tokenizer.ggml.model", text("llama"));
    assert_eq!(other.refused(), TokenizerFault::Missing("tokenizer.ggml.scores"));
}

#[test]
fn characters_appear_when_they_are_complete() {
    let tokenizer = Vocabulary::new("gpt-2", &[], &[]).tokenizer();
    let decoded = |bytes: &[u8]| {
        let mut decoder = Decoder::default();
        let mut parts: Vec<String> =
            bytes.iter().map(|byte| decoder.push(&tokenizer, u32::from(*byte))).collect();
        parts.push(decoder.finish());
        parts
    };
    assert_eq!(decoded("é€😀".as_bytes()), ["", "é", "", "", "€", "", "", "", "😀", ""]);
    assert_eq!(decoded(b"\xc3a"), ["", "\u{fffd}a", ""]);
    assert_eq!(decoded(b"\xff\xe2\x82"), ["\u{fffd}", "", "", "\u{fffd}"]);
    assert_eq!(decoded(b"\xf0\x9f\xf0\x9f\x98\x80"), ["", "", "\u{fffd}", "", "", "😀", ""]);
}

/// A vocabulary whose tokens are made of pairs of earlier ones, and its merges in some order.
fn any_merges() -> impl Strategy<Value = (Vec<String>, Vec<(String, String)>)> {
    let pairs = prop::collection::vec(any::<(prop::sample::Index, prop::sample::Index)>(), 0..24);
    pairs.prop_flat_map(|pairs| {
        let mut tokens: Vec<String> = ["a", "b", "c"].map(str::to_owned).to_vec();
        let mut merges = Vec::new();
        for (first, second) in pairs {
            let (first, second) = (first.get(&tokens).clone(), second.get(&tokens).clone());
            let joined = format!("{first}{second}");
            if !tokens.contains(&joined) && joined.len() < 12 {
                tokens.push(joined);
                merges.push((first, second));
            }
        }
        (Just(tokens), Just(merges).prop_shuffle())
    })
}

/// Merges the first pair of the list that occurs, at its leftmost place, until none occurs.
fn merged(text: &str, merges: &[(String, String)]) -> Vec<String> {
    let mut parts: Vec<String> = text.chars().map(String::from).collect();
    loop {
        let place = merges.iter().find_map(|(first, second)| {
            parts.windows(2).position(|pair| pair[0] == *first && pair[1] == *second)
        });
        let Some(at) = place else { return parts };
        let second = parts.remove(at + 1);
        parts[at].push_str(&second);
    }
}

#[test]
fn qwen_composes_characters_and_others_do_not() {
    // Pairs of Unicode's charts and of its annex 15: composed, reordered, excluded from composition, compatible only.
    let forms = [
        ("e\u{301}", "\u{e9}"),
        ("\u{212b}", "\u{c5}"),
        ("\u{1e9b}\u{323}", "\u{1e9b}\u{323}"),
        ("q\u{307}\u{323}", "q\u{323}\u{307}"),
        ("s\u{323}\u{307}", "\u{1e69}"),
        ("\u{1112}\u{1161}\u{11ab}\u{1100}\u{1173}\u{11af}", "\u{d55c}\u{ae00}"),
        ("\u{958}", "\u{915}\u{93c}"),
        ("\u{fb01} \u{b2}", "\u{fb01} \u{b2}"),
        ("\u{1d15e}", "\u{1d157}\u{1d165}"),
    ];
    let qwen = Vocabulary::new("qwen2", &[], &[]).tokenizer();
    let others = ["llama-bpe", "gpt-2", "deepseek-r1-qwen"];
    let others = others.map(|pre| Vocabulary::new(pre, &[], &[]).tokenizer());
    for (text, composed) in forms {
        for (text, expected) in
            [(text.to_owned(), composed.to_owned()), (format!("a {text}"), format!("a {composed}"))]
        {
            let tokens = qwen.encode(&text, Controls::AsText);
            assert_eq!(qwen.decode(&tokens), expected.as_bytes(), "{text:?}");
            for other in &others {
                assert_eq!(other.decode(&other.encode(&text, Controls::AsText)), text.as_bytes());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn merging_is_the_same_as_searching_the_list((tokens, merges) in any_merges(), text in "[abc]{0,40}") {
        let tokens: Vec<&str> = tokens[3..].iter().map(String::as_str).collect();
        let list: Vec<String> = merges.iter().map(|(first, second)| format!("{first} {second}")).collect();
        let list: Vec<&str> = list.iter().map(String::as_str).collect();
        let tokenizer = Vocabulary::new("gpt-2", &tokens, &list).tokenizer();
        let names: Vec<&[u8]> =
            tokenizer.encode(&text, Controls::AsText).into_iter().map(|token| tokenizer.bytes(token)).collect();
        let want = merged(&text, &merges);
        prop_assert_eq!(names, want.iter().map(String::as_bytes).collect::<Vec<_>>());
    }

    #[test]
    fn merging_by_scores_is_the_same_as_searching(
        (tokens, _) in any_merges(), scores in prop::collection::vec(0..4_u8, 27), text in "[abc]{0,40}",
    ) {
        let scored_pieces: Vec<(&str, f32)> =
            tokens.iter().zip(&scores).map(|(piece, score)| (piece.as_str(), -f32::from(*score))).collect();
        let bare = scored(&scored_pieces, &[]).with("tokenizer.ggml.add_space_prefix", Value::Bool(false));
        let tokenizer = bare.tokenizer();
        let mut parts: Vec<String> = text.chars().map(String::from).collect();
        loop {
            let found = |joined: String| scored_pieces.iter().find(move |(piece, _)| *piece == joined);
            let score = |joined| found(joined).map(|(_, score)| *score);
            let pairs = parts.windows(2).enumerate().filter_map(|(at, pair)| Some((score(pair.concat())?, at)));
            // The first of the best.
            let Some((_, at)) = pairs.reduce(|best, pair| if pair.0 > best.0 { pair } else { best }) else { break };
            let second = parts.remove(at + 1);
            parts[at].push_str(&second);
        }
        prop_assert_eq!(pieces(&tokenizer, &text, Controls::AsText), parts.join("|"));
    }

    #[test]
    fn sentence_pieces_give_every_text_back(text in any::<String>()) {
        let tokenizer = scored(&[("\u{2581}", -1.0), ("a", -2.0), ("\u{2581}a", -1.0)], &[]).tokenizer();
        prop_assert_eq!(tokenizer.decode(&tokenizer.encode(&text, Controls::AsText)), text.as_bytes());
    }

    #[test]
    fn decoding_gives_the_text_back(text in any::<String>(), recipe in 0..3_usize) {
        // Qwen's vocabulary composes characters.
        let text = if recipe == 1 { text.nfc().collect() } else { text };
        let recipe = [Recipe::tiny_llama(), Recipe::tiny_qwen2(), Recipe::tiny_gpt2()][recipe].clone();
        let mut bytes = Vec::new();
        Recipe { layers: 0, width: 1, ..recipe }.writer().unwrap().write(&mut bytes).unwrap();
        let tokenizer = Tokenizer::new(&File::from_bytes(bytes).unwrap()).unwrap();
        let tokens = tokenizer.encode(&text, Controls::AsText);
        prop_assert_eq!(tokenizer.decode(&tokens), text.as_bytes());
        let mut decoder = Decoder::default();
        let mut parts: String = tokens.iter().map(|token| decoder.push(&tokenizer, *token)).collect();
        parts.push_str(&decoder.finish());
        prop_assert_eq!(parts, text);
    }
}
