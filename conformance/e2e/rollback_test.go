package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

const (
	// The host of the route in revised.yaml.
	revisedHost = "web.example.com"
	// The header in which that route sends its revision.
	revisionHeader = "X-Revision"
	// The condition of a pinned Gateway.
	heldCondition = "heliograph.dev/Held"
)

func TestARollbackHoldsThroughTheLossOfRedisAndOfTheLeader(t *testing.T) {
	s := newSite(t)
	s.apply(t, "revised.yaml")
	address, fleet := s.address(t, "web"), s.namespace+"/web"
	serves(t, address, "first")
	operator := s.operator(t)
	s.revise(t, "good")
	serves(t, address, "good")
	before, err := operator.list(t, fleet)
	must(t, err)
	s.revise(t, "bad")
	serves(t, address, "bad")

	const reason = "the answers are bad"
	_, err = operator.snapshot(t, "rollback", fleet, before.History[0].Head, "--reason="+reason, "--yes")
	must(t, err)
	serves(t, address, "good")
	s.isHeld(t, reason)
	under := beginWith(t, func(ctx context.Context) error { return servesNow(ctx, address, "good") })

	for _, redis := range s.pods(t, "redis") {
		s.kill(t, redis)
	}
	eventually(t, "the new Redis has what the operator ordered", func() error {
		found, err := operator.list(t, fleet)
		if err == nil && (found.PinnedTo == "" || found.PinnedBy != "e2e" || found.PinReason != reason) {
			err = fmt.Errorf("it says %+v", found)
		}
		return err
	})
	s.reviseInVain(t, under, "worse", reason)

	leader := s.leader(t)
	s.kill(t, leader)
	if next := s.leader(t); next.UID == leader.UID {
		t.Fatalf("%s is killed, and still leads", leader.Name)
	}
	s.reviseInVain(t, under, "newest", reason)
	under.mustBeWhole(t)

	_, err = operator.snapshot(t, "release", fleet)
	must(t, err)
	serves(t, address, "newest")
	eventually(t, "the Gateway is not held any more", func() error {
		condition, err := s.held(t)
		if err == nil && condition != nil {
			err = fmt.Errorf("it says %s", condition.Message)
		}
		return err
	})
	s.allReady(t, "translator")
}

// revise changes the route, and returns at once.
func (s *site) revise(t *testing.T, revision string) {
	t.Helper()
	var route gatewayv1.HTTPRoute
	must(t, s.get(t, "web", &route))
	route.Spec.Rules[0].Filters[0].RequestHeaderModifier.Set[0].Value = revision
	must(t, s.client.Update(t.Context(), &route))
}

// reviseInVain waits until a leader has translated the change, and then for some requests: a leader that does not know of the
// order has published it by then.
func (s *site) reviseInVain(t *testing.T, under *traffic, revision, reason string) {
	t.Helper()
	s.revise(t, revision)
	eventually(t, "a leader has translated the revision "+revision, func() error {
		accepted, err := s.parentCondition(t, "web", "Accepted")
		if err != nil {
			return err
		}
		return expected(accepted, metav1.ConditionTrue, "Accepted", "")
	})
	under.goOn(t, 50)
	s.isHeld(t, reason)
}

// isHeld waits until the Gateway has a condition that it is pinned, with the reason.
func (s *site) isHeld(t *testing.T, reason string) {
	t.Helper()
	eventually(t, "the Gateway says who holds it", func() error {
		condition, err := s.held(t)
		if err != nil {
			return err
		}
		if condition == nil {
			return fmt.Errorf("there is no condition %s", heldCondition)
		}
		if condition.Status != metav1.ConditionTrue || !strings.Contains(condition.Message, " by e2e: "+reason) {
			return fmt.Errorf("it is %s: %s", condition.Status, condition.Message)
		}
		return nil
	})
}

// held is the condition of the Gateway while it is pinned.
func (s *site) held(t *testing.T) (*metav1.Condition, error) {
	var gateway gatewayv1.Gateway
	if err := s.get(t, "web", &gateway); err != nil {
		return nil, err
	}
	for _, condition := range gateway.Status.Conditions {
		if condition.Type == heldCondition {
			return &condition, nil
		}
	}
	return nil, nil
}

// serves waits until a revision of the route is served.
func serves(t *testing.T, address, revision string) {
	t.Helper()
	eventually(t, "the revision "+revision+" is served", func() error {
		return servesNow(t.Context(), address, revision)
	})
}

func servesNow(ctx context.Context, address, revision string) error {
	echo, err := fetch(ctx, "http", address, revisedHost, "/")
	if err != nil {
		return err
	}
	if found := echo.Headers.Get(revisionHeader); found != revision {
		return fmt.Errorf("the revision %q is served, and not %s", found, revision)
	}
	return nil
}
