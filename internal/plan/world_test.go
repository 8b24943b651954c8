package plan_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/talos-operator/talos-operator/internal/plan"
)

// estate is a simulated control plane: what is really there, as opposed to what the evidence says.
type estate struct {
	r        *rand.Rand
	now      time.Time
	machines []*simMachine
	members  []plan.Member
	nextID   uint64
	// selfCleans: a node that joins with an empty disk removes the member that it was before.
	selfCleans bool
	log        []string
}

type simMachine struct {
	name, address       string
	up, cut, configured bool
	dead                bool   // it never comes back
	member              uint64 // whose data is on its disk; 0 for an empty one
	lie                 int
	alarm, behind       bool
	twin                *simMachine // whose name or address it is known by, which cannot be
}

// Lies of a node.
const (
	honest = iota
	lieStaleList
	lieOtherID
	lieLearner
)

// Raft indexes of members that keep up, and of those that catch up.
const (
	upToDate  = 100_000
	catchesUp = 10
)

func newEstate(r *rand.Rand, size int) *estate {
	e := &estate{
		r: r, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), nextID: 1,
		selfCleans: r.IntN(2) == 0,
	}
	for range size {
		m := e.machine()
		m.member = e.admit(m.address, false)
	}

	return e
}

func (e *estate) machine() *simMachine {
	n := len(e.log) + len(e.machines)
	m := &simMachine{name: fmt.Sprintf("m-%d", n), address: fmt.Sprintf("10.0.0.%d", n), up: true, configured: true}
	e.machines = append(e.machines, m)

	return m
}

func (e *estate) admit(address string, learner bool) uint64 {
	id := e.nextID
	e.nextID++
	e.members = append(slices.Clone(e.members), plan.Member{ID: id, PeerAddresses: []string{address}, Learner: learner})

	return id
}

func (e *estate) note(format string, args ...any) {
	e.log = append(e.log, fmt.Sprintf(format, args...))
}

func (e *estate) find(name string) *simMachine {
	for _, m := range e.machines {
		if m.name == name {
			return m
		}
	}

	return nil
}

func (e *estate) entry(id uint64) *plan.Member {
	for i := range e.members {
		if e.members[i].ID == id {
			return &e.members[i]
		}
	}

	return nil
}

// votes: the machine's member is connected to the others and has a vote.
func (e *estate) votes(m *simMachine) bool {
	entry := e.entry(m.member)

	return m.up && !m.cut && m.configured && entry != nil && !entry.Learner
}

func (e *estate) voters() (working, all int) {
	for _, m := range e.machines {
		if e.votes(m) {
			working++
		}
	}

	for _, m := range e.members {
		if !m.Learner {
			all++
		}
	}

	return working, all
}

func (e *estate) quorum() bool {
	working, all := e.voters()

	return all > 0 && working >= plan.Quorum(all)
}

// evidence is what the machines say when they are asked.
func (e *estate) evidence() []plan.Node {
	var leader uint64

	if e.quorum() {
		for _, m := range e.machines {
			if e.votes(m) {
				leader = m.member

				break
			}
		}
	}

	nodes := make([]plan.Node, 0, len(e.machines))
	for _, m := range e.machines {
		nodes = append(nodes, e.ask(m, leader))
	}

	return nodes
}

func (e *estate) ask(m *simMachine, leader uint64) plan.Node {
	n := plan.Node{Name: m.name, Address: m.address, EverConfigured: true}

	if m.twin != nil && m.twin.member%2 == 0 {
		n.Name = m.twin.name
	} else if m.twin != nil {
		n.Address = m.twin.address
	}

	switch {
	case !m.up:
		return n
	case !m.configured:
		n.Answer = plan.AnswerMaintenance

		return n
	}

	n.Answer, n.EtcdData, n.RaftIndex = plan.AnswerMember, plan.DataAbsent, upToDate
	if m.behind {
		n.RaftIndex = catchesUp
	}

	if m.member == 0 {
		n.EtcdWaiting = true

		return n
	}

	n.EtcdData = plan.DataPresent

	entry := e.entry(m.member)
	if entry == nil {
		return n // removed behind its back: its etcd ends
	}

	n.MemberID, n.Members, n.Leader, n.Learner = m.member, e.members, leader, entry.Learner
	if m.cut {
		n.Leader = 0
	}

	if m.alarm {
		n.Alarms = []string{"NOSPACE"}
	}

	switch m.lie {
	case lieStaleList:
		n.Members = append(slices.Clone(n.Members), plan.Member{ID: 9999, PeerAddresses: []string{"10.9.0.1"}})
	case lieOtherID:
		n.MemberID = e.members[0].ID
	case lieLearner:
		n.Learner = true
	}

	return n
}

// chaos is one thing that goes wrong, or right, without us. No more than a minority is lost for good.
func (e *estate) chaos() {
	m := e.machines[e.r.IntN(len(e.machines))]

	switch e.r.IntN(15) {
	case 0, 1:
		m.up = false
		e.note("%s loses power", m.name)
	case 2, 3, 4:
		e.powerOn(m)
	case 5:
		m.cut = true
		e.note("%s is cut off", m.name)
	case 6, 7:
		m.cut = false
		e.note("%s is connected", m.name)
	case 8:
		if !e.expendable(m) && e.r.IntN(20) != 0 {
			return
		}

		m.up, m.configured, m.member = !m.dead, false, 0
		e.note("%s has an empty disk", m.name)
	case 9:
		m.lie = e.r.IntN(4)
		e.note("%s lies %d", m.name, m.lie)
	case 10:
		m.alarm = !m.alarm
		e.note("%s alarm %v", m.name, m.alarm)
	case 11:
		if e.quorum() && len(e.members) < 7 {
			id := e.admit(fmt.Sprintf("10.9.1.%d", e.nextID), true)
			e.note("somebody announces member %d", id)
		}
	case 12:
		if !slices.ContainsFunc(e.machines, func(o *simMachine) bool { return o.dead }) && e.expendable(m) {
			m.dead, m.up = true, false
			e.note("%s dies for good", m.name)
		}
	case 13:
		// One at a time: two that swap names do not contradict each other, and are told apart by their hardware.
		for _, o := range e.machines {
			o.twin = nil
		}

		if twin := e.machines[e.r.IntN(len(e.machines))]; twin != m && e.r.IntN(2) == 0 {
			m.twin = twin
		}

		e.note("%s passes for another one: %t", m.name, m.twin != nil)
	case 14:
		m.behind = !m.behind
		e.note("%s is behind: %t", m.name, m.behind)
	}
}

// expendable: without the machine's data the others could still have a quorum one day.
func (e *estate) expendable(m *simMachine) bool {
	_, all := e.voters()
	rest := 0

	for _, o := range e.machines {
		if entry := e.entry(o.member); o != m && !o.dead && entry != nil && !entry.Learner {
			rest++
		}
	}

	return rest >= plan.Quorum(all)
}

func (e *estate) powerOn(m *simMachine) {
	if !m.dead {
		m.up = true
		e.note("%s has power", m.name)
	}
}

// work is what the machines do by themselves: take their config, join, be promoted.
func (e *estate) work() {
	for _, m := range e.machines {
		if !m.up || m.cut {
			continue
		}

		switch {
		case !m.configured:
			m.configured = true
			e.note("%s takes its config", m.name)
		case m.member == 0 && e.quorum():
			e.join(m)
		case m.member != 0 && e.entry(m.member) == nil:
			// Its member was removed: etcd ends, and the node starts over once its data is gone.
			m.member = 0
		case m.member != 0 && e.entry(m.member).Learner && e.quorum():
			e.members = slices.Clone(e.members)
			e.entry(m.member).Learner = false
			e.note("%s votes", m.name)
		}
	}
}

// join adds the machine as a learner: one at a time, and no address twice, as etcd has it.
func (e *estate) join(m *simMachine) {
	if e.selfCleans {
		e.members = slices.DeleteFunc(slices.Clone(e.members), func(o plan.Member) bool {
			return slices.Contains(o.PeerAddresses, m.address)
		})
	}

	if !e.quorum() || slices.ContainsFunc(e.members, func(o plan.Member) bool {
		return o.Learner || slices.Contains(o.PeerAddresses, m.address)
	}) {
		return
	}

	m.member = e.admit(m.address, true)
	e.note("%s joins as %d", m.name, m.member)
}

// calm ends all faults that can end.
func (e *estate) calm() {
	for _, m := range e.machines {
		m.cut, m.lie, m.alarm, m.behind, m.twin = false, honest, false, false, nil
		e.powerOn(m)
	}
}
