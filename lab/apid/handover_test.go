package apid_test

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/role"

	"github.com/talos-operator/talos-operator/lab/apid"
	"github.com/talos-operator/talos-operator/test/wait"
)

// TestHandoverWaitsForStreams: a stream that an insecure client holds open delays the API with certificates until the
// limit, and is served meanwhile; connections are refused. Without one, the API is back at once.
func TestHandoverWaitsForStreams(t *testing.T) {
	t.Parallel()

	cluster, addr := newPKI(t), addresses(t, 1)[0]
	n := startNode(t, "cp-1", addr, maintenance(t, "cp-1", addr))

	stream, err := insecure(t, n).Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}

	const limit = 2 * time.Second

	n.setIdentity(cluster.controlPlane(t, "cp-1", addr))

	began := wait.Now()
	n.server.Handover(limit, 0, 0)

	if err := connect(addr, patience); !errors.Is(err, syscall.ECONNREFUSED) && wait.Now().Sub(began) < limit {
		t.Errorf("a connection while a stream is open: %v", err)
	}

	if _, err := stream.Recv(); err == nil || wait.Now().Sub(began) < limit {
		t.Errorf("the stream ended after %s: %v", wait.Now().Sub(began), err)
	}

	c := cluster.client(t, n, role.Admin)
	wait.For(t, "the API is back", func(context.Context) error { return version(t, c, patience) })

	n.setIdentity(cluster.controlPlane(t, "cp-1", addr))
	n.server.Handover(time.Hour, 0, 0)
	wait.For(t, "the API is back, nobody had a stream", func(context.Context) error { return version(t, c, patience) })
}

// TestHandoverEndsWithThePower: a machine whose power goes in between does not serve again by itself.
func TestHandoverEndsWithThePower(t *testing.T) {
	t.Parallel()

	cluster, addr := newPKI(t), addresses(t, 1)[0]

	for name, end := range map[string]func(*node){
		"stop":     func(n *node) { n.server.Stop() },
		"shutdown": func(n *node) { n.server.Shutdown(0) },
	} {
		n := startNode(t, "cp-1", addr, maintenance(t, "cp-1", addr))

		stream, err := insecure(t, n).Events(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}

		n.server.Handover(time.Hour, 0, 0)
		end(n)

		if n.server.Serving() {
			t.Errorf("%s: it serves again", name)
		}

		if _, err := stream.Recv(); err == nil {
			t.Errorf("%s: the stream goes on", name)
		}

		n.setIdentity(cluster.controlPlane(t, "cp-1", addr))

		if err := n.server.Start(); err != nil {
			t.Fatal(err)
		}

		if err := version(t, cluster.client(t, n, role.Admin), patience); err != nil {
			t.Errorf("%s: started again: %v", name, err)
		}

		n.server.Stop()
	}
}

// TestHandoverAnswersAfterReload: so is one that came before the machine showed a new certificate and then went over.
func TestHandoverAnswersAfterReload(t *testing.T) {
	t.Parallel()

	cluster, addr := newPKI(t), addresses(t, 1)[0]
	n := startNode(t, "cp-1", addr, maintenance(t, "cp-1", addr))
	n.faults.Slow("Version", 300*time.Millisecond)

	identity := cluster.controlPlane(t, "cp-1", addr)

	var once sync.Once

	defer n.faults.Subscribe(func(apid.Call) {
		once.Do(func() {
			n.setIdentity(identity)
			n.server.Reload()
			n.server.Handover(time.Nanosecond, time.Hour, 0)
		})
	})()

	if err := version(t, insecure(t, n), patience); err != nil {
		t.Error(err)
	}

	n.faults.Clear()

	c := cluster.client(t, n, role.Admin)
	wait.For(t, "the API is back", func(context.Context) error { return version(t, c, patience) })
}

// TestHandoverAnswers: the call that causes it is answered however short its streams may last, since a machine that is
// emulated at a hundred times its speed does not have processors of that speed.
func TestHandoverAnswers(t *testing.T) {
	t.Parallel()

	addr := addresses(t, 1)[0]
	n := startNode(t, "cp-1", addr, maintenance(t, "cp-1", addr))
	n.faults.Slow("Version", 100*time.Millisecond)

	var once sync.Once

	defer n.faults.Subscribe(func(apid.Call) {
		once.Do(func() { n.server.Handover(time.Nanosecond, time.Hour, time.Hour) })
	})()

	if err := version(t, insecure(t, n), patience); err != nil {
		t.Error(err)
	}
}
