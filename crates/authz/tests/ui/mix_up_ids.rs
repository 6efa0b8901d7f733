//! An id of one type is no id of another.

use merkwelt_domain::{GroupId, SubjectId};

fn members(_group: &GroupId) {}

fn misuse(subject: &SubjectId) {
    members(subject);
}

fn main() {
    let _ = misuse;
}
