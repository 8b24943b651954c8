package retention

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/signature"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/backup/verify"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// defaultLimit is the maximum number of sets that one run deletes.
const defaultLimit = 1000

// Options of a run.
type Options struct {
	// Cluster whose backups are handled. Its ID is that of Talos, not the fingerprint.
	Cluster backup.Cluster
	// Keys of the cluster, which sign its backups. Without any, all backups count as signed.
	Keys []signature.Public
	// Policies that may keep a backup: those of all schedules that share the store. Without any, everything is kept.
	Policies []Policy
	// Protected are IDs of backups that are kept.
	Protected map[string]bool
	// Before is called before each deletion, and its error ends the run; it may be nil.
	Before func(context.Context) error
	// Limit is the maximum number of backups to delete; 1000 when zero.
	Limit int
	// Now is the current time of the operator's clock.
	Now time.Time
}

// Result is the result of a run.
type Result struct {
	// Count of the remaining complete backups, and Size of all their objects.
	Count int
	Size  int64
	// Oldest and Newest of these backups; zero if there is none.
	Oldest, Newest time.Time
	// Deleted are IDs of deleted sets, including incomplete ones.
	Deleted []string
	// Locked, Foreign, Others, Unreadable, Forged, Future and Incomplete count the sets that were not deleted, and
	// Unsigned the complete ones that the cluster did not sign.
	Locked, Foreign, Others, Unreadable, Forged, Future, Incomplete, Unsigned int
	// More is true if the limit was reached and there is more to delete.
	More bool
}

// Run lists the backups of a cluster in a store and deletes those that need not be kept. On an error, the result
// includes what was done until then, and another run continues from there.
func Run(ctx context.Context, s store.Store, o Options) (*Result, error) {
	sets, err := backup.List(ctx, s, backup.Prefix(o.Cluster.Name))
	if err != nil {
		return &Result{}, err
	}

	if o.Limit <= 0 {
		o.Limit = defaultLimit
	}

	r := &run{Options: o, store: s, evidence: Evidence{
		Now: o.Now, Cluster: o.Cluster.Name, Sets: sets, Facts: map[string]Fact{}, Protected: o.Protected,
		Locked: map[string]bool{},
	}}

	d, err := r.do(ctx)
	r.count(d)

	return &r.result, err
}

type run struct {
	Options

	store    store.Store
	evidence Evidence
	result   Result
}

func (r *run) do(ctx context.Context) (Decision, error) {
	for {
		d := Decide(r.evidence, r.Policies...)

		for _, set := range d.Ask {
			fact, err := r.look(ctx, set)
			if err != nil {
				return d, err
			}

			r.evidence.Facts[set.ID] = fact
		}

		switch {
		case len(d.Ask) > 0:
			continue
		case len(d.Delete) == 0:
			return d, nil
		case len(r.result.Deleted) >= r.Limit:
			r.result.More = true

			return d, nil
		}

		if err := r.delete(ctx, d.Delete); err != nil {
			return d, err
		}
	}
}

// look reads which cluster a backup belongs to, and whether it is verified.
func (r *run) look(ctx context.Context, set backup.Set) (Fact, error) {
	m, err := backup.ReadManifest(ctx, r.store, set)

	switch reason := failure.Reason(err); {
	case reason == backup.ReasonManifest || reason == backup.ReasonIncomplete || reason == backup.ReasonCorrupt,
		errors.Is(err, store.ErrNotFound):
		return Fact{Owner: Unreadable}, nil
	case err != nil:
		return Fact{}, err
	case !r.owns(m.Cluster):
		return Fact{Owner: Another}, nil
	}

	origin, err := backup.Authenticate(m, r.Keys...)
	if err != nil {
		return Fact{Owner: Forged}, nil // that is what was found
	}

	fact := Fact{Owner: Us, Unsigned: len(r.Keys) > 0 && origin != backup.Authentic}
	if set.Verified == nil {
		return fact, nil
	}

	report, err := verify.Recorded(ctx, r.store, set)
	if err != nil && failure.Reason(err) != verify.ReasonReport {
		return Fact{}, err
	}

	fact.Verified, fact.Claimed = report.Covers(m, r.Keys...), report.Covers(m)

	return fact, nil
}

// owns compares the properties that do not change during the life of a cluster. The namespace is not one of them,
// because a cluster may be moved.
func (r *run) owns(c backup.Cluster) bool {
	if c.ID != "" || r.Cluster.ID != "" {
		return r.Cluster.ID != "" && c.ID == backup.Fingerprint(r.Cluster.ID)
	}

	return c.CAFingerprint != "" && c.CAFingerprint == r.Cluster.CAFingerprint
}

// delete removes sets; locked ones are left for a later run.
func (r *run) delete(ctx context.Context, sets []backup.Set) error {
	gone := map[string]bool{}

	defer func() {
		r.evidence.Sets = slices.DeleteFunc(r.evidence.Sets, func(s backup.Set) bool { return gone[s.ID] })
	}()

	for _, set := range sets {
		if r.Before != nil {
			if err := r.Before(ctx); err != nil {
				return err
			}
		}

		err := backup.Delete(ctx, r.store, set, r.Now)

		switch {
		case failure.Reason(err) == backup.ReasonLocked:
			r.evidence.Locked[set.ID] = true
		case err != nil:
			return err
		default:
			gone[set.ID] = true
			r.result.Deleted = append(r.result.Deleted, set.ID)
		}
	}

	return nil
}

// count summarizes the remaining sets.
func (r *run) count(d Decision) {
	out := &r.result
	out.Locked, out.Foreign, out.Others = len(r.evidence.Locked), len(d.Foreign), len(d.Others)
	out.Unreadable, out.Future, out.Incomplete = len(d.Unreadable), len(d.Future), len(d.Incomplete)
	out.Forged = len(d.Forged)

	for _, set := range r.evidence.Sets {
		if set.Foreign || set.Cluster != r.Cluster.Name || !set.Complete() {
			continue
		}

		fact := r.evidence.Facts[set.ID]
		if fact.Owner == Another || fact.Owner == Unreadable || fact.Owner == Forged {
			continue
		}

		if fact.Unsigned {
			out.Unsigned++
		}

		out.Count++
		out.Size += set.Size()

		if out.Oldest.IsZero() || set.Time.Before(out.Oldest) {
			out.Oldest = set.Time
		}

		if set.Time.After(out.Newest) {
			out.Newest = set.Time
		}
	}
}
