use crate::ObjectName;
use heliograph_snapshot::FleetName;

/// The owner of a fleet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FleetOwner {
    /// One Gateway's.
    Gateway(ObjectName),
    /// A GatewayClass's, all of whose Gateways share them. Its name, and the namespace that they run in.
    Class(ObjectName),
}

/// Before the name of a class, in that of its fleet. No Gateway can have such a name.
const CLASS: &str = "class:";

impl FleetOwner {
    /// The owner of a fleet, by its name.
    pub fn of(fleet: &FleetName) -> Self {
        let (namespace, name) = fleet.as_str().split_once('/').unwrap_or_default();
        match name.strip_prefix(CLASS) {
            Some(class) => Self::Class(ObjectName::new(namespace, class)),
            None => Self::Gateway(ObjectName::new(namespace, name)),
        }
    }

    /// Whether Gateways share a fleet.
    pub fn is_shared(fleet: &FleetName) -> bool {
        fleet.as_str().split_once('/').is_some_and(|(_, name)| name.starts_with(CLASS))
    }

    pub fn fleet(&self) -> FleetName {
        match self {
            Self::Gateway(gateway) => FleetName::new(&gateway.namespace, &gateway.name),
            Self::Class(class) => {
                FleetName::new(&class.namespace, &format!("{CLASS}{}", class.name))
            }
        }
    }

    pub fn is_class(&self) -> bool {
        matches!(self, Self::Class(_))
    }

    /// Its name, with the namespace of its proxies.
    pub fn name(&self) -> &ObjectName {
        let (Self::Gateway(name) | Self::Class(name)) = self;
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fleet_says_whose_it_is() {
        let name = ObjectName::new("infra", "edge");
        for (owner, fleet) in [
            (FleetOwner::Gateway(name.clone()), "infra/edge"),
            (FleetOwner::Class(name), "infra/class:edge"),
        ] {
            assert_eq!(owner.fleet().as_str(), fleet);
            assert_eq!(FleetOwner::of(&owner.fleet()), owner);
            assert_eq!(FleetOwner::is_shared(&owner.fleet()), owner.is_class());
        }
    }
}
