package clusterstate_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/talos-operator/talos-operator/internal/clusterstate"
)

func runOf(generation int64) *clusterstate.UpgradeRun {
	return &clusterstate.UpgradeRun{
		Component: "Talos", From: "v1.13.9", To: "v1.13.10", Attempt: 3, Generation: generation,
		PlannedAt: time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC), Phase: clusterstate.UpgradePlanned,
		Hooks: []clusterstate.HookRun{{Name: "one"}},
	}
}

// TestUpgradeOfAnotherOwner: a new owner of a cluster knows nothing of the upgrade of the last one; the same one does.
func TestUpgradeOfAnotherOwner(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		rt    clusterstate.Runtime
		keeps bool
	}{
		"the same":      {rt: clusterstate.Runtime{OwnerUID: "me"}, keeps: true},
		"had a rival":   {rt: clusterstate.Runtime{OwnerUID: "me", RivalUID: "other"}, keeps: true},
		"after another": {rt: clusterstate.Runtime{OwnerUID: "other"}},
		"after none":    {},
	} {
		c.rt.Upgrade = runOf(7)
		c.rt.Claim("me")

		if (c.rt.Upgrade != nil) != c.keeps || c.rt.OwnerUID != "me" {
			t.Errorf("%s: %+v", name, c.rt)
		}
	}
}

// TestClosed: a closed run counts its attempts, and has neither hooks nor anything left to do. The original stays.
func TestClosed(t *testing.T) {
	t.Parallel()

	if (*clusterstate.UpgradeRun)(nil).Closed() != nil {
		t.Error("a run is closed that does not exist")
	}

	was := runOf(7)
	want := runOf(7)
	want.Phase, want.Hooks = clusterstate.UpgradeFinished, nil

	if d := cmp.Diff(want, was.Closed()); d != "" {
		t.Error(d)
	}

	if d := cmp.Diff(runOf(7), was); d != "" {
		t.Errorf("the original has changed: %s", d)
	}
}

// TestTranslate: a hook that failed with the current spec has failed with its copy, one that is due again stays due.
func TestTranslate(t *testing.T) {
	t.Parallel()

	(*clusterstate.UpgradeRun)(nil).Translate(7, 1)

	for recorded, want := range map[int64]int64{7: 1, 1: 0, 0: 0} {
		run := runOf(recorded)
		if run.Translate(7, 1); run.Generation != want {
			t.Errorf("%d becomes %d, want %d", recorded, run.Generation, want)
		}
	}
}
