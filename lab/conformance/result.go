package conformance

import (
	"fmt"
	"io"
)

// Result counts what was compared.
type Result struct {
	Passed, Failed int
	// Allowed are those of the passed ones that answered otherwise than recorded, for a listed reason.
	Allowed int
}

// report prints failures as they are found and counts.
type report struct {
	w      io.Writer
	result Result
}

func (r *report) pass() {
	r.result.Passed++
}

func (r *report) allow() {
	r.result.Passed++
	r.result.Allowed++
}

func (r *report) fail(format string, args ...any) {
	r.result.Failed++
	r.say("FAIL "+format, args...)
}

func (r *report) say(format string, args ...any) {
	fmt.Fprintf(r.w, format+"\n", args...) // an error of the output is no failed check
}

// check passes when there is nothing to complain about.
func (r *report) check(complaint string) {
	if complaint == "" {
		r.pass()

		return
	}

	r.fail("%s", complaint)
}

// comparison is the comparison of nodes in one state with its recordings.
type comparison struct {
	*report

	known *differences
	state string
}
