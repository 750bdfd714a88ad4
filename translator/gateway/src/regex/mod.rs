//! Regular expressions that Envoy accepts. Its engine is RE2, and it rejects a whole route table for one pattern that it
//! cannot read or that is too large, so both are rejected here, on the route that has the pattern. Nothing is compiled:
//! the size of a pattern is estimated from its syntax, in time proportional to its length. Only folding is not, and has
//! a bound of its own: `fold`.

mod fold;
mod size;

use crate::limits::Limits;
use regex_syntax::ast::parse::Parser;
use regex_syntax::ast::{
    self, AssertionKind, Ast, ClassPerlKind, ClassSetItem, ClassUnicodeKind, Flag, FlagsItemKind,
    GroupKind, HexLiteralKind, Literal, LiteralKind, RepetitionKind, RepetitionRange, Visitor,
};

/// RE2 repeats nothing more often than this, also by nesting.
const MOST_REPEATS: u32 = 1000;

/// A pattern as Envoy reads it, or why it would not, as a clause. How large it may be is a matter of [`check_size`].
pub(crate) fn accept(pattern: &str) -> Result<String, String> {
    let refused = |reason: &str| format!("{pattern:?} is not a regular expression: {reason}");
    if pattern.is_empty() {
        return Err(refused("it is empty"));
    }
    let parsed =
        Parser::new().parse(pattern).map_err(|error| refused(&error.kind().to_string()))?;
    ast::visit(&parsed, Shared { repeats: vec![1] }).map_err(|reason| refused(&reason))?;
    Ok(pattern.to_owned())
}

/// How many instructions a pattern has, one of an object or one that was made here; or that Envoy does not take so many,
/// as a clause.
pub(crate) fn check_size(pattern: &str, limits: &Limits) -> Result<u64, String> {
    let most = limits.regex_program_size;
    let size = Parser::new().parse(pattern).map_or(u64::MAX, |parsed| size::program_size(&parsed));
    let too_large = |instructions: String| {
        format!(
            "the regular expression {pattern:?} is too large: {instructions} in Envoy, whose limit is {most}"
        )
    };
    match size {
        size if size <= u64::from(most) => Ok(size),
        u64::MAX => Err(too_large("too many instructions to count".to_owned())),
        size => Err(too_large(format!("up to {size} instructions"))),
    }
}

/// Finds what RE2 does not know.
struct Shared {
    /// How often the current place is repeated, and the places around it.
    repeats: Vec<u32>,
}

impl Visitor for Shared {
    type Output = ();
    type Err = String;

    fn finish(self) -> Result<(), String> {
        Ok(())
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), String> {
        match ast {
            Ast::Repetition(repetition) => {
                if matches!(*repetition.ast, Ast::Repetition(_)) {
                    return Err("a repetition is repeated without brackets".to_owned());
                }
                let around = self.repeats.last().copied().unwrap_or(1);
                let repeats = around.saturating_mul(most(&repetition.op.kind));
                if repeats > MOST_REPEATS {
                    return Err(format!("something is repeated more than {MOST_REPEATS} times"));
                }
                self.repeats.push(repeats);
                Ok(())
            }
            Ast::Flags(set) => flags(&set.flags),
            Ast::Group(group) => match &group.kind {
                GroupKind::NonCapturing(set) => flags(set),
                GroupKind::CaptureIndex(_) | GroupKind::CaptureName { .. } => Ok(()),
            },
            Ast::Literal(found) => literal(found),
            Ast::ClassUnicode(class) => unicode(&class.kind),
            Ast::Assertion(assertion) => match assertion.kind {
                AssertionKind::StartLine
                | AssertionKind::EndLine
                | AssertionKind::StartText
                | AssertionKind::EndText
                | AssertionKind::WordBoundary
                | AssertionKind::NotWordBoundary => Ok(()),
                _ => Err("only \\b and \\B are supported as word boundaries".to_owned()),
            },
            _ => Ok(()),
        }
    }

    fn visit_post(&mut self, ast: &Ast) -> Result<(), String> {
        if matches!(ast, Ast::Repetition(_)) {
            self.repeats.pop();
        }
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), String> {
        match item {
            ClassSetItem::Literal(found) => literal(found),
            ClassSetItem::Range(range) => literal(&range.start).and_then(|()| literal(&range.end)),
            ClassSetItem::Unicode(class) => unicode(&class.kind),
            ClassSetItem::Bracketed(_) => Err("a class inside a class is not supported".to_owned()),
            ClassSetItem::Perl(class) => match class.kind {
                ClassPerlKind::Digit | ClassPerlKind::Space | ClassPerlKind::Word => Ok(()),
            },
            ClassSetItem::Empty(_) | ClassSetItem::Ascii(_) | ClassSetItem::Union(_) => Ok(()),
        }
    }

    fn visit_class_set_binary_op_pre(&mut self, _: &ast::ClassSetBinaryOp) -> Result<(), String> {
        Err("classes cannot be combined with &&, -- or ~~".to_owned())
    }
}

fn most(kind: &RepetitionKind) -> u32 {
    match kind {
        RepetitionKind::Range(
            RepetitionRange::Exactly(count)
            | RepetitionRange::AtLeast(count)
            | RepetitionRange::Bounded(_, count),
        ) => (*count).max(1),
        RepetitionKind::ZeroOrOne | RepetitionKind::ZeroOrMore | RepetitionKind::OneOrMore => 1,
    }
}

fn flags(flags: &ast::Flags) -> Result<(), String> {
    let known = |item: &ast::FlagsItem| match &item.kind {
        FlagsItemKind::Negation => true,
        FlagsItemKind::Flag(flag) => matches!(
            flag,
            Flag::CaseInsensitive | Flag::MultiLine | Flag::DotMatchesNewLine | Flag::SwapGreed
        ),
    };
    match flags.items.iter().all(known) {
        true => Ok(()),
        false => Err("only the flags i, m, s and U are supported".to_owned()),
    }
}

/// Envoy has RE2 read bytes rather than characters, so no number is above 255.
fn literal(literal: &Literal) -> Result<(), String> {
    let is_short = |kind: &HexLiteralKind| *kind == HexLiteralKind::X;
    let is_known = match &literal.kind {
        LiteralKind::HexFixed(kind) | LiteralKind::HexBrace(kind) => {
            is_short(kind) && literal.c <= '\u{ff}'
        }
        _ => true,
    };
    match is_known {
        true => Ok(()),
        false => Err("characters by number must be from \\x00 to \\xff".to_owned()),
    }
}

/// Both know the general categories, such as `\pL` and `\p{Lu}`; beyond those they differ.
fn unicode(kind: &ClassUnicodeKind) -> Result<(), String> {
    let category = |name: &str| size::CATEGORIES.contains(&name);
    let known = match kind {
        ClassUnicodeKind::OneLetter(letter) => category(&letter.to_string()),
        ClassUnicodeKind::Named(name) => category(name),
        ClassUnicodeKind::NamedValue { .. } => false,
    };
    match known {
        true => Ok(()),
        false => Err("\\p{...} supports only general categories, such as \\p{Lu}".to_owned()),
    }
}

#[cfg(test)]
mod tests;
