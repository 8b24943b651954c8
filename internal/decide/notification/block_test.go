package notification_test

import (
	"strings"
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/notification"
)

// TestBlock: what holds an upgrade before a version begins is told once, when it starts, and again for other versions or
// after a version has begun.
func TestBlock(t *testing.T) {
	const (
		first  = "1 Waiting 1 step 1"
		second = first + ", 2 Waiting 4 step 4"
		third  = second + ", 3 Waiting 5 step 5"
		fourth = third + ", 4 Waiting 8 step 8"
	)

	pull, space := v1alpha1.ReasonImagePull, v1alpha1.ReasonInsufficientDiskSpace
	pulling := &v1alpha1.UpgradeImages{}
	l := notification.Ledger{}

	for i, step := range []struct {
		u    *v1alpha1.UpgradeStatus
		want string
	}{
		{nil, ""},
		{&v1alpha1.UpgradeStatus{Target: "v1.13.9", Reason: pull}, first},
		{&v1alpha1.UpgradeStatus{Target: "v1.13.9"}, first}, // it is asked again
		{&v1alpha1.UpgradeStatus{Target: "v1.13.9", Reason: pull}, first},
		{&v1alpha1.UpgradeStatus{Target: "v1.13.9", Reason: space}, second},
		{&v1alpha1.UpgradeStatus{Target: "v1.13.10", Reason: space}, third},
		{&v1alpha1.UpgradeStatus{Target: "v1.13.10", TalosVersion: "v1.13.10", Pulling: pulling}, third},
		{&v1alpha1.UpgradeStatus{Target: "v1.13.10", TalosVersion: "v1.13.10", Reason: space, Pulling: pulling}, third},
		{&v1alpha1.UpgradeStatus{Target: "v1.13.10", Reason: pull}, fourth},
		{&v1alpha1.UpgradeStatus{Target: "v1.13.10", Reason: v1alpha1.ReasonManifestsRefused}, fourth},
		{&v1alpha1.UpgradeStatus{Target: "v1.13.10", TalosVersion: "v1.13.10"}, fourth},
		{&v1alpha1.UpgradeStatus{Target: "v1.13.10", Reason: pull}, fourth + ", 5 Waiting 11 step 11"},
	} {
		now := begin.Add(time.Duration(i) * time.Minute)
		if step.u != nil {
			step.u.Message = "step " + strings.TrimSuffix(time.Duration(i).String(), "ns")
		}

		next := l.Block(step.u, now)
		if len(next.Blocked) != len(l.Blocked) && !next.Worth(l) {
			t.Errorf("%d: what was told is not recorded", i)
		}

		if again := next.Block(step.u, now.Add(time.Hour)); again.Worth(next) {
			t.Errorf("%d: told twice: %s", i, entries(again))
		}

		l = next
		if got := entries(l); got != step.want {
			t.Errorf("%d: %q, want %q", i, got, step.want)
		}
	}

	for _, e := range l.Entries {
		if e.Observed.IsZero() || e.Phase != v1alpha1.UpgradeRunWaiting || !strings.HasPrefix(e.Target, "Talos v1.13.") {
			t.Errorf("%+v", e)
		}
	}

	about := notification.Run{Namespace: "ns", UID: "u", Spec: &v1alpha1.UpgradeRunSpec{}}
	about.Spec.ControlPlaneRef.Name = "c"

	const want = `{"text":"Cluster ns/c: the upgrade to Talos v1.13.9 is waiting for a user: step 1"}`
	if got := body(t, about, v1alpha1.NotificationSlack, &l.Entries[0]); got != want {
		t.Error(got)
	}
}
