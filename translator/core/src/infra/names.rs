//! How the objects that are made for a Gateway are named and labelled, so that everybody finds them.

use crate::objects::ObjectName;
use std::collections::BTreeMap;

/// Whose an object is: everything we make has it, and nothing without it is touched.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "heliograph");
/// Gateway API's own label: which Gateway an object was made for, cut to the length of a label.
pub const GATEWAY_LABEL: &str = "gateway.networking.k8s.io/gateway-name";
/// The namespace of the fleet, which is that of its Gateway.
pub const FLEET_NAMESPACE_LABEL: &str = "heliograph.dev/fleet-namespace";
/// The Gateway's whole name, which a label may have no room for.
pub const GATEWAY_ANNOTATION: &str = "heliograph.dev/gateway";

/// The name of everything that is made for a Gateway, in its namespace, but for its ServiceAccount: of its Service, its
/// Deployment and the rest.
///
/// The first of the names of Services is a letter, and they have no dots: both may be otherwise in a Gateway's name.
pub fn object_name(gateway: &ObjectName) -> String {
    let name = &gateway.name;
    let plain = format!("{PREFIX}{}", name.replace('.', "-"));
    let fits = plain.len() <= LONGEST && !name.contains('.');
    if fits { plain } else { cut(&plain, name, LONGEST) }
}

/// The name of a Gateway's ServiceAccount. It has room for the whole name, so that a rule of access can tell the Gateway from
/// it; of the few that are longer still, it cannot.
pub fn account_name(gateway: &ObjectName) -> String {
    let name = &gateway.name;
    let plain = format!("{PREFIX}{name}");
    if plain.len() <= LONGEST_ACCOUNT { plain } else { cut(&plain, name, LONGEST_ACCOUNT) }
}

/// The labels of everything that is made for a Gateway; no two Gateways have the same.
pub fn labels(gateway: &ObjectName) -> BTreeMap<String, String> {
    let (managed_by, us) = MANAGED_BY;
    BTreeMap::from([
        (managed_by.to_owned(), us.to_owned()),
        (GATEWAY_LABEL.to_owned(), label_value(&gateway.name)),
        (FLEET_NAMESPACE_LABEL.to_owned(), label_value(&gateway.namespace)),
    ])
}

/// Selects everything that is made for any Gateway.
pub fn selector() -> String {
    let (managed_by, us) = MANAGED_BY;
    format!("{managed_by}={us},{GATEWAY_LABEL},{FLEET_NAMESPACE_LABEL}")
}

/// A name as the value of a label.
pub fn label_value(name: &str) -> String {
    if name.len() <= LONGEST { name.to_owned() } else { cut(name, name, LONGEST) }
}

const PREFIX: &str = "heliograph-";
/// Of a label's value, and of a Service's name.
const LONGEST: usize = 63;
/// Of a ServiceAccount's name.
const LONGEST_ACCOUNT: usize = 253;
const HASH: usize = 10;

/// `text` with a hash of `whole` at its end, which tells apart what is the same when it is cut.
fn cut(text: &str, whole: &str, longest: usize) -> String {
    let hash = blake3::hash(whole.as_bytes()).to_hex();
    let kept: String = text.chars().take(longest - HASH - 1).collect();
    format!("{}-{}", kept.trim_end_matches(['-', '.', '_']), &hash[..HASH])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> String {
        object_name(&ObjectName::new("shop", name))
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
        assert_eq!(labels(&ObjectName::new("shop", "web"))[GATEWAY_LABEL], "web");
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
    fn names_that_are_cut_stay_apart() {
        let (one, two) = ("a".repeat(252) + "1", "a".repeat(252) + "2");
        assert_ne!(named(&one), named(&two));
        assert_ne!(label_value(&one), label_value(&two));
        assert_ne!(named("a.b"), named("a-b"));
    }

    #[test]
    fn a_service_account_has_the_whole_name_where_there_is_room() {
        let account = |name: &str| account_name(&ObjectName::new("shop", name));
        let long = "a".repeat(242);
        for name in ["web", "a.b", &long] {
            assert_eq!(account(name), format!("heliograph-{name}"));
        }
        let (one, two) = ("a".repeat(252) + "1", "a".repeat(252) + "2");
        assert_eq!(account(&one).len(), 253);
        assert_ne!(account(&one), account(&two));
    }
}
