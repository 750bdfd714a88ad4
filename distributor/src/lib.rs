//! Serves snapshots to Envoy proxies over ADS.
