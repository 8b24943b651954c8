package plan_test

import (
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/internal/plan"
)

var histories = flag.Int("histories", 10000, "how many random histories the safety kernel goes through")

// driver does what a controller does: it wants things, asks for permission, and acts.
type driver struct {
	t    *testing.T
	e    *estate
	seed uint64
	// reboots are machines whose config waits for a reboot; leaving are machines that are to go.
	reboots, leaving []string
	busy             string
	// silent is since when machines do not answer; after patience they count as gone.
	silent map[string]time.Time
	seen   plan.Sightings
	acts   int
}

const patience = 10 * time.Minute

func (d *driver) fail(format string, args ...any) {
	d.t.Helper()
	d.t.Errorf("seed %d: "+format+"\n%s", slices.Concat([]any{d.seed}, args, []any{strings.Join(d.e.log, "\n")})...)
}

// turn takes at most one step.
func (d *driver) turn() {
	nodes := d.e.evidence()

	d.watch(nodes)

	if d.busy != "" && d.ended(nodes) {
		d.busy = ""
	}

	for _, want := range d.wants(nodes) {
		verdict := plan.Permit(nodes, d.busy, want)
		if verdict.Action != plan.Proceed {
			continue
		}

		d.e.note("proceed: %s %s %d (%s)", want.Act, want.Machine, want.Member, verdict.Message)
		d.check(nodes, want)
		d.act(want)
		d.acts++

		return
	}
}

// ended: the machine is back and works, or has been given up.
func (d *driver) ended(nodes []plan.Node) bool {
	m := d.e.find(d.busy)

	return m == nil || m.up && plan.Whole(nodes, d.busy)
}

func (d *driver) watch(nodes []plan.Node) {
	for _, n := range nodes {
		if n.Answer != plan.AnswerUnknown {
			delete(d.silent, n.Name)
		} else if _, known := d.silent[n.Name]; !known {
			d.silent[n.Name] = d.e.now
		}
	}
}

func (d *driver) wants(nodes []plan.Node) []plan.Disruption {
	var out []plan.Disruption

	seen, stale := plan.Stale(nodes, d.seen, d.e.now.Unix())
	if d.seen = seen; stale != 0 {
		out = append(out, plan.Disruption{Act: plan.ActReplace, Member: stale})
	}

	for _, n := range nodes {
		since, silent := d.silent[n.Name]
		gone := silent && d.e.now.Sub(since) >= patience

		if id := plan.MemberOf(nodes, n.Name); id != 0 && n.MemberID != id {
			out = append(out, plan.Disruption{Act: plan.ActReplace, Machine: n.Name, Member: id, Gone: gone})
		}
	}

	for _, name := range plan.Order(nodes, d.leaving) {
		out = append(out, plan.Disruption{Act: plan.ActRemove, Machine: name})
	}

	for _, name := range plan.Order(nodes, d.reboots) {
		out = append(out, plan.Disruption{Act: plan.ActReboot, Machine: name})
	}

	return out
}

// check holds a step that is about to be taken against what really is.
func (d *driver) check(nodes []plan.Node, want plan.Disruption) {
	names, addresses := map[string]bool{}, map[string]bool{}
	for _, n := range nodes {
		names[n.Name], addresses[n.Address] = true, true
	}

	if len(names) < len(nodes) || len(addresses) < len(nodes) {
		d.fail("%s of %s although two machines pass for one", want.Act, want.Machine)
	}

	if want.Act == plan.ActReplace {
		d.checkReplaced(nodes, want)

		return
	}

	i := slices.IndexFunc(nodes, func(n plan.Node) bool { return n.Name == want.Machine })
	if i < 0 || !claimsWork(nodes, nodes[i]) {
		return
	}

	for _, n := range nodes {
		switch {
		case n.RaftIndex == catchesUp && slices.ContainsFunc(nodes, ahead):
			d.fail("%s of %s although %s is behind", want.Act, want.Machine, n.Name)
		case n.Answer != plan.AnswerMember || len(n.Members) == 0 || n.Leader == 0:
			d.fail("%s of %s although %s is not known to be well", want.Act, want.Machine, n.Name)
		case len(n.Alarms) > 0 || n.Learner:
			d.fail("%s of %s although %s has an alarm or no vote", want.Act, want.Machine, n.Name)
		}
	}

	if d.busy != "" && d.busy != want.Machine {
		d.fail("%s of %s while %s is busy", want.Act, want.Machine, d.busy)
	}
}

func ahead(n plan.Node) bool { return n.RaftIndex == upToDate }

// checkReplaced: those that answer and see a leader have one member list, and the member is on it.
func (d *driver) checkReplaced(nodes []plan.Node, want plan.Disruption) {
	var first []plan.Member

	for _, n := range nodes {
		if n.Answer != plan.AnswerMember || n.Leader == 0 || len(n.Members) == 0 {
			continue
		}

		if first == nil {
			first = n.Members
		}

		if len(n.Members) != len(first) || !slices.ContainsFunc(n.Members, func(m plan.Member) bool { return m.ID == want.Member }) {
			d.fail("member %d is removed, and %s has another list than others", want.Member, n.Name)
		}
	}

	if first == nil {
		d.fail("member %d is removed, and nobody has said that there is one", want.Member)
	}
}

// claimsWork: the machine says itself that it votes, and nobody who answers sees another member list.
func claimsWork(nodes []plan.Node, n plan.Node) bool {
	return n.Leader != 0 && !n.Learner && !slices.ContainsFunc(nodes, func(o plan.Node) bool {
		return len(o.Members) > len(n.Members)
	})
}

// act does it, and looks whether it cost the quorum.
func (d *driver) act(want plan.Disruption) {
	had := d.e.quorum()
	_, all := d.e.voters()
	m := d.e.find(want.Machine)

	switch want.Act {
	case plan.ActReboot:
		m.up = false
		d.busy = want.Machine
		d.reboots = slices.DeleteFunc(d.reboots, func(n string) bool { return n == want.Machine })

		if had && all > 2 && !d.e.quorum() {
			d.fail("the reboot of %s cost the quorum", want.Machine)
		}

		d.e.note("%s reboots", want.Machine)

		return
	case plan.ActRemove:
		d.leaving = slices.DeleteFunc(d.leaving, func(n string) bool { return n == want.Machine })
		d.reboots = slices.DeleteFunc(d.reboots, func(n string) bool { return n == want.Machine })
		d.drop(m.member)
		d.e.machines = slices.DeleteFunc(d.e.machines, func(o *simMachine) bool { return o == m })
	case plan.ActReplace:
		if m != nil && m.up && m.member == want.Member && d.e.votes(m) {
			d.fail("member %d of %s was removed and worked", want.Member, want.Machine)
		}

		d.drop(want.Member)
	}

	if had && !d.e.quorum() {
		d.fail("%s of %s, member %d, cost the quorum", want.Act, want.Machine, want.Member)
	}
}

// drop takes a member off the list, which needs a quorum.
func (d *driver) drop(id uint64) {
	if d.e.quorum() {
		d.e.members = slices.DeleteFunc(slices.Clone(d.e.members), func(m plan.Member) bool { return m.ID == id })
	}
}

// replaceDead puts a spare machine in for one that is given up, as a person or the remediation does.
func (d *driver) replaceDead() {
	for i, m := range d.e.machines {
		since, silent := d.silent[m.name]
		if !m.dead || !silent || d.e.now.Sub(since) < patience || d.owned(m) {
			continue
		}

		d.e.machines = slices.Delete(slices.Clone(d.e.machines), i, i+1)
		d.leaving = slices.DeleteFunc(d.leaving, func(n string) bool { return n == m.name })
		d.reboots = slices.DeleteFunc(d.reboots, func(n string) bool { return n == m.name })
		d.e.machine().configured = false
		d.e.note("%s is replaced", m.name)

		return
	}
}

// owned: a member on the list still belongs to the machine.
func (d *driver) owned(m *simMachine) bool {
	return slices.ContainsFunc(d.e.members, func(o plan.Member) bool { return slices.Contains(o.PeerAddresses, m.address) })
}

// TestHistories lets faults of every kind happen to control planes while a driver wants reboots and removals.
func TestHistories(t *testing.T) {
	acts, settled := 0, 0

	for seed := range uint64(*histories) {
		d := history(t, seed)
		acts += d.acts

		if d.settle() {
			settled++
		}

		if t.Failed() {
			return
		}
	}

	// A kernel that always says no is safe and useless.
	if acts < *histories || settled < *histories/2 {
		t.Errorf("%d acts and %d settled control planes in %d histories", acts, settled, *histories)
	}
}

func history(t *testing.T, seed uint64) *driver {
	t.Helper()

	r := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // a simulation
	e := newEstate(r, 1+r.IntN(5))
	d := &driver{t: t, e: e, seed: seed, silent: map[string]time.Time{}}

	for range 60 {
		e.now = e.now.Add(30 * time.Second)

		switch r.IntN(4) {
		case 0, 1:
			e.chaos()
		case 2:
			m := e.machines[r.IntN(len(e.machines))].name
			if !slices.Contains(d.reboots, m) {
				d.reboots = append(d.reboots, m)
			}
		case 3:
			m := e.machines[r.IntN(len(e.machines))].name
			if r.IntN(8) == 0 && len(e.machines) > 1 && !slices.Contains(d.leaving, m) {
				d.leaving = append(d.leaving, m)
			}
		}

		d.turn()
		e.work()
		d.bootBusy()
	}

	return d
}

// bootBusy: what we rebooted comes back after a while.
func (d *driver) bootBusy() {
	if m := d.e.find(d.busy); m != nil && !m.up && d.e.r.IntN(3) == 0 {
		d.e.powerOn(m)
	}
}

// settle ends the faults. Unless they have cost the quorum for good, everything that was wanted gets done then.
func (d *driver) settle() bool {
	e := d.e
	e.calm()

	if !e.quorum() {
		return false
	}

	for range 200 {
		e.now = e.now.Add(30 * time.Second)

		d.turn()
		e.work()
		d.bootBusy()
		d.replaceDead()
	}

	working, all := e.voters()

	// The last machine is never removed.
	leaving := len(d.leaving)
	if len(e.machines) == 1 {
		leaving = 0
	}

	if working != all || all != len(e.machines) || len(e.members) != all || len(d.reboots) > 0 || leaving > 0 {
		d.fail("not settled: %d of %d voters work, %d members, %d machines, reboots %v, leaving %v, busy %q", working, all,
			len(e.members), len(e.machines), d.reboots, d.leaving, d.busy)
	}

	return true
}
