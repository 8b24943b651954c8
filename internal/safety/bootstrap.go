package safety

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// BootstrapAction is the next action of the bootstrap of etcd.
type BootstrapAction int

// Bootstrap actions.
const (
	// BootstrapWait: the bootstrap has to wait; the reason says what is missing.
	BootstrapWait BootstrapAction = iota
	// BootstrapDone: etcd responds with a member list.
	BootstrapDone
	// BootstrapNode: bootstrap the named node, after the choice was recorded.
	BootstrapNode
	// BootstrapRefuse: user action is required.
	BootstrapRefuse
)

// BootstrapRecord is the recorded state of a cluster's bootstrap.
type BootstrapRecord struct {
	// Machine that was chosen; empty if none was.
	Machine string
	// Recent: the machine was chosen so recently that the bootstrap call may still be in progress.
	Recent bool
	// Established: etcd has responded with a member list since then.
	Established bool
	// EarlierLife: the record belongs to an earlier object of the same name, whose nodes have been reset since then.
	EarlierLife bool
	// AllowNewEtcd: a user allows a new, empty etcd.
	AllowNewEtcd bool
}

// BootstrapDecision is the result of Bootstrap.
type BootstrapDecision struct {
	// Action to take.
	Action BootstrapAction
	// Machine to bootstrap.
	Machine string
	// Reason is a condition reason.
	Reason string
	// Message for users.
	Message string
}

// Bootstrap decides whether etcd is bootstrapped, and on which node. A node with an empty etcd directory accepts a
// bootstrap even if its cluster already runs on other nodes, which results in two clusters. A bootstrap therefore needs
// evidence from every control-plane node that was ever configured under this PKI, listed or not: it responds, and it
// has no etcd data.
func Bootstrap(rec BootstrapRecord, nodes []Node) BootstrapDecision {
	if a, b, split := splitViews(nodes); split {
		return refuse(v1alpha1.ReasonEtcdSplit, "%s and %s run two different etcd clusters under one PKI; "+
			"decide which one is right and reset the other node", a, b)
	}

	if slices.ContainsFunc(nodes, func(n Node) bool { return n.Serves() && !n.Unlisted }) {
		return BootstrapDecision{
			Action: BootstrapDone, Reason: v1alpha1.ReasonBootstrapped,
			Message: "etcd responds with a member list",
		}
	}

	if other := filter(nodes, func(n Node) bool { return n.Unlisted && n.EtcdData == DataPresent }); len(other) > 0 {
		return wait(v1alpha1.ReasonWaitingForEvidence, "%s, no longer listed, %s etcd data of this cluster, and a second "+
			"bootstrap would split it: %s", names(other), does(other, "has", "have"), unlisted(other))
	}

	if with := filter(nodes, func(n Node) bool { return n.EtcdData == DataPresent }); len(with) > 0 {
		return wait(
			v1alpha1.ReasonBootstrapping,
			"waiting for etcd on %s, which has data but does not respond yet",
			names(with),
		)
	}

	if silent := filter(nodes, Node.mayHideData); len(silent) > 0 {
		advice := ""
		if other := filter(silent, Node.mayBeForgotten); len(other) > 0 {
			advice = "; " + names(other) + does(other, " is", " are") + " no longer listed: " + unlisted(other)
		}

		return wait(v1alpha1.ReasonWaitingForEvidence, "waiting for %s: bootstrapping etcd requires proof that "+
			"no control-plane node already has etcd data%s", toTell(silent), advice)
	}

	if same := sameMachine(nodes); same != "" {
		return wait(v1alpha1.ReasonWaitingForEvidence, "the evidence contradicts itself: %s; bootstrapping etcd requires "+
			"proof that no control-plane node already has etcd data", same)
	}

	return chooseNode(rec, nodes)
}

// toTell says what has to happen to nodes before they report whether they have etcd data. A machine in maintenance mode
// reports it once it is configured again, which the operator does while the machine is listed.
func toTell(nodes []Node) string {
	bare := filter(nodes, func(n Node) bool { return n.Answer == AnswerMaintenance })
	silent := filter(nodes, func(n Node) bool { return n.Answer != AnswerMaintenance })

	var parts []string

	if len(silent) > 0 {
		parts = append(parts, names(silent)+" to respond")
	}

	if len(bare) > 0 {
		parts = append(parts, names(bare)+", in maintenance mode, to get "+does(bare, "its config", "their configs")+" again")
	}

	return strings.Join(parts, "; and for ")
}

// mayBeForgotten reports whether a user may confirm that the machine is wiped or destroyed.
func (n Node) mayBeForgotten() bool { return n.Unlisted || n.Departing && n.Answer == AnswerUnknown }

// listed returns the names of the listed machines, in brackets.
func listed(nodes []Node) string {
	on := filter(nodes, func(n Node) bool { return !n.Unlisted && !n.Departing })
	if len(on) == 0 {
		return ""
	}

	return " (" + names(on) + ")"
}

// AdviseUnlisted says what users can do about machines that are recorded but no longer listed by their owner.
func AdviseUnlisted(owner string, machines []string) string {
	it, is := "it", "it is"
	if len(machines) > 1 {
		it, is = "them", "they are"
	}

	return fmt.Sprintf("list %s again, or, once %s wiped or destroyed, annotate %s with %s=%s", it, is, owner,
		v1alpha1.ForgetMachinesAnnotation, strings.Join(machines, ","))
}

func unlisted(nodes []Node) string {
	return AdviseUnlisted("the object", strings.Split(names(nodes), ", "))
}

func chooseNode(rec BootstrapRecord, nodes []Node) BootstrapDecision {
	fresh := rec.EarlierLife || rec.AllowNewEtcd
	if rec.Established && !fresh {
		return refuse(v1alpha1.ReasonEtcdLost, "the cluster was established, and no control-plane node has etcd data any "+
			"more; restore a backup, or annotate the object with %s=true to start with an empty etcd",
			v1alpha1.AllowBootstrapAnnotation)
	}

	waiting := filter(nodes, func(n Node) bool {
		return n.Answer == AnswerMember && n.EtcdData == DataAbsent && n.EtcdWaiting && !n.Unlisted
	})
	// An etcd that is bootstrapped on a departing machine would have to leave it immediately.
	ready := filter(waiting, func(n Node) bool { return !n.Departing })
	if len(ready) == 0 {
		return wait(v1alpha1.ReasonWaitingForMachines, "no control-plane node waits for the bootstrap of etcd yet%s",
			listed(nodes))
	}

	machine := ready[0].Name
	if i := slices.IndexFunc(ready, func(n Node) bool { return !n.ImageMissing }); i >= 0 {
		machine = ready[i].Name
	}

	if rec.Machine != "" {
		bound, d := boundBy(rec, nodes, waiting)
		if d != nil {
			return *d
		}

		machine = cmp.Or(bound, machine)
	}

	return BootstrapDecision{
		Action: BootstrapNode, Machine: machine, Reason: v1alpha1.ReasonBootstrapping,
		Message: "bootstrapping etcd on " + machine,
	}
}

// boundBy returns the machine that the recorded choice binds the bootstrap to, which is empty if another one may be
// chosen, or the decision that blocks the bootstrap. Between the bootstrap call and the first etcd data, a node neither
// waits for a bootstrap nor has data. A machine that was configured therefore stays bound, whatever a user allows,
// until it waits for a bootstrap again. While the call may be in progress, no other node may be in that state: it could
// be the node that was called, at another address.
func boundBy(rec BootstrapRecord, nodes, waiting []Node) (string, *BootstrapDecision) {
	is := func(n Node) bool { return n.Name == rec.Machine && !n.Unlisted }
	again := rec.EarlierLife || rec.Established && rec.AllowNewEtcd
	switch i := slices.IndexFunc(nodes, is); {
	case i < 0 && !again && !rec.AllowNewEtcd:
		d := refuse(v1alpha1.ReasonWaitingForEvidence, "machine %s was chosen for the bootstrap and is not listed any "+
			"more; list it again, or annotate the object with %s=true", rec.Machine, v1alpha1.AllowBootstrapAnnotation)

		return "", &d
	case i >= 0 && (nodes[i].EverConfigured || !again) && !slices.ContainsFunc(waiting, is):
		d := wait(v1alpha1.ReasonBootstrapping, "waiting for %s, the node chosen for the bootstrap", rec.Machine)

		return "", &d
	case i >= 0 && !again && !rec.elsewhere(nodes):
		return rec.Machine, nil
	case rec.Recent:
		d := wait(v1alpha1.ReasonBootstrapping, "waiting for what becomes of the bootstrap of %s", rec.Machine)

		return "", &d
	}

	return "", nil
}

// elsewhere reports whether the call may be in progress on a node that neither waits for a bootstrap nor has data. That
// may be the node that was called, at another address, because the chosen one waits.
func (rec BootstrapRecord) elsewhere(nodes []Node) bool {
	return rec.Recent && slices.ContainsFunc(nodes, func(n Node) bool {
		return n.Answer == AnswerMember && n.EtcdData == DataAbsent && !n.EtcdWaiting
	})
}

func wait(reason, format string, args ...any) BootstrapDecision {
	return BootstrapDecision{Action: BootstrapWait, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func refuse(reason, format string, args ...any) BootstrapDecision {
	return BootstrapDecision{Action: BootstrapRefuse, Reason: reason, Message: fmt.Sprintf(format, args...)}
}
