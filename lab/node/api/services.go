// Package api is what of a node's API needs nothing of the node: which services there are, and calls that are
// calculated.
package api

import (
	"context"
	"slices"
	"strings"

	cosiv1alpha1 "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/api/cluster"
	"github.com/siderolabs/talos/pkg/machinery/api/inspect"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/api/storage"
	timeapi "github.com/siderolabs/talos/pkg/machinery/api/time"
	"google.golang.org/grpc"
)

// services are those that a node serves.
var services = []*grpc.ServiceDesc{
	&machine.MachineService_ServiceDesc,
	&machine.ImageService_ServiceDesc,
	&machine.LifecycleService_ServiceDesc,
	&machine.DebugService_ServiceDesc,
	&cluster.ClusterService_ServiceDesc,
	&cosiv1alpha1.State_ServiceDesc,
	&inspect.InspectService_ServiceDesc,
	&storage.StorageService_ServiceDesc,
	&timeapi.TimeService_ServiceDesc,
}

// Methods returns the names of the methods of the machine API, without their services, sorted.
func Methods() []string {
	var out []string

	for _, desc := range services {
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

	return slices.ContainsFunc(services, func(desc *grpc.ServiceDesc) bool {
		name, is := strings.CutPrefix(method, "/"+desc.ServiceName+"/")

		return is && (slices.ContainsFunc(desc.Methods, func(m grpc.MethodDesc) bool { return m.MethodName == name }) ||
			slices.ContainsFunc(desc.Streams, func(m grpc.StreamDesc) bool { return m.StreamName == name }))
	})
}

// Redirected are the services of a node with handlers that look up who serves a service at the moment.
func Redirected(find func(srv any, service string) (any, error)) []*grpc.ServiceDesc {
	out := make([]*grpc.ServiceDesc, len(services))

	for i, desc := range services {
		c := *desc
		c.Methods, c.Streams = nil, nil

		for _, m := range desc.Methods {
			m.Handler = unary(desc.ServiceName, m, find)
			c.Methods = append(c.Methods, m)
		}

		for _, m := range desc.Streams {
			handler := m.Handler
			m.Handler = func(srv any, stream grpc.ServerStream) error {
				impl, err := find(srv, desc.ServiceName)
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

func unary(
	service string, m grpc.MethodDesc, find func(srv any, service string) (any, error),
) grpc.MethodHandler {
	return func(srv any, ctx context.Context, dec func(any) error, i grpc.UnaryServerInterceptor) (any, error) {
		impl, err := find(srv, service)
		if err != nil {
			return nil, err
		}

		return m.Handler(impl, ctx, dec, i)
	}
}
