use std::path::{Path, PathBuf};

/// Between these lines of a page a table is written.
const BEGIN: &str = "<!-- loadtest bench writes from here -->";
const END: &str = "<!-- to here -->";

#[derive(Debug, thiserror::Error)]
pub enum PageError {
    #[error("cannot {what} {}: {cause}", path.display())]
    File { what: &'static str, path: PathBuf, cause: std::io::Error },
    #[error("{} has no place for the table: put the lines \"{BEGIN}\" and \"{END}\" into it", .0.display())]
    NoPlace(PathBuf),
}

/// Whether a page has a place for a text.
pub fn find_place(path: &Path) -> Result<(), PageError> {
    with_text(path, "").map(drop)
}

/// Writes a text where the page has a place for it, instead of what was there.
pub fn rewrite(path: &Path, text: &str) -> Result<(), PageError> {
    let page = with_text(path, text)?;
    std::fs::write(path, page).map_err(failed("write", path))
}

fn with_text(path: &Path, text: &str) -> Result<String, PageError> {
    let page = std::fs::read_to_string(path).map_err(failed("read", path))?;
    replaced(&page, text).ok_or_else(|| PageError::NoPlace(path.to_owned()))
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> PageError {
    let path = path.to_owned();
    move |cause| PageError::File { what, path, cause }
}

fn replaced(page: &str, text: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{}\n\n{END}{after}", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_place_changes() {
        let page = format!("# Page\n\n{BEGIN}\nold\n{END}\n\nAfter.\n");
        let once = replaced(&page, "| new |\n").unwrap();
        assert_eq!(once, format!("# Page\n\n{BEGIN}\n\n| new |\n\n{END}\n\nAfter.\n"));
        assert_eq!(replaced(&once, "| new |\n").unwrap(), once);
        assert_eq!(replaced("# Page\n", "text"), None);
    }
}
