package talosetcdrestore_test

import (
	"sync"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// TestNotSentIsNotAwaited: a node that reboots right before it is asked to start etcd from the snapshot is not asked, and
// the restore does not wait for what it was not asked for.
func TestNotSentIsNotAwaited(t *testing.T) {
	t.Parallel()

	e := recovering(t, 1)
	e.backUp()

	var once sync.Once

	e.Client.BeforeWrites(func(_ string, o client.Object) {
		if r, ok := o.(*v1alpha1.TalosEtcdRestore); ok && r.Status.SentAt != nil {
			once.Do(func() { e.reboots(0) })
		}
	})

	r := e.restore("r")
	e.until(r, "it was about to ask", func() bool { return e.fleet.Calls("EtcdRecover") == 1 })

	if n := e.fleet.Calls("Bootstrap"); n > 0 || r.Status.SentAt != nil {
		t.Errorf("%d bootstraps of a node that has rebooted; recorded as sent at %v", n, r.Status.SentAt)
	}

	e.complete(r)

	if n := e.fleet.Calls("Bootstrap"); n != 1 {
		t.Errorf("%d bootstraps", n)
	}
}
