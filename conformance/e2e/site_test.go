// Package e2e has our own end-to-end cases: what a user of the whole system sees, in the cluster that KUBECONFIG names.
// `make e2e` installs the system and runs them. Each case has a namespace of its own, and takes it away at its end.
package e2e

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

const (
	// The namespace of the system, as scripts/install has it.
	system = "heliograph-system"
	// How long anything may take: it has to begin within a cluster that is busy, and images may have to be fetched.
	patience = 3 * time.Minute
	// The interval between two checks of an awaited condition.
	pause = 250 * time.Millisecond
)

//go:embed testdata
var testdata embed.FS

// site is a namespace of the cluster, for one case.
type site struct {
	client    client.Client
	namespace string
}

// newSite has a backend.
func newSite(t *testing.T) *site {
	t.Helper()
	s := emptySite(t)
	s.apply(t, "backend.yaml")
	return s
}

func emptySite(t *testing.T) *site {
	t.Helper()
	if os.Getenv("KUBECONFIG") == "" {
		t.Fatal("KUBECONFIG names no cluster to test against")
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	must(t, err)
	scheme := runtime.NewScheme()
	must(t, clientgoscheme.AddToScheme(scheme))
	must(t, gatewayv1.Install(scheme))
	cluster, err := client.New(config, client.Options{Scheme: scheme})
	must(t, err)

	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "heliograph-e2e-"}}
	must(t, cluster.Create(t.Context(), namespace))
	s := &site{client: cluster, namespace: namespace.Name}
	t.Cleanup(func() { s.leave(t) })
	return s
}

// leave deletes the namespace and waits until it is gone: an object that stays would be a fault of ours.
func (s *site) leave(t *testing.T) {
	// The context of the test has ended by now.
	ctx := context.Background()
	if t.Failed() {
		s.explain(ctx, t)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
	if err := s.client.Delete(ctx, namespace); err != nil {
		t.Errorf("namespace %s: %v", s.namespace, err)
		return
	}
	eventuallyWithin(ctx, t, "the namespace "+s.namespace+" is gone", func() error {
		err := s.client.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, fmt.Errorf("it is %s: %v", namespace.Status.Phase, namespace.Status.Conditions))
	})
}

// explain prints the objects of the namespace, for readers of a failed case.
func (s *site) explain(ctx context.Context, t *testing.T) {
	var pods corev1.PodList
	var events corev1.EventList
	if err := errors.Join(s.client.List(ctx, &pods, client.InNamespace(s.namespace)), s.client.List(ctx, &events, client.InNamespace(s.namespace))); err != nil {
		t.Logf("the namespace cannot be looked at: %v", err)
	}
	for _, pod := range pods.Items {
		t.Logf("pod %s: %s, %+v", pod.Name, pod.Status.Phase, pod.Status.ContainerStatuses)
	}
	for _, event := range events.Items {
		t.Logf("event: %s %s: %s: %s", event.InvolvedObject.Kind, event.InvolvedObject.Name, event.Reason, event.Message)
	}
}

// apply puts the objects of a file in testdata into the namespace.
func (s *site) apply(t *testing.T, file string) {
	t.Helper()
	text, err := testdata.ReadFile("testdata/" + file)
	must(t, err)
	s.create(t, file, text)
}

// create puts the objects of a text, which is called name, into the namespace.
func (s *site) create(t *testing.T, name string, text []byte) {
	t.Helper()
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := documents.Decode(object); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		object.SetNamespace(s.namespace)
		if err := s.client.Create(t.Context(), object); err != nil {
			t.Fatalf("%s: %s %s: %v", name, object.GetKind(), object.GetName(), err)
		}
	}
}

// get reads an object of the namespace.
func (s *site) get(t *testing.T, name string, object client.Object) error {
	return s.client.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: name}, object)
}

// address is the address of the Gateway, once it is programmed.
func (s *site) address(t *testing.T, gateway string) string {
	t.Helper()
	var address string
	eventually(t, "the Gateway "+gateway+" is programmed and has an address", func() error {
		var found gatewayv1.Gateway
		if err := s.get(t, gateway, &found); err != nil {
			return err
		}
		if err := holds(found.Status.Conditions, found.Generation, "Programmed", metav1.ConditionTrue); err != nil {
			return err
		}
		if len(found.Status.Addresses) == 0 {
			return errors.New("it has no address: does the cluster give addresses to Services of type LoadBalancer?")
		}
		address = found.Status.Addresses[0].Value
		return nil
	})
	return address
}

// parentCondition is a condition of a route for its one parent.
func (s *site) parentCondition(t *testing.T, route, kind string) (metav1.Condition, error) {
	var found gatewayv1.HTTPRoute
	if err := s.get(t, route, &found); err != nil {
		return metav1.Condition{}, err
	}
	if len(found.Status.Parents) != 1 {
		return metav1.Condition{}, fmt.Errorf("the route %s has %d parents in its status", route, len(found.Status.Parents))
	}
	for _, condition := range found.Status.Parents[0].Conditions {
		if condition.Type == kind && condition.ObservedGeneration == found.Generation {
			return condition, nil
		}
	}
	return metav1.Condition{}, fmt.Errorf("the route %s has no %s of generation %d", route, kind, found.Generation)
}

// pods of a part of the system that are ready.
func (s *site) pods(t *testing.T, part string) []corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	labels := client.MatchingLabels{"app.kubernetes.io/name": "heliograph", "app.kubernetes.io/component": part}
	must(t, s.client.List(t.Context(), &pods, client.InNamespace(system), labels))
	var ready []corev1.Pod
	for _, pod := range pods.Items {
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil {
				ready = append(ready, pod)
			}
		}
	}
	return ready
}

// kill ends a pod at once, without a grace period.
func (s *site) kill(t *testing.T, pod corev1.Pod) {
	t.Helper()
	t.Logf("killing %s", pod.Name)
	must(t, s.client.Delete(t.Context(), &pod, client.GracePeriodSeconds(0)))
}

// eventually waits until look finds nothing wrong, and fails at the deadline with its last finding.
func eventually(t *testing.T, what string, look func() error) {
	t.Helper()
	eventuallyWithin(t.Context(), t, what, look)
}

func eventuallyWithin(ctx context.Context, t *testing.T, what string, look func() error) {
	t.Helper()
	began := time.Now()
	var last error
	err := wait.PollUntilContextTimeout(ctx, pause, patience, true, func(context.Context) (bool, error) {
		last = look()
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("awaited in vain for %s: %s: %v", patience, what, last)
	}
	t.Logf("%s, after %s", what, time.Since(began).Round(10*time.Millisecond))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(strings.TrimSpace(err.Error()))
	}
}
