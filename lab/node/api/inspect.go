package api

import (
	"context"

	"github.com/siderolabs/talos/pkg/machinery/api/inspect"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Inspect serves the InspectService.
type Inspect struct {
	inspect.UnimplementedInspectServiceServer
}

// ControllerRuntimeDependencies implements the InspectService. It names the controllers that the emulation stands for.
func (Inspect) ControllerRuntimeDependencies(
	context.Context, *emptypb.Empty,
) (*inspect.ControllerRuntimeDependenciesResponse, error) {
	edge := func(controller, namespace, typ string) *inspect.ControllerDependencyEdge {
		return &inspect.ControllerDependencyEdge{
			ControllerName: controller, EdgeType: inspect.DependencyEdgeType_OUTPUT_EXCLUSIVE,
			ResourceNamespace: namespace, ResourceType: typ,
		}
	}

	return &inspect.ControllerRuntimeDependenciesResponse{Messages: []*inspect.ControllerRuntimeDependency{{
		Edges: []*inspect.ControllerDependencyEdge{
			edge("runtime.MachineStatusController", "runtime", "MachineStatuses.runtime.talos.dev"),
			edge("v1alpha1.ServiceController", "runtime", "Services.v1alpha1.talos.dev"),
			edge("cluster.MemberController", "cluster", "Members.cluster.talos.dev"),
			edge("etcd.MemberController", "etcd", "EtcdMembers.etcd.talos.dev"),
		},
	}}}, nil
}

// Debug serves the DebugService.
type Debug struct {
	machine.UnimplementedDebugServiceServer
}

// ContainerRun implements the DebugService. The lab has no containers to run.
func (Debug) ContainerRun(
	srv grpc.BidiStreamingServer[machine.DebugContainerRunRequest, machine.DebugContainerRunResponse],
) error {
	if _, err := srv.Recv(); err != nil {
		return err
	}

	return status.Error(codes.InvalidArgument, "the first message should be a container spec")
}
