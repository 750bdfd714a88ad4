use super::prose::is_prose;
use regex::{Captures, Regex};
use std::borrow::Cow;

/// Blots out what looks like a secret. The pages of our programs have none; but proxies word their errors as they like, and
/// a bundle goes to others.
#[derive(Debug)]
pub(super) struct Scrubber {
    patterns: Vec<Regex>,
    /// A name, its separator and a value without quotes.
    word: Regex,
    /// A name and its separator, behind something else.
    next: Regex,
}

const REDACTED: &str = "[redacted]";

/// What a secret is called, also as the end of a longer name.
const NAMES: &str = "authorization|passw(?:or)?d|passphrase|token|api[_-]?key|(?:secret|access)[_-]?key|(?:client|shared)[_-]?secret";

/// What is in the group `keep` stays. NAME and what is between it and its value are as `Scrubber::new` has them.
const PATTERNS: [&str; 9] = [
    // A private key, as it is and as it stands in JSON, also if its end is cut off.
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?:[A-Za-z0-9+/=\s\\:,-]*?-----END [A-Z0-9 ]*PRIVATE KEY-----|[A-Za-z0-9+/=\s\\:,-]*)",
    // The same in base64, as in a Secret. Certificates begin so, too.
    r"LS0tLS1CRUdJTi[A-Za-z0-9+/=_-]*",
    // A JSON Web Token.
    r"\beyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]*",
    r"(?i)(?<keep>\bbearer\s+)[A-Za-z0-9._~+/=-]{8,}",
    // In a URL.
    r#"(?i)(?<keep>\b[a-z][a-z0-9+.-]*://)[^\s/"']+@"#,
    // To the end of the line, as cookies have several parts.
    r#"(?i)(?<keep>cookieSEPARATOR\\?["']?)[^\s"'\\][^"'\r\n\\]*"#,
    // In quotes, also in those of JSON within JSON: up to the same quote.
    r#"(?i)(?<keep>NAMESEPARATOR\\")(?:[^"\\\r\n]|\\[^"\\]|\\\\\\?.)*"#,
    r#"(?i)(?<keep>NAMESEPARATOR")(?:[^"\\\r\n]|\\.)*"#,
    r#"(?i)(?<keep>NAMESEPARATOR')[^'\r\n]*"#,
];

/// A word, and what kind of authorization it is, or what is wrong with it.
const WORD: &str = r#"(?i)(?<keep>NAMESEPARATOR)(?:[a-z]+:?\s+)?[^\s"',;}&\\]+"#;
/// How far behind a name its separator ends at most, to look no further.
const SEPARATOR: usize = 16;
const NEXT: &str = r"(?i)\s+[a-z_-]*NAMESEPARATOR";

impl Scrubber {
    pub(super) fn new() -> Result<Self, regex::Error> {
        let compiled = |pattern: &str| {
            let pattern = pattern.replace("NAME", &format!("(?:{NAMES})"));
            Regex::new(&pattern.replace("SEPARATOR", r#"\\?["']?\s*[:=]\s*"#))
        };
        let patterns =
            PATTERNS.iter().map(|pattern| compiled(pattern)).collect::<Result<_, _>>()?;
        Ok(Self { patterns, word: compiled(WORD)?, next: compiled(NEXT)? })
    }

    pub(super) fn scrub(&self, text: String) -> String {
        let blot = |found: &Captures<'_>| {
            let kept = found.name("keep").map_or("", |kept| kept.as_str());
            let tail = if found[0].ends_with('@') { "@" } else { "" };
            format!("{kept}{REDACTED}{tail}")
        };
        let text = self.patterns.iter().fold(text, |text, pattern| {
            match pattern.replace_all(&text, blot) {
                Cow::Borrowed(_) => text,
                Cow::Owned(scrubbed) => scrubbed,
            }
        });
        self.without_words(&text)
    }

    /// A name may be in the value of the one before, so the text after a name is checked again.
    fn without_words(&self, text: &str) -> String {
        let (mut scrubbed, mut done) = (String::with_capacity(text.len()), 0);
        while let Some(found) = self.word.captures_at(text, done) {
            let (Some(whole), Some(kept)) = (found.get(0), found.name("keep")) else { break };
            scrubbed.push_str(&text[done..kept.end()]);
            done = kept.end();
            if is_prose(&text[..kept.start()], kept.as_str(), &text[kept.end()..]) {
                continue;
            }
            scrubbed.push_str(REDACTED);
            // With what separates it from its value.
            let near = &text[..text.ceil_char_boundary(whole.end() + SEPARATOR)];
            let next = self.next.find_at(near, kept.end()).map(|next| next.start());
            done = next.filter(|next| *next < whole.end()).unwrap_or(whole.end());
        }
        scrubbed.push_str(&text[done..]);
        scrubbed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_secret_is_blotted_out_and_the_rest_stays() {
        let scrubber = Scrubber::new().unwrap();
        let cases = [
            (
                "bad key -----BEGIN EC PRIVATE KEY-----\nMHcC+/=\n-----END EC PRIVATE KEY-----: no",
                "bad key [redacted]: no",
            ),
            (
                r#"{"detail":"-----BEGIN PRIVATE KEY-----\nMIIE\nabc"}"#,
                r#"{"detail":"[redacted]"}"#,
            ),
            ("inline_bytes: \"LS0tLS1CRUdJTiBQUklWQVRF=\"", "inline_bytes: \"[redacted]\""),
            ("token eyJhbGciOi.eyJzdWIi.c2ln- expired", "token [redacted] expired"),
            ("Authorization: Bearer abcdefgh12 sent", "Authorization: [redacted] sent"),
            ("a bearer abcdefgh12", "a bearer [redacted]"),
            ("redis://me:word@redis:6379/0", "redis://[redacted]@redis:6379/0"),
            ("REDIS://u:p@h", "REDIS://[redacted]@h"),
            ("redis://u:p@ss@h/0", "redis://[redacted]@h/0"),
            ("REDIS_PASSWORD=hunter2", "REDIS_PASSWORD=[redacted]"),
            ("store_password: hunter2\n", "store_password: [redacted]\n"),
            ("storePassword: hunter2", "storePassword: [redacted]"),
            ("hmac_client_secret=s3", "hmac_client_secret=[redacted]"),
            ("?access_token=abc&x=1", "?access_token=[redacted]&x=1"),
            ("token: abc", "token: [redacted]"),
            ("aws_secret_key=abc, x", "aws_secret_key=[redacted], x"),
            ("set-cookie: a=b; c=d; Path=/\r\nx", "set-cookie: [redacted]\r\nx"),
            (r#"{"Cookie":"a=b; c=d","x":1}"#, r#"{"Cookie":"[redacted]","x":1}"#),
            ("password: \"my pass word\", x", "password: \"[redacted]\", x"),
            ("password='my pass word' x", "password='[redacted]' x"),
            (r#"{"password":"a \"b\" c","a":1}"#, r#"{"password":"[redacted]","a":1}"#),
            (
                r#"{"detail":"x {\"password\":\"my \\\"pass\\\" word\",\"a\":1}"}"#,
                r#"{"detail":"x {\"password\":\"[redacted]\",\"a\":1}"}"#,
            ),
            (
                "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,0A\n\n\
                 MIIE+/=\n-----END RSA PRIVATE KEY-----\nINFO: serving",
                "[redacted]\nINFO: serving",
            ),
            ("--password=hunter2 --x", "--password=[redacted] --x"),
            (r#"{"password":"hunter2","a":1}"#, r#"{"password":"[redacted]","a":1}"#),
            (
                r#"{"detail":"x {\"api_key\":\"k1\"}"}"#,
                r#"{"detail":"x {\"api_key\":\"[redacted]\"}"}"#,
            ),
        ];
        for (text, scrubbed) in cases {
            assert_eq!(scrubber.scrub(text.to_owned()), scrubbed);
        }
        for innocent in [
            "heliograph_store_operations_total{operation=\"load\",outcome=\"ok\"} 3",
            "HTTPRoute shop/basic takes its token from the bearer of news",
            "http://127.0.0.1:19000/clients?node=a@b",
            "the Secret default/tls has no tls.key",
            "secret=default/tls: tokens=3, --store-password-file=/etc/password",
            "heliograph_distributor_calls_total{credential=\"token\"} 1",
        ] {
            assert_eq!(scrubber.scrub(innocent.to_owned()), innocent);
        }
    }

    /// What a program says of a credential stays, wherever it says it.
    #[test]
    fn what_is_said_of_a_credential_stays() {
        let scrubber = Scrubber::new().unwrap();
        let sentences = [
            "token: expired",
            "password: required",
            "token: not found",
            "the token: not found",
            "Token: Expired",
            "authorization: denied",
            "bad password: wrong or missing",
            "token: is not valid yet",
            "token: has expired",
            "the passphrase: could not be verified",
            "WARN jwt: token: expired after 5s, asking for another",
            "cannot log in (password: rejected by Redis)",
            "[info] token: revoked; waiting",
            "token: unknown.",
        ];
        let frames: [fn(&str) -> String; 5] = [
            |it| it.to_owned(),
            |it| format!("{it}\nINFO serving"),
            |it| format!("INFO serving\n{it}\n"),
            |it| format!("2026-11-17T02:37:00Z ERROR distributor::identity: {it}"),
            |it| format!(r#"{{"level":"WARN","detail":"{it}","fleet":"default/web"}}"#),
        ];
        for (sentence, frame) in sentences.iter().flat_map(|it| frames.map(|frame| (it, frame))) {
            let text = frame(sentence);
            assert_eq!(scrubber.scrub(text.clone()), text);
        }
    }

    /// Also if the value is a word that could be prose.
    #[test]
    fn a_value_in_its_place_never_stays() {
        let scrubber = Scrubber::new().unwrap();
        let secrets = [
            "hunter2",
            "sunshine",
            "correcthorsebatterystaple",
            "Tr0ub4dor&3",
            "c2VjcmV0LXRva2VuLXZhbHVl",
            "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
            "9f86d081884c7d659a2feaa0c55ad015",
            "eyJhbGciOi.eyJzdWIi.c2ln",
        ];
        // Only letters of a word, so of a size that a sentence can have.
        let said = ["expired", "required", "invalid", "missing", "none"];
        let configs: [fn(&str) -> String; 14] = [
            |it| format!("password={it}"),
            |it| format!("token={it} x"),
            |it| format!("--token={it}"),
            |it| format!("https://host/?token={it}&x=1"),
            |it| format!("redis://user:{it}@host/0"),
            |it| format!(r#"{{"password":"{it}"}}"#),
            |it| format!(r#"{{"password": "{it}", "x": 1}}"#),
            |it| format!("store_password: {it}\n"),
            |it| format!("redis:\n  password: {it}\n  host: x\n"),
            |it| format!("users:\n- token: {it}\n"),
            |it| format!("user: {{name: x, token: {it}, y: z}}"),
            |it| format!("user: {{token: {it}}}"),
            |it| format!("x-auth-token: {it}\r\nhost: x\r\n"),
            |it| format!(r#"{{"detail":"redis:\n  password: {it}\n  host: x"}}"#),
        ];
        let sentences: [fn(&str) -> String; 11] = [
            |it| format!("token: {it}"),
            |it| format!("WARN the password: {it} was sent"),
            |it| format!("token: expired {it}"),
            |it| format!("token: invalid: {it}"),
            |it| format!("token: rejected ({it})"),
            |it| format!("token: not {it}"),
            |it| format!("token: expired password: {it}"),
            |it| format!("token: abc REDIS_PASSWORD = {it}"),
            |it| format!("token: Bearer mytoken{it}"),
            |it| format!("password: {it} token: expired"),
            |it| format!("password: required, but token: {it}"),
        ];
        let in_configs = secrets.iter().chain(&said).flat_map(|it| configs.map(|form| (it, form)));
        let in_sentences = secrets.iter().flat_map(|it| sentences.map(|form| (it, form)));
        for (secret, form) in in_configs.chain(in_sentences) {
            let text = form(secret);
            let scrubbed = scrubber.scrub(text.clone());
            assert!(!scrubbed.contains(secret), "{text} -> {scrubbed}");
            assert!(scrubbed.contains(REDACTED), "{text} -> {scrubbed}");
        }
    }
}
