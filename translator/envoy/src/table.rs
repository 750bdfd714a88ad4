use crate::names;
use bytes::Bytes;
use heliograph_envoy::envoy::config::route::v3::RouteConfiguration;
use heliograph_envoy::{Message, append_message};
use heliograph_model::TableKey;
use heliograph_snapshot::Resource;
use std::sync::Arc;

/// The field of `RouteConfiguration` that holds its virtual hosts.
const VIRTUAL_HOSTS: u32 = 2;

/// Puts a table together from virtual hosts that are encoded already: with thousands of hosts, encoding them again for
/// the sake of one would cost more than everything else.
pub fn table<'a>(table: &TableKey, hosts: impl Iterator<Item = &'a Bytes>) -> Arc<Resource> {
    let name = names::table(table);
    let mut encoded =
        RouteConfiguration { name: name.clone(), ..Default::default() }.encode_to_vec();
    for host in hosts {
        append_message(&mut encoded, VIRTUAL_HOSTS, host);
    }
    // Fields above the hosts, in the order of their tags.
    let rest = RouteConfiguration { ignore_port_in_host_matching: true, ..Default::default() };
    encoded.extend(rest.encode_to_vec());
    Arc::new(Resource::new(name, encoded.into()))
}
