use regex::{Captures, Regex};
use std::borrow::Cow;

/// Blots out what looks like a secret. The pages of our programs have none; but proxies word their errors as they like, and
/// a bundle goes to others.
#[derive(Debug)]
pub(super) struct Scrubber {
    patterns: Vec<Regex>,
}

const REDACTED: &str = "[redacted]";

/// What a secret is called, also as the end of a longer name.
const NAMES: &str = "authorization|passw(?:or)?d|passphrase|token|api[_-]?key|(?:secret|access)[_-]?key|(?:client|shared)[_-]?secret";

/// What is in the group `keep` stays. NAME and what is between it and its value are as `Scrubber::new` has them.
const PATTERNS: [&str; 10] = [
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
    // A word, and what kind of authorization it is.
    r#"(?i)(?<keep>NAMESEPARATOR)(?:[a-z]+\s+)?[^\s"',;}&\\]+"#,
];

impl Scrubber {
    pub(super) fn new() -> Result<Self, regex::Error> {
        let patterns = PATTERNS.iter().map(|pattern| {
            let pattern = pattern.replace("NAME", &format!("(?:{NAMES})"));
            Regex::new(&pattern.replace("SEPARATOR", r#"\\?["']?\s*[:=]\s*"#))
        });
        Ok(Self { patterns: patterns.collect::<Result<_, _>>()? })
    }

    pub(super) fn scrub(&self, text: String) -> String {
        let blot = |found: &Captures<'_>| {
            let kept = found.name("keep").map_or("", |kept| kept.as_str());
            let tail = if found[0].ends_with('@') { "@" } else { "" };
            format!("{kept}{REDACTED}{tail}")
        };
        self.patterns.iter().fold(text, |text, pattern| match pattern.replace_all(&text, blot) {
            Cow::Borrowed(_) => text,
            Cow::Owned(scrubbed) => scrubbed,
        })
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
}
