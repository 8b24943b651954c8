package plan

import (
	"fmt"
	"slices"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// BootstrapAction is what to do about the bootstrap of etcd.
type BootstrapAction int

// Bootstrap actions.
const (
	// BootstrapWait: not now; the reason says what is missing.
	BootstrapWait BootstrapAction = iota
	// BootstrapDone: etcd answers with a member list.
	BootstrapDone
	// BootstrapNode: bootstrap the named node, after the choice was recorded.
	BootstrapNode
	// BootstrapRefuse: a person has to act.
	BootstrapRefuse
)

// BootstrapRecord is what was recorded about the bootstrap of a cluster.
type BootstrapRecord struct {
	// Machine that was chosen; empty when none was.
	Machine string
	// Established: etcd has answered with a member list since.
	Established bool
	// EarlierLife: the record was made for an earlier object of the same name, whose nodes have been reset since.
	EarlierLife bool
	// AllowNewEtcd: a person allows a new, empty etcd.
	AllowNewEtcd bool
}

// BootstrapDecision is the outcome.
type BootstrapDecision struct {
	// Action to take.
	Action BootstrapAction
	// Machine to bootstrap.
	Machine string
	// Reason is a condition reason.
	Reason string
	// Message for people.
	Message string
}

// Bootstrap decides whether etcd is to be bootstrapped, and where. A real node with an empty etcd directory accepts a
// bootstrap although its cluster already runs elsewhere, and then there are two clusters. So a bootstrap needs the
// evidence of every control-plane node that ever got a config under this PKI: it answers, and holds no etcd data.
func Bootstrap(rec BootstrapRecord, nodes []Node) BootstrapDecision {
	if a, b, split := splitViews(nodes); split {
		return refuse(v1alpha1.ReasonEtcdSplit, "%s and %s run two different etcd clusters under one PKI; "+
			"decide which one is right and reset the other node", a, b)
	}

	if serving := filter(nodes, Node.Serves); len(serving) > 0 {
		return BootstrapDecision{
			Action: BootstrapDone, Reason: v1alpha1.ReasonBootstrapped,
			Message: "etcd answers with a member list",
		}
	}

	if with := filter(nodes, func(n Node) bool { return n.EtcdData == DataPresent }); len(with) > 0 {
		return wait(
			v1alpha1.ReasonBootstrapping,
			"waiting for etcd on %s, which has data but does not answer yet",
			names(with),
		)
	}

	if silent := filter(nodes, Node.mayHideData); len(silent) > 0 {
		return wait(v1alpha1.ReasonWaitingForEvidence, "waiting for %s: without an answer from there nobody knows whether "+
			"etcd already runs, and a second bootstrap would split the cluster", names(silent))
	}

	return chooseNode(rec, nodes)
}

func chooseNode(rec BootstrapRecord, nodes []Node) BootstrapDecision {
	fresh := rec.EarlierLife || rec.AllowNewEtcd
	if rec.Established && !fresh {
		return refuse(v1alpha1.ReasonEtcdLost, "the cluster was established, and no control-plane node has etcd data any "+
			"more; restore a backup, or annotate the object with %s=true to start with an empty etcd",
			v1alpha1.AllowBootstrapAnnotation)
	}

	ready := filter(nodes, func(n Node) bool {
		return n.Answer == AnswerMember && n.EtcdData == DataAbsent && n.EtcdWaiting
	})
	if len(ready) == 0 {
		return wait(v1alpha1.ReasonWaitingForMachines, "no control-plane node waits for the bootstrap of etcd yet")
	}

	machine := ready[0].Name
	if i := slices.IndexFunc(ready, func(n Node) bool { return !n.ImageMissing }); i >= 0 {
		machine = ready[i].Name
	}

	if rec.Machine != "" && !fresh {
		if !slices.ContainsFunc(nodes, func(n Node) bool { return n.Name == rec.Machine }) {
			return refuse(v1alpha1.ReasonWaitingForEvidence, "machine %s was chosen for the bootstrap and is not listed any "+
				"more; list it again, or annotate the object with %s=true", rec.Machine, v1alpha1.AllowBootstrapAnnotation)
		}

		if !slices.ContainsFunc(ready, func(n Node) bool { return n.Name == rec.Machine }) {
			return wait(v1alpha1.ReasonBootstrapping, "waiting for %s, the node chosen for the bootstrap", rec.Machine)
		}

		machine = rec.Machine
	}

	return BootstrapDecision{
		Action: BootstrapNode, Machine: machine, Reason: v1alpha1.ReasonBootstrapping,
		Message: "bootstrapping etcd on " + machine,
	}
}

func wait(reason, format string, args ...any) BootstrapDecision {
	return BootstrapDecision{Action: BootstrapWait, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func refuse(reason, format string, args ...any) BootstrapDecision {
	return BootstrapDecision{Action: BootstrapRefuse, Reason: reason, Message: fmt.Sprintf(format, args...)}
}
