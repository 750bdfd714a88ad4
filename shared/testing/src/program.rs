use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{env, fs};

/// What builds every program that a test starts.
const BUILD: &str = "cargo build --workspace --bins";

/// The path of one of the project's programs, which cargo builds into the directory above that of the test programs.
///
/// With a test, cargo builds the programs of the same package and of no other. Another program may be missing, or older than
/// its source, and a test that ran it would say nothing about the source. So this panics then, with one line that says what
/// to run.
#[allow(clippy::panic)]
#[track_caller]
pub fn program(name: &str) -> PathBuf {
    match env::current_exe().map_err(|error| error.to_string()).and_then(|test| find(&test, name)) {
        Ok(program) => program,
        Err(problem) => panic!("{problem}: {BUILD}"),
    }
}

fn find(test: &Path, name: &str) -> Result<PathBuf, String> {
    let folder = test.parent().and_then(Path::parent).unwrap_or(test);
    let program = folder.join(name);
    // Cargo writes the sources of a program beside it.
    let (Some(built), Ok(listed)) =
        (modified(&program), fs::read_to_string(program.with_extension("d")))
    else {
        return Err(format!("{} is not built", program.display()));
    };
    match changed_since(built, &listed, modified) {
        Some(source) => Err(format!("{} is older than {}", program.display(), source.display())),
        None => Ok(program),
    }
}

/// The first source that changed after `built`, or that is gone: cargo would build the program again.
fn changed_since(
    built: SystemTime,
    listed: &str,
    modified: impl Fn(&Path) -> Option<SystemTime>,
) -> Option<PathBuf> {
    sources(listed)
        .into_iter()
        .find(|source| modified(source).is_none_or(|changed| changed > built))
}

/// The paths in `program: source source …`, where `\ ` is a space of a path.
fn sources(listed: &str) -> Vec<PathBuf> {
    let line = listed.lines().next().and_then(|line| line.split_once(": "));
    let escaped = line.map_or("", |(_, sources)| sources).replace("\\ ", "\0");
    escaped.split_whitespace().map(|path| path.replace('\0', " ").into()).collect()
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|it| it.modified()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(second: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(second)
    }

    #[test]
    fn a_program_is_as_new_as_its_sources() {
        let listed = "/target/helio: /src/a.rs /with\\ space/b.rs\n";
        let changed = |a, b| {
            let modified = move |path: &Path| match path.to_str()? {
                "/src/a.rs" => Some(at(a)),
                "/with space/b.rs" => b,
                _ => None,
            };
            changed_since(at(10), listed, modified)
        };
        assert_eq!(changed(9, Some(at(10))), None);
        assert_eq!(changed(11, Some(at(10))), Some("/src/a.rs".into()));
        assert_eq!(changed(9, Some(at(11))), Some("/with space/b.rs".into()));
        assert_eq!(changed(9, None), Some("/with space/b.rs".into()), "it is gone");
    }

    #[test]
    fn one_that_is_not_there_is_not_built() {
        let problem = find(Path::new("/target/debug/deps/test-1"), "nothing").unwrap_err();
        assert_eq!(problem, "/target/debug/nothing is not built");
    }
}
