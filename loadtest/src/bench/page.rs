use super::Lane;
use std::path::{Path, PathBuf};

const END: &str = "<!-- to here -->";

#[derive(Debug, thiserror::Error)]
pub enum PageError {
    #[error("cannot {what} {}: {cause}", path.display())]
    File { what: &'static str, path: PathBuf, cause: std::io::Error },
    #[error(
        "{} has no place for the table: put the lines \"{}\" and \"{END}\" into it",
        path.display(), begin(*lane)
    )]
    NoPlace { path: PathBuf, lane: Lane },
}

/// Whether a page has a place for the table of a lane.
pub fn find_place(path: &Path, lane: Lane) -> Result<(), PageError> {
    with_text(path, lane, "").map(drop)
}

/// Writes a text where the page has a place for it, instead of what was there.
pub fn rewrite(path: &Path, lane: Lane, text: &str) -> Result<(), PageError> {
    let page = with_text(path, lane, text)?;
    std::fs::write(path, page).map_err(failed("write", path))
}

fn with_text(path: &Path, lane: Lane, text: &str) -> Result<String, PageError> {
    let page = std::fs::read_to_string(path).map_err(failed("read", path))?;
    let none = || PageError::NoPlace { path: path.to_owned(), lane };
    replaced(&page, begin(lane), text).ok_or_else(none)
}

/// After this line of a page the table of a lane is written, up to the next [`END`].
fn begin(lane: Lane) -> &'static str {
    match lane {
        Lane::Distributor => "<!-- loadtest bench writes from here -->",
        Lane::ControlPlane => "<!-- loadtest bench writes of control planes from here -->",
    }
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> PageError {
    let path = path.to_owned();
    move |cause| PageError::File { what, path, cause }
}

fn replaced(page: &str, begin: &str, text: &str) -> Option<String> {
    let (before, rest) = page.split_once(begin)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{begin}\n\n{}\n\n{END}{after}", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_place_changes() {
        let [first, second] = Lane::ALL.map(begin);
        let page = format!("# Page\n\n{first}\nold\n{END}\n\n{second}\nold\n{END}\n\nAfter.\n");
        let once = replaced(&page, second, "| new |\n").unwrap();
        let new = format!("{second}\n\n| new |\n\n{END}");
        assert_eq!(once, format!("# Page\n\n{first}\nold\n{END}\n\n{new}\n\nAfter.\n"));
        assert_eq!(replaced(&once, second, "| new |\n").unwrap(), once);
        assert_eq!(replaced("# Page\n", first, "text"), None);
    }
}
