// Package retention decides which backups of a cluster a store need not keep any longer, and deletes them.
//
// The decision is pure and errs on the side of keeping: what others wrote, what cannot be read, what lies in the future
// and the last verified backup stay, whatever the counts say.
package retention

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/talos-operator/talos-operator/internal/backup"
)

const (
	// debrisAge is how long an incomplete backup is left alone: somebody may still be writing it.
	debrisAge = 24 * time.Hour
	// skew is how far ahead of our clock a backup may be before it counts as one from the future.
	skew = 10 * time.Minute
)

// Policy says how many backups are kept: those that any of the counts keeps. The zero Policy keeps all.
type Policy struct {
	// Last is how many of the newest are kept.
	Last int
	// Hourly, Daily, Weekly and Monthly are for how many hours, days, weeks of ISO 8601 and months with a backup the
	// newest of each is kept, in UTC.
	Hourly, Daily, Weekly, Monthly int
}

// KeepsAll says whether nothing is ever deleted.
func (p Policy) KeepsAll() bool { return p == Policy{} }

// Owner of a backup, as its manifest tells.
type Owner int

// Owners.
const (
	// Unknown: nobody has looked yet.
	Unknown Owner = iota
	// Us: it is of this very cluster.
	Us
	// Another cluster of the same name wrote it.
	Another
	// Unreadable: its manifest cannot be read, or does not fit its files.
	Unreadable
	// Forged: its signature is wrong, or made with another key than that of the cluster.
	Forged
)

// Fact is what was read of a backup.
type Fact struct {
	Owner Owner
	// Unsigned: nothing shows that the cluster wrote it, although there is a key to check that with.
	Unsigned bool
	// Verified: a verification is recorded beside it, of the very snapshot that it holds, and signed where there is a key.
	Verified bool
	// Claimed: a verification is recorded beside it, whoever wrote that.
	Claimed bool
}

// Evidence is what is known of a store.
type Evidence struct {
	// Now is our clock.
	Now time.Time
	// Cluster is the name of the cluster.
	Cluster string
	// Sets are all backups below the folder of the cluster.
	Sets []backup.Set
	// Facts of sets, by their IDs.
	Facts map[string]Fact
	// Protected are IDs of backups that stay: one that is being taken, one that somebody asked for by hand.
	Protected map[string]bool
	// Locked are IDs of backups that the store does not let go yet.
	Locked map[string]bool
	// Batch is how many sets are asked about, and deleted, at once; 100 when zero.
	Batch int
}

// defaultBatch is the default of Evidence.Batch.
const defaultBatch = 100

// Decision about a store.
type Decision struct {
	// Ask names sets about which the facts have to be known before anything can be decided. Nothing is deleted before.
	Ask []backup.Set
	// Delete names sets that need not be kept, the oldest first, at most a batch. More says that there are others.
	Delete []backup.Set
	More   bool
	// Kept are complete sets of the cluster that stay.
	Kept []backup.Set
	// Foreign, Others, Unreadable, Forged, Future and Incomplete are left alone: files of other tools, backups of another
	// cluster of the same name, those whose manifest cannot be read, those that the cluster did not sign, those from the
	// future, and those without all files.
	Foreign, Others, Unreadable, Forged, Future, Incomplete []backup.Set
}

// Decide says what to delete. A set stays when any of the policies keeps it, so several schedules can share a store.
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

// sort tells apart what may be looked at from what is left alone. It returns the complete sets of the cluster, and
// those that may be, the newest first.
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

// mark notes the sets that the policy keeps. They come with the newest first.
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

			// Sorted by time, the sets of one span follow each other, its newest first.
			if span := rule.span(s.Time.UTC()); span != last {
				keep[s.ID], last = true, span
				left--
			}
		}
	}
}

// mark notes the sets that stay, and returns those that have to be looked at to find that out.
//
// What is not signed does not count against what is: anyone who can write to the store could push the good backups out
// with newer ones. The signed ones do count against the others, so that backups of older versions go in their time.
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

	// Before the first one that is signed was verified, the newest that is said to be verified stays.
	ask, _ = e.markNewest(sets, keep, func(f Fact) bool { return f.Claimed })

	return ask
}

// markNewest keeps the newest set that is verified, and returns the one that has to be looked at to find it.
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

// clean adds what is left of backups that never were complete, or that were half deleted. Without a manifest nobody
// can tell whose it is, so nothing that tells of another cluster may be in the folder. Only a whole backup of ours
// shows that nobody writes or needs it any more: one that is a day younger by the clock of the store, and signed
// where there is a key.
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
