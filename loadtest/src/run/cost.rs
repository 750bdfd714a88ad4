use heliograph_report::{PerStream, Sample};

/// The cost of one more stream, measured at moments when nothing was under way: without clients, or when all clients had
/// everything. Between these moments, a server has accepted connections that it has not served yet, and each would seem
/// to cost next to nothing.
#[derive(Debug, Default)]
pub(super) struct Cost {
    settled: Vec<Sample>,
    closed: bool,
}

impl Cost {
    /// Whether nothing has happened yet but that clients connected.
    pub(super) fn is_open(&self) -> bool {
        !self.closed
    }

    pub(super) fn is_begun(&self) -> bool {
        !self.settled.is_empty()
    }

    pub(super) fn add(&mut self, sample: Option<Sample>) {
        if self.is_open() {
            self.settled.extend(sample);
        }
    }

    /// From now on servers work for something else too.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    pub(super) fn per_stream(&self) -> Option<PerStream> {
        PerStream::of(&self.settled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_later_does_not_count() {
        let sample = |streams, cpu_us, pss| {
            Some(Sample { streams, cpu_us, pss: Some(pss), ..Sample::default() })
        };
        let mut cost = Cost::default();
        assert_eq!(cost.per_stream(), None);
        cost.add(sample(0, 1_000, 20_000));
        cost.add(None);
        assert!(cost.is_begun() && cost.is_open());
        cost.add(sample(10, 2_000, 50_000));
        let expected = Some(PerStream { bytes: 3_000.0, cpu_us: 100.0 });
        assert_eq!(cost.per_stream(), expected);
        cost.close();
        cost.add(sample(20, 1_000_000, 60_000_000));
        assert_eq!(cost.per_stream(), expected);
    }
}
