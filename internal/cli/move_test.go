package cli_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/lab/management"
	"github.com/talos-operator/talos-operator/test/plane"
)

// second is the management plane that clusters move to.
var second *management.Plane

// TestMoves starts the second plane for all tests of the move.
func TestMoves(t *testing.T) {
	var (
		end func()
		err error
	)

	if second, end, err = plane.Start(t.TempDir()); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(end)

	t.Run("whole life", moves)
	t.Run("a pause goes along", keepsAPause)
	t.Run("crash after any write", goesOnAfterACrash)
	t.Run("backups", movesBackups)
	t.Run("refusals", refuses)
	t.Run("no operator", needsAnOperator)
	t.Run("KubernetesCluster", ofAKubernetesCluster)
	t.Run("no CRDs", needsCRDs)
}

// fleet is a shell with a second plane and a cluster to move, which stands still as if an operator had paused it.
type fleet struct {
	*shell
	*sample

	to    client.Client
	toCfg string
}

func newFleet(t *testing.T, name string) *fleet {
	t.Helper()

	e := newStanding(t, name)
	e.mayTellClusters()

	e.toCfg = filepath.Join(t.TempDir(), "to")

	if err := management.WriteKubeconfig(e.toCfg, second.Config(), "default"); err != nil {
		t.Fatal(err)
	}

	var err error
	if e.to, err = client.New(second.Config(), client.Options{Scheme: planes.Scheme}); err != nil {
		t.Fatal(err)
	}

	for kind, key := range map[string]string{"kubeconfig": "value", "talosconfig": "talosconfig"} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name + "-" + kind}, Data: map[string][]byte{key: []byte("x")}}
		secret.Namespace = e.ns
		if err := controllerutil.SetControllerReference(e.cp, secret, planes.Scheme); err != nil {
			t.Fatal(err)
		}

		e.create(secret)
	}

	return e
}

// newStanding is a shell with a cluster that stands still as if an operator had paused it.
func newStanding(t *testing.T, name string) *fleet {
	t.Helper()

	s := newShellOf(t, "admin")
	e := &fleet{shell: s, sample: s.sample(name)}

	e.own(e.cp, e.machine[0])
	e.own(e.worker, e.machine[1])
	e.patchesFrom(name + "-patches")
	e.hookFailed()
	e.still()

	return e
}

// patchesFrom has the workers take a patch from a ConfigMap. The Secret of that name is of another application.
func (e *fleet) patchesFrom(name string) {
	e.t.Helper()

	e.create(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"k": "machine: {}"},
		BinaryData: map[string][]byte{"other": {0xff}},
	})
	e.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}})

	e.worker.Spec.ConfigPatchesFrom = []v1alpha1.ConfigPatchSource{
		{Kind: v1alpha1.ConfigPatchFromConfigMap, Name: name, Key: "k"},
	}

	if err := e.client.Update(e.t.Context(), e.worker); err != nil {
		e.t.Fatal(err)
	}
}

// mayTellClusters gives the user the one right that move needs beside the role admin: management clusters are told apart by
// the namespace kube-system.
func (s *shell) mayTellClusters() {
	s.t.Helper()

	const system = "kube-system"

	of := metav1.ObjectMeta{Namespace: system, Name: s.ns}

	for _, o := range []client.Object{
		&rbacv1.Role{ObjectMeta: of, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{system}, Verbs: []string{"get"},
		}}},
		&rbacv1.RoleBinding{
			ObjectMeta: of, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: s.ns},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: plane.User(s.ns, "admin")}},
		},
	} {
		if err := s.client.Create(s.t.Context(), o); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (e *fleet) own(owner, o client.Object) {
	e.t.Helper()

	if err := controllerutil.SetControllerReference(owner, o, planes.Scheme); err != nil {
		e.t.Fatal(err)
	}

	o.SetFinalizers([]string{v1alpha1.Finalizer})

	if err := e.client.Update(e.t.Context(), o); err != nil {
		e.t.Fatal(err)
	}
}

// hookFailed changes the spec, and records a hook before an upgrade that has failed since then.
func (e *fleet) hookFailed() {
	e.t.Helper()

	e.cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeReport}
	if err := e.client.Update(e.t.Context(), e.cp); err != nil {
		e.t.Fatal(err)
	}

	err := e.store().Record(e.t.Context(), client.ObjectKeyFromObject(e.cp), func(s *clusterstate.State) {
		s.Runtime.Upgrade = &clusterstate.UpgradeRun{Component: "Talos", To: talosV, Generation: e.cp.Generation}
	})
	if err != nil {
		e.t.Fatal(err)
	}
}

// still shows the pause on every object, as their controllers do.
func (e *fleet) still() {
	e.t.Helper()

	paused := metav1.Condition{Type: v1alpha1.ConditionPaused, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPaused}

	e.machine[0].Status.ConfigHash, e.machine[0].Status.EtcdMemberID = "abc", "f00d"

	for o, conditions := range map[client.Object]*[]metav1.Condition{
		e.cp: &e.cp.Status.Conditions, e.worker: &e.worker.Status.Conditions,
		e.machine[0]: &e.machine[0].Status.Conditions, e.machine[1]: &e.machine[1].Status.Conditions,
	} {
		meta.SetStatusCondition(conditions, paused)

		if err := e.client.Status().Update(e.t.Context(), o); err != nil {
			e.t.Fatal(err)
		}
	}
}

// operate is the operator of the source: it shows each pause of the cluster on every object of it.
func (e *fleet) operate() {
	e.t.Helper()
	e.showPauses(e.cp, &v1alpha1.TalosControlPlaneList{}, e.cp, e.worker, e.machine[0], e.machine[1])
}

func (e *fleet) move(args ...string) (out, errOut, failed string) {
	e.t.Helper()

	return e.run(append([]string{"move", e.cp.Name, "--to-kubeconfig", e.toCfg}, args...)...)
}

// there reads an object of the target; false when it is not there.
func (e *fleet) there(o client.Object, name string) bool {
	e.t.Helper()

	err := e.to.Get(e.t.Context(), types.NamespacedName{Namespace: e.ns, Name: name}, o)
	if client.IgnoreNotFound(err) != nil {
		e.t.Fatal(err)
	}

	return err == nil
}

// arrived checks the copy on the target.
func (e *fleet) arrived() {
	e.t.Helper()

	name := e.cp.Name
	cp, worker, secret := &v1alpha1.TalosControlPlane{}, &v1alpha1.TalosWorker{}, &corev1.Secret{}

	if !e.there(cp, name) || !e.there(worker, name+"-w") || !e.there(secret, name+"-state") {
		e.t.Fatal("objects are missing")
	}

	state, err := clusterstate.Decode(secret.Data)
	if err != nil {
		e.t.Fatal(err)
	}

	if !slices.Equal(secret.Finalizers, []string{v1alpha1.StateFinalizer}) || state.Runtime.FormerOwnerUID != string(e.cp.UID) {
		e.t.Errorf("the state is not protected (%v), or does not name the former owner", secret.Finalizers)
	}

	// A hook that failed with the spec of the source has failed with that of the copy, which has another generation.
	if run := state.Runtime.Upgrade; run.Generation != cp.Generation || cp.Generation == e.cp.Generation {
		e.t.Errorf("hooks failed with generation %d of %d, of %d at the source", run.Generation, cp.Generation, e.cp.Generation)
	}

	if !state.Bundle.Equal(e.state.Bundle) || state.Runtime.OwnerUID != string(cp.UID) || cp.UID == e.cp.UID {
		e.t.Errorf("the state: owner %s, control plane %s", state.Runtime.OwnerUID, cp.UID)
	}

	for i, owner := range []client.Object{cp, worker} {
		m := &v1alpha1.TalosMachine{}
		if !e.there(m, e.machine[i].Name) || !metav1.IsControlledBy(m, owner) || m.Status.InstallDisk != "/dev/sda" {
			e.t.Errorf("machine %d: %+v", i, m)
		}

		if i == 0 && (m.Status.ConfigHash != "abc" || m.Status.EtcdMemberID != "f00d") {
			e.t.Errorf("status of machine 0: %+v", m.Status)
		}

		if _, ok := m.Annotations[v1alpha1.PausedAnnotation]; ok || !slices.Equal(m.Finalizers, []string{v1alpha1.Finalizer}) {
			e.t.Errorf("metadata of machine %d: %+v", i, m.ObjectMeta)
		}

		for _, f := range m.ManagedFields {
			if f.Manager == "talos-operator-move" && strings.Contains(string(f.FieldsV1.GetRawBytes()), "f:spec") {
				e.t.Errorf("the move owns the spec of %s: %s", m.Name, f.FieldsV1.GetRawBytes())
			}
		}
	}

	for _, kind := range []string{"-kubeconfig", "-talosconfig"} {
		if !e.there(secret, name+kind) || !metav1.IsControlledBy(secret, cp) {
			e.t.Errorf("%s: %+v", kind, secret.OwnerReferences)
		}
	}

	patches := &corev1.ConfigMap{}
	if !e.there(patches, name+"-patches") || patches.Data["k"] == "" || len(patches.BinaryData) != 1 ||
		patches.Annotations[v1alpha1.PausedAnnotation] != "" || e.there(secret, name+"-patches") {
		e.t.Errorf("the source of patches: %+v", patches)
	}

	if cp.Annotations[v1alpha1.PausedAnnotation] != "" || cp.Annotations[v1alpha1.MovingAnnotation] != "" {
		e.t.Errorf("the copy is still paused: %v", cp.Annotations)
	}
}

// moves: everything goes along under its new owners, the source stays paused and says so, a second run changes
// nothing, and the source is removed only on request.
func moves(t *testing.T) {
	e := newFleet(t, "here")
	e.operate()

	out, _, failed := e.move("--dry-run")
	if failed != "" || !strings.Contains(out, "Would move 8 objects") || strings.Count(out, "\n") != 9 {
		t.Fatalf("dry run: %q, %q", out, failed)
	}

	source := &v1alpha1.TalosControlPlane{}
	key := client.ObjectKeyFromObject(e.cp)

	if err := e.client.Get(t.Context(), key, source); err != nil || len(source.Annotations) != 0 ||
		e.there(&corev1.Namespace{}, e.ns) || e.there(&v1alpha1.TalosControlPlane{}, "here") {
		t.Fatalf("the dry run wrote: %v, %v", source.Annotations, err)
	}

	out, _, failed = e.move("-o", "json")
	if failed != "" {
		t.Fatal(failed)
	}

	var result struct {
		Moved, Paused, SourceDeleted bool
		Objects                      []string
	}
	if err := json.Unmarshal([]byte(out), &result); err != nil || !result.Moved || result.Paused || result.SourceDeleted ||
		len(result.Objects) != 8 {
		t.Errorf("result: %s", out)
	}

	e.arrived()

	if err := e.client.Get(t.Context(), key, source); err != nil || source.Annotations[v1alpha1.PausedAnnotation] != "moved" ||
		!strings.HasSuffix(source.Annotations["talos-operator.io/moved-to"], "/"+e.ns) ||
		source.Annotations[v1alpha1.MovingAnnotation] != "" {
		t.Errorf("the source: %v, %v", source.Annotations, err)
	}

	copied := &v1alpha1.TalosControlPlane{}
	e.there(copied, "here")

	out, _, failed = e.move()
	if failed != "" || !strings.Contains(out, "never release it there") || !strings.Contains(out, "--delete-source") {
		t.Errorf("the second run: %q, %q", out, failed)
	}

	again := &v1alpha1.TalosControlPlane{}
	if e.there(again, "here"); again.ResourceVersion != copied.ResourceVersion {
		t.Error("the second run wrote")
	}

	if _, _, failed = e.move("--delete-source"); failed != "" {
		t.Fatal(failed)
	}

	for _, o := range []client.Object{e.cp, e.worker, e.machine[0], e.machine[1]} {
		if err := e.client.Get(t.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
			t.Errorf("%s is still on the source: %v", o.GetName(), err)
		}
	}

	if s := e.secret("here-state"); len(s.Finalizers) != 0 {
		t.Errorf("the state Secret of the source cannot be deleted: %v", s.Finalizers)
	}

	e.arrived()
}

// keepsAPause: what a person paused is paused where it arrives.
func keepsAPause(t *testing.T) {
	e := newFleet(t, "held")
	e.operate()

	// The operator writes the status meanwhile, so an update might come too late.
	base := e.cp.DeepCopy()
	e.cp.Annotations = map[string]string{v1alpha1.PausedAnnotation: "by hand"}

	if err := e.client.Patch(t.Context(), e.cp, client.MergeFrom(base)); err != nil {
		t.Fatal(err)
	}

	out, _, failed := e.move("--to-namespace", e.ns+"-new")
	if failed != "" || !strings.Contains(out, "is paused there too") {
		t.Errorf("move: %q, %q", out, failed)
	}

	cp := &v1alpha1.TalosControlPlane{}
	if err := e.to.Get(t.Context(), types.NamespacedName{Namespace: e.ns + "-new", Name: "held"}, cp); err != nil ||
		cp.Annotations[v1alpha1.PausedAnnotation] != "by hand" {
		t.Errorf("the copy: %v, %v", cp.Annotations, err)
	}
}

// crasher lets a number of writes to an API server through and then nothing more, until it is told anew.
type crasher struct{ left atomic.Int64 }

func (c *crasher) kubeconfig(t *testing.T, cfg *rest.Config, namespace string) string {
	t.Helper()

	transport, err := rest.TransportFor(cfg)
	if err != nil {
		t.Fatal(err)
	}

	host, err := url.Parse(cfg.Host)
	if err != nil {
		t.Fatal(err)
	}

	proxy := httputil.NewSingleHostReverseProxy(host)
	proxy.Transport = transport

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && !r.URL.Query().Has("dryRun") && c.left.Add(-1) < 0 {
			http.Error(w, "the process is gone", http.StatusInternalServerError)

			return
		}

		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)

	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := management.WriteKubeconfig(path, &rest.Config{Host: server.URL}, namespace); err != nil {
		t.Fatal(err)
	}

	return path
}

// goesOnAfterACrash: the move ends after any of its writes, and the next run goes on. Until everything is there the
// copy is paused, and at no moment are both sides released.
func goesOnAfterACrash(t *testing.T) {
	e := newFleet(t, "torn")
	e.operate()

	var c crasher

	e.toCfg = c.kubeconfig(t, second.Config(), "default")
	t.Setenv("KUBECONFIG", c.kubeconfig(t, planes.UserAccess(t, "admin", e.ns), e.ns))

	runs := 0

	for writes := int64(0); ; writes++ {
		c.left.Store(writes)

		_, _, failed := e.move("--delete-source")
		runs++

		if failed == "" {
			break
		}

		if runs > 100 {
			t.Fatalf("no end: %s", failed)
		}

		e.oneSide()
	}

	if runs < 5 {
		t.Errorf("%d runs: the move writes more than that", runs)
	}

	e.arrived()
}

// oneSide: the source is paused or gone before the copy is released.
func (e *fleet) oneSide() {
	e.t.Helper()

	source, copied := &v1alpha1.TalosControlPlane{}, &v1alpha1.TalosControlPlane{}
	if !e.there(copied, e.cp.Name) || copied.Annotations[v1alpha1.PausedAnnotation] != "" {
		return
	}

	e.arrived()

	err := e.client.Get(e.t.Context(), client.ObjectKeyFromObject(e.cp), source)
	if !apierrors.IsNotFound(err) && source.Annotations[v1alpha1.PausedAnnotation] != "moved" {
		e.t.Errorf("both sides are released: %v, %v", source.Annotations, err)
	}
}
