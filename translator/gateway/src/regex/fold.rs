//! The characters of a class in both cases. A class of a few bytes can contain all characters there are. Folding it
//! costs as much as it has characters with another case, so their number is bounded.

use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};
use std::sync::LazyLock;

/// How many characters beyond ASCII that have another case the classes of one pattern may have, together. The letters of a
/// script are a hundred or so.
const MOST: usize = 256;

/// The budget of folding for one pattern.
#[derive(Debug, Default)]
pub(super) struct Folding {
    characters: usize,
}

impl Folding {
    /// Adds to a class what its characters are in another case. Returns whether it did: the pattern may have too many of them.
    pub(super) fn fold(&mut self, class: &mut ClassUnicode) -> bool {
        let mut added = Vec::new();
        let mut beyond_ascii = Vec::new();
        for range in class.iter() {
            fold_ascii(range, &mut added);
            let cased = cased(range);
            self.characters = self.characters.saturating_add(cased.len());
            if self.characters > MOST {
                return false;
            }
            beyond_ascii.extend(cased.iter().map(|one| ClassUnicodeRange::new(*one, *one)));
        }
        let mut beyond_ascii = ClassUnicode::new(beyond_ascii);
        if beyond_ascii.try_case_fold_simple().is_err() {
            return false;
        }
        added.extend(beyond_ascii.iter().copied());
        class.union(&ClassUnicode::new(added));
        true
    }
}

/// Whole ranges at once: patterns have many of them.
fn fold_ascii(range: &ClassUnicodeRange, added: &mut Vec<ClassUnicodeRange>) {
    let mut add = |start, end| added.push(ClassUnicodeRange::new(start, end));
    let within = |start: char, end: char| {
        let (start, end) = (range.start().max(start), range.end().min(end));
        (start <= end).then_some((start, end))
    };
    if let Some((start, end)) = within('a', 'z') {
        add(start.to_ascii_uppercase(), end.to_ascii_uppercase());
    }
    if let Some((start, end)) = within('A', 'Z') {
        add(start.to_ascii_lowercase(), end.to_ascii_lowercase());
    }
    for (letters, beyond_ascii) in [(['k', 'K'], '\u{212a}'), (['s', 'S'], '\u{17f}')] {
        if letters.into_iter().any(|letter| within(letter, letter).is_some()) {
            add(beyond_ascii, beyond_ascii);
        }
    }
}

/// The characters of a range beyond ASCII that have another case.
fn cased(range: &ClassUnicodeRange) -> &'static [char] {
    static CASED: LazyLock<Vec<char>> = LazyLock::new(|| {
        let has_another =
            |one: &char| !(one.to_lowercase().eq([*one]) && one.to_uppercase().eq([*one]));
        ('\u{80}'..=char::MAX).filter(has_another).collect()
    });
    if range.end().is_ascii() {
        return &[];
    }
    let first = CASED.partition_point(|one| *one < range.start());
    let beyond = CASED.partition_point(|one| *one <= range.end());
    &CASED[first..beyond]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(start: char, end: char) -> ClassUnicode {
        ClassUnicode::new([ClassUnicodeRange::new(start, end)])
    }

    #[test]
    fn a_class_is_folded_as_the_library_folds_it() {
        let ends = [
            '!', '@', 'J', 'K', 'S', 'Z', 'k', 's', 'z', '\x7f', 'ÿ', 'Ā', 'ſ', 'ɐ', 'ʯ', 'Ͱ', 'я',
        ];
        for (index, start) in ends.into_iter().enumerate() {
            for end in ends.into_iter().skip(index) {
                let (mut folded, mut expected) = (class(start, end), class(start, end));
                if Folding::default().fold(&mut folded) {
                    expected.try_case_fold_simple().unwrap();
                    assert_eq!(folded, expected, "{start:?} to {end:?}");
                }
            }
        }
    }

    /// What is not in the list is folded to nothing, so nothing is missing there.
    #[test]
    fn all_that_have_another_case_are_known() {
        let all = cased(&ClassUnicodeRange::new('\0', char::MAX));
        let mut others =
            ClassUnicode::new(all.iter().map(|one| ClassUnicodeRange::new(*one, *one)));
        others.union(&class('\0', '\x7f'));
        others.negate();
        let mut folded = others.clone();
        folded.try_case_fold_simple().unwrap();
        assert_eq!(folded, others);
    }

    #[test]
    fn characters_without_another_case_cost_nothing() {
        let mut folding = Folding::default();
        for _ in 0..1_000 {
            assert!(folding.fold(&mut class('一', '龥')));
        }
        assert!(folding.fold(&mut class('а', 'я')));
        assert!(!folding.fold(&mut class('A', '𞥃')));
    }
}
