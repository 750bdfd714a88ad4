package main

import (
	"fmt"

	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
)

// A LinearCache for each type, and a MuxCache that chooses among them.
type linear struct {
	mux    *cache.MuxCache
	byType [types.UnknownType]*cache.LinearCache
}

// No cache sees two types, so a change becomes visible type by type. What is referred to must be there before what
// refers to it, and leave after it.
var removalOrder = []types.ResponseType{
	types.Listener, types.ScopedRoute, types.Route, types.VirtualHost, types.Cluster, types.Endpoint,
	types.Secret, types.Runtime, types.ExtensionConfig, types.RateLimitConfig,
}

func newLinear() *linear {
	linear := &linear{mux: &cache.MuxCache{
		Classify:      func(request *cache.Request) string { return request.GetTypeUrl() },
		ClassifyDelta: func(request *cache.DeltaRequest) string { return request.GetTypeUrl() },
		Caches:        make(map[string]cache.Cache),
	}}
	for kind, url := range typeURLs {
		linear.byType[kind] = cache.NewLinearCache(url)
		linear.mux.Caches[url] = linear.byType[kind]
	}
	return linear
}

func (linear *linear) cache() cache.Cache { return linear.mux }

func (linear *linear) callbacks() server.Callbacks { return nil }

func (linear *linear) apply(change change) error {
	for kind := range types.UnknownType {
		if set := change[kind].set; len(set) > 0 {
			if err := linear.byType[kind].UpdateResources(set, nil); err != nil {
				return fmt.Errorf("%s: %w", typeURLs[kind], err)
			}
		}
	}
	for _, kind := range removalOrder {
		if removed := change[kind].removed; len(removed) > 0 {
			if err := linear.byType[kind].UpdateResources(nil, removed); err != nil {
				return fmt.Errorf("%s: %w", typeURLs[kind], err)
			}
		}
	}
	return nil
}
