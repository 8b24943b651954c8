package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/node"
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
	// kills of the manager, and further boots and further installers of a machine that a fault has led to.
	kills              int
	further, reinstall map[int]int
	random             *rand.Rand
}

// newStory has a cluster with a Deployment of three pods, of which two have to be ready. Its Talos installs and reboots by
// one call.
func newStory(t *testing.T) *story {
	t.Helper()

	return newStoryFrom(t, "v1.12.4")
}

// newStoryFrom has that cluster with another Talos: one that is newer than 1.12 installs by a call of its own.
func newStoryFrom(t *testing.T, talos string) *story {
	t.Helper()

	w := newWorld(t)
	for _, i := range storyMachines {
		w.boot(i, func(o *node.Options) { o.TalosVersion = talos })
	}

	manifest := clusterManifest(storyCluster, w.balance(1, 2, 3), []string{w.address(1), w.address(2), w.address(3)},
		[]string{w.address(4)})
	manifest = strings.NewReplacer("v1.36.2", "v1.34.3", "v1.13.9", talos).Replace(manifest)
	// Drained pods of one worker need another place.
	w.apply(strings.Replace(manifest, "        provider:",
		"        configPatches: ['cluster: {allowSchedulingOnControlPlanes: true}']\n        provider:", 1))
	w.running(storyCluster)
	w.eventually("nothing is left to do", w.upToDate(storyCluster))
	w.deploy(storyCluster, 3, 2)

	s := &story{
		t: t, w: w, before: w.boots(), booted: map[int]int{}, installed: map[int]int{}, further: map[int]int{},
		reinstall: map[int]int{},
		random:    rand.New(rand.NewPCG(node.Seed(), 1)),
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

// bootCounts are how often machines have booted.
func (w *world) bootCounts(machines ...int) map[int]int {
	out := map[int]int{}

	for _, i := range machines {
		for _, t := range w.nodes[w.address(i)].Timings() {
			if t.Phase == "boot" {
				out[i]++
			}
		}
	}

	return out
}

// boots counts how often a machine has booted.
func (s *story) boots(machine int) int { return s.w.bootCounts(machine)[machine] }

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
		if n, most := s.installs(i)-s.installed[i], 1+s.further[i]+s.reinstall[i]+s.kills; n < 1 || n > most {
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
