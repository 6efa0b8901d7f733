//! A reference to a person is parsed, so it is neither empty nor a wildcard.

use merkwelt_domain::SubjectRef;

fn main() {
    let _ = SubjectRef("*".to_owned());
}
