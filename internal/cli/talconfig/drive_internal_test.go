package talconfig

import (
	"slices"
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/workload"
)

// TestEffect: the plan says what happens to each machine. That of one in maintenance mode comes before all else.
func TestEffect(t *testing.T) {
	t.Parallel()

	harmless := []machineconfig.Change{{Path: "machine.env"}}
	drains, plain := &drive{drain: &drainer{}}, &drive{drain: &drainer{isOff: true}}

	for name, c := range map[string]struct {
		d    *drive
		t    target
		want string
	}{
		"an empty disk":      {drains, target{bare: &bare{disk: "/dev/sda"}}, "is installed to /dev/sda"},
		"a disk with data":   {drains, target{bare: &bare{disk: "/dev/sda", holds: "ext4"}}, "is installed to /dev/sda, which is wiped"},
		"an image":           {drains, target{bare: &bare{disk: "/dev/sda", isInstalled: true}}, "keeps the Talos on /dev/sda"},
		"bare, with changes": {drains, target{bare: &bare{disk: "/dev/sda"}, changes: harmless, reboots: true}, "is installed to /dev/sda"},

		"no change":             {drains, target{}, "none"},
		"no change, reboots":    {drains, target{reboots: true}, "none"},
		"left cordoned":         {drains, target{status: workload.NodeStatus{Cordoned: true, Marked: true}}, "is uncordoned"},
		"cordoned by another":   {drains, target{status: workload.NodeStatus{Cordoned: true}}, "none"},
		"uncordoned by another": {drains, target{status: workload.NodeStatus{Stale: true}}, "loses the mark of an earlier run"},
		"left and changed":      {drains, target{status: workload.NodeStatus{Marked: true}, changes: harmless}, "no reboot"},

		"a reboot":           {drains, target{changes: harmless, reboots: true}, "is drained, reboots"},
		"a reboot, no drain": {plain, target{changes: harmless, reboots: true}, "reboots, is not drained"},
		"before etcd":        {drains, target{changes: harmless, reboots: true, isEarly: true}, "reboots, before etcd is bootstrapped"},
		"early, no reboot":   {drains, target{changes: harmless, isEarly: true}, "no reboot"},
		"the network":        {drains, target{changes: []machineconfig.Change{{Path: "machine.network.hostname"}}}, "no reboot, is tried first"},
		"anything else":      {drains, target{changes: harmless}, "no reboot"},
	} {
		if got := c.d.effect(&c.t); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestAuthenticate: the certificate is made anew well before it ends, and not for each node.
func TestAuthenticate(t *testing.T) {
	t.Parallel()

	now := time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)

	bundle, err := clusterstate.NewBundle(clusterstate.Options{TalosVersion: "v1.13.9", Now: now})
	if err != nil {
		t.Fatal(err)
	}

	d := &drive{bundle: bundle, drain: &drainer{now: func() time.Time { return now }}}

	for _, c := range []struct {
		after   time.Duration
		renewed bool
	}{{0, true}, {time.Minute, false}, {accessTTL/2 - 2*time.Minute, false}, {time.Minute, true}, {time.Minute, false}} {
		now = now.Add(c.after)
		before := d.creds.Cert

		if err := d.authenticate(); err != nil || slices.Equal(d.creds.Cert, before) == c.renewed {
			t.Errorf("after %s: renewed, want %t: %v", c.after, c.renewed, err)
		}
	}
}
