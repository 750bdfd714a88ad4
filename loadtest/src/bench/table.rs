use super::lines::{LINES, Line, Target, Unit};
use super::{Bench, Contender, Lane, Results};
use heliograph_report::Machine;
use std::fmt::Write;

/// The figures of all contenders side by side, as Markdown.
#[derive(Clone, Debug)]
pub struct ResultsTable {
    lane: Lane,
    results: Results,
    rows: Vec<u8>,
    brief: bool,
    /// Whether another build was measured, which has a column of its own then.
    with_before: bool,
    rounds: usize,
    machine: Machine,
}

/// Whether a target is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TargetStatus {
    Reached,
    Missed,
    /// There is a target, and ours or the peer was not measured.
    NotMeasured,
    /// There is no target.
    Open,
}

impl ResultsTable {
    pub(super) fn new(results: Results, lane: Lane, bench: &Bench) -> Self {
        let Bench { rows, brief, rounds, .. } = bench;
        let (rows, machine, with_before) = (rows.clone(), Machine::here(), bench.before.is_some());
        Self { lane, results, rows, brief: *brief, with_before, rounds: *rounds, machine }
    }

    pub fn markdown(&self) -> String {
        let mut text = String::new();
        if self.brief {
            text.push_str(
                "A brief run, with a tenth of everything: the figures are not comparable.\n\n",
            );
        }
        let contenders: Vec<_> = self.contenders().collect();
        let mut names: Vec<_> = contenders.iter().map(|contender| short(*contender)).collect();
        names.extend(self.with_before.then_some("over before"));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| # | what | {} | ratio | target | |", names.join(" | "));
        let _ = writeln!(text, "|{}", " --- |".repeat(names.len() + 5));
        for line in self.lines() {
            let values = contenders.iter().map(|it| shown_value(line, self.value(line, *it)));
            let over_before = self.with_before.then(|| shown_ratio(self.over_before(line)));
            let values = values.chain(over_before).collect::<Vec<_>>().join(" | ");
            let ratio = shown_ratio(self.ratio(line));
            let target = match line.target {
                Target::AtMost(most) => format!("{most} × {}", peer(line)),
                Target::AtLeast(least) => format!("at least {least} × {}", peer(line)),
                Target::Own(most) => format!("at most {}", shown_value(line, Some(most))),
                Target::None => "–".to_owned(),
            };
            let status = match self.status(line) {
                TargetStatus::Reached => "reached",
                TargetStatus::Missed => "**missed**",
                TargetStatus::NotMeasured => "not measured",
                TargetStatus::Open => "",
            };
            let (row, what) = (line.row, line.what);
            let _ = writeln!(text, "| {row} | {what} | {values} | {ratio} | {target} | {status} |");
        }
        text.push_str(&self.circumstances());
        text
    }

    /// The lines that miss their targets, or are not known to reach them.
    pub fn missed(&self) -> usize {
        let missed = |line: &&Line| {
            matches!(self.status(line), TargetStatus::Missed | TargetStatus::NotMeasured)
        };
        self.lines().filter(missed).count()
    }

    fn lines(&self) -> impl Iterator<Item = &'static Line> {
        let asked = |row: u8| self.rows.is_empty() || self.rows.contains(&row);
        LINES.iter().filter(move |line| self.lane.has(line.row) && asked(line.row))
    }

    fn contenders(&self) -> impl Iterator<Item = Contender> {
        let all = self.lane.contenders().iter().copied();
        all.filter(move |contender| self.with_before || *contender != Contender::Before)
    }

    fn circumstances(&self) -> String {
        let Machine { cpu, cores, memory, kernel } = &self.machine;
        let mut text = format!(
            "\nMachine: {cpu}, {cores} cores, {} GiB, Linux {kernel}. Rounds: {}.",
            memory.div_ceil(1 << 30),
            self.rounds
        );
        let versions = self.results.versions.iter();
        let versions: Vec<_> =
            versions.map(|(name, version)| format!("{name} ({version})")).collect();
        if !versions.is_empty() {
            let _ = write!(text, " Programs: {}.", versions.join(", "));
        }
        text.push('\n');
        for note in &self.results.notes {
            let _ = write!(text, "\n- {note}");
        }
        if !self.results.notes.is_empty() {
            text.push('\n');
        }
        text
    }

    fn value(&self, line: &Line, contender: Contender) -> Option<f64> {
        let mut values =
            line.figures.iter().filter_map(|figure| self.results.get(*figure, contender));
        match contender {
            Contender::Ours | Contender::Before => values.next(),
            _ => values.min_by(f64::total_cmp),
        }
    }

    fn ratio(&self, line: &Line) -> Option<f64> {
        self.over(line, line.peer?)
    }

    fn over_before(&self, line: &Line) -> Option<f64> {
        self.over(line, Contender::Before)
    }

    /// Ours over what another has.
    fn over(&self, line: &Line, other: Contender) -> Option<f64> {
        let ratio = self.value(line, Contender::Ours)? / self.value(line, other)?;
        ratio.is_finite().then_some(ratio)
    }

    fn status(&self, line: &Line) -> TargetStatus {
        let reached = match line.target {
            Target::AtMost(most) => self.ratio(line).map(|ratio| ratio <= most),
            Target::AtLeast(least) => self.ratio(line).map(|ratio| ratio >= least),
            Target::Own(most) => self.value(line, Contender::Ours).map(|value| value <= most),
            Target::None => None,
        };
        match reached {
            Some(true) => TargetStatus::Reached,
            Some(false) => TargetStatus::Missed,
            None if matches!(line.target, Target::None) => TargetStatus::Open,
            None => TargetStatus::NotMeasured,
        }
    }
}

fn peer(line: &Line) -> &'static str {
    short(line.peer.unwrap_or(Contender::Snapshot))
}

fn short(contender: Contender) -> &'static str {
    match contender {
        Contender::Ours => "ours",
        Contender::Before => "before",
        Contender::Snapshot => "SC",
        Contender::Linear => "LC",
        Contender::PerClient => "SC per client",
        Contender::EnvoyGateway => "EG",
    }
}

fn shown_value(line: &Line, value: Option<f64>) -> String {
    let Some(value) = value else { return "–".to_owned() };
    match line.unit {
        Unit::Bytes if value >= 1e6 => format!("{:.1} MB", value / 1e6),
        Unit::Bytes => format!("{:.1} KB", value / 1e3),
        Unit::Microseconds if value >= 1e3 => format!("{:.2} ms", value / 1e3),
        Unit::Microseconds => format!("{value:.0} µs"),
        Unit::Seconds if value >= 1.0 => format!("{value:.2} s"),
        Unit::Seconds => format!("{:.1} ms", value * 1e3),
        Unit::Times => format!("{value:.2} ×"),
        Unit::Count => format!("{value:.0}"),
    }
}

fn shown_ratio(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "–".to_owned(), significant)
}

/// With two digits that say something.
fn significant(value: f64) -> String {
    if value >= 10.0 {
        return format!("{value:.0}");
    }
    let digits = if value > 0.0 { (1.0 - value.log10().floor()).clamp(1.0, 5.0) } else { 1.0 };
    format!("{value:.*}", digits as usize)
}

#[cfg(test)]
mod tests {
    use super::super::{Amount, Figure};
    use super::*;

    fn table(rows: &[u8], brief: bool) -> ResultsTable {
        let (results, rows) = (results(), rows.to_vec());
        ResultsTable {
            lane: Lane::Distributor,
            results,
            rows,
            brief,
            with_before: false,
            rounds: 1,
            machine: Machine::here(),
        }
    }

    fn results() -> Results {
        let mut results = Results::default();
        let amount = Amount::Thousand;
        for (contender, memory, cpu) in
            [(Contender::Ours, 20e3, 50.0), (Contender::Snapshot, 400e3, 1_000.0)]
        {
            let found = vec![(Figure::Memory(amount), memory), (Figure::ChangeCpu(amount), cpu)];
            results.add(contender, found);
        }
        results.add(Contender::Snapshot, vec![(Figure::MemoryCollected(amount), 300e3)]);
        results.add(Contender::Ours, vec![(Figure::ReconnectResent, 0.0)]);
        results.add_note("the clients were busy".to_owned());
        results
    }

    #[test]
    fn the_better_figure_of_a_peer_counts_and_a_miss_is_said() {
        let table = table(&[], false);
        let text = table.markdown();
        let line = |what: &str| text.lines().find(|line| line.contains(what)).unwrap().to_owned();
        assert_eq!(
            line("idle memory a stream, 1,000"),
            "| 1 | idle memory a stream, 1,000 clusters and endpoints | 20.0 KB | 300.0 KB | – | – | 0.067 | 0.08 × SC | reached |"
        );
        assert!(line("CPU a stream for one").ends_with("| 0.050 | 0.03 × SC | **missed** |"));
        assert!(line("resources sent again").ends_with("| at most 0 | reached |"));
        assert!(line("clients until").ends_with("| – | at least 20 × SC | not measured |"));
        assert!(line("a newcomer during the push, median").ends_with("| – | – |  |"));
        assert!(text.ends_with("- the clients were busy\n"));
        // One is missed, and of the others with a target all but two are not measured.
        let targets = table.lines().filter(|line| !matches!(line.target, Target::None)).count();
        assert_eq!(table.missed(), targets - 2);
    }

    #[test]
    fn another_build_has_a_column_and_its_ratio() {
        let mut table = table(&[1], false);
        table.with_before = true;
        let found = vec![(Figure::Memory(Amount::Thousand), 25e3)];
        table.results.add(Contender::Before, found);
        let text = table.markdown();
        assert!(text.starts_with(
            "| # | what | ours | before | SC | LC | SC per client | over before | ratio | target | |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        ));
        let first = text.lines().nth(2).unwrap();
        assert_eq!(
            first,
            "| 1 | idle memory a stream, 1,000 clusters and endpoints | 20.0 KB | 25.0 KB | 300.0 KB | – | – | 0.80 | 0.067 | 0.08 × SC | reached |"
        );
    }

    #[test]
    fn only_the_rows_that_were_asked_for_are_shown() {
        let text = table(&[3], true).markdown();
        assert!(text.starts_with("A brief run"));
        assert!(text.contains("| 3 |") && !text.contains("| 1 |"));
    }

    #[test]
    fn a_median_is_in_the_middle_of_the_rounds() {
        let mut results = Results::default();
        for value in [3.0, 1.0, 2.0] {
            results.add(Contender::Ours, vec![(Figure::LastAck, value)]);
        }
        assert_eq!(results.get(Figure::LastAck, Contender::Ours), Some(2.0));
        results.add(Contender::Ours, vec![(Figure::LastAck, 5.0)]);
        assert_eq!(results.get(Figure::LastAck, Contender::Ours), Some(2.5));
    }
}
