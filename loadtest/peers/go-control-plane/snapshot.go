package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
)

// Clusters and listeners name all endpoints and route tables, and one stream carries all types: what the flag is for.
// See README.md.
const adsMode = true

var errInconsistent = errors.New("references and resources do not match, so that SotW clients would wait for ever: " +
	"serve exactly the endpoints and route tables that clusters and listeners name")

// A SnapshotCache with one snapshot for all clients.
type sharedSnapshot struct {
	snapshots cache.SnapshotCache
	content   content
}

// All that is served, by type. Maps are replaced, never changed, as snapshots hold them.
type content [types.UnknownType]cache.Resources

// Puts all clients into one group.
type everybody struct{}

func newSharedSnapshot() *sharedSnapshot {
	return &sharedSnapshot{snapshots: cache.NewSnapshotCache(adsMode, everybody{}, nil)}
}

func (shared *sharedSnapshot) cache() cache.Cache { return shared.snapshots }

func (shared *sharedSnapshot) callbacks() server.Callbacks { return nil }

func (shared *sharedSnapshot) apply(change change) error {
	next, err := shared.content.with(change)
	if err != nil {
		return err
	}
	shared.content = next
	return shared.snapshots.SetSnapshot(context.Background(), everybody{}.ID(nil), &cache.Snapshot{Resources: next})
}

func (everybody) ID(*core.Node) string { return "everybody" }

func (current content) with(change change) (content, error) {
	next := current
	for kind, changed := range change {
		items := maps.Clone(current[kind].Items)
		if items == nil {
			items = make(map[string]types.ResourceWithTTL, len(changed.set))
		}
		for name, resource := range changed.set {
			items[name] = types.ResourceWithTTL{Resource: resource}
		}
		for _, name := range changed.removed {
			delete(items, name)
		}
		version, err := nextVersion(current[kind].Version, changed.version)
		if err != nil {
			return current, fmt.Errorf("%s: %w", typeURLs[kind], err)
		}
		next[kind] = cache.Resources{Version: version, Items: items}
	}
	if (&cache.Snapshot{Resources: next}).Consistent() != nil {
		return current, errInconsistent // its own error prints all names
	}
	return next, nil
}

// The version of a type. It moves only when the type changes: SotW clients are sent the type again when it does, and
// nothing when it does not.
func nextVersion(current, asked string) (string, error) {
	if asked != "" {
		if asked == current {
			return "", fmt.Errorf("system_version_info is still %q, so that SotW clients would not see the change", asked)
		}
		return asked, nil
	}
	number, err := strconv.ParseUint(current, 10, 64)
	if err != nil && current != "" {
		return "", fmt.Errorf("system_version_info is missing after %q: give it always or never", current)
	}
	return strconv.FormatUint(number+1, 10), nil
}
