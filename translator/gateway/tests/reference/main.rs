//! The pages in `docs/reference` that say what objects take and what is said of them. `UPDATE_GOLDEN=1` rewrites them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod conditions;
mod objects;

use std::path::Path;
use std::{env, fs};

/// Compares a page with what it is to be.
fn check(name: &str, page: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name);
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&file, page).unwrap();
    }
    let written = fs::read_to_string(&file).unwrap_or_default();
    let difference = page.lines().zip(written.lines()).find(|(now, then)| now != then);
    assert!(
        page == written,
        "{name} is not what the code says: rewrite it with `make golden`. The first difference: {difference:?}"
    );
}

/// A row of a table.
fn row<const N: usize>(cells: [&str; N]) -> String {
    // A bar would end the cell.
    let cells = cells.map(|cell| cell.replace('|', "\\|"));
    format!("| {} |\n", cells.join(" | "))
}
