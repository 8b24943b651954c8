package talos

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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
	// Config is the version of the live machine config; empty in maintenance mode.
	Config string
}

// Intervals of a stream.
const (
	// heartbeat is how often, on average, a stream is asked for a sign of life: a frozen node holds its connections open.
	// One whose power is cut shows without it.
	heartbeat        = 10 * time.Second
	heartbeatTimeout = 4 * time.Second
	// heartbeatShare is the part of a heartbeat that each stream adds, so that a large estate is asked no more often than
	// fifty times a second, all streams together: from 500 nodes on, what an idle estate costs grows no further.
	heartbeatShare = 20 * time.Millisecond
)

// streams is how many streams there are.
var streams atomic.Int64

// nextHeartbeat is when to ask for the next sign of life. Streams that began together, after a restart of the operator,
// must not ask together for ever.
func nextHeartbeat() time.Duration {
	d := max(heartbeat, time.Duration(streams.Load())*heartbeatShare)

	return d/2 + rand.N(d) //nolint:gosec // no secret
}

// ErrStreamEnded says that a node closed its stream.
var ErrStreamEnded = errors.New("the stream ended")

// Stream watches a node until it fails or the context ends. Each change calls emit. Without credentials it is the
// insecure stream of a machine in maintenance mode.
func Stream(ctx context.Context, address string, creds *Credentials, emit func(Watched)) error {
	cfg, err := streamTLS(creds)
	if err != nil {
		return err
	}

	c, err := Dial(ctx, address, cfg)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // it is over

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	// A node may stop answering between two calls, and the calls that open a watch have no deadline of their own.
	tooLong := time.AfterFunc(callTimeout, cancel)
	events := make(chan state.Event, 16)
	err = subscribe(ctx, c, creds != nil, events)

	tooLong.Stop()

	if err != nil {
		return classify("a watch", address, err)
	}

	return follow(ctx, c, address, events, emit)
}

func streamTLS(creds *Credentials) (*tls.Config, error) {
	if creds == nil {
		return insecureTLS(), nil
	}

	return creds.TLSConfig()
}

func subscribe(ctx context.Context, c *talosclient.Client, secure bool, events chan state.Event) error {
	if err := beat(ctx, c); err != nil {
		return err
	}

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
	}

	return nil
}

// watchState is the client's state without its own retries: those hide for a quarter of an hour that a node is gone.
func watchState(c *talosclient.Client) state.CoreState {
	return cosiclient.NewAdapter(cosiv1alpha1.NewStateClient(c.Conn()), cosiclient.WithDisableWatchRetry())
}

func beat(ctx context.Context, c *talosclient.Client) error {
	// The answer is not decoded: that there is one is all that counts.
	_, err := cosiv1alpha1.NewStateClient(c.Conn()).Get(ctx, &cosiv1alpha1.GetRequest{
		Namespace: runtime.NamespaceName, Type: runtime.MachineStatusType, Id: runtime.MachineStatusID,
		Options: &cosiv1alpha1.GetOptions{},
	})
	if err != nil && status.Code(err) != codes.NotFound {
		return err
	}

	return nil
}

func follow(
	ctx context.Context,
	c *talosclient.Client,
	address string,
	events <-chan state.Event,
	emit func(Watched),
) error {
	var last Watched

	told := false

	streams.Add(1)
	defer streams.Add(-1)

	timer := time.NewTimer(nextHeartbeat())
	defer timer.Stop()

	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			alive, cancel := context.WithTimeout(ctx, heartbeatTimeout)
			err := beat(alive, c)

			cancel()

			if err != nil {
				return classify("a sign of life", address, err)
			}

			timer.Reset(nextHeartbeat())
		case e := <-events:
			if e.Type == state.Errored {
				return classify("a watch", address, e.Error)
			}

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
		w.Config = r.Metadata().Version().String()
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
