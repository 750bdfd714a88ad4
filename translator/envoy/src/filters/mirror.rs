use crate::{names, per_million};
use heliograph_envoy::envoy::config::route::v3::route_action::RequestMirrorPolicy;
use heliograph_envoy::envoy::config::route::v3::{Route, route};
use heliograph_model::{Mirror, Target};

pub(super) fn build(mirror: &Mirror, route: &mut Route) {
    let (Some(route::Action::Route(action)), Target::Upstream(backend)) =
        (&mut route.action, &mirror.target)
    else {
        // Nothing to copy, or nowhere to send copies: the request itself goes its way.
        return;
    };
    action.request_mirror_policies.push(RequestMirrorPolicy {
        cluster: names::cluster(backend),
        runtime_fraction: Some(per_million(mirror.per_million)),
        ..Default::default()
    });
}
