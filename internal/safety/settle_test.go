package safety_test

import (
	"slices"

	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/test/oracle"
)

// settle ends the faults. Unless user action is needed, all desired changes must then complete.
func (h *history) settle() bool {
	if h.over || h.failed {
		return false
	}

	e := h.e
	h.calm()

	for i := range 250 {
		e.step++

		if h.turn(); h.over || h.failed {
			return false
		}

		for _, m := range e.hardware {
			e.powerOn(m)
		}

		if h.settled() || i%15 == 14 && h.needsPerson() != "" {
			break
		}
	}

	for _, v := range oracle.Settled(e.truth()) {
		h.fail("%s", v)
	}

	if h.settled() {
		return true
	}

	if h.needsPerson() == "" {
		working, all := 0, 0
		if c := e.running(); c != nil {
			working, all = e.voters(c)
		}

		h.fail("not settled: %d of %d voters work, wanted are %v, busy is %q; the evidence is %+v", working, all,
			h.operators[0].wanted(), e.rec.busy, e.look(e.rec).nodes)
	}

	return false
}

// calm ends all faults that can end. Dead machines are abandoned, foreign members leave, and unlisted machines are
// listed again.
func (h *history) calm() {
	e := h.e
	h.quiet, e.allow = true, false

	for _, m := range e.hardware {
		m.cut, m.lie, m.alarm, m.behind, m.alias, m.hidden = false, honest, false, false, "", false

		if m.stranger {
			e.powerOff(m)
			m.dead = true
		}

		e.powerOn(m)
	}

	e.listAgain()

	for _, o := range e.objects {
		m := e.at(o.address)
		o.leaving = o.leaving || m == nil || m.dead
	}
}

// settled reports whether every machine has its member, all of them work, and nothing is left to do. The last machine
// never leaves.
func (h *history) settled() bool {
	c := h.e.running()
	if c == nil || h.e.rec.busy != "" {
		return false
	}

	working, all := h.e.voters(c)
	wanted := h.operators[0].wanted()

	if len(h.e.objects) == 1 {
		wanted = slices.DeleteFunc(wanted, func(string) bool { return h.e.objects[0].leaving })
	}

	return working == all && all == len(h.e.objects) && len(c.members) == all && len(wanted) == 0
}

// needsPerson says why a control plane does not settle without user action; empty if it should have settled.
func (h *history) needsPerson() string {
	e := h.e

	c := e.running()

	switch {
	case e.rolledBack:
		return "the operator does not know what it did"
	case c == nil:
		return "there is no etcd with quorum"
	case slices.ContainsFunc(c.members, func(m safety.Member) bool { return !h.placed(c, m) }):
		return "a member belongs to a machine that is not listed"
	}

	for _, o := range e.objects {
		m, known := e.at(o.address), e.rec.machines[o.name]

		switch {
		case m != nil && m.dead && e.rec.busyRemoves && e.rec.busy != o.name && e.rec.busy != "":
			return e.rec.busy + " leaves, and the death of " + o.name + " is in its way"
		case m == nil || known.hw != nil && known.hw != m:
			return "another machine answers at the address of " + o.name
		case m.dead && o.last != m.member && (o.last == 0 || m.etcd != 0 || c.entry(o.last) != nil):
			return "the member of " + o.name + " cannot be told"
		case m.dead && slices.ContainsFunc(c.members, func(m safety.Member) bool { return !h.owned(c, m) }):
			return "a member may be that of " + o.name + ", or of none"
		case m.etcd != 0 && m.etcd != c.id:
			return o.name + " has data of another etcd"
		}
	}

	return ""
}

// owned reports whether a machine has the member's data.
func (h *history) owned(c *etcd, m safety.Member) bool {
	return slices.ContainsFunc(h.e.hardware, func(hw *hardware) bool { return hw.etcd == c.id && hw.member == m.ID && !hw.stranger })
}

// placed reports whether the member belongs to a listed machine, or to none at all.
func (h *history) placed(c *etcd, m safety.Member) bool {
	for _, hw := range h.e.hardware {
		if hw.etcd == c.id && hw.member == m.ID && !hw.stranger {
			return slices.ContainsFunc(h.e.objects, func(o *object) bool { return h.e.at(o.address) == hw })
		}
	}

	return true
}
