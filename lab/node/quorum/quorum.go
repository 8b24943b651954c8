// Package quorum is the etcd of a control-plane node as the node's API sees it: a real member, or a model of one for
// runs that cannot afford hundreds of etcd processes.
package quorum

import (
	"context"
	"io"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"

	"github.com/talos-operator/talos-operator/lab/etcd"
)

// Member is the etcd member of one node.
type Member interface {
	// ID returns the member ID.
	ID(ctx context.Context) (uint64, error)
	// Health is nil when the member serves linearizable reads.
	Health(ctx context.Context) error
	// Members lists the cluster as this member sees it.
	Members(ctx context.Context) ([]*machine.EtcdMember, error)
	// Status describes this member.
	Status(ctx context.Context) (*machine.EtcdMemberStatus, error)
	// Alarms lists the alarms of all members.
	Alarms(ctx context.Context) ([]*machine.EtcdMemberAlarm, error)
	// Disarm clears the alarms and returns those cleared.
	Disarm(ctx context.Context) ([]*machine.EtcdMemberAlarm, error)
	// Defragment compacts the database of this member.
	Defragment(ctx context.Context) error
	// Downgrade validates, enables or cancels a downgrade and returns the cluster version.
	Downgrade(ctx context.Context, action DowngradeAction, version string) (string, error)
	// Snapshot streams the database with its checksum.
	Snapshot(ctx context.Context) (io.ReadCloser, error)
	// Forfeit hands the leadership to another member and returns its name; empty when this member does not lead.
	Forfeit(ctx context.Context) (string, error)
	// Remove removes a member by ID.
	Remove(ctx context.Context, id uint64) error
	// Leave removes this member from the cluster, stops it and deletes its data.
	Leave(ctx context.Context) error
	// Stop ends the member cleanly, its data stays.
	Stop(ctx context.Context) error
	// Kill ends the member at once, as a power cut does.
	Kill()
	// Freeze stops the member from answering, or lets it go on.
	Freeze(frozen bool) error
	// Done is closed when the member has ended.
	Done() <-chan struct{}
}

// DowngradeAction is a step of an etcd downgrade.
type DowngradeAction int

// Steps of a downgrade.
const (
	DowngradeValidate DowngradeAction = iota
	DowngradeEnable
	DowngradeCancel
)

// Start is how a member comes up. Its Binary and Utl are the engine's.
type Start = etcd.Options

// Engine brings members up: the real etcd or the model.
type Engine interface {
	// Bootstrap starts the first member of a new cluster.
	Bootstrap(ctx context.Context, s Start) (Member, error)
	// Recover starts the first member of a new cluster from a snapshot file.
	Recover(ctx context.Context, s Start, snapshot string, skipHash bool) (Member, error)
	// Join becomes a member of the cluster of the peers; it waits for one of them until ctx ends.
	Join(ctx context.Context, s Start) (Member, error)
	// Resume starts the member whose data is there.
	Resume(ctx context.Context, s Start) (Member, error)
}
