use serde::Serialize;

/// A set that is built once, in order. It uses no more memory than its members need: a `BTreeSet` of one has space for
/// eleven.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct FrozenSet<T>(Box<[T]>);

impl<T> FrozenSet<T> {
    /// In order.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T: Ord> FrozenSet<T> {
    pub fn contains(&self, member: &T) -> bool {
        self.0.binary_search(member).is_ok()
    }

    /// The members that the other set does not have, in order.
    pub fn difference<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a T> {
        self.iter().filter(|member| !other.contains(member))
    }
}

impl<T: Ord> FromIterator<T> for FrozenSet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(members: I) -> Self {
        let mut members: Vec<T> = members.into_iter().collect();
        members.sort_unstable();
        members.dedup();
        Self(members.into())
    }
}

impl<T: Ord, const N: usize> From<[T; N]> for FrozenSet<T> {
    fn from(members: [T; N]) -> Self {
        members.into_iter().collect()
    }
}

impl<'a, T> IntoIterator for &'a FrozenSet<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T> Default for FrozenSet<T> {
    fn default() -> Self {
        Self(Box::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_is_a_set(
            one in prop::collection::vec(0..40_u8, 0..30),
            other in prop::collection::vec(0..40_u8, 0..30),
        ) {
            let (sets, frozen) = ([&one, &other].map(|it| it.iter().copied().collect::<BTreeSet<_>>()),
                [&one, &other].map(|it| it.iter().copied().collect::<FrozenSet<_>>()));
            prop_assert!(frozen[0].iter().eq(&sets[0]));
            prop_assert!(frozen[0].difference(&frozen[1]).eq(sets[0].difference(&sets[1])));
            prop_assert!((0..40).all(|it| frozen[0].contains(&it) == sets[0].contains(&it)));
        }
    }
}
