use crate::names;
use bytes::Bytes;
use heliograph_envoy::Message;
use heliograph_envoy::envoy::config::core::v3::{DataSource, data_source::Specifier};
use heliograph_envoy::envoy::extensions::transport_sockets::tls::v3::{
    Secret, TlsCertificate, secret,
};
use heliograph_model::{KeyPair, SecretId};
use heliograph_snapshot::Resource;
use std::sync::Arc;

pub fn secret(id: &SecretId, pair: &KeyPair) -> Arc<Resource> {
    let inline = |bytes: &Bytes| {
        Some(DataSource {
            specifier: Some(Specifier::InlineBytes(bytes.clone())),
            ..Default::default()
        })
    };
    let name = names::secret(id);
    let message = Secret {
        name: name.clone(),
        r#type: Some(secret::Type::TlsCertificate(TlsCertificate {
            certificate_chain: inline(&pair.chain),
            private_key: inline(&pair.key),
            ..Default::default()
        })),
    };
    Arc::new(Resource::new(name, message.encode_to_vec().into()).confidential(true))
}
