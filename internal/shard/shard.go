// Package shard divides the clusters of a very large fleet among replicas. Every object that belongs to a cluster
// carries the label of the shard of that cluster. A replica caches and works on the objects of the shards that it has,
// and a Lease for each shard says who that is.
//
// A cache with a part of the objects would make all others look deleted. View therefore believes no absence that it has
// not confirmed at the API server, and refuses objects of a cluster that is not wholly in its shard. See
// docs/adr/0019-shards.md.
package shard

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strconv"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// What is beyond the rights of an operator without shards, in a role of its own: other Leases than that of the leader
// election, whose names are not known before, and each kind of object to be read and to get its label.
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=talos-operator-system,verbs=get;update;delete
// +kubebuilder:rbac:groups=talos-operator.io,resources=talosetcdbackupschedules;kubernetesupgrades;talosupgrades,verbs=get;patch

// Label says which shard an object belongs to.
const Label = v1alpha1.ShardLabel

// Most is how many shards there may be. A label with a higher number is a mistake: each number costs a Lease and the
// watches of a manager.
const Most = 64

// Number is the number of a shard, from its label. It is false for anything else.
func Number(label string) (int, bool) {
	n, err := strconv.Atoi(label)

	return n, err == nil && n >= 0 && n < Most && strconv.Itoa(n) == label
}

// Of is the shard of a new cluster, of which key is the UID, among the given number of shards. One more shard changes
// the result for few keys, and for them to the new shard.
func Of(key string, shards int) int {
	best := 0

	for n := 1; n < shards; n++ {
		if score(key, strconv.Itoa(n)) > score(key, strconv.Itoa(best)) {
			best = n
		}
	}

	return best
}

// score is the weight of rendezvous hashing.
func score(a, b string) uint64 {
	sum := sha256.Sum256([]byte(a + "\x00" + b))

	return binary.BigEndian.Uint64(sum[:])
}

// Assign distributes shards to members: each member gets as many as any other one, or one more. held is who holds a
// shard now. A member keeps what it holds as far as that is not more than its part, so nothing moves without need. What
// is left goes to the member with the highest score that has room.
//
// Every member computes the same from the same Leases. They may see different ones for a moment: a Lease decides in the
// end.
func Assign(shards []int, members []string, held map[int]string) map[int]string {
	out := make(map[int]string, len(shards))
	if len(members) == 0 {
		return out
	}

	room, extra := map[string]int{}, len(shards)%len(members)
	for _, m := range members {
		room[m] = len(shards) / len(members)
	}

	take := func(n int, member string) bool {
		switch {
		case room[member] > 0:
			room[member]--
		case room[member] == 0 && extra > 0:
			extra--
			room[member] = -1
		default:
			return false
		}

		out[n] = member

		return true
	}

	sorted := slices.Sorted(slices.Values(shards))

	for _, n := range sorted {
		if _, alive := room[held[n]]; alive {
			take(n, held[n])
		}
	}

	for _, n := range sorted {
		if _, done := out[n]; done {
			continue
		}

		for _, m := range preferred(n, members, room) {
			if take(n, m) {
				break
			}
		}
	}

	return out
}

// preferred are the members in the order in which a shard goes to them: first those that have less than their part.
func preferred(n int, members []string, room map[string]int) []string {
	key, out := strconv.Itoa(n), slices.Clone(members)

	slices.SortFunc(out, func(a, b string) int {
		if full := room[a] <= 0; full != (room[b] <= 0) {
			if full {
				return 1
			}

			return -1
		}

		return cmp.Or(cmp.Compare(score(key, b), score(key, a)), cmp.Compare(a, b))
	})

	return out
}
