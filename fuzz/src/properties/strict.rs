//! The JSON reader of the HTTP face: as strict as the document of the API says, without an echo.

use merkwelt_server::http::problem::Code;
use merkwelt_server::http::strict::{DEPTH_MAX, parse};
use serde_json::Value;

/// A body that is read means what it means to others, survives being written, and is not too deep. A refusal
/// says where in words of the program.
pub(crate) fn strict(bytes: &[u8]) {
    match parse::<Value>(bytes) {
        Ok(value) => {
            assert_eq!(serde_json::from_slice::<Value>(bytes).unwrap(), value);
            assert!(depth(&value) <= DEPTH_MAX);
            let written = serde_json::to_vec(&value).unwrap();
            assert_eq!(parse::<Value>(&written).unwrap(), value, "a body changes when it is kept");
        }
        Err(problem) => {
            let response = problem.write("req_x");
            let code = problem.code();
            assert!([Code::MALFORMED_JSON, Code::TOO_DEEP].contains(&code), "{code:?}");
            assert_eq!(response.status(), 400);
            let told = format!("{problem:?}");
            let plain = |c: char| c.is_ascii() && !c.is_ascii_control();
            assert!(told.chars().all(plain) && told.len() < 700, "{told}");
        }
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}
