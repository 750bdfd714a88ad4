# One image for each program, by target:
#
#   docker build --target translator  -t REGISTRY/translator:TAG  .
#   docker build --target distributor -t REGISTRY/distributor:TAG .
#   docker build --target helio       -t REGISTRY/helio:TAG       .
#   docker build --target loadtest    -t REGISTRY/loadtest:TAG    .
#
# scripts/images does it. They share one build, so the second and third take seconds. Each has a program and the content of distroless
# images: a C library, CA certificates, and no shell. The user is 65532, as in the chart.

# The version of rust-toolchain.toml, on the Debian of the images below: a newer C library than theirs would not be found there.
ARG RUST=1.95.0
ARG DEBIAN=bookworm
ARG BASE=gcr.io/distroless/cc-debian12:nonroot

FROM docker.io/library/rust:${RUST}-slim-${DEBIAN} AS build
ARG RUST
# Over rust-toolchain.toml, whose formatter and linter a build does not need.
ENV RUSTUP_TOOLCHAIN=${RUST} CARGO_INCREMENTAL=0
WORKDIR /source
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/source/target \
    cargo build --release --locked -p heliograph-translator -p heliograph-distributor -p helio && \
    mkdir /programs && \
    cp target/release/translator target/release/distributor target/release/helio /programs/

# Only load tests need this program, so the other images do not wait for it.
FROM build AS build-loadtest
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/source/target \
    cargo build --release --locked -p heliograph-loadtest && \
    cp target/release/loadtest /programs/

FROM ${BASE} AS loadtest
COPY --from=build-loadtest /programs/loadtest /loadtest
ENTRYPOINT ["/loadtest"]

FROM ${BASE} AS translator
COPY --from=build /programs/translator /translator
ENTRYPOINT ["/translator"]

FROM ${BASE} AS distributor
COPY --from=build /programs/distributor /distributor
ENTRYPOINT ["/distributor"]

FROM ${BASE} AS helio
COPY --from=build /programs/helio /helio
ENTRYPOINT ["/helio"]
