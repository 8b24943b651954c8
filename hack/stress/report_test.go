package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMain lets the test binary be a process that keeps a processor busy, as the program is.
func TestMain(m *testing.M) {
	burnIfAsked()
	os.Exit(m.Run())
}

// TestRun: a test that fails in one of several runs is told with its log, once, and without the test around it.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "tests.sh")
	report := `{"Action":"output","Package":"p","Test":"TestA/part","Output":"seed 42\n"}
{"Action":"fail","Package":"p","Test":"TestA/part"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestB"}
{"Action":"fail","Package":"p"}
`

	err := os.WriteFile(script, []byte(`mkdir -p $REPORTS
case $REPORTS in */2|*/3) cat > $REPORTS/r.json <<'EOT'
`+report+`EOT
exit 1;; esac
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}

	var out bytes.Buffer

	failures, err := run([]string{"--runs", "3", "--reports", filepath.Join(dir, "reports"), "--", "sh", script}, &out)
	if err != nil || failures != 1 {
		t.Fatalf("%d failures: %v", failures, err)
	}

	want := "\n--- FAIL: p TestA/part, in run [2 3]\nseed 42\n\n3 runs under stress, 1 tests failed\n"
	if !strings.HasSuffix(out.String(), want) {
		t.Errorf("it says\n%s, want at its end\n%s", out.String(), want)
	}
}

// TestNoTestFailed: a command that fails without a test is a failure, too.
func TestNoTestFailed(t *testing.T) {
	var out bytes.Buffer

	failures, err := run([]string{"--runs", "2", "--reports", t.TempDir(), "--", "false"}, &out)
	if err != nil || failures != 2 {
		t.Errorf("%d failures: %v\n%s", failures, err, out.String())
	}
}
