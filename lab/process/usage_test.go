package process_test

import (
	"os"
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/lab/process"
)

// TestCPU: a process that computes uses processor time, and one that is not there has none to show.
func TestCPU(t *testing.T) {
	before, err := process.CPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}

	sum := 0
	for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); {
		sum++
	}

	after, err := process.CPU(os.Getpid())
	if err != nil || after <= before {
		t.Errorf("%s, then %s after counting to %d: %v", before, after, sum, err)
	}

	if _, err := process.CPU(1 << 30); err == nil {
		t.Error("a process that does not exist has used processor time")
	}
}
