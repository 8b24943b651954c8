// Package oracle judges histories of control planes from outside: by what is true of the machines and of their etcd
// before and after each act of an operator. It knows nothing of how an operator decides.
package oracle

import (
	"fmt"
	"slices"
	"strings"
)

// Rule is what must never happen, whatever faults there are.
type Rule string

// Rules.
const (
	// Split: a second etcd under one PKI while data of the first exists.
	Split Rule = "split"
	// Quorum: an act takes the quorum of an etcd that had one.
	Quorum Rule = "quorum"
	// Alone: a member that works is taken away while another one has not come back.
	Alone Rule = "alone"
	// Writes: a write that was acknowledged is missing.
	Writes Rule = "writes"
	// Wipe: data of a member is wiped, or the last member removed.
	Wipe Rule = "wipe"
)

// Truth is what is really there.
type Truth struct {
	Etcds []Etcd
	Disks []Disk
}

// Etcd is one etcd cluster.
type Etcd struct {
	ID      uint64
	Members []Member
	// Acknowledged is the number of the last write that was acknowledged.
	Acknowledged uint64
	// Destroyed: faults have destroyed so many disks that it cannot come back.
	Destroyed bool
}

// Member is an entry of the list of members.
type Member struct {
	ID      uint64
	Learner bool
	// Voting is the moment since which it votes, where no act has led to that. Like a fault, it excuses acts on older
	// evidence.
	Voting int64
}

// Disk holds the etcd data of one machine; Etcd is 0 for an empty one.
type Disk struct {
	Machine      string
	Etcd, Member uint64
	// Index is the number of the last write that it holds.
	Index uint64
	// Serving: the member runs and reaches the others.
	Serving bool
	// Faulted is the moment of the fault that ended that; 0 when it serves, or was taken away by an act.
	Faulted int64
	// Lost: that fault destroyed the data, too.
	Lost bool
	// Known: an operator has been told of the machine, and no person has said since that it is wiped or destroyed.
	Known bool
}

// Kind of an act.
type Kind string

// Kinds.
const (
	// Reboot takes a machine away for a while.
	Reboot Kind = "reboot"
	// Remove takes a member off the list.
	Remove Kind = "remove"
	// WipeDisk empties a disk.
	WipeDisk Kind = "wipe"
	// Found starts a new etcd.
	Found Kind = "found"
)

// Act is one act of an operator.
type Act struct {
	Kind Kind
	// Machine that it is done to, except for Remove.
	Machine string
	// Etcd and Member that Remove is done to.
	Etcd, Member uint64
	// Replace: a member is removed that the operator takes for dead. That may have to be done while a machine is away.
	Replace bool
	// Evidence is the moment at which its evidence was collected. No evidence shows a fault that came later, so that
	// such a fault excuses the act.
	Evidence int64
	// Word: a person allows a new etcd, begins anew, or has taken from the operator what it knew. That excuses what the
	// operator cannot know of, and nothing else.
	Word bool
}

// Violation is a rule that was violated.
type Violation struct {
	Rule    Rule
	Message string
}

func (v Violation) String() string { return string(v.Rule) + ": " + v.Message }

// Judge says which rules an act breaks that is about to be done; away are the machines that earlier acts have taken
// away and that are not back.
func Judge(t Truth, a Act, away []string) []Violation {
	switch a.Kind {
	case Found:
		return judgeFound(t, a)
	case WipeDisk:
		return judgeWipe(t, a)
	case Reboot, Remove:
		return judgeAbsence(t, a, away)
	}

	return nil
}

func judgeFound(t Truth, a Act) []Violation {
	var holders []string

	for _, d := range t.Disks {
		if d.Etcd != 0 && t.listed(d) && (d.Known || !a.Word) {
			holders = append(holders, d.Machine)
		}
	}

	if len(holders) == 0 {
		return nil
	}

	return violation(Split, "a new etcd on %s, and there is data on %s", a.Machine, strings.Join(holders, ", "))
}

func judgeWipe(t Truth, a Act) []Violation {
	for _, d := range t.Disks {
		if d.Machine == a.Machine && d.Etcd != 0 && t.listed(d) && !t.spare(d) {
			return violation(Wipe, "%s holds member %d of etcd %d", d.Machine, d.Member, d.Etcd)
		}
	}

	return nil
}

// spare: the disk is that of a learner, and a majority of the voters still have theirs. It has nothing that they do not
// have, and is none of those that serve.
func (t Truth) spare(d Disk) bool {
	e := t.etcd(d.Etcd)
	if e == nil || t.votes(d.Machine, *e) {
		return false
	}

	voters, kept := e.voters(), 0

	for _, o := range t.Disks {
		if o.Etcd == e.ID && !o.Lost && slices.ContainsFunc(voters, func(m Member) bool { return m.ID == o.Member }) {
			kept++
		}
	}

	return kept > len(voters)/2
}

// judgeAbsence judges what takes a member away, for a while or for good.
func judgeAbsence(t Truth, a Act, away []string) []Violation {
	if a.Kind == Reboot {
		i := slices.IndexFunc(t.Disks, func(d Disk) bool { return d.Machine == a.Machine && d.Etcd != 0 })
		if i < 0 {
			return nil
		}

		a.Etcd, a.Member = t.Disks[i].Etcd, t.Disks[i].Member
	}

	e := t.etcd(a.Etcd)
	if e == nil || !slices.ContainsFunc(e.Members, func(m Member) bool { return m.ID == a.Member }) {
		return nil
	}

	before := e.working(t, a)
	left := slices.DeleteFunc(slices.Clone(before), func(d Disk) bool { return d.Member == a.Member })
	voters := slices.DeleteFunc(e.voters(), func(m Member) bool { return m.Voting >= a.Evidence && m.Voting != 0 })

	var out []Violation

	if i := slices.IndexFunc(away, func(m string) bool { return m != a.Machine }); i >= 0 && !a.Replace &&
		len(left) < len(before) && t.votes(away[i], *e) {
		out = violation(Alone, "%s of %s, member %d, while %s is away", a.Kind, a.Machine, a.Member, away[i])
	}

	return append(out, judgeQuorum(*e, a, len(before), len(left), voters)...)
}

// judgeQuorum judges by how many members work before and after, of those that vote.
func judgeQuorum(e Etcd, a Act, before, left int, voters []Member) []Violation {
	if before <= len(voters)/2 {
		return nil // there was no quorum to lose
	}

	if a.Kind == Remove {
		voters = slices.DeleteFunc(voters, func(m Member) bool { return m.ID == a.Member })
	}

	switch {
	case len(voters) == 0:
		return violation(Wipe, "the last member of etcd %d is removed", e.ID)
	case a.Kind == Reboot && len(voters) <= 2 && before == len(voters):
		return nil // there is no way to reboot one of two without an interruption
	case left <= len(voters)/2:
		return violation(Quorum, "%s of %s, member %d, leaves %d of %d voting members", a.Kind, a.Machine, a.Member, left,
			len(voters))
	}

	return nil
}

// Watch judges a moment: at most one etcd has quorum, and what has quorum has every write that was acknowledged.
func Watch(t Truth) []Violation {
	var (
		serving []string
		out     []Violation
	)

	for _, e := range t.Etcds {
		members := e.working(t, Act{})
		if len(members) <= len(e.voters())/2 {
			continue
		}

		serving = append(serving, fmt.Sprint(e.ID))

		newest := slices.MaxFunc(members, func(a, b Disk) int { return int(a.Index) - int(b.Index) })
		if newest.Index < e.Acknowledged {
			out = append(out, violation(Writes, "etcd %d serves without its writes %d to %d", e.ID, newest.Index+1,
				e.Acknowledged)...)
		}
	}

	if len(serving) > 1 {
		out = append(out, violation(Split, "etcds serve at once: %s", strings.Join(serving, ", "))...)
	}

	return out
}

// Settled judges the end, when every fault that can end has ended: what faults have not destroyed serves again, with
// every write.
func Settled(t Truth) []Violation {
	out := Watch(t)

	for _, e := range t.Etcds {
		copies := 0

		for _, d := range t.Disks {
			if d.Etcd == e.ID && d.Index >= e.Acknowledged && t.listed(d) {
				copies++
			}
		}

		if copies == 0 && !e.Destroyed {
			out = append(out, violation(Writes, "no disk has write %d of etcd %d, and faults have not destroyed it",
				e.Acknowledged, e.ID)...)
		}
	}

	return out
}

func (t Truth) etcd(id uint64) *Etcd {
	for i := range t.Etcds {
		if t.Etcds[i].ID == id {
			return &t.Etcds[i]
		}
	}

	return nil
}

// listed: the disk belongs to a member on the list. What was removed before holds nothing up.
func (t Truth) listed(d Disk) bool {
	e := t.etcd(d.Etcd)

	return e != nil && !d.Lost && slices.ContainsFunc(e.Members, func(m Member) bool { return m.ID == d.Member })
}

// votes: the machine has a vote in an etcd, or had one before its disk was lost.
func (t Truth) votes(machine string, e Etcd) bool {
	return slices.ContainsFunc(t.Disks, func(d Disk) bool {
		return d.Machine == machine && d.Etcd == e.ID &&
			slices.ContainsFunc(e.voters(), func(m Member) bool { return m.ID == d.Member })
	})
}

func (e Etcd) voters() []Member {
	return slices.DeleteFunc(slices.Clone(e.Members), func(m Member) bool { return m.Learner })
}

// working are the disks of the voting members that serve, or served when the evidence for an act was collected.
func (e Etcd) working(t Truth, a Act) []Disk {
	var out []Disk

	for _, d := range t.Disks {
		excused := d.Faulted != 0 && a.Kind != "" && d.Faulted >= a.Evidence
		if d.Etcd == e.ID && (d.Serving || excused) &&
			slices.ContainsFunc(e.voters(), func(m Member) bool { return m.ID == d.Member }) {
			out = append(out, d)
		}
	}

	return out
}

func violation(rule Rule, format string, args ...any) []Violation {
	return []Violation{{Rule: rule, Message: fmt.Sprintf(format, args...)}}
}
