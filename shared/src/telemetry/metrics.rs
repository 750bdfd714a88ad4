use prometheus::{Gauge, Opts, Registry};

/// A registry that holds the build's own metric. `program` is the program's name.
pub fn registry(program: &str) -> Result<Registry, prometheus::Error> {
    let registry = Registry::new();
    let build = Gauge::with_opts(
        Opts::new("heliograph_build_info", "Always 1; the labels say what runs.")
            .const_label("program", program)
            .const_label("version", env!("CARGO_PKG_VERSION")),
    )?;
    build.set(1.0);
    registry.register(Box::new(build))?;
    Ok(registry)
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
