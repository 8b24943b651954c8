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

// TestPropertiesViews: what the controller records of its observations. Unlisted machines are not included.
func TestPropertiesViews(t *testing.T) {
	eachSituation(t, func(_ *rand.Rand, s situation) string {
		f := facts{situation: s, own: those(s.nodes, func(n restore.Node) bool { return !n.Unlisted })}
		running := some(f.own, func(n restore.Node) bool { return n.EtcdRuns || etcd(n) })
		reading := time.Duration(0)

		if f.busy() {
			reading = f.silence() - s.record.Age
		}

		switch {
		case restore.HasQuorum(s.nodes) != some(f.own, led):
			return "quorum"
		case restore.Leaderless(s.nodes) != (running && !some(f.own, led)):
			return "no leader"
		case restore.RunsAgain(s.record, s.nodes) != f.newer():
			return "runs again"
		case s.record.Reading() != reading:
			return fmt.Sprintf("reads for %s, not %s", s.record.Reading(), reading)
		}

		return ""
	})
}

// TestPropertiesBold: invariants of every action, in every step.
func TestPropertiesBold(t *testing.T) {
	eachSituation(t, func(_ *rand.Rand, s situation) string {
		f, d := factsOf(s), s.decide()

		if d.Action == restore.Wait || d.Action == restore.Stop {
			return ""
		}

		for _, name := range d.Machines {
			if !some(f.own, named(name)) {
				return fmt.Sprintf("%+v does something to %s, which has no part in it", d, name)
			}
		}

		switch d.Action {
		case restore.IntendWipe, restore.WipeData:
			return f.boldWipe(d)
		case restore.Choose, restore.Upload:
			return f.boldSend(d)
		case restore.Save:
			return f.boldCopy(d)
		case restore.Finish:
			return f.boldEnd()
		case restore.Next:
			return f.boldNext(d)
		default:
			return ""
		}
	})
}

func (f facts) boldWipe(d restore.Decision) string {
	for _, n := range those(f.own, func(n restore.Node) bool { return slices.Contains(d.Machines, n.Name) }) {
		debris := f.record.Tries > 0 && n.Name == f.record.Machine && !led(n)

		switch {
		case !speaks(n) || n.Boot == "":
			return "it does not tell in which boot it is: " + n.Name
		case holder(n) && !f.options.Discard && !debris:
			return "nobody allowed the data to be lost of " + n.Name
		case d.Action == restore.WipeData && f.record.Wipes[n.Name].Boot != n.Boot:
			return "that boot was not recorded: " + n.Name
		case d.Action == restore.IntendWipe && f.record.Wipes[n.Name].Times >= restore.MaxWipes:
			return "it was wiped too often: " + n.Name
		case f.record.Noted > time.Hour && some(f.own, led):
			return "weeks later, there is quorum"
		}
	}

	if len(f.record.Wipes) > 0 {
		return ""
	}

	return f.boldBegin()
}

// boldBegin: nothing is wiped before everything is known, and the restore can continue afterwards.
func (f facts) boldBegin() string {
	for _, n := range f.heard {
		silent := !holder(n) && !blank(n) && !bare(n)
		founds := speaks(n) && typeAfter(n) == "init"
		unfit := founds || speaks(n) && !n.Leaving && (!n.TimeSynced || n.Config == restore.ConfigTried ||
			n.Config == restore.ConfigUnread || typeAfter(n) != "controlplane")

		switch {
		case n.Unlisted && (holder(n) || silent && n.EtcdData != safety.DataAbsent):
			return "not listed, and may run on: " + n.Name
		case !n.Unlisted && (silent || dumb(n)):
			return "silent: " + n.Name
		case !n.Unlisted && unfit:
			return "after the wipe it could not go on: " + n.Name
		}
	}

	return ""
}

func (f facts) boldSend(d restore.Decision) string {
	for _, n := range f.heard {
		target := slices.Contains(d.Machines, n.Name)

		switch {
		case holder(n):
			return "it has data: " + n.Name
		case dumb(n) && n.Unlisted && n.EtcdData == safety.DataUnknown, dumb(n) && d.Action == restore.Upload && !n.Unlisted:
			return "silent: " + n.Name
		case target && (!ripe(n) || n.Config != restore.ConfigSettled || n.Boot == "" || n.Leaving && d.Action == restore.Choose):
			return "not ready: " + n.Name
		case target && d.Action == restore.Upload && (f.busy() || n.Boot != f.record.Boot):
			return "it may read what it was sent before, or has forgotten it: " + n.Name
		}
	}

	if len(d.Machines) != 1 || d.Action == restore.Choose && f.record.Tries >= restore.MaxTries {
		return fmt.Sprintf("sent to %v after %d tries", d.Machines, f.record.Tries)
	}

	return ""
}

func (f facts) boldCopy(d restore.Decision) string {
	i := slices.IndexFunc(f.own, named(d.Machines[0]))
	best := f.own[i]

	switch {
	case d.Serving != etcd(best) || !holder(best):
		return "it has no such copy: " + best.Name
	case some(f.own, func(n restore.Node) bool { return etcd(n) && n.RaftIndex > best.RaftIndex }):
		return "another one has more than " + best.Name
	case some(f.own, dumb):
		return "somebody may have more, and is silent"
	}

	return ""
}

func (f facts) boldEnd() string {
	for _, n := range f.future {
		if !led(n) || n.Learner || len(n.Alarms) > 0 {
			return "no member that works: " + n.Name
		}
	}

	return ""
}

func (f facts) boldNext(d restore.Decision) string {
	early := f.record.Step == "" || f.record.Step == v1alpha1.RestorePreflight

	switch {
	case early && d.Step != v1alpha1.RestorePreparing && !f.options.Discard:
		return "nobody allowed the data to be lost"
	case early && (d.Step != v1alpha1.RestorePreparing || some(f.own, holder) || some(f.own, dumb)):
		return f.boldBegin()
	case d.Step == v1alpha1.RestoreProving && !some(f.own, led):
		return "nothing runs"
	case d.Step == v1alpha1.RestorePreparing && f.record.Step == v1alpha1.RestoreWiping && some(f.own, dumb):
		return "somebody is silent, and may hold data"
	case d.Step == v1alpha1.RestoreWiping && f.record.Step == v1alpha1.RestoreSaving && f.options.Save == "Require" &&
		!f.record.Saved && some(f.own, holder):
		return "a copy is required"
	}

	return ""
}

// TestPropertiesTimid: a waiting restore names what it waits for, and continues once that is provided.
func TestPropertiesTimid(t *testing.T) {
	cured := 0

	eachSituation(t, func(_ *rand.Rand, s situation) string {
		var heard []string

		for range 30 {
			d := s.decide()
			if d.Action != restore.Wait || d.Reason == v1alpha1.ReasonRestored || d.Reason == v1alpha1.ReasonRestoreFailed {
				cured += min(1, len(heard))

				return ""
			}

			heard = append(heard, d.Message)
			s = s.cure(d)
		}

		return "it still waits: " + strings.Join(heard, "; ")
	})

	if cured < looks/10 {
		t.Errorf("only %d waits came to an end", cured)
	}
}

// cure returns the situation a minute later, in which the demand of a decision is fulfilled: machines respond with
// complete evidence, and those that were declared lost or are unlisted are gone.
func (s situation) cure(d restore.Decision) situation {
	s.nodes = slices.Clone(s.nodes)
	s.record.Age += time.Hour
	s.record.Starting += time.Hour
	s.record.Again += time.Minute
	s.record.Leaderless += time.Minute

	if len(factsOf(s).future) == 0 {
		s.nodes = append(s.nodes, member(fmt.Sprintf("new-%d", len(s.nodes))))
	}

	gone := func(n restore.Node) bool {
		return strings.Contains(d.Message, n.Name) && (n.Unlisted || slices.Contains(s.options.Lost, n.Name))
	}
	s.nodes = slices.DeleteFunc(s.nodes, gone)

	for i := range s.nodes {
		if n := &s.nodes[i]; strings.Contains(d.Message, n.Name) {
			s.better(n)
		}
	}

	switch s.record.Step {
	case v1alpha1.RestoreWiping:
		for i := range s.nodes {
			if n := &s.nodes[i]; d.Reason == restoring && strings.Contains(d.Message, n.Name) {
				*n = member(n.Name, func(n *restore.Node) { n.Boot = "back" })
			}
		}
	case v1alpha1.RestoreProving, v1alpha1.RestoreJoining:
		s.join()
	default:
	}

	return s
}

// join makes all nodes voting members of one etcd.
func (s *situation) join() {
	s.nodes = slices.DeleteFunc(s.nodes, func(n restore.Node) bool { return n.Unlisted })

	for i := range s.nodes {
		isWorking(rand.New(rand.NewPCG(1, 1)), s.nodes, &s.nodes[i])
	}
}

// better: the machine reports complete evidence, and is in the required state.
func (s situation) better(n *restore.Node) {
	boot, data, left := n.Boot, holder(*n), n.Leaving
	members, id, leader := n.Members, n.MemberID, n.Leader

	isEmpty(nil, nil, n)
	n.Leaving = left

	if boot != "" {
		n.Boot = boot
	}

	if data {
		withData(n)
		n.Members, n.MemberID, n.Leader = members, id, leader
	}

	if data && !etcd(*n) && s.record.Step == v1alpha1.RestoreSaving {
		serving(n)
	}
}
