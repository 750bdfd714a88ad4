//! The status that an object is to have: the conditions of the translation, and the answers of proxies.

use super::plan;
use crate::feedback::{Blame, FleetFeedback};
use crate::report::{Published, Report};
use heliograph_gateway::CONTROLLER_NAME;
use heliograph_gateway::objects::{Kind, ObjectKey};
use heliograph_gateway::status::reasons::{
    Reason, Type, backend_tls_policy, gateway, gateway_class, listener, listener_set, policy,
    route, view_policy,
};
use heliograph_gateway::status::{
    Condition, Conditions, ListenerStatus, RouteStatus, SUPPORTED_FEATURES, Status,
};
use heliograph_snapshot::FleetName;
use serde_json::{Value, json};

/// The condition that proxies have a say in.
pub(super) const PROGRAMMED: &str = Type::Programmed.as_str();

/// The reasons for `Programmed` of one kind of object.
struct ProgrammedReasons {
    programmed: &'static Reason,
    pending: &'static Reason,
    rejected: &'static Reason,
}

const OF_GATEWAY: ProgrammedReasons = ProgrammedReasons {
    programmed: gateway::programmed::PROGRAMMED,
    pending: gateway::programmed::PENDING,
    rejected: gateway::programmed::NOT_SERVED,
};
const OF_LISTENER_SET: ProgrammedReasons = ProgrammedReasons {
    programmed: listener_set::programmed::PROGRAMMED,
    pending: listener_set::programmed::PENDING,
    rejected: listener_set::programmed::REJECTED_BY_PROXIES,
};
const OF_LISTENER: ProgrammedReasons = ProgrammedReasons {
    programmed: listener::programmed::PROGRAMMED,
    pending: listener::programmed::PENDING,
    rejected: listener::programmed::NOT_SERVED,
};

/// The status of an object, without transition times. `None`: none of our entries belongs there.
///
/// `written` is the status that the object has. A generation that was once programmed stays so, also after a change of
/// leader or of the proxies.
pub(super) fn of(key: &ObjectKey, report: &Report, written: &Value) -> Option<Value> {
    let blame: Vec<&Blame> = report.blame(key).collect();
    match &**report.statuses.get(key)? {
        Status::Ignored(_) => None,
        Status::GatewayClass(status) => {
            let features: Vec<_> =
                SUPPORTED_FEATURES.iter().map(|name| json!({"name": name})).collect();
            Some(json!({"conditions": status.conditions, "supportedFeatures": features}))
        }
        Status::ViewPolicy(status) => {
            let mut status = status.clone();
            let rejected = view_policy::programmed::REJECTED_BY_PROXIES;
            set_rejected(&mut status.conditions, rejected, blame.iter().copied(), report);
            Some(json!(status))
        }
        Status::Route(status) => Some(json!(of_route(status.clone(), &blame, report))),
        // Proxies have no say in it.
        Status::Policy(status) => Some(json!(status)),
        Status::Gateway(status) => {
            let mut status = status.clone();
            let feedback = FeedbackState::of(key, &status.fleet, report, &OF_GATEWAY);
            set_held(&mut status.conditions, gateway::held::ROLLED_BACK, &status.fleet, report);
            feedback.set_programmed(
                &mut status.conditions,
                &mut status.listeners,
                &blame,
                report,
                written,
            );
            let mut status_value = json!(status);
            // Left out where there is none; where there was one, that is to be said.
            for (field, none) in [("attachedListenerSets", json!(0)), ("addresses", json!([]))] {
                if status_value.get(field).is_none() && written.get(field).is_some() {
                    status_value[field] = none;
                }
            }
            Some(status_value)
        }
        Status::ListenerSet(status) => {
            let mut status = status.clone();
            let feedback = FeedbackState::of(key, &status.fleet, report, &OF_LISTENER_SET);
            set_held(
                &mut status.conditions,
                listener_set::held::ROLLED_BACK,
                &status.fleet,
                report,
            );
            feedback.set_programmed(
                &mut status.conditions,
                &mut status.listeners,
                &blame,
                report,
                written,
            );
            Some(json!(status))
        }
    }
}

/// The status of an object that cannot be read as it is now: what was said of it when it could be, and why it cannot. `None`:
/// it may be another controller's, for it could not be read before either, and has no entry that names us.
pub(super) fn of_unreadable(
    key: &ObjectKey,
    reason: &str,
    generation: i64,
    report: &Report,
    written: &Value,
) -> Option<Value> {
    let list = plan::list_of(key.kind).map(|list| list.name);
    let known = of(key, report, written);
    let message = match known {
        Some(_) => {
            format!(
                "The object cannot be decoded, so its previous version stays in force: {reason}"
            )
        }
        None => format!("The object cannot be decoded: {reason}"),
    };
    let mut status_value = known.or_else(|| list.map(|list| entries_of_ours(list, written)))?;
    let accepted = Condition {
        observed_generation: generation,
        ..Condition::new(unreadable(key.kind)?, message)
    };
    let accepted = json!(accepted);
    let parts = match list {
        Some(list) => status_value[list].as_array_mut().map(Vec::as_mut_slice).unwrap_or_default(),
        None => std::slice::from_mut(&mut status_value),
    };
    for part in parts {
        let conditions = part["conditions"].as_array_mut().into_iter().flatten();
        for condition in conditions.filter(|condition| condition["type"] == Type::Accepted.as_str())
        {
            *condition = accepted.clone();
        }
    }
    Some(status_value)
}

/// Why an object is not accepted that cannot be read. `None` of kinds that have no status of ours.
fn unreadable(kind: Kind) -> Option<&'static Reason> {
    match kind {
        Kind::GatewayClass => Some(gateway_class::accepted::UNSUPPORTED_VALUE),
        Kind::Gateway => Some(gateway::accepted::UNSUPPORTED_VALUE),
        Kind::ListenerSet => Some(listener_set::accepted::UNSUPPORTED_VALUE),
        kind if kind.is_route() => Some(route::accepted::UNSUPPORTED_VALUE),
        // Policies are always understood, as far as the API lets them in.
        Kind::BackendTLSPolicy => Some(backend_tls_policy::accepted::NOT_UNDERSTOOD),
        Kind::ViewPolicy => Some(view_policy::accepted::NOT_UNDERSTOOD),
        kind => kind.policy_kind().map(|_| policy::accepted::INVALID),
    }
}

/// Our entries in a list of a status.
fn entries_of_ours(list: &str, written: &Value) -> Value {
    let entries = written[list].as_array().into_iter().flatten();
    let ours = entries.filter(|entry| entry["controllerName"] == CONTROLLER_NAME);
    json!({ list: ours.collect::<Vec<_>>() })
}

/// A route is sent to proxies as part of a table, which they have or have not. So its status reports only rejections,
/// with Envoy's error, beside `Accepted`, which is about the route itself and does not change with the proxies.
fn of_route(mut status: RouteStatus, blame: &[&Blame], report: &Report) -> RouteStatus {
    for parent in &mut status.parents {
        let here = blame.iter().copied().filter(|blame| blame.fleet == parent.fleet);
        set_rejected(&mut parent.conditions, route::programmed::REJECTED_BY_PROXIES, here, report);
    }
    status
}

/// The answers of proxies about a Gateway or a ListenerSet.
struct FeedbackState<'a> {
    published: Option<&'a Published>,
    /// An operator holds the fleet.
    is_held: bool,
    /// `None`: no report has been read yet.
    feedback: Option<Option<&'a FleetFeedback>>,
    /// The reasons to give.
    reasons: &'static ProgrammedReasons,
}

impl<'a> FeedbackState<'a> {
    fn of(
        key: &ObjectKey,
        fleet: &FleetName,
        report: &'a Report,
        reasons: &'static ProgrammedReasons,
    ) -> Self {
        let published = report.published.get(fleet).and_then(|all| all.get(key));
        let is_held = report.pins.contains_key(fleet);
        Self { published, is_held, feedback: feedback_of(report, fleet), reasons }
    }

    /// Sets for a Gateway, or a ListenerSet, and for its listeners whether proxies have them.
    fn set_programmed(
        &self,
        conditions: &mut Conditions,
        listeners: &mut [ListenerStatus],
        blame: &[&Blame],
        report: &Report,
        written: &Value,
    ) {
        let (mut given, mut rejected) = (0, 0);
        let of_listener = Self { reasons: &OF_LISTENER, ..*self };
        for ListenerStatus { name, conditions, .. } in listeners {
            // Said also where there is none, so that it need not be found out who said so before.
            if conditions.get(Type::Conflicted).is_none() {
                let message = "No other listener conflicts with this one".to_owned();
                set_condition(conditions, listener::conflicted::NO_CONFLICTS, message);
            }
            if !conditions.is_true(Type::Programmed) {
                continue;
            }
            given += 1;
            let before = entry(&written["listeners"], "name", name);
            of_listener.set_from_feedback(
                conditions,
                before.map_or(&Value::Null, |before| &before["conditions"]),
            );
            let here = blame.iter().filter(|it| it.listener.as_deref() == Some(&**name));
            if !of_listener.set_few_rejections(conditions, here.clone().copied())
                && set_rejected(conditions, OF_LISTENER.rejected, here.copied(), report)
            {
                rejected += 1;
            }
        }
        if !conditions.is_true(Type::Programmed) {
            return;
        }
        self.set_from_feedback(conditions, &written["conditions"]);
        if given > 0 && given == rejected {
            let message =
                "Proxies reject every listener: see the conditions of the listeners".to_owned();
            set_condition(conditions, self.reasons.rejected, message);
        }
        let whole = blame.iter().filter(|blame| blame.listener.is_none());
        if !self.set_few_rejections(conditions, whole.clone().copied()) {
            set_rejected(conditions, self.reasons.rejected, whole.copied(), report);
        }
    }

    /// Where only a few proxies reject it, sets how many have it and what these few reject: a port that is taken on one machine is
    /// no fault of the Gateway. Returns whether that is the case.
    fn set_few_rejections<'b>(
        &self,
        conditions: &mut Conditions,
        blame: impl Iterator<Item = &'b Blame> + Clone,
    ) -> bool {
        let Some(feedback) = self.feedback.flatten() else { return false };
        let most = blame.clone().map(|blame| blame.rejected).max().unwrap_or_default();
        let is_few = most > 0 && most.saturating_mul(2) < feedback.connected;
        let given = conditions.get(Type::Programmed);
        let Some(given) = given.filter(|given| given.is_true() && is_few) else { return false };
        let rejections = blame.map(|Blame { words, rejected, .. }| {
            format!("{rejected} reject{}: {words}", if *rejected == 1 { "s it" } else { " it" })
        });
        let mut message = vec![given.message.clone()];
        message.extend(rejections);
        let message = message.join("; ");
        set_condition(conditions, self.reasons.programmed, message);
        true
    }

    /// Sets whether a proxy has this generation, where translation says that they are given it.
    fn set_from_feedback(&self, conditions: &mut Conditions, written: &Value) {
        let Some(found) = conditions.get(Type::Programmed) else { return };
        let is_moved = self.published.is_some_and(|published| published.is_moved);
        let before = entry(written, "type", PROGRAMMED)
            .filter(|before| before["observedGeneration"] == json!(found.observed_generation))
            .filter(|_| !is_moved);
        let head = self.published.and_then(|published| published.head);
        // The writer of the existing condition knew more.
        if let (Some(before), true) = (before, self.feedback.is_none() || head.is_none()) {
            let ProgrammedReasons { programmed, pending, rejected } = self.reasons;
            let reason = match &before["reason"] {
                _ if before["status"] == "True" => programmed,
                reason if *reason == rejected.as_str() => rejected,
                _ => pending,
            };
            let message = before["message"].as_str().unwrap_or_default().to_owned();
            return set_condition(conditions, reason, message);
        }
        let was_true = before.is_some_and(|before| before["status"] == "True");
        let feedback = self.feedback.flatten();
        let connected = feedback.map_or(0, |feedback| feedback.connected);
        let having = feedback.zip(head).map_or(0, |(feedback, head)| feedback.have(head));
        let is_true = was_true || having > 0;
        let reason = if is_true { self.reasons.programmed } else { self.reasons.pending };
        let message = match is_true {
            true if connected == 0 => "Accepted by a proxy; none is connected now".to_owned(),
            true => format!("Accepted by {having} of {}", proxies(connected.max(having))),
            false if head.is_none() && self.is_held => {
                "Not published, because an operator holds the configuration: see the condition Held"
                    .to_owned()
            }
            false if head.is_none() => "Not yet in the store".to_owned(),
            false if connected == 0 => "No proxy is connected yet".to_owned(),
            false => format!("None of {} has accepted it yet", proxies(connected)),
        };
        set_condition(conditions, reason, message);
    }
}

/// Sets the operator who pinned the fleet and the reason, if it is pinned.
fn set_held(
    conditions: &mut Conditions,
    reason: &'static Reason,
    fleet: &FleetName,
    report: &Report,
) {
    let Some(pinned) = report.pins.get(fleet) else { return };
    let message =
        format!("Held at {pinned}. Changes of objects wait for `helio snapshot release {fleet}`");
    set_condition(conditions, reason, message);
}

/// Sets what proxies reject, if they do.
fn set_rejected<'a>(
    conditions: &mut Conditions,
    rejected: &'static Reason,
    blame: impl Iterator<Item = &'a Blame>,
    report: &Report,
) -> bool {
    let mut words = Vec::new();
    for Blame { fleet, words: text, rejected: count, .. } in blame {
        let connected = feedback_of(report, fleet).flatten().map_or(0, |it| it.connected);
        let whom = match count {
            // Counted are only those that are connected still.
            0 => "proxies".to_owned(),
            count => format!("{count} of {}", proxies(connected.max(*count))),
        };
        words.push(format!("Rejected by {whom}: {text}"));
    }
    if words.is_empty() {
        return false;
    }
    set_condition(conditions, rejected, words.join("; "));
    true
}

/// Sets a condition of the same generation as the others.
fn set_condition(conditions: &mut Conditions, reason: &'static Reason, message: String) {
    let observed_generation = conditions.iter().next().map_or(0, |other| other.observed_generation);
    conditions.set(Condition { observed_generation, ..Condition::new(reason, message) });
}

fn feedback_of<'a>(report: &'a Report, fleet: &FleetName) -> Option<Option<&'a FleetFeedback>> {
    report.feedback.as_ref().map(|feedback| feedback.fleets.get(fleet).map(|it| &**it))
}

/// The element of a list whose field says this.
pub(super) fn entry<'a>(list: &'a Value, field: &str, says: &str) -> Option<&'a Value> {
    list.as_array()?.iter().find(|element| element[field] == says)
}

fn proxies(count: u64) -> String {
    format!("{count} prox{}", if count == 1 { "y" } else { "ies" })
}

#[cfg(test)]
mod tests;
