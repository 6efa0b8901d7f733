//! A reference to a person and what was said cannot be written into a message (I-12).

use merkwelt_domain::{Content, SubjectRef};

fn message(subject: &SubjectRef, text: &Content) -> String {
    format!("{subject} said {text}")
}

fn main() {
    let _ = message;
}
