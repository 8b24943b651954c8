package safety_test

import (
	"fmt"
	"maps"
	"slices"

	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/test/oracle"
)

// chaos causes one event, harmful or not, without the operator.
func (e *fleet) chaos() {
	e.tick++
	h := e.hardware[e.r.IntN(len(e.hardware))]

	switch e.r.IntN(20) {
	case 0, 1:
		e.powerOff(h)
	case 2, 3, 4:
		e.powerOn(h)
	case 5:
		e.fault(h, func() { h.cut = true })
		e.note("%s is cut off", h)
	case 6, 7:
		h.cut = false
		e.note("%s is connected", h)
	case 8:
		// It votes, and is unreachable for the operator.
		h.hidden = !h.hidden
		e.note("%s is hidden: %t", h, h.hidden)
	case 9:
		e.loseDisk(h)
	case 10:
		h.lie = e.r.IntN(lies)
		e.note("%s lies %d", h, h.lie)
	case 11:
		h.alarm = !h.alarm
		e.note("%s alarm %v", h, h.alarm)
	case 12:
		e.announce()
	case 13:
		if !slices.ContainsFunc(e.hardware, func(o *hardware) bool { return o.dead }) && e.expendable(h) {
			e.powerOff(h)
			h.dead = true
			e.countLosses()
			e.note("%s dies for good", h)
		}
	case 14:
		e.confuse(h)
	case 15:
		h.behind = !h.behind
		e.note("%s is behind: %t", h, h.behind)
	case 16, 17:
		e.person()
	case 18:
		e.managementPlane()
	case 19:
		e.listAgain()
	}
}

// fault causes a fault that stops a member, and records when.
func (e *fleet) fault(h *hardware, happens func()) {
	served, etcd, member := e.serves(h), h.etcd, h.member
	happens()

	if served && h.etcd == 0 {
		h.lost = []oracle.Disk{{Machine: h.String(), Etcd: etcd, Member: member, Faulted: e.tick, Lost: true}}
	}

	if served && !e.serves(h) {
		h.faulted, h.away = e.tick, false
	}
}

func (e *fleet) powerOff(h *hardware) {
	e.fault(h, func() { h.power, h.asked, h.away = false, 0, false })
	e.note("%s loses power", h)
}

func (e *fleet) powerOn(h *hardware) {
	if h.dead || h.power {
		return
	}

	h.power, h.faulted, h.starting = true, 0, e.r.IntN(3)
	h.boot++
	e.note("%s has power", h)
}

// loseDisk erases a disk, or part of it: the configuration is lost, and the etcd data is kept.
func (e *fleet) loseDisk(h *hardware) {
	if !e.expendable(h) && e.r.IntN(20) != 0 || h.stranger {
		return
	}

	half := e.r.IntN(4) == 0

	e.fault(h, func() {
		if h.configured, h.asked = false, 0; !half {
			h.etcd, h.member, h.index = 0, 0, 0
		}
	})
	e.powerOn(h)
	e.countLosses()
	e.note("%s has an empty disk, but for etcd: %t", h, half)
}

// countLosses records which etcds were destroyed by faults.
func (e *fleet) countLosses() {
	for _, c := range e.etcds {
		held, all := 0, 0

		for _, m := range c.members {
			if m.Learner {
				continue
			}

			all++

			if slices.ContainsFunc(e.hardware, func(o *hardware) bool { return !o.dead && o.etcd == c.id && o.member == m.ID }) {
				held++
			}
		}

		c.destroyed = c.destroyed || held < safety.Quorum(all)
	}
}

// announce adds an orphaned member: one that never starts, or a foreign one that votes.
func (e *fleet) announce() {
	c := e.running()
	if c == nil || len(c.members) >= 7 {
		return
	}

	working, all := e.voters(c)
	votes := e.r.IntN(3) == 0 && working >= safety.Quorum(all+1)
	id := e.admit(c, fmt.Sprintf("10.9.1.%d", e.nextID), !votes)

	c.voting[id] = e.tick

	if votes && e.r.IntN(2) == 0 {
		h := e.machine()
		h.stranger, h.configured, h.etcd, h.member, h.index = true, true, c.id, id, c.acked
		e.note("%s, a stranger, votes as %d", h, id)

		return
	}

	e.note("member %d is announced, votes: %t", id, votes)
}

// confuse lets a machine be mistaken for another one: it also responds at another address, or two machines swap
// addresses. Boards with the same UUID do not swap addresses permanently: nothing would distinguish them while they do
// not run etcd.
func (e *fleet) confuse(h *hardware) {
	o := e.hardware[e.r.IntN(len(e.hardware))]

	for _, h := range e.hardware {
		h.alias = ""
	}

	switch {
	case h == o || h.stranger || o.stranger:
	case e.r.IntN(2) == 0 || e.oneUUID:
		h.alias = o.address
		e.note("%s answers for %s, too", h, o)
	default:
		h.address, o.address = o.address, h.address
		e.note("%s and %s swap addresses", h, o)
	}
}

// person performs a random action of a user.
func (e *fleet) person() {
	o := e.objects[e.r.IntN(len(e.objects))]

	switch e.r.IntN(7) {
	case 0:
		e.allow = true
		e.note("a new etcd is allowed")
	case 1, 2:
		if len(e.objects) > 1 {
			e.objects = slices.DeleteFunc(slices.Clone(e.objects), func(x *object) bool { return x == o })
			e.note("%s leaves the list", o.name)
		}
	case 3, 4:
		e.listAgain()
	case 5:
		e.forget()
	case 6:
		e.approve()
	}
}

// approve approves the wipe of an abandoned machine that has returned, whatever the state of its Node. A user
// identifies the machine first.
func (e *fleet) approve() {
	for _, name := range slices.Sorted(maps.Keys(e.rec.givenUp)) {
		g := e.rec.givenUp[name]
		if g.approved || e.at(g.address) != g.hw {
			continue
		}

		rec := e.rec.clone()
		g.approved = true
		rec.givenUp[name] = g
		e.store(&rec)
		e.note("the wipe of %s is approved", g.hw)

		return
	}
}

// listAgain lists a recorded machine that is not listed.
func (e *fleet) listAgain() {
	for _, name := range slices.Sorted(maps.Keys(e.rec.machines)) {
		if e.find(name) == nil {
			e.objects = append(e.objects, &object{name: name, address: e.rec.machines[name].address, silent: -1})
			e.note("%s is listed again", name)
		}
	}
}

// forget destroys machines that are no longer listed, and confirms that to the operator.
func (e *fleet) forget() {
	for _, name := range slices.Sorted(maps.Keys(e.rec.machines)) {
		h := e.rec.machines[name].hw
		if e.find(name) != nil || !e.expendable(h) {
			continue
		}

		// If machines were confused, a user destroys the one with the name, wherever it is.
		e.fault(h, func() { h.power, h.dead, h.etcd, h.member = false, true, 0, 0 })
		e.countLosses()

		rec := e.rec.clone()
		delete(rec.machines, name)
		e.store(&rec)
		e.note("%s is destroyed and forgotten", name)
	}
}

// managementPlane loses and restores its objects.
func (e *fleet) managementPlane() {
	switch e.r.IntN(6) {
	case 0:
		e.life++
		e.note("the objects are applied again: life %d", e.life)
	case 1:
		for _, o := range e.objects {
			o.last = 0
		}

		e.note("the statuses are lost")
	case 2, 3:
		copied := backup{rec: e.rec.clone(), life: e.life}
		for _, o := range e.objects {
			copied.objects = append(copied.objects, *o)
		}

		e.older = append(e.older, copied)
	case 4:
		e.rollBack()
	case 5:
		if e.r.IntN(8) == 0 {
			e.decommission()
		}
	}
}

// rollBack restores an older state of the management plane, but none from before etcd existed: the bootstrap would then
// be repeated, which cannot be detected.
func (e *fleet) rollBack() {
	if len(e.older) == 0 {
		return
	}

	b := e.older[e.r.IntN(len(e.older))]
	if !b.rec.established {
		return
	}

	version := e.rec.version + 1
	e.rec, e.life, e.objects, e.rolledBack = b.rec.clone(), b.life, nil, true
	e.rec.version = version

	for _, o := range b.objects {
		e.objects = append(e.objects, &o)
	}

	e.note("the management plane is restored to an older state")
}

// decommission ends a life of the cluster: every machine is wiped.
func (e *fleet) decommission() {
	for _, h := range e.hardware {
		e.fault(h, func() { h.configured, h.etcd, h.member, h.asked = false, 0, 0, 0 })
	}

	e.countLosses()
	for _, o := range e.objects {
		o.last = 0
	}

	e.life++
	rec := e.rec.clone()
	rec.machines, rec.givenUp, rec.decommissioned, rec.busy = map[string]entry{}, map[string]entry{}, true, ""
	e.store(&rec)
	e.note("the cluster is decommissioned")
}

// expendable reports whether the others could regain a quorum without the machine's data.
func (e *fleet) expendable(h *hardware) bool {
	c := e.etcds[h.etcd]
	if c == nil {
		return true
	}

	rest, all := 0, 0

	for _, m := range c.members {
		if m.Learner {
			continue
		}

		all++

		if slices.ContainsFunc(e.hardware, func(o *hardware) bool {
			return o != h && !o.dead && o.etcd == c.id && o.member == m.ID
		}) {
			rest++
		}
	}

	return rest >= safety.Quorum(all)
}
