package main

import (
	"fmt"
	"io"
	"strings"
)

// Print writes the results: a line for each profile and level, then the names behind the numbers.
func Print(out io.Writer, run *Run) {
	fmt.Fprintf(out, "%-14s %-9s %7s %7s %8s %8s\n", "profile", "level", "passed", "failed", "skipped", "cut off")
	for _, profile := range run.Profiles() {
		for _, level := range []Level{Core, Extended} {
			fmt.Fprintf(out, "%-14s %-9s %7d %7d %8d %8d\n", profile, level,
				len(run.Of(profile, level, Passed)), len(run.Of(profile, level, Failed)),
				len(run.Of(profile, level, Skipped)), len(run.Of(profile, level, CutOff)))
		}
	}
	names(out, run, "failed", Failed)
	// A run that did not begin has no results of tests.
	if len(run.verdicts) > 0 {
		names(out, run, "cut off", CutOff)
	}
	// In a run of one test, the others are expected to be skipped.
	if !run.Narrowed {
		names(out, run, "skipped", Skipped)
	}
	problem := run.Problem()
	if problem == "" {
		fmt.Fprintln(out, "\nconformance: passed")
		return
	}
	if len(run.verdicts) == 0 || !run.ended {
		fmt.Fprintf(out, "\nthe end of the log:\n  %s\n", strings.Join(run.Tail(), "\n  "))
	}
	fmt.Fprintf(out, "\nconformance: %s\n", problem)
}

func names(out io.Writer, run *Run, title string, verdict Verdict) {
	for _, profile := range run.Profiles() {
		for _, level := range []Level{Core, Extended} {
			tests := run.Of(profile, level, verdict)
			if len(tests) == 0 {
				continue
			}
			fmt.Fprintf(out, "\n%s, %s %s:\n", title, profile, level)
			for _, test := range tests {
				fmt.Fprintf(out, "  %s\n", test)
				for _, cause := range run.Causes(test) {
					fmt.Fprintf(out, "    %s\n", cause)
				}
			}
		}
	}
}
