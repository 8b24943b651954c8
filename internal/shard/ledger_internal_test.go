package shard

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// gate is an API server without objects, whose lists end once it is opened.
type gate struct {
	client.Reader

	lists  atomic.Int32
	opened chan struct{}
}

func (g *gate) List(context.Context, client.ObjectList, ...client.ListOption) error {
	g.lists.Add(1)
	<-g.opened

	return nil
}

// perSearch are the lists of a search in a shard without clusters: of the three kinds that others belong to.
const perSearch = 3

// TestSearchesAreShared: passes that want to know the same at the same time wait for one search, and none takes the
// answer of a search that is older than what it knows of.
func TestSearchesAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, p := &gate{opened: make(chan struct{})}, place{"TalosMachine", "default"}
		v := &View{Live: g, Ledger: NewLedger(), Shard: "0"}

		var passes sync.WaitGroup

		come := func(n int) {
			for range n {
				passes.Go(func() {
					if _, err := v.strays(t.Context(), p); err != nil {
						t.Error(err)
					}
				})
			}

			synctest.Wait()
		}

		come(5)

		if got := g.lists.Load(); got != 1 {
			t.Errorf("%d lists are in progress, want one", got)
		}

		// A control plane arrives while they look, and then other passes come.
		v.Ledger.saw(planeKind, watch.Event{
			Type: watch.Added, Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}},
		})
		come(5)

		ctx, cancel := context.WithCancel(t.Context())
		cancel()

		if _, err := v.strays(ctx, p); !errors.Is(err, context.Canceled) {
			t.Errorf("a pass that is cancelled gets %v", err)
		}

		close(g.opened)
		passes.Wait()

		if got := g.lists.Load(); got != 2*perSearch {
			t.Errorf("%d lists for passes before and after the arrival, want those of two searches, %d", got, 2*perSearch)
		}

		come(1)

		if got := g.lists.Load(); got != 2*perSearch {
			t.Errorf("%d lists when nothing has changed", got)
		}
	})
}
