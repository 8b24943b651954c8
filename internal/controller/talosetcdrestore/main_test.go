package talosetcdrestore_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/app"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/raise"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/backup/verify/verifytest"
	"github.com/talos-operator/talos-operator/internal/backupstorage"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/controller/talosetcdrestore"
	"github.com/talos-operator/talos-operator/internal/statestore"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/workload"
	"github.com/talos-operator/talos-operator/lab/management"
	"github.com/talos-operator/talos-operator/test/plane"
)

// api is the API server of all tests; each has a namespace and a folder of backups of its own.
var api *plane.Plane

func TestMain(m *testing.M) {
	verifytest.Child()
	raiseChild()

	ctrl.SetLogger(logr.Discard())
	os.Exit(run(m))
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

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "talosetcdrestore-test-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)

	scheme, err := app.Scheme()
	if err != nil {
		panic(err)
	}

	p, err := management.Start(context.Background(), management.Options{Dir: dir, Address: "127.49.0.1"})
	if err != nil {
		panic(err)
	}
	defer p.Kill()

	api, estateDir = &plane.Plane{Plane: p, Scheme: scheme}, dir
	defer closeAll()

	return m.Run()
}

// limit of every wait. Nothing takes a tenth of it on a machine with nothing else to do.
const limit = 4 * time.Minute

// env is one replica of the operator's controller of restores, called by hand under the operator's own roles, with an
// estate to work on.
type env struct {
	*testing.T

	estate *estate
	ns     string
	// root is the folder of backups, store opens it.
	root   string
	store  *store.Directory
	admin  client.WithWatch
	client client.WithWatch
	r      *talosetcdrestore.Reconciler
	events *events.FakeRecorder
	clock  *offsetClock
	log    *lockedBuffer
	id     *age.X25519Identity
	// each is called before each pass: what others do meanwhile.
	each func()
	// wire changes what the operator reads and writes with.
	wire func(client.WithWatch) client.WithWatch
}

// newEnv makes the objects of an estate in a namespace of their own. Its state is there, unless it is kept back.
func newEnv(t *testing.T, on *estate, without ...string) *env {
	t.Helper()

	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}

	e := &env{
		T: t, estate: on, ns: api.Namespace(t), root: t.TempDir(), admin: api.Admin(t), events: events.NewFakeRecorder(10000),
		clock: &offsetClock{}, log: &lockedBuffer{}, id: id,
	}

	if e.store, err = store.NewDirectory(e.root); err != nil {
		t.Fatal(err)
	}

	e.secret("age", map[string]string{"identity": id.String()})
	e.controlPlane()

	if len(without) == 0 {
		e.createState(on.state)
	}

	e.restart()

	return e
}

// controlPlane makes the control plane and its machines.
func (e *env) controlPlane() {
	e.Helper()

	cp := e.estate.controlPlane(e.ns)
	e.create(cp)

	yes := true

	for _, n := range e.estate.nodes {
		m := &v1alpha1.TalosMachine{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: e.ns, Name: n.Name(),
				Labels: map[string]string{
					v1alpha1.ControlPlaneLabel: cluster, v1alpha1.RoleLabel: string(v1alpha1.RoleControlPlane),
				},
				OwnerReferences: []metav1.OwnerReference{{
					APIVersion: v1alpha1.GroupVersion.String(), Kind: "TalosControlPlane", Name: cp.Name, UID: cp.UID, Controller: &yes,
				}},
			},
			Spec: v1alpha1.TalosMachineSpec{
				ControlPlaneRef: v1alpha1.ObjectReference{Name: cluster}, Role: v1alpha1.RoleControlPlane, Address: n.Address(),
			},
		}
		e.create(m)

		m.Status.Hostname = n.Name()
		if err := e.admin.Status().Update(e.Context(), m); err != nil {
			e.Fatal(err)
		}
	}
}

func (e *env) states() *statestore.Store {
	return &statestore.Store{Client: e.admin, Reader: e.admin, Clock: e.clock}
}

func (e *env) createState(st *clusterstate.State) {
	e.Helper()

	if _, err := e.states().Create(e.Context(), e.key(cluster), st); err != nil {
		e.Fatal(err)
	}
}

// held is the state of the cluster, nil while there is none.
func (e *env) held() *statestore.Held {
	e.Helper()

	held, err := e.states().Load(e.Context(), e.key(cluster))
	if errors.Is(err, statestore.ErrNotFound) {
		return nil
	}

	if err != nil {
		e.Fatal(err)
	}

	return held
}

func (e *env) create(o client.Object) {
	e.Helper()

	if err := e.admin.Create(e.Context(), o); err != nil {
		e.Fatal(err)
	}
}

func (e *env) secret(name string, data map[string]string) {
	e.Helper()
	e.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name}, StringData: data})
}

func (e *env) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: e.ns, Name: name}
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

	e.client = api.Manager(e.T)
	if e.wire != nil {
		e.client = e.wire(e.client)
	}

	pool := talos.NewPool()
	e.Cleanup(pool.Close)

	e.r = &talosetcdrestore.Reconciler{
		Client: e.client, Reader: e.client, States: &statestore.Store{Client: e.client, Reader: e.client, Clock: e.clock},
		Nodes: pool, Workloads: &workload.Clients{Clock: e.clock}, Recorder: e.events, Clock: e.clock,
		Storage: &backupstorage.Opener{Reader: e.client, Root: e.root}, Scratch: e.TempDir(), Exe: exe, Version: "test",
	}
}

// restore asks for a restore from the folder of backups.
func (e *env) restore(name string, edit ...func(*v1alpha1.TalosEtcdRestoreSpec)) *v1alpha1.TalosEtcdRestore {
	e.Helper()

	r := &v1alpha1.TalosEtcdRestore{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name},
		Spec: v1alpha1.TalosEtcdRestoreSpec{
			ControlPlaneRef: v1alpha1.ObjectReference{Name: cluster},
			Source:          v1alpha1.RestoreSource{Storage: &v1alpha1.BackupStorage{Directory: &v1alpha1.DirectoryStorage{}}},
			IdentitiesFrom:  []v1alpha1.SecretKeyReference{{Name: "age", Key: "identity"}},
		},
	}
	for _, f := range edit {
		f(&r.Spec)
	}

	e.create(r)

	return r
}

func discard(s *v1alpha1.TalosEtcdRestoreSpec) { s.DiscardNewerData = true }

// pass reconciles once and reads the object again.
func (e *env) pass(r *v1alpha1.TalosEtcdRestore) (ctrl.Result, error) {
	e.Helper()

	if e.each != nil {
		e.each()
	}

	logger, err := app.NewLogger(e.log, "debug")
	if err != nil {
		e.Fatal(err)
	}

	res, err := e.r.Reconcile(ctrl.LoggerInto(e.Context(), logger), request(r))
	if err != nil {
		logger.Error(err, "Reconciler error")
	}

	if gerr := e.admin.Get(e.Context(), client.ObjectKeyFromObject(r), r); client.IgnoreNotFound(gerr) != nil {
		e.Fatal(gerr)
	}

	return res, err
}

// until reconciles until the check is content.
func (e *env) until(r *v1alpha1.TalosEtcdRestore, what string, check func() bool) {
	e.Helper()

	e.eventually(what, func() error {
		_, err := e.pass(r)
		if check() {
			return nil
		}

		return fmt.Errorf("last pass: %w; status %s", err, show(r))
	})
}

func (e *env) eventually(what string, check func() error) {
	e.Helper()

	end := time.NewTimer(limit)
	defer end.Stop()

	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()

	for {
		err := check()
		if err == nil {
			return
		}

		select {
		case <-end.C:
			lines := strings.Split(e.log.String(), "\n")
			e.Fatalf("%s: not in time: %v\n%s", what, err, strings.Join(lines[max(0, len(lines)-20):], "\n"))
		case <-tick.C:
		}
	}
}

func show(r *v1alpha1.TalosEtcdRestore) string {
	raw, _ := json.Marshal(r.Status)

	return string(raw)
}

func has(r *v1alpha1.TalosEtcdRestore, kind string, status metav1.ConditionStatus, reason, part string) bool {
	c := meta.FindStatusCondition(r.Status.Conditions, kind)

	return c != nil && c.Status == status && c.Reason == reason && strings.Contains(c.Message, part)
}

// refused drives a restore until it waits for a person, for a reason.
func (e *env) refused(r *v1alpha1.TalosEtcdRestore, reason, part string) {
	e.Helper()
	e.until(r, r.Name+" is refused with "+reason, func() bool {
		return meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionStalled) != nil
	})
	e.condition(r, v1alpha1.ConditionStalled, metav1.ConditionTrue, reason, part)
	e.condition(r, v1alpha1.ConditionReady, metav1.ConditionFalse, reason, part)
}

// waits drives a restore until it waits for a reason.
func (e *env) waits(r *v1alpha1.TalosEtcdRestore, reason, part string) {
	e.Helper()
	e.until(r, r.Name+" waits with "+reason, func() bool {
		return has(r, v1alpha1.ConditionReady, metav1.ConditionFalse, reason, part)
	})

	if c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionStalled); c != nil {
		e.Errorf("it waits, and says that a person has to act: %+v", c)
	}
}

// at drives a restore until it is at a step.
func (e *env) at(r *v1alpha1.TalosEtcdRestore, step v1alpha1.RestoreStep) {
	e.Helper()
	e.until(r, r.Name+" is at "+string(step), func() bool { return r.Status.Step == step })
}

func request(r *v1alpha1.TalosEtcdRestore) ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKeyFromObject(r)}
}

// complete drives a restore to its end.
func (e *env) complete(r *v1alpha1.TalosEtcdRestore) {
	e.Helper()
	e.until(r, r.Name+" is complete", func() bool {
		if r.Status.Step == v1alpha1.RestoreStopped {
			e.Fatalf("it was stopped: %s\n%s", show(r), e.log)
		}

		return has(r, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonRestored, "")
	})

	held := e.held()
	if rt := held.State.Runtime; rt.Restore != nil || rt.Disruption != nil || rt.Bootstrap == nil ||
		rt.Bootstrap.Machine != r.Status.Machine || rt.Bootstrap.EstablishedAt == nil {
		e.Errorf("the state after the restore: %+v", rt)
	}

	if r.Status.Step != v1alpha1.RestoreComplete || meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionStalled) != nil ||
		meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionReconciling) != nil {
		e.Errorf("the status after the restore: %s", show(r))
	}
}

func (e *env) condition(r *v1alpha1.TalosEtcdRestore, kind string, status metav1.ConditionStatus, reason, part string) {
	e.Helper()

	if !has(r, kind, status, reason, part) {
		e.Errorf("condition %s is %+v; want %s, %s, %q", kind, meta.FindStatusCondition(r.Status.Conditions, kind), status,
			reason, part)
	}
}

// keepsSecrets searches the status, the events and the log for secrets.
func (e *env) keepsSecrets(more ...string) {
	e.Helper()

	s := e.estate.state.Bundle.Secrets()
	secrets := append(more, "PRIVATE KEY", e.id.String(), s.TrustdInfo.Token, s.Cluster.Secret, s.Cluster.ID,
		s.Secrets.BootstrapToken, s.Secrets.SecretboxEncryptionSecret)

	texts := []string{e.log.String()}

	list := &v1alpha1.TalosEtcdRestoreList{}
	if err := e.admin.List(e.Context(), list, client.InNamespace(e.ns)); err != nil {
		e.Fatal(err)
	}

	for i := range list.Items {
		texts = append(texts, show(&list.Items[i]))
	}

	for range len(e.events.Events) {
		texts = append(texts, <-e.events.Events)
	}

	for _, text := range texts {
		for _, secret := range secrets {
			if secret != "" && strings.Contains(text, secret) {
				e.Errorf("a secret is told: %s", text)
			}
		}
	}
}

// change edits an object of the management plane.
func change[T client.Object](e *env, o T, edit func(T)) {
	e.Helper()

	e.eventually("an edit", func() error {
		if err := e.admin.Get(e.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}

		edit(o)

		return e.admin.Update(e.Context(), o)
	})
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

var errDead = errors.New("the operator is dead")

// dying is a client whose operator dies at a write: before it, or after it and before its answer.
func dying(before bool, dies func() bool) func(client.WithWatch) client.WithWatch {
	dead := false

	write := func(do func() error) error {
		if dead {
			return errDead
		}

		dead = dies()
		if dead && before {
			return errDead
		}

		if err := do(); err != nil || !dead {
			return err
		}

		return errDead
	}

	return func(c client.WithWatch) client.WithWatch {
		dead = false // another operator

		return interceptor.NewClient(c, interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				return write(func() error { return c.Create(ctx, o, opts...) })
			},
			Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				return write(func() error { return c.Update(ctx, o, opts...) })
			},
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				return write(func() error { return c.Patch(ctx, o, p, opts...) })
			},
			SubResourcePatch: func(
				ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption,
			) error {
				return write(func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
			},
		})
	}
}

// offsetClock is the real time, moved on by tests that will not wait.
type offsetClock struct{ by atomic.Int64 }

// Now implements clock.PassiveClock.
func (c *offsetClock) Now() time.Time { return time.Now().Add(time.Duration(c.by.Load())) }

// Since implements clock.PassiveClock.
func (c *offsetClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func (c *offsetClock) sleep(d time.Duration) { c.by.Add(int64(d)) }

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.b.Write(p)
}

// String is what was written.
func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.b.String()
}
