package clusterstate_test

import (
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/internal/clusterstate"
)

// TestPast: a time that is still to come counts from now; one that is little ahead is that of another clock.
func TestPast(t *testing.T) {
	t.Parallel()

	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

	for ahead, want := range map[time.Duration]time.Duration{
		-time.Hour: -time.Hour, 0: 0, time.Minute: time.Minute, 61 * time.Second: 0, 24 * time.Hour: 0,
	} {
		if got := clusterstate.Past(now.Add(ahead), now).Sub(now); got != want {
			t.Errorf("a time %s ahead counts as %s ahead, want %s", ahead, got, want)
		}
	}
}

// TestSettle: every recorded time that a clock which was ahead has left is brought to now, and no other one is changed.
func TestSettle(t *testing.T) {
	t.Parallel()

	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

	for name, at := range map[string]time.Time{"past": now.Add(-time.Hour), "future": now.Add(time.Hour)} {
		of := func() *time.Time { return new(at) }
		rt := clusterstate.Runtime{
			Bootstrap:  &clusterstate.Bootstrap{IntentAt: at, EstablishedAt: of()},
			Disruption: &clusterstate.Disruption{Since: at, MissingSince: of()}, ImportedAt: of(), DecommissionedAt: of(),
			Machines: map[string]clusterstate.Machine{"a": {ConfiguredAt: of()}, "b": {}},
			GivenUp:  map[string]clusterstate.GivenUp{"u": {At: at, ResetAt: of()}, "v": {At: at}},
			Upgrade:  &clusterstate.UpgradeRun{PlannedAt: at, Hooks: []clusterstate.HookRun{{SeenAt: of()}, {}}},
		}
		rt.Settle(now)

		want := at
		if name == "future" {
			want = now
		}

		for what, got := range map[string]time.Time{
			"intent": rt.Bootstrap.IntentAt, "establishment": *rt.Bootstrap.EstablishedAt, "disruption": rt.Disruption.Since,
			"missing": *rt.Disruption.MissingSince,
			"import":  *rt.ImportedAt, "decommission": *rt.DecommissionedAt, "machine": *rt.Machines["a"].ConfiguredAt,
			"plan": rt.Upgrade.PlannedAt, "Job": *rt.Upgrade.Hooks[0].SeenAt,
			"given up": rt.GivenUp["u"].At, "reset": *rt.GivenUp["u"].ResetAt, "given up, not reset": rt.GivenUp["v"].At,
		} {
			if !got.Equal(want) {
				t.Errorf("%s of the %s is %s, want %s", what, name, got, want)
			}
		}
	}
}
