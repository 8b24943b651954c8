package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/metrics"
	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/internal/talos/nodewatch"
	"github.com/talos-operator/talos-operator/test/wait"
)

// TestParts: two shards in one process tell of their own clusters only, so that a sum is right; one forgets nothing of the
// other when it is scraped, and when it is given up its series go.
func TestParts(t *testing.T) {
	registry, elected := prometheus.NewPedanticRegistry(), make(chan struct{})
	close(elected)

	parts := map[string]*metrics.Part{}

	for shard, name := range map[string]string{"7": "seven", "8": "eight"} {
		part, cache := metrics.NewPart(registry, shard), clusterNamed(t, name)
		parts[shard] = part

		_, err := metrics.Register(part, metrics.Sources{
			Client: cache, Clock: testclock.NewFakePassiveClock(time.Unix(1000, 0)), Elected: elected, Part: true,
			Streams: func() map[nodewatch.Mode]nodewatch.Streams { return nil },
			Latency: func(string) (time.Duration, bool) { return 0, false },
		})
		if err != nil {
			t.Fatal(err)
		}

		pass(t, "kubernetescluster", name)
		part.Count(t.Context(), cache, elected)
		wait.For(t, "the shard is told of", func(context.Context) error {
			if !slices.Contains(series(t, metrics.ShardHeld), "talos_operator_shard_held "+shard+" 1") {
				return errors.New("it is not")
			}

			return nil
		})
	}

	for range 2 {
		for _, metric := range []string{"talos_operator_cluster_phase", "talos_operator_last_reconciliation_timestamp_seconds"} {
			if got := clustersOf(t, registry, metric); !slices.Equal(got, []string{"7 seven", "8 eight"}) {
				t.Errorf("%s: %v", metric, got)
			}
		}
	}

	metrics.Certificate(t, "ns", "seven", "ca-etcd", time.Unix(1, 0))

	metrics.ObserveEtcd("ns", "seven", []safety.Node{{Name: "seven-0", MemberID: 1, Leader: 1}})
	metrics.ObserveQuota("ns", "seven-0", 1)

	told, _ := etcdPlane(t, "seven", "seven-0")
	if got := told(); len(got) == 0 {
		t.Error("nothing is told of etcd")
	}

	parts["7"].End()

	// A replica that takes the shard again tells nothing of before.
	if got := told(); len(got) > 0 {
		t.Errorf("of the etcd is told: %v", got)
	}

	if got := clustersOf(t, registry, "talos_operator_cluster_phase"); !slices.Equal(got, []string{"8 eight"}) {
		t.Errorf("when a shard is given up, %v is told", got)
	}

	if left := series(t, metrics.ShardHeld); slices.Contains(left, "talos_operator_shard_held 7 1") {
		t.Errorf("it is held: %v", left)
	}

	parts["8"].End()
}

// TestKnownShards: a shard that no replica holds is told of as such, by each replica that knows of it, until it does not
// exist any more; so is one that this replica has given up.
func TestKnownShards(t *testing.T) {
	elected := make(chan struct{})
	close(elected)

	is := func(what string, want ...string) {
		t.Helper()
		wait.For(t, what, func(context.Context) error {
			var got []string

			for _, s := range series(t, metrics.ShardHeld) {
				if strings.HasPrefix(s, "talos_operator_shard_held 4") {
					got = append(got, strings.TrimPrefix(s, "talos_operator_shard_held "))
				}
			}

			if slices.Sort(got); !slices.Equal(got, want) {
				return fmt.Errorf("%v are told of, want %v", got, want)
			}

			return nil
		})
	}

	part := metrics.NewPart(prometheus.NewPedanticRegistry(), "41")
	part.Count(t.Context(), clusterNamed(t, "one"), elected)
	is("it is held before the others are known", "41 1")

	metrics.KnowShards([]int{40, 41, 42})
	is("three are known", "40 0", "41 1", "42 0")

	metrics.KnowShards([]int{40})
	is("one does not exist any more, and one is held nevertheless", "40 0", "41 1")

	metrics.KnowShards([]int{40, 41})
	part.End()
	is("one is given up", "40 0", "41 0")

	metrics.KnowShards(nil)
	is("none exists")
}

func clusterNamed(t *testing.T, name string) client.Client {
	t.Helper()

	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), vitistackv1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}

	c := &vitistackv1alpha1.KubernetesCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	c.Status.Phase = vitistackv1alpha1.PhaseRunning

	cp := &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	machine := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name + "-0"}}
	machine.Spec.ControlPlaneRef.Name = name

	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(c, cp, machine).Build()
}

// clustersOf are the shard and the cluster of each series of a metric.
func clustersOf(t *testing.T, g prometheus.Gatherer, metric string) []string {
	t.Helper()

	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}

	var out []string

	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}

			if f.GetName() == metric {
				out = append(out, strings.TrimSpace(labels["shard"]+" "+labels["cluster"]+labels["name"]))
			}
		}
	}

	slices.Sort(out)

	return out
}
