package chaos

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// releases are what a person asks for, one after the other: a minor of Talos and two of Kubernetes, and patches.
var releases = []struct{ talos, kubernetes string }{
	{"v1.12.4", "v1.34.3"},
	{"v1.12.4", "v1.35.10"},
	{"v1.13.9", "v1.35.10"},
	{"v1.13.9", "v1.36.2"},
	{"v1.13.10", "v1.36.6"},
}

// settledRelease is what half of the clusters run when they are made. The others run the first one.
const settledRelease = 3

// upgrade asks for a later release, of which some may be left out.
func (h *history) upgrade(step Step) (string, func()) {
	left := len(releases) - 1 - h.release
	if left == 0 {
		return "", nil
	}

	h.release += 1 + int(step.A)%left
	h.apply()

	return fmt.Sprintf("to Talos %s and Kubernetes %s", releases[h.release].talos, releases[h.release].kubernetes), nil
}

// failInstaller has installers fail on a machine.
func (h *history) failInstaller(step Step) (string, func()) {
	name := h.victim(step)
	h.node(name).FailInstaller("installer")

	return short(name), func() { h.node(name).FailInstaller("") }
}

// closeWindow lets no machine reboot for a while.
func (h *history) closeWindow(Step) (string, func()) {
	h.closed = true
	h.apply()

	return "for reboots", func() {
		h.closed = false
		h.apply()
	}
}

// rollout is how changes are rolled out. A window that is closed opens in half a day.
func (h *history) rollout() *v1alpha1.RolloutOptions {
	o := &v1alpha1.RolloutOptions{Approval: h.approval}

	if h.closed {
		const half = 12 * time.Hour

		opens := time.Now().UTC().Add(half)
		o.RebootPolicy = v1alpha1.RebootWindow
		o.Windows = []v1alpha1.MaintenanceWindow{{
			Schedule: fmt.Sprintf("%d %d * * *", opens.Minute(), opens.Hour()), Duration: metav1.Duration{Duration: time.Minute},
		}}
	}

	return o
}
