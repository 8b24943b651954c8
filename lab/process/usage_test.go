package process_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/talos-operator/talos-operator/lab/process"
	"github.com/talos-operator/talos-operator/test/wait"
)

// TestCPU: a process that computes uses processor time, and one that is not there has none to show.
func TestCPU(t *testing.T) {
	before, err := process.CPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}

	// How long it takes depends on how much of a processor it gets.
	wait.For(t, "computing uses processor time", func(context.Context) error {
		sum := 0
		for i := range 10_000_000 {
			sum += i
		}

		after, err := process.CPU(os.Getpid())
		if err == nil && after <= before {
			err = fmt.Errorf("%s, then %s after counting to %d", before, after, sum)
		}

		return err
	})

	if _, err := process.CPU(1 << 30); err == nil {
		t.Error("a process that does not exist has used processor time")
	}
}
