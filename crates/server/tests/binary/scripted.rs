//! A server that speaks the protocols of embedding engines and of rerankers as their documents say, and does wrong
//! what it is told to. Its vectors have a meaning: texts about the same thing in any words point the same way.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};

/// Components of its vectors.
pub(crate) const DIMENSION: usize = 8;

/// Components of the vectors of [`Mood::Wide`].
pub(crate) const WIDE: usize = 12;

/// What it does with a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Mood {
    /// What the document of its protocol says.
    Good,
    /// Fails the whole call with HTTP 500 if a text has this word, as Ollama does over a vector that is not a
    /// number.
    FailsOver(&'static str),
    /// Refuses the whole call with HTTP 400 if a text has this word.
    RefusesOver(&'static str),
    /// Closes the connection if a text has this word, as a server that dies over it.
    ClosesOver(&'static str),
    /// Answers with a status only if a text has this word, as a gateway that holds it for an attack.
    StatusOver(&'static str, u16),
    /// Takes so long for a call if a text has this word.
    SlowOver(&'static str, Duration),
    /// The vector of a text with this word has this JSON for its first component.
    Component(&'static str, &'static str),
    /// The vector of a text with this word has no length.
    Zero(&'static str),
    /// Items in another order, with their numbers.
    Shuffled,
    /// Two items with the same number.
    Doubled,
    /// One vector fewer than texts.
    OneMissing,
    /// Vectors with so many components.
    Components(usize),
    /// Vectors that are a thousand times too long.
    Long,
    /// Not the document of the protocol.
    Body(&'static str),
    /// Says that more bytes follow than do.
    Cut,
    /// Bytes without an end.
    Endless,
    /// Sends elsewhere.
    Redirect(String),
    /// Only a status, and how many seconds it wants to be left alone.
    Status(u16, Option<u32>),
    /// Takes so long for each text.
    Slow(Duration),
    /// Refuses more texts than this in one call, as Text Embeddings Inference does.
    AtMost(usize),
    /// Refuses texts that are longer than this, in bytes.
    Longest(usize),
    /// Answers right, for another model: the same words point elsewhere.
    AnotherModel,
    /// Answers right, for a model with more components ([`WIDE`]) in which each topic points where another one does
    /// in the usual model, and takes so long for each text.
    Wide(Duration),
    /// Takes no connection for an answer: closes at once.
    Closes,
}

/// A call as it came.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) path: String,
    pub(crate) authorization: Option<String>,
    pub(crate) body: Value,
}

impl Call {
    pub(crate) fn texts(&self) -> Vec<String> {
        let names = ["input", "inputs", "texts", "documents"];
        let texts = names.iter().find_map(|name| self.body.get(name)).unwrap();
        texts.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
    }
}

/// Who is spoken to, with TLS or without.
trait Peer: Read + Write {}

impl<T: Read + Write> Peer for T {}

#[derive(Debug)]
struct Shared {
    mood: Mood,
    calls: Vec<Call>,
    /// Calls under way, and the most there were.
    busy: (usize, usize),
}

/// The running server.
#[derive(Debug, Clone)]
pub(crate) struct Scripted {
    pub(crate) url: String,
    shared: Arc<Mutex<Shared>>,
}

impl Scripted {
    pub(crate) fn start(mood: Mood) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap(), mood)
    }

    /// The same with TLS, by a certificate and its key in PEM files.
    pub(crate) fn secure(certificate: &Path, key: &Path) -> Self {
        let certificate = CertificateDer::from_pem_file(certificate).unwrap();
        let key = PrivateKeyDer::from_pem_file(key).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let served = Self::over(listener, Mood::Good, move |each, socket| {
            let session = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = rustls::StreamOwned::new(session, socket);
            each.serve(&mut stream);
            stream.conn.send_close_notify();
            let _ = stream.flush();
        });
        Self { url: served.url.replace("http:", "https:"), ..served }
    }

    /// The same on an address that is known before.
    pub(crate) fn on(listener: TcpListener, mood: Mood) -> Self {
        Self::over(listener, mood, |each, mut socket| each.serve(&mut socket))
    }

    fn over(
        listener: TcpListener,
        mood: Mood,
        serve: impl Fn(&Self, TcpStream) + Clone + Send + 'static,
    ) -> Self {
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Mutex::new(Shared { mood, calls: Vec::new(), busy: (0, 0) }));
        let served = Self { url, shared };
        let each = served.clone();
        let accept = move || {
            for socket in listener.incoming().flatten() {
                let (each, serve) = (each.clone(), serve.clone());
                let _ = std::thread::Builder::new().spawn(move || serve(&each, socket));
            }
        };
        let _ = std::thread::Builder::new().spawn(accept).unwrap();
        served
    }

    pub(crate) fn be(&self, mood: Mood) {
        self.shared.lock().unwrap().mood = mood;
    }

    /// The calls since this was asked last.
    pub(crate) fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.shared.lock().unwrap().calls)
    }

    /// The most calls that were under way at once.
    pub(crate) fn most_at_once(&self) -> usize {
        self.shared.lock().unwrap().busy.1
    }

    fn serve(&self, socket: &mut impl Peer) {
        let Some(call) = read(socket) else { return };
        let mood = {
            let mut shared = self.shared.lock().unwrap();
            shared.calls.push(call.clone());
            shared.busy.0 += 1;
            shared.busy.1 = shared.busy.1.max(shared.busy.0);
            shared.mood.clone()
        };
        // A caller that gave up closed the socket.
        let _ = answer(socket, &call, &mood);
        self.shared.lock().unwrap().busy.0 -= 1;
    }
}

fn read(socket: &mut impl Peer) -> Option<Call> {
    let mut lines = BufReader::new(socket);
    let mut line = String::new();
    lines.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let (mut length, mut authorization) = (0, None);
    loop {
        let mut line = String::new();
        lines.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().ok()?,
            "authorization" => authorization = Some(value.to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    lines.read_exact(&mut body).ok()?;
    Some(Call { path, authorization, body: serde_json::from_slice(&body).ok()? })
}

fn answer(socket: &mut impl Peer, call: &Call, mood: &Mood) -> std::io::Result<()> {
    let texts = call.texts();
    let has = |word: &str| texts.iter().any(|text| text.contains(word));
    match mood {
        Mood::Closes => Ok(()),
        Mood::Status(status, wait) => {
            let wait = wait.map(|seconds| format!("retry-after: {seconds}\r\n")).unwrap_or_default();
            // As careless servers do, it repeats what it was sent.
            respond(socket, *status, &wait, &call.body.to_string())
        }
        Mood::Redirect(to) => respond(socket, 307, &format!("location: {to}\r\n"), ""),
        Mood::FailsOver(word) if has(word) => {
            respond(socket, 500, "", r#"{"error":"failed to encode response: json: unsupported value: NaN"}"#)
        }
        Mood::RefusesOver(word) if has(word) => respond(socket, 400, "", r#"{"error":"blocked"}"#),
        Mood::ClosesOver(word) if has(word) => Ok(()),
        Mood::StatusOver(word, status) if has(word) => respond(socket, *status, "", "blocked"),
        Mood::SlowOver(word, each) if has(word) => {
            std::thread::sleep(*each);
            respond(socket, 200, "", &document(call, mood))
        }
        Mood::AtMost(most) if texts.len() > *most => {
            respond(socket, 413, "", r#"{"error":"batch size > maximum allowed batch size"}"#)
        }
        Mood::Longest(longest) if texts.iter().any(|text| text.len() > *longest) => {
            respond(socket, 400, "", r#"{"error":"the input length exceeds the context length"}"#)
        }
        Mood::Body(body) => respond(socket, 200, "", body),
        Mood::Cut => {
            let body = document(call, mood);
            write!(socket, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len() + 100)
        }
        Mood::Endless => {
            write!(socket, "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n[[")?;
            loop {
                socket.write_all(&b"0.1,".repeat(16 * 1024))?;
            }
        }
        Mood::Slow(each) | Mood::Wide(each) => {
            std::thread::sleep(*each * u32::try_from(texts.len()).unwrap());
            respond(socket, 200, "", &document(call, mood))
        }
        Mood::Good
        | Mood::FailsOver(_)
        | Mood::RefusesOver(_)
        | Mood::ClosesOver(_)
        | Mood::StatusOver(..)
        | Mood::SlowOver(..)
        | Mood::Component(..)
        | Mood::Zero(_)
        | Mood::Shuffled
        | Mood::Doubled
        | Mood::OneMissing
        | Mood::Components(_)
        | Mood::Long
        | Mood::AtMost(_)
        | Mood::Longest(_)
        | Mood::AnotherModel => {
            let document = document(call, mood);
            if call.path == "/api/embed" {
                in_pieces(socket, &document)
            } else {
                respond(socket, 200, "", &document)
            }
        }
    }
}

/// An answer in pieces, as servers send it that write while they encode.
fn in_pieces(socket: &mut impl Peer, body: &str) -> std::io::Result<()> {
    write!(socket, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n")?;
    for piece in body.as_bytes().chunks(50) {
        write!(socket, "{:x}\r\n", piece.len())?;
        socket.write_all(piece)?;
        write!(socket, "\r\n")?;
    }
    write!(socket, "0\r\n\r\n")
}

fn respond(socket: &mut impl Peer, status: u16, headers: &str, body: &str) -> std::io::Result<()> {
    write!(
        socket,
        "HTTP/1.1 {status} .\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n{headers}\r\n{body}",
        body.len()
    )
}

/// The document of the protocol that the path is of.
fn document(call: &Call, mood: &Mood) -> String {
    if call.path.ends_with("/rerank") {
        return reranked(call, mood);
    }
    let mut vectors: Vec<String> = call.texts().iter().map(|text| vector(text, mood)).collect();
    if *mood == Mood::OneMissing {
        vectors.pop();
    }
    match call.path.as_str() {
        "/embed" => format!("[{}]", vectors.join(",")),
        "/api/embed" => format!(r#"{{"model":"m","embeddings":[{}],"total_duration":1}}"#, vectors.join(",")),
        _ => {
            let mut items: Vec<String> = vectors
                .iter()
                .enumerate()
                .map(|(n, vector)| {
                    let index = if *mood == Mood::Doubled { 0 } else { n };
                    format!(r#"{{"object":"embedding","index":{index},"embedding":{vector}}}"#)
                })
                .collect();
            if *mood == Mood::Shuffled {
                items.reverse();
            }
            format!(
                r#"{{"object":"list","data":[{}],"model":"m","usage":{{"total_tokens":1}}}}"#,
                items.join(",")
            )
        }
    }
}

/// Texts by how well they answer the query, best first, as rerankers answer.
fn reranked(call: &Call, mood: &Mood) -> String {
    let numbers = |text: &str| serde_json::from_str::<Vec<f64>>(&vector(text, &Mood::Good)).unwrap();
    let query = numbers(call.body["query"].as_str().unwrap());
    let is_tei = call.path == "/rerank";
    let name = if is_tei { "score" } else { "relevance_score" };
    let product = |text: &String| query.iter().zip(numbers(text)).map(|(a, b)| a * b).sum::<f64>();
    let mut scored: Vec<(usize, f64)> = call.texts().iter().map(product).enumerate().collect();
    scored.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    if *mood == Mood::OneMissing {
        scored.pop();
    }
    let texts = call.texts();
    let one = |(at, score): &(usize, f64)| {
        let score = if let Mood::Component(word, number) = mood
            && texts[*at].contains(word)
        {
            (*number).to_owned()
        } else {
            score.to_string()
        };
        let at = if *mood == Mood::Doubled { 0 } else { *at };
        format!(r#"{{"index":{at},"{name}":{score}}}"#)
    };
    let places = scored.iter().map(one).collect::<Vec<_>>().join(",");
    if is_tei { format!("[{places}]") } else { format!(r#"{{"model":"m","results":[{places}]}}"#) }
}

/// Things that are talked about, in several languages.
const TOPICS: [&[&str]; 4] = [
    &["vertrag", "vereinbarung", "contract", "agreement"],
    &["garten", "rosen", "garden", "roses"],
    &["schiff", "ship", "vessel", "hafen", "harbour"],
    &["tee", "tea", "kaffee", "coffee"],
];

/// The vector of a text as JSON.
fn vector(text: &str, mood: &Mood) -> String {
    let lower = text.to_lowercase();
    let mut numbers = [0.01_f64; DIMENSION];
    for (topic, number) in TOPICS.iter().zip(&mut numbers) {
        *number += f64::from(u8::from(topic.iter().any(|word| lower.contains(word))));
    }
    // What is about nothing known differs by its length.
    if let Some(last) = numbers.last_mut() {
        *last += (text.len() % 7) as f64 / 100.0;
    }
    if *mood == Mood::AnotherModel {
        numbers.reverse();
    }
    let mut numbers = numbers.to_vec();
    if matches!(mood, Mood::Wide(_)) {
        // Whoever compared the first components would take contracts for tea and gardens for ships.
        numbers.swap(0, 3);
        numbers.swap(1, 2);
        numbers.resize(WIDE, 0.01);
    }
    let scale = if *mood == Mood::Long { 1_000.0 } else { 1.0 };
    let mut numbers: Vec<Value> = numbers.iter().map(|number| json!(number * scale)).collect();
    if let Mood::Components(n) = mood {
        numbers.resize(*n, json!(0.5));
    }
    if matches!(mood, Mood::Zero(word) if text.contains(word)) {
        numbers.fill(json!(0.0));
    }
    if let Mood::Component(word, number) = mood
        && text.contains(word)
    {
        let rest: Vec<String> = numbers.iter().skip(1).map(ToString::to_string).collect();
        return format!("[{number},{}]", rest.join(","));
    }
    Value::Array(numbers).to_string()
}
