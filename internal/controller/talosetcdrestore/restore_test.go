package talosetcdrestore_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/decide/restore"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/test/harness"
)

const (
	early = "/registry/configmaps/default/early"
	late  = "/registry/configmaps/default/late"
)

// write puts keys into the etcd of the first node.
func (e *env) write(st *clusterstate.State, keys ...string) {
	e.Helper()
	e.Eventually("keys are written", func(ctx context.Context) error { return put(ctx, st, e.fleet.Nodes[0].Address(), keys...) })
}

// holds: the etcd of a node has one key and has not the other.
func (e *env) holds(st *clusterstate.State, i int, there, lost string) (revision int64) {
	e.Helper()

	c, err := harness.EtcdClient(st, e.fleet.Nodes[i].Address())
	if err != nil {
		e.Fatal(err)
	}
	defer c.Close()

	for key, want := range map[string]int{there: 1, lost: 0} {
		got, err := c.Get(e.Context(), key)
		if err != nil || len(got.Kvs) != want {
			e.Errorf("%s on %s: %v, %v", key, e.fleet.Nodes[i].Name(), got, err)

			continue
		}

		revision = got.Header.Revision
	}

	return revision
}

// backedUp is an env whose etcd was backed up, and then written to.
func backedUp(t *testing.T, size int) *env {
	t.Helper()

	e := newEnv(t, own(t, size))
	e.fleet.serveKubernetes(t, e.fleet.State)
	e.write(e.fleet.State, append(slices.Clone(content), early)...)
	e.backUp(e.real)
	e.write(e.fleet.State, late)

	return e
}

// once: etcd was bootstrapped once since the fleet was made, on one node, and all nodes are members of that.
func (e *env) once(bootstraps int) {
	e.Helper()

	var on []string

	for _, n := range e.fleet.Nodes {
		// The first one founded the fleet.
		if calls := n.Faults().Calls("EtcdRecover"); calls > 0 {
			on = append(on, n.Name())
		}
	}

	if got := e.fleet.Calls("EtcdRecover"); len(on) != 1 || got != bootstraps {
		e.Errorf("%d snapshots were sent, to %v; want %d, to one", got, on, bootstraps)
	}
}

// TestOneNode: a cluster of one is restored from its backup. What it lost is kept, nothing but etcd is wiped, and then
// nothing happens any more.
func TestOneNode(t *testing.T) {
	t.Parallel()

	e := backedUp(t, 1)

	held := e.held()
	held.State.Runtime.Upgrade = &clusterstate.UpgradeRun{
		Component: "Talos", To: "v1.13.10", Attempt: 3, Phase: clusterstate.UpgradeBegun, Hooks: []clusterstate.HookRun{{Name: "one"}},
	}

	if err := e.States().Update(t.Context(), held); err != nil {
		t.Fatal(err)
	}

	r := e.restore("r", discard)
	e.complete(r)
	e.once(1)

	// Its upgrade was that of another etcd.
	if run := e.held().State.Runtime.Upgrade; run.Phase != clusterstate.UpgradeFinished || run.Attempt != 3 || len(run.Hooks) != 0 {
		t.Errorf("the upgrade is %+v", run)
	}

	st := &r.Status
	if st.Backup == nil || st.Revision < st.Backup.Revision || st.Backup.Revision < 5 || st.MemberID == "" || st.Tries != 1 ||
		st.Backup.TotalKeys < 5 || !st.Backup.Time.Before(&r.CreationTimestamp) {
		t.Errorf("the status is %s", harness.Show(r))
	}

	if after := e.holds(e.fleet.State, 0, early, late); after < st.Backup.Revision {
		t.Errorf("revision %d, the backup has %d", after, st.Backup.Revision)
	}

	var steps []string
	for _, s := range st.Steps {
		steps = append(steps, string(s.Step))
	}

	if got := strings.Join(steps, " "); got != "Preflight SavingCurrentData Wiping Preparing Uploading Recovering Proving Joining Complete" {
		t.Errorf("the steps are %s", got)
	}

	e.keptLate(r)

	before := e.fleet.Mutations()

	api.NoWrites(t, e.Namespace, func() {
		e.restart()

		for range 3 {
			if res, err := e.pass(r); err != nil || !res.IsZero() {
				t.Errorf("%+v, %v", res, err)
			}
		}
	})

	if now := e.fleet.Mutations(); now != before {
		t.Errorf("%d calls that change something after the end", now-before)
	}

	e.keepsSecrets()
	e.gone(r)
}

// TestKubeletThatStandsAlone: a node whose config keeps its kubelet from registering is not waited for in Kubernetes,
// which never hears of it. One that should be there is.
func TestKubeletThatStandsAlone(t *testing.T) {
	t.Parallel()

	e := backedUp(t, 1)
	e.fleet.apis[0].empty.Store(true)

	r := e.restore("r", discard)
	e.until(r, "it waits for the kubelet", func() bool {
		c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionComplete)

		return c != nil && strings.Contains(c.Message, "waiting for the kubelets of cp-0")
	})

	patch, err := configpatcher.LoadPatch([]byte("machine: {kubelet: {skipNodeRegistration: true}}"))
	if err != nil {
		t.Fatal(err)
	}

	e.Eventually("the kubelet stands alone", func(ctx context.Context) error {
		return e.fleet.Ask(ctx, 0, func(n *talos.Node) error {
			live, err := n.MachineConfig(ctx)
			if err != nil {
				return err
			}

			out, err := configpatcher.Apply(configpatcher.WithBytes(live), []configpatcher.Patch{patch})
			if err != nil {
				return err
			}

			data, err := out.Bytes()
			if err != nil {
				return err
			}

			_, err = n.Apply(ctx, data, talos.ApplyOptions{Mode: talos.ApplyNoReboot})

			return err
		})
	})
	e.complete(r)
}

// keptLate: what was written after the backup is in the copy that the restore made; the copy restores.
func (e *env) keptLate(first *v1alpha1.TalosEtcdRestore) {
	e.Helper()

	sets := e.sets()
	if len(sets) != 2 || !strings.HasSuffix(first.Status.LastSnapshot, sets[1].ID) {
		e.Fatalf("%d backups, the last snapshot is at %q", len(sets), first.Status.LastSnapshot)
	}

	again := e.restore("forth", discard, byKey(sets[1].ID), func(s *v1alpha1.TalosEtcdRestoreSpec) {
		s.LastSnapshot = v1alpha1.LastSnapshotSkip
	})
	e.complete(again)
	e.holds(e.fleet.State, 0, late, "none")

	if again.Status.LastSnapshot != "" || len(e.sets()) != 2 {
		e.Errorf("a copy was made: %s", harness.Show(again))
	}
}

// TestThreeNodes: all are wiped, one gets the snapshot, the others join it.
func TestThreeNodes(t *testing.T) {
	t.Parallel()

	e := backedUp(t, 3)
	r := e.restore("r", discard)
	e.complete(r)
	e.once(1)

	if err := e.fleet.Whole(t.Context()); err != nil {
		t.Fatal(err)
	}

	for i, n := range e.fleet.Nodes {
		e.holds(e.fleet.State, i, early, late)

		// One that was back before the others were gone has joined them again.
		if resets := n.Faults().Calls("Reset"); resets < 1 || resets > restore.MaxWipes {
			t.Errorf("%s was reset %d times: %s", n.Name(), resets, harness.Show(r))
		}
	}
}

// election is for how long an etcd without a leader may be choosing one.
const election = 15 * time.Second

// TestLostMachines: with two of three gone for ever etcd has no quorum and does not respond: its database is copied,
// and the third one starts anew from the backup.
func TestLostMachines(t *testing.T) {
	t.Parallel()

	e := backedUp(t, 3)

	for _, n := range e.fleet.Nodes[1:] {
		if err := n.PowerOff(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	waiting := e.restore("waiting", discard)
	e.waits(waiting, v1alpha1.ReasonWaitingForEvidence, "lostMachines")
	e.gone(waiting)

	r := e.restore("r", discard, func(s *v1alpha1.TalosEtcdRestoreSpec) { s.LostMachines = []string{"cp-1", "cp-2"} })
	// As far as it is known, it chooses a leader just now.
	e.waits(r, v1alpha1.ReasonWaitingForEvidence, "etcd runs without a leader")
	e.Clock.Sleep(election)
	e.complete(r)
	e.once(1)
	e.holds(e.fleet.State, 0, early, late)

	if err := e.fleet.Ask(t.Context(), 0, func(n *talos.Node) error {
		members, err := n.EtcdMembers(t.Context())
		if err == nil && len(members) != 1 {
			err = fmt.Errorf("members %v", members)
		}

		return err
	}); err != nil {
		t.Error(err)
	}

	e.copied(r)
}

// copied: the restore kept the database of an etcd that did not respond. It is restored where its missing checksum is
// allowed.
func (e *env) copied(first *v1alpha1.TalosEtcdRestore) {
	e.Helper()

	key := strings.TrimPrefix(first.Status.LastSnapshot, e.store.Location()+"/")
	if !strings.HasSuffix(key, ".db.zst.age") || !slices.Contains(e.objects(), key) {
		e.Fatalf("the copy is at %q of %v", first.Status.LastSnapshot, e.objects())
	}

	only := func(s *v1alpha1.TalosEtcdRestoreSpec) { s.LostMachines = []string{"cp-1", "cp-2"} }
	r := e.restore("forth", discard, foreign, unsummed, byKey(key), only)
	e.complete(r)
	e.holds(e.fleet.State, 0, late, "none")

	if !r.Status.Backup.Copied {
		e.Errorf("the status is %s", harness.Show(r))
	}
}

// TestRevisionBump: etcd begins above the revision that was lost, so watchers notice; a copied database too.
func TestRevisionBump(t *testing.T) {
	t.Parallel()

	const bump = 1_000_000

	e := backedUp(t, 1)

	c, err := harness.EtcdClient(e.fleet.State, e.fleet.Nodes[0].Address())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	lost := e.holds(e.fleet.State, 0, late, "none")
	r := e.restore("r", discard, func(s *v1alpha1.TalosEtcdRestoreSpec) { s.RevisionBump = bump })
	e.complete(r)

	after := e.holds(e.fleet.State, 0, early, late)
	if after <= lost || r.Status.Revision < r.Status.Backup.Revision+bump {
		t.Errorf("revision %d after, %d was lost; %s", after, lost, harness.Show(r))
	}

	e.Eventually("a watch from before is told that it is too old", func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()

		w := <-c.Watch(ctx, early, clientv3.WithRev(lost))
		if w.CompactRevision == 0 {
			return fmt.Errorf("it got %+v, %w", w, w.Err())
		}

		return nil
	})
}

// recovering are machines in maintenance mode, and a control plane without a PKI. They get the config of the state as
// soon as there is one, as the other controllers give it.
func recovering(t *testing.T, size int) *env {
	t.Helper()

	e := newEnv(t, fresh(t, size, harness.RealEtcd), "state")
	e.each = func() {
		held := e.held()
		if held == nil {
			return
		}

		e.fleet.serveKubernetes(t, held.State)

		for i := range e.fleet.Nodes {
			_ = e.fleet.Configure(t.Context(), i, held.State) // not at once
		}
	}

	return e
}

// TestTotalLoss: from fresh machines and a backup, with its PKI.
func TestTotalLoss(t *testing.T) {
	t.Parallel()

	e := recovering(t, 3)
	e.backUp()

	// A stranger with nothing but the bucket may have written what is in it.
	keyless := e.restore("keyless", func(s *v1alpha1.TalosEtcdRestoreSpec) { s.Source.VerificationKeys = nil })
	e.refused(keyless, backup.ReasonUnauthenticated, "source.verificationKeys")
	e.gone(keyless)

	if e.held() != nil {
		t.Fatal("there is a state Secret")
	}

	r := e.restore("r")
	e.complete(r)
	e.once(1)
	e.holds(e.fleet.State, 2, content[0], early)

	e.Condition(r, v1alpha1.ConditionBackupAuthenticated, metav1.ConditionTrue, v1alpha1.ReasonBackupAuthentic, "")

	held := e.held()
	if held.State.Bundle.Fingerprint() != e.fleet.State.Bundle.Fingerprint() {
		t.Error("the PKI is another one")
	}

	if r.Status.LastSnapshot != "" || e.fleet.Calls("Reset") != 0 {
		t.Errorf("there was nothing to wipe: %s", harness.Show(r))
	}
}

// TestIsolated: another cluster takes over the etcd, with a PKI of its own and the keys of the Secrets.
func TestIsolated(t *testing.T) {
	t.Parallel()

	e := recovering(t, 1)

	st, err := harness.NewState("origin", e.fleet.Endpoint())
	if err != nil {
		t.Fatal(err)
	}

	e.backUp(of(e, st))

	key, err := st.Bundle.BackupVerificationKey()
	if err != nil {
		t.Fatal(err)
	}

	origin := func(s *v1alpha1.TalosEtcdRestoreSpec) {
		s.Source.Cluster, s.Source.VerificationKeys = "origin", []string{key.String()}
	}

	// Without isolate it would be a second cluster with the PKI of the first.
	clash := e.restore("clash", origin)
	e.refused(clash, v1alpha1.ReasonBackupMismatch, "isolate")
	e.gone(clash)

	if e.held() != nil {
		t.Fatal("there is a state Secret")
	}

	r := e.restore("r", origin, func(s *v1alpha1.TalosEtcdRestoreSpec) { s.Isolate = true })
	e.complete(r)

	got, want := e.held().State, st
	if got.Bundle.CAFingerprint() == want.Bundle.CAFingerprint() || got.Bundle.ClusterID() == want.Bundle.ClusterID() ||
		got.BundleConfig.ClusterName != cluster {
		t.Errorf("it is no other cluster: %+v", got.BundleConfig)
	}

	if g, w := got.Bundle.Secrets().Secrets, want.Bundle.Secrets().Secrets; g.SecretboxEncryptionSecret != w.SecretboxEncryptionSecret ||
		g.BootstrapToken == w.BootstrapToken {
		t.Error("it has not the keys of the Secrets, or it has the token for kubelets")
	}

	e.holds(got, 0, content[0], early)
}
