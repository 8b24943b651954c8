package talosmachine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// elsewhere refuses TalosMachines as the client of a shard does whose cluster goes to another one.
type elsewhere struct {
	client.Client

	refusal *failure.Error
}

func (c *elsewhere) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if _, is := o.(*v1alpha1.TalosMachine); is && c.refusal != nil {
		return c.refusal
	}

	return c.Client.Get(ctx, key, o, opts...)
}

// TestMachineLeavesTheShard: once a machine is in another shard, its event stream and its connection end, in the middle
// of the move already; when the whole cluster is there, it is not reconciled again; and one that comes back is watched
// again.
func TestMachineLeavesTheShard(t *testing.T) {
	e := found(t, 1, 0)
	c := &elsewhere{Client: e.r.Client}
	e.r.Client = c
	req := ctrl.Request{NamespacedName: client.ObjectKey{Namespace: e.Namespace, Name: "cp-0"}}

	creds, err := e.state().Bundle.TalosCredentials(e.Clock.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}

	ref := talos.NodeRef{
		Key: req.String(), Address: e.nodes["cp-0"].Address(),
		Credentials: talos.Credentials{CA: creds.CA, Cert: creds.Cert, Key: creds.Key},
	}

	e.until("cp-0", "it is watched", func(*v1alpha1.TalosMachine) bool {
		_, ok := e.r.Watcher.Get(req.String())

		return ok
	})

	// Only what it belongs to has a wrong label.
	c.refusal = &failure.Error{Class: failure.ClassWaiting, Reason: v1alpha1.ReasonOtherShard, Message: "its cluster is in shard 2"}

	if _, err := e.r.Reconcile(e.Context(), req); !errors.Is(err, c.refusal) {
		t.Errorf("with a wrong label above, the pass ends with %v", err)
	}

	if _, ok := e.r.Watcher.Get(req.String()); !ok {
		t.Error("with a wrong label above, the machine is not watched any more")
	}

	c.refusal = nil

	for _, whole := range []bool{false, true} {
		e.until("cp-0", "it is watched", func(*v1alpha1.TalosMachine) bool {
			_, ok := e.r.Watcher.Get(req.String())

			return ok
		})

		before, err := e.r.Nodes.Node(e.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}

		c.refusal = &failure.Error{
			Class: failure.ClassWaiting, Reason: v1alpha1.ReasonOtherShard, Message: "it is in shard 2", Elsewhere: whole, Left: true,
		}

		_, err = e.r.Reconcile(e.Context(), req)
		if whole != (err == nil) || !whole && !errors.Is(err, c.refusal) {
			t.Errorf("with the whole cluster elsewhere %v, the pass ends with %v", whole, err)
		}

		if _, ok := e.r.Watcher.Get(req.String()); ok {
			t.Errorf("with the whole cluster elsewhere %v, the machine is still watched", whole)
		}

		if after, err := e.r.Nodes.Node(e.Context(), ref); err != nil || after == before {
			t.Errorf("with the whole cluster elsewhere %v, its connection is still open; error %v", whole, err)
		}

		c.refusal = nil
	}

	e.until("cp-0", "it is watched again", func(*v1alpha1.TalosMachine) bool {
		_, ok := e.r.Watcher.Get(req.String())

		return ok
	})
}
