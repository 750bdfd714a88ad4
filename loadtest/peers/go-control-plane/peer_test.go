package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/anypb"
)

const clusters, endpoints = resource.ClusterType, resource.EndpointType

var caches = []string{"snapshot", "snapshot-per-client", "linear"}

func postTwoClusters(t *testing.T, program *program) {
	t.Helper()
	program.post(
		set(t, clusters, edsCluster("a"), edsCluster("b")),
		set(t, endpoints, endpointsAt("a", "10.0.0.1"), endpointsAt("b", "10.0.0.2")),
	)
}

func expect(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s: %v, not %v", what, got, want)
	}
}

func TestDelta(t *testing.T) {
	for _, name := range caches {
		t.Run(name, func(t *testing.T) {
			program := start(t, options{cache: name})
			postTwoClusters(t, program)
			ctx, client := program.connect(nil)
			stream, err := client.DeltaAggregatedResources(ctx)
			if err != nil {
				t.Fatal(err)
			}
			// Receives a response and acknowledges it.
			next := func() (typeURL string, resources, removed []string) {
				t.Helper()
				response := receive(t, stream)
				send(t, stream, &discovery.DeltaDiscoveryRequest{TypeUrl: response.TypeUrl, ResponseNonce: response.Nonce})
				packed := []*anypb.Any{}
				for _, entry := range response.Resources {
					packed = append(packed, entry.Resource)
				}
				return response.TypeUrl, describe(t, packed), response.RemovedResources
			}

			send(t, stream, &discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "proxy"}, TypeUrl: clusters})
			_, resources, _ := next()
			expect(t, "clusters", resources, "a", "b")
			send(t, stream, &discovery.DeltaDiscoveryRequest{TypeUrl: endpoints, ResourceNamesSubscribe: []string{"a", "b"}})
			_, resources, _ = next()
			expect(t, "endpoints", resources, "a=10.0.0.1", "b=10.0.0.2")

			program.post(set(t, endpoints, endpointsAt("a", "10.0.0.3")))
			typeURL, resources, removed := next()
			expect(t, "type", []string{typeURL}, endpoints)
			expect(t, "the change, alone", resources, "a=10.0.0.3")
			expect(t, "removed", removed)

			program.post(remove(clusters, "b"), remove(endpoints, "b"))
			seen := []string{}
			for range 2 {
				typeURL, resources, removed := next()
				seen = append(seen, typeURL)
				expect(t, "changed", resources)
				expect(t, "removed", removed, "b")
			}
			slices.Sort(seen)
			expect(t, "types", seen, clusters, endpoints)
		})
	}
}

func TestSotw(t *testing.T) {
	for _, name := range caches {
		t.Run(name, func(t *testing.T) {
			program := start(t, options{cache: name})
			postTwoClusters(t, program)
			ctx, client := program.connect(nil)
			stream, err := client.StreamAggregatedResources(ctx)
			if err != nil {
				t.Fatal(err)
			}
			names := map[string][]string{endpoints: {"a", "b"}}
			// Receives a response of this type and acknowledges it. Others are acknowledged and passed over.
			next := func(typeURL string) []string {
				t.Helper()
				for {
					response := receive(t, stream)
					send(t, stream, &discovery.DiscoveryRequest{
						TypeUrl: response.TypeUrl, ResourceNames: names[response.TypeUrl],
						VersionInfo: response.VersionInfo, ResponseNonce: response.Nonce,
					})
					if response.TypeUrl == typeURL {
						return describe(t, response.Resources)
					}
				}
			}

			send(t, stream, &discovery.DiscoveryRequest{Node: &core.Node{Id: "proxy"}, TypeUrl: clusters})
			expect(t, "clusters", next(clusters), "a", "b")
			send(t, stream, &discovery.DiscoveryRequest{TypeUrl: endpoints, ResourceNames: names[endpoints]})
			expect(t, "endpoints", next(endpoints), "a=10.0.0.1", "b=10.0.0.2")

			program.post(set(t, endpoints, endpointsAt("a", "10.0.0.3")))
			if name == "linear" { // it sends what changed, which SotW allows for endpoints
				expect(t, "changed endpoints", next(endpoints), "a=10.0.0.3")
			} else {
				expect(t, "changed endpoints", next(endpoints), "a=10.0.0.3", "b=10.0.0.2")
			}

			program.post(remove(clusters, "b"), remove(endpoints, "b"))
			expect(t, "clusters that remain", next(clusters), "a")
		})
	}
}

func TestTls(t *testing.T) {
	certificate, key, roots := selfSigned(t)
	program := start(t, options{cache: "snapshot", certificate: certificate, key: key})
	postTwoClusters(t, program)
	ctx, client := program.connect(credentials.NewClientTLSFromCert(roots, ""))
	stream, err := client.DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	send(t, stream, &discovery.DeltaDiscoveryRequest{TypeUrl: clusters})
	if response := receive(t, stream); len(response.Resources) != 2 {
		t.Fatalf("%d clusters, not 2", len(response.Resources))
	}
}

func TestControl(t *testing.T) {
	program := start(t, options{cache: "linear"})
	for _, request := range []struct {
		method, path string
		want         int
	}{
		{"GET", "/ready", http.StatusNoContent},
		{"POST", "/collect", http.StatusNoContent},
		{"GET", "/memory", http.StatusOK},
		{"GET", "/resources", http.StatusMethodNotAllowed},
	} {
		if status, text := program.request(request.method, request.path, nil); status != request.want {
			t.Errorf("%s %s: %d %s", request.method, request.path, status, text)
		}
	}
}

func TestRefuses(t *testing.T) {
	misnamed := set(t, clusters, edsCluster("a"))
	misnamed.Resources[0].Name = "b"
	mistyped := set(t, endpoints, edsCluster("a"))
	for _, refused := range []struct {
		body   []byte
		status int
		words  string
	}{
		{[]byte{5, 1}, http.StatusBadRequest, "message 1 is not"},
		{encode(t, set(t, "type.googleapis.com/no.such.Type")), http.StatusBadRequest, "is not served"},
		{encode(t, set(t, clusters), set(t, clusters)), http.StatusBadRequest, "comes twice"},
		{encode(t, misnamed), http.StatusBadRequest, `has the name "a" inside`},
		{encode(t, mistyped), http.StatusBadRequest, "in a message of"},
		{encode(t, set(t, clusters, edsCluster("without-endpoints"))), http.StatusConflict, "do not match"},
	} {
		program := start(t, options{cache: "snapshot"})
		status, text := program.request("POST", "/resources", refused.body)
		if status != refused.status || !strings.Contains(text, refused.words) {
			t.Errorf("%d %s, not %d %s", status, text, refused.status, refused.words)
		}
	}
}

func TestVersionsOfATypeMove(t *testing.T) {
	for _, versions := range []struct{ current, asked, want string }{
		{"", "", "1"}, {"1", "", "2"}, {"", "x", "x"}, {"x", "y", "y"}, {"x", "x", ""}, {"x", "", ""},
	} {
		got, err := nextVersion(versions.current, versions.asked)
		if got != versions.want || (err == nil) != (versions.want != "") {
			t.Errorf("%+v: %q, %v", versions, got, err)
		}
	}
}

func TestAClientThatLeftHasNoSnapshot(t *testing.T) {
	clients := newSnapshotPerClient()
	has := func() bool {
		_, err := clients.snapshots.GetSnapshot("proxy")
		return err == nil
	}
	node := &core.Node{Id: "proxy"}
	first, again := streamKey{delta: true, id: 1}, streamKey{id: 1}
	for _, stream := range []streamKey{first, first, again} {
		if err := clients.asked(stream, node); err != nil {
			t.Fatal(err)
		}
	}
	clients.closed(first)
	if !has() {
		t.Error("it came back before its first stream had ended, and has no snapshot")
	}
	clients.closed(again)
	if has() {
		t.Error("its snapshot is still there")
	}
	if err := clients.apply(change{}); err != nil || has() {
		t.Errorf("a change brought it back: %v", err)
	}
}

// Files of a certificate for 127.0.0.1 and its key, and the roots that trust it.
func selfSigned(t *testing.T) (certificateFile, keyFile string, roots *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour),
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	encodedKey, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, content []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	parsed, err := x509.ParseCertificate(certificate)
	if err != nil {
		t.Fatal(err)
	}
	roots = x509.NewCertPool()
	roots.AddCert(parsed)
	return write("certificate.pem", "CERTIFICATE", certificate), write("key.pem", "PRIVATE KEY", encodedKey), roots
}
