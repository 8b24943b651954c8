package work_test

import (
	"context"
	"errors"
	"iter"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/internal/controller/work"
	"github.com/talos-operator/talos-operator/test/wait"
)

var errFull = errors.New("others work")

// desk is a runner with room for the work of two objects of each group.
type desk struct {
	*work.Runner[string, struct{}]

	end map[string]chan struct{}
}

func newDesk(t *testing.T) *desk {
	t.Helper()

	r := work.New[string, struct{}](t.Context(), func(key types.NamespacedName) client.Object {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	})
	d := &desk{r, map[string]chan struct{}{}}

	t.Cleanup(r.Stop)

	return d
}

func key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "default", Name: name}
}

// begin asks for work of an object of a group, which lasts until finish, and reports whether it began.
func (d *desk) begin(t *testing.T, name, group string) bool {
	t.Helper()

	end := make(chan struct{})

	_, err := d.Do(work.Order[string, struct{}]{
		Key: key(name), UID: "1", About: group, Timeout: time.Hour,
		Admit: func(running iter.Seq2[types.NamespacedName, string]) error {
			n := 0

			for _, other := range running {
				if other == group {
					n++
				}
			}

			if n >= 2 {
				return errFull
			}

			return nil
		},
		Do: func(ctx context.Context) (struct{}, error) {
			select {
			case <-end:
			case <-ctx.Done():
			}

			return struct{}{}, ctx.Err()
		},
	})
	if err != nil && !errors.Is(err, errFull) {
		t.Fatal(err)
	}

	if err == nil {
		d.end[name] = end
	}

	return err == nil
}

// finish ends the work of an object, and expects these to be reconciled: itself, and what it has made room for.
func (d *desk) finish(t *testing.T, name string, next ...string) {
	t.Helper()
	close(d.end[name])
	d.expect(t, append([]string{name}, next...)...)
}

func (d *desk) expect(t *testing.T, names ...string) {
	t.Helper()

	for _, want := range names {
		if e := wait.Done(t, "a reconciliation of "+want, d.Ends()); e.Object.GetName() != want {
			t.Fatalf("%s is reconciled, not %s", e.Object.GetName(), want)
		}
	}
}

func (d *desk) full(t *testing.T, name, group string) {
	t.Helper()

	if d.begin(t, name, group) {
		t.Fatalf("%s began while two others of %s work", name, group)
	}
}

func (d *desk) room(t *testing.T, name, group string) {
	t.Helper()

	if !d.begin(t, name, group) {
		t.Fatalf("%s did not begin", name)
	}
}

// TestQueue: work that was rejected is reconciled once other work has made room for it, in the order of its first
// request, and one for each work that ends.
func TestQueue(t *testing.T) {
	t.Parallel()

	d := newDesk(t)

	d.room(t, "a1", "a")
	d.room(t, "a2", "a")
	d.room(t, "b1", "b")
	d.full(t, "a3", "a")
	d.full(t, "a4", "a")
	d.full(t, "a3", "a") // keeps its place

	d.finish(t, "b1") // which makes no room for them
	d.finish(t, "a1", "a3")
	d.room(t, "a3", "a")
	d.finish(t, "a2", "a4")
	d.room(t, "a4", "a")
	d.finish(t, "a3")
	d.finish(t, "a4")

	d.room(t, "a5", "a") // nothing was reconciled in between
	d.finish(t, "a5")
}

// TestQueueForgets: an object that is gone, or has begun after all, is not told that there is room.
func TestQueueForgets(t *testing.T) {
	t.Parallel()

	d := newDesk(t)

	d.room(t, "a1", "a")
	d.room(t, "a2", "a")
	d.full(t, "a3", "a")
	d.full(t, "a4", "a")
	d.full(t, "a5", "a")
	d.Drop(key("a3"))

	d.finish(t, "a1", "a4")
	d.room(t, "a5", "a") // before a4 did
	d.finish(t, "a2")    // a4 was told already, and a5 has begun
	d.finish(t, "a5")
}
