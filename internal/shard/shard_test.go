package shard_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/talos-operator/talos-operator/internal/shard"
)

// TestOf: clusters are spread evenly, and one more shard takes clusters of all others and moves none between them.
func TestOf(t *testing.T) {
	const clusters = 3000

	for shards := 1; shards <= 8; shards++ {
		count, moved := make([]int, shards), 0

		for i := range clusters {
			uid := fmt.Sprintf("00000000-0000-0000-0000-%012d", i)
			n := shard.Of(uid, shards)
			count[n]++

			if more := shard.Of(uid, shards+1); more != n {
				moved++

				if more != shards {
					t.Fatalf("%s moves from shard %d to %d, and shard %d is new", uid, n, more, shards)
				}
			}
		}

		if least, most := slices.Min(count), slices.Max(count); most-least > clusters/shards/3 {
			t.Errorf("%d shards have %v clusters", shards, count)
		}

		if moved == 0 || moved > 2*clusters/(shards+1) {
			t.Errorf("with shard %d, %d of %d clusters have another shard", shards, moved, clusters)
		}
	}
}

// TestNumber: only what a replica could have written is the number of a shard.
func TestNumber(t *testing.T) {
	for label, want := range map[string]bool{
		"0": true, "7": true, "63": true, "64": false, "-1": false, "07": false, "+1": false, "": false, "member": false,
	} {
		if n, ok := shard.Number(label); ok != want || ok && fmt.Sprint(n) != label {
			t.Errorf("%q: %d, %t", label, n, ok)
		}
	}
}

// TestAssign: whatever replicas come and go, every shard has one that runs, no one has two more than another one, and a
// shard moves only from a replica that is gone or has more than its part.
func TestAssign(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))

	for range 300 {
		shards, held := make([]int, 1+random.IntN(12)), map[int]string{}
		for i := range shards {
			shards[i] = i
		}

		for range 8 {
			var members []string

			for i := range 6 {
				if random.IntN(3) > 0 {
					members = append(members, fmt.Sprintf("replica-%d", i))
				}
			}

			random.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })

			got := shard.Assign(shards, members, held)
			check(t, shards, members, held, got)

			slices.Reverse(members)
			slices.Reverse(shards)

			for n, m := range shard.Assign(shards, members, held) {
				if got[n] != m {
					t.Fatalf("shard %d goes to %s or %s, in another order", n, got[n], m)
				}
			}

			held = got
		}
	}
}

func check(t *testing.T, shards []int, members []string, held, got map[int]string) {
	t.Helper()

	if len(members) == 0 {
		if len(got) > 0 {
			t.Fatalf("there is no replica, and %v", got)
		}

		return
	}

	before, after := map[string]int{}, map[string]int{}

	for _, n := range shards {
		if !slices.Contains(members, got[n]) {
			t.Fatalf("shard %d has %q of %v", n, got[n], members)
		}

		before[held[n]]++
		after[got[n]]++
	}

	part := len(shards) / len(members)

	for _, m := range members {
		if after[m] < part || after[m] > part+1 {
			t.Fatalf("%s has %d of %d shards among %d", m, after[m], len(shards), len(members))
		}
	}

	for _, n := range shards {
		if was := held[n]; was != got[n] && slices.Contains(members, was) && before[was] <= part {
			t.Fatalf("shard %d moves from %s, which has %d, to %s", n, was, before[was], got[n])
		}
	}
}
