// Package retention decides which backups of a cluster a store no longer needs to keep, and deletes them.
//
// The decision is pure and errs on the side of keeping: files of other writers, unreadable backups, backups from the
// future and the last verified backup are kept, whatever the counts say.
package retention

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/talos-operator/talos-operator/internal/backup"
)

const (
	// debrisAge is how long an incomplete backup is kept: it may still be in progress.
	debrisAge = 24 * time.Hour
	// skew is the clock skew up to which a backup does not count as one from the future.
	skew = 10 * time.Minute
)

// Policy says how many backups are kept: those that any of the counts keeps. The zero Policy keeps all.
type Policy struct {
	// Last is how many of the newest backups are kept.
	Last int
	// Hourly, Daily, Weekly and Monthly are the numbers of hours, days, ISO 8601 weeks and months with a backup, in UTC,
	// of each of which the newest backup is kept.
	Hourly, Daily, Weekly, Monthly int
}

// KeepsAll reports whether nothing is ever deleted.
func (p Policy) KeepsAll() bool { return p == Policy{} }

// Owner of a backup, according to its manifest.
type Owner int

// Owners.
const (
	// Unknown: the backup has not been read yet.
	Unknown Owner = iota
	// Us: the backup belongs to this cluster.
	Us
	// Another cluster of the same name wrote the backup.
	Another
	// Unreadable: the manifest cannot be read, or does not match its files.
	Unreadable
	// Forged: the signature is wrong, or made with another key than that of the cluster.
	Forged
)

// Fact is what was read about a backup.
type Fact struct {
	Owner Owner
	// Unsigned: there is no proof that the cluster wrote the backup, although there is a key to verify it with.
	Unsigned bool
	// Verified: a verification of exactly this snapshot is recorded beside it, and is signed if there is a key.
	Verified bool
	// Claimed: a verification is recorded beside it, by an unknown writer.
	Claimed bool
}

// Evidence is what is known about a store.
type Evidence struct {
	// Now is the current time of the operator's clock.
	Now time.Time
	// Cluster is the name of the cluster.
	Cluster string
	// Sets are all backups in the directory of the cluster.
	Sets []backup.Set
	// Facts of sets, by their IDs.
	Facts map[string]Fact
	// Protected are IDs of backups that are kept: running ones, and those that a user requested manually.
	Protected map[string]bool
	// Locked are IDs of backups that the store does not allow to be deleted yet.
	Locked map[string]bool
	// Batch is how many sets are read and deleted at once; 100 when zero.
	Batch int
}

// defaultBatch is the default of Evidence.Batch.
const defaultBatch = 100

// Decision about a store.
type Decision struct {
	// Ask lists sets whose facts are needed before anything can be decided. Nothing is deleted before that.
	Ask []backup.Set
	// Delete lists sets that need not be kept, the oldest first, at most a batch. More is true if there are others.
	Delete []backup.Set
	More   bool
	// Kept are complete sets of the cluster that are kept.
	Kept []backup.Set
	// Foreign, Others, Unreadable, Forged, Future and Incomplete are not deleted: files of other tools, backups of another
	// cluster with the same name, those with an unreadable manifest, those that the cluster did not sign, those from the
	// future, and those with missing files.
	Foreign, Others, Unreadable, Forged, Future, Incomplete []backup.Set
}

// Decide decides what to delete. A set is kept if any of the policies keeps it, so that several schedules can share a
// store.
func Decide(e Evidence, policies ...Policy) Decision {
	if e.Batch <= 0 {
		e.Batch = defaultBatch
	}

	d := Decision{}
	ours := d.sort(e)

	if len(policies) == 0 || slices.ContainsFunc(policies, Policy.KeepsAll) {
		d.Kept = ours

		return d
	}

	keep := map[string]bool{}
	d.Ask = e.mark(ours, keep, policies)

	var candidates []backup.Set

	for _, s := range ours {
		if keep[s.ID] || e.Protected[s.ID] || e.Locked[s.ID] {
			d.Kept = append(d.Kept, s)
		} else {
			candidates = append(candidates, s)
		}
	}

	slices.Reverse(candidates)

	if len(candidates) > e.Batch {
		candidates, d.More = candidates[:e.Batch], true
	}

	d.Ask = distinct(slices.Concat(d.Ask, unknown(e, d.Kept), unknown(e, candidates)))
	if len(d.Ask) > 0 {
		return d
	}

	d.Delete = candidates
	d.clean(e)

	return d
}

// sort separates the sets that the policies apply to from those that are not deleted. It returns the complete sets that
// belong, or may belong, to the cluster, the newest first.
func (d *Decision) sort(e Evidence) []backup.Set {
	var ours []backup.Set

	for _, s := range e.Sets {
		owner := e.Facts[s.ID].Owner

		switch {
		case s.Foreign:
			d.Foreign = append(d.Foreign, s)
		case s.Time.After(e.Now.Add(skew)):
			d.Future = append(d.Future, s)
		case s.Cluster != e.Cluster || owner == Another:
			d.Others = append(d.Others, s)
		case !s.Complete():
			d.Incomplete = append(d.Incomplete, s)
		case owner == Unreadable:
			d.Unreadable = append(d.Unreadable, s)
		case owner == Forged:
			d.Forged = append(d.Forged, s)
		default:
			ours = append(ours, s)
		}
	}

	slices.SortFunc(ours, func(a, b backup.Set) int {
		if c := b.Time.Compare(a.Time); c != 0 {
			return c
		}

		return strings.Compare(b.ID, a.ID)
	})

	return ours
}

// mark marks the sets that the policy keeps. The sets must be sorted, the newest first.
func (p Policy) mark(sets []backup.Set, keep map[string]bool) {
	for i := range min(p.Last, len(sets)) {
		keep[sets[i].ID] = true
	}

	for _, rule := range []struct {
		count int
		span  func(time.Time) string
	}{
		{p.Hourly, func(t time.Time) string { return t.Format("2006-01-02T15") }},
		{p.Daily, func(t time.Time) string { return t.Format("2006-01-02") }},
		{p.Weekly, func(t time.Time) string {
			year, week := t.ISOWeek()

			return fmt.Sprintf("%d-%d", year, week)
		}},
		{p.Monthly, func(t time.Time) string { return t.Format("2006-01") }},
	} {
		last, left := "", rule.count

		for _, s := range sets {
			if left == 0 {
				break
			}

			// Sorted by time, the sets of one period are consecutive, with its newest first.
			if span := rule.span(s.Time.UTC()); span != last {
				keep[s.ID], last = true, span
				left--
			}
		}
	}
}

// mark marks the sets that are kept, and returns those that have to be read in order to decide.
//
// Unsigned sets do not count against signed ones: otherwise, everyone who can write to the store could displace the
// good backups with newer ones. Signed sets do count against the others, so that backups of older versions expire.
func (e *Evidence) mark(sets []backup.Set, keep map[string]bool, policies []Policy) []backup.Set {
	signed := slices.DeleteFunc(slices.Clone(sets), func(s backup.Set) bool { return e.Facts[s.ID].Unsigned })

	for _, p := range policies {
		p.mark(signed, keep)
		p.mark(sets, keep)
	}

	ask, found := e.markNewest(signed, keep, func(f Fact) bool { return f.Verified })
	if found || len(ask) > 0 {
		return ask
	}

	// Until the first signed one is verified, the newest one with a claimed verification is kept.
	ask, _ = e.markNewest(sets, keep, func(f Fact) bool { return f.Claimed })

	return ask
}

// markNewest keeps the newest verified set, and returns the set that has to be read to find it.
func (e *Evidence) markNewest(
	sets []backup.Set, keep map[string]bool, verified func(Fact) bool,
) (ask []backup.Set, found bool) {
	for _, s := range sets {
		if s.Verified == nil {
			continue
		}

		switch fact := e.Facts[s.ID]; {
		case fact.Owner == Unknown:
			return []backup.Set{s}, false
		case fact.Owner == Us && verified(fact):
			keep[s.ID] = true

			return nil, true
		}
	}

	return nil, false
}

func unknown(e Evidence, sets []backup.Set) []backup.Set {
	var out []backup.Set

	for _, s := range sets {
		if e.Facts[s.ID].Owner == Unknown {
			out = append(out, s)
		}
	}

	return out
}

func distinct(sets []backup.Set) []backup.Set {
	seen := map[string]bool{}

	return slices.DeleteFunc(sets, func(s backup.Set) bool {
		known := seen[s.ID]
		seen[s.ID] = true

		return known
	})
}

// clean adds the remains of backups that never completed, or that were partially deleted. Without a manifest the owner
// of a set is unknown, so there must be no sign of another cluster in the directory. Only a complete backup of this
// cluster proves that the remains are no longer being written or needed: one that is at least a day younger by the
// clock of the store, and signed if there is a key.
func (d *Decision) clean(e Evidence) {
	if d.More || len(d.Others)+len(d.Unreadable)+len(d.Forged)+len(d.Future) > 0 {
		return
	}

	var newest time.Time

	for _, s := range d.Kept {
		if fact := e.Facts[s.ID]; fact.Owner == Us && !fact.Unsigned && s.Modified.After(newest) {
			newest = s.Modified
		}
	}

	if e.Now.Before(newest) {
		newest = e.Now
	}

	d.Incomplete = slices.DeleteFunc(d.Incomplete, func(s backup.Set) bool {
		before := newest.Add(-debrisAge)
		old := s.Time.Before(before) && s.Modified.Before(before)

		if !old || e.Protected[s.ID] || e.Locked[s.ID] || len(d.Delete) >= e.Batch {
			return false
		}

		d.Delete = append(d.Delete, s)

		return true
	})
}
