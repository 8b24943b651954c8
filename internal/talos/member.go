package talos

import (
	"context"
	"fmt"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ForfeitLeadership has the node's member give up the leadership of etcd. It is no error when it does not lead.
func (n *Node) ForfeitLeadership(parent context.Context) error {
	parent = acting(parent)

	ctx, cancel := context.WithTimeout(parent, slowTimeout)
	defer cancel()

	if _, err := n.c.EtcdForfeitLeadership(ctx, &machineapi.EtcdForfeitLeadershipRequest{}); err != nil {
		return n.etcdError(parent, "the transfer of the etcd leadership", err)
	}

	return nil
}

// RemoveMember has this node, a survivor, take a member out of etcd by its ID. A member that is not on the list any
// more is no error: that is what was wanted.
func (n *Node) RemoveMember(parent context.Context, id uint64) error {
	parent = acting(parent)

	ctx, cancel := context.WithTimeout(parent, slowTimeout)
	defer cancel()

	err := n.c.EtcdRemoveMemberByID(ctx, &machineapi.EtcdRemoveMemberByIDRequest{MemberId: id})

	switch {
	case err == nil, status.Code(err) == codes.NotFound:
		return nil
	default:
		return n.etcdError(parent, fmt.Sprintf("the removal of etcd member %x", id), err)
	}
}

// EtcdDefragment shrinks the database of the node's own member, which serves nobody meanwhile: one node at a time.
func (n *Node) EtcdDefragment(parent context.Context) error {
	parent = acting(parent)

	// It may take minutes, and where etcd does not run it takes for ever, so that is asked first.
	if _, err := n.EtcdStatus(parent); err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(parent, defragmentTimeout)
	defer cancel()

	if _, err := n.c.EtcdDefragment(ctx); err != nil {
		return n.etcdError(parent, "the defragmentation of etcd", err)
	}

	return nil
}

// LeaveEtcd has the node leave etcd and delete its data. It works only while the node's own etcd answers.
func (n *Node) LeaveEtcd(parent context.Context) error {
	parent = acting(parent)

	ctx, cancel := context.WithTimeout(parent, slowTimeout)
	defer cancel()

	if err := n.c.EtcdLeaveCluster(ctx, &machineapi.EtcdLeaveClusterRequest{}); err != nil {
		return n.etcdError(parent, "the removal of its own etcd member", err)
	}

	return nil
}
