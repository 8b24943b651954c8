package safety_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/test/oracle"
)

// fleet is a simulated control plane: the real state, as opposed to the evidence.
type fleet struct {
	r *rand.Rand
	// step is the time; tick orders the events within a step.
	step, tick int64
	hardware   []*hardware
	etcds      map[uint64]*etcd
	nextID     uint64
	// selfCleans: a node that joins with an empty disk removes its previous member. otherPeers: members announce addresses
	// of a network that the operator does not know. oneUUID: all boards have the same UUID.
	selfCleans, otherPeers, oneUUID bool

	// The contents of the management plane: the objects, and the state Secret.
	objects []*object
	life    int
	allow   bool
	rec     record
	older   []backup
	// rolledBack: the management plane was restored to an older state, without the later records.
	rolledBack bool

	log []string
}

// hardware is one machine.
type hardware struct {
	id                         int
	uuid, address, alias, peer string
	power, dead, configured    bool
	// cut: unreachable for the other members. hidden: unreachable for the operator. stranger: never managed by the
	// operator.
	cut, hidden, stranger bool
	// The contents of its disk, and the member list that it knows.
	etcd, member, index uint64
	view                []safety.Member
	// asked is the number of steps until a bootstrap shows data, starting the number of steps until its etcd has started.
	asked, starting int
	boot            int
	faulted         int64
	lost            []oracle.Disk
	away            bool // disrupted by the operator
	awaySince       int64
	lie             int
	alarm, behind   bool
}

type etcd struct {
	id        uint64
	members   []safety.Member
	acked     uint64
	destroyed bool
	// voting is since when members vote that the operator did not add.
	voting map[uint64]int64
}

// Contradictory or wrong reports of a node.
const (
	honest = iota
	lieLongList
	lieShortList
	lieOtherID
	lieLearner
	lieMute
	lies
)

// Raft indexes of members that are up to date, and of those that are catching up.
const (
	upToDate  = 100_000
	catchesUp = 10
)

// object is a machine in the management plane.
type object struct {
	name, address   string
	leaving, reboot bool
	// last is the last member that it reported.
	last uint64
	// silent is since when it has been unreachable; -1 while it is reachable.
	silent int64
}

// record is the content of the state Secret.
type record struct {
	version, life  int
	machines       map[string]entry
	chosen         string
	chosenAt       int64
	established    bool
	decommissioned bool
	busy           string
	busyRemoves    bool
	busyBoot       string
	busyAt         int64
	// busyObject is the object that the disruption was recorded for; busyMissing is since when it has been missing.
	busyObject  *object
	busyMissing int64
	givenUp     map[string]entry
}

type entry struct {
	address, uuid, hostname string
	last                    uint64
	// hold and approved of an abandoned machine: it must not be changed, or a user wants it wiped.
	hold, approved bool
	hw             *hardware // for the oracle only
}

type backup struct {
	rec     record
	objects []object
	life    int
}

func newFleet(r *rand.Rand, size int, established bool) *fleet {
	e := &fleet{
		r: r, step: 1000, nextID: 1, etcds: map[uint64]*etcd{}, selfCleans: r.IntN(2) == 0, otherPeers: r.IntN(4) == 0,
		oneUUID: r.IntN(4) == 0, life: 1,
		rec: record{life: 1, machines: map[string]entry{}, givenUp: map[string]entry{}},
	}

	for range size {
		e.list(e.machine())
	}

	if !established {
		return e
	}

	c := e.found(e.hardware[0])
	e.rec.chosen, e.rec.established = e.objects[0].name, true

	for i, h := range e.hardware {
		h.configured = true
		e.rec.machines[e.objects[i].name] = entry{address: h.address, uuid: h.uuid, hw: h}

		if i > 0 {
			h.etcd, h.member = c.id, e.admit(c, h.peer, false)
		}

		e.objects[i].last = h.member
	}

	e.write()

	return e
}

func (e *fleet) machine() *hardware {
	n := len(e.hardware)
	h := &hardware{id: n, uuid: fmt.Sprintf("uuid-%d", n), address: fmt.Sprintf("10.0.0.%d", n), power: true}
	h.peer = h.address

	if e.oneUUID {
		h.uuid = "uuid"
	}

	if e.otherPeers {
		h.peer = fmt.Sprintf("192.168.0.%d", n)
	}

	e.hardware = append(e.hardware, h)

	return h
}

func (e *fleet) list(h *hardware) *object {
	o := &object{name: fmt.Sprintf("m-%d", h.id), address: h.address, silent: -1}
	e.objects = append(e.objects, o)

	return o
}

func (e *fleet) admit(c *etcd, peer string, learner bool) uint64 {
	id := e.nextID
	e.nextID++
	e.setMembers(c, append(slices.Clone(c.members), safety.Member{ID: id, PeerAddresses: []string{peer}, Learner: learner}))

	return id
}

// setMembers changes the list. The connected members learn about the change.
func (e *fleet) setMembers(c *etcd, members []safety.Member) {
	for _, h := range e.hardware {
		if h.etcd == c.id && e.serves(h) {
			h.view = members
		}
	}

	c.members = members
}

func (e *fleet) found(h *hardware) *etcd {
	c := &etcd{id: e.nextID, voting: map[uint64]int64{}}
	e.nextID++
	e.etcds[c.id] = c
	h.etcd, h.member, h.index = c.id, e.admit(c, h.peer, false), 0
	h.view = c.members
	e.note("%s has a new etcd %d", h, c.id)

	return c
}

func (e *fleet) note(format string, args ...any) {
	e.log = append(e.log, fmt.Sprintf("%d ", e.step)+fmt.Sprintf(format, args...))
}

func (h *hardware) bootID() string { return fmt.Sprintf("%s-boot-%d", h, h.boot) }

func (h *hardware) String() string { return fmt.Sprintf("hw-%d", h.id) }

func (e *fleet) find(name string) *object {
	if i := slices.IndexFunc(e.objects, func(o *object) bool { return o.name == name }); i >= 0 {
		return e.objects[i]
	}

	return nil
}

// at returns the machine that responds at an address.
func (e *fleet) at(address string) *hardware {
	var found *hardware

	for _, h := range e.hardware {
		switch {
		case h.stranger:
		case h.alias == address:
			return h
		case h.address == address:
			found = h
		}
	}

	return found
}

func (c *etcd) entry(id uint64) *safety.Member {
	for i := range c.members {
		if c.members[i].ID == id {
			return &c.members[i]
		}
	}

	return nil
}

func (c *etcd) votes(id uint64) bool { m := c.entry(id); return m != nil && !m.Learner }

// serves reports whether the machine's member is on the list and connected to the others.
func (e *fleet) serves(h *hardware) bool {
	return h.etcd != 0 && h.power && h.configured && !h.cut && h.starting == 0 && e.etcds[h.etcd].entry(h.member) != nil
}

func (e *fleet) voters(c *etcd) (working, all int) {
	for _, h := range e.hardware {
		if h.etcd == c.id && e.serves(h) && c.votes(h.member) {
			working++
		}
	}

	for _, m := range c.members {
		if !m.Learner {
			all++
		}
	}

	return working, all
}

func (e *fleet) quorum(c *etcd) bool {
	working, all := e.voters(c)

	return all > 0 && working >= safety.Quorum(all)
}

// running returns the etcd that has quorum, if there is one.
func (e *fleet) running() *etcd {
	for _, id := range slices.Sorted(maps.Keys(e.etcds)) {
		if e.quorum(e.etcds[id]) {
			return e.etcds[id]
		}
	}

	return nil
}

func (e *fleet) leader(c *etcd) uint64 {
	if !e.quorum(c) {
		return 0
	}

	for _, h := range e.hardware {
		if h.etcd == c.id && e.serves(h) && c.votes(h.member) {
			return h.member
		}
	}

	return 0
}

// sighting is the evidence of one observation, with its time and its sources.
type sighting struct {
	nodes []safety.Node
	from  map[string]*hardware
	tick  int64
}

func (s sighting) node(name string) *safety.Node {
	for i := range s.nodes {
		if s.nodes[i].Name == name {
			return &s.nodes[i]
		}
	}

	return nil
}

// look queries every listed machine.
func (e *fleet) look(rec record) sighting {
	e.tick++
	s := sighting{from: map[string]*hardware{}, tick: e.tick}

	for _, o := range e.objects {
		known, ever := rec.machines[o.name]
		n, h := e.ask(safety.Node{Name: o.name, Address: o.address, LastMember: o.last, EverConfigured: ever}, known.uuid)
		s.nodes = append(s.nodes, n)
		s.from[o.name] = h
	}

	return s
}

// remembered returns machines that were configured once and were not listed when the others were queried.
func (e *fleet) remembered(s sighting, rec record, asked bool) []safety.Node {
	var out []safety.Node

	for _, name := range slices.Sorted(maps.Keys(rec.machines)) {
		if s.node(name) != nil {
			continue
		}

		n := safety.Node{Name: name, Address: rec.machines[name].address, EverConfigured: true}
		if asked {
			n, _ = e.ask(n, rec.machines[name].uuid)
			n.Unlisted = true
		}

		out = append(out, n)
	}

	return out
}

func (e *fleet) ask(n safety.Node, uuid string) (safety.Node, *hardware) {
	h := e.at(n.Address)

	switch {
	case h == nil || !h.power || h.hidden:
		return n, nil
	case !h.configured:
		n.Answer = safety.AnswerMaintenance

		return n, h
	case uuid != "" && uuid != h.uuid:
		return n, nil // another machine is no evidence about this one
	}

	n.Answer, n.EtcdData = safety.AnswerMember, safety.DataAbsent
	n.EtcdSince, n.BootID = int64(h.id*1000+h.boot+1), h.bootID()

	switch {
	case h.lie == lieMute:
		n.EtcdData = safety.DataUnknown
	case h.etcd == 0:
		n.EtcdWaiting = h.asked == 0 && h.starting == 0
	default:
		n.EtcdData = safety.DataPresent
		e.askEtcd(h, &n)
	}

	return n, h
}

func (e *fleet) askEtcd(h *hardware, n *safety.Node) {
	c := e.etcds[h.etcd]
	if h.starting > 0 || c.entry(h.member) == nil {
		return // it is starting, or its member was removed, so that it ends
	}

	n.RaftIndex, n.RaftApplied = upToDate, upToDate
	if h.behind {
		n.RaftIndex, n.RaftApplied = catchesUp, catchesUp
	}

	if !e.serves(h) || !e.quorum(c) {
		// Right after it has lost its leader it reports that; one that was started without quorum does not respond.
		if n.MemberID, n.NoLeader = h.member, true; h.boot%2 == 1 {
			n.MemberID, n.NoLeader, n.EtcdHangs = 0, false, true
		}

		return
	}

	n.MemberID, n.Members, n.Leader, n.Learner = h.member, h.view, e.leader(c), c.entry(h.member).Learner

	if h.alarm {
		n.Alarms, n.OwnAlarms = []string{"NOSPACE"}, []string{"NOSPACE"}
	}

	switch h.lie {
	case lieLongList:
		n.Members = append(slices.Clone(n.Members), safety.Member{ID: 9999, PeerAddresses: []string{"10.9.0.1"}})
	case lieShortList:
		if !e.witnessed(h, 0) {
			return
		}

		n.Members = slices.DeleteFunc(slices.Clone(n.Members), func(m safety.Member) bool {
			return m.ID != h.member && m.ID%3 == uint64(h.id)%3
		})
	case lieOtherID:
		if e.witnessed(h, c.members[0].ID) {
			n.MemberID = c.members[0].ID
		}
	case lieLearner:
		n.Learner = true
	}
}

// witnessed reports whether another node responds too, and reports truthfully; the node of a certain member, unless
// that is 0. The report of a single witness cannot be checked.
func (e *fleet) witnessed(h *hardware, member uint64) bool {
	return slices.ContainsFunc(e.objects, func(o *object) bool {
		w := e.at(o.address)

		return w != nil && w != h && !w.hidden && w.lie == honest && w.etcd == h.etcd && e.serves(w) &&
			(member == 0 || w.member == member) &&
			(e.rec.machines[o.name].uuid == "" || e.rec.machines[o.name].uuid == w.uuid)
	})
}

// work simulates what the machines do by themselves: start, join, be promoted, write.
func (e *fleet) work() {
	for _, h := range e.hardware {
		if !h.power || !h.configured {
			continue
		}

		switch {
		case h.starting > 0:
			h.starting--
		case h.asked > 0:
			if h.asked--; h.asked == 0 && h.etcd == 0 {
				e.found(h)
			}
		case h.etcd == 0 && !h.cut:
			e.join(h)
		case h.etcd != 0:
			e.live(h)
		}
	}

	e.write()
	e.awayNow()
}

func (e *fleet) live(h *hardware) {
	c := e.etcds[h.etcd]

	switch m := c.entry(h.member); {
	case m == nil:
		// Its member was removed: etcd ends, and the node starts over once a user has wiped its data.
		if e.r.IntN(4) == 0 {
			h.etcd, h.member = 0, 0
			e.note("%s starts over", h)
		}
	case m.Learner && e.serves(h) && e.quorum(c):
		members := slices.Clone(c.members)
		members[slices.IndexFunc(members, func(m safety.Member) bool { return m.ID == h.member })].Learner = false
		e.setMembers(c, members)
		e.note("%s votes", h)
	}
}

// write simulates one write to every etcd that has quorum.
func (e *fleet) write() {
	for _, c := range e.etcds {
		if !e.quorum(c) {
			continue
		}

		newest := uint64(0)

		for _, h := range e.hardware {
			if h.etcd == c.id && e.serves(h) {
				newest = max(newest, h.index)
			}
		}

		// The leader does not invent data that it does not have.
		if newest >= c.acked {
			c.acked, newest = c.acked+1, c.acked+1
		}

		for _, h := range e.hardware {
			if h.etcd == c.id && e.serves(h) {
				h.index, h.view = newest, c.members
			}
		}
	}
}

// join adds the machine as a learner: one at a time, and no address twice, as etcd does.
func (e *fleet) join(h *hardware) {
	c := e.running()
	if c == nil {
		return
	}

	if e.selfCleans {
		e.setMembers(c, slices.DeleteFunc(slices.Clone(c.members), func(o safety.Member) bool {
			return slices.Contains(o.PeerAddresses, h.peer)
		}))
	}

	if !e.quorum(c) || slices.ContainsFunc(c.members, func(o safety.Member) bool {
		return o.Learner || slices.Contains(o.PeerAddresses, h.peer)
	}) {
		return
	}

	h.etcd, h.member, h.index, h.view = c.id, e.admit(c, h.peer, true), 0, c.members
	e.note("%s joins etcd %d as %d", h, c.id, h.member)
}

// truth returns the state that the oracle judges by.
func (e *fleet) truth() oracle.Truth {
	var t oracle.Truth

	known := map[*hardware]bool{}
	for _, o := range e.objects {
		if h := e.at(o.address); h != nil && h.power && !h.hidden {
			known[h] = true
		}
	}

	// A machine that does not respond at its address, while another board with its UUID does, cannot be observed.
	for _, m := range e.rec.machines {
		known[m.hw] = known[m.hw] || e.at(m.address) == m.hw || !e.oneUUID
	}

	for _, id := range slices.Sorted(maps.Keys(e.etcds)) {
		c := e.etcds[id]
		out := oracle.Etcd{ID: id, Acknowledged: c.acked, Destroyed: c.destroyed}

		for _, m := range c.members {
			out.Members = append(out.Members, oracle.Member{ID: m.ID, Learner: m.Learner, Voting: c.voting[m.ID]})
		}

		t.Etcds = append(t.Etcds, out)
	}

	for _, h := range e.hardware {
		t.Disks = append(t.Disks, oracle.Disk{
			Machine: h.String(), Etcd: h.etcd, Member: h.member, Index: h.index, Serving: e.serves(h), Faulted: h.faulted,
			Known: known[h],
		})
		t.Disks = append(t.Disks, h.lost...)
	}

	return t
}

// awayNow returns the machines that the operator has made unavailable.
func (e *fleet) awayNow() []string {
	var out []string

	for _, h := range e.hardware {
		if h.away = h.away && !e.serves(h) && !e.lost(h); h.away {
			out = append(out, h.String())
		}
	}

	return out
}

// lost reports whether a machine that is to leave, or has left, has not come back from its reboot in the time that one
// may take. That is a fault then: an operator that waited for it would not end.
func (e *fleet) lost(h *hardware) bool {
	listed := slices.ContainsFunc(e.objects, func(o *object) bool { return !o.leaving && e.at(o.address) == h })

	return !listed && e.step-h.awaySince >= patience
}

func (r record) clone() record {
	r.machines, r.givenUp = maps.Clone(r.machines), maps.Clone(r.givenUp)

	return r
}

// store writes the state, unless it was written since it was read.
func (e *fleet) store(r *record) bool {
	if r.version != e.rec.version {
		return false
	}

	r.version++
	e.rec = r.clone()

	return true
}
