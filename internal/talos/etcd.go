package talos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/etcd"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-operator/talos-operator/internal/text"
)

// Member is one entry of an etcd member list.
type Member struct {
	// ID of the member.
	ID uint64
	// Name is the hostname that the member was started with.
	Name string
	// PeerHosts are the hosts of its peer URLs.
	PeerHosts []string
	// Learner members do not vote.
	Learner bool
}

// EtcdMembers returns the member list of the node's own etcd. It returns ErrNotServing if etcd does not run, and
// ErrNoLeader if it has no quorum.
func (n *Node) EtcdMembers(parent context.Context) ([]Member, error) {
	ctx, cancel := context.WithTimeout(parent, callTimeout)
	defer cancel()

	resp, err := n.c.EtcdMemberList(ctx, &machineapi.EtcdMemberListRequest{QueryLocal: true})
	if err != nil {
		return nil, n.etcdError(parent, "the member list", err)
	}

	var out []Member

	for _, m := range resp.GetMessages() {
		for _, e := range m.GetMembers() {
			out = append(
				out,
				Member{ID: e.GetId(), Name: e.GetHostname(), Learner: e.GetIsLearner(), PeerHosts: hosts(e.GetPeerUrls())},
			)
		}
	}

	return out, nil
}

// hosts returns the hosts of URLs, in which any character may be escaped.
func hosts(urls []string) []string {
	out := make([]string, 0, len(urls))

	for _, raw := range urls {
		if u, err := url.Parse(raw); err == nil {
			out = append(out, text.Name(u.Hostname()))
		}
	}

	return out
}

// MemberByID finds a member on a list.
func MemberByID(members []Member, id uint64) (Member, bool) {
	i := slices.IndexFunc(members, func(m Member) bool { return m.ID == id })
	if i < 0 {
		return Member{}, false
	}

	return members[i], true
}

// ParseMemberID parses a member ID in the format of Talos resources and Facts: hexadecimal.
func ParseMemberID(text string) (uint64, error) { return etcd.ParseMemberID(text) }

// FormatMemberID formats a member ID as Talos resources and Facts do.
func FormatMemberID(id uint64) string { return etcd.FormatMemberID(id) }

// EtcdStatus is the status that a member reports about itself.
type EtcdStatus struct {
	// MemberID of the node's own member.
	MemberID uint64
	// Leader is the member ID of the leader; 0 if the member sees none.
	Leader uint64
	// Learner members do not vote.
	Learner bool
	// DBSize is the size of the database file, DBSizeInUse its size after a defragmentation.
	DBSize, DBSizeInUse int64
	// RaftIndex and RaftAppliedIndex show whether the member lags.
	RaftIndex, RaftAppliedIndex uint64
	// Errors that the member reports.
	Errors []string
	// Version of etcd, and StorageVersion of its database.
	Version, StorageVersion string
}

// EtcdStatus queries the node's own member. It returns ErrNotServing if etcd does not run.
func (n *Node) EtcdStatus(parent context.Context) (EtcdStatus, error) {
	ctx, cancel := context.WithTimeout(parent, callTimeout)
	defer cancel()

	resp, err := n.c.EtcdStatus(ctx)
	if err != nil {
		return EtcdStatus{}, n.etcdError(parent, "the etcd status", err)
	}

	for _, m := range resp.GetMessages() {
		s := m.GetMemberStatus()

		return EtcdStatus{
			MemberID: s.GetMemberId(), Leader: s.GetLeader(), Learner: s.GetIsLearner(),
			DBSize: s.GetDbSize(), DBSizeInUse: s.GetDbSizeInUse(),
			RaftIndex: s.GetRaftIndex(), RaftAppliedIndex: s.GetRaftAppliedIndex(), Errors: s.GetErrors(),
			Version: s.GetProtocolVersion(), StorageVersion: s.GetStorageVersion(),
		}, nil
	}

	return EtcdStatus{}, fmt.Errorf("asking %s for the etcd status: %w", n.name(), ErrNotServing)
}

// EtcdAlarms returns the active alarms, as texts. It returns ErrNotServing if etcd does not run.
func (n *Node) EtcdAlarms(parent context.Context) ([]string, error) {
	alarms, err := n.EtcdMemberAlarms(parent)

	var out []string
	for _, a := range alarms {
		out = append(out, a.Alarm)
	}

	return out, err
}

// MemberAlarm is an alarm of one member.
type MemberAlarm struct {
	// MemberID of the member with the alarm.
	MemberID uint64
	// Alarm as a text.
	Alarm string
}

// EtcdMemberAlarms returns the active alarms of all members. It returns ErrNotServing if etcd does not run.
func (n *Node) EtcdMemberAlarms(parent context.Context) ([]MemberAlarm, error) {
	ctx, cancel := context.WithTimeout(parent, callTimeout)
	defer cancel()

	resp, err := n.c.EtcdAlarmList(ctx)
	if err != nil {
		return nil, n.etcdError(parent, "the alarm list", err)
	}

	var out []MemberAlarm

	for _, m := range resp.GetMessages() {
		for _, a := range m.GetMemberAlarms() {
			if a.GetAlarm() != machineapi.EtcdMemberAlarm_NONE {
				out = append(out, MemberAlarm{MemberID: a.GetMemberId(), Alarm: a.GetAlarm().String()})
			}
		}
	}

	return out, nil
}

// noLeader is etcd's response to calls that need a quorum while there is none.
const noLeader = "etcdserver: no leader"

// etcdError attributes a call that reached its own deadline to an etcd that does not run, if the node itself responds.
// If the caller has no more time, the state of etcd is unknown.
func (n *Node) etcdError(parent context.Context, call string, err error) error {
	if cause := over(parent, err); cause != nil {
		return fmt.Errorf("asking %s for %s: %w", n.name(), call, cause)
	}

	if status.Code(err) == codes.Unknown && strings.Contains(err.Error(), noLeader) {
		return fmt.Errorf("%w: %w", ErrNoLeader, classify(call, n.name(), err))
	}

	if !isDeadline(err) || isTrust(err) {
		return classify(call, n.name(), err)
	}

	if !n.answers(parent) {
		return classify(call, n.name(), status.Error(codes.Unavailable, "the node itself does not respond"))
	}

	return fmt.Errorf("asking %s for %s: %w", n.name(), call, ErrNotServing)
}

// answers reports whether the node responds to a call that needs no etcd. A dead or frozen node proves nothing about
// its etcd.
func (n *Node) answers(ctx context.Context) bool {
	if !n.ready() {
		return false
	}

	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()

	return beat(ctx, n.c) == nil
}

// EtcdDataPresent reports whether the etcd data directory of the node is not empty.
func (n *Node) EtcdDataPresent(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	stream, err := n.c.LS(ctx, &machineapi.ListRequest{Root: constants.EtcdDataPath})
	if err != nil {
		return false, classify("the listing of the etcd data", n.name(), err)
	}

	for {
		info, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return false, nil
		}

		if err != nil {
			if isNotExist(err.Error()) {
				return false, nil
			}

			return false, classify("the listing of the etcd data", n.name(), err)
		}

		if info.GetError() != "" {
			if isNotExist(info.GetError()) {
				continue
			}

			return false, fmt.Errorf("inspecting the etcd data of %s: %s", n.name(), info.GetError())
		}

		if rel := info.GetRelativeName(); rel != "" && rel != "." &&
			strings.TrimSuffix(info.GetName(), "/") != constants.EtcdDataPath {
			return true, nil
		}
	}
}

func isNotExist(text string) bool { return strings.Contains(text, "no such file or directory") }
