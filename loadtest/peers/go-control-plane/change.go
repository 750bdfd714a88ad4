package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	// What is served must be linked in, to be decoded. The discovery API itself brings no resource type.
	_ "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"google.golang.org/protobuf/encoding/protodelim"
)

// What one POST asks for: everything in it becomes visible together, as far as the cache can do that.
type change map[types.ResponseType]typeChange

// What happens to the resources of one type.
type typeChange struct {
	version string // of the type as a whole, for SotW; empty if the driver leaves it to us
	set     map[string]types.Resource
	removed []string
}

// The types that are served, in the order in which an ADS server should send them.
var typeURLs = func() []string {
	urls := make([]string, types.UnknownType)
	for kind := range types.UnknownType {
		urls[kind], _ = cache.GetResponseTypeURL(kind) // it knows all below UnknownType
	}
	return urls
}()

// Reads DeltaDiscoveryResponse messages, each preceded by its length as a varint, up to the end of the body.
func readChange(body io.Reader) (change, error) {
	change := change{}
	reader := bufio.NewReader(body)
	unlimited := protodelim.UnmarshalOptions{MaxSize: -1} // the body as a whole is limited
	for {
		message := &discovery.DeltaDiscoveryResponse{}
		err := unlimited.UnmarshalFrom(reader, message)
		if errors.Is(err, io.EOF) {
			return change, nil
		}
		if err != nil {
			return nil, fmt.Errorf("message %d is not a DeltaDiscoveryResponse with its length: %w", len(change)+1, err)
		}
		kind := cache.GetResponseType(message.GetTypeUrl())
		if kind == types.UnknownType {
			return nil, fmt.Errorf("the type %q is not served", message.GetTypeUrl())
		}
		if _, exists := change[kind]; exists {
			return nil, fmt.Errorf("%s comes twice: one message for each type", message.GetTypeUrl())
		}
		if change[kind], err = readType(message); err != nil {
			return nil, err
		}
	}
}

func readType(message *discovery.DeltaDiscoveryResponse) (typeChange, error) {
	read := typeChange{
		version: message.GetSystemVersionInfo(),
		set:     make(map[string]types.Resource, len(message.GetResources())),
		removed: message.GetRemovedResources(),
	}
	for _, entry := range message.GetResources() {
		if url := entry.GetResource().GetTypeUrl(); url != message.GetTypeUrl() {
			return read, fmt.Errorf("%q has the type %q in a message of %q", entry.GetName(), url, message.GetTypeUrl())
		}
		resource, err := entry.GetResource().UnmarshalNew()
		if err != nil {
			return read, fmt.Errorf("%q cannot be decoded: %w", entry.GetName(), err)
		}
		// The caches index by the name inside.
		if name := cache.GetResourceName(resource); name != entry.GetName() {
			return read, fmt.Errorf("%q has the name %q inside", entry.GetName(), name)
		}
		read.set[entry.GetName()] = resource
	}
	return read, nil
}
