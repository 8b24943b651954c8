package talos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	cosiv1alpha1 "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/state"
	cosiclient "github.com/cosi-project/runtime/pkg/state/protobuf/client"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/etcd"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	operatorv1alpha1 "github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
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

// Intervals of a stream.
const (
	// heartbeat is the average interval at which a node is asked for a sign of life over its stream: a frozen node keeps
	// its connections open. A power cut is noticed without it.
	heartbeat        = 10 * time.Second
	heartbeatTimeout = 4 * time.Second
	// heartbeatShare is the part of a heartbeat that each stream adds, so that in a large fleet at most 25 nodes per
	// second are asked, over all streams: from 250 nodes on, the cost of an idle fleet no longer grows. With 1,000 nodes
	// the interval is 40 s, which is how long Kubernetes itself waits for a kubelet.
	heartbeatShare = 40 * time.Millisecond
)

// streams is the number of streams.
var streams atomic.Int64

// nextSilence returns how long a node may be silent before it is asked. It is randomized, so that streams that began
// together, after a restart of the operator, do not ask together forever.
func nextSilence() time.Duration {
	d := max(heartbeat, time.Duration(streams.Load())*heartbeatShare)

	return d/2 + rand.N(d)
}

// pulse is when a node last sent anything over a connection.
type pulse struct{ heard atomic.Int64 }

// started is the origin of the times of pulses: a clock that is set back must not make a node appear alive.
var started = time.Now()

// monotonic returns the time of a clock that is never set.
func monotonic() time.Time { return started.Add(time.Since(started)) }

func (p *pulse) beat() { p.heard.Store(int64(time.Since(started))) }

// left returns how long a node may remain silent: everything that it sends is a sign of life.
func (p *pulse) left(silence time.Duration) time.Duration {
	return silence - (time.Since(started) - time.Duration(p.heard.Load()))
}

// ErrStreamEnded means that a node closed its stream.
var ErrStreamEnded = errors.New("the stream ended")

// ErrSilent means that the address of a node sent no response at all: neither a refusal nor a connection.
var ErrSilent = errors.New("no answer")

// Stream watches a node until it fails or the context ends, over the connection that its calls use. Each change calls
// emit.
func (p *Pool) Stream(ctx context.Context, ref NodeRef, emit func(Watched)) error {
	n, err := p.hold(ctx, ref)
	if err != nil {
		return err
	}
	defer p.release(n)

	return watch(ctx, n.c, n.pulse, ref.Address, true, emit)
}

// StreamMaintenance is the unauthenticated stream of a machine in maintenance mode, whose certificate must have the
// fingerprint; without a fingerprint, every certificate is accepted.
func (p *Pool) StreamMaintenance(ctx context.Context, address, fingerprint string, emit func(Watched)) error {
	pinned := &pin{expected: fingerprint}

	c, err := dial(ctx, address, pinned.tls(), &line{}, grpc.WithChainUnaryInterceptor(p.measure))
	if err != nil {
		return err
	}
	defer c.Close()

	if err = watch(ctx, c, &pulse{}, address, false, emit); err != nil && pinned.mismatch.Load() != nil {
		return pinned.classify("a watch", address, err)
	}

	return err
}

func watch(
	ctx context.Context, c *talosclient.Client, p *pulse, address string, secure bool, emit func(Watched),
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	// A node may stop responding between two calls, and the calls that open a watch have no deadline of their own. Each
	// call gets its own time, because together they take longer than that on a slow node.
	tooLong := time.AfterFunc(callTimeout, cancel)
	events := make(chan state.Event, 16)
	err := subscribe(ctx, c, secure, events, func() { tooLong.Reset(callTimeout) })

	tooLong.Stop()

	if errors.Is(err, ErrSilent) {
		return failure.Transient(operatorv1alpha1.ReasonNodeUnreachable, "no response from "+address, err)
	}

	if err != nil {
		return classify("a watch", address, err)
	}

	p.beat()

	return follow(ctx, c, p, address, events, emit)
}

// subscribe opens the watches, and reports each call that has ended.
func subscribe(
	ctx context.Context, c *talosclient.Client, secure bool, events chan state.Event, answered func(),
) error {
	if err := greeted(ctx, c); err != nil {
		return err
	}

	answered()

	watches := watchState(c)

	resources := []resource.Metadata{
		resource.NewMetadata(runtime.NamespaceName, runtime.MachineStatusType, runtime.MachineStatusID,
			resource.VersionUndefined),
		resource.NewMetadata(v1alpha1.NamespaceName, v1alpha1.ServiceType, "etcd", resource.VersionUndefined),
		resource.NewMetadata(v1alpha1.NamespaceName, v1alpha1.ServiceType, "kubelet", resource.VersionUndefined),
		resource.NewMetadata(etcd.NamespaceName, etcd.MemberType, etcd.LocalMemberID, resource.VersionUndefined),
	}

	if secure {
		// Changes of the configuration are sent, so it need not be polled.
		resources = append(resources, resource.NewMetadata(config.NamespaceName, config.MachineConfigType, config.ActiveID,
			resource.VersionUndefined))
	}

	for _, md := range resources {
		if err := watches.Watch(ctx, md, events); err != nil {
			return fmt.Errorf("watching %s: %w", md.Type(), err)
		}

		answered()
	}

	return nil
}

// greeted requests the first sign of life. A node that is slow, or reports itself that the deadline is exceeded, is not
// silent: it has completed the handshake.
func greeted(ctx context.Context, c *talosclient.Client) error {
	first, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()

	err := beat(first, c)
	if err == nil || ctx.Err() != nil || c.Conn().GetState() == connectivity.Ready {
		return err
	}

	if isDeadline(err) || strings.Contains(err.Error(), "i/o timeout") {
		return fmt.Errorf("%w: %w", ErrSilent, err)
	}

	return err
}

// watchState returns the client's state without its own retries, which hide for a quarter of an hour that a node is
// gone.
func watchState(c *talosclient.Client) state.CoreState {
	return cosiclient.NewAdapter(cosiv1alpha1.NewStateClient(c.Conn()), cosiclient.WithDisableWatchRetry())
}

func beat(ctx context.Context, c *talosclient.Client) error {
	// The response is not decoded: only its arrival matters. The call does not wait for a node that refuses the
	// connection.
	_, err := cosiv1alpha1.NewStateClient(c.Conn()).Get(ctx, &cosiv1alpha1.GetRequest{
		Namespace: runtime.NamespaceName, Type: runtime.MachineStatusType, Id: runtime.MachineStatusID,
		Options: &cosiv1alpha1.GetOptions{},
	}, grpc.WaitForReady(false))
	if err != nil && status.Code(err) != codes.NotFound {
		return err
	}

	return nil
}

func follow(
	ctx context.Context,
	c *talosclient.Client,
	p *pulse,
	address string,
	events <-chan state.Event,
	emit func(Watched),
) error {
	var last Watched

	told := false

	streams.Add(1)
	defer streams.Add(-1)

	silence := nextSilence()

	timer := time.NewTimer(silence)
	defer timer.Stop()

	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			if left := p.left(silence); left > 0 {
				timer.Reset(left)

				continue
			}

			alive, cancel := context.WithTimeout(ctx, heartbeatTimeout)
			err := beat(alive, c)

			cancel()

			if err != nil {
				return classify("a sign of life", address, err)
			}

			p.beat()

			silence = nextSilence()
			timer.Reset(silence)
		case e := <-events:
			if e.Type == state.Errored {
				return classify("a watch", address, e.Error)
			}

			p.beat()

			next := merge(last, e)
			if told && next == last {
				continue
			}

			last, told = next, true
			emit(next)
		}
	}
}

// merge applies one event to the observed state.
func merge(w Watched, e state.Event) Watched {
	gone := e.Type == state.Destroyed

	switch r := e.Resource.(type) {
	case *runtime.MachineStatus:
		s := r.TypedSpec()
		w.Stage, w.Ready, w.Unmet = s.Stage.String(), s.Status.Ready, len(s.Status.UnmetConditions)
	case *v1alpha1.Service:
		s := r.TypedSpec()
		text := fmt.Sprintf("running=%t healthy=%t", s.Running, s.Healthy)

		if gone {
			text = ""
		}

		if r.Metadata().ID() == "etcd" {
			w.Etcd = text
		} else {
			w.Kubelet = text
		}
	case *config.MachineConfig:
		// Each boot starts the versions again, so the same version of two boots is not the same configuration.
		w.Config = r.Metadata().Version().String() + " of " + r.Metadata().Created().UTC().Format(time.RFC3339Nano)
		if gone {
			w.Config = ""
		}
	case *etcd.Member:
		w.Member = r.TypedSpec().MemberID
		if gone {
			w.Member = ""
		}
	}

	return w
}
