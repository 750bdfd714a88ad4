package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

const deadline = 20 * time.Second

// The whole program, in this process.
type program struct {
	t       *testing.T
	Ads     string
	Control string
}

// Starts the program; at the end of the test its stdin closes, and it must end without an error.
func start(t *testing.T, options options) *program {
	t.Helper()
	options.listen, options.control = "127.0.0.1:0", "127.0.0.1:0"
	stdin, closeStdin := io.Pipe()
	stdout, stdoutOfProgram := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- run(options, stdin, stdoutOfProgram)
		stdoutOfProgram.Close()
	}()
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err != nil {
		t.Fatalf("no line on stdout: %v, %v", err, <-ended)
	}
	program := &program{t: t}
	if err := json.Unmarshal(line, program); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	t.Cleanup(func() {
		closeStdin.Close()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("the program failed: %v", err)
			}
		case <-time.After(deadline):
			t.Error("stdin is closed, and the program does not end")
		}
	})
	return program
}

func (program *program) request(method, path string, body []byte) (int, string) {
	program.t.Helper()
	request, err := http.NewRequest(method, "http://"+program.Control+path, bytes.NewReader(body))
	if err != nil {
		program.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		program.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		program.t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// One change, which must be accepted.
func (program *program) post(messages ...*discovery.DeltaDiscoveryResponse) {
	program.t.Helper()
	if status, text := program.request("POST", "/resources", encode(program.t, messages...)); status != http.StatusNoContent {
		program.t.Fatalf("%d %s", status, text)
	}
}

// A connection to the xDS server that ends with the test.
func (program *program) connect(credentials credentials.TransportCredentials) (context.Context, discovery.AggregatedDiscoveryServiceClient) {
	program.t.Helper()
	if credentials == nil {
		credentials = insecure.NewCredentials()
	}
	connection, err := grpc.NewClient(program.Ads, grpc.WithTransportCredentials(credentials))
	if err != nil {
		program.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	program.t.Cleanup(func() {
		cancel()
		connection.Close()
	})
	return ctx, discovery.NewAggregatedDiscoveryServiceClient(connection)
}

func encode(t *testing.T, messages ...*discovery.DeltaDiscoveryResponse) []byte {
	t.Helper()
	var body bytes.Buffer
	for _, message := range messages {
		if _, err := protodelim.MarshalTo(&body, message); err != nil {
			t.Fatal(err)
		}
	}
	return body.Bytes()
}

// A message of the control protocol that sets resources of one type.
func set(t *testing.T, typeURL string, resources ...types.Resource) *discovery.DeltaDiscoveryResponse {
	t.Helper()
	message := &discovery.DeltaDiscoveryResponse{TypeUrl: typeURL}
	for _, resource := range resources {
		packed, err := anypb.New(resource)
		if err != nil {
			t.Fatal(err)
		}
		message.Resources = append(message.Resources, &discovery.Resource{Name: cache.GetResourceName(resource), Resource: packed})
	}
	return message
}

func remove(typeURL string, names ...string) *discovery.DeltaDiscoveryResponse {
	return &discovery.DeltaDiscoveryResponse{TypeUrl: typeURL, RemovedResources: names}
}

func edsCluster(name string) *cluster.Cluster {
	return &cluster.Cluster{Name: name, ClusterDiscoveryType: &cluster.Cluster_Type{Type: cluster.Cluster_EDS}}
}

func endpointsAt(name, address string) *endpoint.ClusterLoadAssignment {
	socket := &core.SocketAddress{Address: address, PortSpecifier: &core.SocketAddress_PortValue{PortValue: 80}}
	return &endpoint.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpoint.LocalityLbEndpoints{{
		LbEndpoints: []*endpoint.LbEndpoint{{HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{
			Address: &core.Address{Address: &core.Address_SocketAddress{SocketAddress: socket}},
		}}}},
	}}}
}

// The content of a response, as text that is easy to compare: names, with the address for endpoints.
func describe(t *testing.T, packed []*anypb.Any) []string {
	t.Helper()
	described := []string{}
	for _, entry := range packed {
		resource, err := entry.UnmarshalNew()
		if err != nil {
			t.Fatal(err)
		}
		text := cache.GetResourceName(resource)
		if endpoints, ok := resource.(*endpoint.ClusterLoadAssignment); ok {
			socket := endpoints.GetEndpoints()[0].GetLbEndpoints()[0].GetEndpoint().GetAddress().GetSocketAddress()
			text = fmt.Sprintf("%s=%s", text, socket.GetAddress())
		}
		described = append(described, text)
	}
	slices.Sort(described)
	return described
}

// A stream of either protocol.
type stream[Request, Response proto.Message] interface {
	Send(Request) error
	Recv() (Response, error)
}

func send[Request, Response proto.Message](t *testing.T, stream stream[Request, Response], request Request) {
	t.Helper()
	if err := stream.Send(request); err != nil {
		t.Fatal(err)
	}
}

func receive[Request, Response proto.Message](t *testing.T, stream stream[Request, Response]) Response {
	t.Helper()
	response, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return response
}
