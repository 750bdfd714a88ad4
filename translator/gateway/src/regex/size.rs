//! Estimates the size of a pattern as a program of RE2, which Envoy bounds. The estimate is never below RE2's size.
//! Characters are counted as sequences of UTF-8, as older versions of Envoy read them; newer ones read bytes, which
//! makes programs smaller.

use super::fold::Folding;
use regex_syntax::ast::{
    self, Ast, ClassAsciiKind, ClassBracketed, ClassPerlKind, ClassSet, ClassSetItem, ClassUnicode,
    ClassUnicodeKind, Flag, FlagsItemKind, GroupKind, RepetitionKind, RepetitionRange, Visitor,
};
use regex_syntax::hir::{self, ClassUnicodeRange, HirKind};
use regex_syntax::utf8::Utf8Sequences;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The general categories that RE2 knows by name.
pub(super) const CATEGORIES: [&str; 36] = [
    "C", "Cc", "Cf", "Co", "Cs", "L", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn", "N",
    "Nd", "Nl", "No", "P", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S", "Sc", "Sk", "Sm", "So",
    "Z", "Zl", "Zp", "Zs",
];

/// The instructions of every program: fail, match, and the search for the beginning.
const FRAME: u64 = 6;

/// All characters beyond ASCII, which RE2 writes in a short form.
const BEYOND_ASCII: u64 = 8;

/// How many instructions a pattern has at most.
pub(super) fn program_size(pattern: &Ast) -> u64 {
    let folds = match ast::visit(pattern, Folds(false)) {
        Ok(folds) => folds,
        Err(never) => match never {},
    };
    match ast::visit(pattern, Size { open: vec![FRAME], folds, folding: Folding::default() }) {
        Ok(size) => size,
        Err(never) => match never {},
    }
}

/// Whether upper and lower case are the same somewhere; then it is counted as if they were everywhere.
struct Folds(bool);

impl Visitor for Folds {
    type Output = bool;
    type Err = std::convert::Infallible;

    fn finish(self) -> Result<bool, Self::Err> {
        Ok(self.0)
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Self::Err> {
        let flags = match ast {
            Ast::Flags(set) => Some(&set.flags),
            Ast::Group(group) => group.flags(),
            _ => None,
        };
        let mut items = flags.iter().flat_map(|flags| &flags.items);
        self.0 |= items.any(|item| item.kind == FlagsItemKind::Flag(Flag::CaseInsensitive));
        Ok(())
    }
}

struct Size {
    /// Of what is being read, and of what is around it.
    open: Vec<u64>,
    folds: bool,
    folding: Folding,
}

impl Visitor for Size {
    type Output = u64;
    type Err = std::convert::Infallible;

    fn finish(self) -> Result<u64, Self::Err> {
        Ok(self.open.into_iter().fold(0, u64::saturating_add))
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Self::Err> {
        if has_parts(ast) {
            self.open.push(0);
        }
        Ok(())
    }

    fn visit_post(&mut self, ast: &Ast) -> Result<(), Self::Err> {
        let parts = if has_parts(ast) { self.open.pop().unwrap_or_default() } else { 0 };
        let size = match ast {
            Ast::Empty(_) | Ast::Flags(_) | Ast::Assertion(_) => 1,
            Ast::Literal(literal) => self.literal(literal.c),
            Ast::Dot(_) => 2 + BEYOND_ASCII,
            Ast::ClassUnicode(class) => self.category(class),
            Ast::ClassPerl(class) => self.ranges(perl(&class.kind), class.negated),
            Ast::ClassBracketed(class) => self.bracketed(class),
            Ast::Repetition(repetition) => repeated(parts, &repetition.op.kind),
            Ast::Group(group) => parts.saturating_add(match group.kind {
                GroupKind::CaptureIndex(_) | GroupKind::CaptureName { .. } => 2,
                GroupKind::NonCapturing(_) => 0,
            }),
            Ast::Alternation(alternation) => parts.saturating_add(alternation.asts.len() as u64),
            Ast::Concat(_) => parts,
        };
        if let Some(around) = self.open.last_mut() {
            *around = around.saturating_add(size);
        }
        Ok(())
    }
}

impl Size {
    /// One instruction for each byte, and for each form that it has in another case.
    fn literal(&self, character: char) -> u64 {
        match character {
            'k' | 'K' | 's' | 'S' if self.folds => 5,
            _ if character.is_ascii() => 1,
            _ if self.folds => 16,
            _ => character.len_utf8() as u64,
        }
    }

    fn bracketed(&mut self, class: &ClassBracketed) -> u64 {
        let ClassSet::Item(item) = &class.kind else { return u64::MAX };
        let items = match item {
            ClassSetItem::Union(union) => &union.items[..],
            one => std::slice::from_ref(one),
        };
        let mut size = 0_u64;
        let mut ranges = Vec::new();
        for item in items {
            match item {
                ClassSetItem::Literal(literal) => ranges.push((literal.c, literal.c)),
                ClassSetItem::Range(range) => ranges.push((range.start.c, range.end.c)),
                ClassSetItem::Ascii(class) if !class.negated => ranges.extend(ascii(&class.kind)),
                ClassSetItem::Perl(class) if !class.negated => ranges.extend(perl(&class.kind)),
                // The ranges of a class within a class are added up rather than joined: that is no less.
                ClassSetItem::Ascii(class) => {
                    size = size.saturating_add(self.ranges(ascii(&class.kind), true));
                }
                ClassSetItem::Perl(class) => {
                    size = size.saturating_add(self.ranges(perl(&class.kind), true));
                }
                ClassSetItem::Unicode(class) => {
                    size = size.saturating_add(self.category(class));
                }
                ClassSetItem::Empty(_) => {}
                ClassSetItem::Bracketed(_) | ClassSetItem::Union(_) => return u64::MAX,
            }
        }
        // What is left when classes are cut out of one another has the ends of each, and at most so many of its own.
        let own = if class.negated && size > 0 { 2 * BEYOND_ASCII } else { 0 };
        size.saturating_add(self.ranges(&ranges, class.negated)).saturating_add(own)
    }

    fn ranges(&mut self, ranges: &[(char, char)], is_negated: bool) -> u64 {
        let ranges = ranges.iter().map(|(start, end)| ClassUnicodeRange::new(*start, *end));
        let mut class = hir::ClassUnicode::new(ranges);
        if self.folds && !self.folding.fold(&mut class) {
            return u64::MAX;
        }
        if is_negated {
            class.negate();
        }
        class_size(&class)
    }

    fn category(&self, class: &ClassUnicode) -> u64 {
        let is_negated = class.is_negated();
        let size = match &class.kind {
            ClassUnicodeKind::OneLetter(letter) => category_size(&letter.to_string(), is_negated),
            ClassUnicodeKind::Named(name) => category_size(name, is_negated),
            ClassUnicodeKind::NamedValue { .. } => u64::MAX,
        };
        // Each letter in both cases, which breaks ranges up.
        if self.folds { size.saturating_mul(3) } else { size }
    }
}

fn has_parts(ast: &Ast) -> bool {
    matches!(ast, Ast::Repetition(_) | Ast::Group(_) | Ast::Alternation(_) | Ast::Concat(_))
}

/// A loop, or a way around what may be left out, beside each copy.
fn repeated(once: u64, kind: &RepetitionKind) -> u64 {
    let copies = match kind {
        RepetitionKind::Range(
            RepetitionRange::Exactly(copies)
            | RepetitionRange::AtLeast(copies)
            | RepetitionRange::Bounded(_, copies),
        ) => *copies,
        RepetitionKind::ZeroOrOne | RepetitionKind::ZeroOrMore | RepetitionKind::OneOrMore => 1,
    };
    let step = match kind {
        RepetitionKind::Range(RepetitionRange::Exactly(_)) => once,
        _ => once.saturating_add(1),
    };
    step.saturating_mul(u64::from(copies.max(1))).saturating_add(2)
}

fn category_size(name: &str, is_negated: bool) -> u64 {
    static SIZES: LazyLock<BTreeMap<&str, [u64; 2]>> = LazyLock::new(|| {
        let size = |pattern: String| match regex_syntax::parse(&pattern).map(|hir| hir.into_kind())
        {
            Ok(HirKind::Class(hir::Class::Unicode(class))) => class_size(&class),
            // No character of UTF-8 is a surrogate.
            _ => 2 * BEYOND_ASCII,
        };
        let sizes = |name: &&'static str| {
            // The two have different versions of Unicode.
            let slack = |size: u64| size + size / 4;
            let sizes = [format!(r"\p{{{name}}}"), format!(r"\P{{{name}}}")];
            (*name, sizes.map(|pattern| slack(size(pattern))))
        };
        CATEGORIES.iter().map(sizes).collect()
    });
    SIZES.get(name).map_or(u64::MAX, |sizes| sizes[usize::from(is_negated)])
}

/// One instruction for each byte of each sequence of bytes.
fn class_size(class: &hir::ClassUnicode) -> u64 {
    let range_size = |range: &ClassUnicodeRange| {
        let (start, end) = (range.start(), range.end());
        let (start, beyond) = match end {
            char::MAX if start <= '\u{80}' => ((start.is_ascii()).then_some(start), BEYOND_ASCII),
            _ => (Some(start), 0),
        };
        let end = if beyond > 0 { '\u{7f}' } else { end };
        let sequences = start.into_iter().flat_map(|start| Utf8Sequences::new(start, end));
        sequences.map(|sequence| sequence.len() as u64).sum::<u64>() + beyond
    };
    class.iter().map(range_size).sum::<u64>().max(1)
}

fn perl(kind: &ClassPerlKind) -> &'static [(char, char)] {
    match kind {
        ClassPerlKind::Digit => ascii(&ClassAsciiKind::Digit),
        ClassPerlKind::Space => &[('\t', '\n'), ('\x0c', '\r'), (' ', ' ')],
        ClassPerlKind::Word => ascii(&ClassAsciiKind::Word),
    }
}

fn ascii(kind: &ClassAsciiKind) -> &'static [(char, char)] {
    match kind {
        ClassAsciiKind::Alnum => &[('0', '9'), ('A', 'Z'), ('a', 'z')],
        ClassAsciiKind::Alpha => &[('A', 'Z'), ('a', 'z')],
        ClassAsciiKind::Ascii => &[('\0', '\x7f')],
        ClassAsciiKind::Blank => &[('\t', '\t'), (' ', ' ')],
        ClassAsciiKind::Cntrl => &[('\0', '\x1f'), ('\x7f', '\x7f')],
        ClassAsciiKind::Digit => &[('0', '9')],
        ClassAsciiKind::Graph => &[('!', '~')],
        ClassAsciiKind::Lower => &[('a', 'z')],
        ClassAsciiKind::Print => &[(' ', '~')],
        ClassAsciiKind::Punct => &[('!', '/'), (':', '@'), ('[', '`'), ('{', '~')],
        ClassAsciiKind::Space => &[('\t', '\r'), (' ', ' ')],
        ClassAsciiKind::Upper => &[('A', 'Z')],
        ClassAsciiKind::Word => &[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')],
        ClassAsciiKind::Xdigit => &[('0', '9'), ('A', 'F'), ('a', 'f')],
    }
}
