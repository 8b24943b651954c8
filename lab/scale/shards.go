package scale

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/bench"
	"github.com/talos-operator/talos-operator/lab/demo"
	"github.com/talos-operator/talos-operator/lab/management"
	"github.com/talos-operator/talos-operator/lab/process"
)

// patience is how long the clusters of a killed replica may take to be worked on again.
const patience = 5 * time.Minute

// sharded is a run with several replicas.
type sharded struct {
	*run

	client client.Client
	// others are the replicas besides the one of the stack.
	others []*process.Process
}

// RunShards starts a lab with several replicas that share the clusters, kills one of them while clusters come up, and
// measures what that does.
func RunShards(ctx context.Context, o Options) error {
	if o.Replicas < 2 || o.Shards < o.Replicas {
		return errors.New("there must be two replicas at least, and a shard for each")
	}

	if o.Clusters < o.Shards || o.Clusters > maxClusters {
		return fmt.Errorf("the number of clusters must be between that of shards and %d", maxClusters)
	}

	o.Stack.Modelled, o.Stack.Shards = true, true
	o.Stack.OperatorArgs = append(slices.Clone(o.Stack.OperatorArgs), fmt.Sprintf("--shards=%d", o.Shards))

	return bench.Run(ctx, o.Options, func(ctx context.Context, b *bench.Bench) error {
		c, err := demo.NewClient(b.Stack.Plane.Config())
		if err != nil {
			return err
		}

		s := &sharded{run: &run{Bench: b, opts: o}, client: c}
		defer s.stop()

		for _, phase := range []func(context.Context) error{s.join, s.createAndKill, s.check} {
			if err := phase(ctx); err != nil {
				return err
			}
		}

		return nil
	})
}

// join starts the other replicas, and waits until each holds its part.
func (s *sharded) join(ctx context.Context) error {
	for i := range s.opts.Replicas - 1 {
		log, err := os.Create(filepath.Join(s.Stack.Dir(), fmt.Sprintf("manager-%d.log", i+2)))
		if err != nil {
			return fmt.Errorf("opening the log of a replica: %w", err)
		}

		proc, err := process.Start("talos-operator", s.opts.Stack.Operator,
			append([]string{"manager", "--leader-election-namespace=" + management.ManagerNamespace},
				s.opts.Stack.OperatorArgs...),
			append(process.BaseEnv(), "KUBECONFIG="+filepath.Join(s.Stack.Dir(), "manager.kubeconfig"),
				"METRICS_BIND_ADDRESS=0", "HEALTH_PROBE_BIND_ADDRESS=0",
				"RESULTS_PATH="+filepath.Join(s.Stack.Dir(), fmt.Sprintf("results-%d", i+2))), log)
		if err != nil {
			return err
		}

		s.others = append(s.others, proc)
	}

	return s.Await(ctx, "each replica holds its part", func() (bool, error) {
		held, err := s.held(ctx)

		return len(held) == s.opts.Shards && len(holders(held)) == s.opts.Replicas, err
	}, nil)
}

func (s *sharded) stop() {
	for _, p := range s.others {
		p.Kill()
		<-p.Done()
	}
}

// held are the shards that a replica holds, by Lease.
func (s *sharded) held(ctx context.Context) (map[string]string, error) {
	list := &coordinationv1.LeaseList{}
	if err := s.client.List(ctx, list, client.InNamespace(management.ManagerNamespace)); err != nil {
		return nil, fmt.Errorf("listing Leases: %w", err)
	}

	out := map[string]string{}

	for _, l := range list.Items {
		label := l.Labels[v1alpha1.ShardLabel]
		if h := l.Spec.HolderIdentity; label != "" && label != "member" && h != nil && *h != "" {
			out[label] = *h
		}
	}

	return out, nil
}

func holders(held map[string]string) map[string]bool {
	out := map[string]bool{}
	for _, h := range held {
		out[h] = true
	}

	return out
}

// createAndKill creates all clusters, and kills a replica once half of them are ready. The other replicas finish what
// it was doing.
func (s *sharded) createAndKill(ctx context.Context) error {
	before := time.Now()

	s.Logf("creating %d clusters, for %d replicas", s.opts.Clusters, s.opts.Replicas)

	if _, err := s.Create(ctx, s.clusters()); err != nil {
		return err
	}

	err := s.Await(ctx, "half of the clusters are ready", func() (bool, error) {
		ready, _ := s.Watch.ReadyClusters()

		return len(ready) >= (s.opts.Clusters+1)/2, nil
	}, nil)
	if err != nil {
		return err
	}

	if err := s.kill(ctx); err != nil {
		return err
	}

	if err := s.allReady(ctx); err != nil {
		return err
	}

	if err := s.Emit(bench.Metric{Name: "all_ready_s", Value: time.Since(before).Seconds(), Unit: "s"}); err != nil {
		return err
	}

	return s.Settle(ctx)
}

// kill kills a replica, and waits until others hold its shards.
func (s *sharded) kill(ctx context.Context) error {
	before, err := s.held(ctx)
	if err != nil {
		return err
	}

	ready, _ := s.Watch.ReadyClusters()
	s.Logf("killing a replica; %d clusters are ready", len(ready))

	victim, killed := s.others[0], time.Now()
	victim.Kill()
	<-victim.Done()

	var after map[string]string

	err = s.Await(ctx, "other replicas hold the shards of the one that is killed", func() (bool, error) {
		after, err = s.held(ctx)

		return len(after) == s.opts.Shards && len(holders(after)) == s.opts.Replicas-1, err
	}, nil)
	if err != nil {
		return err
	}

	took := time.Since(killed)

	for shard, h := range before {
		if after[shard] != h {
			s.Logf("shard %s went from %s to %s", shard, h, after[shard])
		}
	}

	return s.Emit(bench.Metric{Name: "takeover_s", Value: took.Seconds(), Unit: "s"})
}

// check emits how much memory the replicas that are left have needed, what was done twice, and what is not worked on.
// Every cluster is paused for that: one that no replica works on does not say so.
func (s *sharded) check(ctx context.Context) error {
	metrics := []bench.Metric{{Name: "replica_1_rss_mib", Value: bench.MiB(s.Stack.Manager.RSSPeak()), Unit: "MiB"}}

	for i, p := range s.others[1:] {
		peak, err := process.RSSPeak(p.PID())
		if err != nil {
			return err
		}

		metrics = append(metrics, bench.Metric{
			Name: fmt.Sprintf("replica_%d_rss_mib", i+3), Value: bench.MiB(peak), Unit: "MiB",
		})
	}

	twice, repeated := s.twice()
	sent := s.MutatingCalls()

	forgotten, err := s.pauseAll(ctx)
	if err != nil {
		return err
	}

	return s.Emit(append(metrics,
		bench.Metric{Name: "double_actions", Value: float64(twice + s.MutatingCalls() - sent), Unit: "calls"},
		bench.Metric{Name: "repeated_calls", Value: float64(repeated), Unit: "calls"},
		bench.Metric{Name: "forgotten", Value: float64(forgotten), Unit: "clusters"},
	)...)
}

// twice is how many nodes were bootstrapped beside another one of their cluster, and how many calls were sent to the
// same node again, as happens where a replica ends between a call and the record of it.
func (s *sharded) twice() (twice, repeated int) {
	for _, names := range s.byCluster() {
		bootstrapped := 0

		for _, name := range names {
			faults := s.Stack.Lab.Node(name).Faults()
			if calls := faults.Calls("Bootstrap"); calls > 0 {
				bootstrapped++
				repeated += calls - 1
			}

			repeated += max(faults.Calls("ApplyConfiguration")-1, 0)
		}

		twice += max(bootstrapped-1, 0)
	}

	return twice, repeated
}

// pauseAll pauses all clusters, and returns how many of them are not reported as paused.
func (s *sharded) pauseAll(ctx context.Context) (int, error) {
	_, err := s.ForAll(ctx, s.clusters(),
		func(ctx context.Context, c client.Client, kc *vitistackv1alpha1.KubernetesCluster) error {
			return c.Patch(ctx, kc, client.RawPatch("application/merge-patch+json",
				[]byte(`{"metadata":{"annotations":{"`+v1alpha1.PausedAnnotation+`":"true"}}}`)))
		})
	if err != nil {
		return 0, err
	}

	left, limit := 0, time.Now().Add(patience)

	err = s.Await(ctx, "every cluster is paused", func() (bool, error) {
		list := &vitistackv1alpha1.KubernetesClusterList{}
		if err := s.client.List(ctx, list, client.InNamespace(bench.Namespace)); err != nil {
			return false, fmt.Errorf("listing the clusters: %w", err)
		}

		left = 0

		for i := range list.Items {
			if !meta.IsStatusConditionTrue(list.Items[i].Status.Conditions, v1alpha1.ConditionPaused) {
				left++
			}
		}

		return left == 0 || time.Now().After(limit), nil
	}, nil)

	return left, err
}
