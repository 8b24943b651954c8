package main

import (
	"errors"
	"os"
	"strings"
	"testing"
)

const (
	header = `{"config": {"go_version": "go1.26.8", "scan_level": "symbol"}}`
	// A function of a module that is called, one that has no fix, one of the standard library, and the package of one.
	called   = `{"finding": {"osv": "GO-1", "fixed_version": "v1.4.0", "trace": [{"module": "m", "version": "v1.3.0", "package": "m/p", "function": "F"}, {"package": "main", "function": "main"}]}}`
	unfixed  = `{"finding": {"osv": "GO-2", "trace": [{"module": "m", "version": "v1.3.0", "package": "m/p", "function": "G"}]}}`
	library  = `{"finding": {"osv": "GO-3", "fixed_version": "v1.26.9", "trace": [{"module": "stdlib", "version": "v1.26.8", "package": "net/http", "receiver": "Server", "function": "Serve"}]}}`
	imported = `{"finding": {"osv": "GO-4", "fixed_version": "v2.0.0", "trace": [{"module": "n", "version": "v1.0.0", "package": "n/p"}]}}`
	// The same vulnerability in a copy of the standard library, and found in the module before it is found to be called.
	copied   = `{"finding": {"osv": "GO-3", "fixed_version": "v0.9.0", "trace": [{"module": "golang.org/x/net", "version": "v0.8.0", "package": "http2", "function": "Serve"}]}}`
	inModule = `{"finding": {"osv": "GO-1", "fixed_version": "v1.4.0", "trace": [{"module": "m", "version": "v1.3.0"}]}}`
)

// except is the exception of a vulnerability until a version of Go.
func except(id, until string) exception {
	return exception{ID: id, Reason: "the toolchain", Until: until}
}

// TestJudge: what is called and has a fix fails, unless it is one of the standard library with an exception that
// counts.
func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		found      []string
		exceptions []exception
		prints     string
		want       error
	}{
		"nothing":                        {found: []string{header}, prints: "0 vulnerabilities are called, and 0 more"},
		"called":                         {found: []string{header, inModule, called}, want: errVulnerable},
		"called, and the module last":    {found: []string{header, called, inModule}, want: errVulnerable},
		"imported":                       {found: []string{header, imported}, prints: "0 vulnerabilities are called, and 1 more"},
		"without a fix":                  {found: []string{header, unfixed}, prints: "GO-2 in m v1.3.0: m/p.G: \n  no version fixes it\n1 vulnerabilities"},
		"the standard library":           {found: []string{header, library}, want: errVulnerable},
		"an exception":                   {found: []string{header, library}, exceptions: []exception{except("GO-3", "go1.26.9")}, prints: "excepted until go1.26.9: the toolchain"},
		"an exception of the next minor": {found: []string{header, library}, exceptions: []exception{except("GO-3", "go1.27")}, prints: "excepted until go1.27"},
		"an exception that has ended":    {found: []string{header, library}, exceptions: []exception{except("GO-3", "go1.26.8")}, want: errExpired},
		"an exception that is unneeded":  {found: []string{header}, exceptions: []exception{except("GO-3", "go1.26.9")}, want: errUnneeded},
		"one that is not called":         {found: []string{header, imported}, exceptions: []exception{except("GO-4", "go1.26.9")}, want: errUnneeded},
		"an exception for a module":      {found: []string{header, called}, exceptions: []exception{except("GO-1", "go1.26.9")}, want: errVulnerable},
		"a copy beside an exception":     {found: []string{header, library, copied}, exceptions: []exception{except("GO-3", "go1.26.9")}, want: errVulnerable},
		"another exception":              {found: []string{header, library}, exceptions: []exception{except("GO-5", "go1.26.9")}, want: errUnneeded},
		"no output":                      {want: errNoScan},
		"a scan without calls":           {found: []string{strings.Replace(header, "symbol", "module", 1)}, want: errNoScan},
		"no version of Go":               {found: []string{strings.Replace(header, "go1.26.8", "devel", 1)}, want: errNoScan},
		"a finding without a module":     {found: []string{header, `{"finding": {"osv": "GO-1"}}`}, want: errMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder

			err := judge(strings.NewReader(strings.Join(c.found, "\n")), c.exceptions, &out)
			if !errors.Is(err, c.want) || !strings.Contains(out.String(), c.prints) {
				t.Errorf("%v, want %v and %q:\n%s", err, c.want, c.prints, &out)
			}
		})
	}
}

// TestJudgeCutOff: output that ends in the middle proves nothing.
func TestJudgeCutOff(t *testing.T) {
	if err := judge(strings.NewReader(header+called[:20]), nil, &strings.Builder{}); err == nil {
		t.Error("output that was cut off is taken for the whole")
	}
}

// TestJudgeWhole: output with all that govulncheck writes. It fails for the call alone, and tells it from its
// beginning.
func TestJudgeWhole(t *testing.T) {
	text, err := os.ReadFile("testdata/scan.json")
	if err != nil {
		t.Fatal(err)
	}

	const want = "GO-0000-0001 in stdlib v1.26.8: github.com/talos-operator/talos-operator/cmd/talos-operator.main calls " +
		"net/http.Server.Serve: A header without an end hangs the server in net/http\n"

	var out strings.Builder

	err = judge(strings.NewReader(string(text)), nil, &out)
	if !errors.Is(err, errVulnerable) || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "GO-0000-0002") {
		t.Errorf("%v, want %s", err, want)
	}

	out.Reset()

	err = judge(strings.NewReader(string(text)), []exception{except("GO-0000-0001", "go1.26.9")}, &out)
	if !strings.HasPrefix(out.String(), want) || !strings.Contains(out.String(), "1 vulnerabilities are called, and 1 more") || err != nil {
		t.Errorf("%v: %s", err, &out)
	}
}

// TestExceptions: those of the repository are complete, and one that is not is refused.
func TestExceptions(t *testing.T) {
	if _, err := readExceptions(exceptionsFile); err != nil {
		t.Error(err)
	}

	for name, text := range map[string]string{
		"no reason":     `[{"id": "GO-1", "reason": " ", "until": "go1.26.9"}]`,
		"no id":         `[{"reason": "r", "until": "go1.26.9"}]`,
		"no end":        `[{"id": "GO-1", "reason": "r"}]`,
		"not a version": `[{"id": "GO-1", "reason": "r", "until": "1.26.9"}]`,
		"twice":         `[{"id": "GO-1", "reason": "r", "until": "go1.26.9"}, {"id": "GO-1", "reason": "s", "until": "go1.27"}]`,
	} {
		if _, err := readExceptions([]byte(text)); !errors.Is(err, errMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
