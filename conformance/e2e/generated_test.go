package e2e

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The label of objects that are made for a Gateway.
const gatewayLabel = "gateway.networking.k8s.io/gateway-name"

// The kinds of objects that are made for a Gateway.
var generated = []schema.GroupVersionKind{
	{Group: "apps", Version: "v1", Kind: "Deployment"},
	{Group: "apps", Version: "v1", Kind: "DaemonSet"},
	{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"},
	{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
	{Version: "v1", Kind: "ConfigMap"},
	{Version: "v1", Kind: "Pod"},
	{Version: "v1", Kind: "Service"},
	{Version: "v1", Kind: "ServiceAccount"},
}

func TestADeletedGatewayLeavesNothing(t *testing.T) {
	s := newSite(t)
	s.apply(t, "web.yaml")
	answers(t, "http", s.address(t, "web"), "web.example.com", "/")
	there, err := s.generatedFor(t, gatewayLabel, "web")
	must(t, err)
	for _, kind := range []string{"Deployment", "Service", "ServiceAccount", "ConfigMap", "Pod"} {
		if !strings.Contains(strings.Join(there, " "), kind+"/") {
			t.Errorf("the Gateway works without a %s that is labelled with its name: %s", kind, there)
		}
	}

	s.deleteGateway(t)
	eventually(t, "nothing is left of the Gateway", func() error {
		left, err := s.generatedFor(t, gatewayLabel, "web")
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("left: %s", left)
		}
		return err
	})
}

func TestWhatIsDeletedByHandComesBack(t *testing.T) {
	s := newSite(t)
	s.apply(t, "web.yaml")
	answers(t, "http", s.address(t, "web"), "web.example.com", "/")
	labels := client.MatchingLabels{gatewayLabel: "web"}
	deployments := func() ([]appsv1.Deployment, error) {
		var list appsv1.DeploymentList
		err := s.client.List(t.Context(), &list, client.InNamespace(s.namespace), labels)
		return list.Items, err
	}
	before, err := deployments()
	must(t, err)
	if len(before) != 1 {
		t.Fatalf("%d Deployments are there for the Gateway, and not one", len(before))
	}

	must(t, s.client.Delete(t.Context(), &before[0]))
	eventually(t, "there is another Deployment, with a pod that is ready", func() error {
		after, err := deployments()
		if err != nil {
			return err
		}
		if len(after) != 1 || after[0].UID == before[0].UID || after[0].Status.ReadyReplicas == 0 {
			return fmt.Errorf("there are %d Deployments: %+v", len(after), after)
		}
		return nil
	})
	answers(t, "http", s.address(t, "web"), "web.example.com", "/")
}

// generatedFor lists the objects with the label of a Gateway, or of a class, as KIND/NAME.
func (s *site) generatedFor(t *testing.T, label, name string) ([]string, error) {
	labels := client.MatchingLabels{label: name}
	var names []string
	for _, kind := range generated {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		if err := s.client.List(t.Context(), list, client.InNamespace(s.namespace), labels); err != nil {
			return nil, err
		}
		for _, object := range list.Items {
			names = append(names, kind.Kind+"/"+object.Name)
		}
	}
	return names, nil
}
