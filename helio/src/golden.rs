//! Golden files of what commands print: `tests/golden/COMMAND/CASE.yaml` has the answers of programs, `CASE.txt` and
//! `CASE.json` the output for them. `UPDATE_GOLDEN=1` rewrites the latter.

use crate::sources::{Answers, Silent};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::path::Path;
use std::{env, fs};

pub(crate) struct Rendered {
    pub(crate) text: String,
    pub(crate) json: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case<T> {
    given: BTreeMap<String, T>,
    #[serde(default)]
    silent: Vec<Silent>,
    #[serde(default)]
    whole: bool,
}

pub(crate) fn check<T: DeserializeOwned>(command: &str, render: impl Fn(Answers<T>) -> Rendered) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(command);
    let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let mut cases: Vec<_> =
        files.filter(|path| path.extension() == Some("yaml".as_ref())).collect();
    cases.sort();
    assert!(!cases.is_empty(), "no case in {}", folder.display());
    for path in cases {
        let input = fs::read_to_string(&path).unwrap();
        let Case { given, silent, whole } = serde_saphyr::from_str(&input).unwrap();
        let given = given.into_iter().collect();
        let rendered = render(Answers { given, silent, is_whole: whole });
        for (kind, actual) in [("txt", rendered.text), ("json", rendered.json)] {
            let file = path.with_extension(kind);
            if env::var_os("UPDATE_GOLDEN").is_some() {
                fs::write(&file, &actual).unwrap();
            }
            let expected = fs::read_to_string(&file).unwrap_or_default();
            assert_eq!(
                actual,
                expected,
                "{}: if the new output is right, rewrite it with `make golden` and read the diff",
                file.display()
            );
        }
    }
}
