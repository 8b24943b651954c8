package node

import (
	"context"
	"fmt"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-operator/talos-operator/lab/node/service"
)

// ServiceList implements the MachineService.
func (s machineServer) ServiceList(context.Context, *emptypb.Empty) (*machine.ServiceListResponse, error) {
	return &machine.ServiceListResponse{Messages: []*machine.ServiceList{{Services: s.services.List()}}}, nil
}

// ServiceStart implements the MachineService.
func (s machineServer) ServiceStart(
	_ context.Context, req *machine.ServiceStartRequest,
) (*machine.ServiceStartResponse, error) {
	if err := s.startByAPI(req.GetId()); err != nil {
		return nil, err
	}

	return &machine.ServiceStartResponse{
		Messages: []*machine.ServiceStart{{Resp: fmt.Sprintf("Service %q started", req.GetId())}},
	}, nil
}

// ServiceStop implements the MachineService.
func (s machineServer) ServiceStop(
	_ context.Context,
	req *machine.ServiceStopRequest,
) (*machine.ServiceStopResponse, error) {
	st, ok := s.services.Get(req.GetId())
	if !ok {
		return nil, notDefinedError(req.GetId())
	}

	// none of a node's own services may be stopped through the API, as long as it runs
	if !ended(st) {
		return nil, fmt.Errorf("service %q doesn't support stop operation via API", req.GetId())
	}

	return &machine.ServiceStopResponse{
		Messages: []*machine.ServiceStop{{Resp: fmt.Sprintf("Service %q stopped", req.GetId())}},
	}, nil
}

// ServiceRestart implements the MachineService.
func (s machineServer) ServiceRestart(
	_ context.Context, req *machine.ServiceRestartRequest,
) (*machine.ServiceRestartResponse, error) {
	st, ok := s.services.Get(req.GetId())
	if !ok {
		return nil, notDefinedError(req.GetId())
	}

	if !ended(st) && req.GetId() != svcKubelet {
		return nil, fmt.Errorf("service %q doesn't support restart operation via API", req.GetId())
	}

	if !ended(st) {
		s.stopKubelet()
		s.stopService(svcKubelet)
	}

	if err := s.startByAPI(req.GetId()); err != nil {
		return nil, err
	}

	return &machine.ServiceRestartResponse{
		Messages: []*machine.ServiceRestart{{Resp: fmt.Sprintf("Service %q restarted", req.GetId())}},
	}, nil
}

// ended reports whether a service does not run and is not about to.
func ended(st service.Status) bool {
	return st.State == service.Finished || st.State == service.Failed || st.State == service.Skipped
}

// startByAPI starts a service that does not run; only the kubelet allows it.
func (s *session) startByAPI(id string) error {
	st, ok := s.services.Get(id)

	switch {
	case !ok:
		return notDefinedError(id)
	case !ended(st):
		return nil
	case id != svcKubelet:
		return fmt.Errorf("service %q doesn't support start operation via API", id)
	}

	s.update(svcKubelet, service.Starting, "Starting service")
	s.update(svcKubelet, service.Waiting, "%s", waitKubelet)
	s.spawn(func() {
		if err := s.startKubelet(s.ctx); err != nil {
			s.logf("kubelet: %v", err)
		}
	})

	return nil
}

// Events implements the MachineService.
func (s machineServer) Events(req *machine.EventsRequest, srv grpc.ServerStreamingServer[machine.Event]) error {
	ctx, cancel := s.callContext(srv.Context())
	defer cancel()

	return s.events.Watch(ctx, req, srv.Send)
}
