package management

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestLongAuditLog: of a log that many write to, what is asked for is found wherever it stands, and no more is.
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

		_, err := fmt.Fprintf(f, `{"verb":"patch","requestReceivedTimestamp":%q,"user":{"username":%q},`+
			`"objectRef":{"resource":"machines","namespace":"n","name":"m%d"},"responseStatus":{"code":200}}`+"\n",
			begin.Add(time.Duration(i)*time.Second/4).Format(time.RFC3339Nano), user, i)
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
