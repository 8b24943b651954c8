package taloscontrolplane_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/test/harness"
	"github.com/talos-operator/talos-operator/test/wait"
)

// TestUpgradeRemovesFeatureGate: an upgrade of Kubernetes that would remove a feature gate in use does not begin, unless
// the spec ignores that, and is not held once it has begun. A cluster is checked every few minutes only.
func TestUpgradeRemovesFeatureGate(t *testing.T) {
	const from, to = "v1.35.1", "v1.36.2"

	e := newEnv(t)
	n := e.boot(0)
	cp := e.create(1, func(cp *v1alpha1.TalosControlPlane) { cp.Spec.KubernetesVersion = from })

	if _, err := e.pass(cp); err != nil {
		t.Fatal(err)
	}

	e.configured(n)

	data, err := harness.Config(e.state(), configmachine.TypeControlPlane)
	if err != nil {
		t.Fatal(err)
	}

	patches, err := configpatcher.LoadPatches([]string{
		"machine: {kubelet: {extraConfig: {featureGates: {HonorPVReclaimPolicy: true}}}}",
		"cluster: {scheduler: {extraArgs: {feature-gates: HonorPVReclaimPolicy=false}}}",
	})
	if err != nil {
		t.Fatal(err)
	}

	patched, err := configpatcher.Apply(configpatcher.WithBytes(data), patches)
	if err != nil {
		t.Fatal(err)
	}

	if data, err = patched.Bytes(); err != nil {
		t.Fatal(err)
	}

	e.Eventually("the machine takes its config", func(ctx context.Context) error { return harness.Install(ctx, n, data) })
	e.Eventually("etcd waits", func(ctx context.Context) error { return harness.Prepares(ctx, n, e.state()) })
	e.establish(cp)

	versions := func(api string) {
		e.show(cp, 0, func(m *v1alpha1.TalosMachine) {
			m.Status.TalosVersion, m.Status.KubeletVersion = harness.TalosVersion, from
			m.Status.ComponentVersions = &v1alpha1.ComponentVersions{APIServer: api, ControllerManager: from, Scheduler: from, Proxy: from}
		})
	}
	ask := func(version string, policy v1alpha1.RemovedAPIPolicy) {
		cp.Spec.KubernetesVersion = version
		cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{
			Kubernetes: v1alpha1.UpgradeAutomatic, RemovedAPIs: policy, PrePull: v1alpha1.PrePullNever,
		}
		e.Update(cp)
	}
	expect := func(what, version, message string) {
		t.Helper()

		if _, err := e.pass(cp); err != nil {
			t.Fatalf("%s: %v", what, err)
		}

		u := cp.Status.Upgrade
		if u == nil || u.KubernetesVersion != version || !strings.Contains(u.Message, message) || message == "" && u.Message != "" {
			t.Errorf("%s: %+v", what, u)
		}
	}

	versions(from)

	const refused = "Kubernetes v1.36.2 removes what is in use: feature gate HonorPVReclaimPolicy of kube-scheduler on cp-0; " +
		"feature gate HonorPVReclaimPolicy of kubelet on cp-0; remove it from the configuration"

	ask(to, "")
	expect("in use", "", refused)
	e.Condition(cp, v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonRemovedAPIs, refused)

	reads := harness.Calls("Get", n)
	checks := func() int { return harness.Calls("Get", n) - reads }

	expect("soon again", "", refused)

	soon := checks()

	e.Clock.SetTime(e.Clock.Now().Add(4 * time.Minute))
	expect("later again", "", refused)

	if later := checks() - soon; later < soon+4 {
		t.Errorf("%d resources were read soon, and %d later", soon, later)
	}

	ask(to, v1alpha1.RemovedAPIsIgnore)
	expect("ignored", to, "")

	ask(to, v1alpha1.RemovedAPIsRefuse)
	expect("nothing has begun", "", refused)

	versions(to)
	expect("an API server has it", to, "")
}

// TestUpgradeNamesObstacles: what the drains of an upgrade of Talos will meet is named, and does not hold it. A machine
// without disk space for the image does, until the upgrade has begun.
func TestUpgradeNamesObstacles(t *testing.T) {
	e := newEnv(t)
	cp, nodes := e.established(1)

	cfg, err := e.state().Bundle.RESTConfig(e.fleet.Endpoint(), wait.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}

	c, err := clientset.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}

	e.Eventually("the Node is cordoned", func(ctx context.Context) error {
		_, err := c.CoreV1().Nodes().Patch(ctx, "cp-0", types.StrategicMergePatchType, []byte(`{"spec":{"unschedulable":true}}`),
			metav1.PatchOptions{})

		return err
	})

	e.until(cp, "the version of the API servers is known", func() bool { return cp.Status.ObservedKubeVersion != "" })
	e.show(cp, 0, func(m *v1alpha1.TalosMachine) {
		m.Status.TalosVersion, m.Status.KubeletVersion = harness.TalosVersion, harness.KubernetesVersion
	})

	const (
		to   = "v1.13.10"
		full = "cp-0 (0 MiB free): too little space on /var (EPHEMERAL) for the images of Talos v1.13.10, which need 1024 MiB"
		want = "no backup before this upgrade: no TalosEtcdBackupSchedule is known for the cluster; "
		meet = "the drains will meet Nodes that were cordoned manually: cp-0"
	)

	cp.Spec.TalosVersion, cp.Spec.Upgrade = to, &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic}
	e.Update(cp)

	later := func() *v1alpha1.UpgradeStatus {
		t.Helper()
		e.Clock.SetTime(e.Clock.Now().Add(4 * time.Minute))

		if _, err := e.pass(cp); err != nil {
			t.Fatal(err)
		}

		return cp.Status.Upgrade
	}

	nodes[0].FillDisk(true)

	if u := later(); u == nil || u.TalosVersion != "" || u.Reason != v1alpha1.ReasonInsufficientDiskSpace || !strings.HasPrefix(u.Message, full) {
		t.Errorf("full: %+v", u)
	}

	e.Condition(cp, v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonInsufficientDiskSpace, "Talos v1.13.10: "+full)

	cp.Spec.Upgrade.MachineSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"other": "machines"}}
	e.Update(cp)

	if u := later(); u == nil || u.Reason != "" {
		t.Errorf("full and not selected: %+v", u)
	}

	cp.Spec.Upgrade.MachineSelector = nil
	e.Update(cp)
	nodes[0].FillDisk(false)

	// The images come after the space for them.
	const waits = "the images of Talos v1.13.10 are pulled before the first machine begins: waiting for cp-0 (0 of 1 machines have them); " +
		"to begin without them, exclude such machines with upgrade.machineSelector, or set upgrade.prePull to Never"

	u := later()
	if u == nil || u.TalosVersion != "" || u.Reason != "" || u.Message != waits || u.Pulling == nil || u.Pulling.TalosVersion != to {
		t.Fatalf("with space: %+v", u)
	}

	says := func(problem string) {
		e.show(cp, 0, func(m *v1alpha1.TalosMachine) {
			m.Status.Images = &v1alpha1.MachineImages{RequestedFor: rollout.ImagesFor(cp, nil), Pulled: problem == "", Message: problem}
			if at := metav1.NewTime(e.Clock.Now()); problem != "" {
				m.Status.Images.LastAttemptTime = &at
			}
		})
	}

	says("10.0.0.1 cannot pull the image x")

	if u := later(); u == nil || u.TalosVersion != "" || u.Reason != v1alpha1.ReasonImagePull ||
		!strings.Contains(u.Message, "cp-0: 10.0.0.1 cannot pull the image x; the pull is retried automatically") {
		t.Errorf("without image: %+v", u)
	}

	says("")

	if u := later(); u == nil || u.TalosVersion != to || u.Obstacles != want+meet || u.Message+u.Reason != "" || u.Pulling == nil {
		t.Errorf("with the image: %+v", u)
	}

	says("10.0.0.1 has lost it")

	if u := later(); u == nil || u.TalosVersion != to || u.Reason != "" {
		t.Errorf("allowed before: %+v", u)
	}

	m := e.talosMachine(0)
	m.Spec.Change = &v1alpha1.ChangeGrant{ID: "0123456789abcdef"}
	e.Update(m)
	e.show(cp, 0, func(m *v1alpha1.TalosMachine) {
		m.Status.Change = &v1alpha1.MachineChange{
			ID: m.Spec.Change.ID, Kind: v1alpha1.ChangeTalos, Base: strings.Repeat("a", 64), Target: strings.Repeat("b", 64),
			Cause: v1alpha1.CauseSpec, Phase: v1alpha1.ChangePending, Since: metav1.NewTime(e.Clock.Now()),
		}
	})
	nodes[0].FillDisk(true)

	if u := later(); u == nil || u.Pulling != nil || u.TalosVersion != to || !strings.HasPrefix(u.Obstacles, want+full) || !strings.HasSuffix(u.Obstacles, meet) {
		t.Errorf("begun: %+v", u)
	}
}
