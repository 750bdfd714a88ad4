use super::SettingsError;
use super::keys::{Key, Shape};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Command};
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, Spanned, UserMessageFormatter};
use std::collections::BTreeMap;
use std::error::Error as _;
use std::fmt;
use std::path::{Path, PathBuf};

/// The settings of a file, every key known and every value right.
#[derive(Debug, Default)]
pub(super) struct File {
    values: BTreeMap<String, Vec<String>>,
}

/// How a secret is printed, and what a file can therefore not mean.
pub(super) const REDACTED: &str = "<redacted>";

/// One line of a file.
struct Entry {
    line: u64,
    key: String,
    /// The text of the value as it was written, whatever YAML would take it for: its meaning is up to the flag.
    /// `None` for null, which leaves the flag at its default.
    values: Option<Vec<String>>,
}

struct Entries<'a> {
    keys: &'a [Key],
}

impl File {
    pub(super) fn load(path: PathBuf, keys: &[Key]) -> Result<Self, SettingsError> {
        match std::fs::read_to_string(&path) {
            Ok(text) => Self::read(&path, &text, keys),
            Err(cause) => Err(SettingsError::Unreadable { file: path, cause }),
        }
    }

    pub(super) fn read(path: &Path, text: &str, keys: &[Key]) -> Result<Self, SettingsError> {
        let entries = parse(text, keys)
            .map_err(|reason| SettingsError::Malformed { file: path.to_owned(), reason })?;
        let mut file = Self::default();
        let mut seen = BTreeMap::new();
        for Entry { line, key, values } in entries {
            let Some(known) = keys.iter().find(|known| known.name == key) else {
                let nearest = nearest(&key, keys);
                return Err(SettingsError::UnknownKey {
                    file: path.to_owned(),
                    line,
                    key,
                    nearest,
                });
            };
            if seen.insert(key.clone(), line).is_some() {
                return Err(SettingsError::Repeated { file: path.to_owned(), line, key });
            }
            let Some(values) = values else { continue };
            for value in &values {
                if let Err(reason) = check(known, value) {
                    return Err(SettingsError::WrongValue {
                        file: path.to_owned(),
                        line,
                        key,
                        reason,
                    });
                }
            }
            file.values.insert(key, values);
        }
        Ok(file)
    }

    pub(super) fn values(&self, key: &str) -> Option<&[String]> {
        self.values.get(key).map(Vec::as_slice)
    }
}

fn parse(text: &str, keys: &[Key]) -> Result<Vec<Entry>, String> {
    let options = serde_saphyr::options! {
        with_snippet: false,
        // Both come through, and are refused with a line of ours.
        duplicate_keys: DuplicateKeyPolicy::LastWins,
    };
    serde_saphyr::with_deserializer_from_str_with_options(text, options, |yaml| {
        yaml.deserialize_any(Entries { keys })
    })
    .map_err(|error| one_line(&error.render_with_formatter(&UserMessageFormatter)))
}

impl<'de> Visitor<'de> for Entries<'_> {
    type Value = Vec<Entry>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("lines of KEY: VALUE")
    }

    /// A file of nothing but comments.
    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(Spanned { value: key, referenced, .. }) =
            map.next_key::<Spanned<String>>()?
        {
            let shape = self.keys.iter().find(|known| known.name == key).map(|known| known.shape);
            let values = match shape {
                Some(Shape::One) => map
                    .next_value::<Option<String>>()
                    .map(|value| value.map(|value| vec![value]))
                    .map_err(|error| A::Error::custom(format!("{key:?} takes one value: {error}"))),
                Some(Shape::List) => map
                    .next_value::<Option<Vec<String>>>()
                    .map_err(|error| A::Error::custom(format!("{key:?} takes a list: {error}"))),
                // Refused once the whole file is known to be YAML.
                None => map.next_value::<IgnoredAny>().map(|_| None),
            };
            entries.push(Entry { line: referenced.line(), key, values: values? });
        }
        Ok(entries)
    }
}

/// Whether the flag would take this value, asked of a command that has no other flag.
pub(super) fn check(key: &Key, value: &str) -> Result<(), String> {
    if key.secret && value == REDACTED {
        return Err("it was redacted when it was printed: write the secret itself".to_owned());
    }
    let flag = Arg::new("value")
        .long("value")
        .action(ArgAction::Set)
        .num_args(1)
        .value_parser(key.parser.clone());
    let check = Command::new("check").no_binary_name(true).arg(flag);
    let Err(error) = check.try_get_matches_from([format!("--value={value}")]) else {
        return Ok(());
    };
    let reason = match (error.kind(), error.get(ContextKind::ValidValue), error.source()) {
        (ErrorKind::InvalidValue, Some(ContextValue::Strings(valid)), _) => {
            format!("use one of {}", valid.join(", "))
        }
        (_, _, Some(cause)) => one_line(&cause.to_string()),
        _ => "the flag does not accept it".to_owned(),
    };
    Err(if key.secret { reason } else { format!("{value:?}: {reason}") })
}

fn nearest(key: &str, keys: &[Key]) -> Option<String> {
    keys.iter()
        .map(|known| &known.name)
        .min_by_key(|known| strsim::damerau_levenshtein(key, known))
        .cloned()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
