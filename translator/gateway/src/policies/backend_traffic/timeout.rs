use super::{Rejection, invalid};
use crate::duration;
use crate::objects::backend_traffic_policy::{HttpTimeout, Timeout};
use heliograph_model::TrafficPolicy;

pub(super) fn accept(given: &Timeout, policy: &mut TrafficPolicy) -> Result<(), Rejection> {
    let Timeout { http } = given;
    let Some(HttpTimeout { request_timeout }) = http else { return Ok(()) };
    if let Some(text) = request_timeout {
        let parsed = duration::parse(text);
        let parsed = parsed.map_err(|why| invalid("spec.timeout.http.requestTimeout", why))?;
        policy.request_timeout = Some(parsed);
    }
    Ok(())
}
