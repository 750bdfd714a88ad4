package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The lease that translators are elected by, as scripts/install has it.
const lease = "heliograph-translator"

func TestAnotherTranslatorTakesOverFromAKilledLeader(t *testing.T) {
	s := newSite(t)
	s.apply(t, "web.yaml")
	address := s.address(t, "web")
	answers(t, "http", address, "web.example.com", "/")
	under := begin(t, "http", address, "web.example.com", "/")

	leader := s.leader(t)
	s.kill(t, leader)
	s.apply(t, "later.yaml")
	answers(t, "http", address, "later.example.com", "/")
	if next := s.leader(t); next.UID == leader.UID {
		t.Errorf("the change was served, and %s still leads", leader.Name)
	}
	under.mustBeWhole(t)
	s.allReady(t, "translator")
}

func TestADistributorDiesUnderTraffic(t *testing.T) {
	s := newSite(t)
	s.apply(t, "web.yaml")
	address := s.address(t, "web")
	answers(t, "http", address, "web.example.com", "/")
	under := begin(t, "http", address, "web.example.com", "/")

	// One of them serves this Gateway's Envoy. It does not matter which one: both are killed, one after the other.
	for _, pod := range s.pods(t, "distributor") {
		s.kill(t, pod)
		s.allReady(t, "distributor")
	}
	s.apply(t, "later.yaml")
	answers(t, "http", address, "later.example.com", "/")
	under.mustBeWhole(t)
}

// leader is the translator that holds the lease: a holder's name begins with its pod's.
func (s *site) leader(t *testing.T) corev1.Pod {
	t.Helper()
	var found corev1.Pod
	eventually(t, "a translator leads", func() error {
		var current coordinationv1.Lease
		if err := s.client.Get(t.Context(), client.ObjectKey{Namespace: system, Name: lease}, &current); err != nil {
			return err
		}
		if current.Spec.HolderIdentity == nil {
			return errors.New("no translator holds the lease")
		}
		for _, pod := range s.pods(t, "translator") {
			if strings.HasPrefix(*current.Spec.HolderIdentity, pod.Name) {
				found = pod
				return nil
			}
		}
		return fmt.Errorf("%s holds the lease, and no ready pod has that name", *current.Spec.HolderIdentity)
	})
	return found
}

// allReady waits until a part of the system has as many pods as the chart says.
func (s *site) allReady(t *testing.T, part string) {
	t.Helper()
	const replicas = 2
	eventually(t, fmt.Sprintf("%d pods of the %s are ready", replicas, part), func() error {
		if ready := len(s.pods(t, part)); ready != replicas {
			return fmt.Errorf("%d are", ready)
		}
		return nil
	})
}
