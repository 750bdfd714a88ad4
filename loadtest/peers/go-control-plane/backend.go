package main

import (
	"fmt"

	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
)

// One way of using go-control-plane.
type backend interface {
	// What the server asks for resources.
	cache() cache.Cache
	// What the server calls as streams come and go; nil if nobody needs to know.
	callbacks() server.Callbacks
	// Makes a change visible. Returns when the cache has told all streams. Changes come one at a time.
	apply(change) error
}

func newBackend(name string) (backend, error) {
	switch name {
	case "snapshot":
		return newSharedSnapshot(), nil
	case "snapshot-per-client":
		return newSnapshotPerClient(), nil
	case "linear":
		return newLinear(), nil
	}
	return nil, fmt.Errorf("--cache %q is not known: snapshot, snapshot-per-client or linear", name)
}
