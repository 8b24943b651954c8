package management

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestLongAuditLog: of a log that many write to, what is requested is found wherever it stands, and no more is.
func TestLongAuditLog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.log")
	begin := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	const lines = 20_000 // an hour and a half, of about 4 MiB

	for i := range lines {
		user := "other"
		if i%100 == 0 {
			user = "us"
		}

		ended := begin.Add(time.Duration(i) * time.Second / 4)
		verb, received := "patch", ended

		// Watches are logged when they end, and change nothing.
		if i%2 == 1 {
			user, verb, received = "us", "watch", begin
		}

		_, err := fmt.Fprintf(f, `{"verb":%q,"requestReceivedTimestamp":%q,"stageTimestamp":%q,"user":{"username":%q},`+
			`"objectRef":{"resource":"machines","namespace":"n","name":"m%d"},"responseStatus":{"code":200}}`+"\n",
			verb, received.Format(time.RFC3339Nano), ended.Format(time.RFC3339Nano), user, i)
		if err != nil {
			t.Fatal(err)
		}
	}

	// A line that is being written.
	if _, err := f.WriteString(`{"verb":"pat`); err != nil {
		t.Fatal(err)
	}

	for _, first := range []int{0, 150, 7_000, lines - 150, lines} {
		writes, err := readWrites(file, "us", begin.Add(time.Duration(first)*time.Second/4))
		if err != nil {
			t.Fatal(err)
		}

		if want := (lines - first) / 100; len(writes) != want {
			t.Errorf("%d writes since line %d, want %d", len(writes), first, want)
		}
	}

	end, err := readSince(file, begin.Add((lines-400)*time.Second/4))
	if err != nil || len(end) > 2*auditBlock {
		t.Errorf("%d bytes were read for the last lines: %v", len(end), err)
	}
}

// TestRequests: reads and writes of audited users are told with their API group, and whether a right was missing; those
// of other users are not, nor is what is still being written.
func TestRequests(t *testing.T) {
	p := &Plane{opts: Options{Dir: t.TempDir()}}

	if err := p.Requests(func(r Request) { t.Error(r) }); err != nil {
		t.Errorf("without a log: %v", err)
	}

	line := func(group, verb, uri, ref string, code int, message string) string {
		return fmt.Sprintf(`{"verb":%q,"requestURI":%q,"user":{"username":"u","groups":[%q]},"objectRef":{%s},`+
			`"responseStatus":{"code":%d,"message":%q}}`, verb, uri, group, ref, code, message)
	}
	status := `"apiGroup":"g","resource":"rs","subresource":"status","namespace":"n","name":"o"`

	for file, text := range map[string]string{
		"audit-2026-11-01T12-00-00.000.log": line(AuditedGroup, "get", "/apis/g", status, 200, "") + "\n" +
			line(AuditedGroup, "patch", "/apis/g", status, 201, "") + "\n",
		"audit.log": line(AuditedGroup, "list", "/secrets", `"resource":"secrets"`, 403, "no") + "\n" +
			line("others", "get", "/apis", "", 200, "") + "\n" +
			line(AuditedGroup, "create", "/pods", `"resource":"pods"`, 403,
				"unable to create new content in namespace n because it is being terminated") + "\n" +
			line(AuditedGroup, "get", "/apis?timeout=1s", "", 200, "") + "\n" +
			line(AuditedGroup, "get", "/unfinished", "", 200, ""),
	} {
		if err := os.WriteFile(filepath.Join(p.opts.Dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	var got []Request

	if err := p.Requests(func(r Request) { got = append(got, r) }); err != nil {
		t.Fatal(err)
	}

	of := Request{User: "u", Verb: "get", Group: "g", Resource: "rs/status", Namespace: "n", Name: "o", URL: "/apis/g"}
	created := of
	created.Verb, created.Created = "patch", true

	want := []Request{
		of, created,
		{User: "u", Verb: "list", Resource: "secrets", URL: "/secrets", Forbidden: true},
		{User: "u", Verb: "create", Resource: "pods", URL: "/pods"},
		{User: "u", Verb: "get", URL: "/apis"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
