use crate::input::Input;
use heliograph_distributor_protocol::{LABELS_LIMIT, NodeFields, UserAgentVersion};
use heliograph_envoy::envoy::config::core::v3::node::UserAgentVersionType;
use heliograph_envoy::envoy::config::core::v3::{BuildVersion, Extension, Locality, Node};
use heliograph_envoy::envoy::r#type::v3::SemanticVersion;
use heliograph_envoy::google::protobuf::value::Kind;
use heliograph_envoy::google::protobuf::{ListValue, Struct, Value};
use heliograph_envoy::{Message, append_message};
use std::collections::BTreeMap;

/// A scan of a node says what a decoder of all of it says, and refuses nearly nothing that the decoder takes.
pub(crate) fn read(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let node = input.node_message();
    match (NodeFields::scan(&node), Node::decode(&node[..])) {
        (Ok(scanned), Ok(decoded)) => assert_eq!(scanned, used(&decoded), "{node:?}"),
        // What is wrong may be in a part that is not used.
        (Ok(_), Err(_)) => {}
        // A decoder reads a map whatever its wire type is.
        (Err(error), Ok(_)) => {
            assert!(error.to_string().contains("type of another"), "{error}: {node:?}");
        }
        (Err(_), Err(_)) => {}
    }
}

/// What is used of a node that was decoded.
fn used(node: &Node) -> NodeFields<'_> {
    let place = node.locality.as_ref();
    let place = |of: fn(&Locality) -> &String| place.map_or("", |place| of(place));
    let version = node.user_agent_version_type.as_ref().map(|version| match version {
        UserAgentVersionType::UserAgentVersion(text) => UserAgentVersion::Text(text),
        UserAgentVersionType::UserAgentBuildVersion(BuildVersion { version, .. }) => {
            let parts = |it: &SemanticVersion| [it.major_number, it.minor_number, it.patch];
            UserAgentVersion::Build(version.as_ref().map(parts))
        }
    });
    let labels = node.metadata.as_ref().and_then(|metadata| metadata.fields.get("labels"));
    let labels = match labels.and_then(|labels| labels.kind.as_ref()) {
        Some(Kind::StructValue(labels)) => labels.fields.iter().map(label).collect(),
        _ => BTreeMap::new(),
    };
    NodeFields {
        id: &node.id,
        cluster: &node.cluster,
        region: place(|it| &it.region),
        zone: place(|it| &it.zone),
        sub_zone: place(|it| &it.sub_zone),
        version,
        labels: labels.into_iter().take(LABELS_LIMIT).collect(),
    }
}

fn label<'a>((key, value): (&'a String, &'a Value)) -> (&'a str, Option<&'a str>) {
    let text = match &value.kind {
        Some(Kind::StringValue(text)) => Some(text.as_str()),
        _ => None,
    };
    (key, text)
}

const TEXTS: [&str; 6] = ["", "a", "b", "labels", "1.40.0", "\u{fc}"];

/// Pieces of messages one behind the other are one message, in which fields come several times.
impl Input<'_> {
    fn node_message(&mut self) -> Vec<u8> {
        let mut node = Vec::new();
        for _ in 0..=self.below(8) {
            match self.below(4) {
                0 => append_message(&mut node, 3, &self.struct_message(true)),
                _ => node.extend(self.part_of_node().encode_to_vec()),
            }
        }
        if self.below(4) == 1 {
            self.damage(&mut node);
        }
        node
    }

    fn part_of_node(&mut self) -> Node {
        let node = Node::default();
        match self.below(8) {
            0 => Node { id: self.text(), ..node },
            1 => Node { cluster: self.text(), ..node },
            2 => Node { locality: Some(self.locality()), ..node },
            3 => {
                let text = UserAgentVersionType::UserAgentVersion(self.text());
                Node { user_agent_version_type: Some(text), ..node }
            }
            4 => {
                let build = UserAgentVersionType::UserAgentBuildVersion(self.build());
                Node { user_agent_version_type: Some(build), ..node }
            }
            5 => Node { extensions: vec![Extension::default(); self.below(4)], ..node },
            6 => Node { client_features: vec![self.text()], ..node },
            _ => Node { user_agent_name: self.text(), ..node },
        }
    }

    fn locality(&mut self) -> Locality {
        let place = Locality::default();
        match self.below(3) {
            0 => Locality { region: self.text(), ..place },
            1 => Locality { zone: self.text(), ..place },
            _ => Locality { sub_zone: self.text(), zone: self.text(), ..place },
        }
    }

    fn build(&mut self) -> BuildVersion {
        let (number, version) = (self.byte().into(), SemanticVersion::default());
        let version = match self.below(4) {
            0 => return BuildVersion { metadata: Some(Struct::default()), version: None },
            1 => SemanticVersion { major_number: number, ..version },
            2 => SemanticVersion { minor_number: number, ..version },
            _ => SemanticVersion { patch: number, ..version },
        };
        BuildVersion { version: Some(version), metadata: None }
    }

    /// A `Struct`: entries of which some have the same key, some have several keys, and some have several values.
    fn struct_message(&mut self, is_metadata: bool) -> Vec<u8> {
        let mut message = Vec::new();
        // Now and then more labels than are read.
        let count = match self.below(16) {
            15 => 2 * LABELS_LIMIT,
            few => few % 4,
        };
        for number in 0..count {
            let mut entry = Vec::new();
            for _ in 0..=self.below(3) {
                match self.below(3) {
                    0 if is_metadata => append_message(&mut entry, 1, b"labels"),
                    0 if count > LABELS_LIMIT => {
                        append_message(&mut entry, 1, (97 * number % count).to_string().as_bytes());
                    }
                    0 => append_message(&mut entry, 1, self.text().as_bytes()),
                    1 => append_message(&mut entry, 2, &self.value_message(is_metadata)),
                    // An unknown field.
                    _ => append_message(&mut entry, 3, b"x"),
                }
            }
            append_message(&mut message, 1, &entry);
        }
        message
    }

    fn value_message(&mut self, is_metadata: bool) -> Vec<u8> {
        let mut message = Vec::new();
        for _ in 0..self.below(3) {
            let kind = match self.below(8) {
                0 => Kind::NullValue(0),
                1 => Kind::NumberValue(1.5),
                2 => Kind::BoolValue(true),
                3 => Kind::ListValue(ListValue { values: vec![Value::default(); 2] }),
                4 | 5 if is_metadata => {
                    append_message(&mut message, 5, &self.struct_message(false));
                    continue;
                }
                4 => Kind::StructValue(Struct::default()),
                _ => Kind::StringValue(self.text()),
            };
            message.extend(Value { kind: Some(kind) }.encode_to_vec());
        }
        message
    }

    fn text(&mut self) -> String {
        TEXTS[self.below(TEXTS.len())].to_owned()
    }
}
