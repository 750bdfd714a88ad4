package main

import (
	"context"
	"crypto/tls"
	"errors"
	"math"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/config"
	"github.com/envoyproxy/go-control-plane/pkg/server/sotw/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
)

const never = time.Duration(math.MaxInt64)

// A client that comes back lists the version of all that it holds: 12,000 resources are about 1.5 MB.
const largestRequest = 32 << 20

func newAdsServer(ctx context.Context, backend backend, credentials credentials.TransportCredentials) *grpc.Server {
	options := []grpc.ServerOption{
		grpc.MaxConcurrentStreams(math.MaxUint32),
		grpc.MaxRecvMsgSize(largestRequest),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: never}),
		// A client's pings are answered and never punished.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Millisecond, PermitWithoutStream: true}),
		// An idle connection holds no write buffer.
		grpc.SharedWriteBuffer(true),
	}
	if credentials != nil {
		options = append(options, grpc.Creds(credentials))
	}
	ads := server.NewServer(ctx, backend.cache(), backend.callbacks(),
		// Clusters before endpoints, listeners before routes.
		sotw.WithOrderedADS(),
		// "Nothing named" means "all" for clusters and listeners only, by the xDS specification.
		config.DeactivateLegacyWildcardForTypes(askedForByName()),
	)
	transport := grpc.NewServer(options...)
	discovery.RegisterAggregatedDiscoveryServiceServer(transport, ads)
	return transport
}

// None if neither file is given.
func loadCredentials(certificate, key string) (credentials.TransportCredentials, error) {
	if certificate == "" && key == "" {
		return nil, nil
	}
	if certificate == "" || key == "" {
		return nil, errors.New("--tls-certificate and --tls-key need each other: give both or neither")
	}
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}), nil
}

func askedForByName() []string {
	var urls []string
	for _, url := range typeURLs {
		if url != resource.ClusterType && url != resource.ListenerType {
			urls = append(urls, url)
		}
	}
	return urls
}
