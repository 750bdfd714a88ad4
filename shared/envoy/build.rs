//! Generates the Rust types of Envoy's API from the descriptors that the `envoy-types` crate carries.
//!
//! That crate's own Rust types cannot be used: they hold every protobuf map in a `HashMap`, so one message
//! encodes to different bytes from run to run, and a version hashed from those bytes would mean nothing.
//! See docs/decisions/0002-envoy-types-with-ordered-maps.md.

use prost::Message;
use prost_types::FileDescriptorSet;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// What the project builds or reads; what these import comes along.
const ROOTS: &[&str] = &[
    "envoy/config/bootstrap/v3/bootstrap.proto",
    "envoy/config/cluster/v3/cluster.proto",
    "envoy/config/core/v3/base.proto",
    "envoy/config/endpoint/v3/endpoint.proto",
    "envoy/config/listener/v3/listener.proto",
    "envoy/config/route/v3/route.proto",
    "envoy/extensions/access_loggers/stream/v3/stream.proto",
    "envoy/extensions/filters/http/cors/v3/cors.proto",
    "envoy/extensions/filters/http/router/v3/router.proto",
    "envoy/extensions/filters/listener/tls_inspector/v3/tls_inspector.proto",
    "envoy/extensions/filters/network/http_connection_manager/v3/http_connection_manager.proto",
    "envoy/extensions/filters/network/tcp_proxy/v3/tcp_proxy.proto",
    "envoy/extensions/transport_sockets/tls/v3/tls.proto",
    "envoy/extensions/upstreams/http/v3/http_protocol_options.proto",
    "envoy/service/discovery/v3/discovery.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let descriptors = envoy_types_folder()?.join("src/generated/types.bin");
    println!("cargo::rerun-if-changed={}", descriptors.display());

    let (used, raw) = with_imports(&fs::read(&descriptors)?, ROOTS)?;
    fs::write(out.join("descriptors.bin"), raw)?;

    prost_build::Config::new()
        .btree_map(["."])
        .bytes(["."])
        .compile_well_known_types()
        .enable_type_names()
        // The API's comments are indented text that rustdoc would run as code.
        .disable_comments(["."])
        .include_file("all.rs")
        .out_dir(&out)
        .compile_fds(used)?;
    Ok(())
}

/// Where cargo keeps the sources of `envoy-types`: a registry, a vendor folder, wherever.
fn envoy_types_folder() -> Result<PathBuf, Box<dyn Error>> {
    let output = Command::new(env::var("CARGO")?)
        .args(["metadata", "--format-version=1", "--locked"])
        .current_dir(env::var("CARGO_MANIFEST_DIR")?)
        .output()?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|package| package["name"] == "envoy-types")
        .and_then(|package| package["manifest_path"].as_str())
        .and_then(|manifest| Path::new(manifest).parent())
        .map(Path::to_path_buf)
        .ok_or_else(|| "cargo metadata names no package envoy-types".into())
}

/// A descriptor set whose files stay as they are: decoding them would drop the annotations that say which fields are
/// secrets.
#[derive(Clone, PartialEq, Message)]
struct RawSet {
    #[prost(bytes = "vec", repeated, tag = "1")]
    file: Vec<Vec<u8>>,
}

/// The files of `roots` and everything that they import, decoded and raw.
fn with_imports(
    set: &[u8],
    roots: &[&str],
) -> Result<(FileDescriptorSet, Vec<u8>), Box<dyn Error>> {
    let decoded = FileDescriptorSet::decode(set)?;
    let raw = RawSet::decode(set)?;
    let imports: BTreeMap<&str, &[String]> =
        decoded.file.iter().map(|file| (file.name(), file.dependency.as_slice())).collect();
    let mut wanted = BTreeSet::new();
    let mut queue: Vec<&str> = roots.to_vec();
    while let Some(name) = queue.pop() {
        let Some(dependencies) = imports.get(name) else {
            return Err(format!("envoy-types has no descriptor of {name}").into());
        };
        if wanted.insert(name) {
            queue.extend(dependencies.iter().map(String::as_str));
        }
    }
    let (file, raw): (Vec<_>, Vec<_>) = decoded
        .file
        .iter()
        .cloned()
        .zip(raw.file)
        .filter(|(file, _)| wanted.contains(file.name()))
        .unzip();
    Ok((FileDescriptorSet { file }, RawSet { file: raw }.encode_to_vec()))
}
