package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/signature"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// Covers reports whether the report is about exactly the snapshot that a manifest names: only then does the backup
// count as verified. If keys of the cluster are known, the report must be signed with one of them and refer to exactly
// that manifest, because everyone who can write to the store can write a report. The report may be nil.
func (r *Report) Covers(m *backup.Manifest, keys ...signature.Public) bool {
	if r == nil || m == nil || r.Backup != m.ID || r.Snapshot.SHA256 != m.Snapshot.SHA256 {
		return false
	}

	if len(keys) == 0 {
		return true
	}

	digest, err := m.Digest()

	return err == nil && r.ManifestSHA256 == digest && slices.ContainsFunc(keys, r.signedBy)
}

// Record stores a report beside its backup. A report of a lower level does not replace one of a higher level about the
// same snapshot. Nothing is stored beside the files of other tools; that is ReasonForeign.
func Record(ctx context.Context, s store.Store, set backup.Set, r *Report) error {
	key, err := set.VerifiedKey()
	if err != nil {
		return err
	}

	if r.Backup != set.ID {
		return failure.Terminal(ReasonInvalid, fmt.Sprintf("the report is not of the backup %s", set.ID), nil)
	}

	if err := r.validate(); err != nil {
		return fmt.Errorf("checking the report on %s: %w", set.ID, err)
	}

	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the report on %s: %w", set.ID, err)
	}

	old, err := Recorded(ctx, s, set)

	switch {
	case err != nil && failure.Reason(err) != ReasonReport:
		return err
	case old != nil && old.Snapshot.SHA256 == r.Snapshot.SHA256 && old.Level.rank() > r.Level.rank() && r.yieldsTo(old):
		return nil
	}

	// A crash in between leaves either report: without any, the backup would not count as verified.
	if err := s.Replace(ctx, key, append(content, '\n')); err != nil {
		return fmt.Errorf("storing the report on %s: %w", set.ID, err)
	}

	return nil
}

// Renew verifies a backup and stores the report beside it, or removes the stored report if the backup is damaged.
// Credentials without permission to replace objects are good practice: with them, the stored report is kept unchanged.
func Renew(ctx context.Context, s store.Store, set backup.Set, o Options) (*Report, error) {
	report, err := Run(ctx, s, set, o)

	switch {
	case IsDamage(err):
		// The backup may have been verified before and was damaged since. Damage is permanent and a failure of the store is
		// not, so the error of the store takes precedence and the verification is retried.
		if werr := Withdraw(ctx, s, set); werr != nil && failure.ClassOf(werr) != failure.ClassAuth {
			return nil, werr
		}

		return nil, err
	case err != nil:
		return nil, err
	}

	if err := Record(ctx, s, set, report); err != nil && failure.ClassOf(err) != failure.ClassAuth {
		return nil, err
	}

	return report, nil
}

// Recorded reads the report that is stored beside a backup. It returns nil if there is none.
func Recorded(ctx context.Context, s store.Store, set backup.Set) (*Report, error) {
	if set.Foreign {
		return nil, nil // there is none, and that is no error
	}

	content, err := backup.ReadVerified(ctx, s, set)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil // there is none, and that is no error
	}

	if failure.Reason(err) == backup.ReasonCorrupt {
		return nil, badReport(err)
	}

	if err != nil {
		return nil, err
	}

	r, err := ParseReport(content)
	if err != nil {
		return nil, err
	}

	if r.Backup != set.ID {
		return nil, badReport(errors.New("it belongs to another backup"))
	}

	return r, nil
}

// Withdraw removes the report that is stored beside a backup, because the backup was found damaged afterwards.
func Withdraw(ctx context.Context, s store.Store, set backup.Set) error {
	key, err := set.VerifiedKey()
	if err != nil {
		return err
	}

	if err := s.Delete(ctx, key); err != nil {
		return fmt.Errorf("removing the report on %s: %w", set.ID, err)
	}

	return nil
}
