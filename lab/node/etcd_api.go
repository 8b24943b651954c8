package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/siderolabs/gen/xslices"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-operator/talos-operator/lab/etcd"
	"github.com/talos-operator/talos-operator/lab/node/api"
	"github.com/talos-operator/talos-operator/lab/node/quorum"
	"github.com/talos-operator/talos-operator/lab/node/service"
)

// waitMember returns the local member. Where etcd does not run it waits for it, which may be for as long as the caller
// waits: real nodes answer neither with an error nor at all.
func (s *session) waitMember(ctx context.Context) (quorum.Member, error) {
	ctx, cancel := s.callContext(ctx)
	defer cancel()

	for {
		if member := s.localMember(); member != nil {
			return member, nil
		}

		if err := s.services.Changed(ctx); err != nil {
			return nil, err
		}
	}
}

// ownMember is waitMember for calls that only control-plane nodes serve.
func (s *session) ownMember(ctx context.Context, call string) (quorum.Member, error) {
	if err := s.onControlPlane(call); err != nil {
		return nil, err
	}

	return s.waitMember(ctx)
}

// callContext ends with the call and with the boot.
func (s *session) callContext(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.ctx, cancel)

	return ctx, func() { stop(); cancel() }
}

// anyMember returns the local member or that of another control-plane node, as a client of all endpoints finds one.
func (s *session) anyMember(ctx context.Context) (quorum.Member, error) {
	if member := s.localMember(); member != nil {
		return member, nil
	}

	if s.n.isolated() {
		return s.waitMember(ctx)
	}

	for _, other := range s.others() {
		if member := other.localMember(); member != nil && other.memberID() != 0 {
			return member, nil
		}
	}

	return s.waitMember(ctx)
}

// Bootstrap implements the MachineService. Its only guard is the data directory: a node that left etcd or lost its disk
// accepts it although its cluster runs elsewhere, and splits it.
func (s machineServer) Bootstrap(
	ctx context.Context,
	req *machine.BootstrapRequest,
) (*machine.BootstrapResponse, error) {
	s.logf("bootstrap request received")

	if st, ok := s.services.Get(svcCRI); !ok || !st.Up() {
		return nil, status.Error(codes.FailedPrecondition, "bootstrap is not available yet")
	}

	if err := s.onControlPlane("bootstrap"); err != nil {
		return nil, err
	}

	if etcd.HasData(s.etcdDir()) {
		return nil, status.Error(codes.AlreadyExists, etcd.ErrNotEmpty.Error())
	}

	how := etcdStart{bootstrap: true, recover: req.GetRecoverEtcd(), skipHash: req.GetRecoverSkipHashCheck()}
	if err := s.bootstrapEtcd(ctx, how); err != nil {
		return nil, err
	}

	return &machine.BootstrapResponse{Messages: []*machine.Bootstrap{{}}}, nil
}

// EtcdMemberList implements the MachineService.
func (s machineServer) EtcdMemberList(
	ctx context.Context, req *machine.EtcdMemberListRequest,
) (*machine.EtcdMemberListResponse, error) {
	if err := s.onControlPlane("member list"); err != nil {
		return nil, err
	}

	find := s.anyMember
	if req.GetQueryLocal() {
		find = s.waitMember
	}

	member, err := find(ctx)
	if err != nil {
		return nil, err
	}

	members, err := member.Members(ctx)
	if err != nil {
		return nil, err
	}

	return &machine.EtcdMemberListResponse{Messages: []*machine.EtcdMembers{{
		LegacyMembers: xslices.Map(members, (*machine.EtcdMember).GetHostname), Members: members,
	}}}, nil
}

// EtcdRemoveMemberByID implements the MachineService.
func (s machineServer) EtcdRemoveMemberByID(
	ctx context.Context, req *machine.EtcdRemoveMemberByIDRequest,
) (*machine.EtcdRemoveMemberByIDResponse, error) {
	if err := s.onControlPlane("etcd remove member"); err != nil {
		return nil, err
	}

	member, err := s.anyMember(ctx)
	if err != nil {
		return nil, err
	}

	err = member.Remove(ctx, req.GetMemberId())

	switch {
	case errors.Is(err, quorum.ErrMemberNotFound):
		return nil, status.Errorf(codes.NotFound, "failed to remove member %d: %v", req.GetMemberId(), err)
	case err != nil:
		return nil, fmt.Errorf("failed to remove member: failed to remove member %d: %w", req.GetMemberId(), err)
	}

	return &machine.EtcdRemoveMemberByIDResponse{Messages: []*machine.EtcdRemoveMemberByID{{}}}, nil
}

// EtcdLeaveCluster implements the MachineService.
func (s machineServer) EtcdLeaveCluster(
	ctx context.Context, _ *machine.EtcdLeaveClusterRequest,
) (*machine.EtcdLeaveClusterResponse, error) {
	member, err := s.ownMember(ctx, "etcd leave")
	if err != nil {
		return nil, err
	}

	if err := s.leaveEtcd(ctx, member); err != nil {
		return nil, fmt.Errorf("failed to leave cluster: %w", err)
	}

	return &machine.EtcdLeaveClusterResponse{Messages: []*machine.EtcdLeaveCluster{{}}}, nil
}

// EtcdForfeitLeadership implements the MachineService.
func (s machineServer) EtcdForfeitLeadership(
	ctx context.Context, _ *machine.EtcdForfeitLeadershipRequest,
) (*machine.EtcdForfeitLeadershipResponse, error) {
	member, err := s.ownMember(ctx, "etcd forfeit leadership")
	if err != nil {
		return nil, err
	}

	leader, err := member.Forfeit(ctx)
	if err != nil {
		return nil, fmt.Errorf("failed to forfeit leadership: %w", err)
	}

	return &machine.EtcdForfeitLeadershipResponse{
		Messages: []*machine.EtcdForfeitLeadership{{Member: leader}},
	}, nil
}

// EtcdSnapshot implements the MachineService.
func (s machineServer) EtcdSnapshot(_ *machine.EtcdSnapshotRequest, srv grpc.ServerStreamingServer[common.Data]) error {
	member, err := s.ownMember(srv.Context(), "etcd snapshot")
	if err != nil {
		return err
	}

	snapshot, err := member.Snapshot(srv.Context())
	if err != nil {
		return err
	}

	defer snapshot.Close()

	return api.Send(srv, s.n.cut(snapshot))
}

// EtcdRecover implements the MachineService.
func (s machineServer) EtcdRecover(srv grpc.ClientStreamingServer[common.Data, machine.EtcdRecoverResponse]) error {
	if st, ok := s.services.Get(svcEtcd); !ok && s.machineType().IsControlPlane() || ok && st.State == service.Waiting {
		return status.Error(codes.FailedPrecondition, "etcd service is not ready for recovery yet")
	}

	if err := s.onControlPlane("etcd recover"); err != nil {
		return err
	}

	if err := s.receiveSnapshot(srv); err != nil {
		_ = os.Remove(s.recoverySnapshot()) // half a snapshot is worth nothing either way

		return err
	}

	return srv.SendAndClose(&machine.EtcdRecoverResponse{Messages: []*machine.EtcdRecover{{}}})
}

func (s *session) receiveSnapshot(srv grpc.ClientStreamingServer[common.Data, machine.EtcdRecoverResponse]) error {
	path := s.recoverySnapshot()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("error creating etcd recovery snapshot: %w", err)
	}

	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("error creating etcd recovery snapshot: %w", err)
	}

	for {
		msg, err := srv.Recv()
		if errors.Is(err, io.EOF) {
			return f.Close()
		}

		if err == nil {
			_, err = f.Write(msg.GetBytes())
		}

		if err != nil {
			return errors.Join(err, f.Close())
		}
	}
}

// EtcdAlarmList implements the MachineService.
func (s machineServer) EtcdAlarmList(ctx context.Context, _ *emptypb.Empty) (*machine.EtcdAlarmListResponse, error) {
	member, err := s.ownMember(ctx, "etcd alarm list")
	if err != nil {
		return nil, err
	}

	alarms, err := member.Alarms(ctx)
	if err != nil {
		return nil, err
	}

	return &machine.EtcdAlarmListResponse{Messages: []*machine.EtcdAlarm{{MemberAlarms: alarms}}}, nil
}

// EtcdAlarmDisarm implements the MachineService.
func (s machineServer) EtcdAlarmDisarm(
	ctx context.Context,
	_ *emptypb.Empty,
) (*machine.EtcdAlarmDisarmResponse, error) {
	member, err := s.ownMember(ctx, "etcd alarm disarm")
	if err != nil {
		return nil, err
	}

	alarms, err := member.Disarm(ctx)
	if err != nil {
		return nil, err
	}

	return &machine.EtcdAlarmDisarmResponse{Messages: []*machine.EtcdAlarmDisarm{{MemberAlarms: alarms}}}, nil
}

// EtcdDefragment implements the MachineService.
func (s machineServer) EtcdDefragment(ctx context.Context, _ *emptypb.Empty) (*machine.EtcdDefragmentResponse, error) {
	member, err := s.ownMember(ctx, "etcd defragment")
	if err != nil {
		return nil, err
	}

	if err := member.Defragment(ctx); err != nil {
		return nil, err
	}

	return &machine.EtcdDefragmentResponse{Messages: []*machine.EtcdDefragment{{}}}, nil
}

// EtcdStatus implements the MachineService.
func (s machineServer) EtcdStatus(ctx context.Context, _ *emptypb.Empty) (*machine.EtcdStatusResponse, error) {
	member, err := s.ownMember(ctx, "etcd status")
	if err != nil {
		return nil, err
	}

	st, err := member.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("failed to query etcd status: %w", err)
	}

	return &machine.EtcdStatusResponse{Messages: []*machine.EtcdStatus{{MemberStatus: st}}}, nil
}

// EtcdDowngradeValidate implements the MachineService.
func (s machineServer) EtcdDowngradeValidate(
	ctx context.Context, req *machine.EtcdDowngradeValidateRequest,
) (*machine.EtcdDowngradeValidateResponse, error) {
	downgrade, err := s.downgrade(ctx, "etcd downgrade validate", quorum.DowngradeValidate, req.GetVersion())
	if err != nil {
		return nil, err
	}

	return &machine.EtcdDowngradeValidateResponse{
		Messages: []*machine.EtcdDowngradeValidate{{ClusterDowngrade: downgrade}},
	}, nil
}

// EtcdDowngradeEnable implements the MachineService.
func (s machineServer) EtcdDowngradeEnable(
	ctx context.Context, req *machine.EtcdDowngradeEnableRequest,
) (*machine.EtcdDowngradeEnableResponse, error) {
	downgrade, err := s.downgrade(ctx, "etcd downgrade enable", quorum.DowngradeEnable, req.GetVersion())
	if err != nil {
		return nil, err
	}

	return &machine.EtcdDowngradeEnableResponse{
		Messages: []*machine.EtcdDowngradeEnable{{ClusterDowngrade: downgrade}},
	}, nil
}

// EtcdDowngradeCancel implements the MachineService.
func (s machineServer) EtcdDowngradeCancel(
	ctx context.Context, _ *emptypb.Empty,
) (*machine.EtcdDowngradeCancelResponse, error) {
	downgrade, err := s.downgrade(ctx, "etcd downgrade cancel", quorum.DowngradeCancel, "")
	if err != nil {
		return nil, err
	}

	return &machine.EtcdDowngradeCancelResponse{
		Messages: []*machine.EtcdDowngradeCancel{{ClusterDowngrade: downgrade}},
	}, nil
}

func (s *session) downgrade(
	ctx context.Context, call string, action quorum.DowngradeAction, version string,
) (*machine.EtcdClusterDowngrade, error) {
	if err := s.onControlPlane(call); err != nil {
		return nil, err
	}

	if action != quorum.DowngradeCancel {
		if err := api.CheckDowngrade(version); err != nil {
			return nil, err
		}
	}

	member, err := s.waitMember(ctx)
	if err != nil {
		return nil, err
	}

	cluster, err := member.Downgrade(ctx, action, version)
	if err != nil {
		return nil, err
	}

	return &machine.EtcdClusterDowngrade{ClusterVersion: cluster}, nil
}
