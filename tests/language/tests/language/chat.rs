//! Conversations.

use std::time::{Duration, UNIX_EPOCH};

use infer::Error;
use infer::chat::{Answer, AnswerPart, CallPart, ChatFault, Conversation, Message, Role, Template, ToolCall};
use infer::tokenizer::Tokenizer;
use serde_json::{Value, json};

use crate::text::{Vocabulary, text};

/// Names of the vocabulary's control tokens.
const CONTROLS: [&str; 7] =
    ["<s>", "<|im_start|>", "<|im_end|>", "<|channel|>", "<|message|>", "[TOOL_CALLS]", "<|call|>"];

fn vocabulary(template: &str) -> Vocabulary {
    let mut vocabulary = Vocabulary::new("gpt-2", &[], &[])
        .with("tokenizer.chat_template", text(template))
        .with("tokenizer.ggml.bos_token_id", infer::gguf::Value::U32(256));
    vocabulary.controls = CONTROLS.to_vec();
    vocabulary
}

/// A conversation as a model reads it, with a mark in front of control tokens.
fn written(vocabulary: &Vocabulary, conversation: &Conversation) -> Result<String, ChatFault> {
    let file = vocabulary.file();
    let tokenizer = Tokenizer::new(&file).unwrap();
    let prompt = Template::of(&file).and_then(|template| template.encode(&tokenizer, conversation));
    let tokens = match prompt {
        Ok(prompt) => prompt.tokens,
        Err(Error::Chat(fault)) => return Err(fault),
        Err(error) => panic!("{error}"),
    };
    let mut text = Vec::new();
    for token in tokens {
        if tokenizer.is_control(token) {
            text.push(b'^');
        }
        text.extend(tokenizer.bytes(token));
    }
    Ok(String::from_utf8(text).unwrap())
}

/// What a template writes for a conversation.
fn by(template: &str, conversation: &Conversation) -> Result<String, ChatFault> {
    written(&vocabulary(template), conversation)
}

fn user(text: &str) -> Conversation {
    Conversation::new([Message::new(Role::User, text)])
}

const CHATML: &str = "{% for message in messages %}
    {{- '<|im_start|>' + message.role + '\n' + message.content | trim + '<|im_end|>\n' -}}
{% endfor %}
{% if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' -}}
{% endif %}";

#[test]
fn a_template_writes_control_tokens_and_texts_do_not() {
    let turns = [
        (Role::System, "Be <|im_start|>brief."),
        (Role::User, " <|im_end|>\u{fdd0} <s> "),
        (Role::Assistant, "<|im_end"),
        (Role::User, "|>"),
    ];
    let conversation = Conversation::new(turns.map(|(role, text)| Message::new(role, text)));
    let expected = "^<|im_start|>system\nBe <|im_start|>brief.^<|im_end|>\n\
        ^<|im_start|>user\n<|im_end|>\u{fdd0} <s>^<|im_end|>\n^<|im_start|>assistant\n<|im_end^<|im_end|>\n\
        ^<|im_start|>user\n|>^<|im_end|>\n^<|im_start|>assistant\n";
    assert_eq!(by(CHATML, &conversation).unwrap(), expected);
    // The file says that texts begin with a token, or the template writes it: once.
    let begins = |template: &str, adds| {
        let vocabulary =
            vocabulary(template).with("tokenizer.ggml.add_bos_token", infer::gguf::Value::Bool(adds));
        written(&vocabulary, &user("x")).unwrap()
    };
    let with_bos = "{{ bos_token + messages[0].content }}";
    assert_eq!([begins("{{ messages[0].content }}", true), begins("x", false)], ["^<s>x", "x"]);
    assert_eq!([begins(with_bos, true), begins(with_bos, false)], ["^<s>x", "^<s>x"]);
}

#[test]
fn names_in_tools_calls_and_variables_are_texts() {
    let template = "{{ tools | tojson }}{{ note }}{% for m in messages %}{% for call in m.tool_calls %}\
        {{ call.function.name }}{{ call.function.arguments | tojson }}{% endfor %}\
        {{ m.reasoning_content }}{% endfor %}";
    let mut message = Message::new(Role::Assistant, "");
    message.reasoning = Some("<s>".to_owned());
    let arguments = r#"{"<s>": ["<s>", 1]}"#.to_owned();
    message.tool_calls = vec![ToolCall { id: None, name: "<s>".to_owned(), arguments }];
    let conversation = Conversation {
        tools: vec![json!({ "<s>": "<s>" })],
        variables: [("note".to_owned(), json!("<s>"))].into_iter().collect(),
        ..Conversation::new([message])
    };
    let expected = r#"[{"<s>": "<s>"}]<s><s>{"<s>": ["<s>", 1]}<s>"#;
    assert_eq!(by(template, &conversation).unwrap(), expected);
}

#[test]
fn templates_have_the_functions_of_transformers() {
    let conversation = Conversation {
        tools: vec![json!({ "b": "é<'&>", "a": [1, 2.5, true, null, {}, []] })],
        variables: [("enable_thinking".to_owned(), json!(false))].into_iter().collect(),
        now: Some(UNIX_EPOCH + Duration::from_secs(86_400 * 400)),
        ..user("  a,b  ")
    };
    for (template, expected) in [
        ("{{ tools[0] | tojson }}", r#"{"b": "é<'&>", "a": [1, 2.5, true, null, {}, []]}"#),
        (
            "{{ tools[0] | tojson(indent=1) }}",
            "{\n \"b\": \"é<'&>\",\n \"a\": [\n  1,\n  2.5,\n  true,\n  null,\n  {},\n  []\n ]\n}",
        ),
        ("{{ tools[0] | tojson(sort_keys=true) }}", r#"{"a": [1, 2.5, true, null, {}, []], "b": "é<'&>"}"#),
        ("{{ none is iterable }} {{ 'a' is iterable }} {{ 1 is iterable }}", "False True False"),
        ("{{ strftime_now('%Y') }}", "1971"),
        ("{{ messages[0].content.strip().split(',')[-1] }}", "b"),
        ("{{ messages[0]['content'].startswith(' ') }} {{ none }}", "True None"),
        ("{% if enable_thinking is defined and enable_thinking is false %}no{% endif %}", "no"),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        (
            "{% set ns = namespace(x=1) %}{% for i in range(3) %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}",
            "4",
        ),
        ("a{% generation %}b{%- endgeneration -%} c", "abc"),
        ("{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(1) }}{{ missing }}", "<1>"),
        ("  {% if true %}\nx\n  {% endif %}\ny\n", "x\ny"),
    ] {
        assert_eq!(by(template, &conversation).unwrap(), expected, "{template}");
    }
    // Without a time, templates write the date of their authors.
    let dated = "{% if strftime_now is defined %}now{% else %}26 Jul 2024{% endif %}";
    assert_eq!(by(dated, &user("x")).unwrap(), "26 Jul 2024");
}

#[test]
fn conversations_with_tools_may_have_a_template_of_their_own() {
    let vocabulary =
        vocabulary("plain").with("tokenizer.chat_template.tool_use", text("{{ tools[0].name }}"));
    let with_tools = Conversation { tools: vec![json!({ "name": "f" })], ..user("x") };
    assert_eq!(written(&vocabulary, &with_tools).unwrap(), "f");
    assert_eq!(written(&vocabulary, &user("x")).unwrap(), "plain");
    assert!(Template::of(&vocabulary.file()).unwrap().has_tools());
}

#[test]
fn messages_that_call_tools_are_written_as_the_template_expects() {
    let call =
        ToolCall { id: Some("1".to_owned()), name: "f".to_owned(), arguments: r#"{"x":1}"#.to_owned() };
    let mut message = Message::new(Role::Assistant, "");
    message.tool_calls = vec![call];
    let result = Message {
        tool_call_id: Some("1".to_owned()),
        name: Some("f".to_owned()),
        ..Message::new(Role::Tool, "2")
    };
    let conversation = Conversation::new([message, result]);
    for (template, expected) in [
        ("{{ messages[0].content }} {{ messages[0].tool_calls[0].function.arguments.x }}", "None 1"),
        ("{{ 'x' + messages[0].content }}{{ messages[0].tool_calls[0].id }}", "x1"),
        ("{{ 'x' + messages[0].tool_calls[0].function.arguments }}", "x{\"x\":1}"),
        (
            "{{ messages[1].role + messages[1].name + messages[1].tool_call_id + messages[1].content }}",
            "toolf12",
        ),
    ] {
        assert_eq!(by(template, &conversation).unwrap(), expected, "{template}");
    }
}

#[test]
fn bad_templates_are_errors_with_lines() {
    let fault = |template: &str| by(template, &user("x")).unwrap_err();
    assert!(matches!(fault("a\n{% if %}"), ChatFault::Syntax { line: 2, .. }));
    assert!(matches!(fault("a\n\n{{ messages[0].content + 1 }}"), ChatFault::Rendering { line: 3, .. }));
    assert!(matches!(fault("{{ missing.field }}"), ChatFault::Rendering { line: 1, .. }));
    assert!(matches!(fault("{% include 'x' %}"), ChatFault::Syntax { .. }));
    let raised = fault("{% if messages %}{{ raise_exception('No system role') }}{% endif %}");
    assert_eq!(raised, ChatFault::Refused("No system role".to_owned()));
    assert!(raised.to_string().contains("No system role"));
    let file = Vocabulary::new("gpt-2", &[], &[]).file();
    assert!(matches!(Template::of(&file), Err(Error::Chat(ChatFault::NoTemplate))));
    assert!("none".parse::<Role>().unwrap_err().to_string().contains("tool"));
}

#[test]
fn templates_have_limited_time_and_memory() {
    let doubled =
        "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}";
    let nested =
        "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}";
    let loops = "{% for i in range(9999) %}{% for i in range(9999) %}x{% endfor %}{% endfor %}";
    let filled = "{{ 'x' * 99999999 }}";
    let deep = format!("{}1{}", "{% if true %}".repeat(5000), "{% endif %}".repeat(5000));
    let calls = "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}";
    for (template, is_fuel) in [
        (doubled.to_owned(), true),
        (format!("{nested}{{{{ ns.x }}}}"), true),
        (format!("{nested}{{{{ ns.x | tojson }}}}"), true),
        (format!("{nested}{{{{ ns.x | string }}}}"), true),
        (format!("{nested}{{{{ ns.x | join }}}}"), true),
        (format!("{nested}{{{{ [{{'a': ns.x}}] | join(',', attribute='a') }}}}"), true),
        (loops.to_owned(), true),
        (filled.to_owned(), true),
        (deep, false),
        (calls.to_owned(), false),
    ] {
        let fault = by(&template, &user("x")).unwrap_err();
        let start: String = template.chars().take(120).collect();
        assert_eq!(fault == ChatFault::TooMuch, is_fuel, "{start}: {fault}");
    }
}

/// The answer that a template's model writes as a text; the same, however the text is cut.
fn answered(template: &str, answer: &str, tools: &[Value]) -> Answer {
    let file = vocabulary(template).file();
    let tokenizer = Tokenizer::new(&file).unwrap();
    let template = Template::of(&file).unwrap();
    let conversation = Conversation { tools: tools.to_vec(), ..user("x") };
    let prompt = template.encode(&tokenizer, &conversation).unwrap();
    let read = |pieces: &mut dyn Iterator<Item = &str>| -> Answer {
        let mut parser = prompt.parser.clone();
        let mut parts: Vec<AnswerPart> = pieces.flat_map(|piece| parser.push_text(piece)).collect();
        parts.extend(parser.finish());
        parts.into_iter().collect()
    };
    let whole = read(&mut [answer].into_iter());
    for size in [1, 3] {
        let characters: Vec<usize> = answer.char_indices().map(|(at, _)| at).step_by(size).collect();
        let ends = characters.iter().skip(1).copied().chain([answer.len()]);
        let pieces = characters.iter().zip(ends).map(|(start, end)| &answer[*start..end]);
        assert_eq!(read(&mut pieces.collect::<Vec<_>>().into_iter()), whole, "{answer:?} in pieces");
    }
    // And as tokens, among which are control tokens.
    let mut parser = prompt.parser.clone();
    let tokens = tokenizer.encode(answer, infer::tokenizer::Controls::Find);
    let mut parts: Vec<AnswerPart> =
        tokens.into_iter().flat_map(|token| parser.push(&tokenizer, token)).collect();
    parts.extend(parser.finish());
    assert_eq!(parts.into_iter().collect::<Answer>(), whole, "{answer:?} as tokens");
    whole
}

/// An answer of these parts, with all arguments.
fn spelled(parts: &[CallPart], arguments: &Value) -> String {
    let part = |part: &CallPart| match part {
        CallPart::Tag(text) => (*text).to_owned(),
        CallPart::Text(text) => text.clone(),
        CallPart::OneOf(texts) => texts[1].clone(),
        CallPart::Json(schema) if schema["type"] == "object" => arguments.to_string(),
        CallPart::Json(_) => arguments["x"].to_string(),
        CallPart::Until(text) => format!("a \"b\"{text}"),
        CallPart::Maybe(parts) => spelled(parts, arguments),
    };
    parts.iter().map(part).collect()
}

#[test]
fn forced_calls_are_read_as_calls() {
    let properties = json!({
        "s": { "type": "string" },
        "e": { "type": "string", "enum": ["p", "q"] },
        "x": { "$ref": "#/$defs/number" },
    });
    let parameters = json!({ "type": "object", "properties": properties, "required": ["x"],
                             "$defs": { "number": { "type": "integer" } } });
    let tool = json!({ "type": "function", "function": { "name": "f", "parameters": parameters } });
    let arguments = json!({ "s": "a \"b\"", "e": "q", "x": 12 });
    for template in [
        "{{ tools }}<tool_call>",
        "{{ tools }}<tool_call><function=",
        "{{ tools }}<tool_call><arg_key>",
        "[TOOL_CALLS]",
        "[TOOL_CALLS][ARGS]",
        "<|tool_call|>",
        "<|python_tag|>",
        "<|channel|><|message|>",
    ] {
        let parts = Template::of(&vocabulary(template).file()).unwrap().call(&tool).unwrap();
        let answer = answered(template, &spelled(&parts, &arguments), std::slice::from_ref(&tool));
        assert_eq!((answer.tool_calls.len(), answer.text.as_str()), (1, ""), "{template}: {answer:?}");
        let call = &answer.tool_calls[0];
        let read: Value = serde_json::from_str(&call.arguments).unwrap();
        assert_eq!((call.name.as_str(), &read), ("f", &arguments), "{template}");
    }
    assert_eq!(Template::of(&vocabulary("plain").file()).unwrap().call(&tool), None);
    // A tool without parameters has no arguments, and what is required is not left out.
    let template = Template::of(&vocabulary("<tool_call><arg_key>").file()).unwrap();
    let is_required = |part: &CallPart| matches!(part, CallPart::Text(text) if text.contains("<arg_key>x"));
    assert!(template.call(&tool).unwrap().iter().any(is_required));
    let bare = template.call(&json!({ "type": "function", "function": { "name": "g" } })).unwrap();
    let texts =
        [CallPart::Tag("<tool_call>"), CallPart::Text("g\n".to_owned()), CallPart::Tag("</tool_call>")];
    assert_eq!(bare, texts);
}

#[test]
fn answers_have_texts_thoughts_and_calls() {
    let hermes = "{{ tools }}<tool_call></think>";
    let coder = "{{ tools }}<tool_call><function=";
    let glm = "{{ tools }}<tool_call><arg_key>";
    let opened = "</think><think>\n";
    let harmony = "<|channel|><|message|>";
    let call = |name: &str, arguments: Value| (name.to_owned(), arguments);
    let f = call("f", json!({ "x": 1 }));
    let tools = [json!({ "type": "function", "function": { "name": "f", "parameters": {
        "type": "object", "properties": { "s": { "type": "string" }, "x": { "type": "integer" } } } } })];
    let two = vec![f.clone(), call("g", json!({}))];
    for (template, answer, text, reasoning, calls) in [
        ("plain", "<think>a</think>{\"name\": \"f\"}", "<think>a</think>{\"name\": \"f\"}", "", vec![]),
        (hermes, "<think>\n a b\n\n</think>\n\nHi <", "Hi <", "a b", vec![]),
        (opened, "a</think> b", "b", "a", vec![]),
        (opened, "never ends ", "", "never ends", vec![]),
        (
            hermes,
            "I call.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>\n\
             <tool_call>{\"name\": \"g\"}</tool_call>",
            "I call.\n",
            "",
            two.clone(),
        ),
        (
            hermes,
            "<tool_call>no</tool_call>, <tool_call>{",
            "<tool_call>no</tool_call>, <tool_call>{",
            "",
            vec![],
        ),
        (
            coder,
            "<tool_call>\n<function=f>\n<parameter=s>\n12\nb\n</parameter>\n<parameter=x>\n12\n</parameter>\n\
             </function>\n</tool_call>",
            "",
            "",
            vec![call("f", json!({ "s": "12\nb", "x": 12 }))],
        ),
        (
            glm,
            "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>1</arg_value>\n<arg_key>x</arg_key>\n\
             <arg_value>1</arg_value>\n</tool_call>",
            "",
            "",
            vec![call("f", json!({ "s": "1", "x": 1 }))],
        ),
        (
            "[TOOL_CALLS]",
            "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"x\": 1}}, {\"name\": \"g\", \"arguments\": {}}]",
            "",
            "",
            two.clone(),
        ),
        ("[TOOL_CALLS]", "a[TOOL_CALLS]f[ARGS]{\"x\": 1}[TOOL_CALLS]g{}", "a", "", two.clone()),
        ("<|python_tag|>", " {\"name\": \"f\", \"parameters\": {\"x\": 1}}", "", "", vec![f.clone()]),
        (
            "<|python_tag|>",
            "<|python_tag|>{\"name\": \"f\", \"parameters\": {\"x\": 1}}; {\"name\": \"g\", \"parameters\": {}}",
            "",
            "",
            two.clone(),
        ),
        ("<|python_tag|>", "{\"a\": 1} is JSON", "{\"a\": 1} is JSON", "", vec![]),
        (
            "<|tool_call|>",
            "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"x\": 1}}]",
            "",
            "",
            vec![f.clone()],
        ),
        (
            harmony,
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.f \
             <|constrain|>json<|message|>{\"x\": 1}<|call|>",
            "",
            "Hm.",
            vec![f.clone()],
        ),
        (
            harmony,
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|> Hi",
            " Hi",
            "Hm.",
            vec![],
        ),
        (harmony, "no header", "no header", "", vec![]),
    ] {
        let found = answered(template, answer, &tools);
        let arguments = |call: &ToolCall| serde_json::from_str(&call.arguments).unwrap();
        let found_calls: Vec<(String, Value)> =
            found.tool_calls.iter().map(|call| (call.name.clone(), arguments(call))).collect();
        let found = (found.text.as_str(), found.reasoning.as_str(), found_calls);
        assert_eq!(found, (text, reasoning, calls), "{template}: {answer}");
    }
    let template = Template::of(&vocabulary(hermes).file()).unwrap();
    assert_eq!(template.calls(), Some("<tool_call>"));
    let answer = template.parse_answer("<think>a</think>b<tool_call>{\"name\": \"f\"}</tool_call>");
    assert_eq!((answer.text.as_str(), answer.reasoning.as_str(), answer.tool_calls.len()), ("b", "a", 1));
}
