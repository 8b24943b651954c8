package node

import (
	"context"
	"strings"

	"github.com/blang/semver/v4"
	cosiv1alpha1 "github.com/cosi-project/runtime/api/v1alpha1"
	cosiserver "github.com/cosi-project/runtime/pkg/state/protobuf/server"
	"github.com/siderolabs/gen/xslices"
	"github.com/siderolabs/talos/pkg/machinery/api/cluster"
	"github.com/siderolabs/talos/pkg/machinery/api/inspect"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/api/storage"
	timeapi "github.com/siderolabs/talos/pkg/machinery/api/time"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-operator/talos-operator/lab/apid"
	"github.com/talos-operator/talos-operator/lab/cosi"
	"github.com/talos-operator/talos-operator/lab/node/api"
)

// backend is the machine as its network face sees it. The face stays the same over all boots; the handlers belong to
// the boot that runs.
type backend struct{ n *Node }

var _ apid.Backend = backend{}

// Identity implements apid.Backend.
func (b backend) Identity() *apid.Identity {
	if s := b.n.current(); s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()

		if s.identity != nil {
			return s.identity
		}
	}

	// the power was cut this very moment: show what a machine without a config would
	identity, err := apid.NewMaintenanceIdentity(apid.Names{Hostname: b.n.opts.Name})
	if err != nil {
		return &apid.Identity{Maintenance: true}
	}

	return identity
}

// Register implements apid.Backend.
func (b backend) Register(r grpc.ServiceRegistrar) {
	for _, desc := range descriptors {
		r.RegisterService(desc, b)
	}
}

// descriptors are those of the services, with handlers that look up the boot that runs.
var descriptors = api.Redirected(implementation)

// Methods returns the names of the methods of the machine API, without their services, sorted.
func Methods() []string { return api.Methods() }

var errPowerOff = status.Error(codes.Unavailable, "the machine is powering off")

// implementation returns the handlers of the boot that runs.
func implementation(srv any, service string) (any, error) {
	b, ok := srv.(backend)
	if !ok {
		return nil, errPowerOff
	}

	s := b.n.current()
	if s == nil {
		return nil, errPowerOff
	}

	handler := s.handlers[service]

	if s.olderThan(servedFrom) {
		if h, ok := unserved[service]; ok {
			return h, nil
		}

		if s.inMaintenance() {
			return maintained(service, handler), nil
		}
	}

	return handler, nil
}

// maintained returns what serves a service in maintenance mode before 1.13, which has a server of its own for that: it
// takes a config, and tells about resources and disks.
func maintained(service string, handler any) any {
	if m, ok := handler.(machineServer); ok {
		return configServer{machine: m}
	}

	if h, ok := unmaintained[service]; ok {
		return h
	}

	return handler
}

// unmaintained answer for the services that maintenance mode before 1.13 has not.
var unmaintained = map[string]any{
	cluster.ClusterService_ServiceDesc.ServiceName: cluster.UnimplementedClusterServiceServer{},
	inspect.InspectService_ServiceDesc.ServiceName: inspect.UnimplementedInspectServiceServer{},
	timeapi.TimeService_ServiceDesc.ServiceName:    timeapi.UnimplementedTimeServiceServer{},
}

// configServer is what maintenance mode before 1.13 serves of the MachineService.
type configServer struct {
	machine.UnimplementedMachineServiceServer

	machine machineServer
}

// ApplyConfiguration implements the MachineService.
func (s configServer) ApplyConfiguration(
	ctx context.Context, req *machine.ApplyConfigurationRequest,
) (*machine.ApplyConfigurationResponse, error) {
	switch req.GetMode() {
	case machine.ApplyConfigurationRequest_AUTO, machine.ApplyConfigurationRequest_REBOOT,
		machine.ApplyConfigurationRequest_TRY:
		return s.machine.ApplyConfiguration(ctx, req)
	case machine.ApplyConfigurationRequest_NO_REBOOT, machine.ApplyConfigurationRequest_STAGED:
	}

	return nil, status.Errorf(codes.Unimplemented, "apply configuration --mode='%s' is not supported in maintenance mode",
		strings.ReplaceAll(strings.ToLower(req.GetMode().String()), "_", "-"))
}

// servedFrom is the Talos that serves what is in unserved.
var servedFrom = semver.MustParse("1.13.0-beta.0")

// unserved answer for the services of newer releases.
var unserved = map[string]any{
	machine.ImageService_ServiceDesc.ServiceName:     machine.UnimplementedImageServiceServer{},
	machine.LifecycleService_ServiceDesc.ServiceName: machine.UnimplementedLifecycleServiceServer{},
	machine.DebugService_ServiceDesc.ServiceName:     machine.UnimplementedDebugServiceServer{},
}

// olderThan reports whether the Talos that runs is older than a version. One whose tag is no version is not.
func (s *session) olderThan(version semver.Version) bool {
	runs, err := semver.ParseTolerant(s.tag)

	return err == nil && runs.LT(version)
}

// newHandlers makes the handlers of one boot.
func (s *session) newHandlers() map[string]any {
	resources := cosi.Filter(s.store.State(), apid.Roles)
	gauges := api.Gauges{
		Booted: s.booted, CPUs: s.n.opts.CPUs, MemoryMiB: s.n.opts.MemoryMiB,
		Disks: func() []string { return xslices.Map(s.n.disks(), func(d Disk) string { return d.Name }) },
	}

	return map[string]any{
		machine.MachineService_ServiceDesc.ServiceName:   machineServer{Gauges: gauges, session: s},
		machine.ImageService_ServiceDesc.ServiceName:     imageServer{session: s},
		machine.LifecycleService_ServiceDesc.ServiceName: lifecycleServer{session: s},
		machine.DebugService_ServiceDesc.ServiceName:     api.Debug{},
		cluster.ClusterService_ServiceDesc.ServiceName:   clusterServer{session: s},
		cosiv1alpha1.State_ServiceDesc.ServiceName:       cosi.Bookmarks(cosiserver.NewState(resources)),
		inspect.InspectService_ServiceDesc.ServiceName:   api.Inspect{},
		storage.StorageService_ServiceDesc.ServiceName:   storageServer{session: s},
		timeapi.TimeService_ServiceDesc.ServiceName:      timeServer{session: s},
	}
}

// machineServer serves the MachineService.
type machineServer struct {
	api.Gauges
	*session
}

// onControlPlane refuses calls that only control-plane nodes serve.
func (s *session) onControlPlane(api string) error {
	if !s.machineType().IsControlPlane() {
		return status.Errorf(codes.Unimplemented, "%s is only available on control plane nodes", api)
	}

	return nil
}
