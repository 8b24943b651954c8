package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/demo"
)

// Observer follows the status of all clusters and machines through watches, as a person with kubectl would.
type Observer struct {
	mu       sync.Mutex
	clusters map[types.NamespacedName]time.Time // when a cluster became ready; zero while it is not
	machines map[types.NamespacedName]machine
	last     time.Time // of any event
}

// machine is what the status of a TalosMachine says.
type machine struct {
	ready, reachable bool
	// lost is when the status last began to say that the machine is not reachable.
	lost time.Time
}

// observe begins to watch; the watches end with the context.
func observe(ctx context.Context, cfg *rest.Config) (*Observer, error) {
	c, err := demo.NewClient(cfg)
	if err != nil {
		return nil, err
	}

	// The objects are not read from the cache: what counts is taken from the events.
	informers, err := cache.New(cfg, cache.Options{
		Scheme: c.Scheme(), DefaultTransform: cache.TransformStripManagedFields(),
	})
	if err != nil {
		return nil, fmt.Errorf("watching the management plane: %w", err)
	}

	o := &Observer{clusters: map[types.NamespacedName]time.Time{}, machines: map[types.NamespacedName]machine{}}

	for _, kind := range []struct {
		name   string
		object client.Object
		note   func(any)
	}{
		{"KubernetesClusters", &vitistackv1alpha1.KubernetesCluster{}, o.noteCluster},
		{"TalosMachines", &v1alpha1.TalosMachine{}, o.noteMachine},
	} {
		informer, err := informers.GetInformer(ctx, kind.object, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("watching %s: %w", kind.name, err)
		}

		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: kind.note, UpdateFunc: func(_, now any) { kind.note(now) },
		})
		if err != nil {
			return nil, fmt.Errorf("watching %s: %w", kind.name, err)
		}
	}

	go func() { _ = informers.Start(ctx) }() // it ends with the context

	if !informers.WaitForCacheSync(ctx) {
		return nil, fmt.Errorf("watching the management plane: %w", context.Cause(ctx))
	}

	return o, nil
}

func (o *Observer) noteCluster(obj any) {
	kc, ok := obj.(*vitistackv1alpha1.KubernetesCluster)
	if !ok {
		return
	}

	ready := kc.Status.Phase == vitistackv1alpha1.PhaseRunning &&
		meta.IsStatusConditionTrue(kc.Status.Conditions, vitistackv1alpha1.ConditionReady)

	o.mu.Lock()
	defer o.mu.Unlock()

	o.last = time.Now()
	key := client.ObjectKeyFromObject(kc)

	switch at := o.clusters[key]; {
	case !ready:
		o.clusters[key] = time.Time{}
	case at.IsZero():
		o.clusters[key] = o.last
	}
}

func (o *Observer) noteMachine(obj any) {
	tm, ok := obj.(*v1alpha1.TalosMachine)
	if !ok {
		return
	}

	condition := func(kind string) metav1.ConditionStatus {
		if c := meta.FindStatusCondition(tm.Status.Conditions, kind); c != nil {
			return c.Status
		}

		return metav1.ConditionUnknown
	}

	o.mu.Lock()
	defer o.mu.Unlock()

	o.last = time.Now()
	key := client.ObjectKeyFromObject(tm)
	m := o.machines[key]
	was := m.reachable
	m.ready = condition(v1alpha1.ConditionReady) == metav1.ConditionTrue

	switch condition(v1alpha1.ConditionReachable) {
	case metav1.ConditionTrue:
		m.reachable = true
	case metav1.ConditionFalse:
		m.reachable = false

		if was {
			m.lost = o.last
		}
	case metav1.ConditionUnknown:
	}

	o.machines[key] = m
}

// ReadyClusters returns when the clusters that are ready became so, and how many machines are ready.
func (o *Observer) ReadyClusters() (map[types.NamespacedName]time.Time, int) {
	o.mu.Lock()
	defer o.mu.Unlock()

	ready, machines := map[types.NamespacedName]time.Time{}, 0

	for key, at := range o.clusters {
		if !at.IsZero() {
			ready[key] = at
		}
	}

	for _, m := range o.machines {
		if m.ready && m.reachable {
			machines++
		}
	}

	return ready, machines
}

// LostAt is when a machine was first observed unreachable after a moment.
func (o *Observer) LostAt(key types.NamespacedName, since time.Time) (time.Time, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()

	m := o.machines[key]

	return m.lost, m.lost.After(since)
}

// quiet says that no status has changed for a while.
func (o *Observer) quiet(d time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()

	return time.Since(o.last) > d
}
