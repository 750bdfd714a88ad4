use super::footprint::Footprint;
use prometheus::{Gauge, IntCounterVec, Opts, Registry};

/// A registry that holds what every program has: the build's own metric, and the process's. `program` is the program's name.
pub fn registry(program: &str) -> Result<Registry, prometheus::Error> {
    let registry = Registry::new();
    let build = Gauge::with_opts(
        Opts::new("heliograph_build_info", "Always 1; the labels have program and version.")
            .const_label("program", program)
            .const_label("version", env!("CARGO_PKG_VERSION")),
    )?;
    build.set(1.0);
    registry.register(Box::new(build))?;
    registry.register(Box::new(Footprint::new()?))?;
    Ok(registry)
}

/// Has a counter for each of these values of its labels, at 0. Of one that appears with its first event Prometheus sees no
/// increase, so that an alert would miss just that one.
pub fn from_zero<const N: usize>(
    counters: &IntCounterVec,
    values: impl IntoIterator<Item = [&'static str; N]>,
) {
    for labels in values {
        counters.with_label_values(&labels);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_is_a_metric() {
        let text = prometheus::TextEncoder::new()
            .encode_to_string(&registry("helio").unwrap().gather())
            .unwrap();
        let version = env!("CARGO_PKG_VERSION");
        let line = format!("heliograph_build_info{{program=\"helio\",version=\"{version}\"}} 1\n");
        assert!(text.contains(&line), "{text}");
    }
}
