// Command vulncheck reads what govulncheck -format json prints. It fails when the operator calls code with a known
// vulnerability that a version of its module fixes. Those of Go's standard library that only a newer toolchain fixes
// may be listed in exceptions.json until that version is used.
package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"go/version"
	"io"
	"os"
	"slices"
	"strings"
)

//go:embed exceptions.json
var exceptionsFile []byte

// standard is what govulncheck calls the module of Go's standard library.
const standard = "stdlib"

var (
	errNoScan     = errors.New("govulncheck has not looked for calls: nothing is known about what the operator calls")
	errVulnerable = errors.New("the operator calls code with a vulnerability that has a fix")
	errUnneeded   = errors.New("the exception is not needed any more: remove it")
	errExpired    = errors.New("the exception has ended")
	errMalformed  = errors.New("malformed")
)

func main() {
	exceptions, err := readExceptions(exceptionsFile)
	if err == nil {
		err = judge(os.Stdin, exceptions, os.Stdout)
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

// exception is a vulnerability of the standard library that is called until a newer toolchain is used.
type exception struct {
	ID     string `json:"id"`
	Reason string `json:"reason"`
	// Until is the first version of Go for which the exception does not count, such as go1.26.9.
	Until string `json:"until"`
}

func readExceptions(text []byte) ([]exception, error) {
	var out []exception
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, fmt.Errorf("reading exceptions.json: %w", err)
	}

	seen := map[string]bool{}

	for _, e := range out {
		if e.ID == "" || strings.TrimSpace(e.Reason) == "" || !version.IsValid(e.Until) || seen[e.ID] {
			return nil, fmt.Errorf("exceptions.json: %+v: %w: each needs an id that no other one has, a reason, and until, "+
				"a version such as go1.26.9", e, errMalformed)
		}

		seen[e.ID] = true
	}

	return out, nil
}

// message is one of those that govulncheck writes one after the other, as far as they are read here. It has one field.
type message struct {
	Config *struct {
		GoVersion string `json:"go_version"`
		ScanLevel string `json:"scan_level"`
	} `json:"config"`
	OSV *struct {
		ID      string `json:"id"`
		Summary string `json:"summary"`
	} `json:"osv"`
	Finding *finding `json:"finding"`
}

// finding is a vulnerability in a module, in a package of it, or in a function that is called: there is one for each.
type finding struct {
	ID    string `json:"osv"`
	Fixed string `json:"fixed_version"`
	// Trace leads from the vulnerable function to the program.
	Trace []frame `json:"trace"`
}

type frame struct {
	Module   string `json:"module"`
	Version  string `json:"version"`
	Package  string `json:"package"`
	Receiver string `json:"receiver"`
	Function string `json:"function"`
}

func (f frame) String() string {
	name := f.Function
	if f.Receiver != "" {
		name = f.Receiver + "." + name
	}

	return f.Package + "." + name
}

// String is the finding with the calls that lead to it.
func (f finding) String() string {
	calls := make([]string, 0, len(f.Trace))
	for _, c := range slices.Backward(f.Trace) {
		calls = append(calls, c.String())
	}

	return fmt.Sprintf("%s in %s %s: %s", f.ID, f.Trace[0].Module, f.Trace[0].Version, strings.Join(calls, " calls "))
}

// scan is what govulncheck has found.
type scan struct {
	goVersion string
	summaries map[string]string
	// called has one finding for each vulnerability and module. others counts the vulnerabilities that are not called.
	called []finding
	others int
}

func readScan(in io.Reader) (scan, error) {
	var (
		out   = scan{summaries: map[string]string{}}
		level string
		ids   = map[string]bool{}
	)

	for decoder := json.NewDecoder(in); ; {
		var m message
		if err := decoder.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return out, fmt.Errorf("reading what govulncheck has found: %w", err)
		}

		switch {
		case m.Config != nil:
			out.goVersion, level = m.Config.GoVersion, m.Config.ScanLevel
		case m.OSV != nil:
			out.summaries[m.OSV.ID] = m.OSV.Summary
		case m.Finding != nil && len(m.Finding.Trace) == 0:
			return out, fmt.Errorf("the finding of %s has no module: %w", m.Finding.ID, errMalformed)
		case m.Finding != nil:
			ids[m.Finding.ID] = true
			out.add(*m.Finding)
		}
	}

	if level != "symbol" || !version.IsValid(out.goVersion) {
		return out, errNoScan
	}

	for _, f := range out.called {
		delete(ids, f.ID)
	}

	out.others = len(ids)

	return out, nil
}

// add notes a finding if its function is called.
func (s *scan) add(f finding) {
	known := slices.ContainsFunc(s.called, func(c finding) bool {
		return c.ID == f.ID && c.Trace[0].Module == f.Trace[0].Module
	})

	if f.Trace[0].Function != "" && !known {
		s.called = append(s.called, f)
	}
}

// judge prints each vulnerability that is called, and returns those that have to be removed, and what is wrong about
// the exceptions.
func judge(in io.Reader, exceptions []exception, out io.Writer) error {
	s, err := readScan(in)
	if err != nil {
		return err
	}

	var problems []error

	needed := map[string]bool{}

	for _, f := range s.called {
		what := f.String() + ": " + s.summaries[f.ID]

		i := slices.IndexFunc(exceptions, func(e exception) bool { return e.ID == f.ID && f.Trace[0].Module == standard })

		switch {
		case f.Fixed == "":
			fmt.Fprintf(out, "%s\n  no version fixes it\n", what)
		case i < 0:
			problems = append(problems, fmt.Errorf("%s\n  %w: %s", what, errVulnerable, f.Fixed))
		case version.Compare(s.goVersion, exceptions[i].Until) >= 0:
			needed[f.ID] = true
			problems = append(problems, fmt.Errorf("%s\n  %w with %s, and %s is used: %s fixes it", what, errExpired,
				exceptions[i].Until, s.goVersion, f.Fixed))
		default:
			needed[f.ID] = true
			fmt.Fprintf(out, "%s\n  excepted until %s: %s\n", what, exceptions[i].Until, exceptions[i].Reason)
		}
	}

	for _, e := range exceptions {
		if !needed[e.ID] {
			problems = append(problems, fmt.Errorf("%s: %w", e.ID, errUnneeded))
		}
	}

	fmt.Fprintf(out, "%d vulnerabilities are called, and %d more are in modules or packages that are linked.\n",
		len(s.called), s.others)

	return errors.Join(problems...)
}
