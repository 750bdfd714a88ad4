use std::collections::BTreeMap;

/// The metrics of a program, from its `/metrics`.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScrapedMetrics {
    samples: Vec<Sample>,
}

#[derive(Clone, Debug)]
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

impl ScrapedMetrics {
    /// Lines that cannot be read are passed over.
    pub(crate) fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Self { samples: lines.filter_map(sample).collect() }
    }

    /// The sum of all with this name; `None` if the program does not count this.
    pub(crate) fn sum(&self, name: &str) -> Option<f64> {
        self.sum_where(name, |_, _| true)
    }

    /// The same, of those with a label.
    pub(crate) fn labelled(&self, name: &str, label: &str, value: &str) -> Option<f64> {
        self.sum_where(name, |of, is| of == label && is == value)
    }

    /// A label of the only one with this name.
    pub(crate) fn label(&self, name: &str, label: &str) -> Option<&str> {
        let sample = self.samples.iter().find(|sample| sample.name == name)?;
        let found = sample.labels.iter().find(|(of, _)| of == label)?;
        Some(&found.1)
    }

    /// All with this name, by the value of a label.
    pub(crate) fn by_label(&self, name: &str, label: &str) -> BTreeMap<String, f64> {
        let mut sums = BTreeMap::new();
        for sample in self.samples.iter().filter(|sample| sample.name == name) {
            if let Some((_, value)) = sample.labels.iter().find(|(of, _)| of == label) {
                *sums.entry(value.clone()).or_default() += sample.value;
            }
        }
        sums
    }

    fn sum_where(&self, name: &str, wanted: impl Fn(&str, &str) -> bool) -> Option<f64> {
        let is_wanted = |sample: &&Sample| {
            let mut labels = sample.labels.iter();
            sample.name == name
                && (sample.labels.is_empty() || labels.any(|(of, is)| wanted(of, is)))
        };
        let mut found = self.samples.iter().filter(is_wanted).map(|sample| sample.value).peekable();
        found.peek()?;
        Some(found.sum())
    }
}

/// `name{label="value",…} 12`, as our programs write it.
fn sample(line: &str) -> Option<Sample> {
    let (series, value) = line.rsplit_once(' ')?;
    let (name, labels) = match series.split_once('{') {
        Some((name, labels)) => (name, labels.strip_suffix('}')?),
        None => (series, ""),
    };
    let mut rest = labels;
    let mut labels = Vec::new();
    while let Some((label, behind)) = rest.split_once("=\"") {
        let (value, behind) = quoted(behind)?;
        labels.push((label.to_owned(), value));
        rest = behind.strip_prefix(',').unwrap_or(behind);
    }
    Some(Sample { name: name.to_owned(), labels, value: value.parse().ok()? })
}

/// The text before the closing quote, and the text after it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            _ => value.push(char),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_read_as_they_are_written() {
        let metrics = ScrapedMetrics::parse(
            "# HELP streams Open now.\n\
             # TYPE streams gauge\n\
             streams{protocol=\"delta\"} 12\n\
             streams{protocol=\"sotw\"} 3\n\
             staleness 0.25\n\
             build{program=\"a \\\"b\\\" \\\\ {c},d\",version=\"1\"} 1\n\
             not a metric\n",
        );
        assert_eq!(metrics.sum("streams"), Some(15.0));
        assert_eq!(metrics.labelled("streams", "protocol", "sotw"), Some(3.0));
        assert_eq!(metrics.labelled("streams", "protocol", "other"), None);
        assert_eq!(metrics.sum("staleness"), Some(0.25));
        assert_eq!(metrics.sum("other"), None);
        assert_eq!(metrics.label("build", "program"), Some("a \"b\" \\ {c},d"));
        assert_eq!(metrics.label("build", "version"), Some("1"));
    }
}
