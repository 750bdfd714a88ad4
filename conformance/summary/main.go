// Summary reads the log of a run of the conformance suite, `go test -json`, from its input. It prints each result as it
// comes, and at the end a table for each profile. The exit status is 1 if the run failed.
package main

import (
	"bufio"
	"fmt"
	"os"
)

// The longest line of a log that is read. A test prints whole objects at times.
const longestLine = 16 << 20

func main() {
	run := NewRun()
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		if name, verdict := run.Take(lines.Bytes()); verdict == Passed || verdict == Failed {
			fmt.Printf("%s %s\n", verdict, name)
		}
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintf(os.Stderr, "summary: the log cannot be read: %v\n", err)
		os.Exit(1)
	}
	fmt.Println()
	Print(os.Stdout, run)
	if run.Problem() != "" {
		os.Exit(1)
	}
}
