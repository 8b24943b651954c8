package demo

import (
	"slices"
	"time"

	"github.com/talos-operator/talos-operator/lab/node"
)

// Phases of a machine's own work, in the words of node.Timing.
const (
	phaseBoot    = "boot"
	phaseInstall = "install"
	phaseEtcd    = "etcd"
)

// NodeTime is what machines would have needed for themselves to become a cluster, ready at a given moment, if what
// drives them had taken no time at all. It has two parts:
//
//   - From power on until the last control-plane node could have been bootstrapped: boot, install, reboot, boot. What
//     lies between the end of the first boot and the beginning of the install is waiting for a config, and not counted.
//   - From the bootstrap until the last work of any machine was done: nothing is requested any more.
func NodeTime(nodes []*node.Node, ready time.Time) time.Duration {
	timings := make([][]node.Timing, len(nodes))
	for i, n := range nodes {
		timings[i] = n.Timings()
	}

	return nodeTime(timings, ready)
}

func nodeTime(machines [][]node.Timing, ready time.Time) time.Duration {
	var (
		prepared, joined time.Duration
		bootstrap        = bootstrapped(machines)
	)

	for _, spans := range machines {
		prepared = max(prepared, preparation(spans))

		for _, s := range spans {
			if !end(s).After(ready) && !bootstrap.IsZero() {
				joined = max(joined, end(s).Sub(bootstrap))
			}
		}
	}

	return prepared + joined
}

// bootstrapped is when etcd was bootstrapped: when the member that was up first began. Those that join have begun to
// wait long before.
func bootstrapped(machines [][]node.Timing) time.Time {
	var first node.Timing

	for _, spans := range machines {
		for _, s := range spans {
			if s.Phase == phaseEtcd && (first.Start.IsZero() || end(s).Before(end(first))) {
				first = s
			}
		}
	}

	return first.Start
}

// preparation is what one machine needed before it could take part in a cluster. The time from the end of the install
// to the next boot is its own, too: it reboots by itself.
func preparation(spans []node.Timing) time.Duration {
	var total time.Duration

	install := slices.IndexFunc(spans, func(s node.Timing) bool { return s.Phase == phaseInstall })

	for i, s := range spans {
		switch {
		case s.Phase == phaseBoot && i < install:
			total += s.Duration
		case s.Phase == phaseBoot && install >= 0:
			// The first boot after the install ends the preparation.
			return total + end(s).Sub(spans[install].Start)
		}
	}

	return total
}

func end(s node.Timing) time.Time { return s.Start.Add(s.Duration) }
