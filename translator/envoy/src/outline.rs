//! What is left of a match that Envoy may reject: an outline that matches no less, and that Envoy can hold whatever its
//! limits are. Its requests are answered with an error, so that they are not somebody else's.

use crate::compiled::CompiledMatch;
use crate::route;
use bytes::Bytes;
use heliograph_envoy::Message;
use heliograph_envoy::envoy::config::route::v3::route_match::PathSpecifier;
use heliograph_envoy::envoy::config::route::v3::{Route, RouteMatch};
use heliograph_model::{
    HttpMatch, HttpPolicy, HttpRule, PathMatch, Precedence, RpcMatch, StringMatch, TableKey,
};
use std::collections::BTreeSet;

/// A match without regular expressions and unusual characters.
#[derive(Debug, PartialEq)]
struct Outline {
    http_match: HttpMatch,
    /// The path is the beginning of one as it is, and need not end with an element.
    is_beginning: bool,
}

/// Matches that are not there as they were written: where they stood, and what the paths of all their requests begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingMatches {
    pub precedence: Precedence,
    beginning: String,
}

/// What the paths of many missing matches begin with: the shortest of those that begin with each other, in order. So one
/// lookup says for a route what all of them say, however many there are.
#[derive(Debug, Default)]
pub struct MissingPaths<'a>(BTreeSet<&'a str>);

/// The outline of a match. `None`: it has none, all requests are in it.
pub(crate) fn compiled(
    name: &str,
    rule: &HttpRule,
    http_match: &HttpMatch,
    table: &TableKey,
) -> Option<CompiledMatch> {
    let Outline { http_match, is_beginning } = Outline::of(http_match)?;
    let name = format!("{name}/outline");
    let unserved = rule.unserved();
    let mut routes =
        route::routes(&name, &unserved, &HttpPolicy::default(), &http_match, table).into_iter();
    let mut route = routes.next()?;
    if let PathMatch::Prefix(path) = &http_match.path
        && is_beginning
    {
        let path_specifier = Some(PathSpecifier::Prefix(path.clone()));
        route.r#match =
            route.r#match.map(|it| RouteMatch { path_specifier: path_specifier.clone(), ..it });
    }
    Some(CompiledMatch {
        precedence: Precedence::of(&http_match),
        is_outline: true,
        encoded: route.encode_to_vec().into(),
    })
}

/// Whether Envoy can hold a match for certain.
pub(crate) fn is_plain(http_match: &HttpMatch) -> bool {
    Outline::of(http_match)
        .is_some_and(|outline| !outline.is_beginning && outline.http_match == *http_match)
}

impl MissingMatches {
    pub(crate) fn of(http_match: &HttpMatch, precedence: Precedence) -> Self {
        let beginning = match &http_match.path {
            PathMatch::Exact(path) | PathMatch::Prefix(path) => path.clone(),
            PathMatch::Regex(pattern) => literal(pattern).to_owned(),
            PathMatch::Rpc(RpcMatch { service: Some(StringMatch::Exact(service)), .. }) => {
                format!("/{service}/")
            }
            PathMatch::Rpc(_) => String::new(),
        };
        Self { precedence, beginning }
    }

    /// All of both: where the first of them stood.
    pub fn joined(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        let (one, other) = match (one, other) {
            (Some(one), Some(other)) => (one, other),
            (one, other) => return one.or(other),
        };
        let same = one.beginning.chars().zip(other.beginning.chars());
        let same = same.take_while(|(one, other)| one == other).map(|(letter, _)| letter);
        Some(Self { beginning: same.collect(), precedence: one.precedence.min(other.precedence) })
    }
}

impl<'a> MissingPaths<'a> {
    pub fn add(&mut self, missing: &'a MissingMatches) {
        let beginning = missing.beginning.as_str();
        if self.has_all_below(beginning) {
            return;
        }
        while let Some(longer) = self.0.range(beginning..).next().copied()
            && longer.starts_with(beginning)
        {
            self.0.remove(longer);
        }
        self.0.insert(beginning);
    }

    /// A route with an error as its answer, if its requests may be those of a match that is missing.
    pub fn closed(&self, encoded: &[u8]) -> Option<Bytes> {
        if self.0.is_empty() {
            return None;
        }
        let Route { name, r#match, .. } = Route::decode(encoded).ok()?;
        let matched = r#match.as_ref()?;
        let (path, is_all) = match matched.path_specifier.as_ref()? {
            PathSpecifier::Path(path) => (path.as_str(), true),
            PathSpecifier::Prefix(path) | PathSpecifier::PathSeparatedPrefix(path) => {
                (path.as_str(), false)
            }
            PathSpecifier::SafeRegex(pattern) => (literal(&pattern.regex), false),
            _ => ("", false),
        };
        if !self.has_all_below(path) && (is_all || !self.has_some_below(path)) {
            return None;
        }
        let status = if matched.grpc.is_some() { 503 } else { 500 };
        let action = Some(route::answer(status));
        let closed = Route { name, r#match, action, ..Route::default() };
        Some(closed.encode_to_vec().into())
    }

    /// Whether the path begins with one of these. None of them begins with another, so that one is the last before the path.
    fn has_all_below(&self, path: &str) -> bool {
        self.0.range(..=path).next_back().is_some_and(|it| path.starts_with(it))
    }

    /// Whether one of these begins with the path.
    fn has_some_below(&self, path: &str) -> bool {
        self.0.range(path..).next().is_some_and(|it| it.starts_with(path))
    }
}

impl Outline {
    fn of(given: &HttpMatch) -> Option<Self> {
        let (path, is_beginning) = path(&given.path);
        let plain = |values: &[(String, StringMatch)]| {
            let is_plain = |(name, value): &&(String, StringMatch)| {
                is_plain_text(name)
                    && matches!(value, StringMatch::Exact(text) if is_plain_text(text))
            };
            values.iter().filter(is_plain).cloned().collect()
        };
        let http_match = HttpMatch {
            path,
            method: given.method.clone(),
            headers: plain(&given.headers),
            query: plain(&given.query),
        };
        let everything = HttpMatch {
            path: PathMatch::Prefix(String::new()),
            method: None,
            headers: Vec::new(),
            query: Vec::new(),
        };
        // Calls of any service come before all that is not of gRPC, whoever serves that.
        let is_any_call = matches!(http_match.path, PathMatch::Rpc(RpcMatch { service: None, .. }));
        // Who asks for all of them in as many words gets them.
        ((http_match != everything && !is_any_call) || http_match == *given)
            .then_some(Self { http_match, is_beginning })
    }
}

/// The path of an outline, and whether it is only the beginning of one.
fn path(given: &PathMatch) -> (PathMatch, bool) {
    let beginning = |text: &str| match text {
        "" | "/" => (PathMatch::Prefix(String::new()), false),
        text if !text.starts_with('/') => (PathMatch::Prefix(String::new()), false),
        text => (PathMatch::Prefix(text.to_owned()), true),
    };
    match given {
        PathMatch::Exact(path) | PathMatch::Prefix(path) => match plain_length(path) {
            all if all == path.len() => (given.clone(), false),
            some => beginning(&path[..some]),
        },
        PathMatch::Regex(pattern) => beginning(literal(pattern)),
        PathMatch::Rpc(RpcMatch { service, method }) => {
            let plain = |part: &Option<StringMatch>| {
                let is_plain = |it: &&StringMatch| matches!(it, StringMatch::Exact(text) if is_plain_text(text));
                part.as_ref().filter(is_plain).cloned()
            };
            // A method of any service is a regular expression of Envoy's.
            let service = plain(service);
            let method = service.as_ref().and_then(|_| plain(method));
            (PathMatch::Rpc(RpcMatch { service, method }), false)
        }
    }
}

/// What every text that a regular expression matches begins with; rather less than more.
fn literal(pattern: &str) -> &str {
    // What an alternative begins with is not said here.
    if pattern.contains('|') {
        return "";
    }
    let pattern = pattern.strip_prefix('^').unwrap_or(pattern);
    let is_literal = |letter: char| is_plain_letter(letter) && letter != '.';
    let length = pattern.find(|letter| !is_literal(letter)).unwrap_or(pattern.len());
    let (literal, rest) = pattern.split_at(length);
    // What is repeated may be there not even once.
    match rest.starts_with(['*', '?', '{', '+']) {
        true => literal.get(..length.saturating_sub(1)).unwrap_or_default(),
        false => literal,
    }
}

fn is_plain_text(text: &str) -> bool {
    plain_length(text) == text.len()
}

fn plain_length(text: &str) -> usize {
    text.find(|letter| !is_plain_letter(letter)).unwrap_or(text.len())
}

/// Nothing means these anything else, in a path, a header or an expression (but for the dot).
fn is_plain_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "/-_.~".contains(letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: PathMatch) -> HttpMatch {
        HttpMatch { path, method: None, headers: Vec::new(), query: Vec::new() }
    }

    fn regex(pattern: &str) -> HttpMatch {
        of(PathMatch::Regex(pattern.to_owned()))
    }

    #[test]
    fn an_expression_leaves_what_all_of_its_paths_begin_with() {
        for (pattern, beginning) in [
            ("/cart/[0-9]+", Some("/cart/")),
            ("^/cart/[0-9]+$", Some("/cart/")),
            ("/v[0-9]/x", Some("/v")),
            ("/exact", Some("/exact")),
            ("/cart.html", Some("/cart")),
            ("/carts?", Some("/cart")),
            ("/carts*/x", Some("/cart")),
            ("/carts{0}", Some("/cart")),
            ("/carts+", Some("/cart")),
            ("/a|/b", None),
            ("/a(b|c)", None),
            ("/.*", None),
            ("/?x", None),
            (".*/x", None),
            ("(?i)/cart", None),
            (r"\Q/cart\E", None),
            ("[/]cart", None),
            ("cart", None),
        ] {
            let outline = Outline::of(&regex(pattern));
            let expected = beginning.map(|beginning| Outline {
                http_match: of(PathMatch::Prefix(beginning.to_owned())),
                is_beginning: true,
            });
            assert_eq!(outline, expected, "{pattern}");
            assert!(!is_plain(&regex(pattern)), "{pattern}");
        }
    }

    #[test]
    fn what_is_plain_stays_as_it_is() {
        let header = |value: StringMatch| HttpMatch {
            method: Some("GET".to_owned()),
            headers: vec![("x-canary".to_owned(), value)],
            ..of(PathMatch::Prefix("/cart".to_owned()))
        };
        for plain in [
            of(PathMatch::Prefix(String::new())),
            of(PathMatch::Exact("/".to_owned())),
            of(PathMatch::Exact("/a-b/c.d".to_owned())),
            header(StringMatch::Exact("yes".to_owned())),
            of(PathMatch::Rpc(RpcMatch::default())),
        ] {
            assert!(is_plain(&plain), "{plain:?}");
        }
        for other in [
            header(StringMatch::Regex("yes".to_owned())),
            header(StringMatch::Exact("\"yes\"".to_owned())),
            of(PathMatch::Exact("/a b".to_owned())),
            of(PathMatch::Prefix("/%41".to_owned())),
        ] {
            assert!(!is_plain(&other), "{other:?}");
        }
        let without = header(StringMatch::Regex("yes".to_owned()));
        let outline = Outline::of(&without).map(|outline| outline.http_match);
        assert_eq!(outline, Some(HttpMatch { headers: Vec::new(), ..without }));
    }

    #[test]
    fn what_may_have_the_requests_of_a_missing_match_is_closed() {
        let missing = |pattern: &str| {
            let given = regex(pattern);
            MissingMatches::of(&given, Precedence::of(&given))
        };
        let both =
            MissingMatches::joined(Some(missing("/api/x[0-9]")), Some(missing("/api/y[0-9]")));
        let mut paths = MissingPaths::default();
        both.iter().for_each(|both| paths.add(both));
        for (path, is_closed) in [
            (PathSpecifier::Prefix("/".to_owned()), true),
            (PathSpecifier::PathSeparatedPrefix("/api".to_owned()), true),
            (PathSpecifier::PathSeparatedPrefix("/api/v1".to_owned()), true),
            (PathSpecifier::PathSeparatedPrefix("/static".to_owned()), false),
            (PathSpecifier::Path("/api/v1".to_owned()), true),
            (PathSpecifier::Path("/api".to_owned()), false),
        ] {
            let r#match =
                Some(RouteMatch { path_specifier: Some(path.clone()), ..RouteMatch::default() });
            let route = Route { name: "one".to_owned(), r#match, ..Route::default() };
            let closed = paths.closed(&route.encode_to_vec());
            let expected = Route { action: Some(route::answer(500)), ..route };
            let expected = is_closed.then(|| Bytes::from(expected.encode_to_vec()));
            assert_eq!(closed, expected, "{path:?}");
        }
    }

    #[test]
    fn many_missing_matches_say_together_what_each_of_them_says() {
        // All texts of these letters, up to four.
        let mut texts = vec![String::new()];
        for at in 0..40 {
            texts.extend(["/", "a", "b"].map(|letter| format!("{}{letter}", texts[at])));
        }
        let missing: Vec<_> = texts.iter().map(|text| of(PathMatch::Exact(text.clone()))).collect();
        let missing = missing.iter().map(|it| MissingMatches::of(it, Precedence::of(it)));
        let missing: Vec<_> = missing.collect();
        for step in 1..missing.len() {
            // Those of each group come in another order.
            let of_step = || (0..8).map(|n| &missing[(n * step * 7 + step * 29) % missing.len()]);
            let mut paths = MissingPaths::default();
            of_step().for_each(|it| paths.add(it));
            let kept: Vec<_> = paths.0.iter().collect();
            let has_no_other = |it: &&str| paths.0.iter().filter(|of| it.starts_with(**of)).count();
            assert!(kept.iter().all(|it| has_no_other(it) == 1), "{kept:?}");
            for path in &texts {
                let all = of_step().any(|it| path.starts_with(&it.beginning));
                let some = of_step().any(|it| it.beginning.starts_with(path.as_str()));
                assert_eq!(paths.has_all_below(path), all, "{path} {kept:?}");
                let found = all || paths.has_some_below(path);
                assert_eq!(found, all || some, "{path} {kept:?}");
            }
        }
    }

    #[test]
    fn a_call_stays_one() {
        let exact = |text: &str| Some(StringMatch::Exact(text.to_owned()));
        let any = Some(StringMatch::Regex("[a-z]+".to_owned()));
        for (service, method, expected) in [
            (exact("shop.Cart"), exact("Add"), Some((exact("shop.Cart"), exact("Add")))),
            (exact("shop.Cart"), any.clone(), Some((exact("shop.Cart"), None))),
            (None, None, Some((None, None))),
            (None, exact("Add"), None),
            (any, exact("Add"), None),
        ] {
            let given = of(PathMatch::Rpc(RpcMatch { service, method }));
            let expected =
                expected.map(|(service, method)| of(PathMatch::Rpc(RpcMatch { service, method })));
            let outline = Outline::of(&given).map(|outline| outline.http_match);
            assert_eq!(outline, expected, "{given:?}");
        }
    }

    /// It would come before whatever is not of gRPC at the host, whoever serves that.
    #[test]
    fn calls_of_any_service_have_no_outline() {
        let header = |name: &str, value| (name.to_owned(), value);
        let exact = header("x-tenant", StringMatch::Exact("one".to_owned()));
        let regex = header("x-version", StringMatch::Regex("[0-9]+".to_owned()));
        let calls = |headers| HttpMatch { headers, ..of(PathMatch::Rpc(RpcMatch::default())) };
        for headers in [vec![regex.clone()], vec![exact.clone(), regex]] {
            assert_eq!(Outline::of(&calls(headers.clone())), None, "{headers:?}");
        }
        assert!(is_plain(&calls(vec![exact])));
    }
}
