use super::Refusal;
use crate::backends::Reference;
use crate::objects::ObjectName;
use crate::objects::gateway::{HttpFilter, RequestMirror};
use crate::routes::RouteScope;
use heliograph_model::{Filter, Mirror};

/// The denominator of shares of requests.
const MILLION: u64 = 1_000_000;

pub(super) fn accept(scope: &mut RouteScope<'_>, filter: &HttpFilter) -> Result<Filter, Refusal> {
    let mirror = filter.request_mirror.as_ref().ok_or("requestMirror is missing")?;
    let RequestMirror { backend_ref, fraction, percent } = mirror;
    let bad = || "requestMirror: a share must be from 0 to 100 %".to_owned();
    let part = |number: i32| u64::try_from(number).map_err(|_| bad());
    let (numerator, denominator) = match (fraction, percent) {
        (Some(_), Some(_)) => {
            return Err("requestMirror: fraction and percent exclude each other".to_owned());
        }
        (Some(fraction), None) => {
            (part(fraction.numerator)?, part(fraction.denominator.unwrap_or(100))?)
        }
        (None, percent) => (part(percent.unwrap_or(100))?, 100),
    };
    if denominator == 0 || numerator > denominator {
        return Err(bad());
    }
    let target = scope.resolve(&Reference {
        group: backend_ref.group.as_deref().unwrap_or_default(),
        kind: backend_ref.kind.as_deref().unwrap_or("Service"),
        name: ObjectName::new(
            backend_ref.namespace.as_deref().unwrap_or(scope.namespace()),
            &backend_ref.name,
        ),
        port: backend_ref.port,
    });
    let per_million = u32::try_from(numerator * MILLION / denominator).map_err(|_| bad())?;
    Ok(Filter::Mirror(Mirror { target, per_million }))
}
