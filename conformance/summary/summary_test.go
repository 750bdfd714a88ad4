package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestALogBecomesATable(t *testing.T) {
	log, err := os.ReadFile("testdata/failed.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	expected, err := os.ReadFile("testdata/failed.txt")
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	run := NewRun()
	for _, line := range bytes.Split(log, []byte("\n")) {
		if name, verdict := run.Take(line); verdict != CutOff {
			told = append(told, fmt.Sprintf("%s %s", verdict, name))
		}
	}
	var printed strings.Builder
	Print(&printed, run)
	if printed.String() != string(expected) {
		t.Errorf("printed:\n%s\nexpected:\n%s", printed.String(), expected)
	}
	progress := []string{"pass GatewayShared", "skip HTTPRouteFancy", "skip MeshOnly", "pass GRPCRouteOne", "fail HTTPRouteParallel"}
	if !slices.Equal(told, progress) {
		t.Errorf("told on the way: %q, expected %q", told, progress)
	}
}

// Each case is a run of two core tests and what becomes of it.
func TestWhatIsASuccess(t *testing.T) {
	const ended = `{"Action":"pass","Test":"TestConformance"}`
	cases := []struct {
		name     string
		narrowed bool
		log      []string
		problem  string
	}{
		{"both passed", false, []string{verdict("pass", "One"), verdict("pass", "Two"), ended}, ""},
		{"one was not wanted", true, []string{verdict("pass", "One"), verdict("skip", "Two"), ended}, ""},
		{"one is not supported", false, []string{verdict("pass", "One"), verdict("skip", "Two"), ended}, "core tests were skipped"},
		{"one failed", false, []string{verdict("pass", "One"), verdict("fail", "Two"), ended}, "tests failed"},
		{"one has no verdict", false, []string{verdict("pass", "One"), ended}, "did not come to their end"},
		{"the program died", false, []string{verdict("pass", "One"), verdict("pass", "Two")}, "cut off"},
		{"a name that no test has", true, []string{verdict("skip", "One"), verdict("skip", "Two"), ended}, "no test passed"},
		{"the set-up failed", false, []string{ended}, "no test was run"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			run := NewRun()
			run.Take(said(fmt.Sprintf(`catalogue: {"narrowed":%t}`, c.narrowed)))
			run.Take(said(`catalogue: {"test":"One","profiles":{"GATEWAY-HTTP":"core"}}`))
			run.Take(said(`catalogue: {"test":"Two","profiles":{"GATEWAY-HTTP":"core"}}`))
			for _, line := range c.log {
				run.Take([]byte(line))
			}
			if problem := run.Problem(); (problem == "") != (c.problem == "") || !strings.Contains(problem, c.problem) {
				t.Errorf("problem %q, expected %q", problem, c.problem)
			}
		})
	}
}

func TestARunWithoutTestsShowsTheEndOfItsLog(t *testing.T) {
	run := NewRun()
	for line := range 100 {
		run.Take(said(fmt.Sprintf("line %d", line)))
	}
	run.Take([]byte(`{"Action":"build-output","Output":"it does not compile\n"}`))
	var printed strings.Builder
	Print(&printed, run)
	if !strings.Contains(printed.String(), "line 99\n  it does not compile\n") || strings.Contains(printed.String(), "line 80\n") {
		t.Errorf("printed:\n%s", printed.String())
	}
}

func verdict(action, test string) string {
	return fmt.Sprintf(`{"Action":%q,"Test":"TestConformance/%s"}`, action, test)
}

func said(text string) []byte {
	return fmt.Appendf(nil, `{"Action":"output","Test":"TestConformance","Output":%q}`, text+"\n")
}
