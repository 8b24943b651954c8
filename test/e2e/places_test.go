package e2e

import (
	"slices"
	"sync"
	"testing"
)

const modelledWorld, realWorld = true, false

// places are how many worlds there are at once. Idle API servers and etcd members of real worlds use a processor too: the
// more of them run side by side, the longer each takes, and the more all of them cost.
var places = map[bool]*queue{modelledWorld: {free: 4}, realWorld: {free: 3}}

// longest are the tests that take longest. They are begun before others that wait, so that none of them runs alone in the
// end.
var longest = []string{
	"TestScale", "TestRemediation", "TestStaleMember", "TestTotalLoss", "TestLife", "TestDiscoveryAndKubeSpan", "TestConfigRollout",
	"TestMoveBetweenManagementPlanes", "TestTriedChange", "TestFullCluster", "TestFirewall", "TestAliveIsNotReplaced", "TestNodesComeBackOtherwise", "TestImport",
	"TestUpgradeOfEverything", "TestUpgradeThatDoesNotBoot", "TestUpgradeOfTalos", "TestOperatorIsUpdated", "TestReplaceByHand",
	"TestDeadlocksOfMembers", "TestLostWhileShrinking", "TestShards", "TestShardsBackUp", "TestRestore", "TestLostEphemeral", "TestLeaderIsKilled",
	"TestBadConfigStops", "TestBadStaticPodStops", "TestSparesOfCluster",
}

// rank orders the tests: the smaller it is, the earlier a test gets a place.
func rank(name string) int {
	if i := slices.Index(longest, name); i >= 0 {
		return i
	}

	return len(longest)
}

// queue has a number of free places, and those who wait for one.
type queue struct {
	mu      sync.Mutex
	free    int
	waiting []waiter
}

type waiter struct {
	rank int
	turn chan struct{}
}

// take waits for a place.
func (q *queue) take(rank int) {
	q.mu.Lock()

	if q.free > 0 {
		q.free--
		q.mu.Unlock()

		return
	}

	w := waiter{rank, make(chan struct{})}
	q.waiting = append(q.waiting, w)
	slices.SortStableFunc(q.waiting, func(a, b waiter) int { return a.rank - b.rank })
	q.mu.Unlock()

	<-w.turn
}

// leave passes a place on.
func (q *queue) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()

	if len(q.waiting) == 0 {
		q.free++

		return
	}

	close(q.waiting[0].turn)
	q.waiting = q.waiting[1:]
}

// takePlace waits for a place for a world of the test.
func takePlace(t *testing.T, modelled bool) {
	t.Helper()

	q := places[modelled]
	q.take(rank(t.Name()))
	t.Cleanup(q.leave)
}

// TestPlaces: a place that is left is that of the longest test that waits, and none is lost.
func TestPlaces(t *testing.T) {
	q := &queue{free: 1}
	q.take(9)

	order := make(chan int)

	for _, rank := range []int{5, 2, 7} {
		go func() {
			q.take(rank)
			order <- rank
		}()
	}

	for {
		q.mu.Lock()
		n := len(q.waiting)
		q.mu.Unlock()

		if n == 3 {
			break
		}
	}

	for _, want := range []int{2, 5, 7} {
		q.leave()

		if got := <-order; got != want {
			t.Errorf("%d before %d", got, want)
		}
	}

	q.leave()

	if q.free != 1 {
		t.Errorf("%d places are left", q.free)
	}
}
