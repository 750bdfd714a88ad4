use super::names;
use crate::accept::key_pair;
use crate::objects::core;
use crate::world::Reader;
use bytes::Bytes;
use heliograph_envoy::Message;
use heliograph_envoy::envoy::config::core::v3::{DataSource, data_source::Specifier};
use heliograph_envoy::envoy::extensions::transport_sockets::tls::v3::{
    Secret, TlsCertificate, secret,
};
use heliograph_model::SecretId;
use heliograph_snapshot::Resource;
use std::sync::Arc;

/// `None` for a Secret that Envoy would refuse.
pub(crate) fn secret(reader: &Reader<'_>, id: &SecretId) -> Option<Arc<Resource>> {
    let pair = key_pair(reader.object::<core::Secret>(&id.0)?).ok()?;
    let inline = |bytes: &[u8]| {
        Some(DataSource {
            specifier: Some(Specifier::InlineBytes(Bytes::copy_from_slice(bytes))),
            ..Default::default()
        })
    };
    let name = names::secret(id);
    let message = Secret {
        name: name.clone(),
        r#type: Some(secret::Type::TlsCertificate(TlsCertificate {
            certificate_chain: inline(pair.chain),
            private_key: inline(pair.key),
            ..Default::default()
        })),
    };
    Some(Arc::new(Resource::new(name, message.encode_to_vec().into())))
}
