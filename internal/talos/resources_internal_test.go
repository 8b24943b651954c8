package talos

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	cosiv1alpha1 "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/protobuf"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/etcd"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/test/wait"
)

const bombType = "Bombs.test.talos.dev"

// bomb is a resource whose decoder panics.
type bomb struct{ md resource.Metadata }

// bombs counts what was decoded.
var bombs atomic.Int64

func (b *bomb) Metadata() *resource.Metadata { return &b.md }
func (b *bomb) Spec() any                    { return nil }
func (b *bomb) DeepCopy() resource.Resource  { return &bomb{b.md.Copy()} }

func (b *bomb) UnmarshalProto(*resource.Metadata, []byte) error {
	bombs.Add(1)
	panic("hunter2hunter2")
}

// registered panics if the type cannot be registered: it can be once in a process.
var _ = func() bool {
	if err := protobuf.RegisterResource(bombType, &bomb{}); err != nil {
		panic(err)
	}

	return true
}()

// stateCalls are those that read resources alone, and end with the first one that is wrong.
var stateCalls = []string{
	"facts", "facts of no node", "disks", "network", "volumes", "partitions", "image", "static pods", "cluster members",
	"config state", "config version", "etcd image", "time", "UUID", "Kubernetes' flags", "the manifests", "a watch",
}

// TestForeignResources: a resource that was not requested ends each call, and is not decoded: the node would choose what
// decodes it.
func TestForeignResources(t *testing.T) {
	for name, lie := range map[string]func(*cosiv1alpha1.Metadata){
		"another type":      func(md *cosiv1alpha1.Metadata) { md.Type = bombType },
		"another namespace": func(md *cosiv1alpha1.Metadata) { md.Namespace = "other\x1b[2J" },
		"a type of Talos": func(md *cosiv1alpha1.Metadata) {
			if md.Type = config.MachineTypeType; strings.HasPrefix(md.GetId(), "id") {
				md.Type = etcd.MemberType
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := bombs.Load()
			calls := readings(t.Context(), talkTo(t, &speaker{lie: lie}))

			for _, call := range stateCalls {
				err := calls[call]().err
				if !errors.Is(err, ErrInvalid) || failure.Reason(err) != v1alpha1.ReasonAnswerInvalid ||
					failure.ClassOf(err) != failure.ClassTransient || !strings.Contains(err.Error(), "192.0.2.1") {
					t.Errorf("%s ended with %v", call, err)
				}
			}

			if got := bombs.Load() - before; got != 0 {
				t.Errorf("%d were decoded", got)
			}
		})
	}
}

// TestAnotherID: of a resource that was requested by its ID, another one is no response.
func TestAnotherID(t *testing.T) {
	calls := readings(t.Context(), talkTo(t, &speaker{lie: func(md *cosiv1alpha1.Metadata) { md.Id = "other" }}))

	for _, call := range []string{"facts", "config version", "time", "UUID", "a watch"} {
		if err := calls[call]().err; !errors.Is(err, ErrInvalid) {
			t.Errorf("%s ended with %v", call, err)
		}
	}
}

// TestForeignEvents: the resource that an event replaces is checked, too; what only marks a point of a watch passes.
func TestForeignEvents(t *testing.T) {
	of := func(typ, id string) *cosiv1alpha1.Resource {
		return &cosiv1alpha1.Resource{Metadata: &cosiv1alpha1.Metadata{Namespace: "a", Type: typ, Id: id}}
	}

	for name, c := range map[string]struct {
		event *cosiv1alpha1.Event
		valid bool
	}{
		"the resource": {&cosiv1alpha1.Event{Resource: of("T", "x"), Old: of("T", "x")}, true},
		"a mark":       {&cosiv1alpha1.Event{EventType: cosiv1alpha1.EventType_BOOTSTRAPPED, Resource: of("T", "")}, true},
		"nothing":      {&cosiv1alpha1.Event{EventType: cosiv1alpha1.EventType_ERRORED}, true},
		"another":      {&cosiv1alpha1.Event{Resource: of("U", "x")}, false},
		"an old one":   {&cosiv1alpha1.Event{Resource: of("T", "x"), Old: of("U", "x")}, false},
	} {
		q, isState := requestedBy(&cosiv1alpha1.WatchRequest{Namespace: "a", Type: "T"})
		if err := q.check(&cosiv1alpha1.WatchResponse{Event: []*cosiv1alpha1.Event{c.event}}); !isState || (err == nil) != c.valid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDecoderPanics: a resource whose decoder panics is an error of the call that names the node and the type, and nothing
// of what was decoded.
func TestDecoderPanics(t *testing.T) {
	n := talkTo(t, &speaker{})

	w := newWatches(n.c, func() {})
	defer w.patience.Stop()

	kind := resource.NewMetadata(runtime.NamespaceName, bombType, "", resource.VersionUndefined)
	one := resource.NewMetadata(runtime.NamespaceName, bombType, "a", resource.VersionUndefined)

	for name, call := range map[string]func() error{
		"a get":  func() error { _, err := n.c.COSI.Get(t.Context(), one); return err },
		"a list": func() error { _, err := n.c.COSI.List(t.Context(), kind); return err },
		"a watch": func() error {
			if err := w.state.Watch(t.Context(), one, w.events); err != nil {
				return err
			}

			_, err := observe(Watched{}, wait.Done(t, "the first event", w.events))

			return err
		},
		"a watch of a kind": func() error {
			own := make(chan state.Event, 4)
			if err := n.c.COSI.WatchKind(t.Context(), kind, own); err != nil {
				return err
			}

			_, err := observe(Watched{}, wait.Done(t, "the first event", own))

			return err
		},
	} {
		before := bombs.Load()
		err := classify("a test", n.name(), call())

		switch {
		case !errors.Is(err, ErrInvalid), bombs.Load() != before+1:
			t.Errorf("%s: %v, %d decoded", name, err, bombs.Load()-before)
		case strings.Contains(err.Error(), "hunter2"):
			t.Errorf("%s quotes the resource: %v", name, err)
		case !strings.Contains(failure.Message(err), bombType), !strings.Contains(failure.Message(err), n.name()):
			t.Errorf("%s: %s", name, failure.Message(err))
		}
	}
}

// TestErrorWithoutText: an error of a watch that says nothing is the end of its stream.
func TestErrorWithoutText(t *testing.T) {
	if _, err := observe(Watched{}, state.Event{Type: state.Errored}); !errors.Is(err, ErrStreamEnded) {
		t.Errorf("got %v", err)
	}
}

// TestConfigStateOfSpeaker: what FuzzResources sends is compared as the configurations of a node are.
func TestConfigStateOfSpeaker(t *testing.T) {
	n := talkTo(t, &speaker{spec: wrapped("version: v1alpha1\nmachine:\n  type: worker\ncluster: {}\n")})

	got, err := n.ConfigState(t.Context())
	if want := (ConfigState{Type: "worker", NextBoot: NextBootLive, NextType: "worker"}); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
}
