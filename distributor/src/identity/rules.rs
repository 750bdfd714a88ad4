use super::Identity;
use super::pattern::{Part, Pattern, PatternError, Words};
use heliograph_snapshot::FleetName;
use serde::Deserialize;
use std::fmt;

/// The rules: which identities may read which fleets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rules(Vec<Rule>);

/// The fleets that one identity may read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Grants {
    All,
    /// At least one of these.
    Some(Box<[Grant]>),
}

/// A namespace and a name; `None` is any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    namespace: Option<String>,
    name: Option<String>,
}

/// Why an identity may not read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Denied {
    #[error("no rule allows {0} to read any fleet: add one to the file of --xds-access")]
    Nothing(Identity),
    // The name is the client's to choose, and goes into logs.
    #[error(
        "{identity} may read {grants}, and not the fleet {} that node.cluster names",
        .fleet.as_str().escape_debug()
    )]
    Other { identity: Identity, grants: Grants, fleet: FleetName },
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum RulesError {
    #[error("not a file of access rules: {0}")]
    Malformed(String),
    #[error("rule {0} must have exactly one of spiffe, dns, serviceAccount and subject")]
    Matcher(usize),
    #[error("rule {0} names no fleets")]
    NoFleets(usize),
    #[error(
        "rule {0}: {1:?} is no set of fleets: write NAMESPACE/NAME, either of them `*` or with words in braces"
    )]
    Fleets(usize, String),
    #[error("rule {0}: its pattern has no placeholder {{{1}}}")]
    Unknown(usize, String),
    #[error("rule {0}: {1}")]
    Pattern(usize, PatternError),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    matcher: Matcher,
    fleets: Vec<Template>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Matcher {
    Spiffe(Pattern),
    Dns(Pattern),
    /// Of `NAMESPACE/NAME`.
    ServiceAccount(Pattern),
    Subject(Pattern),
}

/// Fleets, with words to be filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Template {
    namespace: Pattern,
    name: Pattern,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    rules: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Entry {
    spiffe: Option<String>,
    dns: Option<String>,
    service_account: Option<String>,
    subject: Option<String>,
    fleets: Vec<String>,
}

/// The rules without a file: a workload may read the fleets of its own namespace.
pub(crate) const CONVENTION: &str = "\
rules:
  - spiffe: spiffe://*/ns/{namespace}/sa/*
    fleets: ['{namespace}/*']
  - serviceAccount: '{namespace}/*'
    fleets: ['{namespace}/*']
";

impl Rules {
    pub(crate) fn parse(text: &str) -> Result<Self, RulesError> {
        let malformed = |error: serde_saphyr::Error| {
            // One line: the rest is a drawing of the place.
            RulesError::Malformed(error.to_string().lines().next().unwrap_or_default().to_owned())
        };
        let file: File = serde_saphyr::from_str(text).map_err(malformed)?;
        let rules = (1..).zip(file.rules).map(|(number, entry)| Rule::of(number, entry));
        Ok(Self(rules.collect::<Result<_, _>>()?))
    }

    /// All that the identity may read, whatever it says of itself.
    pub(crate) fn grants(&self, identity: &Identity) -> Result<Grants, Denied> {
        if *identity == Identity::Anybody {
            return Ok(Grants::All);
        }
        let mut grants: Vec<Grant> = Vec::new();
        for rule in &self.0 {
            for words in rule.matcher.matched(identity) {
                for grant in rule.fleets.iter().filter_map(|fleets| fleets.filled(&words)) {
                    if !grants.contains(&grant) {
                        grants.push(grant);
                    }
                }
            }
        }
        match grants.is_empty() {
            true => Err(Denied::Nothing(identity.clone())),
            false => Ok(Grants::Some(grants.into())),
        }
    }
}

impl Grants {
    /// Whether the identity whose grants these are may read the fleet.
    pub(crate) fn check(&self, identity: &Identity, fleet: &FleetName) -> Result<(), Denied> {
        let (namespace, name) = fleet.as_str().split_once('/').unwrap_or_default();
        let fits = |wanted: &Option<String>, found: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted == found)
        };
        let allowed = match self {
            Self::All => true,
            Self::Some(grants) => grants
                .iter()
                .any(|grant| fits(&grant.namespace, namespace) && fits(&grant.name, name)),
        };
        match allowed {
            true => Ok(()),
            false => Err(Denied::Other {
                identity: identity.clone(),
                grants: self.clone(),
                fleet: fleet.clone(),
            }),
        }
    }
}

impl Rule {
    fn of(number: usize, entry: Entry) -> Result<Self, RulesError> {
        let Entry { spiffe, dns, service_account, subject, fleets } = entry;
        let pattern = |text: String| {
            Pattern::parse(&text).map_err(|error| RulesError::Pattern(number, error))
        };
        let matcher = match (spiffe, dns, service_account, subject) {
            (Some(text), None, None, None) => Matcher::Spiffe(pattern(text)?),
            // Names of hosts have no case.
            (None, Some(text), None, None) => Matcher::Dns(pattern(text.to_ascii_lowercase())?),
            (None, None, Some(text), None) => Matcher::ServiceAccount(pattern(text)?),
            (None, None, None, Some(text)) => Matcher::Subject(pattern(text)?),
            _ => return Err(RulesError::Matcher(number)),
        };
        if fleets.is_empty() {
            return Err(RulesError::NoFleets(number));
        }
        let known: Vec<_> = matcher.pattern().names().collect();
        let mut templates = Vec::new();
        for text in fleets {
            let Some((namespace, name)) =
                text.split_once('/').filter(|(_, name)| !name.contains('/'))
            else {
                return Err(RulesError::Fleets(number, text));
            };
            let half = |half: &str| match Pattern::parse(half) {
                Ok(pattern) if pattern.parts() == [Part::Any] => Ok(pattern),
                Ok(pattern) if !pattern.parts().contains(&Part::Any) => Ok(pattern),
                _ => Err(RulesError::Fleets(number, text.clone())),
            };
            let template = Template { namespace: half(namespace)?, name: half(name)? };
            let names = template.namespace.names().chain(template.name.names());
            if let Some(unknown) = names.into_iter().find(|name| !known.contains(name)) {
                return Err(RulesError::Unknown(number, unknown.to_owned()));
            }
            templates.push(template);
        }
        Ok(Self { matcher, fleets: templates })
    }
}

impl Matcher {
    fn pattern(&self) -> &Pattern {
        let (Self::Spiffe(pattern)
        | Self::Dns(pattern)
        | Self::ServiceAccount(pattern)
        | Self::Subject(pattern)) = self;
        pattern
    }

    /// The words of each match; a certificate can have several names.
    fn matched(&self, identity: &Identity) -> Vec<Words> {
        match (self, identity) {
            (Self::Spiffe(pattern), Identity::Spiffe(id)) => {
                pattern.matched(id).into_iter().collect()
            }
            (Self::Dns(pattern), Identity::Dns(names)) => {
                names.iter().filter_map(|name| pattern.matched(name)).collect()
            }
            (Self::ServiceAccount(pattern), Identity::ServiceAccount { namespace, name }) => {
                pattern.matched(&format!("{namespace}/{name}")).into_iter().collect()
            }
            (Self::Subject(pattern), Identity::Subject(subject)) => {
                pattern.matched(subject).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }
}

impl Template {
    fn filled(&self, words: &Words) -> Option<Grant> {
        let half = |pattern: &Pattern| match pattern.parts() {
            [Part::Any] => Some(None),
            _ => pattern.filled(words).map(Some),
        };
        Some(Grant { namespace: half(&self.namespace)?, name: half(&self.name)? })
    }
}

impl fmt::Display for Grants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Some(grants) = self else { return f.write_str("every fleet") };
        for (at, Grant { namespace, name }) in grants.iter().enumerate() {
            let any = |half: &Option<String>| half.clone().unwrap_or_else(|| "*".to_owned());
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{}/{}", any(namespace), any(name))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spiffe(id: &str) -> Identity {
        Identity::of_spiffe(id).unwrap()
    }

    fn account(namespace: &str, name: &str) -> Identity {
        Identity::ServiceAccount { namespace: namespace.into(), name: name.into() }
    }

    fn may(rules: &str, identity: &Identity, fleet: &str) -> Result<(), Denied> {
        let rules = Rules::parse(rules).unwrap();
        rules.grants(identity)?.check(identity, &fleet.parse().unwrap())
    }

    #[test]
    fn by_convention_a_workload_reads_the_fleets_of_its_namespace() {
        let workloads = [spiffe("spiffe://example.org/ns/edge/sa/envoy"), account("edge", "envoy")];
        for identity in workloads {
            assert_eq!(may(CONVENTION, &identity, "edge/gateway"), Ok(()));
            assert_eq!(may(CONVENTION, &identity, "edge/other"), Ok(()));
            for other in ["default/gateway", "edge-2/gateway", "edg/gateway", "Edge/gateway"] {
                let denied = may(CONVENTION, &identity, other).unwrap_err().to_string();
                assert_eq!(
                    denied,
                    format!(
                        "{identity} may read edge/*, and not the fleet {other} that node.cluster names"
                    )
                );
            }
        }
        for identity in [
            spiffe("spiffe://example.org/gateway/edge"),
            spiffe("spiffe://example.org/ns/edge/sa/envoy/more"),
            Identity::Dns(vec!["envoy.edge.example.org".into()]),
            Identity::Subject("edge/envoy".into()),
        ] {
            let denied = may(CONVENTION, &identity, "edge/gateway");
            assert_eq!(denied, Err(Denied::Nothing(identity)));
        }
    }

    #[test]
    fn what_a_client_names_cannot_write_a_line_into_a_log() {
        assert!("x/y\nINFO all is well".parse::<FleetName>().is_err());
    }

    #[test]
    fn anybody_reads_everything_where_nobody_is_asked() {
        assert_eq!(may("rules: []", &Identity::Anybody, "edge/gateway"), Ok(()));
    }

    #[test]
    fn a_rule_is_for_one_kind_of_identity() {
        let rules = "
rules:
  - spiffe: spiffe://example.org/gateways/{namespace}/{name}
    fleets: ['{namespace}/{name}']
  - dns: '{name}.Edge.example.org'
    fleets: ['edge/{name}', shared/public]
  - serviceAccount: ops/*
    fleets: ['*/*']
  - subject: proxy-{zone}
    fleets: ['zone-{zone}/gateway']
";
        let id = spiffe("spiffe://example.org/gateways/edge/one");
        assert!(may(rules, &id, "edge/one").is_ok() && may(rules, &id, "edge/two").is_err());
        assert!(may(rules, &spiffe("spiffe://evil.org/gateways/edge/one"), "edge/one").is_err());
        let dns = Identity::Dns(vec!["elsewhere.org".into(), "one.edge.example.org".into()]);
        assert!(may(rules, &dns, "edge/one").is_ok() && may(rules, &dns, "shared/public").is_ok());
        assert!(may(rules, &dns, "edge/two").is_err() && may(rules, &dns, "shared/other").is_err());
        assert!(may(rules, &account("ops", "debug"), "any/fleet").is_ok());
        assert!(
            may(rules, &account("edge", "envoy"), "edge/one").is_err(),
            "a file replaces the convention"
        );
        let subject = Identity::Subject("proxy-west".into());
        assert!(may(rules, &subject, "zone-west/gateway").is_ok());
        assert!(may(rules, &subject, "zone-east/gateway").is_err());
    }

    /// As the chart has them: the Envoys of a Gateway, and those that Gateways of a class share, read their own alone.
    #[test]
    fn by_the_rules_of_the_chart_each_account_reads_its_own_fleet() {
        let values = include_str!("../../../charts/heliograph/values.yaml");
        let values: serde_json::Value = serde_saphyr::from_str(values).unwrap();
        let rules = serde_json::json!({ "rules": values["access"]["rules"] }).to_string();
        for (name, fleet) in
            [("heliograph-edge", "infra/edge"), ("helio-class-edge", "infra/class:edge")]
        {
            let account = account("infra", name);
            assert_eq!(may(&rules, &account, fleet), Ok(()));
            for other in ["infra/edge", "infra/class:edge", "infra/class-edge", "shop/class:edge"] {
                assert_eq!(may(&rules, &account, other).is_ok(), other == fleet, "{name} {other}");
            }
        }
        assert!(may(&rules, &account("infra", "default"), "infra/class:edge").is_err());
    }

    #[test]
    fn rules_that_mean_nothing_are_refused_in_one_line() {
        for (text, expected) in [
            ("", "not a file"),
            ("rules: [{fleets: [a/b]}]", "rule 1 must have exactly one of"),
            ("rules: [{dns: a, subject: b, fleets: [a/b]}]", "rule 1 must have exactly one of"),
            ("rules: [{dns: a, fleets: [a/b]}, {dns: b, fleets: []}]", "rule 2 names no fleets"),
            ("rules: [{dns: a, fleets: [b]}]", "rule 1: \"b\" is no set of fleets"),
            ("rules: [{dns: a, fleets: [a/b/c]}]", "is no set of fleets"),
            ("rules: [{dns: a, fleets: ['a*/b']}]", "is no set of fleets"),
            ("rules: [{dns: a, fleets: ['{x}/b']}]", "its pattern has no placeholder {x}"),
            ("rules: [{dns: '{', fleets: [a/b]}]", "brace"),
            ("rules: [{dnss: a, fleets: [a/b]}]", "dnss"),
        ] {
            let error = Rules::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected) && error.lines().count() == 1, "{text}: {error}");
        }
    }
}
