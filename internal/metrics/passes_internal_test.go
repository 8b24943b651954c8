package metrics

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/talos-operator/talos-operator/internal/liveness"
)

// TestPassesAreBounded: where metrics are not read, the reconciliations of objects that are gone do not pile up.
func TestPassesAreBounded(t *testing.T) {
	p := &passes{ended: map[pass]time.Time{}}
	end := func(controller, name string) {
		p.end(pass{controller, types.NamespacedName{Name: name}}, time.Unix(0, 0))
	}

	for i := range 3 {
		end("talosetcdbackup", strconv.Itoa(i))
	}

	if len(p.ended) != 0 {
		t.Errorf("%d passes of which nobody is told", len(p.ended))
	}

	for i := range mostPasses + 1 {
		end("talosmachine", strconv.Itoa(i))
	}

	if len(p.ended) != 1 {
		t.Errorf("%d passes are remembered", len(p.ended))
	}
}

// TestPassesAreWatched: a reconciliation counts as running until it ends, also by a panic.
func TestPassesAreWatched(t *testing.T) {
	req := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "watched"}}
	running := func() bool { return slices.Contains(liveness.Process.Running(), "talosmachine ns/watched") }

	for _, panics := range []bool{false, true} {
		seen := false

		r := Observe("talosmachine", reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
			if seen = running(); panics {
				panic("as wanted")
			}

			return reconcile.Result{}, nil
		}))

		func() {
			defer func() { _ = recover() }()

			_, _ = r.Reconcile(t.Context(), req)
		}()

		if !seen || running() {
			t.Errorf("panics %v: running meanwhile: %v, afterwards: %v", panics, seen, running())
		}
	}
}
