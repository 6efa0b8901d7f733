//! A bare HTTP/1.1 client over one kept-alive connection. It sends exactly the bytes it is told, also those
//! that a decent client would refuse: doubled and misspelt headers, strange methods, raw addresses.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;

/// The most bytes of an answer that are read.
const ANSWER_MAX: usize = 1 << 30;

/// A request before it is written.
#[derive(Debug, Clone, Default)]
pub(super) struct Ask {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Option<Vec<u8>>,
}

impl Ask {
    /// A request without a body.
    pub(super) fn new(method: &str, target: &str) -> Self {
        Self { method: method.to_owned(), target: target.to_owned(), ..Self::default() }
    }

    /// With one header more; it may be there already.
    pub(super) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With a key.
    pub(super) fn key(self, key: &str) -> Self {
        self.header("Authorization", &format!("Bearer {key}"))
    }

    /// For a subject.
    pub(super) fn subject(self, name: &str) -> Self {
        self.header("Merkwelt-Subject", &encoded(name))
    }

    /// With a JSON body.
    pub(super) fn json(mut self, body: &Value) -> Self {
        self.body = Some(body.to_string().into_bytes());
        self
    }

    fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name))
    }

    /// The bytes on the wire.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        let mut put = |part: &[u8]| out.extend_from_slice(part);
        put(self.method.as_bytes());
        put(b" ");
        put(self.target.as_bytes());
        put(b" HTTP/1.1\r\n");
        if !self.has("host") {
            put(b"Host: merkwelt\r\n");
        }
        for (name, value) in &self.headers {
            put(name.as_bytes());
            put(b": ");
            put(value.as_bytes());
            put(b"\r\n");
        }
        if let Some(body) = &self.body {
            if !self.has("content-type") {
                put(b"Content-Type: application/json\r\n");
            }
            put(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
            put(body);
        } else {
            put(b"\r\n");
        }
        out
    }
}

/// Header values and parts of addresses are ASCII: everything else is percent-encoded.
pub(super) fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let one = |byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(one).collect()
}

/// What came back.
#[derive(Debug, Clone, Default)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// Status line and headers as they came.
    pub(super) head: Vec<u8>,
    pub(super) body: Vec<u8>,
}

impl Answer {
    pub(super) fn value(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The first header of that name, which is given in lower case.
    pub(super) fn header(&self, name: &str) -> Option<String> {
        header(&self.head, name)
    }

    /// The value if the status says success.
    pub(super) fn success(&self) -> anyhow::Result<Value> {
        if (200..300).contains(&self.status) {
            return Ok(self.value());
        }
        let problem = self.value();
        let detail = problem.get("detail").and_then(Value::as_str).unwrap_or("no detail").to_owned();
        bail!("the service answered {}: {detail}", self.status)
    }
}

fn header(head: &[u8], name: &str) -> Option<String> {
    String::from_utf8_lossy(head).lines().skip(1).find_map(|line| {
        let (given, value) = line.split_once(':')?;
        given.trim().eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
    })
}

/// One connection; it is made anew when it breaks.
#[derive(Debug)]
pub(super) struct Wire {
    address: SocketAddr,
    stream: Option<TcpStream>,
    rest: Vec<u8>,
    /// How often it broke.
    pub(super) broken: u64,
}

impl Wire {
    pub(super) fn to(address: SocketAddr) -> Self {
        Self { address, stream: None, rest: Vec::new(), broken: 0 }
    }

    /// Sends a request and reads its answer.
    ///
    /// # Errors
    /// The service cannot be reached, twice.
    pub(super) fn send(&mut self, ask: &Ask) -> anyhow::Result<Answer> {
        self.raw(&ask.bytes(), ask.method == "HEAD")
    }

    /// The same with bytes.
    pub(super) fn raw(&mut self, bytes: &[u8], without_body: bool) -> anyhow::Result<Answer> {
        match self.once(bytes, without_body) {
            Ok(answer) => Ok(answer),
            Err(_) => {
                // A connection that idled too long or was closed after a malformed request.
                self.broken += 1;
                self.stream = None;
                self.once(bytes, without_body)
            }
        }
    }

    fn once(&mut self, bytes: &[u8], without_body: bool) -> anyhow::Result<Answer> {
        if self.stream.is_none() {
            let stream = TcpStream::connect_timeout(&self.address, Duration::from_secs(10))
                .with_context(|| format!("cannot reach {}", self.address))?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(Duration::from_secs(120)))?;
            self.rest.clear();
            self.stream = Some(stream);
        }
        let stream = self.stream.as_mut().context("no connection")?;
        stream.write_all(bytes)?;
        let mut answer = read_answer(stream, &mut self.rest, without_body)?;
        while answer.status < 200 {
            // `100 Continue` is no answer yet; taken for one, every later answer would be another request's.
            answer = read_answer(stream, &mut self.rest, without_body)?;
        }
        if header(&answer.head, "connection").is_some_and(|value| value.eq_ignore_ascii_case("close")) {
            self.stream = None;
        }
        Ok(answer)
    }
}

fn read_answer(stream: &mut TcpStream, rest: &mut Vec<u8>, without_body: bool) -> anyhow::Result<Answer> {
    let end = loop {
        if let Some(place) = rest.windows(4).position(|window| window == b"\r\n\r\n") {
            break place + 4;
        }
        more(stream, rest)?;
    };
    let head: Vec<u8> = rest.drain(..end).collect();
    let status = head.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    let status: u16 = status.context("no HTTP answer")?;
    let body = if without_body || status == 204 || status == 304 {
        Vec::new()
    } else if let Some(length) = header(&head, "content-length") {
        exactly(stream, rest, length.parse()?)?
    } else if header(&head, "transfer-encoding").is_some() {
        chunked(stream, rest)?
    } else {
        Vec::new()
    };
    Ok(Answer { status, head, body })
}

fn exactly(stream: &mut TcpStream, rest: &mut Vec<u8>, length: usize) -> anyhow::Result<Vec<u8>> {
    if length > ANSWER_MAX {
        bail!("the answer is too large");
    }
    while rest.len() < length {
        more(stream, rest)?;
    }
    Ok(rest.drain(..length).collect())
}

fn chunked(stream: &mut TcpStream, rest: &mut Vec<u8>) -> anyhow::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = loop {
            if let Some(place) = rest.windows(2).position(|window| window == b"\r\n") {
                break place;
            }
            more(stream, rest)?;
        };
        let line = exactly(stream, rest, end + 2)?;
        let size = usize::from_str_radix(String::from_utf8_lossy(&line).trim(), 16)?;
        let chunk = exactly(stream, rest, size + 2)?;
        body.extend_from_slice(chunk.get(..size).unwrap_or_default());
        if size == 0 {
            return Ok(body);
        }
    }
}

fn more(stream: &mut TcpStream, rest: &mut Vec<u8>) -> anyhow::Result<()> {
    let mut buffer = [0u8; 16 * 1024];
    let n = stream.read(&mut buffer)?;
    if n == 0 {
        bail!("the connection was closed");
    }
    rest.extend_from_slice(buffer.get(..n).unwrap_or_default());
    Ok(())
}
