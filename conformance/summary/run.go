package main

import (
	"encoding/json"
	"slices"
	"strings"
)

// Run is the state of a run of the suite, from its log, event by event.
//
// The suite's own report counts tests that run in parallel as passed before they have begun, so nothing is taken from it.
type Run struct {
	// Which tests of the suite belong to the profiles that were asked for, in the suite's order.
	Tests []Test
	// Narrowed is true if only some tests were wanted, so that a core test may be skipped.
	Narrowed bool

	verdicts map[string]Verdict
	causes   map[string][]string
	tail     []string
	ended    bool
}

// Test is a line of the suite's catalogue. The suite's test program prints them before it begins, so that a log can be
// judged by itself.
type Test struct {
	Name string `json:"test"`
	// The level of the test in each profile.
	Profiles map[string]Level `json:"profiles"`
}

type Level string

const (
	Core     Level = "core"
	Extended Level = "extended"
)

// Verdict is how a test ended. A test without one was cut off.
type Verdict string

const (
	Passed  Verdict = "pass"
	Failed  Verdict = "fail"
	Skipped Verdict = "skip"
	CutOff  Verdict = ""
)

// The prefix of a line of the catalogue in the log.
const catalogueMark = "catalogue: "

// The test program has one test, and each test of the suite is a part of it.
const root = "TestConformance"

const (
	keptLines  = 20
	keptCauses = 10
)

// event is one line of `go test -json`.
type event struct {
	Action string
	Test   string
	Output string
}

func NewRun() *Run {
	return &Run{verdicts: map[string]Verdict{}, causes: map[string][]string{}}
}

// Take reads one line of the log. If it ends a test of the suite, the name and the verdict are returned.
func (r *Run) Take(line []byte) (name string, verdict Verdict) {
	var e event
	if json.Unmarshal(line, &e) != nil {
		// Not of the log's format, such as a word of the go command itself.
		r.remember(string(line))
		return "", CutOff
	}
	switch e.Action {
	case "output", "build-output":
		r.listen(e.Output)
	case string(Passed), string(Failed), string(Skipped):
		return r.judge(e.Test, Verdict(e.Action))
	}
	return "", CutOff
}

// Verdict of a test of the suite.
func (r *Run) Verdict(name string) Verdict { return r.verdicts[name] }

// Causes are the parts of a failed test that failed themselves, without those that only contain others.
func (r *Run) Causes(name string) []string { return r.causes[name] }

// Tail is the end of what was printed, for a run that did not come to its tests.
func (r *Run) Tail() []string { return r.tail }

// Profiles in the order of their names.
func (r *Run) Profiles() []string {
	var names []string
	for _, test := range r.Tests {
		for profile := range test.Profiles {
			if !slices.Contains(names, profile) {
				names = append(names, profile)
			}
		}
	}
	slices.Sort(names)
	return names
}

// Of returns the tests of a profile and level that ended in the same way.
func (r *Run) Of(profile string, level Level, verdict Verdict) []string {
	var names []string
	for _, test := range r.Tests {
		if test.Profiles[profile] == level && r.verdicts[test.Name] == verdict {
			names = append(names, test.Name)
		}
	}
	return names
}

// Problem is the reason, in one line, why the run as a whole failed. It is empty if the run succeeded.
func (r *Run) Problem() string {
	if len(r.verdicts) == 0 {
		return "no test was run: the end of the log says why"
	}
	if !r.ended {
		return "the run was cut off before its end"
	}
	passed := 0
	for _, profile := range r.Profiles() {
		for _, level := range []Level{Core, Extended} {
			if len(r.Of(profile, level, Failed)) > 0 {
				return "tests failed"
			}
			if len(r.Of(profile, level, CutOff)) > 0 {
				return "tests did not come to their end"
			}
			passed += len(r.Of(profile, level, Passed))
		}
		if !r.Narrowed && len(r.Of(profile, Core, Skipped)) > 0 {
			return "core tests were skipped: does the GatewayClass list their features as supported?"
		}
	}
	if passed == 0 {
		return "no test passed: is there a test of that name in these profiles?"
	}
	return ""
}

func (r *Run) listen(output string) {
	text := strings.TrimRight(output, "\n")
	entry, listed := strings.CutPrefix(text, catalogueMark)
	if !listed {
		r.remember(text)
		return
	}
	var heading struct {
		Narrowed bool `json:"narrowed"`
		Test
	}
	if json.Unmarshal([]byte(entry), &heading) != nil {
		r.remember(text)
		return
	}
	if heading.Name == "" {
		r.Narrowed = heading.Narrowed
	} else {
		r.Tests = append(r.Tests, heading.Test)
	}
}

func (r *Run) judge(test string, verdict Verdict) (string, Verdict) {
	if test == root {
		r.ended = true
		return "", CutOff
	}
	inside, ok := strings.CutPrefix(test, root+"/")
	if !ok {
		return "", CutOff
	}
	name, part, isPart := strings.Cut(inside, "/")
	if !isPart {
		r.verdicts[name] = verdict
		return name, verdict
	}
	if verdict == Failed {
		r.blame(name, part)
	}
	return "", CutOff
}

// Parts end before the parts that contain them, so a part that contains one already named adds nothing.
func (r *Run) blame(name, part string) {
	contains := func(known string) bool { return strings.HasPrefix(known, part+"/") }
	if !slices.ContainsFunc(r.causes[name], contains) && len(r.causes[name]) < keptCauses {
		r.causes[name] = append(r.causes[name], part)
	}
}

func (r *Run) remember(text string) {
	if strings.TrimSpace(text) == "" {
		return
	}
	r.tail = append(r.tail, strings.TrimRight(text, "\n"))
	if len(r.tail) > keptLines {
		r.tail = r.tail[1:]
	}
}
