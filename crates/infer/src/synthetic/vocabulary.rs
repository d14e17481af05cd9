//! Vocabularies and chat templates of random models.

use super::Maker;
use crate::gguf::{Array, Texts, Value};
use crate::model::Architecture;
use crate::tokenizer::byte_character;

/// Words of the vocabulary, as pairs that are merged, in this order.
const MERGES: [(&str, &str); 12] = [
    ("Ġ", "t"),
    ("h", "e"),
    ("Ġt", "he"),
    ("i", "n"),
    ("Ġ", "a"),
    ("o", "n"),
    ("Ġ", "w"),
    ("o", "r"),
    ("l", "d"),
    ("Ġw", "or"),
    ("Ġwor", "ld"),
    ("l", "l"),
];

/// Fewest tokens of a vocabulary with texts.
const FEWEST_TOKENS: usize = 300;

impl Maker {
    /// Writes the keys of a vocabulary.
    pub(super) fn tokens(&mut self) {
        let count = self.recipe.vocabulary.max(FEWEST_TOKENS);
        let mut tokens: Vec<String> = (0..=255).map(|byte| byte_character(byte).to_string()).collect();
        tokens.extend(MERGES.iter().map(|(first, second)| format!("{first}{second}")));
        let (pre, specials): (_, &[&str]) = match self.recipe.architecture {
            Architecture::Llama => (
                "llama-bpe",
                &[
                    "<|begin_of_text|>",
                    "<|end_of_text|>",
                    "<|start_header_id|>",
                    "<|end_header_id|>",
                    "<|eot_id|>",
                ],
            ),
            Architecture::Gpt2 => ("gpt-2", &["<|endoftext|>"]),
            Architecture::GptOss => (
                "gpt-4o",
                &[
                    "<|startoftext|>",
                    "<|start|>",
                    "<|channel|>",
                    "<|message|>",
                    "<|end|>",
                    "<|call|>",
                    "<|return|>",
                ],
            ),
            _ => ("qwen2", &["<|endoftext|>", "<|im_start|>", "<|im_end|>"]),
        };
        let first_special = count - specials.len();
        tokens.extend((tokens.len()..first_special).map(|number| format!("<unused{number}>")));
        tokens.extend(specials.iter().map(|&token| token.to_owned()));
        let kinds = (0..count).map(|token| if token < first_special { 1 } else { 3 }).collect();
        let merges: Vec<String> = MERGES.iter().map(|(first, second)| format!("{first} {second}")).collect();
        let texts = |texts: &[String]| {
            Value::Array(Array::Texts(texts.iter().map(String::as_str).collect::<Texts>()))
        };
        let text = |text: &str| Value::Text(text.to_owned());
        let number = |token: usize| Value::U32(token as u32);
        let writer = &mut self.writer;
        writer.key("tokenizer.ggml.model", text("gpt2"));
        writer.key("tokenizer.ggml.pre", text(pre));
        writer.key("tokenizer.ggml.tokens", texts(&tokens));
        writer.key("tokenizer.ggml.token_type", Value::Array(Array::I32(kinds)));
        writer.key("tokenizer.ggml.merges", texts(&merges));
        match self.recipe.architecture {
            Architecture::Llama => {
                writer.key("tokenizer.ggml.bos_token_id", number(first_special));
                writer.key("tokenizer.ggml.eos_token_id", number(first_special + 4));
                writer.key("tokenizer.ggml.add_bos_token", Value::Bool(true));
                writer.key("tokenizer.chat_template", text(LLAMA_TEMPLATE));
            }
            Architecture::Gpt2 => writer.key("tokenizer.ggml.eos_token_id", number(first_special)),
            Architecture::GptOss => {
                writer.key("tokenizer.ggml.eos_token_id", number(first_special + 6));
                writer.key("tokenizer.chat_template", text(GPT_OSS_TEMPLATE));
            }
            _ => {
                writer.key("tokenizer.ggml.eos_token_id", number(first_special + 2));
                writer.key("tokenizer.chat_template", text(QWEN_TEMPLATE));
            }
        }
    }
}

/// A chat template of LLaMA 3's form.
const LLAMA_TEMPLATE: &str = "{{- bos_token }}{%- for message in messages %}\
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim \
    + '<|eot_id|>' }}{%- endfor %}{%- if add_generation_prompt %}\
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}";

/// A chat template of gpt-oss's form.
const GPT_OSS_TEMPLATE: &str = "{%- for message in messages %}\
    {{- '<|start|>' + message.role + ('<|channel|>final' if message.role == 'assistant' else '') \
    + '<|message|>' + message.content + '<|end|>' }}{%- endfor %}\
    {%- if add_generation_prompt %}{{- '<|start|>assistant' }}{%- endif %}";

/// A chat template of Qwen's form.
const QWEN_TEMPLATE: &str = "{%- for message in messages %}\
    {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}{%- endfor %}\
    {%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}";
