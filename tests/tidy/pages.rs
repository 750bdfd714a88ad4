//! Links of the documentation: the page is there, its heading is there, and the index lists every page.

use super::{files, joined, relative, report, root};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Endings of the files besides pages that name pages: programs and charts print them, comments refer to them.
const NAME_PAGES: &[&str] = &["rs", "yaml", "tpl", "txt", "proto", "lua", "go"];

#[test]
fn links_resolve() {
    let anchors = anchors_of_pages();
    let mut problems = Vec::new();
    for page in anchors.keys() {
        let text = fs::read_to_string(page).unwrap();
        for link in links(&text).into_iter().filter(|link| !is_elsewhere(link)) {
            if let Some(problem) = unresolved(page, link, &anchors) {
                problems.push(format!("{}: the link {link}: {problem}", relative(page)));
            }
        }
    }
    report(problems);
}

#[test]
fn pages_that_other_files_name_are_there() {
    let (anchors, readme) = (anchors_of_pages(), root().join("README.md"));
    let mut problems = Vec::new();
    for path in NAME_PAGES.iter().flat_map(|ending| files(ending)) {
        let text = fs::read_to_string(&path).unwrap_or_default();
        for link in pages_named(&text) {
            if let Some(problem) = unresolved(&readme, link, &anchors) {
                problems.push(format!("{}: {link}: {problem}", relative(&path)));
            }
        }
    }
    report(problems);
}

#[test]
fn the_index_has_every_page() {
    let (docs, decisions) = (root().join("docs"), root().join("docs/decisions"));
    let index = docs.join("README.md");
    let text = fs::read_to_string(&index).unwrap();
    let mut listed: BTreeSet<PathBuf> =
        links(&text).into_iter().map(|link| joined(&docs, page_of(link))).collect();
    listed.insert(index);
    let pages = files("md").into_iter().filter(|page| page.starts_with(&docs));
    // Decisions have an index of their own.
    let pages = pages.filter(|page| {
        !page.starts_with(&decisions) || page.file_name().is_some_and(|name| name == "README.md")
    });
    let missing = pages.filter(|page| !listed.contains(page));
    report(missing.map(|page| format!("{}: list it in docs/README.md", relative(&page))));
}

#[test]
fn the_readers_of_pages_see_what_is_there() {
    assert_eq!(
        links("[one](a.md#x), `code` and\n![two](b/c.png \"title\")"),
        ["a.md#x", "b/c.png"]
    );
    let text =
        "# One: `a_b` & [two](three.md)\ntext\n```sh\n# a comment\n```\n## Four\n### Four\n#five\n";
    let expected = ["four", "four-1", "one-a_b--two"].map(str::to_owned);
    assert_eq!(anchors(text), BTreeSet::from(expected));
    // With a stand-in, so that this file does not name them.
    let text =
        "see D/a.md#b-c, (D/d/e.md). Not D/f.rs, D/{name} or x.org/D/g.md".replace('D', "docs");
    assert_eq!(
        pages_named(&text),
        ["D/a.md#b-c", "D/d/e.md"].map(|name| name.replace('D', "docs"))
    );
    let page = root().join("docs").join("a.md");
    let pages = BTreeMap::from([(page.clone(), anchors("# Here\n"))]);
    assert_eq!(unresolved(&page, "#here", &pages), None);
    assert_eq!(unresolved(&page, "a.md#here", &pages), None);
    assert_eq!(unresolved(&page, "../Cargo.toml", &pages), None);
    assert!(unresolved(&page, "#there", &pages).is_some());
    assert!(unresolved(&page, "there.md", &pages).is_some());
    assert!(unresolved(&page, "../../elsewhere", &pages).is_some());
}

/// Every page, with the anchors of its headings.
fn anchors_of_pages() -> BTreeMap<PathBuf, BTreeSet<String>> {
    let read = |page: PathBuf| (anchors(&fs::read_to_string(&page).unwrap()), page);
    files("md").into_iter().map(read).map(|(anchors, page)| (page, anchors)).collect()
}

/// What is wrong with a link on a page.
fn unresolved(
    page: &Path,
    link: &str,
    anchors: &BTreeMap<PathBuf, BTreeSet<String>>,
) -> Option<String> {
    let target = match page_of(link) {
        "" => page.to_owned(),
        file => joined(page.parent().unwrap(), file),
    };
    let found = anchors.get(&target);
    if found.is_none() && !(target.starts_with(root()) && target.exists()) {
        return Some("there is no such file".to_owned());
    }
    let anchor = link.split_once('#')?.1;
    let found = found?;
    let near = || found.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    (!found.contains(anchor))
        .then(|| format!("{} has no heading #{anchor}, but {}", relative(&target), near()))
}

/// A link without its anchor.
fn page_of(link: &str) -> &str {
    link.split('#').next().unwrap()
}

fn is_elsewhere(link: &str) -> bool {
    link.contains("://") || link.starts_with("mailto:")
}

/// The targets of the links in a text of Markdown.
pub(super) fn links(text: &str) -> Vec<&str> {
    text.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next()).collect()
}

/// The pages below `docs` that a text names, with their anchors.
fn pages_named(text: &str) -> Vec<&str> {
    let is_part = |char: char| char.is_ascii_alphanumeric() || "/._-#".contains(char);
    let starts =
        text.match_indices("docs/").filter(|(start, _)| !text[..*start].ends_with(is_part));
    let starts = starts.map(|(start, _)| &text[start..]);
    let names = starts.map(|rest| {
        let name = &rest[..rest.find(|char| !is_part(char)).unwrap_or(rest.len())];
        name.trim_end_matches(['.', '#'])
    });
    names.filter(|name| page_of(name).ends_with(".md")).collect()
}

/// The anchors that the headings of a page get: in lower case, without punctuation, with `-` for a blank, and numbered where
/// two are the same.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut found = BTreeSet::new();
    let mut in_code = false;
    for line in text.lines() {
        in_code ^= line.trim_start().starts_with("```");
        let title = line.trim_start_matches('#');
        if in_code || title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let kept = shown(title).to_lowercase();
        let kept =
            kept.trim().chars().filter(|char| char.is_alphanumeric() || "-_ ".contains(*char));
        let anchor: String = kept.map(|char| if char == ' ' { '-' } else { char }).collect();
        let count = counts.entry(anchor.clone()).or_default();
        found.insert(if *count == 0 { anchor } else { format!("{anchor}-{count}") });
        *count += 1;
    }
    found
}

/// A heading without the targets of its links.
fn shown(title: &str) -> String {
    let mut parts = title.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |shown, part| shown + part.split_once(')').map_or("", |(_, rest)| rest))
}
