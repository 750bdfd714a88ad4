/// A text with gaps: `*` stands for any word and `{name}` for a word to be used again. A word is one or more
/// letters, digits, `.`, `-` and `_`, and ends at the character that follows the gap in the pattern. So `*.example.org`
/// is one label below example.org, as in a certificate, and no match is ever tried twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Text(String),
    Any,
    Named(String),
}

/// The words that the named gaps of a pattern stood for.
pub(super) type Words = Vec<(String, String)>;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PatternError {
    #[error("the pattern {0:?} is empty")]
    Empty(String),
    #[error("the pattern {0:?} has an unmatched brace, or one without a name: write {{name}}")]
    Brace(String),
    #[error("the pattern {0:?} has two placeholders with nothing between them")]
    Adjacent(String),
    #[error("the pattern {0:?} names {{{1}}} twice")]
    Repeated(String, String),
}

impl Pattern {
    pub(super) fn parse(text: &str) -> Result<Self, PatternError> {
        let brace = || PatternError::Brace(text.to_owned());
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some(first) = rest.chars().next() {
            let part = match first {
                '*' => {
                    rest = &rest[1..];
                    Part::Any
                }
                '{' => {
                    let (name, after) = rest[1..].split_once('}').ok_or_else(brace)?;
                    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
                        return Err(brace());
                    }
                    rest = after;
                    Part::Named(name.to_owned())
                }
                '}' => return Err(brace()),
                _ => {
                    let (text, after) =
                        rest.split_at(rest.find(['*', '{', '}']).unwrap_or(rest.len()));
                    rest = after;
                    Part::Text(text.to_owned())
                }
            };
            if !matches!(part, Part::Text(_))
                && matches!(parts.last(), Some(Part::Any | Part::Named(_)))
            {
                return Err(PatternError::Adjacent(text.to_owned()));
            }
            if let Part::Named(name) = &part
                && parts.contains(&part)
            {
                return Err(PatternError::Repeated(text.to_owned(), name.clone()));
            }
            parts.push(part);
        }
        if parts.is_empty() {
            return Err(PatternError::Empty(text.to_owned()));
        }
        Ok(Self(parts))
    }

    pub(super) fn parts(&self) -> &[Part] {
        &self.0
    }

    /// The named words, if all of `text` fits.
    pub(super) fn matched(&self, text: &str) -> Option<Words> {
        let (mut words, mut rest) = (Words::new(), text);
        for (at, part) in self.0.iter().enumerate() {
            let gap = match part {
                Part::Text(text) => {
                    rest = rest.strip_prefix(text.as_str())?;
                    continue;
                }
                Part::Any => None,
                Part::Named(name) => Some(name),
            };
            let end = match self.0.get(at + 1) {
                Some(Part::Text(text)) => text.chars().next(),
                _ => None,
            };
            let outside =
                |c: char| !(c.is_ascii_alphanumeric() || ".-_".contains(c)) || Some(c) == end;
            let (word, after) = rest.split_at(rest.find(outside).unwrap_or(rest.len()));
            if word.is_empty() {
                return None;
            }
            words.extend(gap.map(|name| (name.clone(), word.to_owned())));
            rest = after;
        }
        rest.is_empty().then_some(words)
    }

    /// The text with the words in its named gaps; `None` if one is not there. `*` stays what it is.
    pub(super) fn filled(&self, words: &Words) -> Option<String> {
        let fill = |part: &Part| match part {
            Part::Text(text) => Some(text.clone()),
            Part::Any => Some("*".to_owned()),
            Part::Named(name) => {
                words.iter().find(|(found, _)| found == name).map(|(_, word)| word.clone())
            }
        };
        self.0.iter().map(fill).collect()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            Part::Named(name) => Some(name.as_str()),
            Part::Text(_) | Part::Any => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matched(pattern: &str, text: &str) -> Option<Vec<(String, String)>> {
        Pattern::parse(pattern).unwrap().matched(text)
    }

    #[test]
    fn gaps_take_words() {
        let words = |pairs: &[(&str, &str)]| {
            Some(pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect())
        };
        assert_eq!(matched("exact", "exact"), words(&[]));
        assert_eq!(matched("*", "any.word-at_all"), words(&[]));
        assert_eq!(
            matched("spiffe://*/ns/{ns}/sa/{sa}", "spiffe://example.org/ns/edge/sa/envoy.1"),
            words(&[("ns", "edge"), ("sa", "envoy.1")])
        );
        assert_eq!(matched("*.example.org", "a.example.org"), words(&[]));
        assert_eq!(
            matched("envoy-{n}.{zone}", "envoy-7.west"),
            words(&[("n", "7"), ("zone", "west")])
        );
    }

    #[test]
    fn what_does_not_fit_whole_does_not_match() {
        for (pattern, text) in [
            ("exact", "exactly"),
            ("exact", "exac"),
            ("exact", ""),
            ("*", ""),
            ("*", "a/b"),
            ("*", "a b"),
            ("*.example.org", "a.b.example.org"),
            ("*.example.org", ".example.org"),
            ("*.example.org", "a.example.org.evil"),
            ("spiffe://*/ns/{ns}/sa/*", "spiffe://example.org/ns/edge/more/sa/envoy"),
            ("spiffe://*/ns/{ns}/sa/*", "spiffe://example.org/ns/edge/sa/envoy/more"),
            ("{ns}/*", "edge"),
        ] {
            assert_eq!(matched(pattern, text), None, "{pattern} {text}");
        }
    }

    #[test]
    fn patterns_that_mean_nothing_are_refused() {
        let parse = |text| Pattern::parse(text).unwrap_err();
        assert!(matches!(parse(""), PatternError::Empty(_)));
        for text in ["{", "}", "{}", "{a b}", "a{b", "a}b", "{a{b}}"] {
            assert!(matches!(parse(text), PatternError::Brace(_)), "{text}");
        }
        for text in ["**", "*{a}", "{a}*", "{a}{b}"] {
            assert!(matches!(parse(text), PatternError::Adjacent(_)), "{text}");
        }
        assert!(matches!(parse("{a}/{a}"), PatternError::Repeated(..)));
    }

    #[test]
    fn words_are_used_again() {
        let words = matched("{ns}/{name}", "edge/envoy").unwrap();
        let filled = |text| Pattern::parse(text).unwrap().filled(&words);
        assert_eq!(filled("{name}-of-{ns}"), Some("envoy-of-edge".into()));
        assert_eq!(filled("*"), Some("*".into()));
        assert_eq!(filled("{other}"), None);
    }
}
