use super::scan::{Entry, Identity, Scan};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// The symlinks with a manifest's name. The system reports a change of the file that one leads to at the path of that
/// file, so this says which symlinks to inspect besides.
#[derive(Debug, Default)]
pub(super) struct Links {
    targets: BTreeMap<Arc<Path>, Option<Identity>>,
    by_target: BTreeMap<Option<Identity>, BTreeSet<Arc<Path>>>,
    to_directories: bool,
}

impl Links {
    pub(super) fn of(scan: &Scan) -> Self {
        let mut links = Self { to_directories: scan.links_directories, ..Self::default() };
        for (path, target) in &scan.links {
            links.insert(path.clone(), *target);
        }
        links
    }

    /// Records what was found at `path`.
    pub(super) fn update(&mut self, path: &Arc<Path>, entry: &Entry, is_link: bool) {
        let target = (is_link && *entry != Entry::Directory).then(|| entry.identity());
        if self.targets.get(path).copied() == target {
            return;
        }
        if let Some(before) = self.targets.remove(path)
            && let Some(paths) = self.by_target.get_mut(&before)
        {
            paths.remove(path);
            if paths.is_empty() {
                self.by_target.remove(&before);
            }
        }
        if let Some(target) = target {
            self.insert(path.clone(), target);
        }
    }

    /// The symlinks that lead to one of these files, and those that led nowhere and may lead to it now.
    pub(super) fn affected_by(
        &self,
        targets: impl IntoIterator<Item = Identity>,
    ) -> impl Iterator<Item = &Arc<Path>> {
        let targets = targets.into_iter().map(Some).chain([None]);
        targets.filter_map(|target| self.by_target.get(&target)).flatten()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Path>> {
        self.targets.keys()
    }

    /// Whether one led to a directory at the last scan.
    pub(super) fn lead_to_directories(&self) -> bool {
        self.to_directories
    }

    fn insert(&mut self, path: Arc<Path>, target: Option<Identity>) {
        self.by_target.entry(target).or_default().insert(path.clone());
        self.targets.insert(path, target);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn symlinks_are_found_by_the_file_that_they_lead_to() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| Arc::<Path>::from(root.path().join(name));
        fs::write(path("one"), "").unwrap();
        fs::write(path("two"), "").unwrap();
        symlink("one", path("a.yaml")).unwrap();
        symlink("one", path("b.yaml")).unwrap();
        symlink("nowhere", path("c.yaml")).unwrap();
        let mut links = Links::of(&Scan::of(root.path()));
        let affected = |links: &Links, file: &str| {
            let identity = Entry::at(&path(file)).0.identity();
            links.affected_by(identity).cloned().collect::<Vec<_>>()
        };
        assert_eq!(affected(&links, "one"), [path("a.yaml"), path("b.yaml"), path("c.yaml")]);
        assert_eq!(affected(&links, "two"), [path("c.yaml")]);

        fs::remove_file(path("a.yaml")).unwrap();
        symlink("two", path("a.yaml")).unwrap();
        fs::remove_file(path("b.yaml")).unwrap();
        for name in ["a.yaml", "b.yaml"] {
            let (entry, is_link) = Entry::at(&path(name));
            links.update(&path(name), &entry, is_link);
        }
        assert_eq!(affected(&links, "one"), [path("c.yaml")]);
        assert_eq!(affected(&links, "two"), [path("a.yaml"), path("c.yaml")]);
        assert_eq!(links.all().count(), 2);
    }
}
