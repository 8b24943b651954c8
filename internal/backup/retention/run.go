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

// defaultLimit is how many sets one run deletes at most.
const defaultLimit = 1000

// Options of a run.
type Options struct {
	// Cluster whose backups are looked at. Its ID is that of Talos, not the fingerprint.
	Cluster backup.Cluster
	// Keys of the cluster, which sign its backups. Without any, all count as signed.
	Keys []signature.Public
	// Policies that may keep a backup: those of all schedules that share the store. Without one, all is kept.
	Policies []Policy
	// Protected are IDs of backups that stay.
	Protected map[string]bool
	// Before is asked before each deletion, and ends the run with its error; nil for no question.
	Before func(context.Context) error
	// Limit is how many backups are deleted at most; 1000 when zero.
	Limit int
	// Now is our clock.
	Now time.Time
}

// Result is what a run found and did.
type Result struct {
	// Count of the complete backups that are left, and Size of all their objects.
	Count int
	Size  int64
	// Oldest and Newest of them; zero without one.
	Oldest, Newest time.Time
	// Deleted are IDs of what was deleted, debris too.
	Deleted []string
	// Locked, Foreign, Others, Unreadable, Forged, Future and Incomplete count what was left alone, and Unsigned those of
	// the complete ones that the cluster did not sign.
	Locked, Foreign, Others, Unreadable, Forged, Future, Incomplete, Unsigned int
	// More is left to delete: the limit was reached.
	More bool
}

// Run looks what lies in a store for a cluster and deletes what need not be kept. On an error, what was done until then
// is in the result all the same; another run goes on from there.
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

// look reads whose a backup is, and whether it is verified.
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
		return Fact{Owner: Forged}, nil //nolint:nilerr // that is what was found
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

// owns compares what stays the same for the life of a cluster. The namespace does not: a cluster may move.
func (r *run) owns(c backup.Cluster) bool {
	if c.ID != "" || r.Cluster.ID != "" {
		return r.Cluster.ID != "" && c.ID == backup.Fingerprint(r.Cluster.ID)
	}

	return c.CAFingerprint != "" && c.CAFingerprint == r.Cluster.CAFingerprint
}

// delete removes sets; what is locked is left for a later run.
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

// count sums up what is left.
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
