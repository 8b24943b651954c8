package talosmachine

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/controller/work"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/test/wait"
)

// TestKubernetesAhead: a control-plane machine pulls what runs as static pods and the kubelet, a worker the kubelet,
// and no machine what runs already or keeps a tag of its own.
func TestKubernetesAhead(t *testing.T) {
	const config = `version: v1alpha1
machine: {kubelet: {image: "ghcr.io/siderolabs/kubelet:KUBELET"}}
cluster:
  apiServer: {image: "registry.k8s.io/kube-apiserver:VERSION"}
  controllerManager: {image: "registry.k8s.io/kube-controller-manager:VERSION"}
  scheduler: {image: "registry.k8s.io/kube-scheduler:pinned"}
  proxy: {image: "registry.k8s.io/kube-proxy:VERSION"}
`

	cp := &v1alpha1.TalosControlPlane{}
	cp.Spec.KubernetesVersion = "v1.36.2"
	cp.Status.Upgrade = &v1alpha1.UpgradeStatus{Pulling: &v1alpha1.UpgradeImages{KubernetesVersion: "v1.35.10"}}

	live, want := replaced(config, "v1.34.3", "v1.34.3"), replaced(config, "v1.36.2", "v1.36.2-slim")
	kubelet := talos.WantedImage{Name: "ghcr.io/siderolabs/kubelet:v1.35.10-slim"}

	for _, c := range []struct {
		worker bool
		live   []byte
		want   []talos.WantedImage
	}{
		{true, live, []talos.WantedImage{kubelet}},
		{false, live, []talos.WantedImage{
			kubelet,
			{Name: "registry.k8s.io/kube-apiserver:v1.35.10", Pod: true},
			{Name: "registry.k8s.io/kube-controller-manager:v1.35.10", Pod: true},
		}},
		{false, replaced(config, "v1.35.10", "v1.35.10-slim"), nil},
	} {
		got, err := kubernetesAhead(cp, c.worker, c.live, want)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("worker %t: %+v, %v", c.worker, got, err)
		}
	}

	if _, err := kubernetesAhead(cp, true, live, []byte("a: [")); err == nil {
		t.Error("what is no configuration has images")
	}
}

// TestInstallerAhead: a worker pulls the installer of the version before it is next, and none that it would refuse.
func TestInstallerAhead(t *testing.T) {
	const stock = "ghcr.io/siderolabs/installer:"

	m := &v1alpha1.TalosMachine{Spec: v1alpha1.TalosMachineSpec{WorkerRef: &v1alpha1.ObjectReference{Name: "w"}}}
	cp := &v1alpha1.TalosControlPlane{}
	cp.Spec.TalosVersion = "v1.13.9"
	cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic}

	for name, c := range map[string]struct{ ahead, runs, image, want, refused string }{
		"nothing is asked for": {"", "v1.11.6", stock + "v1.13.9", "", ""},
		"a step of the path":   {"v1.12.12", "v1.11.6", stock + "v1.13.9", stock + "v1.12.12", ""},
		"it runs that":         {"v1.12.12", "v1.12.12", stock + "v1.13.9", "", ""},
		"it would be refused":  {"v1.13.9", "v1.12.12", stock + "v1.12.7", "", "the spec asks for Talos v1.13.9, and its installer is"},
	} {
		cp.Status.Upgrade = &v1alpha1.UpgradeStatus{Pulling: &v1alpha1.UpgradeImages{TalosVersion: c.ahead}}
		runs := running{system: system{c.runs, ""}, installer: stock + c.runs}

		got := installerAhead(cp, m, runs, c.image)
		if got.installer != c.want || (got.refused == "") != (c.refused == "") || !strings.HasPrefix(got.refused, c.refused) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// replaced fills a configuration in.
func replaced(config, version, kubelet string) []byte {
	return []byte(strings.NewReplacer("VERSION", version, "KUBELET", kubelet).Replace(config))
}

// TestRequested: a machine that is not selected for upgrades pulls nothing.
func TestRequested(t *testing.T) {
	cp := &v1alpha1.TalosControlPlane{}
	cp.Status.Upgrade = &v1alpha1.UpgradeStatus{Pulling: &v1alpha1.UpgradeImages{TalosVersion: "v1.13.10"}}
	s := &scope{controlPlane: cp, machine: &v1alpha1.TalosMachine{}}

	if !s.pullsAhead() {
		t.Error("a selected machine does not pull")
	}

	cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{MachineSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}

	if s.pullsAhead() {
		t.Error("a machine that is not selected pulls")
	}
}

// TestFetchEach: each image has its own time, and what takes longer is named.
func TestFetchEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := talos.WantedImage{Name: "slow"}
		fetch := func(ctx context.Context, images []talos.WantedImage) error {
			if images[0] != slow {
				return nil
			}

			<-ctx.Done()

			return ctx.Err()
		}

		if err := fetchEach(t.Context(), []talos.WantedImage{{Name: "a"}, {Name: "b"}}, fetch); err != nil {
			t.Error(err)
		}

		err := fetchEach(t.Context(), []talos.WantedImage{{Name: "a"}, slow}, fetch)
		if failure.Reason(err) != v1alpha1.ReasonImagePull || failure.Message(err) != "the image slow was not pulled within 30m0s" {
			t.Errorf("too slow: %v", err)
		}
	})
}

// TestPauseAhead: a pull that fails again and again is retried more rarely.
func TestPauseAhead(t *testing.T) {
	for failures, want := range map[int32]time.Duration{1: time.Minute, 3: time.Minute, 4: 30 * time.Minute, 100: 30 * time.Minute} {
		if got := pauseAhead(failures); got != want {
			t.Errorf("after %d: %s", failures, got)
		}
	}
}

// asked is a machine that is asked for the images of Talos v1.13.10.
func asked(t *testing.T, gets ahead) (*Reconciler, *scope) {
	t.Helper()

	m := &v1alpha1.TalosMachine{}
	m.Name = "m"
	cp := &v1alpha1.TalosControlPlane{}
	cp.Status.Upgrade = &v1alpha1.UpgradeStatus{Pulling: &v1alpha1.UpgradeImages{TalosVersion: "v1.13.10"}}

	r := &Reconciler{Installs: NewInstalls(t.Context()), Nodes: talos.NewPool(), Clock: testclock.NewFakePassiveClock(time.Unix(100, 0))}
	t.Cleanup(r.Installs.Stop)

	s := newScope(m, time.Unix(100, 0))
	s.controlPlane, s.compared, s.facts, s.ahead = cp, true, &talos.Facts{}, gets

	return r, s
}

// TestRequestChanges: a pull for an earlier request ends when another one begins.
func TestRequestChanges(t *testing.T) {
	r, s := asked(t, ahead{installer: "installer"})

	old, err := r.Installs.Do(work.Order[job, struct{}]{
		Key: s.key(), About: job{installation: installation{ahead: "an earlier request"}}, Timeout: time.Hour,
		Do: func(ctx context.Context) (struct{}, error) {
			<-ctx.Done()

			return struct{}{}, ctx.Err()
		},
	})
	if err != nil {
		t.Fatal(err)
	}

	// There are no credentials for the node: the new request fails.
	if err := r.pullAhead(t.Context(), s); err == nil {
		t.Error("a node without credentials pulls")
	}

	wait.For(t, "the earlier pull has ended", func(context.Context) error { return wait.True(old.Ended()) })
}

// TestRefusedAhead: a machine that must not be given the version says so, pulls nothing, and does not say that it has the
// images. It says nothing any more once it may.
func TestRefusedAhead(t *testing.T) {
	r, s := asked(t, ahead{refused: "it would lose zfs"})
	m := s.machine

	if err := r.pullAhead(t.Context(), s); err != nil || m.Status.Images.Refused != "it would lose zfs" || m.Status.Images.Pulled ||
		r.Installs.Find(s.key(), m.UID) != nil || !s.pullsAhead() {
		t.Errorf("%v, %+v", err, m.Status.Images)
	}

	s.ahead = ahead{} // it runs the version by now

	if err := r.pullAhead(t.Context(), s); err != nil || m.Status.Images.Refused != "" || !m.Status.Images.Pulled {
		t.Errorf("afterwards: %v, %+v", err, m.Status.Images)
	}
}

// TestRetryIsDetail: that a pull has failed once more is no news.
func TestRetryIsDetail(t *testing.T) {
	at, later := metav1.NewTime(time.Unix(10, 0)), metav1.NewTime(time.Unix(70, 0))
	m := &v1alpha1.TalosMachine{}
	m.Status.Images = &v1alpha1.MachineImages{RequestedFor: "x", Message: "no such image", LastAttemptTime: &at, Failures: 1}

	s := newScope(m, time.Unix(100, 0))
	m.Status.Images.LastAttemptTime, m.Status.Images.Failures = &later, 2

	if got := s.weight(false); got != condition.Detail {
		t.Errorf("a retry: %v", got)
	}

	m.Status.Images.Message = "no space"

	if got := s.weight(false); got != condition.News {
		t.Errorf("another error: %v", got)
	}
}
