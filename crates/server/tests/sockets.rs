//! The face behind real sockets, with callers that open many connections, say little, or send slowly. None of
//! them keeps the others out.
#![cfg(test)]

#[path = "http/stage.rs"]
#[expect(dead_code, reason = "each test file uses its part of the stage")]
mod stage;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use merkwelt_server::http::{Limits, serve};
use serde_json::json;
use stage::Stage;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Far more than any answer here takes, even on a busy machine.
const SOON: Duration = Duration::from_secs(10);

/// A stage that listens on a port of this machine.
struct Served {
    stage: Stage,
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinSet<()>,
}

impl Served {
    async fn start(limits: Limits) -> Self {
        let stage = Stage::with(limits);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let mut task = JoinSet::new();
        let router = stage.router.clone();
        task.spawn(serve(listener, router, limits, async { stopped.await.unwrap_or_default() }));
        Self { stage, address, stop, task }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn sent(&self, text: &str) -> TcpStream {
        let socket = self.connect().await;
        say(&socket, text).await;
        socket
    }

    /// A write of `key` whose body is complete.
    fn write(key: &str) -> String {
        let body = json!({ "kind": "user_fact", "text": "Likes tea" }).to_string();
        format!("{}{body}", Self::head(key, body.len()))
    }

    /// A write whose body comes later or never.
    fn head(key: &str, length: usize) -> String {
        format!(
            "POST /v1/memories HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\nmerkwelt-subject: anna\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
        )
    }
}

/// Writes all of a text, which fits the socket's buffer.
async fn say(socket: &TcpStream, text: &str) {
    socket.writable().await.unwrap();
    assert_eq!(socket.try_write(text.as_bytes()).unwrap(), text.len());
}

/// The next bytes; none when the other side has closed. A connection that is reset is closed too.
async fn some(socket: &TcpStream) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    loop {
        socket.readable().await.unwrap();
        match socket.try_read(&mut bytes) {
            Ok(n) => return bytes[..n].to_vec(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return Vec::new(),
        }
    }
}

/// What comes until `enough`, or the other side closes.
async fn until(socket: &TcpStream, enough: impl Fn(&str) -> bool) -> String {
    let mut answered = String::new();
    while !enough(&answered) {
        let bytes = timeout(SOON, some(socket)).await.expect("the service does not answer");
        if bytes.is_empty() {
            break;
        }
        answered += std::str::from_utf8(&bytes).unwrap();
    }
    answered
}

async fn rest(socket: &TcpStream) -> String {
    until(socket, |_| false).await
}

async fn head(socket: &TcpStream) -> String {
    until(socket, |answered| answered.contains("\r\n\r\n")).await
}

const HEALTH: &str = "GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";

#[tokio::test]
async fn half_a_head_is_not_waited_for() {
    let limits = Limits { header_timeout: Duration::from_millis(100), ..Limits::default() };
    let served = Served::start(limits).await;
    for said in ["", "GET /healthz HT", "GET /healthz HTTP/1.1\r\nhost: x\r\nx-slow: "] {
        let socket = served.sent(said).await;
        let answered = rest(&socket).await;
        assert!(!answered.contains(" 200 "), "{answered}");
    }
    assert!(rest(&served.sent(HEALTH).await).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn many_who_say_little_keep_nobody_out() {
    let served = Served::start(Limits { connections: 8, ..Limits::default() }).await;
    let mut half_open = Vec::new();
    for round in 0..5 {
        for _ in 0..20 {
            half_open.push(served.sent("GET /v1/memories HTTP/1.1\r\nhost: x\r\nx-slow: ").await);
        }
        let answered = rest(&served.sent(HEALTH).await).await;
        assert!(answered.starts_with("HTTP/1.1 200 "), "round {round}: {answered}");
    }
    // Those that gave way are closed, so the service holds no more than it may.
    let mut n_open = 0;
    for socket in &half_open {
        let closed = timeout(Duration::from_millis(20), some(socket)).await;
        n_open += usize::from(closed.is_err());
    }
    assert!(n_open <= 8, "{n_open} are open");
}

#[tokio::test]
async fn a_connection_at_work_is_not_given_away() {
    let served = Served::start(Limits { connections: 1, ..Limits::default() }).await;
    let whole = Served::write(served.stage.key(merkwelt_authz::Role::App));
    let (first, second) = whole.split_at(whole.len() - 5);
    // The answer of a small request shows that the head of the first was read before the second came.
    let at_work = served.sent(first).await;
    let refused = loop {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let metrics = served.stage.call("GET", "/metrics").send().await;
        if metrics.text().contains("merkwelt_http_requests_in_flight 2\n") {
            break served.sent(HEALTH).await;
        }
    };
    assert_eq!(rest(&refused).await, "", "there is no place for a second one");
    say(&at_work, second).await;
    assert!(rest(&at_work).await.starts_with("HTTP/1.1 201 "));
}

#[tokio::test]
async fn slow_bodies_of_one_tenant_do_not_stop_another() {
    let limits = Limits {
        concurrent_requests: 2,
        key_requests: 6,
        tenant_requests: 6,
        body_timeout: Duration::from_secs(2),
        ..Limits::default()
    };
    let served = Served::start(limits).await;
    let (_, other) = served.stage.second_tenant("globex").await;
    let slow = Served::head(served.stage.key(merkwelt_authz::Role::App), 100);
    let mut slow_ones = Vec::new();
    for _ in 0..6 {
        slow_ones.push(served.sent(&slow).await);
    }
    // Six are under way, three times as many as may be at work; the seventh of this key is told to wait.
    let mut seventh = String::new();
    for _ in 0..200 {
        let socket = served.sent(&Served::write(served.stage.key(merkwelt_authz::Role::App))).await;
        seventh = head(&socket).await;
        if seventh.starts_with("HTTP/1.1 429 ") {
            break;
        }
    }
    assert!(seventh.starts_with("HTTP/1.1 429 ") && seventh.contains("retry-after: 1\r\n"), "{seventh}");
    for _ in 0..5 {
        let answered = rest(&served.sent(&Served::write(&other)).await).await;
        assert!(answered.starts_with("HTTP/1.1 20"), "{answered}");
    }
    for socket in &slow_ones {
        assert!(rest(socket).await.starts_with("HTTP/1.1 408 "));
    }
    let again = served.sent(&Served::write(served.stage.key(merkwelt_authz::Role::App))).await;
    assert!(rest(&again).await.starts_with("HTTP/1.1 20"), "the shares were given back");
}

#[tokio::test]
async fn who_is_told_to_stop_finishes_what_is_under_way() {
    let mut served = Served::start(Limits::default()).await;
    let whole = Served::write(served.stage.key(merkwelt_authz::Role::App));
    let (first, second) = whole.split_at(whole.len() - 5);
    let under_way = served.sent(first).await;
    let idle = served.sent("").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    served.stop.send(()).unwrap();
    assert_eq!(rest(&idle).await, "", "who asked nothing is not waited for");
    say(&under_way, second).await;
    assert!(rest(&under_way).await.starts_with("HTTP/1.1 201 "));
    timeout(SOON, served.task.join_next()).await.expect("the service does not stop");
    assert!(TcpStream::connect(served.address).await.is_err());
}

#[tokio::test]
async fn an_answer_before_the_whole_body_says_that_the_connection_ends() {
    let served = Served::start(Limits::default()).await;
    let alive = |text: String| text.replace("connection: close\r\n", "");
    let ended = |text: &str| text.contains("\r\n\r\n");
    // The key is wrong, and the body is still on the way.
    let socket = served.sent(&alive(Served::head("mk_wrong", 40))).await;
    let early = timeout(SOON, until(&socket, ended)).await.unwrap();
    assert!(early.starts_with("HTTP/1.1 401") && early.contains("connection: close"), "{early}");
    // The whole body was read: the connection stays.
    let key = served.stage.key(merkwelt_authz::Role::App).to_owned();
    let socket = served.sent(&alive(Served::write(&key))).await;
    let whole = timeout(SOON, until(&socket, ended)).await.unwrap();
    assert!(whole.starts_with("HTTP/1.1 201") && !whole.contains("connection: close"), "{whole}");
}
