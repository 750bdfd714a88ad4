use std::collections::VecDeque;

/// The last changes, so that a reader need not read everything. Readers remember how far they have read; one that is too
/// far behind reads everything, which costs about as much as all that it missed.
#[derive(Clone, Debug)]
pub struct Recent<K> {
    /// How many changes there were.
    count: u64,
    /// The last of them.
    keys: VecDeque<K>,
}

/// How many changes are kept.
const KEPT: usize = 4096;

impl<K> Recent<K> {
    pub fn push(&mut self, key: K) {
        if self.keys.len() == KEPT {
            self.keys.pop_front();
        }
        self.keys.push_back(key);
        self.count += 1;
    }

    /// The number of changes so far, for the next call of `since`.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The keys that changed after the first `count` changes, some of them perhaps several times. `None`: that is too
    /// long ago.
    pub fn since(&self, count: u64) -> Option<impl Iterator<Item = &K>> {
        let news = usize::try_from(self.count.checked_sub(count)?).ok()?;
        let first = self.keys.len().checked_sub(news)?;
        Some(self.keys.range(first..))
    }
}

impl<K> Default for Recent<K> {
    fn default() -> Self {
        Self { count: 0, keys: VecDeque::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_is_told_what_it_has_not_read_until_it_is_too_far_behind() {
        let mut recent = Recent::default();
        let since = |recent: &Recent<u64>, count| {
            recent.since(count).map(|keys| keys.copied().collect::<Vec<_>>())
        };
        assert_eq!(since(&recent, 0), Some(vec![]));
        for key in 0..KEPT as u64 {
            recent.push(key);
        }
        let all = recent.count();
        assert_eq!(since(&recent, 0).unwrap().len(), KEPT);
        assert_eq!(since(&recent, all - 2), Some(vec![all - 2, all - 1]));
        assert_eq!(since(&recent, all), Some(vec![]));
        recent.push(all);
        assert_eq!(since(&recent, 0), None, "the first is forgotten");
        assert_eq!(since(&recent, 1).unwrap().len(), KEPT);
        assert_eq!(since(&recent, all + 2), None, "the reader had another one");
    }
}
