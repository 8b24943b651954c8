package retention_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/retention"
	"github.com/talos-operator/talos-operator/internal/backup/store"
)

// now is a Sunday, the last day of week 47.
var now = time.Date(2026, 11, 22, 10, 30, 0, 0, time.UTC)

// set is a complete backup of cluster c, as old as is said.
func set(age time.Duration, change ...func(*backup.Set)) backup.Set {
	at := now.Add(-age).Truncate(time.Second)
	id := backup.NewID(at, fmt.Sprint(age))
	object := func(suffix string) *store.Object {
		return &store.Object{Key: backup.Prefix("c") + id + suffix, Size: 10, Modified: at}
	}

	s := backup.Set{
		ID: id, Cluster: "c", Time: at, Modified: at,
		Snapshot: object(".snap.zst.age"), State: object(".state.json.age"), Manifest: object(".manifest.json"),
	}

	for _, c := range change {
		c(&s)
	}

	return s
}

func verified(s *backup.Set)   { s.Verified = &store.Object{Size: 5} }
func incomplete(s *backup.Set) { s.Manifest = nil }
func foreign(s *backup.Set)    { s.Foreign, s.Manifest, s.State = true, nil, nil }

func hours(n ...int) []backup.Set {
	var out []backup.Set
	for _, h := range n {
		out = append(out, set(time.Duration(h)*time.Hour))
	}

	return out
}

// ours says of each set that it is of the cluster, and verified where a report lies beside it.
func ours(sets []backup.Set) map[string]retention.Fact {
	facts := map[string]retention.Fact{}
	for _, s := range sets {
		facts[s.ID] = retention.Fact{Owner: retention.Us, Verified: s.Verified != nil}
	}

	return facts
}

// ages are those of sets, in hours, the youngest first.
func ages(sets []backup.Set) []int {
	out := []int{}
	for _, s := range sets {
		out = append(out, int(now.Sub(s.Time).Hours()))
	}

	slices.Sort(out)

	return out
}

// TestDecide: which backups stay under which counts.
func TestDecide(t *testing.T) {
	const day, week = 24, 7 * 24

	for name, tt := range map[string]struct {
		sets     []backup.Set
		policies []retention.Policy
		change   func(*retention.Evidence)
		want     []int
	}{
		"no policy":          {sets: hours(0, 1, 2), want: []int{}},
		"a policy of zeroes": {sets: hours(0, 1, 2), policies: []retention.Policy{{}}, want: []int{}},
		"the last two":       {sets: hours(3, 0, 2, 1), policies: []retention.Policy{{Last: 2}}, want: []int{2, 3}},
		"more than there are": {
			sets: hours(0, 1), policies: []retention.Policy{{Last: 10}}, want: []int{},
		},
		"hours without a backup do not count": {
			sets: hours(0, 5, 9, 30), policies: []retention.Policy{{Hourly: 3}}, want: []int{30},
		},
		"the newest of each day": {
			sets: hours(1, 2, 11, 12, 20, 3*day), policies: []retention.Policy{{Daily: 2}}, want: []int{2, 12, 20, 3 * day},
		},
		"weeks begin on Monday": {
			// Sunday and Monday of one week, and the Sunday before it.
			sets: hours(1, 6*day, 7*day), policies: []retention.Policy{{Weekly: 2}}, want: []int{6 * day},
		},
		"months": {
			sets: hours(0, 21*day, 22*day, 40*day, 60*day), policies: []retention.Policy{{Monthly: 2}},
			want: []int{21 * day, 40 * day, 60 * day},
		},
		"any count keeps": {
			sets: hours(0, 1, day, week, 5*week), policies: []retention.Policy{{Last: 1, Daily: 2, Monthly: 2}},
			want: []int{1, week},
		},
		"any schedule keeps": {
			sets: hours(0, 1, 2, day), policies: []retention.Policy{{Last: 2}, {Daily: 2}}, want: []int{2},
		},
		"a schedule that keeps all": {
			sets: hours(0, 1, 2), policies: []retention.Policy{{Last: 1}, {}}, want: []int{},
		},
		"the last verified one stays": {
			sets:     []backup.Set{set(0), set(time.Hour), set(2*time.Hour, verified), set(3*time.Hour, verified)},
			policies: []retention.Policy{{Last: 1}}, want: []int{1, 3},
		},
		"a report on another snapshot is none": {
			sets:     []backup.Set{set(0), set(time.Hour, verified), set(2*time.Hour, verified)},
			policies: []retention.Policy{{Last: 1}},
			change: func(e *retention.Evidence) {
				e.Facts[e.Sets[1].ID] = retention.Fact{Owner: retention.Us}
			},
			want: []int{1},
		},
		"another cluster's neither goes nor counts": {
			sets: hours(0, 1, 2, 3), policies: []retention.Policy{{Last: 2}},
			change: func(e *retention.Evidence) {
				e.Facts[e.Sets[0].ID] = retention.Fact{Owner: retention.Another}
				e.Facts[e.Sets[1].ID] = retention.Fact{Owner: retention.Unreadable}
			},
			want: []int{},
		},
		"another name": {
			sets:     []backup.Set{set(0), set(time.Hour, func(s *backup.Set) { s.Cluster = "d" }), set(2 * time.Hour)},
			policies: []retention.Policy{{Last: 1}}, want: []int{2},
		},
		"other tools": {
			sets:     []backup.Set{set(0), set(time.Hour, foreign), set(2 * time.Hour)},
			policies: []retention.Policy{{Last: 1}}, want: []int{2},
		},
		"locked and protected": {
			sets: hours(0, 1, 2, 3), policies: []retention.Policy{{Last: 1}},
			change: func(e *retention.Evidence) {
				e.Locked = map[string]bool{e.Sets[1].ID: true}
				e.Protected = map[string]bool{e.Sets[2].ID: true}
			},
			want: []int{3},
		},
		"one from the future takes no place": {
			sets:     []backup.Set{set(-48 * time.Hour), set(0), set(time.Hour)},
			policies: []retention.Policy{{Last: 1}}, want: []int{1},
		},
		"debris": {
			sets:     []backup.Set{set(0), set(23*time.Hour, incomplete), set(25*time.Hour, incomplete)},
			policies: []retention.Policy{{Last: 1}}, want: []int{25},
		},
		"debris where all is kept": {
			sets: []backup.Set{set(0), set(25*time.Hour, incomplete)}, want: []int{},
		},
		"debris that was written late": {
			sets: []backup.Set{set(0), set(25*time.Hour, incomplete, func(s *backup.Set) {
				s.Modified = now.Add(-time.Hour)
			})}, policies: []retention.Policy{{Last: 1}}, want: []int{},
		},
		"debris without a younger backup": {
			// Our clock jumped: for the store nothing is a day old.
			sets: []backup.Set{set(100 * time.Hour), set(101*time.Hour, incomplete)}, policies: []retention.Policy{{Last: 1}},
			want: []int{},
		},
		"debris that is being written": {
			sets: []backup.Set{set(0), set(25*time.Hour, incomplete)}, policies: []retention.Policy{{Last: 1}},
			change: func(e *retention.Evidence) { e.Protected = map[string]bool{e.Sets[1].ID: true} }, want: []int{},
		},
		"debris beside another cluster": {
			sets: []backup.Set{set(0), set(time.Hour), set(25*time.Hour, incomplete)}, policies: []retention.Policy{{Last: 1}},
			change: func(e *retention.Evidence) {
				e.Facts[e.Sets[1].ID] = retention.Fact{Owner: retention.Another}
			},
			want: []int{},
		},
	} {
		e := retention.Evidence{Now: now, Cluster: "c", Sets: tt.sets, Facts: ours(tt.sets)}
		if tt.change != nil {
			tt.change(&e)
		}

		d := retention.Decide(e, tt.policies...)
		if diff := cmp.Diff(tt.want, ages(d.Delete)); diff != "" || len(d.Ask) > 0 || d.More {
			t.Errorf("%s: asks for %v, more %v, deletes %s", name, ages(d.Ask), d.More, diff)
		}
	}
}

// world is a store with everything in it, and the truth about it.
type world struct {
	e        retention.Evidence
	truth    map[string]retention.Fact
	policies []retention.Policy
}

func drawWorld(t *rapid.T) world {
	w := world{truth: map[string]retention.Fact{}, e: retention.Evidence{
		Now: now, Cluster: "c", Protected: map[string]bool{}, Locked: map[string]bool{}, Facts: map[string]retention.Fact{},
		Batch: rapid.IntRange(1, 20).Draw(t, "batch"),
	}}
	count := rapid.IntRange(0, 4)

	for range rapid.IntRange(0, 3).Draw(t, "policies") {
		w.policies = append(w.policies, retention.Policy{
			Last: count.Draw(t, "last"), Hourly: count.Draw(t, "hourly"), Daily: count.Draw(t, "daily"),
			Weekly: count.Draw(t, "weekly"), Monthly: count.Draw(t, "monthly"),
		})
	}

	owners := []retention.Owner{retention.Us, retention.Us, retention.Us, retention.Us, retention.Another, retention.Unreadable}

	for range rapid.IntRange(0, 40).Draw(t, "sets") {
		s := set(time.Duration(rapid.IntRange(-100, 3000).Draw(t, "age")) * 30 * time.Minute)
		if _, twice := w.truth[s.ID]; twice {
			continue
		}

		fact := retention.Fact{Owner: rapid.SampledFrom(owners).Draw(t, "owner")}

		switch rapid.IntRange(0, 9).Draw(t, "kind") {
		case 0:
			foreign(&s)
		case 1:
			incomplete(&s)

			fact = retention.Fact{} // it is unknown
		case 2, 3:
			verified(&s)

			fact.Verified = fact.Owner == retention.Us && rapid.Bool().Draw(t, "covers")
		case 4:
			w.e.Protected[s.ID] = true
		case 5:
			w.e.Locked[s.ID] = true
		}

		w.truth[s.ID] = fact
		w.e.Sets = append(w.e.Sets, s)
	}

	return w
}

// settle answers all questions.
func (w *world) settle(t *rapid.T) retention.Decision {
	for range 100 {
		d := retention.Decide(w.e, w.policies...)
		if len(d.Ask) == 0 {
			return d
		}

		if len(d.Delete) > 0 {
			t.Fatal("something is deleted while there are questions")
		}

		for _, s := range d.Ask {
			if w.e.Facts[s.ID].Owner != retention.Unknown {
				t.Fatalf("asked twice about %s", s.ID)
			}

			w.e.Facts[s.ID] = w.truth[s.ID]
		}
	}

	t.Fatal("the questions do not end")

	return retention.Decision{}
}

// TestDecideProperties: whatever lies in a store, nothing is deleted that must stay, what is deleted does not depend on
// the order in which it becomes known, and a second run finds nothing more to do.
func TestDecideProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		before := w.e.Sets
		deleted := map[string]bool{}

		for {
			d := w.settle(t)
			if len(d.Delete) == 0 {
				break
			}

			for _, s := range d.Delete {
				w.check(t, s)
				deleted[s.ID] = true
			}

			w.e.Sets = slices.DeleteFunc(slices.Clone(w.e.Sets), func(s backup.Set) bool { return deleted[s.ID] })
		}

		w.checkKept(t, before, deleted)

		// Who knows everything from the start decides the same.
		all := w.e
		all.Sets, all.Facts, all.Batch = before, w.truth, 1000
		want := retention.Decide(all, w.policies...)

		if len(want.Delete) != len(deleted) {
			t.Fatalf("deleted %d, and %d with all known", len(deleted), len(want.Delete))
		}
	})
}

// check fails when a set is deleted that must stay.
func (w *world) check(t *rapid.T, s backup.Set) {
	fact := w.truth[s.ID]

	switch {
	case len(w.policies) == 0:
		t.Fatal("deleted without a policy")
	case s.Foreign:
		t.Fatal("deleted what another tool wrote")
	case s.Complete() && fact.Owner != retention.Us:
		t.Fatal("deleted what is of another cluster, or cannot be read")
	case w.e.Locked[s.ID] || w.e.Protected[s.ID]:
		t.Fatal("deleted what is locked or protected")
	case s.Time.After(now.Add(time.Hour)):
		t.Fatal("deleted what is from the future")
	case !s.Complete() && now.Sub(s.Time) < 24*time.Hour:
		t.Fatal("deleted what may still be written")
	}

	for _, p := range w.policies {
		if p.KeepsAll() {
			t.Fatal("deleted although a schedule keeps all")
		}
	}
}

// checkKept fails when the newest backups or the last verified one are gone.
func (w *world) checkKept(t *rapid.T, before []backup.Set, deleted map[string]bool) {
	var own []backup.Set

	for _, s := range before {
		if s.Complete() && !s.Foreign && w.truth[s.ID].Owner == retention.Us && !s.Time.After(now.Add(time.Hour)) {
			own = append(own, s)
		}
	}

	slices.SortFunc(own, func(a, b backup.Set) int { return strings.Compare(b.ID, a.ID) })

	for i, s := range own {
		for _, p := range w.policies {
			if deleted[s.ID] && (i < p.Last || i == 0) {
				t.Fatalf("deleted number %d of the newest", i)
			}
		}

		if w.truth[s.ID].Verified {
			if deleted[s.ID] {
				t.Fatal("deleted the last verified one")
			}

			break
		}
	}
}
