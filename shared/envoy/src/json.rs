//! Protobuf bytes as JSON, for people: `helio translate`, golden files, the admin port. Secrets are redacted.

use crate::Any;
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
        DataSource, TransportSocket, data_source, transport_socket,
    };
    use crate::envoy::extensions::transport_sockets::tls::v3::{
        CommonTlsContext, DownstreamTlsContext, Secret, TlsCertificate, secret,
    };

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
    fn an_unknown_type_is_an_error() {
        let unknown =
            Any { type_url: "type.googleapis.com/unheard.Of".to_owned(), ..Default::default() };
        assert!(to_json(&unknown).unwrap_err().contains("unheard.Of"));
    }
}
