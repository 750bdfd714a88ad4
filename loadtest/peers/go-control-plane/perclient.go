package main

import (
	"context"
	"maps"
	"slices"
	"sync"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
)

// A SnapshotCache with a snapshot for each node id, as in control planes that work out what each proxy gets. The
// decoded resources are shared by all snapshots, the maps of names and versions are not.
type snapshotPerClient struct {
	snapshots cache.SnapshotCache
	// Which node a stream belongs to, by streamKey: read for each request, so without the lock.
	nodes sync.Map

	// Guards what follows, and setting a snapshot: an older one must not be set after a newer one. It is not held for
	// longer than one client takes.
	lock    sync.Mutex
	content content
	streams map[string]int // by node id; a client that comes back may be here twice for a moment
}

// The two servers inside go-control-plane count their streams each by itself.
type streamKey struct {
	delta bool
	id    int64
}

func newSnapshotPerClient() *snapshotPerClient {
	return &snapshotPerClient{
		snapshots: cache.NewSnapshotCache(adsMode, cache.IDHash{}, nil),
		streams:   make(map[string]int),
	}
}

func (clients *snapshotPerClient) cache() cache.Cache { return clients.snapshots }

func (clients *snapshotPerClient) callbacks() server.Callbacks {
	return server.CallbackFuncs{
		StreamRequestFunc: func(id int64, request *discovery.DiscoveryRequest) error {
			return clients.asked(streamKey{id: id}, request.GetNode())
		},
		StreamDeltaRequestFunc: func(id int64, request *discovery.DeltaDiscoveryRequest) error {
			return clients.asked(streamKey{delta: true, id: id}, request.GetNode())
		},
		StreamClosedFunc:      func(id int64, _ *core.Node) { clients.closed(streamKey{id: id}) },
		DeltaStreamClosedFunc: func(id int64, _ *core.Node) { clients.closed(streamKey{delta: true, id: id}) },
	}
}

func (clients *snapshotPerClient) apply(change change) error {
	clients.lock.Lock()
	next, err := clients.content.with(change)
	clients.content = next
	nodes := slices.Collect(maps.Keys(clients.streams))
	clients.lock.Unlock()
	if err != nil {
		return err
	}
	for _, node := range nodes {
		if err := clients.refresh(node); err != nil {
			return err
		}
	}
	return nil
}

// Sets the newest snapshot for a client, if it is still there.
func (clients *snapshotPerClient) refresh(node string) error {
	clients.lock.Lock()
	defer clients.lock.Unlock()
	if clients.streams[node] == 0 {
		return nil
	}
	return clients.set(node)
}

// A request came on a stream; the first one names the node.
func (clients *snapshotPerClient) asked(stream streamKey, node *core.Node) error {
	if _, known := clients.nodes.Load(stream); known {
		return nil
	}
	id := node.GetId()
	clients.nodes.Store(stream, id)
	clients.lock.Lock()
	defer clients.lock.Unlock()
	clients.streams[id]++
	if clients.streams[id] > 1 {
		return nil
	}
	return clients.set(id)
}

func (clients *snapshotPerClient) closed(stream streamKey) {
	id, known := clients.nodes.LoadAndDelete(stream)
	if !known {
		return
	}
	node := id.(string)
	clients.lock.Lock()
	defer clients.lock.Unlock()
	clients.streams[node]--
	if clients.streams[node] == 0 {
		delete(clients.streams, node)
		clients.snapshots.ClearSnapshot(node)
	}
}

// The lock is held.
func (clients *snapshotPerClient) set(node string) error {
	snapshot := &cache.Snapshot{Resources: clients.content}
	for kind := range snapshot.Resources {
		snapshot.Resources[kind].Items = maps.Clone(snapshot.Resources[kind].Items)
	}
	return clients.snapshots.SetSnapshot(context.Background(), node, snapshot)
}
