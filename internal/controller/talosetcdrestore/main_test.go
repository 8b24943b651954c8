package talosetcdrestore_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"filippo.io/age"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/raise"
	"github.com/talos-operator/talos-operator/internal/backup/storage"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/backup/verify/verifytest"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/controller/talosetcdrestore"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/workload"
	"github.com/talos-operator/talos-operator/test/harness"
	"github.com/talos-operator/talos-operator/test/plane"
)

// api is the API server of all tests; each has a namespace and a folder of backups of its own.
var api *plane.Plane

func TestMain(m *testing.M) {
	verifytest.Child()
	raiseChild()
	plane.Main(m, &api, closeAll)
}

// raiseChild does what the hidden command of our own binary does.
func raiseChild() {
	if len(os.Args) < 4 || os.Args[1] != raise.CommandName {
		return
	}

	by, err := strconv.ParseInt(os.Args[2], 10, 64)
	if err == nil {
		err = raise.Run(os.Stdin, by, os.Args[3] == "true")
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}

	os.Exit(0)
}

// env is one replica of the operator's controller of restores, called by hand under the operator's own roles, with an
// fleet to work on.
type env struct {
	*harness.Env

	fleet *fleet
	// root is the folder of the namespace for backups, store opens it.
	root  string
	store *store.Directory
	r     *talosetcdrestore.Reconciler
	id    *age.X25519Identity
	// each is called before each reconciliation: what others do meanwhile.
	each func()
}

// newEnv makes the objects of a fleet in a namespace of their own. Its state is there, unless it is kept back. The
// clock of the operator goes, as that of the nodes.
func newEnv(t *testing.T, on *fleet, without ...string) *env {
	t.Helper()

	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}

	e := &env{Env: harness.New(t, api), fleet: on, id: id}
	e.root = filepath.Join(t.TempDir(), e.Namespace)

	if err := os.Mkdir(e.root, 0o700); err != nil {
		t.Fatal(err)
	}

	e.Clock.Run()

	if e.store, err = store.NewDirectory(e.root); err != nil {
		t.Fatal(err)
	}

	e.CreateSecret("age", map[string]string{"identity": id.String()})
	e.List(on.Fleet)

	if len(without) == 0 {
		e.CreateState(cluster, on.State)
	}

	e.restart()

	return e
}

// held is the state of the cluster, nil while there is none.
func (e *env) held() *clusterstate.Held {
	e.Helper()

	held, err := e.States().Load(e.Context(), e.Key(cluster))
	if errors.Is(err, clusterstate.ErrNotFound) {
		return nil
	}

	if err != nil {
		e.Fatal(err)
	}

	return held
}

// restart is a crash of the operator: nothing that it kept in memory is left.
func (e *env) restart() {
	e.Helper()

	exe, err := os.Executable()
	if err != nil {
		e.Fatal(err)
	}

	if e.r != nil {
		e.r.Nodes.Close()
	}

	e.Restart()

	pool := talos.NewPool()
	e.Cleanup(pool.Close)

	e.r = &talosetcdrestore.Reconciler{
		Client: e.Client, Reader: e.Client, States: &clusterstate.Store{Client: e.Client, Reader: e.Client, Clock: e.Clock},
		Nodes: pool, Workloads: &workload.Clients{Clock: e.Clock}, Recorder: e.Events, Clock: e.Clock,
		Storage: &storage.Opener{Reader: e.Client, Root: filepath.Dir(e.root)}, Scratch: e.TempDir(), Exe: exe, Version: "test",
	}
}

// restore asks for a restore from the folder of backups.
func (e *env) restore(name string, edit ...func(*v1alpha1.TalosEtcdRestoreSpec)) *v1alpha1.TalosEtcdRestore {
	e.Helper()

	r := &v1alpha1.TalosEtcdRestore{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: name},
		Spec: v1alpha1.TalosEtcdRestoreSpec{
			ControlPlaneRef: v1alpha1.ObjectReference{Name: cluster},
			Source: v1alpha1.RestoreSource{
				Storage:          &v1alpha1.BackupStorage{Directory: &v1alpha1.DirectoryStorage{}},
				VerificationKeys: []string{e.signer().Public().String()},
			},
			IdentitiesFrom: []v1alpha1.SecretKeyReference{{Name: "age", Key: "identity"}},
		},
	}
	for _, f := range edit {
		f(&r.Spec)
	}

	e.Create(r)

	return r
}

func discard(s *v1alpha1.TalosEtcdRestoreSpec) { s.DiscardNewerData = true }

// pass reconciles once and reads the object again.
func (e *env) pass(r *v1alpha1.TalosEtcdRestore) (ctrl.Result, error) {
	e.Helper()

	if e.each != nil {
		e.each()
	}

	return e.Pass(e.r, r)
}

// until reconciles until the check is content.
func (e *env) until(r *v1alpha1.TalosEtcdRestore, what string, check func() bool) {
	e.Helper()
	e.Until(r, what, nil, func() error { _, err := e.pass(r); return err }, check)
}

// refused drives a restore until it waits for a person, for a reason.
func (e *env) refused(r *v1alpha1.TalosEtcdRestore, reason, part string) {
	e.Helper()
	e.until(r, "it is refused with "+reason, func() bool {
		return meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionStalled) != nil
	})
	e.Condition(r, v1alpha1.ConditionStalled, metav1.ConditionTrue, reason, part)
	e.Condition(r, v1alpha1.ConditionComplete, metav1.ConditionFalse, reason, part)
}

// waits drives a restore until it waits for a reason.
func (e *env) waits(r *v1alpha1.TalosEtcdRestore, reason, part string) {
	e.Helper()
	e.until(r, "it waits with "+reason, func() bool {
		return harness.Has(r, v1alpha1.ConditionComplete, metav1.ConditionFalse, reason, part)
	})

	if c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionStalled); c != nil {
		e.Errorf("it waits, and says that a person has to act: %+v", c)
	}
}

// at drives a restore until it is at a step.
func (e *env) at(r *v1alpha1.TalosEtcdRestore, step v1alpha1.RestoreStep) {
	e.Helper()
	e.until(r, "it is at "+string(step), func() bool { return r.Status.Step == step })
}

func request(r *v1alpha1.TalosEtcdRestore) ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKeyFromObject(r)}
}

// complete drives a restore to its end.
func (e *env) complete(r *v1alpha1.TalosEtcdRestore) {
	e.Helper()
	e.until(r, "it is complete", func() bool {
		if r.Status.Step == v1alpha1.RestoreStopped {
			e.Fatalf("it was stopped: %s\n%s", harness.Show(r), e.Logs)
		}

		return harness.Has(r, v1alpha1.ConditionComplete, metav1.ConditionTrue, v1alpha1.ReasonRestored, "")
	})

	held := e.held()
	if rt := held.State.Runtime; rt.Restore != nil || rt.Disruption != nil || rt.Bootstrap == nil ||
		rt.Bootstrap.Machine != r.Status.Machine || rt.Bootstrap.EstablishedAt == nil {
		e.Errorf("the state after the restore: %+v", rt)
	}

	if r.Status.Step != v1alpha1.RestoreComplete || meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionStalled) != nil ||
		meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionReconciling) != nil {
		e.Errorf("the status after the restore: %s", harness.Show(r))
	}
}

// keepsSecrets searches for the secrets of the cluster and of the test.
func (e *env) keepsSecrets(more ...string) {
	e.Helper()
	e.KeepsSecrets(e.fleet.State.Bundle, append(more, e.fleet.State.Bundle.ClusterID(), e.id.String())...)
}

// objects are the keys in the folder of backups.
func (e *env) objects() []string {
	e.Helper()

	var keys []string

	for o, err := range e.store.List(e.Context(), "") {
		if err != nil {
			e.Fatal(err)
		}

		keys = append(keys, o.Key)
	}

	return keys
}

// sets are the backups in the folder.
func (e *env) sets() []backup.Set {
	e.Helper()

	sets, err := backup.List(e.Context(), e.store, backup.Prefix(cluster))
	if err != nil {
		e.Fatal(err)
	}

	return sets
}
