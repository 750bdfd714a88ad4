package e2e

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

func TestAGatewayAnswersThroughItsEnvoy(t *testing.T) {
	s := newSite(t)
	s.apply(t, "web.yaml")
	address := s.address(t, "web")
	answers(t, "http", address, "web.example.com", "/")
	pod, err := ask(t.Context(), "http", address, "web.example.com", "/")
	must(t, err)
	if !strings.HasPrefix(pod, "backend-") {
		t.Errorf("%q answered, and not the backend", pod)
	}
	eventually(t, "the Gateway counts its route", func() error {
		var gateway gatewayv1.Gateway
		if err := s.get(t, "web", &gateway); err != nil {
			return err
		}
		return attached(gateway, "http", 1)
	})
}

// The objects of docs/quickstart.md.
func TestTheQuickstartAnswers(t *testing.T) {
	s := emptySite(t)
	text, err := os.ReadFile("../../examples/cluster/web.yaml")
	must(t, err)
	s.create(t, "examples/cluster/web.yaml", text)
	answers(t, "http", s.address(t, "web"), "any.example.com", "/")
}

func TestARouteWithABadRegexSaysSoAndHarmsNobody(t *testing.T) {
	s := newSite(t)
	s.apply(t, "web.yaml")
	address := s.address(t, "web")
	answers(t, "http", address, "web.example.com", "/")
	under := begin(t, "http", address, "web.example.com", "/")

	s.apply(t, "bad-regex.yaml")
	eventually(t, "the route says what is wrong with it", func() error {
		accepted, err := s.parentCondition(t, "bad-regex", "Accepted")
		if err != nil {
			return err
		}
		return expected(accepted, metav1.ConditionFalse, "UnsupportedValue", "/(a")
	})
	under.goOn(t, 50)
	accepted, err := s.parentCondition(t, "web", "Accepted")
	must(t, err)
	must(t, expected(accepted, metav1.ConditionTrue, "Accepted", ""))

	// The fixed version is served, so the Gateway was not stuck either.
	var route gatewayv1.HTTPRoute
	must(t, s.get(t, "bad-regex", &route))
	*route.Spec.Rules[0].Matches[0].Path.Value = "/(a|b)"
	must(t, s.client.Update(t.Context(), &route))
	answers(t, "http", address, "regex.example.com", "/b")
	under.mustBeWhole(t)
}

// The Envoys of picky.yaml reject an expression that all others accept, so the objects do not show the fault.
func TestARouteThatOnlyEnvoyRejectsIsLeftOut(t *testing.T) {
	s := newSite(t)
	s.apply(t, "picky.yaml")
	address := s.address(t, "web")
	answers(t, "http", address, "web.example.com", "/")
	under := begin(t, "http", address, "web.example.com", "/")

	s.apply(t, "too-large-a-regex.yaml")
	began := time.Now()
	eventually(t, "the route says what Envoy says", func() error {
		programmed, err := s.parentCondition(t, "too-large-a-regex", "Programmed")
		if err != nil {
			return err
		}
		return expected(programmed, metav1.ConditionFalse, "LeftOut", "program size")
	})
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	s.apply(t, "later.yaml")
	answers(t, "http", address, "later.example.com", "/")
	under.goOn(t, 50)
	accepted, err := s.parentCondition(t, "web", "Accepted")
	must(t, err)
	must(t, expected(accepted, metav1.ConditionTrue, "Accepted", ""))
	under.mustBeWhole(t)

	// An Envoy that starts now serves all others, too.
	s.replaceEnvoys(t)
	for _, host := range []string{"web.example.com", "later.example.com"} {
		answers(t, "http", address, host, "/")
	}
	under = begin(t, "http", address, "web.example.com", "/")

	// Fixed, it is served.
	var route gatewayv1.HTTPRoute
	must(t, s.get(t, "too-large-a-regex", &route))
	*route.Spec.Rules[0].Matches[0].Path.Value = "/(a|b)"
	must(t, s.client.Update(t.Context(), &route))
	answers(t, "http", address, "regex.example.com", "/b")
	under.mustBeWhole(t)
}

// replaceEnvoys kills those of the Gateway web, and waits for others.
func (s *site) replaceEnvoys(t *testing.T) {
	t.Helper()
	envoys := func() (pods corev1.PodList) {
		must(t, s.client.List(t.Context(), &pods, client.InNamespace(s.namespace), client.MatchingLabels{gatewayLabel: "web"}))
		return pods
	}
	before := make(map[types.UID]bool)
	for _, pod := range envoys().Items {
		before[pod.UID] = true
		s.kill(t, pod)
	}
	eventually(t, "other Envoys are ready", func() error {
		ready := 0
		for _, pod := range envoys().Items {
			if before[pod.UID] {
				return fmt.Errorf("%s is still there", pod.Name)
			}
			for _, condition := range pod.Status.Conditions {
				if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
					ready++
				}
			}
		}
		if ready == 0 {
			return errors.New("none is ready")
		}
		return nil
	})
}
