package restore_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/restore"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// The following is an independent specification of each decision for any evidence: the code must be neither bolder nor
// more timid, and its messages must name what it waits for.

// facts are the relevant parts of a situation.
type facts struct {
	situation

	// heard are all machines except those that were declared lost. own are those that the restore involves: listed, and
	// not leaving without data. future are those of them that remain.
	heard, own, future []restore.Node
}

func those(nodes []restore.Node, are func(restore.Node) bool) (out []restore.Node) {
	for _, n := range nodes {
		if are(n) {
			out = append(out, n)
		}
	}

	return out
}

func some(nodes []restore.Node, is func(restore.Node) bool) bool { return len(those(nodes, is)) > 0 }

func not(is func(restore.Node) bool) func(restore.Node) bool {
	return func(n restore.Node) bool { return !is(n) }
}

func called(nodes []restore.Node) (out []string) {
	for _, n := range nodes {
		out = append(out, n.Name)
	}

	return out
}

func named(name string) func(restore.Node) bool {
	return func(n restore.Node) bool { return n.Name == name }
}

func speaks(n restore.Node) bool { return n.Answer == safety.AnswerMember }
func bare(n restore.Node) bool   { return n.Answer == safety.AnswerMaintenance }
func dumb(n restore.Node) bool   { return n.Answer == safety.AnswerUnknown }
func etcd(n restore.Node) bool   { return len(n.Members) != 0 }

// led reports whether the node is part of an etcd with quorum.
func led(n restore.Node) bool { return etcd(n) && n.Leader > 0 }

// holder: the node certainly has etcd data. blank: it certainly has none. For all other nodes this is unknown.
func holder(n restore.Node) bool { return etcd(n) || n.EtcdData == safety.DataPresent }
func blank(n restore.Node) bool  { return speaks(n) && !etcd(n) && n.EtcdData == safety.DataAbsent }

// ripe reports whether the node's etcd accepts a bootstrap.
func ripe(n restore.Node) bool { return blank(n) && (n.EtcdFailed || n.EtcdWaiting) }

func factsOf(s situation) facts {
	f := facts{situation: s}
	f.heard = those(s.nodes, func(n restore.Node) bool { return !slices.Contains(s.options.Lost, n.Name) })
	f.own = those(f.heard, func(n restore.Node) bool { return !n.Unlisted && (!n.Leaving || !bare(n)) })
	f.future = those(f.own, func(n restore.Node) bool { return !n.Leaving })

	return f
}

// verdict is the required decision. A reason is given if a user has to know it, and names are the machines that the
// message must name; "*" accepts any.
type verdict struct {
	action   restore.Action
	step     v1alpha1.RestoreStep
	machines []string
	serving  bool
	required bool
	reason   string
	names    []string
}

func goTo(step v1alpha1.RestoreStep) *verdict {
	return &verdict{action: restore.Next, step: step, reason: v1alpha1.ReasonRestoring}
}

func hold(reason string, names ...string) *verdict {
	return &verdict{action: restore.Wait, reason: reason, names: names}
}

func giveUp(reason string, names ...string) *verdict {
	return &verdict{action: restore.Stop, reason: reason, names: names}
}

func do(action restore.Action, machines ...string) *verdict {
	return &verdict{action: action, machines: machines, reason: v1alpha1.ReasonRestoring}
}

const (
	evidence  = v1alpha1.ReasonWaitingForEvidence
	machines  = v1alpha1.ReasonWaitingForMachines
	restoring = v1alpha1.ReasonRestoring
)

// wrong describes how a decision differs from the required one.
func (v verdict) wrong(d restore.Decision, nodes []restore.Node) string {
	switch {
	case d.Action != v.action, d.Step != v.step, d.Reason != v.reason, !slices.Equal(d.Machines, v.machines):
	case d.Serving != v.serving, d.Required != v.required:
	case d.Action != restore.Next && d.Message == "":
		return fmt.Sprintf("%+v says nothing", d)
	case d.Action != restore.Wait && d.Action != restore.Stop, slices.Contains(v.names, "*"):
		return ""
	default:
		for _, n := range nodes {
			if strings.Contains(d.Message, n.Name) != slices.Contains(v.names, n.Name) {
				return fmt.Sprintf("%+v names other machines than %v", d, v.names)
			}
		}

		return ""
	}

	return fmt.Sprintf("got %+v, want %+v", d, v)
}

// TestPropertiesDecide: the decision in every step.
func TestPropertiesDecide(t *testing.T) {
	acts := map[string]int{}

	eachSituation(t, func(_ *rand.Rand, s situation) string {
		want, got := factsOf(s).verdict(), s.decide()
		acts[fmt.Sprint(got.Action, got.Step)]++

		return want.wrong(got, s.nodes)
	})

	t.Log(acts)
}

// first returns the first verdict that is not nil.
func first(of ...*verdict) *verdict {
	return of[slices.IndexFunc(of, func(v *verdict) bool { return v != nil })]
}

// when returns a verdict that applies under a condition.
func when(is bool, v *verdict) *verdict {
	if !is {
		return nil
	}

	return v
}

func (f facts) verdict() *verdict {
	back := called(those(f.nodes, func(n restore.Node) bool { return slices.Contains(f.options.Lost, n.Name) && !dumb(n) }))
	strange := called(those(f.own, func(n restore.Node) bool { return n.Foreign }))

	switch {
	case len(back) > 0:
		return hold(evidence, back...)
	case len(f.future) == 0:
		return hold(machines)
	case len(strange) > 0:
		return giveUp(v1alpha1.ReasonForeignNode, strange...)
	}

	return f.atStep()
}

func (f facts) atStep() *verdict {
	switch f.record.Step {
	case v1alpha1.RestoreSaving:
		return f.saving()
	case v1alpha1.RestoreWiping:
		return f.wiping()
	case v1alpha1.RestorePreparing:
		return f.preparing()
	case v1alpha1.RestoreUploading:
		return f.uploading()
	case v1alpha1.RestoreRecovering:
		return f.recovering()
	case v1alpha1.RestoreProving, v1alpha1.RestoreJoining:
		return f.joining()
	case v1alpha1.RestoreComplete:
		return hold(v1alpha1.ReasonRestored)
	case v1alpha1.RestoreStopped:
		return hold(v1alpha1.ReasonRestoreFailed)
	default:
		return f.preflight()
	}
}

// open: it is unknown whether some nodes have data. Unreachable nodes are reported first.
func (f facts) open() *verdict {
	silent := called(those(f.own, dumb))
	reticent := called(those(f.own, func(n restore.Node) bool { return speaks(n) && !blank(n) && !holder(n) }))

	return first(
		when(len(silent) > 0, hold(evidence, silent...)),
		when(len(reticent) > 0, hold(evidence, reticent...)),
		&verdict{},
	).unless(len(silent)+len(reticent) == 0)
}

func (v *verdict) unless(is bool) *verdict { return when(!is, v) }

// strangers: unlisted machines may continue to run the old etcd.
func (f facts) strangers() *verdict {
	unlisted := those(f.heard, func(n restore.Node) bool { return n.Unlisted })
	holders := called(those(unlisted, holder))
	open := called(those(unlisted, func(n restore.Node) bool {
		return !holder(n) && n.EtcdData != safety.DataAbsent && !bare(n)
	}))

	return first(
		when(len(holders) > 0, hold(evidence, holders...)),
		when(len(open) > 0, hold(evidence, open...)),
		&verdict{},
	).unless(len(holders)+len(open) == 0)
}

// typeAfter returns the machine type of the next boot; unknown if a configuration is or may be on trial.
func typeAfter(n restore.Node) string {
	return map[restore.Config]string{restore.ConfigSettled: n.Type, restore.ConfigStaged: n.NextType}[n.Config]
}

// lacks says what prevents a node from taking part in a restore, now or, for a node with data, once it has booted
// without it; empty if nothing does. Before the wipe, a staged configuration is the one that the boot uses.
func lacks(n restore.Node, boots bool) string {
	known := n.Config == restore.ConfigSettled || n.Config == restore.ConfigStaged

	for _, l := range []struct {
		lacks  bool
		reason string
	}{
		{n.Config == restore.ConfigUnread, evidence},
		{known && typeAfter(n) != "controlplane", machines},
		{n.Config == restore.ConfigTried, evidence},
		{n.Config == restore.ConfigStaged && !boots, machines},
		{!n.TimeSynced, machines},
		{n.Boot == "", evidence},
	} {
		if l.lacks {
			return l.reason
		}
	}

	return ""
}

// deadEnd: once everything is wiped, the restore would wait for something that no wipe provides.
func (f facts) deadEnd() *verdict {
	for _, n := range those(f.own, speaks) {
		// A leaving node may be in any state, unless it bootstraps its own etcd when it boots.
		if n.Leaving && typeAfter(n) != "init" {
			continue
		}

		if reason := lacks(n, holder(n)); reason != "" {
			return hold(reason, n.Name)
		}
	}

	return nil
}

func (f facts) preflight() *verdict {
	old := called(those(f.own, func(n restore.Node) bool {
		return n.Type == "init" && (n.Config != restore.ConfigStaged || n.NextType != "controlplane")
	}))
	data := called(those(f.own, holder))

	// The machine type of leaving nodes is checked, too.
	var untyped *verdict

	for _, n := range those(f.own, speaks) {
		if untyped != nil {
			continue
		}

		switch reason := lacks(n, true); {
		case n.Config == restore.ConfigUnread:
			untyped = hold(evidence, n.Name)
		case reason == machines && n.Config != restore.ConfigTried && typeAfter(n) != "controlplane":
			untyped = hold(machines, n.Name)
		}
	}

	on := goTo(v1alpha1.RestoreSaving)
	if f.options.Save == "Skip" {
		on = goTo(v1alpha1.RestoreWiping)
	}

	return first(
		when(len(old) > 0, giveUp(v1alpha1.ReasonRestoreRefused, old...)),
		f.open(), untyped,
		when(len(data) == 0, first(f.strangers(), goTo(v1alpha1.RestorePreparing))),
		when(!f.options.Discard, giveUp(v1alpha1.ReasonDataWouldBeLost, data...)),
		f.deadEnd(), f.strangers(), on,
	)
}

func (f facts) saving() *verdict {
	var (
		policy   = f.options.Save
		quorum   = f.record.HadQuorum || some(f.own, led)
		required = policy == "Require" || policy == "" && quorum
		holders  = called(those(f.own, holder))
		vague    = called(those(f.own, func(n restore.Node) bool { return holder(n) && n.Boot == "" }))
		electing = some(f.own, func(n restore.Node) bool { return etcd(n) || n.EtcdRuns })
	)

	// By the highest index, and for equal indexes by list order.
	sources := those(f.own, etcd)
	for _, n := range those(f.own, etcd) {
		ahead := func(o restore.Node) bool { return o.RaftIndex > n.RaftIndex }
		before := slices.IndexFunc(f.own, named(n.Name))
		equal := func(o restore.Node) bool {
			return o.RaftIndex == n.RaftIndex && slices.IndexFunc(f.own, named(o.Name)) < before
		}
		sources[len(those(those(f.own, etcd), ahead))+len(those(those(f.own, etcd), equal))] = n
	}

	take := &verdict{action: restore.Save, reason: restoring, required: required, machines: holders}
	if len(sources) > 0 {
		take.serving, take.machines = true, called(sources)
	}

	return first(
		when(f.record.Saved || policy == "Skip", goTo(v1alpha1.RestoreWiping)),
		f.open(),
		when(len(holders) == 0, goTo(v1alpha1.RestoreWiping)),
		when(policy == "" && !quorum && len(vague) > 0, hold(evidence, vague...)),
		when(policy == "" && !quorum && electing && f.record.Leaderless < 15*time.Second, hold(evidence)),
		when(!required && f.record.SaveFailures >= 3, goTo(v1alpha1.RestoreWiping)),
		when(quorum && required && len(sources) == 0, hold(evidence, holders...)),
		take,
	)
}

// silence returns how long the chosen machine may be working without a visible effect.
func (f facts) silence() time.Duration { return 30*time.Second + f.perRead() }

func (f facts) perRead() time.Duration { return time.Duration(f.record.Size>>23) * time.Second }

// busy reports whether the chosen machine may be reading the snapshot.
func (f facts) busy() bool { return f.record.Asked && f.record.Age < f.silence() }

// chosen returns the machine in the record, if it still takes part.
func (f facts) chosen() *restore.Node {
	if i := slices.IndexFunc(f.own, named(f.record.Machine)); i >= 0 {
		return &f.own[i]
	}

	return nil
}

func (f facts) preparing() *verdict {
	own := func(n restore.Node) bool { return f.record.Tries > 0 && n.Name == f.record.Machine }
	late := some(those(f.own, holder), not(own))

	where := goTo(v1alpha1.RestoreWiping)
	if late && f.options.Discard && !f.record.Saved && f.options.Save != "Skip" {
		where = goTo(v1alpha1.RestoreSaving)
	}

	return first(
		when(some(f.own, holder), where), f.unready(),
		when(f.record.Tries >= 5, giveUp(v1alpha1.ReasonRestoreFailed)), f.choosing(),
	)
}

// unready returns the verdict for the first node that is not ready for a bootstrap.
func (f facts) unready() *verdict {
	for _, n := range f.future {
		reason := lacks(n, false)

		switch {
		case dumb(n):
			reason = evidence
		case !ripe(n):
			reason = machines
		}

		if reason != "" {
			return hold(reason, n.Name)
		}
	}

	return nil
}

func (f facts) choosing() *verdict {
	last := f.chosen()
	atWork := last != nil && last.Boot == f.record.Boot && !last.EtcdFailed && f.busy()

	machine := f.future[0].Name
	if some(f.future, named(f.record.Machine)) {
		machine = f.record.Machine
	}

	return first(when(atWork, hold(restoring, f.record.Machine)), f.strangers(), do(restore.Choose, machine))
}

func (f facts) uploading() *verdict {
	again := goTo(v1alpha1.RestorePreparing)

	n := f.chosen()
	if n == nil || some(those(f.own, holder), not(named(n.Name))) {
		return again
	}

	sure := n.Boot != ""

	return first(
		f.open(),
		when(holder(*n), goTo(v1alpha1.RestoreRecovering)),
		when(!sure, hold(evidence, n.Name)),
		when(n.Boot != f.record.Boot, again),
		when(f.busy(), hold(restoring, n.Name)),
		when(n.Config == restore.ConfigUnread, hold(evidence, n.Name)),
		when(n.Config == restore.ConfigTried || n.Config == restore.ConfigStaged, again),
		when(!ripe(*n), hold(machines, n.Name)),
		f.strangers(), do(restore.Upload, n.Name),
	)
}

func (f facts) recovering() *verdict {
	again := goTo(v1alpha1.RestorePreparing)

	n := f.chosen()
	if n == nil {
		return again
	}

	overdue := f.record.Starting > 5*time.Minute+3*f.perRead()
	forgot := n.Boot != f.record.Boot || n.EtcdFailed || n.EtcdWaiting && !f.busy()

	return first(
		when(led(*n), goTo(v1alpha1.RestoreProving)),
		when(holder(*n) && !n.EtcdFailed && !overdue, hold(restoring, n.Name)),
		when(holder(*n) && f.record.Tries >= 5, giveUp(v1alpha1.ReasonRestoreFailed, n.Name)),
		when(holder(*n), goTo(v1alpha1.RestoreWiping)),
		when(!blank(*n) || n.Boot == "", hold(evidence, n.Name)),
		when(forgot, again),
		hold(restoring, n.Name),
	)
}

func (f facts) joining() *verdict {
	// A leaving, empty node no longer takes part; an unlisted one that runs etcd does.
	var all []safety.Node

	for _, n := range f.heard {
		if n.Unlisted && etcd(n) {
			all = append(all, n.Node)
		}
	}

	for _, n := range f.own {
		if !blank(n) || !n.Leaving {
			all = append(all, n.Node)
		}
	}

	voters := called(those(f.own, func(n restore.Node) bool { return led(n) && !n.Learner }))

	return first(
		when(!some(f.own, func(n restore.Node) bool { return !blank(n) && !bare(n) }), goTo(v1alpha1.RestorePreparing)),
		when(len(voters) == 0, hold(restoring)),
		when(f.record.Step == v1alpha1.RestoreProving, do(restore.Prove, voters...)),
		when(!safety.AssessEtcd(all).Healthy, hold(restoring, "*")),
		do(restore.Finish, voters...),
	)
}
