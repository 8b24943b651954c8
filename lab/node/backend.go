package node

import (
	"context"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	cosiv1alpha1 "github.com/cosi-project/runtime/api/v1alpha1"
	cosiserver "github.com/cosi-project/runtime/pkg/state/protobuf/server"
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

// descriptors are those of the services that a node serves, with handlers that look up the boot that runs.
var descriptors = redirected(
	&machine.MachineService_ServiceDesc,
	&machine.ImageService_ServiceDesc,
	&machine.LifecycleService_ServiceDesc,
	&machine.DebugService_ServiceDesc,
	&cluster.ClusterService_ServiceDesc,
	&cosiv1alpha1.State_ServiceDesc,
	&inspect.InspectService_ServiceDesc,
	&storage.StorageService_ServiceDesc,
	&timeapi.TimeService_ServiceDesc,
)

// Methods returns the names of the methods of the machine API, without their services, sorted.
func Methods() []string {
	var out []string

	for _, desc := range descriptors {
		for _, m := range desc.Methods {
			out = append(out, m.MethodName)
		}

		for _, m := range desc.Streams {
			out = append(out, m.StreamName)
		}
	}

	slices.Sort(out)

	return slices.Compact(out)
}

// HasMethod reports whether the machine API has a method, given by its name, or by its service and name.
func HasMethod(method string) bool {
	if !strings.HasPrefix(method, "/") {
		return slices.Contains(Methods(), method)
	}

	return slices.ContainsFunc(descriptors, func(desc *grpc.ServiceDesc) bool {
		name, is := strings.CutPrefix(method, "/"+desc.ServiceName+"/")

		return is && (slices.ContainsFunc(desc.Methods, func(m grpc.MethodDesc) bool { return m.MethodName == name }) ||
			slices.ContainsFunc(desc.Streams, func(m grpc.StreamDesc) bool { return m.StreamName == name }))
	})
}

func redirected(list ...*grpc.ServiceDesc) []*grpc.ServiceDesc {
	out := make([]*grpc.ServiceDesc, len(list))

	for i, desc := range list {
		c := *desc
		c.Methods, c.Streams = nil, nil

		for _, m := range desc.Methods {
			c.Methods = append(c.Methods, grpc.MethodDesc{MethodName: m.MethodName, Handler: unary(desc.ServiceName, m)})
		}

		for _, m := range desc.Streams {
			handler := m.Handler
			m.Handler = func(srv any, stream grpc.ServerStream) error {
				impl, err := implementation(srv, desc.ServiceName)
				if err != nil {
					return err
				}

				return handler(impl, stream)
			}
			c.Streams = append(c.Streams, m)
		}

		out[i] = &c
	}

	return out
}

func unary(service string, m grpc.MethodDesc) grpc.MethodHandler {
	return func(srv any, ctx context.Context, dec func(any) error, i grpc.UnaryServerInterceptor) (any, error) {
		impl, err := implementation(srv, service)
		if err != nil {
			return nil, err
		}

		return m.Handler(impl, ctx, dec, i)
	}
}

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

	if handler, ok := unserved[service]; ok && s.olderThan(servedFrom) {
		return handler, nil
	}

	return s.handlers[service], nil
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

	return map[string]any{
		machine.MachineService_ServiceDesc.ServiceName:   machineServer{session: s},
		machine.ImageService_ServiceDesc.ServiceName:     imageServer{session: s},
		machine.LifecycleService_ServiceDesc.ServiceName: lifecycleServer{session: s},
		machine.DebugService_ServiceDesc.ServiceName:     debugServer{session: s},
		cluster.ClusterService_ServiceDesc.ServiceName:   clusterServer{session: s},
		cosiv1alpha1.State_ServiceDesc.ServiceName:       cosi.Bookmarks(cosiserver.NewState(resources)),
		inspect.InspectService_ServiceDesc.ServiceName:   inspectServer{session: s},
		storage.StorageService_ServiceDesc.ServiceName:   storageServer{session: s},
		timeapi.TimeService_ServiceDesc.ServiceName:      timeServer{session: s},
	}
}

// machineServer serves the MachineService.
type machineServer struct {
	machine.UnimplementedMachineServiceServer
	*session
}

// onControlPlane refuses calls that only control-plane nodes serve.
func (s *session) onControlPlane(api string) error {
	if !s.machineType().IsControlPlane() {
		return status.Errorf(codes.Unimplemented, "%s is only available on control plane nodes", api)
	}

	return nil
}
