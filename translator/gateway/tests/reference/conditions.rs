//! `docs/reference/conditions.md`, from the table of reasons.

use super::{check, row};
use heliograph_gateway::CONTROLLER_NAME;
use heliograph_gateway::objects::{Kind, ObjectName};
use heliograph_gateway::status::reasons::{self, EventReason, Reason, StatusPart};
use heliograph_gateway::status::{Ignored, Status};
use std::collections::BTreeSet;
use std::fmt::Write as _;

const HEAD: &str = "\
# Conditions

`make golden` generates this page from the code. It lists every condition that the translator writes, with each of its reasons.
[Statuses](../status.md) explains when conditions are written, and how those of other controllers are kept.

```sh
kubectl -n NAMESPACE get gateway NAME -o yaml    # below `status`
kubectl -n NAMESPACE get events --field-selector reason=REASON
helio check DIRECTORY                            # the same of manifests, without a cluster
```

The message of a condition names the field, the listener or the object. If the column `event` is not empty, the translator also
emits an [event](#events) when it first writes the condition. The event has the same reason, or the one that the column names.
";

#[test]
fn the_page_of_conditions_is_up_to_date() {
    let mut page = HEAD.to_owned();
    let mut part = None;
    for reason in reasons::ALL.iter().copied() {
        if part.replace(reason.part()) != Some(reason.part()) {
            let (title, place) = heading(reason.part());
            let _ = write!(page, "\n## {title}\n\n{place}\n\n");
            page += &row(["condition", "status", "reason", "what it means", "what to do", "event"]);
            page += &row(["---"; 6]);
        }
        page += &row_of(reason);
    }
    page += &rest();
    check("conditions.md", &page);
}

/// Rows that differ only in their text could not be told from each other, and every problem needs a remedy.
#[test]
fn every_row_is_another_and_says_what_to_do() {
    let mut seen = BTreeSet::new();
    for reason in reasons::ALL {
        let key = (reason.part(), reason.r#type(), reason.is_true(), reason.as_str());
        assert!(seen.insert(key), "{key:?} is there twice");
        assert!(!reason.means().is_empty(), "{key:?} does not say what it means");
        let has_remedy = !reason.is_problem() || !reason.remedy().is_empty();
        assert!(has_remedy, "{key:?} does not say what to do");
        let found = reasons::find(reason.r#type().as_str(), reason.is_true(), reason.as_str());
        let found = found.and_then(Reason::event).map(EventReason::as_str);
        assert_eq!(found, reason.event().map(EventReason::as_str), "{key:?}");
    }
}

fn row_of(reason: &'static Reason) -> String {
    let code = |text: &str| format!("`{text}`");
    let event = match reason.event() {
        None => String::new(),
        Some(EventReason::Condition(_)) => "yes".to_owned(),
        Some(own) => code(own.as_str()),
    };
    row([
        &code(reason.r#type().as_str()),
        if reason.is_true() { "True" } else { "False" },
        &code(reason.as_str()),
        reason.means(),
        reason.remedy(),
        &event,
    ])
}

/// A part, and where its conditions are.
fn heading(part: StatusPart) -> (String, String) {
    let own = |kind: Kind| (kind.as_str().to_owned(), "In `status.conditions`.".to_owned());
    match part {
        StatusPart::GatewayClass => own(Kind::GatewayClass),
        StatusPart::Gateway => own(Kind::Gateway),
        StatusPart::ListenerSet => own(Kind::ListenerSet),
        StatusPart::ViewPolicy => own(Kind::ViewPolicy),
        StatusPart::Listener => (
            "Listener".to_owned(),
            "Of a Gateway or a ListenerSet, in `status.listeners[].conditions`.".to_owned(),
        ),
        StatusPart::Route => {
            let kinds = Kind::ALL.iter().filter(|kind| kind.is_route()).map(|kind| kind.as_str());
            let title = kinds.collect::<Vec<_>>().join(", ");
            (title, format!("Of each parent, in `status.parents[].conditions`. {}", ours()))
        }
        StatusPart::Policy => {
            let kinds = Kind::ALL.iter().filter(|kind| kind.is_optional());
            let kinds: Vec<_> = kinds.map(|kind| kind.as_str()).collect();
            let place = "Of each Gateway or ListenerSet that it concerns, with the listener that it targets or that the parent of its route names, in \
                `status.ancestors[].conditions`.";
            (kinds.join(", "), format!("{place} {}", ours()))
        }
        StatusPart::BackendTlsPolicy => (
            Kind::BackendTLSPolicy.as_str().to_owned(),
            format!(
                "Of each Gateway whose routes lead to its Services, in `status.ancestors[].conditions`. {}",
                ours()
            ),
        ),
    }
}

fn ours() -> String {
    format!("Ours are those with the `controllerName` `{CONTROLLER_NAME}`.")
}

/// The part of the page about objects without conditions.
fn rest() -> String {
    let mut text = "\n## Objects without conditions\n\n".to_owned();
    let without: Vec<_> = Kind::ALL.iter().filter(|kind| !kind.has_status()).collect();
    let ours = without.into_iter().filter(|kind| kind.group() == Kind::ProxyConfig.group());
    let ours: Vec<_> = ours.map(|kind| kind.as_str()).collect();
    let _ = writeln!(
        text,
        "{} have no conditions. The conditions of the objects that use them report problems.\n",
        ours.join(" and ")
    );
    let ignored = Ignored { ignored: String::new(), elsewhere: false };
    let key = ObjectName::new("", "").of(Kind::Gateway);
    for problem in Status::Ignored(ignored).problems(&key) {
        let _ = writeln!(
            text,
            "The translator writes nothing to an object that Heliograph does not manage: it may belong to another controller. `helio check` and\n\
             the [status page](../standalone.md#the-admin-port) show it as `{}`, with the cause; `helio check` gives the reason `{}`.",
            problem.condition, problem.reason
        );
    }
    text += "\n## Events\n\n\
        An event has the type Warning, refers to the object, and has the condition's message as its note. There is an event for `Programmed`\n\
        only if nothing else is wrong with the same part: then proxies reject it. [Statuses](../status.md#events) has the limits. Two events\n\
        have reasons of their own:\n\n";
    text += &row(["reason", "what it means", "what to do"]);
    text += &row(["---"; 3]);
    for event in EventReason::OWN {
        text += &row([&format!("`{}`", event.as_str()), event.means(), event.remedy()]);
    }
    text
}
