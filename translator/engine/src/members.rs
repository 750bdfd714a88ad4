use std::collections::BTreeSet;

/// A set that has one member or two, as a rule. A `BTreeSet` of one has room for eleven, which is most of the memory when
/// there are a hundred thousand of them. A set that grows becomes a `BTreeSet`.
#[derive(Debug)]
pub enum Members<T> {
    /// In order.
    Few(Vec<T>),
    Many(BTreeSet<T>),
}

/// As many as can be moved about for the price of an allocation.
const FEW: usize = 16;

impl<T: Ord> Members<T> {
    pub fn insert(&mut self, member: T) {
        match self {
            Self::Many(many) => drop(many.insert(member)),
            Self::Few(few) => {
                let Err(position) = few.binary_search(&member) else { return };
                if few.len() < FEW {
                    few.reserve_exact(1);
                    few.insert(position, member);
                } else {
                    let many = few.drain(..).chain([member]);
                    *self = Self::Many(many.collect());
                }
            }
        }
    }

    pub fn remove(&mut self, member: &T) {
        match self {
            Self::Many(many) => drop(many.remove(member)),
            Self::Few(few) => {
                if let Ok(position) = few.binary_search(member) {
                    few.remove(position);
                }
            }
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Few(few) => few.len(),
            Self::Many(many) => many.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let (few, many) = match self {
            Self::Few(few) => (Some(few), None),
            Self::Many(many) => (None, Some(many)),
        };
        few.into_iter().flatten().chain(many.into_iter().flatten())
    }
}

impl<T> Default for Members<T> {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_set(steps in prop::collection::vec((any::<bool>(), 0..24_u8), 0..200)) {
            let (mut members, mut expected) = (Members::default(), BTreeSet::new());
            for (is_added, member) in steps {
                if is_added {
                    members.insert(member);
                    expected.insert(member);
                } else {
                    members.remove(&member);
                    expected.remove(&member);
                }
                prop_assert!(members.iter().eq(&expected));
                prop_assert_eq!(members.is_empty(), expected.is_empty());
            }
        }
    }
}
