//! Protobuf bytes as JSON, for people: `helio translate`, golden files, the admin port.

use crate::Any;
use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};
use std::sync::LazyLock;

/// Parsed on first use: it takes a tenth of a second and tens of megabytes.
static POOL: LazyLock<Result<DescriptorPool, String>> = LazyLock::new(|| {
    DescriptorPool::decode(include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin")).as_slice())
        .map_err(|error| error.to_string())
});

/// The message inside `any`, with protobuf's own field names and every nested `Any` unpacked.
pub fn to_json(any: &Any) -> Result<serde_json::Value, String> {
    let pool = POOL.as_ref().map_err(Clone::clone)?;
    let name = any.type_url.rsplit('/').next().unwrap_or_default();
    let descriptor = pool
        .get_message_by_name(name)
        .ok_or_else(|| format!("unknown message type {:?}", any.type_url))?;
    let message = DynamicMessage::decode(descriptor, any.value.clone())
        .map_err(|error| format!("{}: {error}", any.type_url))?;
    let options = SerializeOptions::new().use_proto_field_name(true);
    message
        .serialize_with_options(serde_json::value::Serializer, &options)
        .map_err(|error| format!("{}: {error}", any.type_url))
}
