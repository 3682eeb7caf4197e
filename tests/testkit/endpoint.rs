//! A model endpoint that plays a script: the Messages API with server-sent events, on loopback, over plain HTTP/1.1.
//!
//! Each turn is text or one call of the tool `Bash`. Which turn is next is read from the request alone (how many of the
//! script's own calls have a result in it), so that a repeated request gets the same answer. Every request is kept.

use crate::tls::Identity;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What the model says next.
#[derive(Debug, Clone)]
pub enum Turn {
    /// Text, and its turn ends.
    Text(String),
    /// A call of `Bash` with this command.
    Bash(String),
}

impl Turn {
    /// A call of `Bash`.
    pub fn bash(command: impl Into<String>) -> Self {
        Self::Bash(command.into())
    }
}

/// One request as it came.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Method and path.
    pub head: String,
    /// Body as JSON, null where there was none.
    pub body: Value,
    /// The key that it came with, by `x-api-key` or as a bearer token.
    pub key: Option<String>,
}

struct Shared {
    script: Vec<Turn>,
    asked: Mutex<Vec<Asked>>,
    transcript: PathBuf,
    stop: AtomicBool,
}

/// A running endpoint. Dropping it stops it.
pub struct Endpoint {
    port: u16,
    shared: Arc<Shared>,
}

impl Endpoint {
    /// Starts one on a free port of 127.0.0.1. The requests are also written to `transcript`, one JSON object a line.
    pub fn start(script: Vec<Turn>, transcript: &Path) -> Self {
        Self::begin(script, transcript, None)
    }

    /// The same over TLS.
    pub fn start_tls(script: Vec<Turn>, transcript: &Path, identity: &Identity) -> Self {
        Self::begin(script, transcript, Some(Arc::clone(&identity.config)))
    }

    fn begin(script: Vec<Turn>, transcript: &Path, tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port");
        let port = listener.local_addr().expect("a listener has an address").port();
        std::fs::write(transcript, "").unwrap_or_else(|e| panic!("{}: {e}", transcript.display()));
        let shared =
            Arc::new(Shared { script, asked: Mutex::default(), transcript: transcript.to_owned(), stop: AtomicBool::new(false) });
        let for_thread = Arc::clone(&shared);
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                if for_thread.stop.load(Ordering::SeqCst) {
                    break;
                }
                let Ok(connection) = connection else { continue };
                let (shared, tls) = (Arc::clone(&for_thread), tls.clone());
                std::thread::spawn(move || {
                    let ready = connection.set_read_timeout(Some(Duration::from_secs(300))).and(connection.set_nodelay(true));
                    ready.expect("a connection has options");
                    // A client that goes away in the middle is its own affair.
                    drop(match tls {
                        None => serve(&shared, connection),
                        Some(config) => {
                            let session = ServerConnection::new(config).expect("a server can be set up");
                            serve(&shared, StreamOwned::new(session, connection))
                        }
                    });
                });
            }
        });
        Self { port, shared }
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Everything asked up to now.
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().expect("no server thread panics").clone()
    }

    /// Results of the script's calls as the newest request that has them tells, in order of the script.
    pub fn results(&self) -> Vec<String> {
        let mut results = Vec::new();
        for asked in self.asked() {
            for (call, text) in tool_results(&asked.body) {
                if results.len() <= call {
                    results.resize(call + 1, String::new());
                }
                results[call] = text;
            }
        }
        results
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        // Wakes the accepting thread, which then sees that it is over.
        drop(TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)));
    }
}

const CALL: &str = "toolu_scripted";

/// The script's calls that have a result in a request: number of the call and the result's text.
fn tool_results(body: &Value) -> Vec<(usize, String)> {
    let messages = body["messages"].as_array().cloned().unwrap_or_default();
    let blocks = messages.iter().filter_map(|m| m["content"].as_array()).flatten();
    blocks
        .filter(|b| b["type"] == "tool_result")
        .filter_map(|b| {
            let call = b["tool_use_id"].as_str()?.strip_prefix(CALL)?.parse().ok()?;
            let text = match &b["content"] {
                Value::String(s) => s.clone(),
                parts => parts.as_array()?.iter().filter_map(|p| p["text"].as_str()).collect(),
            };
            Some((call, text))
        })
        .collect()
}

fn serve(shared: &Shared, connection: impl Read + Write) -> std::io::Result<()> {
    let mut reader = BufReader::new(connection);
    loop {
        let mut head = String::new();
        if reader.read_line(&mut head)? == 0 {
            return Ok(());
        }
        let (mut length, mut chunked, mut key) = (0usize, false, None);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let written = line.trim_end();
            let line = written.to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            for name in ["x-api-key:", "authorization: bearer"] {
                if line.starts_with(name) {
                    key = Some(written[name.len()..].trim().to_owned());
                }
            }
            if let Some(n) = line.strip_prefix("content-length:") {
                length = n.trim().parse().unwrap_or(0);
            }
            chunked |= line.starts_with("transfer-encoding:") && line.contains("chunked");
            if line.starts_with("expect:") {
                reader.get_mut().write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
                reader.get_mut().flush()?;
            }
        }
        let mut bytes = Vec::new();
        if chunked {
            loop {
                let mut size = String::new();
                reader.read_line(&mut size)?;
                let n = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
                let mut part = vec![0; n + 2];
                reader.read_exact(&mut part)?;
                if n == 0 {
                    break;
                }
                bytes.extend_from_slice(&part[..n]);
            }
        } else {
            bytes.resize(length, 0);
            reader.read_exact(&mut bytes)?;
        }
        let head = head.trim_end().trim_end_matches(" HTTP/1.1").to_owned();
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        record(shared, &head, &body, key)?;
        answer(shared, reader.get_mut(), &head, &body)?;
        reader.get_mut().flush()?;
    }
}

fn record(shared: &Shared, head: &str, body: &Value, key: Option<String>) -> std::io::Result<()> {
    let mut asked = shared.asked.lock().expect("no server thread panics");
    asked.push(Asked { head: head.to_owned(), body: body.clone(), key });
    let mut file = std::fs::OpenOptions::new().append(true).open(&shared.transcript)?;
    writeln!(file, "{}", json!({ "head": head, "body": body }))
}

fn answer(shared: &Shared, to: &mut impl Write, head: &str, body: &Value) -> std::io::Result<()> {
    let path = head.split(' ').nth(1).unwrap_or("/").split('?').next().unwrap_or("/");
    match path {
        "/v1/messages" if head.starts_with("POST") => {
            let model = body["model"].as_str().unwrap_or("scripted");
            let turn = turn_for(shared, body);
            if body["stream"] == true { stream(to, model, turn) } else { whole(to, model, turn) }
        }
        "/v1/messages/count_tokens" => plain(to, 200, &json!({ "input_tokens": 10 }), head),
        "/v1/models" => plain(to, 200, &json!({ "data": [], "has_more": false, "first_id": null, "last_id": null }), head),
        "/" => plain(to, 200, &json!({}), head),
        _ => plain(
            to,
            404,
            &json!({ "type": "error", "error": { "type": "not_found_error", "message": "the script has no such page" } }),
            head,
        ),
    }
}

/// The script's turn for this request: number and content. A request without the tool (a title, a summary) gets a short text.
fn turn_for(shared: &Shared, body: &Value) -> (usize, Turn) {
    let has_tool = body["tools"].as_array().is_some_and(|t| t.iter().any(|t| t["name"] == "Bash"));
    if !has_tool {
        return (0, Turn::Text("Scripted".into()));
    }
    let calls: Vec<usize> = (0..shared.script.len()).filter(|i| matches!(shared.script[*i], Turn::Bash(_))).collect();
    let done = tool_results(body).iter().map(|(call, _)| *call).max();
    let next = done.map_or(0, |call| calls.get(call).map_or(shared.script.len(), |at| at + 1));
    let turn = shared.script.get(next).cloned().unwrap_or_else(|| Turn::Text("Done.".into()));
    let number = calls.iter().filter(|at| **at < next).count();
    (number, turn)
}

fn plain(to: &mut impl Write, status: u16, body: &Value, head: &str) -> std::io::Result<()> {
    let body = body.to_string();
    let reason = if status == 200 { "OK" } else { "Not Found" };
    write!(to, "HTTP/1.1 {status} {reason}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len())?;
    if head.starts_with("HEAD") { Ok(()) } else { to.write_all(body.as_bytes()) }
}

fn message(model: &str, number: usize) -> Value {
    json!({
        "id": format!("msg_scripted{number}"), "type": "message", "role": "assistant", "model": model, "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": { "input_tokens": 10, "output_tokens": 1 },
    })
}

fn whole(to: &mut impl Write, model: &str, (number, turn): (usize, Turn)) -> std::io::Result<()> {
    let mut message = message(model, number);
    let (block, reason) = match turn {
        Turn::Text(text) => (json!({ "type": "text", "text": text }), "end_turn"),
        Turn::Bash(command) => (tool_use(number, json!({ "command": command, "description": "a scripted step" })), "tool_use"),
    };
    message["content"] = json!([block]);
    message["stop_reason"] = reason.into();
    plain(to, 200, &message, "POST")
}

fn tool_use(number: usize, input: Value) -> Value {
    json!({ "type": "tool_use", "id": format!("{CALL}{number}"), "name": "Bash", "input": input })
}

fn stream(to: &mut impl Write, model: &str, (number, turn): (usize, Turn)) -> std::io::Result<()> {
    to.write_all(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n",
    )?;
    event(to, "message_start", json!({ "message": message(model, number) }))?;
    let reason = match turn {
        Turn::Text(text) => {
            event(to, "content_block_start", json!({ "index": 0, "content_block": { "type": "text", "text": "" } }))?;
            event(to, "content_block_delta", json!({ "index": 0, "delta": { "type": "text_delta", "text": text } }))?;
            "end_turn"
        }
        Turn::Bash(command) => {
            event(to, "content_block_start", json!({ "index": 0, "content_block": tool_use(number, json!({})) }))?;
            let input = json!({ "command": command, "description": "a scripted step" }).to_string();
            // In two pieces, as a real model sends it.
            let pieces: Vec<char> = input.chars().collect();
            for piece in pieces.chunks(pieces.len() / 2 + 1).map(String::from_iter) {
                let delta = json!({ "type": "input_json_delta", "partial_json": piece });
                event(to, "content_block_delta", json!({ "index": 0, "delta": delta }))?;
            }
            "tool_use"
        }
    };
    event(to, "content_block_stop", json!({ "index": 0 }))?;
    let delta = json!({ "stop_reason": reason, "stop_sequence": null });
    event(to, "message_delta", json!({ "delta": delta, "usage": { "output_tokens": 20 } }))?;
    event(to, "message_stop", json!({}))?;
    to.write_all(b"0\r\n\r\n")
}

fn event(to: &mut impl Write, name: &str, mut data: Value) -> std::io::Result<()> {
    data["type"] = name.into();
    let text = format!("event: {name}\ndata: {data}\n\n");
    write!(to, "{:x}\r\n{text}\r\n", text.len())
}
