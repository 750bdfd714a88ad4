//! The names and labels of the objects that are made for a Gateway, or for all Gateways of a class.

use crate::objects::{Kind, ObjectName};
use heliograph_model::FleetOwner;
use std::collections::BTreeMap;

/// The label of everything that we create. Objects without it are never changed.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "heliograph");
/// Gateway API's own label: which Gateway an object was made for, cut to the length of a label.
pub const GATEWAY_LABEL: &str = "gateway.networking.k8s.io/gateway-name";
/// The same of the GatewayClass, where its Gateways share their proxies.
pub const CLASS_LABEL: &str = "gateway.networking.k8s.io/gateway-class-name";
/// The namespace of the fleet, which is that of its Gateway.
pub const FLEET_NAMESPACE_LABEL: &str = "heliograph.dev/fleet-namespace";
/// The labels that identify a fleet. Authors of Gateways cannot set them.
pub(super) const LABELS: [&str; 3] = [GATEWAY_LABEL, CLASS_LABEL, FLEET_NAMESPACE_LABEL];
/// The Gateway's whole name, which a label may have no room for.
pub const GATEWAY_ANNOTATION: &str = "heliograph.dev/gateway";
/// The GatewayClass's, where its Gateways share their proxies.
pub const CLASS_ANNOTATION: &str = "heliograph.dev/gateway-class";
/// Those that say whose an object is.
pub(super) const ANNOTATIONS: [&str; 2] = [GATEWAY_ANNOTATION, CLASS_ANNOTATION];

/// The name of everything that is made for a fleet, in its namespace, but for its ServiceAccount: of its Service, its
/// Deployment and the rest.
///
/// The first of the names of Services is a letter, and they have no dots: both may be otherwise in a Gateway's name.
pub fn object_name(owner: &FleetOwner) -> String {
    let name = &owner.name().name;
    let plain = format!("{}{}", prefix(owner), name.replace('.', "-"));
    let fits = plain.len() <= LONGEST && !name.contains('.');
    if fits { plain } else { cut(&plain, name, LONGEST) }
}

/// The Service in front of a fleet.
pub fn service(owner: &FleetOwner) -> ObjectName {
    ObjectName::new(&owner.name().namespace, &object_name(owner))
}

/// The name of a fleet's ServiceAccount. It has room for the whole name, so that a rule of access can tell the fleet from
/// it; of the few that are longer still, it cannot.
pub fn account_name(owner: &FleetOwner) -> String {
    let name = &owner.name().name;
    let plain = format!("{}{name}", prefix(owner));
    if plain.len() <= LONGEST_ACCOUNT { plain } else { cut(&plain, name, LONGEST_ACCOUNT) }
}

/// The labels of everything that is made for a fleet; no two fleets have the same.
pub fn labels(owner: &FleetOwner) -> BTreeMap<String, String> {
    let (managed_by, us) = MANAGED_BY;
    let ObjectName { namespace, name } = owner.name();
    BTreeMap::from([
        (managed_by.to_owned(), us.to_owned()),
        (owner_label(owner).to_owned(), label_value(name)),
        (FLEET_NAMESPACE_LABEL.to_owned(), label_value(namespace)),
    ])
}

/// The annotation that names the owner of an object.
pub fn owner_annotation(owner: &FleetOwner) -> (&'static str, String) {
    let annotation = match owner {
        FleetOwner::Gateway(_) => GATEWAY_ANNOTATION,
        FleetOwner::Class(_) => CLASS_ANNOTATION,
    };
    (annotation, owner.name().name.to_string())
}

/// The owner that the annotations of an object of this namespace name, if they name one.
pub fn annotated_owner(
    namespace: &str,
    annotations: &BTreeMap<String, String>,
) -> Option<FleetOwner> {
    let named =
        |annotation| annotations.get(annotation).map(|name| ObjectName::new(namespace, name));
    let gateway = named(GATEWAY_ANNOTATION).map(FleetOwner::Gateway);
    gateway.or_else(|| named(CLASS_ANNOTATION).map(FleetOwner::Class))
}

/// The identifiers that no other fleet in the namespace may have: the names of its objects, and the label that selects
/// its pods. A name that does not fit is cut and ends in a hash, and another Gateway could have the resulting name.
pub fn identifiers(owner: &FleetOwner) -> [String; 3] {
    [
        format!("name {}", object_name(owner)),
        format!("account {}", account_name(owner)),
        format!("label {}={}", owner_label(owner), label_value(&owner.name().name)),
    ]
}

/// Why nothing is made for a fleet: objects of another owner have its names.
pub fn name_conflict(other: &FleetOwner) -> String {
    format!(
        "{} {} has objects of the same name or label, because long names and names with dots are shortened: rename one of the two",
        kind(other).as_str(),
        other.name().name
    )
}

/// Selects everything that is made for any fleet.
pub fn selector() -> String {
    let (managed_by, us) = MANAGED_BY;
    format!("{managed_by}={us},{FLEET_NAMESPACE_LABEL}")
}

/// Whether these labels are among those that [`selector`] selects.
pub fn selects(labels: &BTreeMap<String, String>) -> bool {
    let (managed_by, us) = MANAGED_BY;
    labels.get(managed_by).is_some_and(|found| found == us)
        && labels.contains_key(FLEET_NAMESPACE_LABEL)
}

/// A name as the value of a label.
pub fn label_value(name: &str) -> String {
    if name.len() <= LONGEST { name.to_owned() } else { cut(name, name, LONGEST) }
}

fn owner_label(owner: &FleetOwner) -> &'static str {
    match owner {
        FleetOwner::Gateway(_) => GATEWAY_LABEL,
        FleetOwner::Class(_) => CLASS_LABEL,
    }
}

/// The prefix of names. Objects of a class have another prefix than those of a Gateway, so their names never collide.
fn prefix(owner: &FleetOwner) -> &'static str {
    match owner {
        FleetOwner::Gateway(_) => "heliograph-",
        FleetOwner::Class(_) => "helio-class-",
    }
}

/// Of a label's value, and of a Service's name.
const LONGEST: usize = 63;
/// Of a ServiceAccount's name.
const LONGEST_ACCOUNT: usize = 253;
const HASH: usize = 10;

/// `text` with a hash of `whole` at its end, which distinguishes names that are equal when they are cut.
fn cut(text: &str, whole: &str, longest: usize) -> String {
    let hash = blake3::hash(whole.as_bytes()).to_hex();
    let kept: String = text.chars().take(longest - HASH - 1).collect();
    format!("{}-{}", kept.trim_end_matches(['-', '.', '_']), &hash[..HASH])
}

/// The kind of object that the owner of a fleet is.
pub fn kind(owner: &FleetOwner) -> Kind {
    match owner {
        FleetOwner::Gateway(_) => Kind::Gateway,
        FleetOwner::Class(_) => Kind::GatewayClass,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gateway(name: &str) -> FleetOwner {
        FleetOwner::Gateway(ObjectName::new("shop", name))
    }

    fn named(name: &str) -> String {
        object_name(&gateway(name))
    }

    fn is_name_of_a_service(name: &str) -> bool {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        name.len() <= 63
            && name.starts_with(|c: char| c.is_ascii_lowercase())
            && !name.ends_with('-')
            && name.chars().all(inner)
    }

    #[test]
    fn a_short_name_is_readable() {
        assert_eq!(named("web"), "heliograph-web");
        assert_eq!(labels(&gateway("web"))[GATEWAY_LABEL], "web");
    }

    #[test]
    fn every_name_of_a_gateway_gives_one_of_a_service() {
        let long = "a".repeat(253);
        let dotted = format!("{}.b", "a".repeat(51));
        for name in
            ["web", "1", "a.b", &long, &dotted, &"a.".repeat(126), &"a".repeat(52), &"a".repeat(53)]
        {
            assert!(is_name_of_a_service(&named(name)), "{name}: {}", named(name));
            let label = label_value(name);
            assert!(label.len() <= 63 && label_value(name) == label, "{label}");
        }
    }

    #[test]
    fn a_class_and_a_gateway_have_nothing_in_common() {
        let owner = FleetOwner::Class(ObjectName::new("shop", "web"));
        assert_eq!(object_name(&owner), "helio-class-web");
        assert_eq!(account_name(&owner), "helio-class-web");
        let (of_class, of_gateway) = (labels(&owner), labels(&gateway("web")));
        assert_eq!(of_class[CLASS_LABEL], "web");
        assert!(!of_class.contains_key(GATEWAY_LABEL) && !of_gateway.contains_key(CLASS_LABEL));
        for owner in [owner, gateway("web")] {
            let (annotation, name) = owner_annotation(&owner);
            let annotations = BTreeMap::from([(annotation.to_owned(), name)]);
            assert_eq!(annotated_owner("shop", &annotations), Some(owner));
        }
    }

    #[test]
    fn names_that_are_cut_stay_apart() {
        let (one, two) = ("a".repeat(252) + "1", "a".repeat(252) + "2");
        assert_ne!(named(&one), named(&two));
        assert_ne!(label_value(&one), label_value(&two));
        assert_ne!(named("a.b"), named("a-b"));
    }

    #[test]
    fn a_name_that_was_made_is_one_that_another_gateway_can_have() {
        let shares = |one: &str, other: &str| {
            let other = identifiers(&gateway(other));
            identifiers(&gateway(one)).into_iter().filter(|it| other.contains(it)).count()
        };
        let made = named("a.b");
        assert_eq!(shares("a.b", made.strip_prefix("heliograph-").unwrap()), 1, "the name");
        let long = "a".repeat(253);
        assert_eq!(shares(&long, &label_value(&long)), 1, "the label");
        let account = account_name(&gateway(&long));
        assert_eq!(shares(&long, account.strip_prefix("heliograph-").unwrap()), 1, "the account");
        assert_eq!(shares("a.b", "a-b"), 0);
        assert_eq!(shares("web", "web"), 3);
    }

    #[test]
    fn a_service_account_has_the_whole_name_where_there_is_room() {
        let account = |name: &str| account_name(&gateway(name));
        let long = "a".repeat(242);
        for name in ["web", "a.b", &long] {
            assert_eq!(account(name), format!("heliograph-{name}"));
        }
        let (one, two) = ("a".repeat(252) + "1", "a".repeat(252) + "2");
        assert_eq!(account(&one).len(), 253);
        assert_ne!(account(&one), account(&two));
    }
}
