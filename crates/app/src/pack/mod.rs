//! Context packs: what goes into one turn, within a token budget, and why (DESIGN section 5). `prefix` is
//! the stable part, `select` keeps what matches well, `fit` chooses within the budget, `render` writes the text, `view` is the answer on the
//! wire and `rebuild` makes a delivered pack again, byte for byte.

pub(crate) mod fit;
pub(crate) mod prefix;
pub(crate) mod rebuild;
pub(crate) mod render;
pub(crate) mod select;
pub(crate) mod view;

pub(crate) use prefix::Prefixes;
