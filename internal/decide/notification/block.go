package notification

import (
	"slices"
	"strings"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// Block returns the ledger of a control plane with what holds its upgrade before a version begins, such as images that
// cannot be pulled. There may be no run then. Each reason is told once for the versions that the spec asks for, until a
// version begins: in between, machines may be asked again, and the upgrade may wait for something else.
func (l Ledger) Block(u *v1alpha1.UpgradeStatus, now time.Time) Ledger {
	if u == nil || begins(u) {
		l.Blocked = nil

		return l
	}

	target := targetOf(u)
	l.Blocked = slices.DeleteFunc(slices.Clone(l.Blocked), func(key string) bool {
		return !strings.HasSuffix(key, " "+target)
	})

	key := BlockOf(u)
	if key == "" || slices.Contains(l.Blocked, key) {
		return l
	}

	l.Blocked = append(l.Blocked, key)
	l.Entries = slices.Clone(l.Entries)
	l = l.add(&v1alpha1.UpgradeRunStatus{Phase: v1alpha1.UpgradeRunWaiting}, v1alpha1.NotificationWaiting, now, u.Message)

	e := &l.Entries[len(l.Entries)-1]
	e.Observed, e.Target, e.Held = stamp(now), target, true

	return l
}

// BlockOf is what holds an upgrade before a version begins until a user intervenes, and which upgrade; empty if nothing
// does. Refused manifests are told of the run that waits for them.
func BlockOf(u *v1alpha1.UpgradeStatus) string {
	if u == nil || u.Reason == "" || u.Reason == v1alpha1.ReasonManifestsRefused {
		return ""
	}

	return u.Reason + " " + targetOf(u)
}

// begins reports whether machines are given a version, and no longer wait for its images.
func begins(u *v1alpha1.UpgradeStatus) bool {
	return u.Reason == "" && u.Pulling == nil && (u.TalosVersion != "" || u.KubernetesVersion != "")
}

func targetOf(u *v1alpha1.UpgradeStatus) string {
	return upgrade.Target{Talos: u.Target, Kubernetes: u.TargetKubernetes}.String()
}
