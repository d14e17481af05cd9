//! The table of word rules: the regular expressions in the `tokenizer.json` of the models that the names are from.

/// A step in splitting: its words are split further by the next.
#[derive(Debug)]
pub(super) enum Stage {
    /// Alternatives of an expression. If the last is [`SPACES`], it leaves a following word one space.
    Words(&'static [&'static str]),
    /// Groups of three, from the end, in the digits that an expression finds.
    Thousands(&'static str),
}

/// The rules of a kind of models.
#[derive(Debug)]
pub(super) struct Rule {
    /// Names in files, the best-known first.
    pub(super) names: &'static [&'static str],
    pub(super) stages: &'static [Stage],
    /// Whether characters are composed first: Unicode's NFC.
    pub(super) composes: bool,
    /// Whether a word that is a token becomes that token, whatever the merges say.
    pub(super) takes_whole_words: bool,
    /// Whether texts begin with a token of their own unless the file says otherwise.
    pub(super) adds_bos: bool,
}

/// `\s+(?!\S)|\s+`, see [`Stage::Words`].
pub(super) const SPACES: &str = r"\s+";

macro_rules! contraction {
    () => {
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    };
}

const CONTRACTION: &str = contraction!();
const LETTERS: &str = r"[^\r\n\p{L}\p{N}]?\p{L}+";
const DIGIT: &str = r"\p{N}";
const DIGITS: &str = r"\p{N}+";
const THREE_DIGITS: &str = r"\p{N}{1,3}";
const OTHERS: &str = r" ?[^\s\p{L}\p{N}]+[\r\n]*";
const OTHERS_AND_SLASHES: &str = r" ?[^\s\p{L}\p{N}]+[\r\n/]*";
const LINES: &str = r"\s*[\r\n]+";

/// GPT-2's rules.
const GPT2: Stage =
    Stage::Words(&["'s|'t|'re|'ve|'m|'ll|'d", r" ?\p{L}+", r" ?\p{N}+", r" ?[^\s\p{L}\p{N}]+", SPACES]);

/// LLaMA 3's rules.
const LLAMA3: &[Stage] = &[Stage::Words(&[CONTRACTION, LETTERS, THREE_DIGITS, OTHERS, LINES, SPACES])];

/// Qwen 2's rules: each digit alone.
const QWEN2: &[Stage] = &[Stage::Words(&[CONTRACTION, LETTERS, DIGIT, OTHERS, LINES, SPACES])];

/// GPT-2's rules with each digit alone.
const SINGLE_DIGITS: &[Stage] = &[Stage::Words(&[DIGIT]), GPT2];

/// Words whose lower-case letters follow the upper-case ones, and words of upper-case letters.
macro_rules! cased {
    () => {
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    };
}
macro_rules! upper {
    () => {
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    };
}

/// The same with contractions.
const CASED: &str = concat!(cased!(), contraction!(), "?");
const UPPER: &str = concat!(upper!(), contraction!(), "?");

/// GPT-4o's rules.
const GPT4O: Stage = Stage::Words(&[CASED, UPPER, THREE_DIGITS, OTHERS_AND_SLASHES, LINES, SPACES]);

/// Chinese characters and Japanese syllables.
const CHINESE: Stage = Stage::Words(&["[一-龥\u{3040}-ゟ゠-ヿ]+"]);

/// DeepSeek 3's words: a mark with Latin letters, or letters with their accents, or marks.
const MARKED: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"##;
const ACCENTED: &str = r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+";
const MARKS: &str = r" ?[\p{P}\p{S}]+[\r\n]*";

/// Lines and line ends: for vocabularies of characters, whose merges go beyond words.
const LINE: &[Stage] = &[Stage::Words(&[r"[^\n]+|\n+"])];

/// Words that end at spaces and marks.
const BLOOM: Stage = Stage::Words(&[" ?[^(\\s|.,!?…。，、।۔،)]+"]);

/// Letters of alphabets with two cases, as DeepSeek's first models list them.
const LATIN: &str = "\\s?[\
    A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝ\
    Ὗ-\u{1f7d}ᾀ-ᾴᾶ-ᾼ\u{1fbe}ῂ-ῄῆ-ῌῐ-\u{1fd3}ῖ-\u{1fdb}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u{2126}ℨ\u{212a}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃ\
    ↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";

/// Characters of East Asia, as DeepSeek's first models list them.
const EAST_ASIAN: Stage = Stage::Words(&["[一-龥ࠀ-一가-\u{d7ff}]+"]);

/// Rules without a property.
const fn rule(names: &'static [&'static str], stages: &'static [Stage]) -> Rule {
    Rule { names, stages, composes: false, takes_whole_words: false, adds_bos: false }
}

impl Rule {
    const fn composing(self) -> Self {
        Self { composes: true, ..self }
    }

    const fn of_whole_words(self) -> Self {
        Self { takes_whole_words: true, ..self }
    }

    const fn with_bos(self) -> Self {
        Self { adds_bos: true, ..self }
    }
}

/// All rules.
pub(super) static RULES: [Rule; 31] = [
    rule(&["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"], LLAMA3)
        .of_whole_words()
        .with_bos(),
    rule(&["qwen2"], QWEN2).composing(),
    // Models that DeepSeek made of Qwen's do not compose characters.
    rule(&["deepseek-r1-qwen", "megrez", "kormo", "stablelm2", "hunyuan", "solar-open", "grok-2"], QWEN2),
    rule(
        &["qwen35"],
        &[Stage::Words(&[
            CONTRACTION,
            r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+",
            DIGIT,
            r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
            LINES,
            SPACES,
        ])],
    )
    .composing(),
    rule(
        &[
            "gpt-2",
            "phi-2",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "jais",
            "exaone4",
            "trillion",
            "granite-docling",
        ],
        &[GPT2],
    ),
    // The models of GPT-NeoX's vocabulary.
    rule(&["mpt", "olmo"], &[GPT2]).composing(),
    rule(
        &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"],
        SINGLE_DIGITS,
    ),
    rule(&["tekken"], &[Stage::Words(&[cased!(), upper!(), DIGIT, OTHERS_AND_SLASHES, LINES, SPACES])])
        .of_whole_words()
        .with_bos(),
    rule(&["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], &[GPT4O]),
    rule(&["tiny_aya", "cohere2moe"], &[Stage::Thousands(r"\d+\b"), GPT4O]),
    rule(&["dbrx", "smaug-bpe", "chatglm-bpe"], LLAMA3),
    rule(&["glm4", "glm5"], LLAMA3).of_whole_words(),
    rule(
        &["deepseek-llm"],
        &[
            Stage::Words(&[r"[\r\n]"]),
            Stage::Words(&[LATIN]),
            Stage::Words(&[r"\s?[!-/:-~！-／：-～‘-‟\u{3000}-。]+"]),
            Stage::Words(&[r"\s+$"]),
            EAST_ASIAN,
            Stage::Words(&[DIGITS]),
        ],
    ),
    rule(
        &["deepseek-coder"],
        &[
            Stage::Words(&[r"[\r\n]"]),
            Stage::Words(&[r"\s?\p{L}+"]),
            Stage::Words(&[r"\s?\p{P}+"]),
            EAST_ASIAN,
            Stage::Words(&[DIGIT]),
        ],
    ),
    rule(
        &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
        &[Stage::Words(&[THREE_DIGITS]), CHINESE, Stage::Words(&[MARKED, ACCENTED, MARKS, LINES, SPACES])],
    ),
    rule(
        &["spark2_5"],
        &[
            Stage::Words(&[THREE_DIGITS]),
            CHINESE,
            Stage::Words(&[MARKED, ACCENTED, r" ?[\p{P}\p{S}]+", r"[\r\n]", SPACES]),
            Stage::Words(&[DIGIT]),
        ],
    ),
    rule(
        &["youtu"],
        &[
            Stage::Words(&["[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，\u{3001}-\u{303f}\u{fe30}-\u{fe4f}]+|[ㄅ-ㄯ]+|\
                 [一-龥\u{3040}-ゟ゠-ヿ]+"]),
            Stage::Words(&[CASED, UPPER, DIGIT, OTHERS_AND_SLASHES, LINES, SPACES]),
        ],
    )
    .of_whole_words(),
    rule(&["falcon"], &[Stage::Words(&[r"[\p{P}$+<=>^~|`]+"]), GPT2, Stage::Words(&["[0-9][0-9][0-9]"])]),
    rule(&["poro-chat", "bloom", "gpt3-finnish"], &[BLOOM]),
    rule(&["viking"], &[BLOOM, Stage::Words(&[DIGIT])]),
    rule(&["superbpe"], &[Stage::Words(&[DIGITS]), Stage::Thousands(r"\d+")]),
    rule(
        &["bailingmoe", "bailingmoe2", "llada-moe"],
        &[Stage::Words(&["'(?i:[sdmt]|ll|ve|re)", LETTERS, DIGIT, OTHERS, r"\s*[\r\n]", SPACES])],
    ),
    rule(
        &["seed-coder"],
        &[Stage::Words(&[CONTRACTION, LETTERS, DIGIT, r" ?[^\s\p{L}\p{N}\r\n]+", LINES, SPACES])],
    ),
    rule(&["ufakzeka"], &[Stage::Words(&[LETTERS, DIGIT, OTHERS, LINES, SPACES])]),
    rule(
        &["afmoe"],
        &[
            Stage::Thousands(r"\p{Nd}+"),
            Stage::Words(&["[一-鿿㐀-䶿豈-\u{faff}\u{3040}-ゟ゠-ヿ･-ﾟ⼀-\u{2fdf}เ-\u{e7f}\u{e80}-\u{eff}\
                            ក-\u{17ff}က-႟ꩠ-ꩿꧠ-\u{a9ff}가-\u{d7af}ᄀ-ᇿ]+"]),
            Stage::Words(&[MARKED, ACCENTED, MARKS, LINES, SPACES]),
        ],
    ),
    rule(
        &["laguna"],
        &[
            Stage::Words(&[r"[^\n]+|\n+"]),
            Stage::Words(&[CONTRACTION, LETTERS, DIGIT, OTHERS, LINES, SPACES]),
        ],
    ),
    rule(
        &["exaone-moe"],
        &[Stage::Words(&[
            CONTRACTION,
            r"[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+",
            DIGIT,
            r" ?[^\s\p{L}\p{N}]+[\r\n/]?",
            r"\s*[\r\n]",
            SPACES,
        ])],
    ),
    rule(
        &["minicpm5"],
        &[
            Stage::Words(&[THREE_DIGITS]),
            Stage::Words(&[CONTRACTION, LETTERS, DIGITS, OTHERS, LINES, SPACES]),
        ],
    )
    .of_whole_words(),
    rule(&["gemma4"], LINE).with_bos(),
    rule(&["sarvam-moe"], LINE),
    // What llama.cpp writes for models that it does not know.
    rule(
        &["default"],
        &[
            Stage::Words(&[r"[\p{P}$+<=>^~|]+"]),
            GPT2,
            Stage::Words(&[DIGITS]),
            Stage::Words(&["[0-9][0-9][0-9]"]),
        ],
    ),
];
