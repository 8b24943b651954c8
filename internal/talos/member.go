package talos

import (
	"context"
	"fmt"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ForfeitLeadership makes the node's member give up the etcd leadership. It is no error if the member is not the
// leader.
func (n *Node) ForfeitLeadership(parent context.Context) error {
	parent = Acting(parent)

	ctx, cancel := act(parent, slowTimeout)
	defer cancel()

	if _, err := n.c.EtcdForfeitLeadership(ctx, &machineapi.EtcdForfeitLeadershipRequest{}); err != nil {
		return n.etcdError(parent, "the transfer of the etcd leadership", err)
	}

	return nil
}

// RemoveMember lets this node remove another member from etcd by its ID. It is no error if the member is no longer on
// the list.
func (n *Node) RemoveMember(parent context.Context, id uint64) error {
	parent = Acting(parent)

	ctx, cancel := act(parent, slowTimeout)
	defer cancel()

	err := n.c.EtcdRemoveMemberByID(ctx, &machineapi.EtcdRemoveMemberByIDRequest{MemberId: id})

	switch {
	case err == nil, status.Code(err) == codes.NotFound:
		return nil
	default:
		return n.etcdError(parent, fmt.Sprintf("the removal of etcd member %x", id), err)
	}
}

// EtcdDefragment shrinks the database of the node's own member, which serves no requests meanwhile: defragment one node
// at a time.
func (n *Node) EtcdDefragment(parent context.Context) error {
	parent = Acting(parent)

	// A defragmentation may take minutes, and never returns if etcd does not run, so the status is queried first.
	if _, err := n.EtcdStatus(parent); err != nil {
		return err
	}

	ctx, cancel := act(parent, defragmentTimeout)
	defer cancel()

	if _, err := n.c.EtcdDefragment(ctx); err != nil {
		return n.etcdError(parent, "the defragmentation of etcd", err)
	}

	return nil
}

// LeaveEtcd makes the node leave etcd and delete its data. It works only while the node's own etcd responds.
func (n *Node) LeaveEtcd(parent context.Context) error {
	parent = Acting(parent)

	ctx, cancel := act(parent, slowTimeout)
	defer cancel()

	if err := n.c.EtcdLeaveCluster(ctx, &machineapi.EtcdLeaveClusterRequest{}); err != nil {
		return n.etcdError(parent, "the removal of its own etcd member", err)
	}

	return nil
}
