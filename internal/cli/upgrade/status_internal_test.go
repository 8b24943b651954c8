package upgrade

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// TestSince: the title says since when an upgrade waits, also for one of which a version has begun.
func TestSince(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 5, 4, 10, 0, 0, 0, time.FixedZone("", 7200)))

	for want, u := range map[string]v1alpha1.UpgradeStatus{
		"c: a window, since 2026-05-04T08:00:00Z": {Message: "a window", WaitingSince: &at},
		"c: a window": {Message: "a window"},
		"c: upgrading to Talos v1.13.9, the last step; not yet done on a: a window, since 2026-05-04T08:00:00Z": {
			TalosVersion: "v1.13.9", Machines: []string{"a"}, Message: "a window", WaitingSince: &at,
		},
		"c: upgrading to Talos v1.13.9, the last step; not yet done on a": {
			TalosVersion: "v1.13.9", Machines: []string{"a"}, WaitingSince: &at,
		},
	} {
		if got := (upgradeState{Cluster: "c", Upgrade: &u}).title(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
