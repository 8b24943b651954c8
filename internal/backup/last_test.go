package backup_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"filippo.io/age"

	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// TestSaveDatabase: the copy of a database is stored like a file of another tool: it is listed, read back without a
// checksum at its end, and never deleted.
func TestSaveDatabase(t *testing.T) {
	id := identity(t)
	whole := realSnapshot(t)
	database := whole[:len(whole)-sha256.Size]

	for name, recipients := range map[string][]string{"encrypted": {id.Recipient().String()}, "readable": nil} {
		s, err := store.NewDirectory(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}

		r := request(database, recipients...)
		r.AllowUnencrypted = recipients == nil

		o, err := backup.SaveDatabase(t.Context(), s, r)
		if err != nil {
			t.Fatal(err)
		}

		want := backup.Prefix("c1") + r.ID + ".db.zst"
		if recipients != nil {
			want += ".age"
		}

		sets, err := backup.List(t.Context(), s, backup.Prefix("c1"))
		if err != nil || len(sets) != 1 || o.Key != want {
			t.Fatalf("%s: stored as %s, %d sets, %v", name, o.Key, len(sets), err)
		}

		set := sets[0]
		if !set.Foreign || set.ID != want || set.Cluster != "c1" || !set.Time.Equal(at) || set.Snapshot.Key != want {
			t.Errorf("%s: listed as %+v", name, set)
		}

		var plain bytes.Buffer

		c, err := backup.ReadSnapshot(t.Context(), s, backup.SnapshotOf(set, nil, []age.Identity{id}), &plain)
		if err != nil || c.Checksummed || c.Encrypted != (recipients != nil) || !bytes.Equal(plain.Bytes(), database) {
			t.Errorf("%s: read back %+v, %v", name, c, err)
		}

		if err := backup.Delete(t.Context(), s, set, at); failure.Reason(err) != backup.ReasonForeign {
			t.Errorf("%s: deleting: %v", name, err)
		}
	}
}

// TestSaveDatabaseInVain: what is no whole database is not stored.
func TestSaveDatabaseInVain(t *testing.T) {
	database := madeSnapshot(64)[:64*512]
	broken := errors.New("the node is gone")

	for name, tc := range map[string]struct {
		change func(*backup.Request)
		reason string
		err    error
	}{
		"nobody to encrypt it for": {
			change: func(r *backup.Request) { r.AllowUnencrypted = false }, reason: backup.ReasonUnencrypted,
		},
		"a bad recipient": {
			change: func(r *backup.Request) { r.Recipients = []string{"age1nobody"} }, reason: backup.ReasonRecipients,
		},
		"nothing":    {change: func(r *backup.Request) { r.Snapshot = opener(nil) }, reason: backup.ReasonTruncated},
		"cut short":  {change: func(r *backup.Request) { r.Snapshot = opener(database[:1000]) }, reason: backup.ReasonTruncated},
		"no stream":  {change: func(r *backup.Request) { r.Snapshot = failing(broken) }, err: broken},
		"an end":     {change: func(r *backup.Request) { r.Snapshot = breaking(database, broken) }, err: broken},
		"a standing": {change: func(r *backup.Request) { r.Snapshot, r.Stall = standing, 50*time.Millisecond }, reason: backup.ReasonStalled},
	} {
		s, err := store.NewDirectory(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}

		r := request(database)
		r.AllowUnencrypted = true
		tc.change(&r)

		_, err = backup.SaveDatabase(t.Context(), s, r)
		if err == nil || tc.reason != "" && failure.Reason(err) != tc.reason || tc.err != nil && !errors.Is(err, tc.err) {
			t.Errorf("%s: %v", name, err)
		}

		for o, err := range s.List(t.Context(), "") {
			t.Errorf("%s: stored %s, %v", name, o.Key, err)
		}
	}
}

func failing(err error) func(context.Context) (io.ReadCloser, error) {
	return func(context.Context) (io.ReadCloser, error) { return nil, err }
}

func breaking(content []byte, err error) func(context.Context) (io.ReadCloser, error) {
	return func(context.Context) (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(bytes.NewReader(content), iotest.ErrReader(err))), nil
	}
}

// standing is a stream in which nothing moves.
func standing(ctx context.Context) (io.ReadCloser, error) {
	r, w := io.Pipe()
	context.AfterFunc(ctx, func() { _ = w.CloseWithError(ctx.Err()) })

	return r, nil
}

// TestRecipientsOf: what is encrypted for the recipients is read with the identities.
func TestRecipientsOf(t *testing.T) {
	hybrid, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}

	password, err := age.NewScryptIdentity("hush")
	if err != nil {
		t.Fatal(err)
	}

	got := backup.RecipientsOf([]age.Identity{identity(t), password, hybrid})
	if parsed, err := backup.ParseRecipients(got); err != nil || len(parsed) != 2 || strings.Contains(strings.Join(got, ""), "hush") {
		t.Errorf("%v: %v", got, err)
	}
}
