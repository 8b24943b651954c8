package e2e

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/apid"
	"github.com/talos-operator/talos-operator/test/wait"
)

// upgradeKubernetes changes the version of Kubernetes in the spec of a cluster, and lets the operator bring it about.
func (w *world) upgradeKubernetes(cluster, version string) {
	w.t.Helper()
	change(w, &vitistackv1alpha1.KubernetesCluster{}, cluster, func(k *vitistackv1alpha1.KubernetesCluster) {
		k.Spec.KubernetesVersion = version
		k.Spec.Upgrade = &v1alpha1.UpgradeOptions{Kubernetes: v1alpha1.UpgradeAutomatic}
	})
}

// runsKubernetes: each component of each machine of a cluster has a version, no upgrade is left, and everything is up
// to date.
func (w *world) runsKubernetes(cluster, version string) func(context.Context) error {
	return func(ctx context.Context) error {
		return errors.Join(w.componentsAre(cluster, version)(ctx), w.upToDate(cluster)(ctx))
	}
}

// componentsAre: each component of each machine of a cluster has a version, and no upgrade is left.
func (w *world) componentsAre(cluster, version string) func(context.Context) error {
	return func(ctx context.Context) error {
		list, cp := &v1alpha1.TalosMachineList{}, &v1alpha1.TalosControlPlane{}

		err := errors.Join(w.client.List(ctx, list, client.InNamespace(w.ns)),
			w.client.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: cluster}, cp))
		if err != nil {
			return err
		}

		want := v1alpha1.ComponentVersions{APIServer: version, ControllerManager: version, Scheduler: version, Proxy: version}

		for i := range list.Items {
			m := &list.Items[i]
			if v := m.Status.ComponentVersions; v != nil && *v != want || m.Status.KubeletVersion != version {
				return fmt.Errorf("%s: kubelet %s, %+v; %+v", m.Name, m.Status.KubeletVersion, v, cp.Status.Upgrade)
			}
		}

		if u := cp.Status.Upgrade; u != nil || cp.Status.ObservedKubeVersion != version {
			return fmt.Errorf("%+v, API server %s", u, cp.Status.ObservedKubeVersion)
		}

		return nil
	}
}

// componentSteps records what machines are sent: each time an image of Kubernetes changes, as "component version
// machine".
type componentSteps struct {
	mu    sync.Mutex
	last  map[int]map[string]string
	steps []string
	// sick are changes of a machine of the control plane while another one was not ready.
	sick []string
}

var componentImage = regexp.MustCompile(`image: \S+/(kube-apiserver|kube-controller-manager|kube-scheduler|kube-proxy|kubelet):(\S+)`)

// recordComponents records the images that machines are sent from now on.
func (w *world) recordComponents(controlPlane []int, workers ...int) *componentSteps {
	r := &componentSteps{last: map[int]map[string]string{}}

	for _, i := range slices.Concat(controlPlane, workers) {
		w.t.Cleanup(w.nodes[w.address(i)].Faults().Subscribe(func(c apid.Call) {
			req, ok := c.Request.(*machineapi.ApplyConfigurationRequest)
			if !ok || !c.Mutating {
				return
			}

			r.mu.Lock()
			defer r.mu.Unlock()

			if r.note(i, string(req.GetData())) && slices.Contains(controlPlane, i) {
				for _, j := range controlPlane {
					if st := w.nodes[w.address(j)].Status(); i != j && !st.Ready {
						r.sick = append(r.sick, fmt.Sprintf("%s while %s waits for %v", w.address(i), st.Name, st.Unmet))
					}
				}
			}
		}))
	}

	return r
}

// note reports whether an image has changed.
func (r *componentSteps) note(machine int, config string) bool {
	now, changed := map[string]string{}, false

	for _, m := range componentImage.FindAllStringSubmatch(config, -1) {
		now[m[1]] = m[2]

		if was, known := r.last[machine][m[1]]; !known || was != m[2] {
			changed = true

			if known {
				r.steps = append(r.steps, fmt.Sprintf("%s %s %d", m[1], m[2], machine))
			}
		}
	}

	r.last[machine] = now

	return changed
}

// inOrder fails the test unless the components were changed one after the other, in the given order.
func (r *componentSteps) inOrder(t *testing.T, version string, order ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()

	at := 0

	for _, step := range r.steps {
		parts := strings.Fields(step)
		if parts[1] != version {
			continue
		}

		i := slices.Index(order, parts[0])
		if i < at {
			t.Errorf("%s after %s: %v", step, order[at], r.steps)

			return
		}

		at = i
	}

	if at != len(order)-1 {
		t.Errorf("nothing came after %s: %v", order[at], r.steps)
	}

	if len(r.sick) > 0 {
		t.Errorf("changed while another one was not ready: %v", r.sick)
	}
}

// componentOrder is the order of an upgrade.
var componentOrder = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet"}

// once: each component got each of these versions once, on each machine, and no other one.
func (r *componentSteps) once(t *testing.T, versions ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()

	seen := map[string]int{}

	for _, step := range r.steps {
		seen[step]++

		if v := strings.Fields(step)[1]; seen[step] > 1 || !slices.Contains(versions, v) {
			t.Errorf("%s, %d times; want each of %v once", step, seen[step], versions)
		}
	}
}

// TestUpgradeOfEverything: a minor of Talos, by the call of before 1.13, and two of Kubernetes in one intent, with the
// manager killed in between. Talos goes machine by machine, Kubernetes component by component and machine by machine;
// each machine reboots once, for Talos, and no component is changed before the one that it depends on runs everywhere.
// Meanwhile pods stay above the minimum of their budget, and the API responds.
func TestUpgradeOfEverything(t *testing.T) {
	s := newStory(t)
	w := s.w

	s.upgrade()
	s.kill(1)
	s.kill(1)
	w.eventually("everything runs Talos v1.13.9", w.runsTalosNow(storyCluster, "v1.13.9", 4))

	after := w.boots()

	s.kill(1)
	s.ends()

	if rebooted := w.rebooted(after); len(rebooted) > 0 {
		t.Errorf("%v rebooted for Kubernetes", rebooted)
	}

	w.running(storyCluster)
	w.nodesReady(storyCluster, 4)
	w.oneEtcd(storyCluster, 3)
	w.recorded(storyCluster+"-talos-1", &v1alpha1.TalosUpgrade{}, "v1.12.4", "v1.13.9")
	w.recorded(storyCluster+"-kubernetes-1", &v1alpha1.KubernetesUpgrade{}, "v1.34.3", "v1.35.10")
	w.recorded(storyCluster+"-kubernetes-2", &v1alpha1.KubernetesUpgrade{}, "v1.35.10", "v1.36.2")
	w.idle(5 * time.Second)
	w.searchSecrets(storyCluster)
}

// recorded: an upgrade has a record, of a success on each machine.
func (w *world) recorded(name string, o client.Object, from, to string) {
	w.t.Helper()
	w.eventually(name+" has succeeded", func(ctx context.Context) error {
		if err := w.client.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: name}, o); err != nil {
			return err
		}

		var (
			run   v1alpha1.TalosUpgrade
			point v1alpha1.PointOfNoReturn
		)

		switch o := o.(type) {
		case *v1alpha1.TalosUpgrade:
			run = *o
		case *v1alpha1.KubernetesUpgrade:
			run.Spec, run.Status, point = o.Spec, o.Status, v1alpha1.PointOfNoReturnPassed
		}

		list := &v1alpha1.TalosMachineList{}
		if err := w.client.List(ctx, list, client.InNamespace(w.ns)); err != nil {
			return err
		}

		var want, got []string

		for i := range list.Items {
			want = append(want, list.Items[i].Name+" "+from)
		}

		for _, m := range run.Status.Machines {
			if m.State == v1alpha1.UpgradeMachineDone && m.CompletedAt != nil {
				got = append(got, m.Name+" "+m.From)
			}
		}

		if slices.Sort(want); run.Status.Phase != v1alpha1.UpgradeRunSucceeded || run.Spec.From != from || run.Spec.To != to ||
			run.Status.PointOfNoReturn != point || !slices.Equal(got, want) {
			return fmt.Errorf("%+v, %+v; want %v", run.Spec, run.Status, want)
		}

		return nil
	})
}

// apiServers counts the control-plane machines whose configuration names a version of the API server.
func (w *world) apiServers(cluster, version string) int {
	w.t.Helper()

	count := 0

	for i := range 3 {
		live, err := w.liveConfig(cluster, w.address(i+1))
		if err != nil {
			w.t.Fatal(err)
		}

		if strings.Contains(string(live), "kube-apiserver:"+version+"\n") {
			count++
		}
	}

	return count
}

// TestUpgradeOfKubernetesFails: an image that cannot be pulled changes nothing, and one that does not run stops the
// upgrade at its first machine; both are called off by the version of before in the spec.
func TestUpgradeOfKubernetesFails(t *testing.T) {
	w := newWorld(t)
	for i := 1; i <= 4; i++ {
		w.boot(i)
	}

	w.apply(clusterManifest("stays", w.address(1), []string{w.address(1), w.address(2), w.address(3)}, []string{w.address(4)}))
	w.rollout("stays", v1alpha1.RolloutOptions{HealthTimeout: &metav1.Duration{Duration: 15 * time.Second}})
	w.running("stays")
	w.eventually("nothing is left to do", w.upToDate("stays"))

	w.upgradeKubernetes("stays", "v1.36.3-rc.0-missing")
	w.eventually("no machine begins", func(ctx context.Context) error {
		cp := &v1alpha1.TalosControlPlane{}
		if err := w.client.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: "stays"}, cp); err != nil {
			return err
		}

		u := cp.Status.Upgrade

		return wait.True(u != nil && u.Reason == v1alpha1.ReasonImagePull && u.KubernetesVersion == "" &&
			strings.Contains(u.Message, "kubelet:v1.36.3-rc.0-missing"))
	})

	if n := w.apiServers("stays", "v1.36.2"); n != 3 {
		t.Errorf("%d of 3 API servers were left alone", n)
	}

	w.upgradeKubernetes("stays", "v1.36.3-rc.0-crashing")
	w.plan(w.planOfControlPlane("stays"), v1alpha1.PlanStopped, "set kubernetesVersion to the version of")

	if n := w.apiServers("stays", "v1.36.2"); n != 2 {
		t.Errorf("%d of 3 API servers were left alone", n)
	}

	w.upgradeKubernetes("stays", "v1.36.2")
	w.eventually("everything runs what it ran", w.runsKubernetes("stays", "v1.36.2"))
	w.running("stays")
	w.oneEtcd("stays", 3)

	w.upgradeKubernetes("stays", "v1.35.3")
	w.condition(&v1alpha1.TalosControlPlane{}, "stays", v1alpha1.ConditionUpToDate, "False", v1alpha1.ReasonNoUpgradePath)
	w.idle(5 * time.Second)
}
