use crate::endpoints::preferred;
use crate::message::{About, Treatment, Variant, treatment_name};
use crate::rules::{Class, Rules};
use heliograph_snapshot::{Difference, Internal, Resource, ResourceType, Section, Snapshot};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The snapshot as a class sees it, from nothing but the snapshot. It shares with `base` all that no rule changes, and is
/// `base` itself where there are no rules.
pub fn derive(base: &Arc<Snapshot>, rules: &Rules, class: &Class) -> Arc<Snapshot> {
    if rules.is_empty() {
        return base.clone();
    }
    // To a base without rules, its view is itself; from there on it is the way of every other change.
    let bare = bare(base);
    advance(&bare, &bare, base, rules, class)
}

/// The same, from what the class saw `before`: a base, and the view `derived` from it. It costs what changed since then.
/// `rules` are those of `after`.
pub fn advance(
    before: &Snapshot,
    derived: &Snapshot,
    after: &Arc<Snapshot>,
    rules: &Rules,
    class: &Class,
) -> Arc<Snapshot> {
    if rules.is_empty() {
        return after.clone();
    }
    let mut touched = touched_by_rules(before, after);
    let trees = after.dialect().types().map(|kind| {
        let base = after.tree(kind);
        if !rules.treats(kind) {
            return (Section::from(kind), base.clone());
        }
        let mut tree = derived.tree(kind).clone();
        let mut names = touched.remove(&kind).unwrap_or_default();
        let changed = base.differences(before.tree(kind));
        names.extend(changed.iter().filter_map(name));
        for name in names {
            match base.get(&name).and_then(|resource| treated(after, kind, resource, class)) {
                Some(new) if tree.get(&name).is_some_and(|old| Arc::ptr_eq(old, &new)) => {}
                Some(new) => tree.insert(new),
                None => {
                    tree.remove(&name);
                }
            }
        }
        (Section::from(kind), tree)
    });
    Arc::new(Snapshot::assembled(after.fleet.clone(), after.head, trees))
}

/// The resources whose treatment is another one now.
fn touched_by_rules(
    before: &Snapshot,
    after: &Snapshot,
) -> BTreeMap<ResourceType, BTreeSet<Arc<str>>> {
    let mut touched: BTreeMap<ResourceType, BTreeSet<Arc<str>>> = BTreeMap::new();
    let [old, new] = [before, after].map(|snapshot| snapshot.internal(Internal::Rules));
    for name in new.differences(old).iter().filter_map(name) {
        // What an audience asks has gone into the class; who is of it does not change what it sees.
        if let Some(About::Treatment(kind, name)) = About::of(&name) {
            touched.entry(kind).or_default().insert(name.into());
        }
    }
    touched
}

/// A resource as a class sees it. `None`: not at all.
fn treated(
    snapshot: &Snapshot,
    kind: ResourceType,
    resource: &Arc<Resource>,
    class: &Class,
) -> Option<Arc<Resource>> {
    let rules = snapshot.internal(Internal::Rules);
    let Some(rule) = rules.get(&treatment_name(kind, &resource.name)) else {
        return Some(resource.clone());
    };
    // It may say that the resource is not for this class.
    let treatment = Treatment::decode(rule.body.clone()).ok()?;
    let mut admissions = treatment.admissions.iter();
    let is_admitted = treatment.admissions.is_empty()
        || admissions.any(|admission| admission.audiences.iter().all(|id| class.is_of(id)));
    if !is_admitted {
        return None;
    }
    let variant = treatment.variants.iter().find(|variant| class.is_of(&variant.audience));
    let resource = match variant {
        Some(Variant { audience, body }) => Arc::new(resource.varied(rule, audience, body.clone())),
        None => resource.clone(),
    };
    let mut preferences = treatment.preferences.iter();
    let preference = preferences.find(|it| it.audience.is_empty() || class.is_of(&it.audience));
    Some(match preference {
        // What is made of them would need a version that reveals nothing.
        Some(preference) if kind == ResourceType::Endpoints && !resource.is_confidential => {
            preferred(&resource, &preference.labels, class)
        }
        _ => resource,
    })
}

fn bare(base: &Snapshot) -> Snapshot {
    let trees = base.dialect().types().map(|kind| (kind, base.tree(kind).clone()));
    Snapshot::assembled(base.fleet.clone(), base.head, trees)
}

fn name(difference: &Difference<'_>) -> Option<Arc<str>> {
    difference.after.or(difference.before).map(|resource| resource.name.clone())
}
