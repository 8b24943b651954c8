package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/test/wait"
)

// TestShards: three replicas share nine clusters. One is killed while they come up, one cluster goes to another shard,
// and another replica ends in order later: every cluster comes up, all objects of each are in one shard, no cluster is
// bootstrapped twice, nothing is sent again by those who take over, and in the end each cluster is still reconciled.
func TestShards(t *testing.T) {
	const clusters, shards = 9, 3

	w := newWorld(t)
	w.manager.kill()

	cfg, err := w.plane.AuditedConfigIn(w.ns)
	if err != nil {
		t.Fatal(err)
	}

	if err := w.plane.InstallShards(t.Context(), w.ns); err != nil {
		t.Fatal(err)
	}

	var replicas []*manager

	for range shards {
		m := w.startManagerAs(cfg, "--leader-elect", "--leader-election-namespace="+w.ns, fmt.Sprintf("--shards=%d", shards))
		t.Cleanup(m.kill)

		replicas = append(replicas, m)
	}

	w.manager = replicas[2]
	w.eventually("each replica holds one shard", w.shardsHeld(shards, shards))

	for i := range clusters {
		n := w.boot(i + 1)
		manifest := clusterManifest(fmt.Sprintf("c%d", i), n.Address(), []string{n.Address()}, nil)

		// Each shard has one at least.
		if i < shards {
			manifest = strings.Replace(manifest, "metadata:\n",
				fmt.Sprintf("metadata:\n  labels: {%s: \"%d\"}\n", v1alpha1.ShardLabel, i), 1)
		}

		w.apply(manifest)
	}

	w.eventually("a cluster is bootstrapped", func(context.Context) error {
		for _, n := range w.nodes {
			if n.Faults().Calls("Bootstrap") > 0 {
				return nil
			}
		}

		return fmt.Errorf("none is")
	})

	killed := wait.Now()

	replicas[0].kill()
	w.eventually("two replicas hold its shard", w.shardsHeld(shards, 2))
	t.Logf("the shard of the killed replica is taken over after %s", wait.Now().Sub(killed))

	for i := range clusters {
		w.running(fmt.Sprintf("c%d", i))
	}

	// It names its cluster, and belongs to nothing.
	w.apply(`apiVersion: talos-operator.io/v1alpha1
kind: TalosEtcdBackupSchedule
metadata: {name: yearly}
spec:
  schedule: "0 0 1 1 *"
  suspend: true
  backupTemplate:
    spec: {controlPlaneRef: {name: c0}, allowUnencrypted: true, storage: {s3: {endpoint: https://s3.example.com, bucket: backups, credentialsRef: {name: s3}}}}
`)
	w.eventually("a schedule is in the shard of its cluster", func(ctx context.Context) error {
		schedule := &v1alpha1.TalosEtcdBackupSchedule{}
		if err := w.client.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: "yearly"}, schedule); err != nil {
			return err
		}

		if schedule.Labels[v1alpha1.ShardLabel] != "0" {
			return fmt.Errorf("its labels are %v", schedule.Labels)
		}

		return nil
	})

	used := w.wholeShards(t)
	if len(used) != shards {
		t.Errorf("the clusters are in the shards %v", used)
	}

	w.quiet()

	sent := w.sentTo()

	w.moveShard(t, "c0", "1")

	if err := replicas[1].cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	wait.Done(t, "the second replica ends", replicas[1].done)

	if code := replicas[1].cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the second replica ends with %d: %s", code, replicas[1].log.String())
	}

	w.eventually("one replica holds everything", w.shardsHeld(shards, 1))
	w.eventually("it is ready", replicas[2].answers("/readyz", http.StatusOK))

	alone := w.startManagerAs(cfg, "--leader-elect", "--leader-election-namespace="+w.ns)
	t.Cleanup(alone.kill)
	wait.Done(t, "an operator without shards ends", alone.done)

	if log := alone.log.String(); !strings.Contains(log, "--shards=1") || alone.cmd.ProcessState.ExitCode() == 0 {
		t.Errorf("an operator without shards starts beside one with them: %s", log)
	}

	for i := range clusters {
		w.pause(fmt.Sprintf("c%d", i), "true")
	}

	for i := range clusters {
		w.eventually("each cluster is worked on", w.condition(&vitistackv1alpha1.KubernetesCluster{}, fmt.Sprintf("c%d", i),
			"Paused", "True"))
	}

	if after := w.sentTo(); after != sent {
		t.Errorf("something was sent again:\n%s\nbefore:\n%s", after, sent)
	}

	for address, n := range w.nodes {
		if calls := n.Faults().Calls("Bootstrap"); calls != 1 {
			t.Errorf("%s was bootstrapped %d times", address, calls)
		}
	}

	for _, m := range replicas {
		if log := m.log.String(); strings.Contains(log, "DATA RACE") || strings.Contains(log, "panic") {
			t.Errorf("a replica panics: %s", log)
		}
	}
}

// moveShard moves a cluster to another shard by command, while the operator works: all of it is there then, and the
// replica that holds that shard resumes it.
func (w *world) moveShard(t *testing.T, cluster, to string) {
	t.Helper()
	w.says(0, "Cluster "+cluster+" is in shard "+to+" now", "shard", "move", cluster, "--to", to, "--wait", "10m",
		"--operator-namespace", w.ns)
	w.says(0, "CLUSTERS", "shard", "list", "--operator-namespace", w.ns)

	w.wholeShards(t)

	c := &vitistackv1alpha1.KubernetesCluster{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: cluster}, c); err != nil {
		t.Fatal(err)
	}

	if at := c.Labels[v1alpha1.ShardLabel]; at != to {
		t.Errorf("cluster %s is in shard %s, not %s", cluster, at, to)
	}

	resumed := func(ctx context.Context) error {
		c := &vitistackv1alpha1.KubernetesCluster{}
		if err := w.client.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: cluster}, c); err != nil {
			return err
		}

		if meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionPaused) != nil {
			return fmt.Errorf("it still shows the pause")
		}

		return nil
	}
	w.eventually("the cluster is resumed", resumed)

	// Only the holder of its new shard can show what changes now.
	w.pause(cluster, "after the move")
	w.eventually("the new shard sees a pause", w.condition(c, cluster, v1alpha1.ConditionPaused, "True"))
	w.pause(cluster, "false")
	w.eventually("the new shard sees the end of it", resumed)
}

// shardsHeld: so many replicas hold so many shards.
func (w *world) shardsHeld(shards, replicas int) func(context.Context) error {
	return func(ctx context.Context) error {
		list := &coordinationv1.LeaseList{}
		if err := w.client.List(ctx, list, client.InNamespace(w.ns)); err != nil {
			return err
		}

		held, by := 0, map[string]bool{}

		for _, l := range list.Items {
			if h := l.Spec.HolderIdentity; h != nil && *h != "" && l.Labels[v1alpha1.ShardLabel] != "member" {
				held++

				by[*h] = true
			}
		}

		if held != shards || len(by) != replicas {
			return fmt.Errorf("%d shards are held by %v", held, by)
		}

		return nil
	}
}

// wholeShards fails for an object that is in another shard than its cluster, and returns how many clusters each shard
// has.
func (w *world) wholeShards(t *testing.T) map[string]int {
	t.Helper()

	of, used := map[string]string{}, map[string]int{}

	clusters := &vitistackv1alpha1.KubernetesClusterList{}
	planes, machines := &v1alpha1.TalosControlPlaneList{}, &v1alpha1.TalosMachineList{}
	infra := &vitistackv1alpha1.MachineList{}

	for _, list := range []client.ObjectList{clusters, planes, machines, infra} {
		if err := w.client.List(t.Context(), list, client.InNamespace(w.ns)); err != nil {
			t.Fatal(err)
		}
	}

	for _, c := range clusters.Items {
		of[c.Name] = c.Labels[v1alpha1.ShardLabel]
		used[of[c.Name]]++
	}

	check := func(kind, name, cluster, shard string) {
		if shard == "" || shard != of[cluster] {
			t.Errorf("%s %s is in shard %q, and cluster %s in %q", kind, name, shard, cluster, of[cluster])
		}
	}

	for _, o := range planes.Items {
		check("TalosControlPlane", o.Name, o.Name, o.Labels[v1alpha1.ShardLabel])
	}

	for _, o := range machines.Items {
		check("TalosMachine", o.Name, o.Spec.ControlPlaneRef.Name, o.Labels[v1alpha1.ShardLabel])
	}

	for _, o := range infra.Items {
		check("Machine", o.Name, o.Labels[vitistackv1alpha1.ClusterNameLabel], o.Labels[v1alpha1.ShardLabel])
	}

	return used
}

// sentTo is what was asked of each node, of what changes it.
func (w *world) sentTo() string {
	var out strings.Builder

	for i := range len(w.nodes) {
		n := w.nodes[w.address(i+1)]
		fmt.Fprintf(&out, "%d: %d changes\n", i+1, n.Faults().MutatingCalls())
	}

	return out.String()
}
