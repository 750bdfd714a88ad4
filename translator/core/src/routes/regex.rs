//! Regular expressions that Envoy takes. Its engine is RE2, and it refuses a whole route table for one pattern that it
//! cannot read, so what the two engines do not share is refused here, on the route that has it.

use regex_syntax::ast::parse::Parser;
use regex_syntax::ast::{
    self, AssertionKind, Ast, ClassPerlKind, ClassSetItem, ClassUnicodeKind, Flag, FlagsItemKind,
    GroupKind, HexLiteralKind, LiteralKind, RepetitionKind, RepetitionRange, Visitor,
};

/// RE2 repeats nothing more often than this, also by nesting.
const MOST_REPEATS: u32 = 1000;

/// A pattern as Envoy reads it, or why it would not, as a clause.
pub(super) fn accept(pattern: &str) -> Result<String, String> {
    let refused = |reason: &str| format!("{pattern:?} is not a regular expression: {reason}");
    if pattern.is_empty() {
        return Err(refused("it is empty"));
    }
    let parsed =
        Parser::new().parse(pattern).map_err(|error| refused(&error.kind().to_string()))?;
    ast::visit(&parsed, Shared { repeats: vec![1] }).map_err(|reason| refused(&reason))?;
    // What parses may still be too large to compile.
    match regex::Regex::new(pattern) {
        Ok(_) => Ok(pattern.to_owned()),
        Err(regex::Error::CompiledTooBig(_)) => Err(refused("it is too large")),
        Err(_) => Err(refused("it cannot be compiled")),
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
            Ast::Literal(found) => literal(&found.kind),
            Ast::ClassUnicode(class) => unicode(&class.kind),
            Ast::Assertion(assertion) => match assertion.kind {
                AssertionKind::StartLine
                | AssertionKind::EndLine
                | AssertionKind::StartText
                | AssertionKind::EndText
                | AssertionKind::WordBoundary
                | AssertionKind::NotWordBoundary => Ok(()),
                _ => Err("of word boundaries there are only \\b and \\B".to_owned()),
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
            ClassSetItem::Literal(found) => literal(&found.kind),
            ClassSetItem::Range(range) => {
                literal(&range.start.kind).and_then(|()| literal(&range.end.kind))
            }
            ClassSetItem::Unicode(class) => unicode(&class.kind),
            ClassSetItem::Bracketed(_) => Err("a class stands inside a class".to_owned()),
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
        false => Err("of flags there are only i, m, s and U".to_owned()),
    }
}

fn literal(kind: &LiteralKind) -> Result<(), String> {
    match kind {
        LiteralKind::HexFixed(HexLiteralKind::UnicodeShort | HexLiteralKind::UnicodeLong)
        | LiteralKind::HexBrace(HexLiteralKind::UnicodeShort | HexLiteralKind::UnicodeLong) => {
            Err("write \\x{...} for a character by its number".to_owned())
        }
        _ => Ok(()),
    }
}

/// Both know the general categories, such as `\pL` and `\p{Lu}`; beyond those they differ.
fn unicode(kind: &ClassUnicodeKind) -> Result<(), String> {
    let category =
        |name: &str| name.len() <= 2 && "CLMNPSZ".contains(name.chars().next().unwrap_or('?'));
    let known = match kind {
        ClassUnicodeKind::OneLetter(letter) => category(&letter.to_string()),
        ClassUnicodeKind::Named(name) => category(name),
        ClassUnicodeKind::NamedValue { .. } => false,
    };
    match known {
        true => Ok(()),
        false => {
            Err("of \\p{...} there are only the general categories, such as \\p{Lu}".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::accept;

    #[test]
    fn what_both_engines_know_is_taken_as_it_is() {
        for pattern in [
            "/v[0-9]+/.*",
            "(?i)abc|(?P<name>d{2,5}?)",
            "[[:alpha:]_.-]*",
            r"\pL\p{Lu}[^\d\s]\x{263a}\.",
            r"^(a{10}b){100}$",
            r"\bword\B",
        ] {
            assert_eq!(accept(pattern).as_deref(), Ok(pattern));
        }
    }

    #[test]
    fn what_only_one_knows_is_refused_with_the_reason() {
        for (pattern, reason) in [
            ("", "empty"),
            ("(a", "unclosed group"),
            ("(?=a)", "look-around"),
            (r"(a)\1", "backreferences"),
            ("a**", "without brackets"),
            ("a{1001}", "more than 1000"),
            ("(a{50}){50}", "more than 1000"),
            ("(?x)a b", "flags"),
            (r"\u263a", "number"),
            (r"[a\u263a]", "number"),
            ("[a-z&&[^b]]", "class"),
            ("[a[b]]", "inside a class"),
            (r"\p{Greek}", "categories"),
            (r"\b{start}a", "word boundaries"),
        ] {
            let refused = accept(pattern).unwrap_err();
            assert!(refused.contains(reason), "{pattern}: {refused}");
            assert_eq!(refused.lines().count(), 1);
        }
    }
}
