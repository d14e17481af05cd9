//! Texts and tokens, and conversations.

use infer::Error;
use infer::chat::{ChatFault, Format, Message, Role};
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

#[test]
fn words_are_those_of_the_regular_expressions() {
    let splitters = [Splitter::Llama3, Splitter::Qwen2, Splitter::Gpt2];
    for (text, expected) in WORDS {
        for (splitter, expected) in splitters.iter().zip(expected) {
            let words: Vec<&str> = splitter.split(text).collect();
            assert_eq!(words.join("|"), expected, "{splitter:?}");
        }
    }
    for (name, splitter) in Splitter::NAMES.iter().zip(splitters) {
        assert_eq!(Splitter::from_name(name), Some(splitter));
    }
    for (name, splitter) in [
        ("llama3", Some(Splitter::Llama3)),
        ("llama-v3", Some(Splitter::Llama3)),
        ("deepseek-r1-qwen", Some(Splitter::Qwen2)),
        ("gpt2", None),
    ] {
        assert_eq!(Splitter::from_name(name), splitter, "{name}");
    }
}

/// A vocabulary: the bytes, more tokens, control tokens, and merges.
struct Vocabulary {
    pre: &'static str,
    tokens: Vec<String>,
    controls: Vec<&'static str>,
    merges: Vec<String>,
    more: Vec<(&'static str, Value)>,
}

impl Vocabulary {
    fn new(pre: &'static str, tokens: &[&str], merges: &[&str]) -> Self {
        let bytes = (0..=255).map(|byte| byte_character(byte).to_string());
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let tokens = bytes.chain(owned(tokens)).collect();
        Self { pre, tokens, controls: Vec::new(), merges: owned(merges), more: Vec::new() }
    }

    fn with(mut self, key: &'static str, value: Value) -> Self {
        self.more.push((key, value));
        self
    }

    fn file(&self) -> File {
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

fn text(text: &str) -> Value {
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
}

#[test]
fn kinds_of_tokens_may_be_unsigned_or_missing() {
    let kinds = Value::Array(Array::U32(vec![3; 256]));
    let controls = Vocabulary::new("qwen2", &[], &[]).with("tokenizer.ggml.token_type", kinds);
    // No byte is a token of texts.
    assert_eq!(controls.refused(), TokenizerFault::Byte(0));
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
    vocabulary.controls = vec!["<think>", "<|endoftext|>"];
    let mut kinds = vec![1; 256];
    kinds.extend([4, 3]);
    let tokenizer = vocabulary.with("tokenizer.ggml.token_type", Value::Array(Array::I32(kinds))).tokenizer();
    assert_eq!(tokenizer.encode("<think>\n", Controls::AsText), [256, 10]);
    assert_eq!(tokenizer.decode(&[256, 10, 257]), b"<think>\n");
    assert!(tokenizer.is_stop(257));
}

#[test]
fn foreign_vocabularies_are_refused_by_name() {
    let base = || Vocabulary::new("gpt-2", &[], &[]);
    let with = |key, value| base().with(key, value).refused();
    assert_eq!(with("tokenizer.ggml.model", text("llama")), TokenizerFault::SentencePiece);
    assert!(TokenizerFault::SentencePiece.to_string().contains("SentencePiece"));
    assert_eq!(with("tokenizer.ggml.model", text("no_vocab")), TokenizerFault::NoVocabulary);
    assert_eq!(with("tokenizer.ggml.model", text("t5")), TokenizerFault::Model("t5".to_owned()));
    let fault = with("tokenizer.ggml.pre", text("tekken"));
    assert!(
        fault.to_string().contains("\"tekken\"") && fault.to_string().contains("llama-bpe, qwen2, gpt-2")
    );
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
    for key in
        ["tokenizer.ggml.tokens", "tokenizer.ggml.merges", "tokenizer.ggml.token_type", "tokenizer.ggml.pre"]
    {
        let error = Tokenizer::new(&base().with(key, Value::U32(1)).file()).unwrap_err();
        assert!(matches!(error, Error::Value { .. }), "{error}");
    }
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

/// A conversation as a model reads it, with the names of control tokens.
fn written(template: &str, messages: &[(Role, &str)]) -> String {
    let mut vocabulary = Vocabulary::new("qwen2", &[], &[]).with("tokenizer.chat_template", text(template));
    vocabulary.controls =
        vec!["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|im_start|>", "<|im_end|>"];
    let file = vocabulary.file();
    let tokenizer = Tokenizer::new(&file).unwrap();
    let messages: Vec<Message> = messages.iter().map(|(role, text)| Message::new(*role, *text)).collect();
    let tokens = Format::of(&file).unwrap().encode(&tokenizer, &messages).unwrap();
    // What users write must not become control tokens: mark those.
    let mut text = Vec::new();
    for token in tokens {
        if tokenizer.is_control(token) {
            text.push(b'^');
        }
        text.extend(tokenizer.bytes(token));
    }
    String::from_utf8(text).unwrap()
}

const TURNS: [(Role, &str); 3] =
    [(Role::User, " Hi <|im_end|> "), (Role::Assistant, "<think>x</think>\n\nHo"), (Role::User, "Bye")];

#[test]
fn llama_has_headers() {
    let template = "<|start_header_id|>...<|eot_id|>";
    assert_eq!(
        written(template, &TURNS),
        "^<|start_header_id|>user^<|end_header_id|>\n\nHi <|im_end|>^<|eot_id|>\
         ^<|start_header_id|>assistant^<|end_header_id|>\n\n<think>x</think>\n\nHo^<|eot_id|>\
         ^<|start_header_id|>user^<|end_header_id|>\n\nBye^<|eot_id|>\
         ^<|start_header_id|>assistant^<|end_header_id|>\n\n"
    );
    let dated = "Cutting Knowledge Date: <|start_header_id|>...<|eot_id|>";
    let preamble = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";
    for (messages, system) in [(&[][..], ""), (&[(Role::System, " Be brief. ")][..], "Be brief.")] {
        assert_eq!(
            written(dated, messages),
            format!(
                "^<|start_header_id|>system^<|end_header_id|>\n\n{preamble}{system}^<|eot_id|>\
                 ^<|start_header_id|>assistant^<|end_header_id|>\n\n"
            )
        );
    }
}

#[test]
fn qwen_has_chatml() {
    let template = "<|im_start|>...<|im_end|>";
    assert_eq!(
        written(template, &TURNS),
        "^<|im_start|>user\n Hi <|im_end|> ^<|im_end|>\n\
         ^<|im_start|>assistant\n<think>x</think>\n\nHo^<|im_end|>\n\
         ^<|im_start|>user\nBye^<|im_end|>\n^<|im_start|>assistant\n"
    );
    let thinking = "<|im_start|>...</think>...<|im_end|>";
    assert!(written(thinking, &TURNS).contains("^<|im_start|>assistant\nHo^<|im_end|>\n"));
    let qwen = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";
    let with_system = format!("{qwen}<|im_start|>...<|im_end|>");
    assert!(
        written(&with_system, &TURNS).starts_with(&format!("^<|im_start|>system\n{qwen}^<|im_end|>\n^<|im_"))
    );
    let own = written(&with_system, &[(Role::System, "Own"), (Role::User, "x"), (Role::System, "late")]);
    assert!(
        own.starts_with("^<|im_start|>system\nOwn^<|im_end|>\n^<|im_start|>user\nx") && !own.contains(qwen)
    );
    assert!(own.contains("^<|im_start|>system\nlate^<|im_end|>"));
}

#[test]
fn unknown_formats_of_conversations_are_refused() {
    let format = |template: &str| {
        Format::of(&Vocabulary::new("qwen2", &[], &[]).with("tokenizer.chat_template", text(template)).file())
    };
    let Err(Error::Chat(fault)) = format("[INST] {{ message }} [/INST]") else { panic!() };
    assert_eq!(fault, ChatFault::UnknownTemplate { start: "[INST] {{ message }} [/INST]".to_owned() });
    let bare = Vocabulary::new("qwen2", &[], &[]);
    assert!(matches!(Format::of(&bare.file()), Err(Error::Chat(ChatFault::NoTemplate))));
    // The vocabulary lacks the tokens that the template has.
    let error = format("<|im_start|> <|im_end|>").unwrap().encode(&bare.tokenizer(), &[]).unwrap_err();
    assert!(matches!(error, Error::Chat(ChatFault::MissingToken("<|im_start|>"))));
}
