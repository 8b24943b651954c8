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

// Watched is what a stream of a node tells, enough to know that a closer look is due.
type Watched struct {
	// Stage and Ready of the machine, in the words of Talos.
	Stage string
	Ready bool
	// Etcd tells of the etcd service and its member, empty without one.
	Etcd string
	// Kubelet tells of the kubelet service.
	Kubelet string
	// Unmet is the number of unmet conditions.
	Unmet int
	// Member is the ID of the etcd member, hexadecimal.
	Member string
	// Config tells the live machine config from every other one of the node, also of another boot; empty in maintenance
	// mode.
	Config string
}

// Intervals of a stream.
const (
	// heartbeat is how often, on average, a stream is asked for a sign of life: a frozen node holds its connections open.
	// One whose power is cut shows without it.
	heartbeat        = 10 * time.Second
	heartbeatTimeout = 4 * time.Second
	// heartbeatShare is the part of a heartbeat that each stream adds, so that a large estate is asked no more often than
	// 25 times a second, all streams together: from 250 nodes on, what an idle estate costs grows no further. With 1,000
	// nodes it is 40 s, as long as Kubernetes itself waits for a kubelet.
	heartbeatShare = 40 * time.Millisecond
)

// streams is how many streams there are.
var streams atomic.Int64

// nextSilence is how long a node may be silent before it is asked. Streams that began together, after a restart of the
// operator, must not ask together for ever.
func nextSilence() time.Duration {
	d := max(heartbeat, time.Duration(streams.Load())*heartbeatShare)

	return d/2 + rand.N(d) //nolint:gosec // no secret
}

// pulse is when a node was last heard of, over a connection.
type pulse struct{ heard atomic.Int64 }

// started is what pulses are counted from: a clock that is set back must not have a node look alive.
var started = time.Now()

// monotonic is the time by a clock that is never set.
func monotonic() time.Time { return started.Add(time.Since(started)) }

func (p *pulse) beat() { p.heard.Store(int64(time.Since(started))) }

// left is how much of the time that a node may be silent is left: whatever it says is a sign of life.
func (p *pulse) left(silence time.Duration) time.Duration {
	return silence - (time.Since(started) - time.Duration(p.heard.Load()))
}

// ErrStreamEnded says that a node closed its stream.
var ErrStreamEnded = errors.New("the stream ended")

// ErrSilent says that nothing at all came from the address of a node: no refusal, and no connection.
var ErrSilent = errors.New("no answer")

// Stream watches a node until it fails or the context ends, over the connection that its calls take. Each change calls
// emit.
func (p *Pool) Stream(ctx context.Context, ref NodeRef, emit func(Watched)) error {
	n, err := p.hold(ctx, ref)
	if err != nil {
		return err
	}
	defer p.release(n)

	return watch(ctx, n.c, n.pulse, ref.Address, true, emit)
}

// StreamMaintenance is the insecure stream of a machine in maintenance mode, whose certificate has to have the
// fingerprint; without one every certificate is accepted.
func (p *Pool) StreamMaintenance(ctx context.Context, address, fingerprint string, emit func(Watched)) error {
	pinned := &pin{expected: fingerprint}

	c, err := dial(ctx, address, pinned.tls(), &line{})
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // it is over

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

	// A node may stop answering between two calls, and the calls that open a watch have no deadline of their own. Each has
	// its time: together they take longer than that on a slow node.
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

// subscribe opens the watches, and tells of each call that has ended.
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
		// It is sent when it changes, so nobody has to poll it.
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

// greeted asks for the first sign of life. A node that is slow, or says itself that the time is over, is not silent: it
// has shaken hands.
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

// watchState is the client's state without its own retries: those hide for a quarter of an hour that a node is gone.
func watchState(c *talosclient.Client) state.CoreState {
	return cosiclient.NewAdapter(cosiv1alpha1.NewStateClient(c.Conn()), cosiclient.WithDisableWatchRetry())
}

func beat(ctx context.Context, c *talosclient.Client) error {
	// The answer is not decoded: that there is one is all that counts. A node that refuses the connection is not waited
	// for.
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

// merge takes one event into what is known.
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
		// Each boot begins the versions anew: the second one of two boots is not the same config.
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
