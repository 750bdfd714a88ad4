//! Envoy's API as Rust types whose encoding is canonical: maps are ordered, so equal messages are equal bytes,
//! in every process.

use bytes::Bytes;
pub use prost::{Message, Name};

#[cfg(feature = "json")]
pub mod json;

/// The generated types, by protobuf package.
#[allow(clippy::all, dead_code, missing_docs, unreachable_pub)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/all.rs"));
}

pub use generated::{envoy, google, xds};

pub use google::protobuf::Any;

/// Packs a message the way xDS carries typed extensions and resources.
pub fn any<M: Message + Name>(message: &M) -> Any {
    Any { type_url: type_url::<M>(), value: Bytes::from(message.encode_to_vec()) }
}

/// The type URL that Envoy knows a message by.
pub fn type_url<M: Name>() -> String {
    format!("type.googleapis.com/{}", M::full_name())
}

/// Appends an encoded message as field `tag` of the message in `buffer`, so that a large message can be put together
/// from parts that were encoded before. Fields must come in the order of their tags, as the encoder writes them.
pub fn append_message(buffer: &mut Vec<u8>, tag: u32, message: &[u8]) {
    prost::encoding::encode_key(tag, prost::encoding::WireType::LengthDelimited, buffer);
    prost::encoding::encode_varint(message.len() as u64, buffer);
    buffer.extend_from_slice(message);
}

#[cfg(test)]
mod tests {
    use super::*;
    use envoy::config::core::v3::Metadata;
    use google::protobuf::{Struct, Value, value::Kind};

    /// The promise this crate exists for: no unordered map reaches the wire.
    #[test]
    fn equal_messages_are_equal_bytes_whatever_the_order_of_their_making() {
        let message = |keys: &[&str]| {
            let fields = keys.iter().map(|key| {
                let value = Value { kind: Some(Kind::StringValue((*key).to_owned())) };
                ((*key).to_owned(), value)
            });
            let metadata = Struct { fields: fields.collect() };
            any(&Metadata {
                filter_metadata: keys
                    .iter()
                    .map(|key| ((*key).to_owned(), metadata.clone()))
                    .collect(),
                ..Default::default()
            })
        };
        assert_eq!(message(&["a", "b", "c", "d"]), message(&["d", "b", "a", "c"]));
        assert_eq!(message(&["a"]).type_url, "type.googleapis.com/envoy.config.core.v3.Metadata");
    }
}
