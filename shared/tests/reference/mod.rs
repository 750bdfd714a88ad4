//! The pages in `docs/reference` say what programs take. `UPDATE_GOLDEN=1` rewrites them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use heliograph_shared::settings;
use std::path::Path;
use std::{env, fs};

/// Compares the page of a program with what the program says.
pub(crate) fn check(program: clap::Command) {
    let name = program.get_name().to_owned();
    let page = settings::reference(program);
    // The tests of a crate run in its folder.
    let here = env::current_dir().unwrap();
    let root =
        here.ancestors().find(|folder| folder.join("docs").is_dir()).unwrap_or(Path::new("."));
    let file = root.join(format!("docs/reference/{name}.md"));
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&file, &page).unwrap();
    }
    let written = fs::read_to_string(&file).unwrap_or_default();
    let difference = page.lines().zip(written.lines()).find(|(now, then)| now != then);
    assert!(
        page == written,
        "{} is not what the program says: rewrite it with `make golden`. The first difference: {difference:?}",
        file.display()
    );
}
