package restore

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// Decide determines the next step from the evidence about the control plane: its nodes, in list order, and recorded
// machines that are no longer listed.
func Decide(o Options, r Record, all []Node) Decision {
	if d, over := o.lost(all); over {
		return d
	}

	all = slices.DeleteFunc(slices.Clone(all), func(n Node) bool { return slices.Contains(o.Lost, n.Name) })

	// A node that is leaving counts while it may have data: it is in maintenance mode only after the data is wiped.
	nodes := slices.DeleteFunc(listed(all), func(n Node) bool { return n.Leaving && n.Answer == safety.AnswerMaintenance })
	if !slices.ContainsFunc(nodes, func(n Node) bool { return !n.Leaving }) {
		return wait(v1alpha1.ReasonWaitingForMachines, "there is no control-plane machine yet")
	}

	if foreign := pick(nodes, func(n Node) bool { return n.Foreign }); len(foreign) > 0 {
		return stop(v1alpha1.ReasonForeignNode, "%s runs under another CA than that of the cluster: correct its address, "+
			"or reset it manually", list(foreign))
	}

	switch r.Step {
	case v1alpha1.RestoreWiping:
		if restored(r, all) {
			return next(v1alpha1.RestoreRecovering)
		}
	case v1alpha1.RestoreProving, v1alpha1.RestoreJoining:
		return finish(r, nodes, joined(all))
	default:
	}

	d := o.decide(r, nodes)
	if held, holds := unlisted(all); holds && d.commits(r, nodes) {
		return held
	}

	return d
}

func (o Options) decide(r Record, nodes []Node) Decision {
	switch r.Step {
	case v1alpha1.RestoreSaving:
		return o.save(r, nodes)
	case v1alpha1.RestoreWiping:
		return o.wipe(r, nodes)
	case v1alpha1.RestorePreparing:
		return o.prepare(r, nodes)
	case v1alpha1.RestoreUploading:
		return o.upload(r, nodes)
	case v1alpha1.RestoreRecovering:
		return o.recover(r, nodes)
	case v1alpha1.RestoreComplete:
		return wait(v1alpha1.ReasonRestored, "the restore is complete")
	case v1alpha1.RestoreStopped:
		return wait(v1alpha1.ReasonRestoreFailed, "the restore was stopped")
	case v1alpha1.RestorePreflight, v1alpha1.RestoreProving, v1alpha1.RestoreJoining:
	}

	return o.check(nodes)
}

// lost blocks the restore if a machine that the user declared lost responds: its etcd would split the cluster.
func (o Options) lost(nodes []Node) (Decision, bool) {
	alive := pick(nodes, func(n Node) bool { return slices.Contains(o.Lost, n.Name) && n.Answer != safety.AnswerUnknown })
	if len(alive) == 0 {
		return Decision{}, false
	}

	return wait(v1alpha1.ReasonWaitingForEvidence, "%s is listed in lostMachines, but it responds: power it off, or "+
		"create a restore that does not list it there", list(alive)), true
}

// check decides whether the nodes may be changed. Nothing has been changed yet, and nothing is changed before all later
// steps are known to be possible.
func (o Options) check(nodes []Node) Decision {
	if inits := pick(nodes, Node.isInit); len(inits) > 0 {
		return stop(v1alpha1.ReasonRestoreRefused, "%s is of the machine type init, which never recovers an etcd: change "+
			"its type to controlplane first", list(inits))
	}

	if d, unknown := silent(nodes); unknown {
		return d
	}

	for _, n := range nodes {
		if d, wrong := n.wrongType(); wrong && n.Answer == safety.AnswerMember {
			return d
		}
	}

	with := pick(nodes, Node.hasData)

	switch {
	case len(with) == 0:
		return next(v1alpha1.RestorePreparing)
	case !o.Discard:
		return stop(v1alpha1.ReasonDataWouldBeLost, "%s %s: what was written after the backup would be lost; to accept "+
			"that, create a restore with discardNewerData", list(with), etcdState(nodes))
	}

	if d, stuck := afterWipe(nodes); stuck {
		return d
	}

	if o.Save == v1alpha1.LastSnapshotSkip {
		return next(v1alpha1.RestoreWiping)
	}

	return next(v1alpha1.RestoreSaving)
}

func etcdState(nodes []Node) string {
	switch {
	case HasQuorum(nodes):
		return "runs etcd, and it has quorum"
	case slices.ContainsFunc(nodes, Node.Serves):
		return "has etcd data, and etcd has no quorum"
	}

	return "has etcd data"
}

func runs(n Node) bool { return n.EtcdRuns || n.Serves() }

// Leaderless reports whether at least one etcd runs and none has quorum.
func Leaderless(nodes []Node) bool {
	return slices.ContainsFunc(listed(nodes), runs) && !HasQuorum(nodes)
}

// HasQuorum reports whether at least one member sees a leader.
func HasQuorum(nodes []Node) bool {
	return slices.ContainsFunc(listed(nodes), func(n Node) bool { return n.Serves() && n.Leader != 0 })
}

// silent waits for nodes that may have data, but whose state is unknown. This includes nodes in maintenance mode: their
// configuration may be wiped and their data not.
func silent(nodes []Node) (Decision, bool) {
	if mute := pick(nodes, func(n Node) bool { return n.Answer == safety.AnswerUnknown }); len(mute) > 0 {
		return wait(v1alpha1.ReasonWaitingForEvidence, "waiting for %s: a node that keeps running the old etcd would "+
			"split the cluster; if it will not come back, list it in lostMachines of another restore", list(mute)), true
	}

	unknown := pick(nodes, func(n Node) bool {
		return n.Answer == safety.AnswerMember && n.EtcdData == safety.DataUnknown && !n.Serves()
	})
	if len(unknown) > 0 {
		return wait(v1alpha1.ReasonWaitingForEvidence, "waiting for %s to report whether it has etcd data", list(unknown)),
			true
	}

	return Decision{}, false
}

// save copies the data that is about to be lost.
func (o Options) save(r Record, nodes []Node) Decision {
	if r.Saved || o.Save == v1alpha1.LastSnapshotSkip {
		return next(v1alpha1.RestoreWiping)
	}

	// A node that is unreachable now had data a moment ago.
	if d, unknown := silent(nodes); unknown {
		return d
	}

	with := pick(nodes, Node.hasData)
	if len(with) == 0 {
		return next(v1alpha1.RestoreWiping)
	}

	// A temporary loss of the leader, or a call that timed out, is no proof that an etcd has lost its quorum.
	quorum := r.HadQuorum || HasQuorum(nodes)
	if o.Save == "" && !quorum {
		mute := pick(nodes, func(n Node) bool { return n.hasData() && n.Boot == "" })

		switch {
		case len(mute) > 0:
			return wait(v1alpha1.ReasonWaitingForEvidence, "waiting for %s to report its etcd state", list(mute))
		case r.Leaderless < election && Leaderless(nodes):
			return wait(v1alpha1.ReasonWaitingForEvidence, "etcd runs without a leader; waiting for it to elect one")
		}
	}

	return o.copyOf(r, nodes, with, quorum)
}

// copyOf decides from which of the nodes with data a copy is made, and how.
func (o Options) copyOf(r Record, nodes []Node, with []string, quorum bool) Decision {
	required := o.Save == v1alpha1.LastSnapshotRequire || o.Save == "" && quorum
	if !required && r.SaveFailures >= MaxSaves {
		return next(v1alpha1.RestoreWiping)
	}

	d := Decision{
		Action: Save, Required: required, Reason: v1alpha1.ReasonRestoring, Message: "copying the data that etcd still has",
	}

	serving := slices.DeleteFunc(slices.Clone(nodes), func(n Node) bool { return !n.Serves() })
	if len(serving) == 0 && quorum && required {
		// The database file of a running etcd is not a consistent copy while etcd writes to it.
		return wait(v1alpha1.ReasonWaitingForEvidence, "waiting for etcd on %s to respond: it had quorum, and its data "+
			"is copied before anything is wiped; a restore with lastSnapshot Try continues without a copy", list(with))
	}

	if len(serving) == 0 {
		d.Machines = with

		return d
	}

	// The most advanced member has the most data.
	slices.SortStableFunc(serving, func(a, b Node) int { return cmp.Compare(b.RaftIndex, a.RaftIndex) })

	d.Serving, d.Machines = true, pick(serving, func(Node) bool { return true })

	return d
}

// wipe continues until no node has data. All nodes are wiped at once: an empty node joins the others again while they
// are still running.
func (o Options) wipe(r Record, nodes []Node) Decision {
	if d, again := r.runsAgain(nodes); again {
		return d
	}

	if d, act := o.wipeData(r, nodes); act {
		return d.unlessStuckAfter(r, nodes)
	}

	// A node may lose what is sent to it until it has booted again.
	going := pick(nodes, func(n Node) bool {
		w, wiped := r.Wipes[n.Name]

		return wiped && (n.Boot == "" || n.Boot == w.Boot) && n.Answer != safety.AnswerMaintenance
	})
	if len(going) > 0 {
		return wait(v1alpha1.ReasonRestoring, "waiting for %s to come back from its wipe", list(going))
	}

	if d, unknown := silent(nodes); unknown {
		return d
	}

	return next(v1alpha1.RestorePreparing)
}

// wipeData records the wipes of the nodes with data, and then requests them.
func (o Options) wipeData(r Record, nodes []Node) (Decision, bool) {
	var intend, call []string

	for _, n := range nodes {
		w, wiped := r.Wipes[n.Name]

		switch {
		case n.Answer != safety.AnswerMember || n.Boot == "":
		case wiped && w.Boot == n.Boot && n.waits():
			// The wipe is recorded and has not begun. Without its reboot, its end could not be detected.
			call = append(call, n.Name)
		case !n.hasData():
		case !o.mayWipe(r, n):
			return notOurs(n), true
		case wiped && w.Boot == n.Boot:
			call = append(call, n.Name)
		case w.Times >= MaxWipes:
			return stop(v1alpha1.ReasonRestoreFailed, "%s was wiped %d times and has etcd data again", n.Name, w.Times), true
		default:
			intend = append(intend, n.Name)
		}
	}

	d := Decision{Action: IntendWipe, Machines: intend, Reason: v1alpha1.ReasonRestoring}
	if len(intend) == 0 {
		d.Action, d.Machines = WipeData, call
	}

	d.Message = "wiping the etcd data of " + list(d.Machines)

	return d, len(d.Machines) > 0
}

// mayWipe reports whether the data may be wiped: a user allowed its loss, or it remains from the operator's own
// attempt.
func (o Options) mayWipe(r Record, n Node) bool {
	return o.Discard || r.Tries > 0 && r.Machine == n.Name && !n.Serves()
}

func notOurs(n Node) Decision {
	return stop(v1alpha1.ReasonDataWouldBeLost, "%s has etcd data that did not come from this restore; if it may be "+
		"lost, create one with discardNewerData", n.Name)
}

// late handles data that is found only now, on a node that was in maintenance mode or is new, or that remains from the
// operator's own attempt.
func (o Options) late(r Record, nodes []Node) Decision {
	if o.Discard && !r.Saved && o.Save != v1alpha1.LastSnapshotSkip && slices.ContainsFunc(nodes, r.foreignData) {
		return next(v1alpha1.RestoreSaving)
	}

	return next(v1alpha1.RestoreWiping)
}

// prepare waits until every node is empty and ready, and then chooses one.
func (o Options) prepare(r Record, nodes []Node) Decision {
	if slices.ContainsFunc(nodes, Node.hasData) {
		return o.late(r, nodes)
	}

	for _, n := range nodes {
		if d, unready := n.unready(); unready && !n.Leaving {
			return d
		}
	}

	if r.Tries >= MaxTries {
		return stop(v1alpha1.ReasonRestoreFailed, "the snapshot was sent %d times, and etcd did not start from it", r.Tries)
	}

	return choose(r, nodes)
}

// choose selects the machine of the last attempt, else the first one.
func choose(r Record, nodes []Node) Decision {
	machine := pick(nodes, func(n Node) bool { return !n.Leaving })[0]

	if n := find(nodes, r.Machine); n != nil {
		if n.Boot == r.Boot && !n.EtcdFailed && !r.lost() {
			return wait(v1alpha1.ReasonRestoring, "waiting for etcd on %s to start from the snapshot or discard it", r.Machine)
		}

		if !n.Leaving {
			machine = r.Machine
		}
	}

	return Decision{
		Action: Choose, Machines: []string{machine}, Reason: v1alpha1.ReasonRestoring,
		Message: "restoring etcd on " + machine,
	}
}

// upload sends the snapshot while every node is as empty as it was when the machine was chosen.
func (o Options) upload(r Record, nodes []Node) Decision {
	n := find(nodes, r.Machine)

	if n == nil || slices.ContainsFunc(nodes, func(o Node) bool { return o.Name != r.Machine && o.hasData() }) {
		return next(v1alpha1.RestorePreparing)
	}

	if d, unknown := silent(nodes); unknown {
		return d
	}

	switch {
	case n.hasData():
		return next(v1alpha1.RestoreRecovering)
	case n.Boot == "":
		return wait(v1alpha1.ReasonWaitingForEvidence, "waiting for the boot ID of %s", n.Name)
	case n.Boot != r.Boot:
		return next(v1alpha1.RestorePreparing)
	case !r.lost():
		// The response was lost. Another upload would change the file while etcd reads it.
		return wait(v1alpha1.ReasonRestoring, "waiting for etcd on %s to start from the snapshot", n.Name)
	case n.Config == ConfigUnread:
		return wait(v1alpha1.ReasonWaitingForEvidence, "waiting for %s to show its machine config", n.Name)
	case n.Config != ConfigSettled:
		return next(v1alpha1.RestorePreparing)
	case !n.waits():
		return wait(v1alpha1.ReasonWaitingForMachines, "waiting for etcd on %s to be ready for a bootstrap", n.Name)
	}

	return Decision{
		Action: Upload, Machines: []string{n.Name}, Reason: v1alpha1.ReasonRestoring,
		Message: "sending the snapshot to " + n.Name,
	}
}

// recover waits for etcd to start from the snapshot.
func (o Options) recover(r Record, nodes []Node) Decision {
	n := find(nodes, r.Machine)

	switch {
	case n == nil:
		return next(v1alpha1.RestorePreparing)
	case n.Serves() && n.Leader != 0:
		return next(v1alpha1.RestoreProving)
	case n.hasData():
		return started(r, n)
	case n.Answer != safety.AnswerMember || n.EtcdData == safety.DataUnknown || n.Boot == "":
		return wait(v1alpha1.ReasonWaitingForEvidence, "waiting for %s to respond", n.Name)
	case n.Boot != r.Boot || n.EtcdFailed || n.EtcdWaiting && r.lost():
		// A reboot makes the node forget the request to recover from the snapshot, and a call that was not received has no
		// effect. Both need a new upload.
		return next(v1alpha1.RestorePreparing)
	}

	return wait(v1alpha1.ReasonRestoring, "waiting for etcd on %s to start from the snapshot", n.Name)
}

// started handles a node that has data and whose etcd does not respond.
func started(r Record, n *Node) Decision {
	switch {
	case !n.EtcdFailed && !r.stuck():
		return wait(v1alpha1.ReasonRestoring, "waiting for etcd on %s, which has data and does not respond yet", n.Name)
	case r.Tries >= MaxTries:
		return stop(v1alpha1.ReasonRestoreFailed, "etcd on %s does not start from the snapshot: %s", n.Name,
			cmp.Or(n.EtcdMessage, "it has data and does not respond"))
	}

	// A snapshot that does not fit, or a power cut while it is being restored, leaves data behind that makes every later
	// attempt fail.
	return next(v1alpha1.RestoreWiping)
}

// finish verifies what was restored, then waits for the other members. Unlisted nodes that have joined are members too.
func finish(r Record, nodes []Node, bare []safety.Node) Decision {
	for _, n := range nodes {
		if !n.Leaving || !n.empty() {
			bare = append(bare, n.Node)
		}
	}

	// No node has the restored data any more, so begin again. An unreachable node may still have it.
	if !slices.ContainsFunc(nodes, func(n Node) bool { return !n.empty() && n.Answer != safety.AnswerMaintenance }) {
		return next(v1alpha1.RestorePreparing)
	}

	serving := pick(nodes, func(n Node) bool { return n.Serves() && n.Leader != 0 && !n.Learner })
	if len(serving) == 0 {
		return wait(v1alpha1.ReasonRestoring, "waiting for etcd to respond again")
	}

	if r.Step == v1alpha1.RestoreProving {
		return Decision{
			Action: Prove, Machines: serving, Reason: v1alpha1.ReasonRestoring, Message: "verifying the restored data",
		}
	}

	if health := safety.AssessEtcd(bare); !health.Healthy {
		return wait(v1alpha1.ReasonRestoring, "waiting for the other members: %s", health.Message)
	}

	return Decision{
		Action: Finish, Machines: serving, Reason: v1alpha1.ReasonRestoring, Message: "waiting for the nodes to be ready",
	}
}

func pick(nodes []Node, keep func(Node) bool) []string {
	var out []string

	for _, n := range nodes {
		if keep(n) {
			out = append(out, n.Name)
		}
	}

	return out
}

func find(nodes []Node, name string) *Node {
	i := slices.IndexFunc(nodes, func(n Node) bool { return n.Name == name })
	if i < 0 {
		return nil
	}

	return &nodes[i]
}

func list(names []string) string { return strings.Join(names, ", ") }

func wait(reason, format string, args ...any) Decision {
	return Decision{Action: Wait, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func stop(reason, format string, args ...any) Decision {
	return Decision{Action: Stop, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func next(step v1alpha1.RestoreStep) Decision {
	return Decision{Action: Next, Step: step, Reason: v1alpha1.ReasonRestoring}
}
