// Package suite is the official conformance suite of Gateway API as a test program. `make conformance` runs it.
package suite

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/gateway-api/conformance"
	"sigs.k8s.io/gateway-api/conformance/tests"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
)

// The profiles that a Gateway can have; the others are about meshes.
var profiles = []suite.ConformanceProfile{
	suite.GatewayHTTPConformanceProfile,
	suite.GatewayGRPCConformanceProfile,
	suite.GatewayTLSConformanceProfile,
	suite.GatewayTCPConformanceProfile,
	suite.GatewayUDPConformanceProfile,
}

func TestConformance(t *testing.T) {
	if os.Getenv("KUBECONFIG") == "" {
		t.Fatal("KUBECONFIG names no cluster to test against")
	}
	if err := printCatalogue(); err != nil {
		t.Fatal(err)
	}
	conformance.RunConformance(t)
}

// printCatalogue logs which tests belong to which profile, and at which level, for the summary.
func printCatalogue() error {
	narrowed := given("run-test") != "" || given("skip-tests") != ""
	if err := printEntry(map[string]any{"narrowed": narrowed}); err != nil {
		return err
	}
	wanted := strings.Split(given("conformance-profiles"), ",")
	for _, test := range tests.ConformanceTests {
		levels := map[string]string{}
		for _, profile := range profiles {
			if level := levelIn(profile, test); level != "" && contains(wanted, string(profile.Name)) {
				levels[string(profile.Name)] = level
			}
		}
		if len(levels) == 0 {
			continue
		}
		if err := printEntry(map[string]any{"test": test.ShortName, "profiles": levels}); err != nil {
			return err
		}
	}
	return nil
}

// levelIn is empty if the test is not of the profile. One extended feature makes a test an extended one.
func levelIn(profile suite.ConformanceProfile, test suite.ConformanceTest) string {
	level := "core"
	for _, feature := range test.Features {
		switch {
		case profile.CoreFeatures.Has(feature):
		case profile.ExtendedFeatures.Has(feature):
			level = "extended"
		default:
			return ""
		}
	}
	return level
}

func contains(wanted []string, name string) bool {
	for _, one := range wanted {
		// Without a profile the suite runs whatever the features allow.
		if one == "" || one == name {
			return true
		}
	}
	return false
}

func given(name string) string {
	if found := flag.Lookup(name); found != nil {
		return found.Value.String()
	}
	return ""
}

func printEntry(entry any) error {
	text, err := json.Marshal(entry)
	if err != nil {
		return err
	}
	fmt.Printf("catalogue: %s\n", text)
	return nil
}
