package safety_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/internal/safety"
)

// The following is an independent specification of each decision for any evidence: the safety package must be neither
// bolder nor more timid.

func all(nodes []safety.Node, holds func(safety.Node) bool) bool {
	return !slices.ContainsFunc(nodes, func(n safety.Node) bool { return !holds(n) })
}

func some(nodes []safety.Node, holds func(safety.Node) bool) bool {
	return slices.ContainsFunc(nodes, holds)
}

func tally(nodes []safety.Node, holds func(safety.Node) bool) (count int) {
	for _, n := range nodes {
		if holds(n) {
			count++
		}
	}

	return count
}

func silentNode(n safety.Node) bool { return n.Answer == safety.AnswerUnknown }
func bare(n safety.Node) bool       { return n.Answer == safety.AnswerMaintenance }
func runs(n safety.Node) bool       { return n.Answer == safety.AnswerMember }

// emptied reports whether the node has stated that it has no etcd data.
func emptied(n safety.Node) bool { return bare(n) || runs(n) && n.EtcdData == safety.DataAbsent }

func has(members []safety.Member, id uint64) bool {
	return slices.ContainsFunc(members, func(m safety.Member) bool { return m.ID == id })
}

// votingIDs returns the IDs of the voting members; of all members if learners is true.
func votingIDs(members []safety.Member, learners bool) (out []uint64) {
	for _, m := range members {
		if learners || !m.Learner {
			out = append(out, m.ID)
		}
	}

	slices.Sort(out)

	return out
}

// alike reports whether two lists have the same members with the same votes.
func alike(a, b []safety.Member) bool {
	return len(a) == len(b) && slices.Equal(votingIDs(a, true), votingIDs(b, true)) &&
		slices.Equal(votingIDs(a, false), votingIDs(b, false))
}

// longest returns the first of the longest lists.
func longest(nodes []safety.Node) (out []safety.Member) {
	for _, n := range nodes {
		if len(n.Members) > len(out) {
			out = n.Members
		}
	}

	return out
}

// pairs reports whether the condition holds for any pair of nodes, in either order.
func pairs(nodes []safety.Node, holds func(a, b safety.Node) bool) bool {
	for i, a := range nodes {
		for j, b := range nodes {
			if i != j && holds(a, b) {
				return true
			}
		}
	}

	return false
}

// apart reports whether the nodes run two etcds.
func apart(nodes []safety.Node) bool {
	return pairs(nodes, func(a, b safety.Node) bool {
		return a.MemberID != 0 && b.MemberID != 0 && len(a.Members) > 0 && len(b.Members) > 0 &&
			!has(a.Members, b.MemberID) && !has(b.Members, a.MemberID) &&
			!slices.ContainsFunc(a.Members, func(m safety.Member) bool { return has(b.Members, m.ID) })
	})
}

func oneMachine(nodes []safety.Node) bool {
	return pairs(nodes, func(a, b safety.Node) bool {
		return a.EtcdSince == b.EtcdSince && a.EtcdSince > 0 && a.Address != b.Address
	})
}

// contradicts reports whether two machines are mistaken for one.
func contradicts(nodes []safety.Node) bool {
	return oneMachine(nodes) || pairs(nodes, func(a, b safety.Node) bool {
		return a.Name == b.Name || a.Address == b.Address && a.Address != "" || a.MemberID == b.MemberID && a.MemberID != 0
	})
}

// votes reports whether the node's member votes according to itself, and sees the longest list.
func votes(nodes []safety.Node) func(safety.Node) bool {
	list := longest(nodes)

	return func(n safety.Node) bool {
		return runs(n) && len(n.Members) > 0 && alike(n.Members, list) && n.MemberID != 0 && has(list, n.MemberID) &&
			!n.Learner && n.Leader != 0 && !n.NoLeader
	}
}

// majority returns the size of a majority of the voting members of a list.
func majority(list []safety.Member) int { return len(votingIDs(list, false))/2 + 1 }

func healthy(nodes []safety.Node) bool {
	votes, list := votes(nodes), longest(nodes)

	return !apart(nodes) && len(list) > 0 && tally(nodes, votes) >= majority(list) &&
		all(nodes, func(n safety.Node) bool { return votes(n) && len(n.Alarms) == 0 }) &&
		!slices.ContainsFunc(list, func(m safety.Member) bool {
			return !some(nodes, func(n safety.Node) bool { return n.MemberID == m.ID })
		})
}

func TestPropertiesAssessEtcd(t *testing.T) {
	eachEvidence(t, func(_ *rand.Rand, nodes []safety.Node) string {
		got, list := safety.AssessEtcd(nodes), longest(nodes)

		var voting []string

		if !apart(nodes) {
			for _, n := range nodes {
				if votes(nodes)(n) && len(n.Alarms) == 0 {
					voting = append(voting, n.Name)
				}
			}
		} else {
			list = nil
		}

		slices.Sort(voting)

		quorum := len(list) > 0 && tally(nodes, votes(nodes)) >= majority(list)
		reason := "EtcdUnhealthy"

		switch {
		case apart(nodes):
			reason = "EtcdSplit"
		case healthy(nodes):
			reason = "EtcdHealthy"
		}

		if got.Healthy != healthy(nodes) || got.Quorum != quorum || got.Members != len(list) || got.Reason != reason ||
			!slices.Equal(got.Voting, voting) || (got.Message == "") != (len(nodes) == 0) {
			return fmt.Sprintf("got %+v, want healthy %t, quorum %t, %v, %s", got, healthy(nodes), quorum, voting, reason)
		}

		// The order of the nodes does not change the condition.
		faults := strings.Split(got.Message, "; ")
		if !slices.IsSorted(faults) {
			return fmt.Sprintf("the faults are not in order: %q", faults)
		}

		for _, n := range nodes {
			mute := runs(n) && len(n.Members) == 0 && !n.NoLeader && !apart(nodes)
			if mute && !slices.Contains(faults, n.Name+" has no responding etcd member") {
				return fmt.Sprintf("etcd of %s is unreachable: %q", n.Name, faults)
			}
		}

		return ""
	})
}

// TestPropertiesBootstrap: which node is bootstrapped, and on what evidence.
func TestPropertiesBootstrap(t *testing.T) {
	eachEvidence(t, func(r *rand.Rand, nodes []safety.Node) string {
		rec := safety.BootstrapRecord{
			Machine: []string{"", "", "a", "b", "x"}[r.IntN(5)], Recent: r.IntN(3) == 0, Established: r.IntN(3) == 0,
			EarlierLife: r.IntN(3) == 0, AllowNewEtcd: r.IntN(3) == 0,
		}

		for i := range nodes {
			nodes[i].Departing = r.IntN(4) == 0
		}

		got := safety.Bootstrap(rec, nodes)
		action, machine, reason := bootstrapSpec(rec, nodes)

		if got.Action != action || got.Machine != machine || got.Reason != reason || got.Message == "" {
			return fmt.Sprintf("%+v: got %+v, want %d %q %s", rec, got, action, machine, reason)
		}

		return adviceSpec(got, nodes)
	})
}

// adviceSpec: if evidence is missing that a user can declare void, the message names the affected machines and no
// others.
func adviceSpec(d safety.BootstrapDecision, nodes []safety.Node) string {
	var data, hidden []string

	for _, n := range nodes {
		switch {
		case n.Unlisted && n.EtcdData == safety.DataPresent:
			data = append(data, n.Name)
		case !n.EverConfigured && !runs(n) || n.EtcdData != safety.DataUnknown:
		case n.Unlisted, n.Departing && silentNode(n):
			hidden = append(hidden, n.Name)
		}
	}

	want := hidden
	if len(data) > 0 {
		want = data
	}

	_, said, advised := strings.Cut(d.Message, "forget-machines=")

	slices.Sort(want)

	unknown := d.Reason == "WaitingForEvidence" && d.Action == safety.BootstrapWait &&
		!strings.Contains(d.Message, "contradict")
	if advised != (unknown && len(want) > 0) || advised && said != strings.Join(want, ",") {
		return fmt.Sprintf("%q does not advise to forget %v alone", d.Message, want)
	}

	return ""
}

func bootstrapSpec(rec safety.BootstrapRecord, nodes []safety.Node) (safety.BootstrapAction, string, string) {
	listed := func(n safety.Node) bool { return !n.Unlisted }
	data := func(n safety.Node) bool { return n.EtcdData == safety.DataPresent }
	waiting := slices.DeleteFunc(slices.Clone(nodes), func(n safety.Node) bool {
		return n.Unlisted || !runs(n) || n.EtcdData != safety.DataAbsent || !n.EtcdWaiting
	})
	ready := slices.DeleteFunc(slices.Clone(waiting), func(n safety.Node) bool { return n.Departing })

	switch {
	case apart(nodes):
		return safety.BootstrapRefuse, "", "EtcdSplit"
	case some(nodes, func(n safety.Node) bool { return listed(n) && len(n.Members) > 0 }):
		return safety.BootstrapDone, "", "Bootstrapped"
	case some(nodes, func(n safety.Node) bool { return data(n) && !listed(n) }):
		return safety.BootstrapWait, "", "WaitingForEvidence"
	case some(nodes, data):
		return safety.BootstrapWait, "", "Bootstrapping"
	case some(nodes, func(n safety.Node) bool { return (n.EverConfigured || runs(n)) && n.EtcdData != safety.DataAbsent }),
		oneMachine(nodes):
		return safety.BootstrapWait, "", "WaitingForEvidence"
	case rec.Established && !rec.EarlierLife && !rec.AllowNewEtcd:
		return safety.BootstrapRefuse, "", "EtcdLost"
	case len(ready) == 0:
		return safety.BootstrapWait, "", "WaitingForMachines"
	}

	first := ready[0].Name
	for _, n := range slices.Backward(ready) {
		if !n.ImageMissing {
			first = n.Name
		}
	}

	if rec.Machine == "" {
		return safety.BootstrapNode, first, "Bootstrapping"
	}

	return boundSpec(rec, nodes, waiting, first)
}

// boundSpec is the specification of how a recorded choice is handled.
func boundSpec(rec safety.BootstrapRecord, nodes, waiting []safety.Node, first string) (
	safety.BootstrapAction, string, string,
) {
	chosen := slices.IndexFunc(nodes, func(n safety.Node) bool { return n.Name == rec.Machine && !n.Unlisted })
	waits := some(waiting, func(n safety.Node) bool { return n.Name == rec.Machine })
	free := rec.EarlierLife || rec.Established && rec.AllowNewEtcd
	starting := some(nodes, func(n safety.Node) bool {
		return runs(n) && n.EtcdData == safety.DataAbsent && !n.EtcdWaiting
	})

	switch {
	case chosen < 0 && !free && !rec.AllowNewEtcd:
		return safety.BootstrapRefuse, "", "WaitingForEvidence"
	case chosen >= 0 && !waits && (!free || nodes[chosen].EverConfigured):
		return safety.BootstrapWait, "", "Bootstrapping"
	case chosen >= 0 && !free && (!rec.Recent || !starting):
		return safety.BootstrapNode, rec.Machine, "Bootstrapping"
	case rec.Recent:
		return safety.BootstrapWait, "", "Bootstrapping"
	case chosen >= 0 && !free:
		return safety.BootstrapNode, rec.Machine, "Bootstrapping"
	}

	return safety.BootstrapNode, first, "Bootstrapping"
}

// TestPropertiesAllLost: every node that may have had a member has to report that it has no data, and there must be at
// least one.
func TestPropertiesAllLost(t *testing.T) {
	eachEvidence(t, func(_ *rand.Rand, nodes []safety.Node) string {
		had := func(n safety.Node) bool { return n.EverConfigured || n.LastMember > 0 || runs(n) }

		want := some(nodes, had) && all(nodes, func(n safety.Node) bool { return !had(n) || emptied(n) })
		if got := safety.AllLost(nodes); got != want {
			return fmt.Sprintf("got %t, want %t", got, want)
		}

		return ""
	})
}

// TestPropertiesPermit: what may be disrupted, and on what evidence.
func TestPropertiesPermit(t *testing.T) {
	const each = 8 // what is rare in the evidence is tried with a disruption that it matters to

	eachEvidence(t, func(r *rand.Rand, nodes []safety.Node) string {
		for range each {
			d, busy := randomDisruption(r, nodes), []string{"", "", "a", "b"}[r.IntN(4)]
			got := safety.Permit(nodes, busy, d)
			action, reason := permitSpec(nodes, busy, d)

			if got.Action != action || got.Reason != reason || got.Message == "" {
				return fmt.Sprintf("%+v, busy %q: got %+v, want %s, %s", d, busy, got, action, reason)
			}

			if fault := backupSpec(got, d.Backup); fault != "" {
				return fault
			}
		}

		return ""
	})
}

// randomDisruption concerns, most of the time, a machine that there is and the member that it has or had.
func randomDisruption(r *rand.Rand, nodes []safety.Node) safety.Disruption {
	d := safety.Disruption{
		Act:     []safety.Act{safety.ActReboot, safety.ActRemove, safety.ActReplace}[r.IntN(3)],
		Machine: []string{"a", "b", "c", "x", ""}[r.IntN(5)], Member: uint64(r.IntN(4)), Gone: r.IntN(2) == 0,
		Backup: safety.Backup{
			Demanded: r.IntN(3) == 0, State: safety.BackupState(r.IntN(4)), Name: "nightly",
			Message: []string{"", "the store is full"}[r.IntN(2)],
		},
	}

	if len(nodes) > 0 && r.IntN(2) == 0 {
		n := nodes[r.IntN(len(nodes))]
		d.Machine, d.Member = n.Name, max(n.MemberID, n.LastMember)
	}

	if r.IntN(2) == 0 {
		d.Member = safety.MemberOf(nodes, d.Machine)
	}

	return d
}

// backupSpec: the message of a disruption that is blocked by a backup names the backup object, if there is one, and its
// problem, if known.
func backupSpec(v safety.Verdict, b safety.Backup) string {
	if !strings.Contains(v.Reason, "Backup") {
		return ""
	}

	what := strings.Contains(v.Message, "TalosEtcdBackup nightly")
	empty := strings.Contains(v.Message+";", ": ;")

	if what != (b.State != safety.BackupMissing) || !strings.Contains(v.Message, b.Message) || empty {
		return fmt.Sprintf("%q does not tell of %+v", v.Message, b)
	}

	return ""
}

func permitSpec(nodes []safety.Node, busy string, d safety.Disruption) (safety.Action, string) {
	i := slices.IndexFunc(nodes, func(n safety.Node) bool { return n.Name == d.Machine })

	switch {
	case d.Act != safety.ActReplace && busy != "" && busy != d.Machine:
		return safety.Wait, "DisruptionInProgress"
	case apart(nodes):
		return safety.Refuse, "EtcdSplit"
	case contradicts(nodes):
		return safety.Refuse, "EtcdUnhealthy"
	case d.Act == safety.ActReplace:
		return replaceSpec(nodes, d)
	case i < 0:
		return safety.Wait, "WaitingForEvidence"
	case votes(nodes)(nodes[i]):
		return workingSpec(nodes, d)
	}

	n, list := nodes[i], longest(nodes)

	needed := majority(list)
	if d.Act == safety.ActReboot && needed > 1 && slices.ContainsFunc(list, func(m safety.Member) bool {
		owners := candidates(nodes, m)

		return m.Learner && (some(owners, func(o safety.Node) bool { return o.Name == d.Machine }) ||
			len(owners) == 0 && n.MemberID == 0 && !emptied(n))
	}) {
		needed = (len(votingIDs(list, false))+1)/2 + 1
	}

	newest := uint64(0)

	for _, o := range nodes {
		if o.Name != d.Machine {
			newest = max(newest, o.RaftIndex)
		}
	}

	// The machine may work again when it is disrupted: then the others have to be enough at once.
	others := tally(nodes, func(o safety.Node) bool {
		return o.Name != d.Machine && votes(nodes)(o) && newest-o.RaftIndex <= 1000
	})

	switch {
	case silentNode(n):
		return safety.Wait, "NodeUnreachable"
	case runs(n) && n.EtcdData == safety.DataUnknown:
		return safety.Wait, "WaitingForEvidence"
	case len(nodes) == 1 && len(list) == 0 && d.Act == safety.ActReboot:
		return safety.Proceed, "Safe"
	case len(list) > 0 && others >= needed:
		return safety.Proceed, "Safe"
	}

	return safety.Wait, "QuorumAtRisk"
}

// workingSpec: a working member is disrupted only if all others work, too.
func workingSpec(nodes []safety.Node, d safety.Disruption) (safety.Action, string) {
	newest := uint64(0)
	for _, n := range nodes {
		newest = max(newest, n.RaftIndex)
	}

	switch {
	case !healthy(nodes) || some(nodes, func(n safety.Node) bool { return newest-n.RaftIndex > 1000 }):
		return safety.Wait, "EtcdUnhealthy"
	case d.Act == safety.ActRemove && len(votingIDs(longest(nodes), false)) == 1:
		return safety.Refuse, "LastMember"
	case !d.Backup.Demanded || d.Backup.State == safety.BackupFresh:
		return safety.Proceed, "Safe"
	case d.Backup.State == safety.BackupFailed:
		return safety.Refuse, "BackupFailed"
	}

	return safety.Wait, "WaitingForBackup"
}

// TestPropertiesOrder: faulty machines come first and the leader last; otherwise the order is kept.
func TestPropertiesOrder(t *testing.T) {
	eachEvidence(t, func(r *rand.Rand, nodes []safety.Node) string {
		machines := []string{"a", "b", "c", "d", "e", "x"}
		r.Shuffle(len(machines), func(i, j int) { machines[i], machines[j] = machines[j], machines[i] })
		machines = machines[:r.IntN(len(machines)+1)]

		for _, m := range machines {
			i := slices.IndexFunc(nodes, func(n safety.Node) bool { return n.Name == m })

			want := i < 0 || votes(nodes)(nodes[i]) && len(nodes[i].Alarms) == 0
			if got := safety.Whole(nodes, m); got != want {
				return fmt.Sprintf("the member of %s is whole: %t, not %t", m, got, want)
			}
		}

		var faulty, others, leaders []string

		for _, m := range machines {
			i := slices.IndexFunc(nodes, func(n safety.Node) bool { return n.Name == m })

			switch {
			case i >= 0 && (!votes(nodes)(nodes[i]) || len(nodes[i].Alarms) > 0):
				faulty = append(faulty, m)
			case i >= 0 && nodes[i].Leader == nodes[i].MemberID:
				leaders = append(leaders, m)
			default:
				others = append(others, m)
			}
		}

		if got, want := safety.Order(nodes, machines), slices.Concat(faulty, others, leaders); !slices.Equal(got, want) {
			return fmt.Sprintf("the order of %v is %v, not %v", machines, got, want)
		}

		return ""
	})
}

// agreed returns the list that all serving nodes have, if they agree.
func agreed(nodes []safety.Node) []safety.Member {
	list := longest(nodes)
	if !all(nodes, func(n safety.Node) bool { return len(n.Members) == 0 || alike(n.Members, list) }) {
		return nil
	}

	return list
}

// candidates returns the names of the machines that a member may belong to.
func candidates(nodes []safety.Node, m safety.Member) (out []safety.Node) {
	level := 0

	for _, n := range nodes {
		at := 0

		switch {
		case n.MemberID == m.ID:
			at = 3
		case n.MemberID == 0 && n.LastMember == m.ID:
			at = 2
		case n.MemberID == 0 && slices.Contains(m.PeerAddresses, n.Address):
			at = 1
		}

		if at > level {
			level, out = at, nil
		}

		if at == level && at > 0 {
			out = append(out, n)
		}
	}

	return out
}

func replaceSpec(nodes []safety.Node, d safety.Disruption) (safety.Action, string) {
	list := agreed(nodes)

	i := slices.IndexFunc(list, func(m safety.Member) bool { return m.ID == d.Member })
	if i < 0 {
		return safety.Wait, "WaitingForEvidence"
	}

	owners := candidates(nodes, list[i])
	if len(owners) > 0 && !some(owners, func(n safety.Node) bool { return n.Name == d.Machine }) {
		return safety.Wait, "MemberAlive"
	}

	for _, n := range owners {
		gone := d.Gone && n.Name == d.Machine

		switch {
		case n.MemberID == d.Member && len(n.Members) > 0:
			return safety.Refuse, "MemberAlive"
		case bare(n) || runs(n) && n.EtcdData == safety.DataAbsent && n.MemberID == 0:
		case !gone:
			return safety.Wait, "NodeUnreachable"
		case runs(n):
			return safety.Wait, "MemberAlive"
		}
	}

	if tally(nodes, votes(nodes)) < majority(list) {
		return safety.Refuse, "QuorumAtRisk"
	}

	return safety.Proceed, "Safe"
}

// TestPropertiesPlaces: which member belongs to which machine, which machine has none, and which member is orphaned.
func TestPropertiesPlaces(t *testing.T) {
	eachEvidence(t, func(r *rand.Rand, nodes []safety.Node) string {
		list := agreed(nodes)

		for _, machine := range []string{"a", "b", "c", "x"} {
			mine := slices.DeleteFunc(slices.Clone(list), func(m safety.Member) bool {
				return !some(candidates(nodes, m), func(n safety.Node) bool { return n.Name == machine })
			})

			want := uint64(0)
			if len(mine) > 0 {
				want = mine[0].ID
			}

			if got := safety.MemberOf(nodes, machine); got != want {
				return fmt.Sprintf("the member of %s is %d, not %d", machine, got, want)
			}

			if got, want := safety.Gone(nodes, machine), goneSpec(nodes, machine, len(mine) > 0); got != want {
				return fmt.Sprintf("%s is gone: %t, not %t", machine, got, want)
			}
		}

		return staleSpec(r, nodes, list)
	})
}

func goneSpec(nodes []safety.Node, machine string, mine bool) bool {
	list := agreed(nodes)
	if len(list) == 0 || contradicts(nodes) || mine {
		return false
	}

	i := slices.IndexFunc(nodes, func(n safety.Node) bool { return n.Name == machine })
	if i >= 0 && emptied(nodes[i]) {
		return true
	}

	if tally(nodes, votes(nodes)) < majority(list) {
		return false
	}

	for _, m := range list {
		owners := candidates(nodes, m)

		switch {
		case len(owners) == 0:
			return false
		case i < 0:
		case nodes[i].LastMember == m.ID:
			return false
		case runs(nodes[i]) && nodes[i].MemberID == 0 && nodes[i].LastMember == 0 && owners[0].MemberID != m.ID:
			return false
		}
	}

	return true
}

func staleSpec(r *rand.Rand, nodes []safety.Node, list []safety.Member) string {
	now, ages := int64(1_800_000_000), []int64{0, 59, 60, 61}
	seen, want, ripe := safety.Sightings{}, safety.Sightings{}, uint64(0)

	for id := range uint64(10) {
		if r.IntN(2) == 0 {
			seen[id] = now - ages[r.IntN(4)]
		}
	}

	for _, m := range list {
		if len(candidates(nodes, m)) > 0 {
			continue
		}

		first, known := seen[m.ID]
		if !known {
			first = now
		}

		if want[m.ID] = first; now-first >= 60 && (ripe == 0 || m.ID < ripe) {
			ripe = m.ID
		}
	}

	if some(nodes, func(n safety.Node) bool { return n.EverConfigured && !emptyOf(n) && !placedOn(nodes, n, list) }) {
		want, ripe = safety.Sightings{}, 0
	}

	got, id := safety.Stale(nodes, seen, now)
	if id != ripe || len(got) != len(want) {
		return fmt.Sprintf("stale is %d, not %d; seen are %v, not %v", id, ripe, got, want)
	}

	for id, at := range want {
		if got[id] != at {
			return fmt.Sprintf("member %d was seen at %d, not %d", id, got[id], at)
		}
	}

	return ""
}

func emptyOf(n safety.Node) bool { return bare(n) || n.EtcdData == safety.DataAbsent }

// placedOn reports whether a member of the list is the node's own, according to what it has reported.
func placedOn(nodes []safety.Node, n safety.Node, list []safety.Member) bool {
	silentlyJoined := runs(n) && len(n.Members) == 0

	return slices.ContainsFunc(list, func(m safety.Member) bool {
		return some(candidates(nodes, m), func(o safety.Node) bool { return o.Name == n.Name }) &&
			(n.MemberID == m.ID || !silentlyJoined && n.LastMember == m.ID || slices.Contains(m.PeerAddresses, n.Address))
	})
}
