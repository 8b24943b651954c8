package talos

import (
	"context"
	"fmt"
	"regexp"
	"time"

	cosiv1alpha1 "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/protobuf"
	"github.com/cosi-project/runtime/pkg/state"
	cosiclient "github.com/cosi-project/runtime/pkg/state/protobuf/client"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/etcd"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"

	"github.com/talos-operator/talos-operator/internal/text"
)

// Watched is what a stream of a node reports, which is sufficient to decide when to reconcile.
type Watched struct {
	// Stage and Ready of the machine, as Talos reports them.
	Stage string
	Ready bool
	// Etcd describes the etcd service and its member; empty if there is none.
	Etcd string
	// Kubelet describes the kubelet service.
	Kubelet string
	// Unmet is the number of unmet conditions.
	Unmet int
	// Member is the ID of the etcd member, in hexadecimal.
	Member string
	// Config identifies the live machine configuration among all of the node, including those of other boots; empty in
	// maintenance mode.
	Config string
}

// Services that are watched.
const (
	serviceEtcd    = "etcd"
	serviceKubelet = "kubelet"
)

var watchedServices = regexp.MustCompile("^(" + serviceEtcd + "|" + serviceKubelet + ")$")

// watches are those of one stream. Each takes two goroutines and about 20 KiB, for each of thousands of nodes, so there
// are as few as possible: one for both services, and one for the etcd member only on a node that has etcd.
type watches struct {
	c      *talosclient.Client
	state  state.CoreState
	events chan state.Event
	// member is true once the etcd member is watched.
	member bool
	// patience ends the stream when a call takes too long.
	patience *time.Timer
}

// newWatches uses the client's state without its own retries, which hide for a quarter of an hour that a node is gone.
// A node may stop responding between two calls, and the calls that open a watch have no deadline of their own: giveUp
// is called when one takes too long.
func newWatches(c *talosclient.Client, giveUp func()) *watches {
	return &watches{
		c: c,
		state: decoding{
			cosiclient.NewAdapter(cosiv1alpha1.NewStateClient(c.Conn()), cosiclient.WithDisableWatchRetry()),
		},
		events:   make(chan state.Event, 16),
		patience: time.AfterFunc(callTimeout, giveUp),
	}
}

// subscribe opens the watches. Each call gets its own time, because together they take longer than that on a slow node.
func (w *watches) subscribe(ctx context.Context, secure bool) error {
	calls := []func(context.Context) error{w.greet, w.openStatus, w.openServices}

	if secure {
		// Changes of the configuration are sent, so it need not be polled.
		calls = append(calls, w.openConfig)
	}

	for _, call := range calls {
		if err := w.inTime(ctx, call); err != nil {
			return err
		}
	}

	return nil
}

func (w *watches) inTime(ctx context.Context, call func(context.Context) error) error {
	w.patience.Reset(callTimeout)
	defer w.patience.Stop()

	return call(ctx)
}

func (w *watches) greet(ctx context.Context) error { return greeted(ctx, w.c) }

func (w *watches) openStatus(ctx context.Context) error {
	return w.open(ctx, runtime.NamespaceName, runtime.MachineStatusType, runtime.MachineStatusID)
}

// openServices watches both services in one stream. What exists already is sent first; a service that does not exist is
// not mentioned.
func (w *watches) openServices(ctx context.Context) error {
	kind := resource.NewMetadata(v1alpha1.NamespaceName, v1alpha1.ServiceType, "", resource.VersionUndefined)

	if err := w.state.WatchKind(ctx, kind, w.events, state.WithBootstrapContents(true),
		state.WatchWithIDQuery(resource.IDRegexpMatch(watchedServices))); err != nil {
		return fmt.Errorf("watching %s: %w", kind.Type(), err)
	}

	return nil
}

func (w *watches) openConfig(ctx context.Context) error {
	return w.open(ctx, config.NamespaceName, config.MachineConfigType, config.ActiveID)
}

func (w *watches) openMember(ctx context.Context) error {
	return w.open(ctx, etcd.NamespaceName, etcd.MemberType, etcd.LocalMemberID)
}

func (w *watches) open(
	ctx context.Context, namespace resource.Namespace, typ resource.Type, id resource.ID,
) error {
	if err := w.state.Watch(ctx, resource.NewMetadata(namespace, typ, id, resource.VersionUndefined),
		w.events); err != nil {
		return fmt.Errorf("watching %s: %w", typ, err)
	}

	return nil
}

// followMember watches the etcd member once the node has the service, which workers never have: the service exists
// before the member does.
func (w *watches) followMember(ctx context.Context, seen Watched) error {
	if w.member || seen.Etcd == "" {
		return nil
	}

	w.member = true

	return w.inTime(ctx, w.openMember)
}

// merge applies one event to the observed state. All but a configuration is decoded.
func merge(w Watched, e state.Event) Watched {
	gone := e.Type == state.Destroyed

	if e.Type == state.Bootstrapped {
		return w // it only marks the end of what existed already
	}

	switch r := e.Resource.(type) {
	case *runtime.MachineStatus:
		s := r.TypedSpec()
		w.Stage, w.Ready, w.Unmet = s.Stage.String(), s.Status.Ready, len(s.Status.UnmetConditions)
	case *v1alpha1.Service:
		s := r.TypedSpec()
		seen := fmt.Sprintf("running=%t healthy=%t", s.Running, s.Healthy)

		if gone {
			seen = ""
		}

		switch r.Metadata().ID() {
		case serviceEtcd:
			w.Etcd = seen
		case serviceKubelet:
			w.Kubelet = seen
		}
	case *protobuf.Resource: // the configuration, which is not decoded
		w.Config = configVersion(r.Metadata())
		if gone {
			w.Config = ""
		}
	case *etcd.Member:
		w.Member = text.Name(r.TypedSpec().MemberID)
		if gone {
			w.Member = ""
		}
	}

	return w
}
