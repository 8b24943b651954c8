package quorum

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/siderolabs/gen/xslices"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/talos-operator/talos-operator/lab/etcd"
)

// Real runs etcd processes.
type Real struct {
	// Binary and Utl are the paths to etcd and etcdutl.
	Binary, Utl string
}

var _ Engine = Real{}

func (r Real) options(s Start) etcd.Options {
	s.Binary, s.Utl = r.Binary, r.Utl

	return s
}

// Bootstrap implements Engine.
func (r Real) Bootstrap(ctx context.Context, s Start) (Member, error) {
	return r.wrap(s)(etcd.Bootstrap(ctx, r.options(s)))
}

// Recover implements Engine.
func (r Real) Recover(ctx context.Context, s Start, snapshot string, skipHash bool) (Member, error) {
	return r.wrap(s)(etcd.Recover(ctx, r.options(s), snapshot, skipHash))
}

// Join implements Engine.
func (r Real) Join(ctx context.Context, s Start) (Member, error) {
	return r.wrap(s)(etcd.Join(ctx, r.options(s), s.Peers()))
}

// Resume implements Engine.
func (r Real) Resume(ctx context.Context, s Start) (Member, error) {
	return r.wrap(s)(etcd.Resume(ctx, r.options(s)))
}

func (Real) wrap(s Start) func(*etcd.Member, error) (Member, error) {
	return func(m *etcd.Member, err error) (Member, error) {
		if err != nil {
			return nil, err
		}

		return &realMember{Member: m, start: s}, nil
	}
}

// realMember answers the calls of the node's API from a real member.
type realMember struct {
	*etcd.Member

	start Start
}

func (m *realMember) endpoint() string { return "https://" + m.start.Address + ":2379" }

// Members implements Member.
func (m *realMember) Members(ctx context.Context) ([]*machine.EtcdMember, error) {
	resp, err := m.Client().MemberList(clientv3.WithRequireLeader(ctx))
	if err != nil {
		return nil, err
	}

	return xslices.Map(resp.Members, func(e *etcdserverpb.Member) *machine.EtcdMember {
		return &machine.EtcdMember{
			Id: e.GetID(), Hostname: e.GetName(), PeerUrls: e.GetPeerURLs(), ClientUrls: e.GetClientURLs(),
			IsLearner: e.GetIsLearner(),
		}
	}), nil
}

// Status implements Member.
func (m *realMember) Status(ctx context.Context) (*machine.EtcdMemberStatus, error) {
	s, err := m.Client().Status(ctx, m.endpoint())
	if err != nil {
		return nil, err
	}

	storage := s.StorageVersion
	if storage == "" {
		storage = s.Version[:strings.LastIndex(s.Version, ".")+1] + "0"
	}

	return &machine.EtcdMemberStatus{
		MemberId: s.Header.GetMemberId(), ProtocolVersion: s.Version, StorageVersion: storage,
		DbSize: s.DbSize, DbSizeInUse: s.DbSizeInUse, Leader: s.Leader, IsLearner: s.IsLearner, Errors: s.Errors,
		RaftIndex: s.RaftIndex, RaftTerm: s.RaftTerm, RaftAppliedIndex: s.RaftAppliedIndex,
	}, nil
}

func alarms(list []*etcdserverpb.AlarmMember) []*machine.EtcdMemberAlarm {
	kinds := map[etcdserverpb.AlarmType]machine.EtcdMemberAlarm_AlarmType{
		etcdserverpb.AlarmType_NOSPACE: machine.EtcdMemberAlarm_NOSPACE,
		etcdserverpb.AlarmType_CORRUPT: machine.EtcdMemberAlarm_CORRUPT,
	}

	return xslices.Map(list, func(a *etcdserverpb.AlarmMember) *machine.EtcdMemberAlarm {
		return &machine.EtcdMemberAlarm{MemberId: a.GetMemberID(), Alarm: kinds[a.GetAlarm()]}
	})
}

// Alarms implements Member.
func (m *realMember) Alarms(ctx context.Context) ([]*machine.EtcdMemberAlarm, error) {
	resp, err := m.Client().AlarmList(ctx)
	if err != nil {
		return nil, fmt.Errorf("failed to list etcd alarms: %w", err)
	}

	return alarms(resp.Alarms), nil
}

// Disarm implements Member.
func (m *realMember) Disarm(ctx context.Context) ([]*machine.EtcdMemberAlarm, error) {
	resp, err := m.Client().AlarmDisarm(ctx, &clientv3.AlarmMember{})
	if err != nil {
		return nil, fmt.Errorf("failed to disarm etcd alarm: %w", err)
	}

	return alarms(resp.Alarms), nil
}

// Defragment implements Member.
func (m *realMember) Defragment(ctx context.Context) error {
	if _, err := m.Client().Defragment(ctx, m.endpoint()); err != nil {
		return fmt.Errorf("failed to defragment etcd: %w", err)
	}

	return nil
}

// Downgrade implements Member.
func (m *realMember) Downgrade(ctx context.Context, action DowngradeAction, version string) (string, error) {
	actions := map[DowngradeAction]clientv3.DowngradeAction{
		DowngradeValidate: clientv3.DowngradeValidate,
		DowngradeEnable:   clientv3.DowngradeEnable,
		DowngradeCancel:   clientv3.DowngradeCancel,
	}

	resp, err := m.Client().Downgrade(ctx, actions[action], version)
	if err != nil {
		return "", fmt.Errorf("failed to query etcd status: %w", err)
	}

	return resp.Version, nil
}

// Snapshot implements Member.
func (m *realMember) Snapshot(ctx context.Context) (io.ReadCloser, error) {
	r, err := m.Member.Snapshot(ctx)
	if err != nil {
		return nil, fmt.Errorf("failed reading etcd snapshot: %w", err)
	}

	return r, nil
}

// Forfeit implements Member.
func (m *realMember) Forfeit(ctx context.Context) (string, error) {
	members, err := m.Members(ctx)
	if err != nil {
		return "", fmt.Errorf("failed to list etcd members: %w", err)
	}

	if len(members) == 1 {
		return "", errors.New("cannot forfeit leadership, only one member")
	}

	status, err := m.Status(ctx)
	if err != nil {
		return "", err
	}

	if status.GetLeader() != status.GetMemberId() {
		return "", nil
	}

	for _, other := range members {
		if other.GetId() == status.GetMemberId() || other.GetIsLearner() {
			continue
		}

		if _, err = m.Client().MoveLeader(ctx, other.GetId()); err == nil {
			return other.GetHostname(), nil
		}
	}

	return "", err
}

// Remove implements Member.
func (m *realMember) Remove(ctx context.Context, id uint64) error {
	_, err := m.Client().MemberRemove(clientv3.WithRequireLeader(ctx), id)
	if errors.Is(err, rpctypes.ErrMemberNotFound) {
		return ErrMemberNotFound
	}

	return err
}
