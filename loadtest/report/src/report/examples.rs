use serde::{Deserialize, Serialize};

/// The first texts of many, each once and not too long: enough to understand what is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<String>", into = "Vec<String>")]
pub struct Examples(Vec<String>);

const KEPT: usize = 100;
/// In characters.
const LONGEST: usize = 1_000;

impl Examples {
    pub fn add(&mut self, text: &str) {
        if self.0.len() < KEPT {
            let text: String = text.chars().take(LONGEST).collect();
            if !self.0.contains(&text) {
                self.0.push(text);
            }
        }
    }

    pub fn merge(&mut self, other: &Self) {
        for text in other.iter() {
            self.add(text);
        }
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T: AsRef<str>> FromIterator<T> for Examples {
    fn from_iter<I: IntoIterator<Item = T>>(texts: I) -> Self {
        let mut examples = Self::default();
        for text in texts {
            examples.add(text.as_ref());
        }
        examples
    }
}

impl From<Vec<String>> for Examples {
    fn from(texts: Vec<String>) -> Self {
        texts.into_iter().collect()
    }
}

impl From<Examples> for Vec<String> {
    fn from(examples: Examples) -> Self {
        examples.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_hundred_are_kept_each_once_and_short() {
        let mut examples: Examples = ["a", "b", "a"].into_iter().collect();
        assert_eq!(examples.iter().collect::<Vec<_>>(), ["a", "b"]);
        examples.merge(&(0..1000).map(|number| format!("{number:03000}")).collect());
        assert_eq!(examples.iter().next(), Some("a"));
        assert_eq!(examples.iter().len(), 3, "those are equal as far as they are kept");
        examples.merge(&(0..1000).map(|number| number.to_string()).collect());
        assert_eq!(examples.iter().len(), 100);
        assert!(examples.iter().all(|text| text.len() <= 1000));
    }
}
