package main

import (
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/lab/control"
)

// TestWideTable: the wide table has a cell for each of its columns, the fingerprint of a machine in maintenance mode
// among them.
func TestWideTable(t *testing.T) {
	const fingerprint = "pnduMqbUZ/sQyDW1o4kP6c1u1PoB2gRQu8KEV38guAM="

	var out strings.Builder

	err := printNodes(&out, outputWide, []control.Node{{Name: "n", MaintenanceFingerprint: fingerprint, Unmet: []string{"time"}}})
	if err != nil {
		t.Fatal(err)
	}

	header, row, _ := strings.Cut(out.String(), "\n")
	if i := strings.Index(header, "MAINTENANCE FINGERPRINT"); i < 0 || !strings.HasPrefix(row[i:], fingerprint) {
		t.Errorf("the fingerprint is not below its header:\n%s", out.String())
	}

	if i := strings.Index(header, "UNMET"); i < 0 || !strings.HasPrefix(row[i:], "time") {
		t.Errorf("the last cell is not below its header:\n%s", out.String())
	}
}
