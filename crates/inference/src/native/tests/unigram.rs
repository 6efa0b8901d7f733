//! The tokenizer on the synthetic vocabulary.

use proptest::prelude::*;

use super::super::image::Image;
use super::super::source::Source;
use super::super::unigram::Unigram;
use super::synthetic::{PIECES, file};

fn tokenizer() -> Unigram {
    let mut image = Image::read(Source::Memory(file())).unwrap();
    let normaliser = std::mem::take(&mut image.normaliser);
    Unigram::new(&image.pieces, normaliser, image.specials).unwrap()
}

/// The pieces of `text`, without the special tokens at both ends.
fn pieces(text: &str) -> Vec<&'static str> {
    let tokens = tokenizer().encode([text, ""], 1_000);
    assert_eq!((tokens.ids.first(), tokens.ids.last()), (Some(&0), Some(&2)));
    let inner = &tokens.ids[1..tokens.ids.len() - 1];
    inner.iter().map(|id| PIECES[*id as usize].0).collect()
}

#[test]
fn the_most_probable_pieces_win_over_the_longest() {
    assert_eq!(pieces("ab"), ["▁ab"]);
    // "abc" costs 12 as one piece, 9 as two.
    assert_eq!(pieces("xabc"), ["▁", "x", "ab", "c"]);
    assert_eq!(pieces("aba"), ["▁ab", "a"]);
    assert_eq!(pieces("日本日"), ["▁", "日本", "日"]);
}

#[test]
fn spaces_collapse_and_replaced_characters_count_as_their_replacement() {
    assert_eq!(pieces("  a \t  b"), pieces("a b"));
    assert_eq!(pieces("a\u{200b}b"), pieces("ab"));
    assert_eq!(pieces("ﬁ"), ["▁", "fi"]);
    assert_eq!(pieces("a "), ["▁a", "▁"]);
    assert_eq!(pieces(""), ["▁"]);
}

#[test]
fn composed_and_decomposed_letters_are_one() {
    assert_eq!(pieces("u\u{308}"), ["▁", "ü"]);
}

#[test]
fn a_run_of_unknown_characters_is_one_unknown_token() {
    assert_eq!(pieces("zzzz"), ["▁", "<unk>"]);
    assert_eq!(pieces("zaz z"), ["▁", "<unk>", "a", "<unk>", "▁", "<unk>"]);
}

#[test]
fn text_never_becomes_a_control_token() {
    for control in ["<s>", "</s>", "<pad>", "<mask>", "<unk>"] {
        assert!(!pieces(control).contains(&control) || control == "<unk>");
        let ids = tokenizer().encode([control, ""], 1_000).ids;
        assert!(ids[1..ids.len() - 1].iter().all(|id| ![0, 1, 2, 23].contains(id)), "{control}");
    }
}

#[test]
fn what_is_beyond_the_limit_is_reported_and_not_read() {
    let tokenizer = tokenizer();
    let fits = tokenizer.encode(["", "a a a a a a"], 8);
    assert_eq!((fits.ids.len(), fits.truncated), (8, false));
    let cut = tokenizer.encode(["", "a a a a a a b"], 8);
    assert_eq!((cut.ids, cut.truncated), (fits.ids, true));
}

#[test]
fn a_megabyte_without_a_space_is_cut_not_solved() {
    let tokens = tokenizer().encode(["", &"x".repeat(1 << 20)], 16);
    assert!(tokens.truncated);
    assert_eq!(tokens.ids.len(), 16);
}

/// The best score by trying every division.
fn best_by_trial(word: &str) -> f32 {
    if word.is_empty() {
        return 0.0;
    }
    let known = PIECES.iter().filter(|(piece, score)| *score < 0.0 && word.starts_with(piece));
    let unknown = word.chars().next().unwrap().len_utf8();
    let by_piece = known.map(|(piece, score)| score + best_by_trial(&word[piece.len()..]));
    by_piece.fold(-22.0 + best_by_trial(&word[unknown..]), f32::max)
}

proptest! {
    #[test]
    fn no_division_is_better_than_the_one_found(text in "[abcfixüz日本]{0,9}") {
        let marked = format!("▁{text}");
        // Unknown characters that stand together are scored one by one but named once.
        let found = pieces(&text);
        if !found.contains(&"<unk>") {
            let score: f32 = found.iter().map(|p| PIECES.iter().find(|(q, _)| p == q).unwrap().1).sum();
            prop_assert!((score - best_by_trial(&marked)).abs() < 1e-3);
            prop_assert_eq!(found.concat(), marked);
        }
    }

    #[test]
    fn any_text_gives_tokens_within_the_limit(text in any::<String>(), limit in 8_usize..40) {
        let tokens = tokenizer().encode(["query: ", &text], limit);
        prop_assert!(tokens.ids.len() <= limit);
        prop_assert!(tokens.ids.iter().all(|id| (*id as usize) < PIECES.len()));
    }
}
