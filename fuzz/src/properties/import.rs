//! The lines of an import file. What the command accepts before it sends the first line, the service accepts.

use std::fmt::Write as _;

use merkwelt_domain::Timestamp;
use merkwelt_server::cli::import::checked;
use serde_json::json;

use super::face::stage::{NOW_MILLIS, Stage};
use super::face::wait;

/// Lines that are asked of the service, which takes longer than checking them.
const ASKED_MAX: usize = 4;

/// Every line is counted once; an accepted one is accepted by the service, a refused one is refused by it.
pub(crate) fn import(bytes: &[u8]) {
    let now = Timestamp::from_millis(NOW_MILLIS);
    let lines: Vec<_> = checked(bytes, Some("anna"), now).map_while(Result::ok).collect();
    assert!(lines.windows(2).all(|pair| pair[0].0 < pair[1].0), "lines are counted upwards");
    let all: Vec<_> = bytes.split(|byte| *byte == b'\n').collect();
    let mut stage = None;
    for (number, outcome) in lines.into_iter().take(ASKED_MAX) {
        let text = std::str::from_utf8(all[usize::try_from(number).unwrap() - 1]).unwrap().trim();
        assert!(!text.is_empty());
        let (subject, memory) = match outcome {
            Ok((subject, memory)) => (subject.unwrap_or_else(|| "anna".to_owned()), memory),
            Err(fault) => {
                // What is wrong is told in words of the program, on one line.
                assert!(!fault.to_string().contains('\n'), "{fault}");
                continue;
            }
        };
        let stage = stage.get_or_insert_with(Stage::new);
        let body = json!({ "memories": [memory] });
        let call = stage.app("POST", "/v1/memories/batch", &percent(&subject)).json(&body);
        let answer = wait(call.send());
        // Groups and conversations are looked up by the service only.
        let named = memory.get("conversation").is_some() || memory["owner"].get("group").is_some();
        let status = answer.status.as_u16();
        assert!(status == 200 || (named && status == 404), "{status}: {}", answer.text());
        if status == 200 {
            assert_eq!(answer.value()["outcomes"].as_array().map(Vec::len), Some(1));
        }
    }
}

fn percent(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "%{byte:02x}");
        out
    })
}
