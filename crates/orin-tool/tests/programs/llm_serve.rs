//! `orin llm serve`, on a random model.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use infer::model::Model;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::llm::{command, continued, quick};

/// The key of requests; servers without one ignore it.
const KEY: &str = "a-key";

/// A server that is ended with the test.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(folder: &Path, more: &[&str]) -> Self {
        let arguments = ["llm", "serve", "-m", "m.gguf", "--device", "sim", "--port", "0", "--ctx", "64"];
        let mut command = command(folder, &[&arguments[..], more].concat());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        errors.read_line(&mut line).unwrap();
        // The rest must have a reader.
        std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
        let address = line.trim_end().rsplit_once("http://").unwrap_or_else(|| panic!("{line}")).1.to_owned();
        Self { child, address }
    }

    /// Sends bytes; returns what comes back until the server closes the connection.
    fn raw(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Sends a request; returns the status and the body.
    fn request(&self, head: &str, body: &str) -> (u16, String) {
        let length = body.len();
        let answer = self.raw(&format!(
            "{head} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
             Authorization: Bearer {KEY}\r\nConnection: close\r\n\r\n{body}"
        ));
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let (status, body) = self.request(&format!("POST {path}"), &body.to_string());
        (status, serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}")))
    }

    /// Sends a request; returns the parts of the stream.
    fn stream(&self, path: &str, body: &Value) -> Vec<Value> {
        let mut body = body.clone();
        body["stream"] = json!(true);
        let (status, body) = self.request(&format!("POST {path}"), &body.to_string());
        let mut parts: Vec<&str> = body.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        assert_eq!((status, parts.pop()), (200, Some("[DONE]")), "{body}");
        parts.into_iter().map(|part| serde_json::from_str(part).unwrap()).collect()
    }

    fn end(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended, unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn serve_answers_in_openais_format() {
    let folder = quick();
    let want = continued(folder.path(), "The", 3);
    let server = Server::start(folder.path(), &[]);
    let request = json!({ "prompt": "The", "max_tokens": 3, "temperature": 0 });
    let (status, answer) = server.post("/v1/completions", &request);
    assert_eq!((status, &answer["choices"][0]["text"]), (200, &json!(want)));
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    let usage = json!({
        "prompt_tokens": 3,
        "completion_tokens": 3,
        "total_tokens": 6,
        "prompt_tokens_details": { "cached_tokens": 0 },
    });
    assert_eq!(answer["usage"], usage);
    let parts = server.stream("/v1/completions", &request);
    let joined: String = parts.iter().map(|part| part["choices"][0]["text"].as_str().unwrap()).collect();
    assert_eq!(joined, want);

    // Requests at the same time get what each gets alone.
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..3).map(|_| scope.spawn(|| server.post("/v1/completions", &request))).collect();
        for thread in threads {
            let (status, answer) = thread.join().unwrap();
            assert_eq!((status, &answer["choices"][0]["text"]), (200, &json!(want)));
        }
    });

    let messages = json!([{ "role": "user", "content": "x" }]);
    let (status, answer) =
        server.post("/v1/chat/completions", &json!({ "messages": messages, "max_tokens": 1 }));
    assert_eq!((status, &answer["choices"][0]["message"]["role"]), (200, &json!("assistant")));
    assert_eq!(server.request("GET /v1/models", "").0, 200);
    // A program that writes all numbers as floats, and closes its side after the request.
    let body = r#"{"prompt": "The", "max_tokens": 3.0, "temperature": 0.0, "seed": 1.0, "n": 1.0}"#;
    let length = body.len();
    let request = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains(&json!(want).to_string()), "{answer}");
    server.end();
}

#[test]
fn serve_refuses_what_it_cannot_do() {
    let folder = quick();
    let server = Server::start(folder.path(), &[]);
    let long = "x".repeat(200);
    for (body, field) in [
        (json!({ "prompt": "x", "n": 5 }), json!("n")),
        (json!({ "prompt": "x", "best_of": 2 }), json!("best_of")),
        (json!({ "prompt": "x", "logprobs": 21 }), json!("logprobs")),
        (json!({ "prompt": "x", "stream_options": { "include_usage": true } }), json!("stream_options")),
        (json!({ "prompt": "x", "response_format": { "type": "xml" } }), json!("response_format")),
        (json!({ "prompt": "x", "grammar": "start: missing" }), json!("grammar")),
        (json!({ "prompt": "x", "grammar": { "syntax": "regex", "definition": "(" } }), json!("grammar")),
        (json!({ "prompt": ["x", "y"] }), json!("prompt")),
        (json!({ "prompt": [1, 512] }), json!("prompt")),
        (json!({ "prompt": "x", "max_tokens": -1 }), json!("max_tokens")),
        (json!({ "prompt": "x", "max_tokens": 0 }), json!("max_tokens")),
        (json!({ "prompt": "x", "temperature": "hot" }), json!("temperature")),
        (json!({ "prompt": "x", "temperature": -1 }), json!("temperature")),
        (json!({ "prompt": "x", "temperature": 99 }), json!("temperature")),
        (json!({ "prompt": "x", "stop": [""] }), json!("stop")),
        (json!({ "prompt": "x", "stream": 1 }), json!("stream")),
        (json!({ "prompt": long }), Value::Null),
        (json!([1]), Value::Null),
    ] {
        let (status, answer) = server.post("/v1/completions", &body);
        assert_eq!((status, &answer["error"]["param"]), (400, &field), "{body}: {answer}");
    }
    let (status, answer) = server.request("GET /", "");
    let answer = format!("{answer:?}");
    assert!(status == 404 && answer.contains("there are /health, /metrics"), "{answer}");
    let part = |part: Value| json!([{ "role": "user", "content": [part] }]);
    for (messages, words) in [
        (json!("x"), "must be a list of objects"),
        (json!([]), "`messages` is empty: give at least one"),
        (json!([{ "content": "x" }]), "`messages[0]`: it must be an object with `role` and `content`"),
        (
            json!([{ "role": "user", "content": "x" }, { "role": "user" }]),
            "`messages[1]`: `content` is missing",
        ),
        (json!([{ "role": "user", "content": null }]), "`content` is missing or null"),
        (json!([{ "role": "user", "content": 7 }]), "`content` must be a text"),
        (json!([{ "role": "robot", "content": "x" }]), "assistant or tool, not `robot`"),
        (json!([{ "role": "assistant", "tool_calls": [{}] }]), "`tool_calls` must be a list of objects"),
        (
            part(json!({ "type": "image_url", "image_url": {} })),
            "parts of type `image_url` are not supported",
        ),
        (part(json!({ "type": "text" })), "a part of type `text` has no text"),
        (part(json!({ "text": "x" })), "a part of `content` has no `type`"),
    ] {
        let (status, answer) = server.post("/v1/chat/completions", &json!({ "messages": messages }));
        assert_eq!((status, &answer["error"]["param"]), (400, &json!("messages")), "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(words), "{words}: {answer}");
    }
    let schema =
        |schema: Value| json!({ "type": "json_schema", "json_schema": { "name": "n", "schema": schema } });
    // Parts that refer to each other in turn.
    let chain = |len: usize| {
        let link =
            |at: usize| (at.to_string(), json!({ "items": { "$ref": format!("#/$defs/{}", at + 1) } }));
        let mut parts: serde_json::Map<String, Value> = (0..len).map(link).collect();
        parts.insert(len.to_string(), json!({ "type": "null" }));
        json!({ "$defs": parts, "$ref": "#/$defs/0" })
    };
    let tool = json!({ "type": "function", "function": { "name": "f" } });
    for (field, value, words) in [
        ("tools", json!([tool]), "the model's chat template has none"),
        ("tools", json!([{ "type": "function" }]), "must be a list of objects"),
        ("tool_choice", json!("required"), "names no tool of `tools`"),
        ("tool_choice", json!("any"), "must be none, auto, required, or an object"),
        ("top_logprobs", json!(2), "needs `logprobs`"),
        (
            "response_format",
            schema(json!({ "type": "integer", "minimum": 4, "maximum": 3 })),
            "response_format",
        ),
        ("response_format", schema(json!({ "$ref": "http://a.example/" })), "response_format"),
        ("response_format", schema(chain(3000)), "more than 65536 bytes"),
    ] {
        let mut body = json!({ "messages": [{ "role": "user", "content": "x" }] });
        body[field] = value;
        let (status, answer) = server.post("/v1/chat/completions", &body);
        assert_eq!((status, &answer["error"]["param"]), (400, &json!(field)), "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(words), "{words}: {answer}");
    }
    let body = json!({ "prompt": "x", "max_tokens": 1, "response_format": schema(chain(1500)) });
    assert_eq!(server.post("/v1/completions", &body).0, 200, "the longest chain is followed");
    let (status, answer) = server.post("/v1/embeddings", &json!({ "input": "x" }));
    let message = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(status == 400 && message.contains("start the server with --embeddings"), "{answer}");
    assert_eq!(server.request("POST /v1/completions", "{").0, 400);
    assert_eq!(server.request("GET /v1/completions", "").0, 405);
    assert_eq!(server.request("GET /other", "").0, 404);
    let head = "Host: localhost\r\nConnection: close\r\n";
    for (request, status) in [
        (format!("POST /v1/completions HTTP/1.1\r\n{head}Content-Length: 2\r\n\r\n{{}}"), 415),
        ("GET /health HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n".to_owned(), 403),
        (format!("HEAD /health HTTP/1.1\r\n{head}\r\n"), 200),
        (format!("HEAD /v1/completions HTTP/1.1\r\n{head}\r\n"), 405),
        (
            format!(
                "POST /v1/completions HTTP/1.1\r\n{head}Content-Type: application/json\r\n\
                 Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{{}}"
            ),
            415,
        ),
        // Refused without a wait for the body.
        (
            format!(
                "POST /v1/completions HTTP/1.1\r\n{head}Content-Type: application/json\r\n\
                 Content-Length: 4194305\r\n\r\n"
            ),
            413,
        ),
    ] {
        let answer = server.raw(&request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {answer}");
    }
    server.end();
}

/// Replaces the chat template of the model by one that knows tools.
fn give_tools(folder: &Path) {
    let path = folder.join("m.gguf");
    let model = Model::open(&path).unwrap();
    let old = model.file().text("tokenizer.chat_template").unwrap().unwrap().to_owned();
    let new = "{% for tool in tools %}{{ tool.function.name }}{% endfor %}{% for message in messages %}\
               {{ message.content }}{% endfor %}{# <|python_tag|> ";
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.windows(old.len()).position(|window| window == old.as_bytes()).unwrap();
    let new = format!("{new:<width$}#}}", width = old.len() - 2);
    bytes[at..at + old.len()].copy_from_slice(new.as_bytes());
    drop(model);
    fs::write(&path, bytes).unwrap();
}

/// The sum of a list of numbers, each changed.
fn sum(list: &Value, change: impl Fn(f64) -> f64) -> f64 {
    list.as_array().unwrap().iter().map(|number| change(number.as_f64().unwrap())).sum()
}

#[test]
fn serve_has_choices_log_probabilities_grammars_tools_and_embeddings() {
    let folder = quick();
    give_tools(folder.path());
    let options = ["--api-key", KEY, "--parallel", "2", "--embeddings", "last", "--grace", "60"];
    let server = Server::start(folder.path(), &options);
    let complete = |more: Value| {
        let mut body = json!({ "prompt": "The", "max_tokens": 3, "temperature": 0 });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };

    // Log probabilities: the most probable token is chosen, and the tokens make the text.
    let (_, answer) = server.post("/v1/completions", &complete(json!({ "logprobs": 2 })));
    let (text, logprobs) = (&answer["choices"][0]["text"], &answer["choices"][0]["logprobs"]);
    let tokens: Vec<&str> =
        logprobs["tokens"].as_array().unwrap().iter().map(|token| token.as_str().unwrap()).collect();
    for (at, token) in tokens.iter().enumerate() {
        let top = logprobs["top_logprobs"][at].as_object().unwrap();
        let largest = top.values().map(|logprob| logprob.as_f64().unwrap()).fold(f64::MIN, f64::max);
        assert!(top.len() == 2 && top[*token].as_f64() == Some(largest) && largest < 0.0, "{logprobs}");
        assert_eq!(logprobs["token_logprobs"][at].as_f64(), Some(largest));
    }
    if tokens.iter().all(|token| !token.starts_with("bytes:")) {
        assert_eq!(json!(tokens.concat()), *text);
    }
    assert_eq!(logprobs["text_offset"][0], 0);

    // Several answers, whole and in parts, with the same tokens.
    let several = complete(json!({ "n": 2, "temperature": 1, "seed": 7, "max_tokens": 2, "logprobs": 0 }));
    let (_, answer) = server.post("/v1/completions", &several);
    let choices = answer["choices"].as_array().unwrap();
    assert_eq!([&choices[0]["index"], &choices[1]["index"]], [&json!(0), &json!(1)]);
    assert_eq!((choices.len(), &answer["usage"]["completion_tokens"]), (2, &json!(4)));
    // The second one continues a copy of the first one's context: it is the answer to the next seed.
    let next = complete(json!({ "temperature": 1, "seed": 8, "max_tokens": 2, "logprobs": 0 }));
    let (_, next) = server.post("/v1/completions", &next);
    for field in ["text", "logprobs"] {
        assert_eq!(next["choices"][0][field], choices[1][field]);
    }
    let mut counted = several.clone();
    counted["stream_options"] = json!({ "include_usage": true });
    let parts = server.stream("/v1/completions", &counted);
    let (count, parts) = parts.split_last().unwrap();
    assert_eq!((&count["usage"]["completion_tokens"], &count["choices"]), (&json!(4), &json!([])));
    for choice in choices {
        let own = parts.iter().filter(|part| part["choices"][0]["index"] == choice["index"]);
        let own: Vec<&Value> = own.map(|part| &part["choices"][0]).collect();
        let joined: String = own.iter().map(|part| part["text"].as_str().unwrap()).collect();
        assert_eq!(
            (json!(joined), &own.last().unwrap()["finish_reason"]),
            (choice["text"].clone(), &json!("length"))
        );
        let offsets = own.iter().filter_map(|part| part["logprobs"]["text_offset"].as_array()).flatten();
        assert_eq!(offsets.cloned().collect::<Value>(), choice["logprobs"]["text_offset"]);
    }
    assert!(parts.iter().all(|part| part["usage"].is_null() && part.get("usage").is_some()));

    // Grammars: any temperature keeps to them.
    let schema = json!({ "enum": ["in the world", -7] });
    let format = json!({ "type": "json_schema", "json_schema": { "name": "n", "schema": schema } });
    let lark = "start: \"a\" (\"in\" | \" the\") \"!\"";
    for (field, value, wanted) in [
        ("response_format", format, &["\"in the world\"", "-7"][..]),
        ("grammar", json!(lark), &["ain!", "a the!"]),
        ("grammar", json!({ "syntax": "regex", "definition": "x[0-1]y" }), &["x0y", "x1y"]),
    ] {
        let mut body = complete(json!({ "temperature": 2, "max_tokens": 20, "seed": 3 }));
        body[field] = value;
        let (status, answer) = server.post("/v1/completions", &body);
        let choice = &answer["choices"][0];
        assert_eq!((status, &choice["finish_reason"]), (200, &json!("stop")), "{answer}");
        assert!(wanted.contains(&choice["text"].as_str().unwrap()), "{answer}");
    }

    // A forced call of a tool, in the form of LLaMA's answers.
    let parameters = json!({ "type": "object", "x-guidance": { "whitespace_flexible": false },
                             "properties": { "x": { "const": 1 } }, "required": ["x"],
                             "additionalProperties": false });
    let tool = |name: &str| json!({ "name": name, "parameters": parameters });
    let tools = ["e", "f"].map(|name| json!({ "type": "function", "function": tool(name) }));
    let body = json!({
        "messages": [{ "role": "user", "content": "x" }],
        "tools": tools,
        "tool_choice": { "type": "function", "function": { "name": "f" } },
        "logprobs": true,
    });
    let (_, answer) = server.post("/v1/chat/completions", &body);
    let choice = &answer["choices"][0];
    assert_eq!(
        (&choice["finish_reason"], &choice["message"]["content"]),
        (&json!("tool_calls"), &Value::Null)
    );
    let call = &choice["message"]["tool_calls"][0];
    assert_eq!(call["function"], json!({ "name": "f", "arguments": "{\"x\":1}" }), "{answer}");
    assert_eq!(call["id"].as_str().unwrap().len(), 9);
    let mut body = body;
    body["tool_choice"] = json!("none");
    body["logprobs"] = json!(true);
    body["top_logprobs"] = json!(1);
    body["grammar"] = json!({ "syntax": "regex", "definition": "in the" });
    let (_, answer) = server.post("/v1/chat/completions", &body);
    let choice = &answer["choices"][0];
    assert_eq!(choice["message"], json!({ "role": "assistant", "content": "in the" }), "{answer}");
    let bytes = |token: &Value| token["bytes"].as_array().unwrap().clone();
    let content = choice["logprobs"]["content"].as_array().unwrap();
    assert_eq!(content.iter().flat_map(bytes).collect::<Value>(), json!(b"in the"));
    assert!(content.iter().all(|token| token["top_logprobs"].as_array().unwrap().len() == 1));

    // Embeddings: unit vectors, in both encodings.
    let (status, answer) = server.post("/v1/embeddings", &json!({ "input": ["a", [3, 4], "a"] }));
    let vectors = answer["data"].as_array().unwrap();
    assert_eq!((status, vectors.len(), &answer["usage"]["prompt_tokens"]), (200, 3, &json!(6)), "{answer}");
    assert!((sum(&vectors[1]["embedding"], |x| x * x) - 1.0).abs() < 1e-5);
    assert!(vectors[0]["embedding"] == vectors[2]["embedding"] && vectors[0] != vectors[1]);
    let (_, coded) = server.post("/v1/embeddings", &json!({ "input": "a", "encoding_format": "base64" }));
    assert_eq!(coded["data"][0]["embedding"].as_str().unwrap().len(), (256 * 4_usize).div_ceil(3) * 4);

    // Only the state of the server needs no key.
    for (request, status) in [
        ("GET /health HTTP/1.1\r\n", 200),
        ("GET /v1/models HTTP/1.1\r\n", 401),
        ("GET /v1/models HTTP/1.1\r\nAuthorization: Bearer a-kex\r\n", 401),
        ("GET /metrics HTTP/1.1\r\nAuthorization: bearer a-key\r\n", 200),
    ] {
        let answer = server.raw(&format!("{request}Host: localhost\r\nConnection: close\r\n\r\n"));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {answer}");
        assert_eq!(answer.contains("\"invalid_api_key\""), status == 401);
    }
    let (_, metrics) = server.request("GET /metrics", "");
    for line in [
        "orin_llm_requests_total{path=\"/v1/completions\",code=\"200\"} 7",
        "orin_llm_requests_total{path=\"/v1/models\",code=\"401\"} 2",
        "orin_llm_first_token_seconds_count 11",
        "# TYPE orin_llm_answer_seconds summary",
        "orin_llm_context_capacity_tokens 128",
        "orin_llm_answers_running 0",
    ] {
        assert!(metrics.lines().any(|own| own == line), "{line} in {metrics}");
    }
    end_with_an_answer(server);
}

/// Ends a server in the middle of an answer, which it completes; others are refused.
fn end_with_an_answer(mut server: Server) {
    let body = json!({ "prompt": "The", "max_tokens": 12, "temperature": 0, "stream": true }).to_string();
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let length = body.len();
    let head =
        format!("Host: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer {KEY}\r\n");
    write!(stream, "POST /v1/completions HTTP/1.1\r\n{head}Content-Length: {length}\r\n\r\n{body}").unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.starts_with("data: ")));
    kill_process(Pid::from_child(&server.child), Signal::TERM).unwrap();
    let rest: Vec<String> = lines.collect();
    let has = |text: &str| rest.iter().any(|line| line.contains(text));
    assert!(has("data: [DONE]") && has("\"finish_reason\":\"length\""), "{rest:#?}");
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    assert!(TcpStream::connect(&server.address).is_err());
}
