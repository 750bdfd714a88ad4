//! Leaves out of the translation what more proxies reject than accept.

use super::Translator;
use crate::feedback::{Feedback, blamed};
use crate::leave_out::FleetAnswers;
use crate::publish::Publisher;
use heliograph_gateway::left_out::object_of;
use heliograph_gateway::objects::ObjectKey;
use heliograph_gateway::{Event, OverBudget};
use heliograph_snapshot::FleetName;
use heliograph_views::LeftOut;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often it is decided at most, where proxies say nothing new.
const AT_MOST_EVERY: Duration = Duration::from_secs(1);

impl Translator {
    /// Hands on what proxies answered to all that decide by it, where it is something else than is `known` to them. Returns
    /// whether something is to be translated again.
    pub(super) fn receive(
        &mut self,
        known: &mut Option<Arc<Feedback>>,
        publisher: &mut Publisher,
    ) -> bool {
        let feedback = self.feedback.borrow().clone();
        let before = std::mem::replace(known, feedback.clone());
        if let Some(feedback) = feedback {
            if feedback.has_other_votes(before.as_deref().unwrap_or(&Feedback::default())) {
                publisher.receive(&feedback);
            }
            if before.is_some_and(|before| !feedback.has_other_sums(&before)) {
                return false;
            }
            self.show(feedback);
        }
        self.isolate(publisher)
    }

    /// Shows what proxies answered, and which objects they mean.
    fn show(&mut self, feedback: Arc<Feedback>) {
        let mut blamed = blamed(&feedback, &self.world);
        // Those that reject nothing any more are named too.
        for fleet in self.report.borrow().blamed.keys() {
            blamed.entry(fleet.clone()).or_default();
        }
        self.report.send_modify(|report| {
            report.receive(feedback);
            report.record_blame(blamed);
        });
    }

    /// Decides what is left out, from what proxies say. Returns whether that is something else than before, and so to be
    /// translated.
    pub(super) fn isolate(&mut self, publisher: &Publisher) -> bool {
        let (mut is_news, now) = (false, Instant::now());
        self.isolated = Some(now);
        let Some(feedback) = self.feedback.borrow().clone() else { return false };
        for (fleet, feedback) in &feedback.fleets {
            // What an operator holds is not what was translated.
            let is_pinned = publisher.is_pinned(fleet);
            if is_pinned || !self.isolation.concerns(fleet, feedback, &self.world) {
                continue;
            }
            let Some(versions) = publisher.versions(fleet) else { continue };
            let answers = FleetAnswers {
                fleet,
                feedback,
                stored_head: publisher.stored_head(fleet),
                revision: publisher.revision(fleet),
                settled: self.settled,
                now,
            };
            let changes = self.isolation.decide(&answers, &self.world, &versions);
            is_news |= !changes.is_empty();
            for (object, left_out) in changes {
                log_left_out(fleet, &object, left_out.as_ref());
                self.world.leave_out(fleet, &object, left_out);
            }
        }
        is_news
    }

    /// When to decide it although proxies say nothing new. Not all the time, where nothing comes of it.
    pub(super) fn isolate_at(&self) -> Option<Instant> {
        let due = self.isolation.due()?;
        Some(self.isolated.map_or(due, |last| due.max(last + AT_MOST_EVERY)))
    }

    /// Applies what need not wait, and what has waited long enough.
    pub(super) fn apply_admitted(&mut self, events: Vec<Event>) {
        let admitted = self.isolation.delay.admit(events, Instant::now());
        self.metrics.delayed(self.isolation.delay.waiting());
        self.apply(admitted);
    }

    /// Ends all searches and pauses: the next term begins without them.
    pub(super) fn forget_isolation(&mut self) {
        let isolation = std::mem::take(&mut self.isolation);
        for event in isolation.delay.into_waiting() {
            self.world.apply(event);
        }
        self.inheriting.clear();
        self.metrics.left_out(0);
        self.metrics.delayed(0);
        self.metrics.over_budget(OverBudget::default());
    }

    /// Leaves out what an earlier term left out.
    pub(super) fn inherit(&mut self, fleet: &FleetName, left_out: &[LeftOut]) {
        for left_out in left_out {
            let Some(object) = object_of(left_out) else { continue };
            log_left_out(fleet, &object, Some(left_out));
            self.world.leave_out(fleet, &object, Some(left_out.clone()));
        }
        self.inheriting.push(fleet.clone());
    }

    /// Follows a translation: the parts that are left out are in it now, which the publisher and the metrics learn here.
    pub(super) fn isolated(&mut self, retired: &[FleetName], publisher: &mut Publisher) {
        self.settled += 1;
        self.isolation.retired(retired);
        publisher.inherited(std::mem::take(&mut self.inheriting));
        self.metrics.left_out(self.world.objects_left_out());
        self.metrics.over_budget(self.world.over_budget());
    }
}

fn log_left_out(fleet: &FleetName, object: &ObjectKey, left_out: Option<&LeftOut>) {
    match left_out {
        None => tracing::info!(%fleet, %object, "is published in full again"),
        Some(left_out) if left_out.is_suspect => tracing::info!(
            %fleet, %object,
            "left out, to find out whether proxies reject it: {}", left_out.words
        ),
        Some(left_out) => tracing::warn!(
            %fleet, %object,
            "left out, because more proxies reject it than accept it: {}", left_out.words
        ),
    }
}
