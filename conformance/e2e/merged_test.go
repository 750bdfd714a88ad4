package e2e

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// The label of objects that are made for all Gateways of a class.
const classLabel = "gateway.networking.k8s.io/gateway-class-name"

func TestGatewaysOfAClassThatMergesThemShareTheirProxies(t *testing.T) {
	infra := emptySite(t)
	infra.create(t, "the ProxyConfig", []byte(`
apiVersion: heliograph.dev/v1alpha1
kind: ProxyConfig
metadata: {name: shared}
spec: {mergeGateways: true}
`))
	class := infra.mergingClass(t)
	first, second := newSite(t), newSite(t)
	first.gateway(t, class, "first.example.com")
	address := first.address(t, "web")
	answers(t, "http", address, "first.example.com", "/")
	second.gateway(t, class, "second.example.com", "first.example.com")

	// One address, and one set of Envoys, which no Gateway has alone.
	if found := second.address(t, "web"); found != address {
		t.Fatalf("two Gateways of one class are at %s and %s", address, found)
	}
	answers(t, "http", address, "second.example.com", "/")
	answers(t, "http", address, "first.example.com", "/")
	for _, site := range []*site{first, second} {
		if made, err := site.generatedFor(t, gatewayLabel, "web"); err != nil || len(made) > 0 {
			t.Fatalf("made for one Gateway alone: %s %v", made, err)
		}
	}
	// The younger Gateway does not get the listener of the older one, and has a condition with the reason.
	eventually(t, "the younger Gateway says which listener is in whose way", func() error {
		var found gatewayv1.Gateway
		if err := second.get(t, "web", &found); err != nil {
			return err
		}
		for _, listener := range found.Status.Listeners {
			status := metav1.ConditionFalse
			if listener.Name == "http-1" {
				status = metav1.ConditionTrue
			}
			if err := holds(listener.Conditions, found.Generation, "Conflicted", status); err != nil {
				return fmt.Errorf("listener %s: %w", listener.Name, err)
			}
		}
		return nil
	})

	// Each is deleted alone, and the shared objects with the last one.
	first.deleteGateway(t)
	answers(t, "http", address, "second.example.com", "/")
	second.deleteGateway(t)
	eventually(t, "nothing is left of what they shared", func() error {
		left, err := infra.generatedFor(t, classLabel, class)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("left: %s", left)
		}
		return err
	})
}

// mergingClass is a GatewayClass with the site's ProxyConfig, for as long as the case lasts.
func (s *site) mergingClass(t *testing.T) string {
	t.Helper()
	namespace := gatewayv1.Namespace(s.namespace)
	class := &gatewayv1.GatewayClass{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		Spec: gatewayv1.GatewayClassSpec{
			ControllerName: "heliograph.dev/gateway-controller",
			ParametersRef:  &gatewayv1.ParametersReference{Group: "heliograph.dev", Kind: "ProxyConfig", Name: "shared", Namespace: &namespace},
		},
	}
	must(t, s.client.Create(t.Context(), class))
	t.Cleanup(func() {
		// The context of the test has ended by now.
		if err := s.client.Delete(context.Background(), class); client.IgnoreNotFound(err) != nil {
			t.Errorf("GatewayClass %s: %v", class.Name, err)
		}
	})
	return class.Name
}

// gateway is one with a listener for each host, and a route to the site's backend.
func (s *site) gateway(t *testing.T, class string, hosts ...string) {
	t.Helper()
	text := fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec:
  parentRefs: [{name: web}]
  rules: [{backendRefs: [{name: backend, port: 8080}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec:
  gatewayClassName: %s
  listeners:
`, class)
	for at, host := range hosts {
		text += fmt.Sprintf("    - {name: http-%d, protocol: HTTP, port: 80, hostname: %s}\n", at, host)
	}
	s.create(t, "a Gateway", []byte(text))
}

func (s *site) deleteGateway(t *testing.T) {
	t.Helper()
	var gateway gatewayv1.Gateway
	must(t, s.get(t, "web", &gateway))
	must(t, s.client.Delete(t.Context(), &gateway))
}
