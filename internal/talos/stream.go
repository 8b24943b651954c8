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
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	operatorv1alpha1 "github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
)

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

	w := newWatches(c, cancel)
	err := w.subscribe(ctx, secure)

	if errors.Is(err, ErrSilent) {
		return failure.Transient(operatorv1alpha1.ReasonNodeUnreachable, "no response from "+address, err)
	}

	if err != nil {
		return classify("a watch", address, err)
	}

	p.beat()

	return follow(ctx, w, p, address, emit)
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

func follow(ctx context.Context, w *watches, p *pulse, address string, emit func(Watched)) error {
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
			err := beat(alive, w.c)

			cancel()

			if err != nil {
				return classify("a sign of life", address, err)
			}

			p.beat()

			silence = nextSilence()
			timer.Reset(silence)
		case e := <-w.events:
			next, err := observe(last, e)
			if err != nil {
				return classify("a watch", address, err)
			}

			p.beat()

			if told && next == last {
				continue
			}

			last, told = next, true
			emit(next)

			if err := w.followMember(ctx, next); err != nil {
				return classify("a watch", address, err)
			}
		}
	}
}
