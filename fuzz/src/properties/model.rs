//! The model file and the tokenizer in it. The door to them exists in tests and under the fuzzer only, because
//! no build opens a model whose digest was not checked.

use std::sync::LazyLock;

use merkwelt_inference::native::E5;
use merkwelt_inference::{Embedder as _, Role, tokens::counter};

const TEXTS: [&str; 3] = ["", "ab abc\tüu\u{308} ﬁ \u{200b}日本 zz", "x y z a b c x y z a b c x y z a b c"];

/// The smallest whole model, from the corpus.
const SMALL: &[u8] = include_bytes!("../../corpus/model/small.bin");

/// A file is refused or gives vectors of length one, the same each time and on every kind of processor.
pub(crate) fn model(bytes: &[u8]) {
    let Ok(fast) = E5::unverified(bytes.to_vec(), false) else { return };
    let plain = E5::unverified(bytes.to_vec(), true).expect("a file is read the same way twice");
    for role in [Role::Query, Role::Passage] {
        let embedded = fast.embed(role, &TEXTS);
        assert_eq!(embedded, fast.embed(role, &TEXTS));
        assert_eq!(embedded, plain.embed(role, &TEXTS), "{} differs", fast.instructions());
        for vector in embedded.into_iter().flatten() {
            assert_eq!(vector.dimension(), fast.descriptor().dimension());
            let length: f64 = vector.as_slice().iter().map(|x| f64::from(*x).powi(2)).sum();
            assert!((length - 1.0).abs() < 1e-3, "length {length}");
        }
    }
}

/// The vocabulary of the small model has 24 pieces; these are no text's.
const CONTROL: [u32; 4] = [0, 1, 2, 23];

/// A text becomes known tokens within the limit, in the same way however its letters are composed; counts lie
/// between nothing and the number of bytes.
pub(crate) fn tokens(bytes: &[u8]) {
    static SMALL_MODEL: LazyLock<E5> = LazyLock::new(|| E5::unverified(SMALL.to_vec(), true).unwrap());
    let text = String::from_utf8_lossy(bytes);
    let limit = SMALL_MODEL.descriptor().max_tokens();
    for role in [Role::Query, Role::Passage] {
        let (ids, truncated) = SMALL_MODEL.token_ids(role, &text);
        assert_eq!((ids.first(), ids.last()), (Some(&0), Some(&2)));
        assert!(ids.len() <= limit && (!truncated || ids.len() == limit), "{ids:?}");
        let inner = &ids[1..ids.len() - 1];
        assert!(inner.iter().all(|id| *id < 24 && !CONTROL.contains(id)), "{ids:?}");
        assert_eq!(
            SMALL_MODEL.token_ids(role, &format!("  {text}")),
            (ids, truncated),
            "leading spaces count"
        );
        let longer = SMALL_MODEL.token_ids(role, &format!("{text} a"));
        assert!(longer.1 || !truncated, "a longer text fits and a shorter does not");
    }
    for name in ["o200k", "cl100k"] {
        let counter = counter(name).unwrap();
        let count = counter.count(&text) as usize;
        assert!(count <= text.len(), "{count} tokens in {} bytes", text.len());
        assert_eq!(count == 0, text.is_empty());
        assert_eq!(counter.count(&text) as usize, count);
    }
}
