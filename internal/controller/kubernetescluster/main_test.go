package kubernetescluster_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/kubernetescluster"
	"github.com/talos-operator/talos-operator/internal/manifest"
	"github.com/talos-operator/talos-operator/test/plane"
)

var planes *plane.Plane

func TestMain(m *testing.M) { plane.Main(m, &planes) }

// bench is the reconciler under its own role, called by hand, and a namespace.
type bench struct {
	t      *testing.T
	ns     string
	admin  client.Client
	r      *kubernetescluster.Reconciler
	events *events.FakeRecorder
	clock  *testclock.FakePassiveClock
	dir    string
}

func newBench(t *testing.T) *bench {
	t.Helper()

	b := &bench{
		t: t, ns: planes.Namespace(t), admin: planes.Admin(t), events: events.NewFakeRecorder(1000), dir: t.TempDir(),
		clock: testclock.NewFakePassiveClock(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)),
	}
	c := planes.Manager(t)
	b.r = &kubernetescluster.Reconciler{
		Client: c, Reader: c, Recorder: b.events, Clock: b.clock, Resync: time.Minute,
		Manifests: &manifest.Store{Root: b.dir, Count: func(string, string) {}},
	}

	return b
}

const good = `
apiVersion: vitistack.io/v1alpha1
kind: KubernetesCluster
metadata: {name: NAME}
spec:
  kubernetesVersion: v1.36.2
  talosVersion: v1.13.9
  clusterEndpoint: https://10.0.0.1:6443
  deletionPolicy: Reset
  controlPlane: {replicas: 3}
  workers:
    - {name: web, replicas: 2}
`

func (b *bench) create(name, manifest string) *vitistackv1alpha1.KubernetesCluster {
	b.t.Helper()

	c := &vitistackv1alpha1.KubernetesCluster{}
	if err := yaml.UnmarshalStrict([]byte(strings.ReplaceAll(manifest, "NAME", name)), c); err != nil {
		b.t.Fatal(err)
	}

	c.Namespace = b.ns

	if err := b.admin.Create(b.t.Context(), c); err != nil {
		b.t.Fatal(err)
	}

	return c
}

// reconcile runs passes until the object's children are stable.
func (b *bench) reconcile(c *vitistackv1alpha1.KubernetesCluster) {
	b.t.Helper()

	for range 3 {
		// What it waits for, and what a user has to correct, shows in the conditions.
		_, _ = b.r.Reconcile(b.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c)})
	}

	if err := b.admin.Get(b.t.Context(), client.ObjectKeyFromObject(c), c); client.IgnoreNotFound(err) != nil {
		b.t.Fatal(err)
	}
}
