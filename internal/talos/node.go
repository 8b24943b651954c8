package talos

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// Node is a connection to one configured node. Every method has its own deadline and may be called again.
type Node struct {
	ref NodeRef
	c   *talosclient.Client
	// pulse is when the node last sent anything.
	pulse *pulse
	// line is the TCP connection, calls counts the pending unary calls.
	line  line
	calls atomic.Int64
	// latency is how long the node takes to respond.
	latency latency

	// streams counts the streams that use the connection; retired is true once the pool has removed it. Both belong to the
	// pool.
	streams int
	retired bool

	mu sync.Mutex
	// uuid is what the machine at the other end of TCP connection uuidOf reported; empty before it was queried.
	uuid   string
	uuidOf int64
}

func (n *Node) close() { _ = n.c.Close() }

// count records every unary call, and every response of the node.
//
//nolint:revive // the arguments are those of an interceptor
func (n *Node) count(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	n.calls.Add(1)
	defer n.calls.Add(-1)

	if n.line.isHeld() {
		opts = append(opts, grpc.WaitForReady(false)) // no other connection will be established
	}

	began := time.Now()
	err := invoke(ctx, method, req, reply, cc, opts...)
	n.latency.note(method, err, time.Since(began))

	if err == nil {
		n.pulse.beat()
	}

	return err
}

func (n *Node) ready() bool { return n.c.Conn().GetState() == connectivity.Ready }

// name returns the name of the node in errors.
func (n *Node) name() string { return n.ref.Address }

func portText(port int) string { return strconv.Itoa(port) }

// Bootstrap starts a new etcd on the node. It returns before etcd runs. ErrAlreadyExists means that etcd data exists.
func (n *Node) Bootstrap(ctx context.Context) error {
	return n.bootstrap(ctx, &machineapi.BootstrapRequest{})
}

// BootstrapRecover starts a new etcd on the node from the snapshot that EtcdRecover has sent. It returns before the
// node has read the snapshot: the state of the etcd service shows the result. A damaged snapshot leaves data behind
// that makes every later attempt fail. Without its hash check, the copy of a database file is accepted too.
func (n *Node) BootstrapRecover(ctx context.Context, skipHash bool) error {
	return n.bootstrap(ctx, &machineapi.BootstrapRequest{RecoverEtcd: true, RecoverSkipHashCheck: skipHash})
}

func (n *Node) bootstrap(ctx context.Context, req *machineapi.BootstrapRequest) error {
	ctx, cancel := act(ctx, slowTimeout)
	defer cancel()

	err := n.c.Bootstrap(ctx, req)
	if status.Code(err) == codes.AlreadyExists {
		return fmt.Errorf("bootstrapping %s: %w", n.name(), ErrAlreadyExists)
	}

	return classify("the bootstrap", n.name(), err)
}

// ResetOptions determine how a node is wiped.
type ResetOptions struct {
	// Graceful cordons and drains the node and leaves etcd first.
	Graceful bool
	// Reboot afterwards, into maintenance mode; otherwise the node powers off.
	Reboot bool
	// KeepConfig wipes only the data, including that of etcd: the node comes back with its configuration.
	KeepConfig bool
}

// Reset wipes the configuration and the data of a node; Talos itself stays installed. It returns before the node has
// begun.
func (n *Node) Reset(ctx context.Context, o ResetOptions) error {
	ctx, cancel := act(ctx, slowTimeout)
	defer cancel()

	partitions := []*machineapi.ResetPartitionSpec{{Label: constants.EphemeralPartitionLabel, Wipe: true}}
	if !o.KeepConfig {
		partitions = append(partitions, &machineapi.ResetPartitionSpec{Label: constants.StatePartitionLabel, Wipe: true})
	}

	err := n.c.ResetGeneric(ctx, &machineapi.ResetRequest{
		Graceful:               o.Graceful,
		Reboot:                 o.Reboot,
		Mode:                   machineapi.ResetRequest_SYSTEM_DISK,
		SystemPartitionsToWipe: partitions,
	})

	return classify("the reset", n.name(), err)
}

// Reboot restarts the node. It returns before the node has begun; a new boot ID proves that it has.
func (n *Node) Reboot(ctx context.Context) error {
	ctx, cancel := act(ctx, slowTimeout)
	defer cancel()

	return classify("the reboot", n.name(), n.c.Reboot(ctx))
}

// BootID returns the boot ID, which changes at every boot.
func (n *Node) BootID(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	return n.bootID(ctx)
}

// Rollback boots the system from before the last upgrade. It returns before the node has begun. A node that has no such
// system says so, without a code that tells that from other errors.
func (n *Node) Rollback(ctx context.Context) error {
	ctx, cancel := act(ctx, slowTimeout)
	defer cancel()

	err := n.c.Rollback(ctx)
	if s, ok := status.FromError(err); ok && s.Code() == codes.Unknown && !isFull(err) {
		return failure.Terminal(v1alpha1.ReasonInstallFailed, fmt.Sprintf("%s refused the rollback: %s", n.name(),
			summary(err)), scrubbed(err))
	}

	return classify("the rollback", n.name(), err)
}

func (n *Node) bootID(ctx context.Context) (string, error) {
	r, err := n.c.Read(ctx, "/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", classify("its boot ID", n.name(), err)
	}
	defer r.Close()

	data, err := io.ReadAll(io.LimitReader(r, 2*maxBootID))
	if err != nil {
		return "", classify("its boot ID", n.name(), err)
	}

	id, err := readBootID(data)

	return id, classify("its boot ID", n.name(), err)
}

// maxBootID is the limit of the status field: a longer ID would make the whole status invalid. Linux uses 36
// characters.
const maxBootID = 64

func readBootID(data []byte) (string, error) {
	id := strings.TrimSpace(string(data))

	switch {
	case id == "":
		// The client ends a stream that was cut off by a deadline as if it were complete.
		return "", status.Error(codes.DeadlineExceeded, "the stream was cut off")
	case utf8.RuneCountInString(id) > maxBootID:
		return "", fmt.Errorf("%w: a boot ID of more than %d characters", ErrTooMuch, maxBootID)
	}

	return id, nil
}
