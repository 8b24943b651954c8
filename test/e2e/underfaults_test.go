//go:build soak

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/apid"
	"github.com/talos-operator/talos-operator/test/wait"
)

// othersStay: no machine but one has rebooted, for a while.
func (s *story) othersStay(machine int) {
	s.t.Helper()
	wait.Stays(s.t, "the other machines do not reboot", 10*time.Second, func(context.Context) error {
		name := s.w.nodes[s.w.address(machine)].Name()
		if rebooted := s.w.rebooted(s.before); slices.ContainsFunc(rebooted, func(n string) bool { return n != name }) {
			return fmt.Errorf("%v", rebooted)
		}

		return nil
	})
}

// TestUpgradeUnderFaults tells the story with faults. Each takes a world and minutes, so that only make soak has them.
func TestUpgradeUnderFaults(t *testing.T) {
	for name, tell := range map[string]func(*testing.T){
		"an installer fails":            func(t *testing.T) { installerFails(newStory(t), 1) },
		"an installer without a reboot": func(t *testing.T) { installerFails(newStoryFrom(t, inMinor), 0) },
		"kubelets are hard to replace":  kubeletsFail,
		"a node does not come back":     nodeIsGone,
		"the manager is killed":         managerIsKilled,
		"a maintenance window closes":   windowCloses,
		"the network of a node is slow": nodeIsSlow,
	} {
		t.Run(name, tell)
	}
}

// inMinor is a Talos of the minor that the story leads to.
const inMinor = "v1.13.5"

// installerFails on the first machine, and would on any. All others stay what they are until the fault is over and a
// person has the change tried again. The call of before 1.13 reboots whatever the installer says, once; the one of 1.13
// has answered, and nothing reboots.
func installerFails(s *story, reboots int) {
	s.t.Helper()

	for _, i := range storyMachines {
		s.w.nodes[s.w.address(i)].FailInstaller("v1.13.9")
	}

	s.upgrade()
	s.w.plan(s.w.planOfControlPlane(storyCluster), v1alpha1.PlanStopped, storyCluster+"-cp-")

	name, machine := s.failed()
	s.othersStay(machine)

	s.further[machine] = s.boots(machine) - s.booted[machine]
	if s.further[machine] > reboots {
		s.t.Errorf("%s booted %d times for one installer that failed, want at most %d", name, s.further[machine], reboots)
	}

	if reboots == 0 { // otherwise the installer belongs to the further boot
		s.reinstall[machine] = 1
	}

	for _, i := range storyMachines {
		if n := s.installs(i) - s.installed[i]; (n == 1) != (i == machine) || n > 1 {
			s.t.Errorf("%d installers failed on machine %d, want one, on machine %d", n, i, machine)
		}

		s.w.nodes[s.w.address(i)].FailInstaller("")
	}

	s.tryAgain(name)
	s.ends()
}

// tryAgain has a person ask for another try of the change of a machine that failed.
func (s *story) tryAgain(name string) {
	s.t.Helper()
	change(s.w, &v1alpha1.TalosMachine{}, name, func(m *v1alpha1.TalosMachine) {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.RetryAnnotation, "true")
	})
}

// failed returns the TalosMachine whose change has failed, and the number of the machine.
func (s *story) failed() (name string, machine int) {
	s.t.Helper()

	list := &v1alpha1.TalosMachineList{}
	if err := s.w.client.List(s.t.Context(), list, client.InNamespace(s.w.ns)); err != nil {
		s.t.Fatal(err)
	}

	for i := range list.Items {
		m := &list.Items[i]
		if c := m.Status.Change; c != nil && c.Phase == v1alpha1.ChangeFailed {
			for _, i := range storyMachines {
				if s.w.nodes[s.w.address(i)].Status().Hostname == m.Name {
					return m.Name, i
				}
			}
		}
	}

	s.t.Fatal("no change has failed")

	return "", 0
}

// nodeIsGone: the first machine that is told to reboot loses its power, and all others wait for it.
func nodeIsGone(t *testing.T) {
	s := newStory(t)
	dark := s.w.cutWhileRebooting(1, 2, 3)
	s.upgrade()

	n := s.w.hit(dark)
	machine := slices.IndexFunc(storyMachines, func(i int) bool { return s.w.nodes[s.w.address(i)] == n }) + 1
	s.othersStay(machine)

	if err := n.PowerOn(context.Background()); err != nil {
		t.Fatal(err)
	}

	// What was installed by then is chance.
	wait.For(t, n.Name()+" boots", func(context.Context) error {
		return wait.True(s.boots(machine) > s.booted[machine] && n.Status().Ready)
	})

	if s.further[machine] = s.boots(machine) - s.booted[machine]; n.Status().TalosVersion == "v1.13.9" {
		s.further[machine]--
		s.ends()

		return
	}

	// A machine that came back with the version that it had may have refused the new one: a user has to check.
	s.w.plan(s.w.planOfControlPlane(storyCluster), v1alpha1.PlanStopped, storyCluster+"-cp-")

	name, _ := s.failed()
	s.tryAgain(name)
	s.ends()
}

// managerIsKilled again and again until the cluster has arrived.
func managerIsKilled(t *testing.T) {
	const most = 20

	s := newStory(t)
	s.upgrade()

	for range most {
		s.kill(1)

		if s.w.runsKubernetes(storyCluster, "v1.36.2")(t.Context()) == nil {
			break
		}
	}

	s.ends()
}

// kubeletsFail: once it is the turn of the kubelets, the first pull of each machine fails, the answer to its configuration
// is lost, and the manager is killed. Each kubelet is replaced once all the same, and nothing reboots.
func kubeletsFail(t *testing.T) {
	s := newStoryFrom(t, inMinor)
	s.upgrade()
	s.w.eventually("it is the turn of the kubelets", s.kubeletsTurn)

	unavailable := func(i int, method string) int {
		return s.w.nodes[s.w.address(i)].Faults().Answers(method, codes.Unavailable)
	}
	before := map[string]int{}

	for _, i := range storyMachines {
		faults := s.w.nodes[s.w.address(i)].Faults()

		for _, method := range []string{"Pull", "ApplyConfiguration"} {
			before[fmt.Sprint(method, i)] = unavailable(i, method)
			faults.Add(apid.Rule{
				Method: method, Code: codes.Unavailable, Late: method == "ApplyConfiguration", Count: 1, Changes: true,
			})
		}
	}

	s.kill(1)
	s.ends()

	for _, i := range storyMachines {
		for _, method := range []string{"Pull", "ApplyConfiguration"} {
			if unavailable(i, method) == before[fmt.Sprint(method, i)] {
				t.Errorf("%s of machine %d has not failed", method, i)
			}
		}
	}
}

// kubeletsTurn: kubelets get the version of Kubernetes that the cluster is brought to.
func (s *story) kubeletsTurn(ctx context.Context) error {
	list := &v1alpha1.TalosControlPlaneList{}
	if err := s.w.client.List(ctx, list, client.InNamespace(s.w.ns)); err != nil {
		return err
	}

	return wait.True(slices.ContainsFunc(list.Items, func(cp v1alpha1.TalosControlPlane) bool {
		return cp.Status.Upgrade != nil && slices.Contains(cp.Status.Upgrade.Components, v1alpha1.ComponentKubelet)
	}))
}

// windowCloses in the middle, by the clock, and opens again one or two minutes later: what was begun is ended, and
// nothing is begun.
func windowCloses(t *testing.T) {
	s := newStory(t)

	const open = 6 * time.Second

	now := wait.Now().UTC()
	minute := now.Truncate(time.Minute)
	at := func(m time.Time) string { return fmt.Sprintf("%d %d * * *", m.Minute(), m.Hour()) }
	closes, opens := now.Add(open), minute.Add(2*time.Minute)

	s.w.rollout(storyCluster, v1alpha1.RolloutOptions{
		RebootPolicy: v1alpha1.RebootWindow,
		Windows: []v1alpha1.MaintenanceWindow{
			{Schedule: at(minute), Duration: metav1.Duration{Duration: closes.Sub(minute)}},
			{Schedule: at(opens), Duration: metav1.Duration{Duration: time.Hour}},
		},
	})
	s.upgrade()
	wait.For(t, "the window closes", func(context.Context) error { return wait.True(wait.Now().After(closes)) })

	begun := len(s.w.rebooted(s.before))

	s.w.plan(s.w.planOfControlPlane(storyCluster), v1alpha1.PlanWaiting, "maintenance window that opens at")

	// A machine that was told to reboot in time may still be on its way.
	if n := len(s.w.rebooted(s.before)); n == len(storyMachines) || n > begun+1 {
		t.Errorf("%d machines had rebooted when the window closed, and %d soon after", begun, n)
	}

	waiting := s.w.boots()

	wait.For(t, "the window opens", func(context.Context) error {
		if rebooted := s.w.rebooted(waiting); len(rebooted) > 0 && wait.Now().Before(opens) {
			t.Fatalf("%v rebooted while the window was closed", rebooted)
		}

		return wait.True(wait.Now().After(opens))
	})
	s.ends()
}

// nodeIsSlow: each call to one machine takes a while.
func nodeIsSlow(t *testing.T) {
	s := newStory(t)
	faults := s.w.nodes[s.w.address(2)].Faults()
	faults.Slow("", 400*time.Millisecond)
	s.upgrade()
	s.w.eventually("everything runs Talos v1.13.9", s.w.runsTalosNow(storyCluster, "v1.13.9", 4))
	faults.Clear()
	s.ends()
}
