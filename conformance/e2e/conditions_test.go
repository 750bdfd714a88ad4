package e2e

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// holds returns what is wrong with a condition of an object.
func holds(conditions []metav1.Condition, generation int64, kind string, status metav1.ConditionStatus) error {
	for _, condition := range conditions {
		if condition.Type != kind {
			continue
		}
		if condition.Status != status || condition.ObservedGeneration != generation {
			return fmt.Errorf("%s is %s at generation %d of %d: %s: %s", kind, condition.Status,
				condition.ObservedGeneration, generation, condition.Reason, condition.Message)
		}
		return nil
	}
	return fmt.Errorf("there is no condition %s", kind)
}

func expected(condition metav1.Condition, status metav1.ConditionStatus, reason, message string) error {
	if condition.Status != status || condition.Reason != reason || !strings.Contains(condition.Message, message) {
		return fmt.Errorf("%s is %s: %s: %s", condition.Type, condition.Status, condition.Reason, condition.Message)
	}
	return nil
}

func attached(gateway gatewayv1.Gateway, listener string, routes int32) error {
	for _, status := range gateway.Status.Listeners {
		if string(status.Name) == listener {
			if status.AttachedRoutes != routes {
				return fmt.Errorf("the listener %s counts %d routes, and not %d", listener, status.AttachedRoutes, routes)
			}
			return nil
		}
	}
	return fmt.Errorf("the listener %s has no status", listener)
}
