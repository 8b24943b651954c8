package safety_test

import (
	"maps"
	"slices"

	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/test/oracle"
)

// Timeouts of the operator, in steps of 20 seconds.
const (
	second   = 20 // seconds per step
	patience = 9
	recent   = 3
	lately   = 1
)

// operator does what the controllers do: it collects evidence, consults the safety package, records its intent, and
// acts. It may die at any moment, and another one may be running at the same time.
type operator struct {
	h *history
	e *fleet
	// seen is lost when the operator dies.
	seen safety.Sightings
	acts int
	// shown is the evidence that it acts on.
	shown []safety.Node
}

// turn takes at most one step.
func (o *operator) turn() {
	e := o.e
	rec := e.rec.clone()
	s := e.look(rec)

	o.learn(s)

	if o.configure(s, &rec) || o.h.between(o) {
		return
	}

	o.fence(s, rec)

	if done := o.bootstrap(s, &rec); !done || o.h.between(o) {
		return
	}

	// A dead member may prevent a busy machine from coming back.
	if o.replaceDead(s, rec) || o.replaceStale(s, rec) || rec.busy != "" && o.goOn(s, &rec) {
		return
	}

	o.begin(s, rec)
}

// learn records what machines report.
func (o *operator) learn(s sighting) {
	for _, n := range s.nodes {
		obj := o.e.find(n.Name)

		switch {
		case n.Answer == safety.AnswerUnknown && obj.silent < 0:
			obj.silent = o.e.step
		case n.Answer != safety.AnswerUnknown:
			obj.silent = -1
		}

		if n.Serves() && n.MemberID != 0 {
			obj.last = n.MemberID
		}
	}
}

// configure sends machines in maintenance mode their configuration, after recording it. It returns true if the operator
// has nothing more to do.
func (o *operator) configure(s sighting, rec *record) bool {
	for _, n := range s.nodes {
		h := s.from[n.Name]
		if n.Answer != safety.AnswerMaintenance || h.configured {
			continue
		}

		known, ever := rec.machines[n.Name]
		if ever && known.uuid != h.uuid {
			continue // a foreign machine
		}

		if !ever {
			rec.machines[n.Name] = entry{address: n.Address, uuid: h.uuid, hw: h}
			if !o.e.store(rec) || o.h.between(o) {
				return true
			}
		}

		if o.e.at(n.Address) == h && h.power && !h.hidden {
			h.configured, h.starting = true, 1+o.e.r.IntN(3)
			o.e.note("%s gets its config as %s", h, n.Name)
		}
	}

	return false
}

func (o *operator) bootstrapRecord(rec record) safety.BootstrapRecord {
	return safety.BootstrapRecord{
		Machine: rec.chosen, Established: rec.established, EarlierLife: rec.life != o.e.life || rec.decommissioned,
		AllowNewEtcd: o.e.allow, Recent: rec.chosen != "" && !rec.decommissioned && o.e.step-rec.chosenAt < recent,
	}
}

// bootstrap returns true if etcd exists.
func (o *operator) bootstrap(s sighting, rec *record) bool {
	e := o.e
	allowed := e.allow
	d := safety.Bootstrap(o.bootstrapRecord(*rec), s.nodes)

	if d.Action == safety.BootstrapDone {
		if safety.AssessEtcd(s.nodes).Healthy && (!rec.established || rec.life != e.life) {
			rec.established, rec.life, rec.decommissioned = true, e.life, false
			if rec.chosen == "" {
				rec.chosen = s.nodes[0].Name
			}

			if !e.store(rec) {
				return false
			}
		}

		e.allow = false

		return true
	}

	if d.Action != safety.BootstrapNode {
		return false
	}

	nodes := append(slices.Clone(s.nodes), e.remembered(s, *rec, true)...)
	if d = safety.Bootstrap(o.bootstrapRecord(*rec), nodes); d.Action != safety.BootstrapNode {
		return false
	}

	o.shown = nodes
	o.h.bootstraps(nodes, d, o.bootstrapRecord(*rec))

	if rec.chosen == d.Machine && rec.life == e.life && e.step-rec.chosenAt < lately {
		return false // it was called recently
	}

	rec.chosen, rec.chosenAt, rec.established, rec.life, rec.decommissioned = d.Machine, e.step, false, e.life, false

	if !e.store(rec) || o.h.between(o) {
		return false
	}

	e.allow = false

	if h := o.reach(s, d.Machine); h != nil && !o.h.between(o) && h.etcd == 0 && h.asked == 0 && h.starting == 0 {
		o.judge(oracle.Act{Kind: oracle.Found, Machine: h.String(), Evidence: s.tick, Word: allowed || e.rolledBack || e.life > 1 || e.oneUUID})
		// While a bootstrap is in progress, the nodes show no evidence of it for a moment. If its record is lost in that
		// moment, by a restore of the management plane, the bootstrap cannot be detected.
		o.h.over = slices.ContainsFunc(e.hardware, func(x *hardware) bool {
			return x.etcd != 0 && e.etcds[x.etcd].entry(x.member) != nil || e.rolledBack && (x.asked > 0 || x.starting > 0)
		})
		h.asked = 1 + e.r.IntN(2)
		o.acts++
		e.note("%s is asked to bootstrap", h)
	}

	return false
}

// reach returns the machine that provided the evidence, if it is still reachable.
func (o *operator) reach(s sighting, name string) *hardware {
	obj, h := o.e.find(name), s.from[name]
	if obj == nil || h == nil || !h.power || h.hidden || !h.configured || o.e.at(obj.address) != h {
		return nil
	}

	return h
}

// judge lets the oracle judge an action that is about to be taken.
func (o *operator) judge(a oracle.Act) {
	for _, v := range oracle.Judge(o.e.truth(), a, o.e.awayNow()) {
		o.h.fail("%s; the evidence was %+v", v, o.shown)
	}
}

// goOn continues the recorded disruption. It returns false once that has ended.
func (o *operator) goOn(s sighting, rec *record) bool {
	obj := o.e.find(rec.busy)

	switch {
	case rec.busyRemoves && obj != nil:
		return o.remove(s, rec, obj)
	case rec.busyRemoves:
	case obj != rec.busyObject && rec.busyMissing == 0:
		rec.busyMissing = o.e.step

		return o.e.store(rec)
	case obj != rec.busyObject && o.e.step-rec.busyMissing < patience:
		return true // its node may still be away
	case obj != rec.busyObject:
	case o.rebooting(s, rec, obj):
		return true
	}

	rec.busy = ""

	return !o.e.store(rec)
}

// rebooting continues the reboot of a machine, and reports whether it is in progress.
func (o *operator) rebooting(s sighting, rec *record, obj *object) bool {
	n := s.node(rec.busy)

	switch {
	case s.from[rec.busy] == nil:
		// A machine may be abandoned in the middle of its reboot.
		return !obj.leaving || o.e.step-obj.silent < patience
	case n.BootID != rec.busyBoot:
		return n.Answer != safety.AnswerMember || !safety.Whole(s.nodes, rec.busy)
	case o.e.step-rec.busyAt >= 2*patience:
		// It was blocked for too long, and has failed.
		obj.reboot = false

		return false
	case obj.reboot:
		o.reboot(s, rec, obj)
	}

	return true
}

// begin begins one of the desired disruptions.
func (o *operator) begin(s sighting, rec record) {
	for _, name := range safety.Order(s.nodes, o.wanted()) {
		obj := o.e.find(name)
		act := safety.ActReboot

		if s.node(name) == nil {
			continue // it was listed after the others were queried
		}

		if obj.leaving {
			act = safety.ActRemove
		}

		if obj.leaving && safety.MemberOf(s.nodes, name) == 0 && safety.Gone(s.nodes, name) {
			// It has no member, so nothing prevents the act.
		} else if !o.permit(s.nodes, rec, safety.Disruption{Act: act, Machine: name}) {
			continue
		}

		rec.busy, rec.busyRemoves, rec.busyAt = name, obj.leaving, o.e.step
		rec.busyObject, rec.busyBoot, rec.busyMissing = obj, s.node(name).BootID, 0

		if !o.e.store(&rec) || o.h.between(o) {
			return
		}

		// Another controller acts, on its own evidence.
		rec = o.e.rec.clone()
		if next := o.e.look(rec); rec.busy == name && o.e.find(name) != nil {
			o.goOn(next, &rec)
		}

		return
	}
}

func (o *operator) wanted() []string {
	var leaving, reboots []string

	for _, obj := range o.e.objects {
		if obj.leaving {
			leaving = append(leaving, obj.name)
		} else if obj.reboot {
			reboots = append(reboots, obj.name)
		}
	}

	return append(leaving, reboots...)
}

func (o *operator) permit(nodes []safety.Node, rec record, d safety.Disruption) bool {
	o.shown = nodes

	v := safety.Permit(nodes, rec.busy, d)
	if v.Action != safety.Proceed {
		return false
	}

	o.e.note("proceed: %s %s %d (%s)", d.Act, d.Machine, d.Member, v.Message)
	o.h.permits(nodes, rec.busy, d)

	return true
}

func (o *operator) reboot(s sighting, rec *record, obj *object) {
	if !o.permit(s.nodes, *rec, safety.Disruption{Act: safety.ActReboot, Machine: obj.name}) || o.h.between(o) {
		return
	}

	h := o.reach(s, obj.name)
	if h == nil || h.bootID() != rec.busyBoot {
		return
	}

	o.judge(oracle.Act{Kind: oracle.Reboot, Machine: h.String(), Evidence: s.tick})
	h.away, h.awaySince, h.power, h.asked, h.faulted = o.e.serves(h), o.e.step, false, 0, 0
	obj.reboot = false
	o.acts++
	o.e.note("%s reboots", h)
}

// remove removes a machine: its member is removed, then it is wiped, then its object is deleted.
func (o *operator) remove(s sighting, rec *record, obj *object) bool {
	n, e := s.node(obj.name), o.e
	id := safety.MemberOf(s.nodes, obj.name)

	if o.shown = s.nodes; id == 0 && safety.Gone(s.nodes, obj.name) {
		return o.depart(s, rec, obj)
	}

	if n == nil || n.Answer != safety.AnswerMember {
		return true // it is replaced once it is known to be dead
	}

	if !o.permit(s.nodes, *rec, safety.Disruption{Act: safety.ActRemove, Machine: obj.name}) || o.h.between(o) {
		return true
	}

	if h := o.reach(s, obj.name); safety.Whole(s.nodes, obj.name) && h != nil && h.etcd != 0 {
		o.drop(e.etcds[h.etcd], h.member, s.tick, false)
	} else if id != 0 {
		o.removeMember(s, obj.name, id, false)
	}

	return true
}

// depart wipes a machine without a member, or abandons an unreachable one.
func (o *operator) depart(s sighting, rec *record, obj *object) bool {
	known, ever := rec.machines[obj.name]

	if s.from[obj.name] == nil {
		if o.e.step-obj.silent < patience {
			return true
		}

		if known.last = obj.last; ever {
			known.hold = o.e.r.IntN(6) == 0

			if o.e.r.IntN(4) > 0 {
				known.hostname = known.hw.String()
			}

			rec.givenUp[obj.name] = known
		}
	} else if h := o.reach(s, obj.name); h != nil && s.node(obj.name).Answer == safety.AnswerMember {
		// What was in maintenance mode is not wiped, whatever has become of it since.
		if o.h.between(o) {
			return true
		}

		// A machine that has its config may have joined since.
		now := o.e.look(*rec)
		if safety.MemberOf(now.nodes, obj.name) != 0 || !safety.Gone(now.nodes, obj.name) {
			return true
		}

		o.wipe(now.tick, h)
	}

	delete(rec.machines, obj.name)

	rec.busy = ""
	if o.e.store(rec) {
		o.e.objects = slices.DeleteFunc(slices.Clone(o.e.objects), func(x *object) bool { return x == obj })
		o.e.note("%s is out of the cluster", obj.name)
	}

	return true
}

func (o *operator) wipe(tick int64, h *hardware) {
	o.judge(oracle.Act{Kind: oracle.WipeDisk, Machine: h.String(), Evidence: tick})
	h.configured, h.etcd, h.member, h.asked = false, 0, 0, 0
	h.boot++
	o.acts++
	o.e.note("%s is wiped", h)
}

// replaceDead removes the member of one machine that is dead, or that returned without it.
func (o *operator) replaceDead(s sighting, rec record) bool {
	for _, n := range s.nodes {
		obj := o.e.find(n.Name)
		gone := obj != nil && obj.silent >= 0 && o.e.step-obj.silent >= patience
		id := safety.MemberOf(s.nodes, n.Name)

		if obj == nil || id == 0 || n.MemberID == id {
			continue
		}

		want := safety.Disruption{Act: safety.ActReplace, Machine: n.Name, Member: id, Gone: gone}
		if o.permit(s.nodes, rec, want) && !o.h.between(o) {
			return o.removeMember(s, n.Name, id, true)
		}
	}

	return false
}

// replaceStale removes one orphaned member.
func (o *operator) replaceStale(s sighting, rec record) bool {
	nodes := append(slices.Clone(s.nodes), o.e.remembered(s, rec, false)...)

	var id uint64

	before := maps.Clone(o.seen)
	if o.seen, id = safety.Stale(nodes, o.seen, o.e.step*second); id == 0 {
		return false
	}

	o.h.stale(nodes, id, before)

	if !o.permit(nodes, record{}, safety.Disruption{Act: safety.ActReplace, Member: id}) || o.h.between(o) {
		return false
	}

	return o.removeMember(s, "", id, true)
}

// removeMember lets another node remove a member.
func (o *operator) removeMember(s sighting, except string, id uint64, dead bool) bool {
	for _, n := range s.nodes {
		h := o.reach(s, n.Name)
		if n.Serves() && n.Leader != 0 && n.Name != except && h != nil && h.etcd != 0 && o.e.serves(h) {
			return o.drop(o.e.etcds[h.etcd], id, s.tick, dead)
		}
	}

	return false
}

// drop removes a member from the list, which needs a quorum.
func (o *operator) drop(c *etcd, id uint64, evidence int64, dead bool) bool {
	if !o.e.quorum(c) || c.entry(id) == nil {
		return false
	}

	// A change of the list is a write, too: a quorum has everything before it.
	o.e.write()

	machine := ""
	for _, h := range o.e.hardware {
		if h.etcd == c.id && h.member == id {
			machine = h.String()
		}
	}

	o.judge(oracle.Act{Kind: oracle.Remove, Machine: machine, Etcd: c.id, Member: id, Evidence: evidence, Replace: dead})
	o.e.setMembers(c, slices.DeleteFunc(slices.Clone(c.members), func(m safety.Member) bool { return m.ID == id }))
	o.acts++
	o.e.note("member %d of etcd %d, %s, is removed", id, c.id, machine)

	return true
}

// fence wipes abandoned machines that have returned, if Fence permits it.
func (o *operator) fence(s sighting, rec record) {
	for _, name := range slices.Sorted(maps.Keys(rec.givenUp)) {
		g := rec.givenUp[name]
		h := o.e.at(g.address)

		if h == nil || !h.power || h.hidden || !h.configured ||
			slices.ContainsFunc(o.e.objects, func(x *object) bool { return x.address == g.address }) {
			continue
		}

		self, _ := o.e.ask(safety.Node{Name: "given up", Address: g.address}, "")
		nodes := append(slices.Clone(s.nodes), safety.Node{
			Name: "given up", Address: g.address, LastMember: g.last, MemberID: self.MemberID,
		})
		o.shown = nodes
		f := o.fencing(rec, name, h, safety.Gone(nodes, "given up"))

		step, doubt := safety.Fence(f)
		if step == safety.FenceAskCluster {
			f.Node = o.e.nodeState(h)
			step, doubt = safety.Fence(f)
		}

		o.h.fences(g, h, step, doubt)

		if step != safety.FenceWipe || o.h.between(o) || o.e.at(g.address) != h {
			continue
		}

		// It may have joined since.
		now := o.e.look(rec)
		if safety.Gone(append(now.nodes, safety.Node{
			Name: "given up", Address: g.address, LastMember: g.last, MemberID: self.MemberID,
		}), "given up") {
			o.wipe(now.tick, h)
		}
	}
}

func (o *operator) fencing(rec record, name string, h *hardware, gone bool) safety.Fencing {
	g := rec.givenUp[name]
	f := safety.Fencing{
		Abandoned: safety.Identity{
			Name: name, Hostname: g.hostname, NodeName: g.hostname, Address: g.address, UUID: g.uuid,
		},
		Found:      safety.Identity{Hostname: h.String(), NodeName: h.String(), Address: g.address, UUID: h.uuid},
		MemberGone: gone, Approved: g.approved, Hold: g.hold,
	}

	for _, m := range rec.machines {
		f.Ambiguous = f.Ambiguous || m.uuid == g.uuid
	}

	return f
}

// nodeState returns the state of a machine's Node: Kubernetes responds only while etcd has quorum.
func (e *fleet) nodeState(h *hardware) safety.NodeState {
	switch {
	case e.running() == nil:
		return safety.NodeUnknown
	case h.kubelet():
		return safety.NodeReady
	}

	return safety.NodeNotReady
}

// kubelet reports whether the machine's kubelet works, which it does only after every other boot.
func (h *hardware) kubelet() bool { return h.power && h.configured && h.boot%2 == 0 }
