package safety

import "slices"

// RepeatWipe is the number of seconds after which an abandoned machine that still runs is told again to wipe itself.
const RepeatWipe = 60

// Identity is the known identity of a machine; unknown fields are empty.
type Identity struct {
	// Name of its TalosMachine, NodeName that its kubelet registers with, Address of its Talos API, UUID of its firmware.
	Name, Hostname, NodeName, Address, UUID string
}

// NodeState is the state of a machine's Node according to the API of the managed cluster.
type NodeState int

// Node states.
const (
	// NodeNotAsked: the API was not queried.
	NodeNotAsked NodeState = iota
	// NodeUnknown: the API was queried and did not respond.
	NodeUnknown
	// NodeNotReady: the Node does not exist, or is not ready.
	NodeNotReady
	// NodeReady: the Node is ready.
	NodeReady
)

// Fencing is the evidence about an abandoned machine, and about the machine that runs under the PKI of the cluster at
// its address or at the address of its object.
type Fencing struct {
	// Abandoned is the machine as it was recorded, Found the machine that responds now. Found has a Name if a TalosMachine
	// lists it.
	Abandoned, Found Identity
	// Ambiguous: the UUID identifies no machine, because several machines have it, or because a machine of the cluster was
	// observed with it.
	Ambiguous bool
	// Hold: the spec leaves abandoned machines as they are when they return.
	Hold bool
	// Restoring: etcd of the cluster is being restored.
	Restoring bool
	// MemberGone: the machine has no etcd member, as determined by Gone. Always true for workers.
	MemberGone bool
	// Told is how many seconds ago the machine was told to wipe itself; nil if it was not told. Negative after a clock was
	// set back.
	Told *int64
	// Worked: the machine ran its desired configuration after it was listed again.
	Worked bool
	// Approved: a user has approved the wipe.
	Approved bool
	// Node is the state of NodeName, or of the first ready Node if there are several. NodeError says why the state is
	// unknown.
	Node                NodeState
	NodeName, NodeError string
}

// FenceStep is the next step for a returned machine.
type FenceStep int

// Fence steps.
const (
	// FenceIgnore: the machine that responds is not the abandoned machine.
	FenceIgnore FenceStep = iota
	// FenceHold: the machine is kept out of the cluster and otherwise not changed.
	FenceHold
	// FenceAwaitRestore: the machine is not changed until the restore has ended.
	FenceAwaitRestore
	// FenceAwaitMember: the machine is not changed until it is proven to have no etcd member.
	FenceAwaitMember
	// FenceAwaitWipe: the machine was recently told to wipe itself.
	FenceAwaitWipe
	// FenceAskCluster: query the API of the managed cluster for the Node of the machine, then decide again.
	FenceAskCluster
	// FenceAskPerson: there is a doubt that only a user can resolve.
	FenceAskPerson
	// FenceWipe: the machine is wiped.
	FenceWipe
)

// FenceDoubt is a reason not to wipe a machine without the approval of a user.
type FenceDoubt int

// Fence doubts.
const (
	// DoubtNone: there is no doubt.
	DoubtNone FenceDoubt = iota
	// DoubtName and DoubtAddress: the machine is listed under another name or address than when it was abandoned.
	DoubtName
	DoubtAddress
	// DoubtWorked: the machine has worked since it was listed again.
	DoubtWorked
	// DoubtNodeName: the name of its Node is unknown, so Kubernetes cannot be queried. The hostname is no substitute: the
	// kubelet may register another name, and a Node that does not exist is not ready.
	DoubtNodeName
	// DoubtNodeUnknown: Kubernetes does not report whether its Node is ready.
	DoubtNodeUnknown
	// DoubtNodeReady: its Node is ready.
	DoubtNodeReady
)

// Fence decides about an abandoned machine that responds again. A firmware UUID alone proves nothing: boards may share
// one, and a state Secret that was restored from a copy may list machines that returned to service long ago. A machine
// is therefore wiped without approval only if it has the recorded UUID, name and address, has not worked since then,
// has no etcd member, and its Node is not ready.
func Fence(f Fencing) (FenceStep, FenceDoubt) {
	switch {
	case !f.same():
		return FenceIgnore, DoubtNone
	case f.Hold && f.Found.Name == "":
		return FenceHold, DoubtNone
	case f.Restoring:
		return FenceAwaitRestore, DoubtNone
	case !f.MemberGone:
		return FenceAwaitMember, DoubtNone
	case f.Told != nil && *f.Told >= 0 && *f.Told < RepeatWipe:
		return FenceAwaitWipe, DoubtNone
	case f.Approved:
		return FenceWipe, DoubtNone
	}

	switch doubt := f.doubt(); {
	case doubt != DoubtNone:
		return FenceAskPerson, doubt
	case f.Node == NodeNotAsked:
		return FenceAskCluster, DoubtNone
	}

	return FenceWipe, DoubtNone
}

// same reports whether the machine that responds is the abandoned one, as far as it can be identified.
func (f *Fencing) same() bool {
	if f.Ambiguous || f.Abandoned.UUID == "" || f.Found.UUID != f.Abandoned.UUID {
		return false
	}

	// The address of an unlisted machine may be in use by another machine with a copy of its UUID.
	return f.Found.Name != "" || f.Abandoned.Hostname == "" || f.Found.Hostname == f.Abandoned.Hostname
}

func (f *Fencing) doubt() FenceDoubt {
	switch {
	case f.Found.Name != "" && f.Found.Name != f.Abandoned.Name:
		return DoubtName
	case f.Abandoned.Address != "" && f.Found.Address != f.Abandoned.Address:
		return DoubtAddress
	case f.Worked:
		return DoubtWorked
	case f.Abandoned.NodeName == "" && (f.Found.NodeName == "" || !f.identified()):
		return DoubtNodeName
	case f.Node == NodeUnknown:
		return DoubtNodeUnknown
	case f.Node == NodeReady:
		return DoubtNodeReady
	}

	return DoubtNone
}

// identified reports whether what the machine reports now is evidence about the abandoned one. The address of an
// unlisted machine without a recorded hostname may be in use by another machine with a copy of its UUID.
func (f *Fencing) identified() bool { return f.Found.Name != "" || f.Abandoned.Hostname != "" }

// NodeNames returns the names that the Node of the machine may have: more names than necessary only add doubts.
func (f *Fencing) NodeNames() []string {
	names := []string{f.Abandoned.NodeName, f.Abandoned.Hostname}
	if f.identified() {
		names = append(names, f.Found.NodeName, f.Found.Hostname)
	}

	slices.Sort(names)

	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" })
}

// Explain describes a doubt.
func (f *Fencing) Explain(doubt FenceDoubt) string {
	switch doubt {
	case DoubtNone:
	case DoubtName:
		return "its name was " + f.Abandoned.Name
	case DoubtAddress:
		return "its address was " + f.Abandoned.Address
	case DoubtWorked:
		return "it has worked since"
	case DoubtNodeName:
		return "the name of its Node is not known"
	case DoubtNodeUnknown:
		return "the Kubernetes API does not say whether its Node is ready (" + f.NodeError + ")"
	case DoubtNodeReady:
		return "Kubernetes reports its Node " + f.NodeName + " ready"
	}

	return ""
}
