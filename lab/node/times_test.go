package node_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/etcd"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/wait"
)

// localMember is what a machine shows of its own etcd member.
func localMember(ctx context.Context, c *client.Client) (string, error) {
	m, err := safe.StateGetByID[*etcd.Member](ctx, c.COSI, etcd.LocalMemberID)
	if err != nil {
		return "", err
	}

	return m.TypedSpec().MemberID, nil
}

// TestHealthLags: a lost quorum shows in the health of etcd, in the machine's status and in its local member only when a
// health check has timed out. All three come back.
func TestHealthLags(t *testing.T) {
	t.Parallel()

	f := newFleet(t, true)
	nodes := []*node.Node{f.boot(1), f.boot(2), f.boot(3)}
	c := f.found(nodes...)[0]

	id, err := localMember(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}

	killed := wait.Now()

	nodes[1].Kill()
	nodes[2].Kill()

	wait.For(t, "the local member is gone", func(ctx context.Context) error {
		id, err := localMember(ctx, c)

		switch {
		case err == nil:
			return fmt.Errorf("it shows %s", id)
		case state.IsNotFoundError(err):
			return nil
		}

		return err
	})

	list, err := c.ServiceInfo(t.Context(), "etcd")
	if err != nil {
		t.Fatal(err)
	}

	health := list[0].Service.GetHealth()
	if after := health.GetLastChange().AsTime().Sub(killed); health.GetHealthy() || after < 5*time.Second ||
		!strings.Contains(health.GetLastMessage(), "context deadline exceeded") {
		t.Errorf("after %s: %v", after, health)
	}

	st, err := safe.StateGetByID[*runtime.MachineStatus](t.Context(), c.COSI, runtime.MachineStatusID)
	if err != nil {
		t.Fatal(err)
	}

	if spec := st.TypedSpec(); spec.Stage != runtime.MachineStageRunning || spec.Status.Ready {
		t.Errorf("the machine says %+v", spec)
	}

	for _, n := range nodes[1:] {
		if err := n.PowerOn(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	f.ready(nodes...)

	if again, err := localMember(t.Context(), c); err != nil || again != id {
		t.Errorf("the local member was %s and is %s, %v", id, again, err)
	}
}

// TestReadyTooEarly: a machine is ready as soon as its etcd runs, before anything is known of its health.
func TestReadyTooEarly(t *testing.T) {
	t.Parallel()

	f := newFleet(t, true)
	n := f.boot(1)
	f.first(n, f.render(configmachine.TypeControlPlane, "machine: {kubelet: {skipNodeRegistration: true}}"))
	c := f.preparing(n)

	wait.For(t, "the machine waits for etcd alone", func(ctx context.Context) error {
		st, err := safe.StateGetByID[*runtime.MachineStatus](ctx, c.COSI, runtime.MachineStatusID)
		if err != nil {
			return err
		}

		unmet := st.TypedSpec().Status.UnmetConditions
		if len(unmet) != 1 || unmet[0].Reason != "etcd not running" {
			return fmt.Errorf("it waits for %v", unmet)
		}

		return nil
	})

	if err := c.Bootstrap(t.Context(), &machine.BootstrapRequest{}); err != nil {
		t.Fatal(err)
	}

	healthy := func(e client.Event) bool {
		s, ok := e.Payload.(*machine.ServiceStateEvent)

		return ok && s.GetService() == "etcd" && s.GetHealth().GetHealthy()
	}

	events := f.collect(c, healthy, client.WithTailEvents(-1))

	if !slices.ContainsFunc(events, func(e client.Event) bool {
		s, ok := e.Payload.(*machine.MachineStatusEvent)

		return ok && s.GetStage() == machine.MachineStatusEvent_RUNNING && s.GetStatus().GetReady()
	}) {
		t.Error("the machine was not ready before its etcd was healthy")
	}
}

// TestBookmarksEndWithTheBoot: a watch goes on from a bookmark, but not after a reboot.
func TestBookmarksEndWithTheBoot(t *testing.T) {
	t.Parallel()

	f := newFleet(t, true)
	n := f.boot(1)
	f.first(n, f.render(configmachine.TypeControlPlane))
	c := f.preparing(n)

	meta := func(key uint8) {
		if err := c.MetaWrite(t.Context(), key, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}

	for key := range uint8(4) { // a node remembers more of what there is more of
		meta(40 + key)
	}

	first := f.watch(c, state.WithBootstrapBookmark(true))
	if first.Type != state.Noop || first.Bookmark == nil {
		t.Fatalf("a watch begins with %+v", first)
	}

	meta(50)

	if next := f.watch(c, state.WithKindStartFromBookmark(first.Bookmark)); next.Type != state.Created {
		t.Errorf("a watch goes on with %+v", next)
	}

	boot := n.Status().BootID

	if err := c.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}

	wait.For(t, "the machine has rebooted", shows(n, func(s node.Status) bool { return s.BootID != boot && s.Stage == "booting" }))

	c = f.preparing(n)

	if last := f.watch(c, state.WithKindStartFromBookmark(first.Bookmark)); last.Type != state.Errored ||
		!strings.Contains(last.Error.Error(), "invalid watch bookmark") {
		t.Errorf("a watch of another boot goes on with %+v", last)
	}
}

// watch returns the first event of a watch of META.
func (f *fleet) watch(c *client.Client, opts ...state.WatchKindOption) state.Event {
	f.t.Helper()

	ctx, cancel := context.WithCancel(f.t.Context())
	defer cancel()

	ch := make(chan state.Event)
	kind := resource.NewMetadata(runtime.NamespaceName, runtime.MetaKeyType, "", resource.VersionUndefined)

	if err := c.COSI.WatchKind(ctx, kind, ch, opts...); err != nil {
		return state.Event{Type: state.Errored, Error: err}
	}

	return wait.Done(f.t, "an event of a watch", ch)
}

// TestOpenStreamSeesTheConfig: a stream that was opened in maintenance mode shows what the config makes of the machine,
// whose API waits for its end.
func TestOpenStreamSeesTheConfig(t *testing.T) {
	t.Parallel()

	f := newFleet(t, true)
	n := f.boot(1, func(o *node.Options) { o.Scale = 1 })
	c := (&bench{t: t, n: n}).insecure()
	ch := make(chan state.Event)

	status := resource.NewMetadata(runtime.NamespaceName, runtime.MachineStatusType, runtime.MachineStatusID,
		resource.VersionUndefined)
	if err := c.COSI.Watch(t.Context(), status, ch); err != nil {
		t.Fatal(err)
	}

	// One that has not reached the machine yet ends with its API.
	wait.Done(t, "the stream shows the machine", ch)
	f.first(n, f.render(configmachine.TypeControlPlane))

	for {
		e := wait.Done(t, "the machine has left maintenance mode", ch)
		if e.Type == state.Errored {
			t.Fatalf("the stream ended: %v", e.Error)
		}

		if st, ok := e.Resource.(*runtime.MachineStatus); ok && st.TypedSpec().Stage == runtime.MachineStageInstalling {
			return
		}
	}
}
