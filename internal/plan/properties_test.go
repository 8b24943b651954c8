package plan_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/internal/plan"
)

// What follows says in other words than the kernel's what each decision has to be, for whatever evidence: neither may
// it be bolder than that, nor more timid.

func all(nodes []plan.Node, holds func(plan.Node) bool) bool {
	return !slices.ContainsFunc(nodes, func(n plan.Node) bool { return !holds(n) })
}

func some(nodes []plan.Node, holds func(plan.Node) bool) bool {
	return slices.ContainsFunc(nodes, holds)
}

func tally(nodes []plan.Node, holds func(plan.Node) bool) (count int) {
	for _, n := range nodes {
		if holds(n) {
			count++
		}
	}

	return count
}

func silentNode(n plan.Node) bool { return n.Answer == plan.AnswerUnknown }
func bare(n plan.Node) bool       { return n.Answer == plan.AnswerMaintenance }
func runs(n plan.Node) bool       { return n.Answer == plan.AnswerMember }

// emptied: the node has said that it holds no etcd data.
func emptied(n plan.Node) bool { return bare(n) || runs(n) && n.EtcdData == plan.DataAbsent }

func has(members []plan.Member, id uint64) bool {
	return slices.ContainsFunc(members, func(m plan.Member) bool { return m.ID == id })
}

// voting are the IDs that vote; all of a list with false.
func votingIDs(members []plan.Member, learners bool) (out []uint64) {
	for _, m := range members {
		if learners || !m.Learner {
			out = append(out, m.ID)
		}
	}

	slices.Sort(out)

	return out
}

// alike: two lists have the same members, who vote alike.
func alike(a, b []plan.Member) bool {
	return len(a) == len(b) && slices.Equal(votingIDs(a, true), votingIDs(b, true)) &&
		slices.Equal(votingIDs(a, false), votingIDs(b, false))
}

// longest is the first of the longest lists.
func longest(nodes []plan.Node) (out []plan.Member) {
	for _, n := range nodes {
		if len(n.Members) > len(out) {
			out = n.Members
		}
	}

	return out
}

// pairs tells whether some pair of nodes is so, in either order.
func pairs(nodes []plan.Node, holds func(a, b plan.Node) bool) bool {
	for i, a := range nodes {
		for j, b := range nodes {
			if i != j && holds(a, b) {
				return true
			}
		}
	}

	return false
}

// apart: the nodes run two etcds.
func apart(nodes []plan.Node) bool {
	return pairs(nodes, func(a, b plan.Node) bool {
		return a.MemberID != 0 && b.MemberID != 0 && len(a.Members) > 0 && len(b.Members) > 0 &&
			!has(a.Members, b.MemberID) && !has(b.Members, a.MemberID) &&
			!slices.ContainsFunc(a.Members, func(m plan.Member) bool { return has(b.Members, m.ID) })
	})
}

func oneMachine(nodes []plan.Node) bool {
	return pairs(nodes, func(a, b plan.Node) bool {
		return a.EtcdSince == b.EtcdSince && a.EtcdSince > 0 && a.Address != b.Address
	})
}

// contradicts: two machines pass for one.
func contradicts(nodes []plan.Node) bool {
	return oneMachine(nodes) || pairs(nodes, func(a, b plan.Node) bool {
		return a.Name == b.Name || a.Address == b.Address && a.Address != "" || a.MemberID == b.MemberID && a.MemberID != 0
	})
}

// votes: the node's member votes, by its own word, and sees what the longest list says.
func votes(nodes []plan.Node) func(plan.Node) bool {
	list := longest(nodes)

	return func(n plan.Node) bool {
		return runs(n) && len(n.Members) > 0 && alike(n.Members, list) && n.MemberID != 0 && has(list, n.MemberID) &&
			!n.Learner && n.Leader != 0 && !n.NoLeader
	}
}

// majority of the voting members of a list.
func majority(list []plan.Member) int { return len(votingIDs(list, false))/2 + 1 }

func healthy(nodes []plan.Node) bool {
	votes, list := votes(nodes), longest(nodes)

	return !apart(nodes) && len(list) > 0 && tally(nodes, votes) >= majority(list) &&
		all(nodes, func(n plan.Node) bool { return votes(n) && len(n.Alarms) == 0 }) &&
		!slices.ContainsFunc(list, func(m plan.Member) bool {
			return !some(nodes, func(n plan.Node) bool { return n.MemberID == m.ID })
		})
}

func TestPropertiesAssessEtcd(t *testing.T) {
	eachEvidence(t, func(_ *rand.Rand, nodes []plan.Node) string {
		got, list := plan.AssessEtcd(nodes), longest(nodes)

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

		// Who answers first does not change the condition.
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

// TestPropertiesBootstrap: who is bootstrapped, and on what evidence.
func TestPropertiesBootstrap(t *testing.T) {
	eachEvidence(t, func(r *rand.Rand, nodes []plan.Node) string {
		rec := plan.BootstrapRecord{
			Machine: []string{"", "", "a", "b", "x"}[r.IntN(5)], Recent: r.IntN(3) == 0, Established: r.IntN(3) == 0,
			EarlierLife: r.IntN(3) == 0, AllowNewEtcd: r.IntN(3) == 0,
		}

		for i := range nodes {
			nodes[i].Departing = r.IntN(4) == 0
		}

		got := plan.Bootstrap(rec, nodes)
		action, machine, reason := bootstrapSpec(rec, nodes)

		if got.Action != action || got.Machine != machine || got.Reason != reason || got.Message == "" {
			return fmt.Sprintf("%+v: got %+v, want %d %q %s", rec, got, action, machine, reason)
		}

		return adviceSpec(got, nodes)
	})
}

// adviceSpec: where evidence is missing that a person can declare void, the message says for which machines, and names
// no other one.
func adviceSpec(d plan.BootstrapDecision, nodes []plan.Node) string {
	var data, hidden []string

	for _, n := range nodes {
		switch {
		case n.Unlisted && n.EtcdData == plan.DataPresent:
			data = append(data, n.Name)
		case !n.EverConfigured && !runs(n) || n.EtcdData != plan.DataUnknown:
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

	unknown := d.Reason == "WaitingForEvidence" && d.Action == plan.BootstrapWait &&
		!strings.Contains(d.Message, "contradict")
	if advised != (unknown && len(want) > 0) || advised && said != strings.Join(want, ",") {
		return fmt.Sprintf("%q does not advise to forget %v alone", d.Message, want)
	}

	return ""
}

func bootstrapSpec(rec plan.BootstrapRecord, nodes []plan.Node) (plan.BootstrapAction, string, string) {
	listed := func(n plan.Node) bool { return !n.Unlisted }
	data := func(n plan.Node) bool { return n.EtcdData == plan.DataPresent }
	waiting := slices.DeleteFunc(slices.Clone(nodes), func(n plan.Node) bool {
		return n.Unlisted || !runs(n) || n.EtcdData != plan.DataAbsent || !n.EtcdWaiting
	})
	ready := slices.DeleteFunc(slices.Clone(waiting), func(n plan.Node) bool { return n.Departing })

	switch {
	case apart(nodes):
		return plan.BootstrapRefuse, "", "EtcdSplit"
	case some(nodes, func(n plan.Node) bool { return listed(n) && len(n.Members) > 0 }):
		return plan.BootstrapDone, "", "Bootstrapped"
	case some(nodes, func(n plan.Node) bool { return data(n) && !listed(n) }):
		return plan.BootstrapWait, "", "WaitingForEvidence"
	case some(nodes, data):
		return plan.BootstrapWait, "", "Bootstrapping"
	case some(nodes, func(n plan.Node) bool { return (n.EverConfigured || runs(n)) && n.EtcdData != plan.DataAbsent }),
		oneMachine(nodes):
		return plan.BootstrapWait, "", "WaitingForEvidence"
	case rec.Established && !rec.EarlierLife && !rec.AllowNewEtcd:
		return plan.BootstrapRefuse, "", "EtcdLost"
	case len(ready) == 0:
		return plan.BootstrapWait, "", "WaitingForMachines"
	}

	first := ready[0].Name
	for _, n := range slices.Backward(ready) {
		if !n.ImageMissing {
			first = n.Name
		}
	}

	if rec.Machine == "" {
		return plan.BootstrapNode, first, "Bootstrapping"
	}

	return boundSpec(rec, nodes, waiting, first)
}

// boundSpec is what becomes of a choice that was recorded.
func boundSpec(rec plan.BootstrapRecord, nodes, waiting []plan.Node, first string) (
	plan.BootstrapAction, string, string,
) {
	chosen := slices.IndexFunc(nodes, func(n plan.Node) bool { return n.Name == rec.Machine && !n.Unlisted })
	waits := some(waiting, func(n plan.Node) bool { return n.Name == rec.Machine })
	free := rec.EarlierLife || rec.Established && rec.AllowNewEtcd
	starting := some(nodes, func(n plan.Node) bool {
		return runs(n) && n.EtcdData == plan.DataAbsent && !n.EtcdWaiting
	})

	switch {
	case chosen < 0 && !free && !rec.AllowNewEtcd:
		return plan.BootstrapRefuse, "", "WaitingForEvidence"
	case chosen >= 0 && !waits && (!free || nodes[chosen].EverConfigured):
		return plan.BootstrapWait, "", "Bootstrapping"
	case chosen >= 0 && !free && (!rec.Recent || !starting):
		return plan.BootstrapNode, rec.Machine, "Bootstrapping"
	case rec.Recent:
		return plan.BootstrapWait, "", "Bootstrapping"
	case chosen >= 0 && !free:
		return plan.BootstrapNode, rec.Machine, "Bootstrapping"
	}

	return plan.BootstrapNode, first, "Bootstrapping"
}

// TestPropertiesAllLost: it takes the word of every node that may have had a member, and of one at least.
func TestPropertiesAllLost(t *testing.T) {
	eachEvidence(t, func(_ *rand.Rand, nodes []plan.Node) string {
		had := func(n plan.Node) bool { return n.EverConfigured || n.LastMember > 0 || runs(n) }

		want := some(nodes, had) && all(nodes, func(n plan.Node) bool { return !had(n) || emptied(n) })
		if got := plan.AllLost(nodes); got != want {
			return fmt.Sprintf("got %t, want %t", got, want)
		}

		return ""
	})
}

// TestPropertiesPermit: what may be disrupted, and on what evidence.
func TestPropertiesPermit(t *testing.T) {
	eachEvidence(t, func(r *rand.Rand, nodes []plan.Node) string {
		d := plan.Disruption{
			Act:     []plan.Act{plan.ActReboot, plan.ActRemove, plan.ActReplace}[r.IntN(3)],
			Machine: []string{"a", "b", "c", "x", ""}[r.IntN(5)], Member: uint64(r.IntN(4)), Gone: r.IntN(2) == 0,
			Backup: plan.Backup{
				Demanded: r.IntN(3) == 0, State: plan.BackupState(r.IntN(4)), Name: "nightly",
				Message: []string{"", "the store is full"}[r.IntN(2)],
			},
		}

		// Most of what is asked is about a machine that there is, and about the member that it has or had.
		if len(nodes) > 0 && r.IntN(2) == 0 {
			n := nodes[r.IntN(len(nodes))]
			d.Machine, d.Member = n.Name, max(n.MemberID, n.LastMember)
		}

		if r.IntN(2) == 0 {
			d.Member = plan.MemberOf(nodes, d.Machine)
		}

		busy := []string{"", "", "a", "b"}[r.IntN(4)]
		got := plan.Permit(nodes, busy, d)
		action, reason := permitSpec(nodes, busy, d)

		if got.Action != action || got.Reason != reason || got.Message == "" {
			return fmt.Sprintf("%+v, busy %q: got %+v, want %s, %s", d, busy, got, action, reason)
		}

		return backupSpec(got, d.Backup)
	})
}

// backupSpec: what is held for a backup names its object, if there is one, and what is wrong with it, if that is known.
func backupSpec(v plan.Verdict, b plan.Backup) string {
	if !strings.Contains(v.Reason, "Backup") {
		return ""
	}

	what := strings.Contains(v.Message, "TalosEtcdBackup nightly")
	empty := strings.Contains(v.Message+";", ": ;")

	if what != (b.State != plan.BackupMissing) || !strings.Contains(v.Message, b.Message) || empty {
		return fmt.Sprintf("%q does not tell of %+v", v.Message, b)
	}

	return ""
}

func permitSpec(nodes []plan.Node, busy string, d plan.Disruption) (plan.Action, string) {
	i := slices.IndexFunc(nodes, func(n plan.Node) bool { return n.Name == d.Machine })

	switch {
	case d.Act != plan.ActReplace && busy != "" && busy != d.Machine:
		return plan.Wait, "DisruptionInProgress"
	case apart(nodes):
		return plan.Refuse, "EtcdSplit"
	case contradicts(nodes):
		return plan.Refuse, "EtcdUnhealthy"
	case d.Act == plan.ActReplace:
		return replaceSpec(nodes, d)
	case i < 0:
		return plan.Wait, "WaitingForEvidence"
	case votes(nodes)(nodes[i]):
		return workingSpec(nodes, d)
	}

	n, list := nodes[i], longest(nodes)
	others := tally(nodes, func(o plan.Node) bool { return o.Name != d.Machine && votes(nodes)(o) })

	switch {
	case silentNode(n):
		return plan.Wait, "NodeUnreachable"
	case runs(n) && n.EtcdData == plan.DataUnknown:
		return plan.Wait, "WaitingForEvidence"
	case len(nodes) == 1 && len(list) == 0 && d.Act == plan.ActReboot:
		return plan.Proceed, "Safe"
	case len(list) > 0 && others >= majority(list):
		return plan.Proceed, "Safe"
	}

	return plan.Wait, "QuorumAtRisk"
}

// workingSpec: a working member goes only where all others work, too.
func workingSpec(nodes []plan.Node, d plan.Disruption) (plan.Action, string) {
	newest := uint64(0)
	for _, n := range nodes {
		newest = max(newest, n.RaftIndex)
	}

	switch {
	case !healthy(nodes) || some(nodes, func(n plan.Node) bool { return newest-n.RaftIndex > 1000 }):
		return plan.Wait, "EtcdUnhealthy"
	case d.Act == plan.ActRemove && len(votingIDs(longest(nodes), false)) == 1:
		return plan.Refuse, "LastMember"
	case !d.Backup.Demanded || d.Backup.State == plan.BackupFresh:
		return plan.Proceed, "Safe"
	case d.Backup.State == plan.BackupFailed:
		return plan.Refuse, "BackupFailed"
	}

	return plan.Wait, "WaitingForBackup"
}

// TestPropertiesOrder: who is faulty goes first and the leader last, and otherwise the order stays.
func TestPropertiesOrder(t *testing.T) {
	eachEvidence(t, func(r *rand.Rand, nodes []plan.Node) string {
		machines := []string{"a", "b", "c", "d", "e", "x"}
		r.Shuffle(len(machines), func(i, j int) { machines[i], machines[j] = machines[j], machines[i] })
		machines = machines[:r.IntN(len(machines)+1)]

		for _, m := range machines {
			i := slices.IndexFunc(nodes, func(n plan.Node) bool { return n.Name == m })

			want := i < 0 || votes(nodes)(nodes[i]) && len(nodes[i].Alarms) == 0
			if got := plan.Whole(nodes, m); got != want {
				return fmt.Sprintf("the member of %s is whole: %t, not %t", m, got, want)
			}
		}

		var faulty, others, leaders []string

		for _, m := range machines {
			i := slices.IndexFunc(nodes, func(n plan.Node) bool { return n.Name == m })

			switch {
			case i >= 0 && (!votes(nodes)(nodes[i]) || len(nodes[i].Alarms) > 0):
				faulty = append(faulty, m)
			case i >= 0 && nodes[i].Leader == nodes[i].MemberID:
				leaders = append(leaders, m)
			default:
				others = append(others, m)
			}
		}

		if got, want := plan.Order(nodes, machines), slices.Concat(faulty, others, leaders); !slices.Equal(got, want) {
			return fmt.Sprintf("the order of %v is %v, not %v", machines, got, want)
		}

		return ""
	})
}

// agreed is the list of all that serve, if they have one.
func agreed(nodes []plan.Node) []plan.Member {
	list := longest(nodes)
	if !all(nodes, func(n plan.Node) bool { return len(n.Members) == 0 || alike(n.Members, list) }) {
		return nil
	}

	return list
}

// candidates are the names of those that a member may belong to.
func candidates(nodes []plan.Node, m plan.Member) (out []plan.Node) {
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

func replaceSpec(nodes []plan.Node, d plan.Disruption) (plan.Action, string) {
	list := agreed(nodes)

	i := slices.IndexFunc(list, func(m plan.Member) bool { return m.ID == d.Member })
	if i < 0 {
		return plan.Wait, "WaitingForEvidence"
	}

	owners := candidates(nodes, list[i])
	if len(owners) > 0 && !some(owners, func(n plan.Node) bool { return n.Name == d.Machine }) {
		return plan.Wait, "MemberAlive"
	}

	for _, n := range owners {
		gone := d.Gone && n.Name == d.Machine

		switch {
		case n.MemberID == d.Member && len(n.Members) > 0:
			return plan.Refuse, "MemberAlive"
		case bare(n) || runs(n) && n.EtcdData == plan.DataAbsent && n.MemberID == 0:
		case !gone:
			return plan.Wait, "NodeUnreachable"
		case runs(n):
			return plan.Wait, "MemberAlive"
		}
	}

	if tally(nodes, votes(nodes)) < majority(list) {
		return plan.Refuse, "QuorumAtRisk"
	}

	return plan.Proceed, "Safe"
}

// TestPropertiesPlaces: which member belongs to which machine, who has none, and which member belongs to nobody.
func TestPropertiesPlaces(t *testing.T) {
	eachEvidence(t, func(r *rand.Rand, nodes []plan.Node) string {
		list := agreed(nodes)

		for _, machine := range []string{"a", "b", "c", "x"} {
			mine := slices.DeleteFunc(slices.Clone(list), func(m plan.Member) bool {
				return !some(candidates(nodes, m), func(n plan.Node) bool { return n.Name == machine })
			})

			want := uint64(0)
			if len(mine) > 0 {
				want = mine[0].ID
			}

			if got := plan.MemberOf(nodes, machine); got != want {
				return fmt.Sprintf("the member of %s is %d, not %d", machine, got, want)
			}

			if got, want := plan.Gone(nodes, machine), goneSpec(nodes, machine, len(mine) > 0); got != want {
				return fmt.Sprintf("%s is gone: %t, not %t", machine, got, want)
			}
		}

		return staleSpec(r, nodes, list)
	})
}

func goneSpec(nodes []plan.Node, machine string, mine bool) bool {
	list := agreed(nodes)
	if len(list) == 0 || contradicts(nodes) || mine {
		return false
	}

	i := slices.IndexFunc(nodes, func(n plan.Node) bool { return n.Name == machine })
	if i >= 0 && emptied(nodes[i]) {
		return true
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

func staleSpec(r *rand.Rand, nodes []plan.Node, list []plan.Member) string {
	now, ages := int64(1_800_000_000), []int64{0, 59, 60, 61}
	seen, want, ripe := plan.Sightings{}, plan.Sightings{}, uint64(0)

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

	if some(nodes, func(n plan.Node) bool { return n.EverConfigured && !emptyOf(n) && !placedOn(nodes, n, list) }) {
		want, ripe = plan.Sightings{}, 0
	}

	got, id := plan.Stale(nodes, seen, now)
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

func emptyOf(n plan.Node) bool { return bare(n) || n.EtcdData == plan.DataAbsent }

// placedOn: a member of the list is the node's own, by what it has told.
func placedOn(nodes []plan.Node, n plan.Node, list []plan.Member) bool {
	silentlyJoined := runs(n) && len(n.Members) == 0

	return slices.ContainsFunc(list, func(m plan.Member) bool {
		return some(candidates(nodes, m), func(o plan.Node) bool { return o.Name == n.Name }) &&
			(n.MemberID == m.ID || !silentlyJoined && n.LastMember == m.ID || slices.Contains(m.PeerAddresses, n.Address))
	})
}
