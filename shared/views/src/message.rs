//! Rules as they are stored. The tags are in stored bytes: a new field takes a new tag, and a tag is never used again for
//! something else. Lists keep their author's order; there is no map, so equal rules are equal bytes.

use crate::EnvoyVersion;
use bytes::Bytes;
use heliograph_snapshot::{Resource, ResourceType};
use prost::Message;

/// Which clients are meant: those for which all holds that is said here.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Audience {
    /// In one of these namespaces; empty: in any or none.
    #[prost(string, repeated, tag = "1")]
    pub namespaces: Vec<String>,
    /// Whether `namespaces` decide over access. Then only an authenticated identity counts.
    #[prost(bool, tag = "2")]
    pub is_access: bool,
    #[prost(message, repeated, tag = "3")]
    pub labels: Vec<Requirement>,
    /// A client that does not say its version is within no bound.
    #[prost(message, optional, tag = "4")]
    pub at_least: Option<EnvoyVersion>,
    #[prost(message, optional, tag = "5")]
    pub at_most: Option<EnvoyVersion>,
}

/// A condition on a label.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Requirement {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(enumeration = "Operator", tag = "2")]
    pub operator: i32,
    #[prost(string, repeated, tag = "3")]
    pub values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum Operator {
    /// An operator of a newer translator. It matches no client.
    Unknown = 0,
    In = 1,
    NotIn = 2,
    Exists = 3,
    DoesNotExist = 4,
}

/// The rules for one resource. Audiences are named by their ids.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Treatment {
    /// The resource exists for clients that match one of these; without any, for all.
    #[prost(message, repeated, tag = "1")]
    pub admissions: Vec<Admission>,
    /// The first that is for a client takes the place of the resource.
    #[prost(message, repeated, tag = "2")]
    pub variants: Vec<Variant>,
    /// The first that is for a client orders its endpoints.
    #[prost(message, repeated, tag = "3")]
    pub preferences: Vec<Preference>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Admission {
    /// All of them must hold.
    #[prost(string, repeated, tag = "1")]
    pub audiences: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Variant {
    #[prost(string, tag = "1")]
    pub audience: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub body: Bytes,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Preference {
    /// Empty: for all clients.
    #[prost(string, tag = "1")]
    pub audience: String,
    /// Labels that a client and an endpoint may have in common, the widest first. The more of them in a row, the sooner
    /// the endpoint is used.
    #[prost(string, repeated, tag = "2")]
    pub labels: Vec<String>,
}

impl Audience {
    pub fn resource(&self, id: &str) -> Resource {
        Resource::new(audience_name(id), self.encode_to_vec().into())
    }
}

impl Treatment {
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Of a confidential resource, the variants in here are so too: mark it.
    pub fn resource(&self, kind: ResourceType, name: &str) -> Resource {
        Resource::new(treatment_name(kind, name), self.encode_to_vec().into())
    }

    /// Decodes a resource of the rules. `None`: it cannot be decoded.
    pub fn of(resource: &Resource) -> Option<Self> {
        Self::decode(resource.body.clone()).ok()
    }
}

/// The subject of a resource of the rules, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About<'a> {
    Audience(&'a str),
    Treatment(ResourceType, &'a str),
}

impl<'a> About<'a> {
    /// `None`: a newer translator knows.
    pub(crate) fn of(name: &'a str) -> Option<Self> {
        let (what, rest) = name.split_once('/')?;
        if what == AUDIENCE {
            return Some(Self::Audience(rest));
        }
        let kind = ResourceType::from_name(what)?;
        Some(Self::Treatment(kind, rest))
    }
}

const AUDIENCE: &str = "audience";

/// Under which name an audience is kept.
pub fn audience_name(id: &str) -> String {
    format!("{AUDIENCE}/{id}")
}

/// Under which name the treatment of a resource is kept.
pub fn treatment_name(kind: ResourceType, name: &str) -> String {
    format!("{kind}/{name}")
}
