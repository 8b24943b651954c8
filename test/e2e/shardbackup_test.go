package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/metrics"
	"github.com/talos-operator/talos-operator/lab/s3"
)

// TestShardsBackUp: the backups of a schedule, their verification and their drills are the work of the replica that holds the
// shard of the cluster, and of no other one. It is killed while no backup is in progress, and another one takes over: each
// backup is taken, stored and drilled once.
func TestShardsBackUp(t *testing.T) {
	const cluster, shard = "kept", "1"

	w := newEtcdWorld(t)
	w.manager.kill()

	cfg, err := w.plane.AuditedConfigIn(w.ns)
	if err != nil {
		t.Fatal(err)
	}

	if err := w.plane.InstallShards(t.Context(), w.ns); err != nil {
		t.Fatal(err)
	}

	var replicas []*manager

	for range 2 {
		m := w.startManagerAs(cfg, "--leader-elect", "--leader-election-namespace="+w.ns, "--shards=2")
		t.Cleanup(m.kill)

		replicas = append(replicas, m)
	}

	w.manager = replicas[1]
	w.eventually("each replica holds one shard", w.shardsHeld(2, 2))

	n := w.boot(1)
	w.apply(strings.Replace(clusterManifest(cluster, n.Address(), []string{n.Address()}, nil), "metadata:\n",
		fmt.Sprintf("metadata:\n  labels: {%s: %q}\n", v1alpha1.ShardLabel, shard), 1))
	w.running(cluster)

	server := w.bucket()

	store, err := s3.NewProxy(server, w.subnet+".253")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(store.Close)
	w.credentials(server)

	storage := bucketOf(server)
	storage.S3.Endpoint = store.Endpoint()

	w.schedule(cluster, storage, w.identityFor("age"))
	w.backedUp(cluster)
	w.suspend(cluster, true)

	owner, other := replicas[0], replicas[1]
	if held(t, owner, shard) == 0 {
		owner, other = other, owner
	}

	if held(t, owner, shard) != 1 || held(t, other, shard) != 0 {
		t.Fatal("not one replica holds the shard")
	}

	if n := worked(t, owner, "talosetcdbackup") * worked(t, owner, "talosetcdbackupschedule"); n == 0 {
		t.Error("the replica that holds the shard took no backup")
	}

	if n := worked(t, other, "talosetcdbackup") + worked(t, other, "talosetcdbackupschedule"); n > 0 {
		t.Errorf("the other replica looked at backups %.0f times", n)
	}

	before := w.backupCount()

	owner.kill()
	w.eventually("the other replica holds both shards", w.shardsHeld(2, 1))
	w.suspend(cluster, false)
	w.eventually("there is another backup", func(context.Context) error {
		if w.backupCount() == before {
			return errNoBackup
		}

		return nil
	})
	w.suspend(cluster, true)

	w.eachOnce(store.Seen(), n.Faults().Calls("EtcdSnapshot"))
}

// suspend ends or resumes a schedule, and waits until no backup is in progress.
func (w *world) suspend(schedule string, suspended bool) {
	w.t.Helper()

	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"suspend":%t}}`, suspended))
	o := &v1alpha1.TalosEtcdBackupSchedule{}
	o.Namespace, o.Name = w.ns, schedule

	if err := w.client.Patch(context.Background(), o, patch); err != nil {
		w.t.Fatal(err)
	}

	w.eventually("the schedule is resumed, or nothing is in progress", func(ctx context.Context) error {
		if err := w.client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil || !suspended {
			return err
		}

		if o.Status.ObservedGeneration != o.Generation {
			return errors.New("the operator has not seen it yet")
		}

		list := &v1alpha1.TalosEtcdBackupList{}
		if err := w.client.List(ctx, list, client.InNamespace(w.ns)); err != nil {
			return err
		}

		for i := range list.Items {
			b := &list.Items[i]
			for _, kind := range []string{v1alpha1.ConditionComplete, v1alpha1.ConditionVerified} {
				if err := w.condition(b, b.Name, kind, metav1.ConditionTrue)(ctx); err != nil {
					return err
				}
			}
		}

		return nil
	})
}

// backupCount is the number of backups in the namespace.
func (w *world) backupCount() int {
	w.t.Helper()

	list := &v1alpha1.TalosEtcdBackupList{}
	if err := w.client.List(context.Background(), list, client.InNamespace(w.ns)); err != nil {
		w.t.Fatal(err)
	}

	return len(list.Items)
}

// held is the metric of a replica by which it tells whether it holds a shard.
func held(t *testing.T, m *manager, shard string) float64 {
	t.Helper()

	return metricOf(t, m, "talos_operator_shard_held", "shard")[shard]
}

// worked is how many times a controller of a replica has reconciled something.
func worked(t *testing.T, m *manager, controller string) float64 {
	t.Helper()

	return metricOf(t, m, "controller_runtime_reconcile_total", "controller")[controller]
}

func metricOf(t *testing.T, m *manager, name, by string) map[string]float64 {
	t.Helper()

	found, err := metrics.Scrape(t.Context(), "http://"+m.metrics+"/metrics")
	if err != nil {
		t.Fatal(err)
	}

	return found.Sum(name, by, nil)
}

// eachOnce checks that of each backup one snapshot was taken, and one manifest and one result of a drill were written.
func (w *world) eachOnce(requests []string, snapshots int) {
	w.t.Helper()

	written := map[string]int{}

	for _, seen := range requests {
		method, uri, _ := strings.Cut(seen, " ")
		file, _, _ := strings.Cut(uri, "?")

		if method == http.MethodPut && strings.HasSuffix(file, ".json") {
			written[path.Base(file)]++
		}
	}

	var backups []string

	for file, times := range written {
		if times != 1 {
			w.t.Errorf("%s was written %d times", file, times)
		}

		if id, ok := strings.CutSuffix(file, ".manifest.json"); ok {
			backups = append(backups, id)
		}
	}

	slices.Sort(backups)

	for _, id := range backups {
		if written[id+".verified.json"] != 1 {
			w.t.Errorf("%d drills of %s", written[id+".verified.json"], id)
		}
	}

	if len(backups) < 2 || snapshots != len(backups) {
		w.t.Errorf("%d snapshots were taken for the backups %v", snapshots, backups)
	}

	list := &v1alpha1.TalosEtcdBackupList{}
	if err := w.client.List(context.Background(), list, client.InNamespace(w.ns)); err != nil {
		w.t.Fatal(err)
	}

	for _, b := range list.Items {
		if b.Status.Tries != 1 {
			w.t.Errorf("backup %s took %d attempts", b.Name, b.Status.Tries)
		}
	}
}
