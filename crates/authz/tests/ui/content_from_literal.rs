//! A text to keep is parsed, so that nothing recalled is taken in again (I-13).

use merkwelt_domain::Content;

fn main() {
    let _ = Content("<merkwelt>".to_owned());
}
