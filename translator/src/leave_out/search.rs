//! Which of several suspects are the cause of a rejection? Some are left out, the rest is published, and proxies accept
//! or reject it. This module decides what to try next, and publishes nothing itself.

use std::collections::BTreeSet;

/// One search. Suspects are numbers, those first that are to be tried first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Search {
    suspects: usize,
    /// How many of the first are meant by the proxy's words.
    meant: usize,
    /// Whether the words tell which parts of those are meant.
    has_parts: bool,
    stage: Stage,
    /// With the first `low` left out it is rejected.
    low: usize,
    /// With the first `high` left out it is accepted; `None` while that is not known of any number.
    high: Option<usize>,
    /// The suspects that were found out.
    guilty: BTreeSet<usize>,
    /// How much is left out of each suspect, outside of the stages that say so themselves. More only once it is known that so
    /// much of all of them is not enough.
    extent: Extent,
    answers: u32,
}

/// How much is left out of a suspect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// What is done with the requests of the parts that are meant, or of all. Matches stay, but for those that words quote.
    Actions,
    /// The matches that are meant as well.
    Matches,
    /// All matches but what any proxy can hold of them.
    Outlines,
    /// All of it. Its hosts stay.
    Whole,
}

/// One attempt of a search: the parts that are left out now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trial {
    pub(super) out: BTreeSet<usize>,
    pub(super) extent: Extent,
    /// Whether it stays so.
    pub(super) is_final: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Those that are meant.
    Meant(Extent),
    /// The first so many.
    First(usize),
    /// Those that were found out, and no others.
    Guilty,
    Done,
    /// It is rejected whatever is left out.
    GivenUp,
}

/// How many answers a search may take. Each is some seconds in which proxies are served what they had.
const ANSWERS: u32 = 40;

impl Search {
    /// `meant` of the suspects come first, since words mean them, `has_parts` says whether more precisely than that.
    pub(super) fn new(suspects: usize, meant: usize, has_parts: bool) -> Self {
        let stage = if meant > 0 { Stage::Meant(Extent::Actions) } else { Stage::First(1) };
        Self {
            suspects,
            meant,
            has_parts,
            stage,
            low: 0,
            high: None,
            guilty: BTreeSet::new(),
            extent: Extent::Actions,
            answers: 0,
        }
    }

    /// The parts to leave out now. `None`: nothing, the search has ended without a result.
    pub(super) fn trial(&self) -> Option<Trial> {
        let trial = |out: BTreeSet<usize>, extent, is_final| Some(Trial { out, extent, is_final });
        match self.stage {
            Stage::Meant(extent) => trial((0..self.meant).collect(), extent, false),
            Stage::First(count) => {
                trial((0..count).chain(self.guilty.iter().copied()).collect(), self.extent, false)
            }
            Stage::Guilty => trial(self.guilty.clone(), self.extent, false),
            Stage::Done => trial(self.guilty.clone(), self.extent, true),
            Stage::GivenUp => None,
        }
    }

    /// Proxies accept what is left.
    pub(super) fn accepted(&mut self) {
        match self.stage {
            Stage::Meant(extent) => {
                self.extent = extent;
                self.high = Some(self.meant);
                self.halve();
            }
            Stage::First(count) => {
                self.high = Some(count);
                self.halve();
            }
            Stage::Guilty => self.stage = Stage::Done,
            Stage::Done | Stage::GivenUp => {}
        }
        self.count();
    }

    /// They do not.
    pub(super) fn rejected(&mut self) {
        match self.stage {
            Stage::Meant(Extent::Actions) if self.has_parts => {
                self.stage = Stage::Meant(Extent::Matches);
            }
            Stage::Meant(Extent::Actions | Extent::Matches) => {
                self.stage = Stage::Meant(Extent::Outlines);
            }
            Stage::Meant(Extent::Outlines | Extent::Whole) => {
                self.low = self.meant;
                self.widen();
            }
            Stage::First(count) => {
                self.low = count;
                match self.high {
                    Some(_) => self.halve(),
                    None => self.widen(),
                }
            }
            // Others that come before those found out are needed, too.
            Stage::Guilty => match self.guilty.first() {
                Some(first) if *first > 0 => {
                    (self.low, self.high) = (0, Some(*first));
                    self.halve();
                }
                _ => self.stage = Stage::GivenUp,
            },
            // It was accepted before, so something else is rejected now: that is another search.
            Stage::Done | Stage::GivenUp => {}
        }
        self.count();
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Done | Stage::GivenUp)
    }

    fn widen(&mut self) {
        let is_all = self.low >= self.suspects;
        self.stage = match self.extent {
            Extent::Actions if !is_all => self.first(2 * self.low),
            // It is a match, and those of the ones that are meant were left out before.
            Extent::Actions if self.meant < self.suspects => {
                (self.extent, self.low) = (Extent::Outlines, self.meant);
                self.first(4 * self.low)
            }
            Extent::Matches | Extent::Outlines if !is_all => self.first(4 * self.low),
            // It is one that every proxy should take. So that is tried at once, and last.
            Extent::Actions | Extent::Matches | Extent::Outlines => {
                (self.extent, self.low) = (Extent::Whole, 0);
                self.first(self.suspects)
            }
            Extent::Whole => Stage::GivenUp,
        };
    }

    fn first(&self, count: usize) -> Stage {
        Stage::First(count.clamp(1, self.suspects))
    }

    fn halve(&mut self) {
        let Some(high) = self.high else { return };
        if high - self.low > 1 {
            self.stage = Stage::First(self.low + (high - self.low) / 2);
            return;
        }
        self.guilty.insert(high - 1);
        // Where nothing else was left out, that is what was accepted.
        let is_alone = self.guilty.first() == Some(&0);
        self.stage = if is_alone { Stage::Done } else { Stage::Guilty };
    }

    /// Ends what takes too long: those found out stay left out, and another search goes on with the rest.
    fn count(&mut self) {
        self.answers += 1;
        if self.answers >= ANSWERS && !self.is_over() {
            self.stage = if self.guilty.is_empty() { Stage::GivenUp } else { Stage::Done };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A suspect, and what of it is the cause.
    type Guilty = (usize, Cause);

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Cause {
        Action,
        Match,
        /// One that every proxy should take.
        PlainMatch,
    }

    fn causes() -> impl Strategy<Value = Cause> {
        prop_oneof![Just(Cause::Action), Just(Cause::Match), Just(Cause::PlainMatch)]
    }

    /// Whether proxies accept what is left: each of the guilty is left out, by as much as it takes.
    fn is_accepted(trial: &Trial, guilty: &[Guilty], parts: usize) -> bool {
        guilty.iter().all(|(suspect, cause)| {
            let reaches = match trial.extent {
                Extent::Actions => *cause == Cause::Action,
                Extent::Matches => *suspect < parts,
                Extent::Outlines => *cause != Cause::PlainMatch,
                Extent::Whole => true,
            };
            trial.out.contains(suspect) && reaches
        })
    }

    fn search(mut search: Search, guilty: &[Guilty], parts: usize) -> (Search, u32) {
        let mut answers = 0;
        while !search.is_over() {
            let trial = search.trial().unwrap();
            match is_accepted(&trial, guilty, parts) {
                true => search.accepted(),
                false => search.rejected(),
            }
            answers += 1;
            assert!(answers <= ANSWERS, "{search:?}");
        }
        (search, answers)
    }

    #[test]
    fn what_words_mean_rightly_is_found_at_once() {
        let (found, answers) = search(Search::new(5000, 1, true), &[(0, Cause::Action)], 1);
        assert_eq!(answers, 1);
        let trial = found.trial().unwrap();
        assert_eq!((trial.out, trial.extent), (BTreeSet::from([0]), Extent::Actions));
    }

    #[test]
    fn words_that_mean_somebody_else_only_take_longer() {
        let (found, answers) = search(Search::new(5000, 1, false), &[(3000, Cause::Action)], 0);
        let trial = found.trial().unwrap();
        assert_eq!((trial.out, trial.extent), (BTreeSet::from([3000]), Extent::Actions));
        assert!(answers < 32, "{answers}");
    }

    /// Matches of innocent routes answer with an error while they are tried, and do not fall through to other routes.
    #[test]
    fn no_match_is_dropped_where_the_cause_is_an_action() {
        for guilty in 0..50 {
            let mut search = Search::new(50, 0, false);
            while let Some(trial) = search.trial().filter(|trial| !trial.is_final) {
                assert_eq!(trial.extent, Extent::Actions, "{trial:?}");
                match is_accepted(&trial, &[(guilty, Cause::Action)], 0) {
                    true => search.accepted(),
                    false => search.rejected(),
                }
            }
            assert_eq!(search.trial().unwrap().out, BTreeSet::from([guilty]));
        }
    }

    #[test]
    fn a_match_is_found_among_as_many_as_there_may_be() {
        for guilty in [0, 1, 2_500, 4_999] {
            for (cause, extent) in
                [(Cause::Match, Extent::Outlines), (Cause::PlainMatch, Extent::Whole)]
            {
                let (found, answers) = search(Search::new(5000, 0, false), &[(guilty, cause)], 0);
                let trial = found.trial().unwrap();
                assert_eq!((trial.out, trial.extent), (BTreeSet::from([guilty]), extent));
                assert!(answers < ANSWERS, "{answers}");
            }
        }
    }

    /// As long as what any proxy can hold may stay of matches, it does.
    #[test]
    fn no_match_is_dropped_whole_where_an_outline_may_stay() {
        for (suspects, meant) in [(1, 0), (1, 1), (20, 0), (20, 3)] {
            for guilty in 0..suspects {
                let mut search = Search::new(suspects, meant, true);
                while let Some(trial) = search.trial().filter(|trial| !trial.is_final) {
                    assert_ne!(trial.extent, Extent::Whole, "{trial:?}");
                    match is_accepted(&trial, &[(guilty, Cause::Match)], 0) {
                        true => search.accepted(),
                        false => search.rejected(),
                    }
                }
                assert_eq!(search.trial().unwrap().out, BTreeSet::from([guilty]));
            }
        }
    }

    #[test]
    fn what_is_rejected_whatever_is_left_out_is_given_up() {
        let mut hopeless = Search::new(100, 3, true);
        while !hopeless.is_over() {
            hopeless.rejected();
        }
        assert_eq!(hopeless.trial(), None);
    }

    #[test]
    fn of_many_some_are_found_and_no_innocent_is_left_out() {
        for (suspects, count) in [(200, 6), (40, 8), (21, 10), (300, 60)] {
            let guilty: Vec<_> =
                (0..count).map(|n| (n * suspects / count, Cause::Action)).collect();
            let mut search = Search::new(suspects, 0, false);
            while !search.is_over() {
                let trial = search.trial().unwrap();
                match is_accepted(&trial, &guilty, 0) {
                    true => search.accepted(),
                    false => search.rejected(),
                }
            }
            let found = search.trial().unwrap().out;
            assert!(!found.is_empty());
            assert!(found.iter().all(|it| guilty.contains(&(*it, Cause::Action))), "{found:?}");
        }
    }

    proptest! {
        #[test]
        fn the_guilty_are_found_and_nobody_else(
            suspects in 1_usize..300,
            meant in 0_usize..4,
            has_parts in any::<bool>(),
            guilty in prop::collection::btree_map(0_usize..300, causes(), 1..3),
        ) {
            let meant = meant.min(suspects);
            let guilty: Vec<Guilty> =
                guilty.into_iter().map(|(it, cause)| (it % suspects, cause)).collect();
            let parts = if has_parts { meant } else { 0 };
            let (found, _) = search(Search::new(suspects, meant, has_parts), &guilty, parts);
            let trial = found.trial().unwrap();
            prop_assert!(trial.is_final);
            prop_assert!(is_accepted(&trial, &guilty, parts), "{trial:?}");
            let expected: BTreeSet<usize> = guilty.iter().map(|(suspect, _)| *suspect).collect();
            prop_assert_eq!(trial.out, expected);
        }

        #[test]
        fn it_ends_whatever_proxies_answer(
            suspects in 1_usize..300,
            meant in 0_usize..4,
            answers in prop::collection::vec(any::<bool>(), 64),
        ) {
            let mut search = Search::new(suspects, meant.min(suspects), true);
            let mut answers = answers.into_iter();
            while !search.is_over() {
                match answers.next().unwrap() {
                    true => search.accepted(),
                    false => search.rejected(),
                }
            }
        }
    }
}
