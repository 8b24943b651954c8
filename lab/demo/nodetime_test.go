package demo

import (
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/lab/node"
)

// TestNodeTime leaves out exactly the time in which machines wait for a user.
func TestNodeTime(t *testing.T) {
	zero := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	span := func(phase string, start, end int) node.Timing {
		return node.Timing{
			Phase: phase, Start: zero.Add(time.Duration(start) * time.Second), Duration: time.Duration(end-start) * time.Second,
		}
	}

	machines := [][]node.Timing{{
		// Waits 2 s for its config, is rebooting for 1 s, and waits 4 s for the bootstrap.
		span("boot", 0, 1), span("install", 3, 5), span("boot", 6, 7), span("kubelet", 7, 9), span("etcd", 11, 12),
		span("apiserver", 12, 16),
	}, {
		// Waits 5 s for its config; its etcd waits for the other one.
		span("boot", 0, 1), span("install", 6, 8), span("boot", 9, 10), span("kubelet", 10, 12), span("etcd", 10, 20),
		span("apiserver", 20, 30), // nothing waits for it
	}, {
		span("boot", 0, 1),
	}}

	// boot 1, install to the end of the next boot 4; bootstrap at 11, the last member has joined at 20.
	if got, want := nodeTime(machines, zero.Add(21*time.Second)), 14*time.Second; got != want {
		t.Errorf("node time %s, want %s", got, want)
	}
}
