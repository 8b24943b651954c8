package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/gen/xslices"
	"github.com/siderolabs/talos/pkg/machinery/api/cluster"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	timeapi "github.com/siderolabs/talos/pkg/machinery/api/time"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-operator/talos-operator/lab/node/discovery"
	"github.com/talos-operator/talos-operator/lab/node/journal"
	"github.com/talos-operator/talos-operator/lab/node/pace"
)

// timeServer serves the TimeService.
type timeServer struct {
	timeapi.UnimplementedTimeServiceServer
	*session
}

// Time implements the TimeService: it asks the configured time server. The lab has none, as the recordings had none.
func (s timeServer) Time(ctx context.Context, _ *emptypb.Empty) (*timeapi.TimeResponse, error) {
	server := constants.DefaultNTPServer

	if cfg := s.config(); cfg != nil {
		if ts := cfg.NetworkTimeSyncConfig(); ts != nil && len(ts.Servers()) > 0 {
			server = ts.Servers()[0]
		}
	}

	return nil, s.queryTime(ctx, server)
}

// TimeCheck implements the TimeService.
func (s timeServer) TimeCheck(ctx context.Context, req *timeapi.TimeRequest) (*timeapi.TimeResponse, error) {
	if req.GetServer() == "" {
		return nil, status.Error(codes.InvalidArgument, "ntp server is required")
	}

	return nil, s.queryTime(ctx, req.GetServer())
}

// queryTime fails as asking a time server fails where there is no name server, after seconds.
func (s *session) queryTime(ctx context.Context, server string) error {
	if err := s.spend(ctx, pace.NTP); err != nil {
		return err
	}

	resolver := net.JoinHostPort(s.n.opts.Gateway, "53")

	return fmt.Errorf("error querying NTP server %q: lookup %s on %s: read udp %s->%s: read: connection refused",
		server, server, resolver, net.JoinHostPort(s.n.Address(), "40000"), resolver)
}

// clusterServer serves the ClusterService.
type clusterServer struct {
	cluster.UnimplementedClusterServiceServer
	*session
}

// check is one of the checks of HealthCheck.
type check struct {
	name string
	ok   func(context.Context) error
}

// HealthCheck implements the ClusterService: it repeats each check until it holds, and says what it waits for.
func (s clusterServer) HealthCheck(
	req *cluster.HealthCheckRequest, srv grpc.ServerStreamingServer[cluster.HealthCheckProgress],
) error {
	if err := s.onControlPlane("cluster health check"); err != nil {
		return err
	}

	wait := 20 * time.Minute
	if d := req.GetWaitTimeout().AsDuration(); d > 0 {
		wait = d
	}

	ctx, cancel := context.WithTimeout(srv.Context(), wait)
	defer cancel()

	say := func(format string, args ...any) error {
		return srv.Send(&cluster.HealthCheckProgress{Message: fmt.Sprintf(format, args...)})
	}

	if err := say("discovered nodes: %v", s.discovered()); err != nil {
		return err
	}

	for _, c := range s.checks() {
		if err := s.await(ctx, c, say); err != nil {
			return err
		}
	}

	return nil
}

func (s *session) discovered() []string {
	return xslices.Map(s.affiliates(), func(a discovery.Affiliate[*Node]) string { return a.Address })
}

// await repeats a check until it holds.
func (s *session) await(ctx context.Context, c check, say func(string, ...any) error) error {
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()

	for {
		err := c.ok(ctx)
		if err == nil {
			return say("waiting for %s: OK", c.name)
		}

		if err := say("waiting for %s: %v", c.name, err); err != nil {
			return err
		}

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

func (s *session) checks() []check {
	return []check{
		{"etcd to be healthy", s.checkEtcd},
		{"all nodes to finish boot sequence", s.checkBooted},
		{"all k8s nodes to report ready", s.checkReady},
	}
}

func (s *session) checkEtcd(ctx context.Context) error {
	member := s.localMember()
	if member == nil {
		return errors.New("service \"etcd\" is not running")
	}

	ctx, cancel := context.WithTimeout(ctx, healthLimit)
	defer cancel()

	return member.Health(ctx)
}

// sessions are the boots of all nodes of the cluster that can be reached.
func (s *session) sessions() []*session {
	list := []*session{s}

	for _, a := range s.affiliates() {
		if other := a.Node.current(); a.Node != s.n && other != nil && a.Node.Reachable() {
			list = append(list, other)
		}
	}

	return list
}

func (s *session) checkBooted(context.Context) error {
	for _, other := range s.sessions() {
		if stage, _, _ := other.machineStatus(); stage.String() != "running" {
			return fmt.Errorf("node %s is in stage %s", other.n.Address(), stage)
		}
	}

	return nil
}

func (s *session) checkReady(context.Context) error {
	var missing []string

	for _, other := range s.sessions() {
		other.mu.Lock()
		ready := other.kube.nodeReady
		other.mu.Unlock()

		if !ready {
			missing = append(missing, other.hostname())
		}
	}

	if len(missing) > 0 {
		slices.Sort(missing)

		return fmt.Errorf("some nodes are not ready: %s", strings.Join(missing, ", "))
	}

	return nil
}

// Dmesg implements the MachineService.
func (s machineServer) Dmesg(req *machine.DmesgRequest, srv grpc.ServerStreamingServer[common.Data]) error {
	tail := -1
	if req.GetTail() {
		tail = 0
	}

	ctx, cancel := s.callContext(srv.Context())
	defer cancel()

	_, err := s.journal.Read(ctx, journal.KernelLog, tail, req.GetFollow(), func(line []byte) error {
		return srv.Send(&common.Data{Bytes: bytes.TrimSuffix(line, []byte("\n"))})
	})

	return err
}
