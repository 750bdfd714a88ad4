//! Prints protobuf bytes as JSON, for `helio translate`, golden files, the admin port. Secrets are redacted.

use crate::Any;
use bytes::Bytes;
use prost_reflect::prost::Message;
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, ReflectMessage, SerializeOptions, Value,
};
use std::sync::LazyLock;

/// The message inside `any`, with protobuf's own field names and every nested `Any` unpacked.
pub fn to_json(any: &Any) -> Result<serde_json::Value, String> {
    let pool = POOL.as_ref().map_err(Clone::clone)?;
    let mut message = unpack(pool, &any.type_url, &any.value)?;
    redact(pool, &mut message)?;
    let options = SerializeOptions::new().use_proto_field_name(true);
    message
        .serialize_with_options(serde_json::value::Serializer, &options)
        .map_err(|error| format!("{}: {error}", any.type_url))
}

/// The message inside `any` after an edit of its JSON, which has protobuf's own field names and every nested `Any`
/// unpacked. The edit sees also what must not be shown.
pub fn edited(
    any: &Any,
    edit: impl FnOnce(&mut serde_json::Value) -> Result<(), String>,
) -> Result<Bytes, String> {
    let pool = POOL.as_ref().map_err(Clone::clone)?;
    let message = unpack(pool, &any.type_url, &any.value)?;
    let options = SerializeOptions::new().use_proto_field_name(true);
    let mut value = message
        .serialize_with_options(serde_json::value::Serializer, &options)
        .map_err(|error| format!("{}: {error}", any.type_url))?;
    edit(&mut value)?;
    let message = DynamicMessage::deserialize(message.descriptor(), value)
        .map_err(|error| error.to_string())?;
    Ok(canonical(pool, &message)?.into())
}

/// Parsed on first use: it takes a tenth of a second and tens of megabytes.
static POOL: LazyLock<Result<DescriptorPool, String>> = LazyLock::new(|| {
    DescriptorPool::decode(include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin")).as_slice())
        .map_err(|error| error.to_string())
});

/// Envoy's own mark on fields that must not be shown.
const SENSITIVE: &str = "udpa.annotations.sensitive";
const REDACTED: &str = "[redacted]";
const ANY: &str = "google.protobuf.Any";

fn unpack(pool: &DescriptorPool, type_url: &str, value: &[u8]) -> Result<DynamicMessage, String> {
    let name = type_url.rsplit('/').next().unwrap_or_default();
    let descriptor = pool
        .get_message_by_name(name)
        .ok_or_else(|| format!("unknown message type {type_url:?}"))?;
    DynamicMessage::decode(descriptor, value).map_err(|error| format!("{type_url}: {error}"))
}

/// Blots out every field that Envoy marks as sensitive, also inside nested messages.
fn redact(pool: &DescriptorPool, message: &mut DynamicMessage) -> Result<(), String> {
    if message.descriptor().full_name() == ANY {
        return redact_any(pool, message);
    }
    let present: Vec<FieldDescriptor> = message.fields().map(|(field, _)| field).collect();
    for field in present {
        let sensitive = is_sensitive(pool, &field);
        visit(message.get_field_mut(&field), &mut |value| match value {
            Value::Message(inner) if sensitive => {
                blot(inner);
                Ok(())
            }
            Value::Message(inner) => redact(pool, inner),
            value if sensitive => {
                blot_value(value);
                Ok(())
            }
            _ => Ok(()),
        })?;
    }
    Ok(())
}

fn redact_any(pool: &DescriptorPool, any: &mut DynamicMessage) -> Result<(), String> {
    let text = |name| any.get_field_by_name(name).map(|value| value.into_owned());
    let (Some(Value::String(type_url)), Some(Value::Bytes(value))) =
        (text("type_url"), text("value"))
    else {
        return Ok(());
    };
    let mut inner = unpack(pool, &type_url, &value)?;
    redact(pool, &mut inner)?;
    any.set_field_by_name("value", Value::Bytes(inner.encode_to_vec().into()));
    Ok(())
}

/// The bytes of a message with its maps in order, also inside every `Any`: equal messages are equal bytes.
fn canonical(pool: &DescriptorPool, message: &DynamicMessage) -> Result<Vec<u8>, String> {
    if message.descriptor().full_name() == ANY {
        return canonical_any(pool, message);
    }
    let mut buffer = Vec::new();
    for (field, value) in message.fields() {
        let tag = field.number();
        match value {
            Value::Message(inner) => {
                crate::append_message(&mut buffer, tag, &canonical(pool, inner)?);
            }
            Value::List(values) if matches!(field.kind(), Kind::Message(_)) => {
                for inner in values.iter().filter_map(Value::as_message) {
                    crate::append_message(&mut buffer, tag, &canonical(pool, inner)?);
                }
            }
            Value::Map(values) => {
                let Kind::Message(entry) = field.kind() else { continue };
                let mut entries = Vec::new();
                for (key, value) in values {
                    let mut entry = DynamicMessage::new(entry.clone());
                    entry.set_field_by_number(1, key.clone().into());
                    entry.set_field_by_number(2, value.clone());
                    entries.push((key, canonical(pool, &entry)?));
                }
                entries.sort_by_key(|(key, _)| *key);
                for (_, entry) in entries {
                    crate::append_message(&mut buffer, tag, &entry);
                }
            }
            // One field by itself, as it is encoded within any message.
            other => {
                let mut alone = DynamicMessage::new(message.descriptor());
                alone.set_field(&field, other.clone());
                alone.encode(&mut buffer).map_err(|error| error.to_string())?;
            }
        }
    }
    Ok(buffer)
}

fn canonical_any(pool: &DescriptorPool, any: &DynamicMessage) -> Result<Vec<u8>, String> {
    let any: Any = any.transcode_to().map_err(|error| error.to_string())?;
    let inner = unpack(pool, &any.type_url, &any.value)?;
    Ok(Any { value: canonical(pool, &inner)?.into(), ..any }.encode_to_vec())
}

fn is_sensitive(pool: &DescriptorPool, field: &FieldDescriptor) -> bool {
    pool.get_extension_by_name(SENSITIVE)
        .is_some_and(|extension| field.options().get_extension(&extension).as_bool() == Some(true))
}

/// Every text inside becomes the mark; numbers and choices go.
fn blot(message: &mut DynamicMessage) {
    let present: Vec<FieldDescriptor> = message.fields().map(|(field, _)| field).collect();
    for field in present {
        if !matches!(field.kind(), Kind::Message(_) | Kind::String | Kind::Bytes) {
            message.clear_field(&field);
            continue;
        }
        let _ = visit(message.get_field_mut(&field), &mut |value| {
            match value {
                Value::Message(inner) => blot(inner),
                value => blot_value(value),
            }
            Ok::<(), String>(())
        });
    }
}

fn blot_value(value: &mut Value) {
    match value {
        Value::String(text) => REDACTED.clone_into(text),
        Value::Bytes(bytes) => *bytes = REDACTED.as_bytes().into(),
        other => *other = Value::Bool(false),
    }
}

/// Each single value of a field: the elements of lists and maps.
fn visit<E>(value: &mut Value, act: &mut impl FnMut(&mut Value) -> Result<(), E>) -> Result<(), E> {
    match value {
        Value::List(values) => values.iter_mut().try_for_each(act),
        Value::Map(values) => values.values_mut().try_for_each(act),
        single => act(single),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::any;
    use crate::envoy::config::core::v3::{
        DataSource, Metadata, TransportSocket, data_source, transport_socket,
    };
    use crate::envoy::extensions::transport_sockets::tls::v3::{
        CommonTlsContext, DownstreamTlsContext, Secret, TlsCertificate, secret,
    };
    use crate::google::protobuf::value::Kind;
    use crate::google::protobuf::{Struct, Value};

    fn certificate() -> TlsCertificate {
        let source = |text: &str| {
            Some(DataSource {
                specifier: Some(data_source::Specifier::InlineString(text.to_owned())),
                ..Default::default()
            })
        };
        TlsCertificate {
            certificate_chain: source("the chain"),
            private_key: source("the key"),
            ..Default::default()
        }
    }

    #[test]
    fn a_private_key_is_not_shown() {
        let secret = Secret {
            name: "web".to_owned(),
            r#type: Some(secret::Type::TlsCertificate(certificate())),
        };
        let json = to_json(&any(&secret)).unwrap();
        assert_eq!(json["tls_certificate"]["certificate_chain"]["inline_string"], "the chain");
        assert_eq!(json["tls_certificate"]["private_key"]["inline_string"], "[redacted]");
    }

    #[test]
    fn nor_is_one_inside_an_any() {
        let context = DownstreamTlsContext {
            common_tls_context: Some(CommonTlsContext {
                tls_certificates: vec![certificate()],
                ..Default::default()
            }),
            ..Default::default()
        };
        let socket = TransportSocket {
            name: "tls".to_owned(),
            config_type: Some(transport_socket::ConfigType::TypedConfig(any(&context))),
        };
        let text = to_json(&any(&socket)).unwrap().to_string();
        assert!(text.contains("the chain") && !text.contains("the key"), "{text}");
    }

    #[test]
    fn an_edit_of_nothing_leaves_every_byte_as_it_is() {
        let value = |text: &str| Value { kind: Some(Kind::StringValue(text.to_owned())) };
        let fields = ["a", "b", "c", "d", "e"].map(|key| (key.to_owned(), value(key)));
        let fields = Struct { fields: fields.into() };
        let metadata = Metadata {
            filter_metadata: ["x", "y", "z"].map(|key| (key.to_owned(), fields.clone())).into(),
            typed_filter_metadata: [("t".to_owned(), any(&fields))].into(),
        };
        let any = any(&metadata);
        assert_eq!(edited(&any, |_| Ok(())).unwrap(), any.value);
    }

    #[test]
    fn an_edit_is_of_fields_that_there_are() {
        let metadata = any(&Metadata::default());
        let set = |key: &'static str| {
            edited(&metadata, move |value| {
                value[key] = serde_json::json!({"a": {"b": "c"}});
                Ok(())
            })
        };
        let edited = Metadata::decode(set("filter_metadata").unwrap()).unwrap();
        assert!(edited.filter_metadata.contains_key("a"));
        assert!(set("nonsense").unwrap_err().contains("nonsense"));
    }

    #[test]
    fn an_unknown_type_is_an_error() {
        let unknown =
            Any { type_url: "type.googleapis.com/unheard.Of".to_owned(), ..Default::default() };
        assert!(to_json(&unknown).unwrap_err().contains("unheard.Of"));
    }
}
