package safety

import "slices"

// RepeatWipe is after how many seconds an abandoned machine that still runs is told again to wipe itself.
const RepeatWipe = 60

// Identity is what is known of a machine; each field is empty when it is unknown.
type Identity struct {
	// Name of its TalosMachine, Hostname of its Node, Address of its Talos API, UUID of its firmware.
	Name, Hostname, Address, UUID string
}

// NodeState is what the API of the managed cluster says about the Node of a machine.
type NodeState int

// Node states.
const (
	// NodeNotAsked: the API was not asked.
	NodeNotAsked NodeState = iota
	// NodeUnknown: the API was asked and gave no answer.
	NodeUnknown
	// NodeNotReady: there is no such Node, or it is not ready.
	NodeNotReady
	// NodeReady: the Node is ready.
	NodeReady
)

// Fencing is the evidence about an abandoned machine and about what runs at its address, or at that of its object,
// under the PKI of the cluster.
type Fencing struct {
	// Abandoned is the machine as it was recorded, Found what responds now. Found has a Name where a TalosMachine lists
	// it.
	Abandoned, Found Identity
	// Ambiguous: the UUID identifies no machine, because several have it, or because one of the cluster was seen with it.
	Ambiguous bool
	// Hold: the spec leaves abandoned machines as they are when they return.
	Hold bool
	// Restoring: etcd of the cluster is being restored.
	Restoring bool
	// MemberGone: the machine has no etcd member, as Gone says. True for workers.
	MemberGone bool
	// Told is how many seconds ago the machine was told to wipe itself; nil when it was not. Negative after a clock was
	// set back.
	Told *int64
	// Worked: the machine ran its desired configuration after it was listed again.
	Worked bool
	// Approved: a person has approved the wipe.
	Approved bool
	// Node is the state of NodeName, or of the first ready one of several; NodeError says why it is unknown.
	Node                NodeState
	NodeName, NodeError string
}

// FenceStep is what happens to a returned machine next.
type FenceStep int

// Fence steps.
const (
	// FenceIgnore: what responds is not the abandoned machine.
	FenceIgnore FenceStep = iota
	// FenceHold: it is kept out of the cluster and left as it is.
	FenceHold
	// FenceAwaitRestore: it is left as it is until the restore has ended.
	FenceAwaitRestore
	// FenceAwaitMember: it is left as it is until it is proven to have no member.
	FenceAwaitMember
	// FenceAwaitWipe: it was told to wipe itself a moment ago.
	FenceAwaitWipe
	// FenceAskCluster: the API of the managed cluster is to be asked about its Node, and then to be decided again.
	FenceAskCluster
	// FenceAskPerson: there is a doubt that only a person can resolve.
	FenceAskPerson
	// FenceWipe: it is wiped.
	FenceWipe
)

// FenceDoubt is what speaks against wiping a machine without asking a person.
type FenceDoubt int

// Fence doubts.
const (
	// DoubtNone: nothing does.
	DoubtNone FenceDoubt = iota
	// DoubtName and DoubtAddress: it is listed under another name, or at another address, than it was abandoned.
	DoubtName
	DoubtAddress
	// DoubtWorked: it has worked since it was listed again.
	DoubtWorked
	// DoubtHostname: the name of its Node is unknown, so that Kubernetes cannot be asked.
	DoubtHostname
	// DoubtNodeUnknown: Kubernetes does not say whether its Node is ready.
	DoubtNodeUnknown
	// DoubtNodeReady: its Node is ready.
	DoubtNodeReady
)

// Fence decides about an abandoned machine that responds again. A firmware UUID alone proves nothing: boards share
// them, and a state Secret that was restored from a copy lists machines that returned to service long ago. So what is
// wiped without a person has the recorded UUID, name and address, has not worked since, has no etcd member, and its
// Node is not ready.
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

// same: what responds is the machine that was abandoned, as far as it can be identified.
func (f *Fencing) same() bool {
	if f.Ambiguous || f.Abandoned.UUID == "" || f.Found.UUID != f.Abandoned.UUID {
		return false
	}

	// At the address of a machine that is not listed there may be another one by now, with a copy of its UUID.
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
	case len(f.NodeNames()) == 0:
		return DoubtHostname
	case f.Node == NodeUnknown:
		return DoubtNodeUnknown
	case f.Node == NodeReady:
		return DoubtNodeReady
	}

	return DoubtNone
}

// NodeNames are the names that the Node of the machine may have. One that is not listed has the recorded one alone:
// what it calls itself now is not evidence.
func (f *Fencing) NodeNames() []string {
	names := []string{f.Abandoned.Hostname}
	if f.Found.Name != "" {
		names = append(names, f.Found.Hostname)
	}

	slices.Sort(names)

	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" })
}

// Explain words a doubt.
func (f *Fencing) Explain(doubt FenceDoubt) string {
	switch doubt {
	case DoubtNone:
	case DoubtName:
		return "its name was " + f.Abandoned.Name
	case DoubtAddress:
		return "its address was " + f.Abandoned.Address
	case DoubtWorked:
		return "it has worked since"
	case DoubtHostname:
		return "the name of its Node is not known"
	case DoubtNodeUnknown:
		return "the Kubernetes API does not say whether its Node is ready (" + f.NodeError + ")"
	case DoubtNodeReady:
		return "Kubernetes reports its Node " + f.NodeName + " ready"
	}

	return ""
}
