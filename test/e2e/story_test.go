package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/wait"
)

// storyCluster is the cluster of the story of an upgrade.
const storyCluster = "minors"

// storyMachines are three control-plane machines, which take pods, too, and a worker.
var storyMachines = []int{1, 2, 3, 4}

// story is the upgrade of a cluster by a minor of Talos and two of Kubernetes, watched from its begin to its end.
type story struct {
	t *testing.T
	w *world

	steps  *componentSteps
	checks []func()
	before boots
	// booted and installed are how often machines had booted, and had been sent an installer, before.
	booted, installed map[int]int
	// kills of the manager, and further boots of a machine that a fault has led to.
	kills   int
	further map[int]int
	random  *rand.Rand
}

// newStory has a cluster with a Deployment of three pods, of which two have to be ready.
func newStory(t *testing.T) *story {
	t.Helper()

	w := newWorld(t)
	for _, i := range storyMachines {
		w.boot(i, func(o *node.Options) { o.TalosVersion = "v1.12.4" })
	}

	manifest := clusterManifest(storyCluster, w.balance(1, 2, 3), []string{w.address(1), w.address(2), w.address(3)},
		[]string{w.address(4)})
	manifest = strings.NewReplacer("v1.36.2", "v1.34.3", "v1.13.9", "v1.12.4").Replace(manifest)
	// Drained pods of one worker need another place.
	w.apply(strings.Replace(manifest, "        provider:",
		"        configPatches: ['cluster: {allowSchedulingOnControlPlanes: true}']\n        provider:", 1))
	w.running(storyCluster)
	w.eventually("nothing is left to do", w.upToDate(storyCluster))
	w.deploy(storyCluster, 3, 2)

	s := &story{
		t: t, w: w, before: w.boots(), booted: map[int]int{}, installed: map[int]int{}, further: map[int]int{},
		random: rand.New(rand.NewPCG(node.Seed(), 1)),
	}
	for _, i := range storyMachines {
		s.booted[i], s.installed[i] = s.boots(i), s.installs(i)
	}

	s.checks = []func(){
		w.watchReboots(storyCluster, 1, 2, 3), w.watchAvailability(storyCluster, 2, storyMachines...),
	}
	s.steps = w.recordComponents([]int{1, 2, 3}, 4)
	w.sendAgain(storyCluster, storyMachines...)

	return s
}

// boots counts how often a machine has booted.
func (s *story) boots(machine int) int {
	count := 0

	for _, t := range s.w.nodes[s.w.address(machine)].Timings() {
		if t.Phase == "boot" {
			count++
		}
	}

	return count
}

// installs counts how often a machine has answered that an installer has run, or will.
func (s *story) installs(machine int) int {
	return s.w.nodes[s.w.address(machine)].Faults().Answers("Upgrade", codes.OK)
}

// upgrade writes both versions into the spec.
func (s *story) upgrade() {
	s.t.Helper()
	change(s.w, &vitistackv1alpha1.KubernetesCluster{}, storyCluster, func(k *vitistackv1alpha1.KubernetesCluster) {
		k.Spec.TalosVersion, k.Spec.KubernetesVersion = "v1.13.9", "v1.36.2"
		k.Spec.Upgrade = &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic, Kubernetes: v1alpha1.UpgradeAutomatic}
	})
}

// kill kills the manager some times, at moments that follow from the seed of the lab.
func (s *story) kill(times int) {
	s.t.Helper()

	for range times {
		s.kills++
		s.w.killAfter(500*time.Millisecond + time.Duration(s.random.Int64N(int64(3*time.Second))))
	}
}

// ends waits until everything runs what the spec says, and judges how it got there.
func (s *story) ends() {
	s.t.Helper()

	w := s.w
	w.eventually("everything runs Talos v1.13.9", w.runsTalosNow(storyCluster, "v1.13.9", 4))
	w.eventually("no kubelet is v1.34.3 any more", s.haveLeft("v1.34.3"))
	w.eventually("no kubelet is v1.35.10 any more", s.haveLeft("v1.35.10"))
	w.eventually("everything runs Kubernetes v1.36.2", w.runsKubernetes(storyCluster, "v1.36.2"))

	for _, check := range s.checks {
		check()
	}

	s.steps.inOrder(s.t, "v1.35.10", componentOrder...)
	s.steps.inOrder(s.t, "v1.36.2", componentOrder...)
	s.steps.once(s.t, "v1.35.10", "v1.36.2")

	for _, i := range storyMachines {
		if n, want := s.boots(i)-s.booted[i], 1+s.further[i]; n != want {
			s.t.Errorf("machine %d has booted %d times, want %d", i, n, want)
		}

		// Only a manager that was killed may have missed the answer.
		if n, most := s.installs(i)-s.installed[i], 1+s.further[i]+s.kills; n < 1 || n > most {
			s.t.Errorf("machine %d was sent an installer %d times, want 1 to %d", i, n, most)
		}
	}

	w.eventually("no node is cordoned", w.schedulable(storyCluster, 4))
	w.oneEtcd(storyCluster, 3)
}

// haveLeft: no kubelet has a version any more. A minor is as much as a busy computer can be expected to do before the
// deadline that ends stuck tests.
func (s *story) haveLeft(version string) func(context.Context) error {
	return func(ctx context.Context) error {
		list := &v1alpha1.TalosMachineList{}
		if err := s.w.client.List(ctx, list, client.InNamespace(s.w.ns)); err != nil {
			return err
		}

		for i := range list.Items {
			if m := &list.Items[i]; m.Status.KubeletVersion == version {
				return fmt.Errorf("%s: kubelet %s, %+v", m.Name, version, m.Status.ComponentVersions)
			}
		}

		return nil
	}
}

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

// TestUpgradeUnderFaults tells the story with faults. Each takes a world and minutes, so that only make soak runs them.
func TestUpgradeUnderFaults(t *testing.T) {
	if os.Getenv("SOAK") == "" {
		t.Skip("make soak runs it")
	}

	for name, tell := range map[string]func(*testing.T){
		"an installer fails":            installerFails,
		"a node does not come back":     nodeIsGone,
		"the manager is killed":         managerIsKilled,
		"a maintenance window closes":   windowCloses,
		"the network of a node is slow": nodeIsSlow,
	} {
		t.Run(name, tell)
	}
}

// installerFails on the first machine, and would on any. All others stay what they are until the fault is over and a
// person has the change tried again.
func installerFails(t *testing.T) {
	s := newStory(t)
	for _, i := range storyMachines {
		s.w.nodes[s.w.address(i)].FailInstaller("v1.13.9")
	}

	s.upgrade()
	s.w.plan(s.w.planOfControlPlane(storyCluster), v1alpha1.PlanStopped, storyCluster+"-cp-")

	name, machine := s.failed()
	s.othersStay(machine)

	// The call of before 1.13 reboots whatever the installer says.
	s.further[machine] = s.boots(machine) - s.booted[machine]
	if s.further[machine] > 1 {
		t.Errorf("%s booted %d times for one installer that failed", name, s.further[machine])
	}

	for _, i := range storyMachines {
		s.w.nodes[s.w.address(i)].FailInstaller("")
	}

	change(s.w, &v1alpha1.TalosMachine{}, name, func(m *v1alpha1.TalosMachine) {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.RetryAnnotation, "true")
	})
	s.ends()
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
		return wait.True(s.boots(machine) > s.booted[machine])
	})

	if s.further[machine] = s.boots(machine) - s.booted[machine]; n.Status().TalosVersion == "v1.13.9" {
		s.further[machine]--
	}

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
