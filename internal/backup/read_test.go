package backup_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/lab/s3"
	"github.com/talos-operator/talos-operator/test/loopback"
)

// taken is a backup in a directory.
func taken(t *testing.T, id *age.X25519Identity) (store.Store, backup.Set, *backup.Manifest) {
	t.Helper()

	s := directory(t)
	if _, err := backup.Take(t.Context(), s, request(madeSnapshot(5000), id.Recipient().String())); err != nil {
		t.Fatal(err)
	}

	return s, only(t, s), manifest(t, s)
}

func only(t *testing.T, s store.Store) backup.Set {
	t.Helper()

	sets, err := backup.List(t.Context(), s, "")
	if err != nil || len(sets) != 1 {
		t.Fatalf("listed %v, %v", sets, err)
	}

	return sets[0]
}

func manifest(t *testing.T, s store.Store) *backup.Manifest {
	t.Helper()

	m, err := backup.ReadManifest(t.Context(), s, only(t, s))
	if err != nil {
		t.Fatal(err)
	}

	return m
}

func TestDamage(t *testing.T) {
	t.Parallel()

	id := identity(t)

	for name, tc := range map[string]struct {
		damage func(t *testing.T, s store.Store, set backup.Set)
		reason string
	}{
		"flipped bit": {func(t *testing.T, s store.Store, set backup.Set) {
			content := get(t, s, set.Snapshot.Key)
			content[len(content)/2] ^= 1
			overwrite(t, s, set.Snapshot.Key, content)
		}, backup.ReasonCorrupt},
		"flipped bit in the header": {func(t *testing.T, s store.Store, set backup.Set) {
			content := get(t, s, set.Snapshot.Key)
			content[0] ^= 1
			overwrite(t, s, set.Snapshot.Key, content)
		}, backup.ReasonCorrupt},
		"truncated": {func(t *testing.T, s store.Store, set backup.Set) {
			overwrite(t, s, set.Snapshot.Key, get(t, s, set.Snapshot.Key)[:1000])
		}, backup.ReasonCorrupt},
		"empty": {func(t *testing.T, s store.Store, set backup.Set) {
			overwrite(t, s, set.Snapshot.Key, nil)
		}, backup.ReasonCorrupt},
		"something behind": {func(t *testing.T, s store.Store, set backup.Set) {
			overwrite(t, s, set.Snapshot.Key, append(get(t, s, set.Snapshot.Key), 'x'))
		}, backup.ReasonCorrupt},
		"another snapshot": {func(t *testing.T, s store.Store, set backup.Set) {
			overwrite(t, s, set.Snapshot.Key, madeSnapshot(5))
		}, backup.ReasonCorrupt},
		"gone": {func(t *testing.T, s store.Store, set backup.Set) {
			if err := s.Delete(t.Context(), set.Snapshot.Key); err != nil {
				t.Fatal(err)
			}
		}, store.ReasonObjectNotFound},
	} {
		s, set, m := taken(t, id)
		tc.damage(t, s, set)

		for _, ids := range [][]age.Identity{{id}, nil} {
			_, err := backup.ReadSnapshot(t.Context(), s, backup.SnapshotOf(set, m, ids), nil)
			if failure.Reason(err) != tc.reason {
				t.Errorf("%s, %d identities: %v", name, len(ids), err)
			}
		}

		if now := only2(t, s); now.Complete() {
			if _, err := backup.ReadManifest(t.Context(), s, now); !strings.HasPrefix(name, "flipped") && failure.Reason(err) != backup.ReasonCorrupt {
				t.Errorf("%s: the manifest says nothing of it: %v", name, err)
			}
		}
	}

	s, set, m := taken(t, id)
	if _, err := backup.ReadSnapshot(t.Context(), s, backup.SnapshotOf(set, m, []age.Identity{identity(t)}), nil); failure.Reason(err) != backup.ReasonIdentity {
		t.Errorf("wrong identity: %v", err)
	}

	if _, err := backup.ReadState(t.Context(), s, backup.StateOf(set, m, nil)); failure.Reason(err) != backup.ReasonIdentity {
		t.Errorf("no identity: %v", err)
	}
}

func only2(t *testing.T, s store.Store) backup.Set {
	t.Helper()

	sets, err := backup.List(t.Context(), s, "")
	if err != nil || len(sets) != 1 {
		t.Fatalf("listed %v, %v", sets, err)
	}

	return sets[0]
}

// TestBomb: a small file must not become an endless one.
func TestBomb(t *testing.T) {
	t.Parallel()

	s := directory(t)

	var b bytes.Buffer

	z, err := zstd.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := z.Write(make([]byte, 64<<20)); err != nil {
		t.Fatal(err)
	}

	z.Close()
	overwrite(t, s, "x.snap.zst", b.Bytes())

	_, err = backup.ReadSnapshot(t.Context(), s, backup.Read{Key: "x.snap.zst", Limit: 1 << 20}, nil)
	if failure.Reason(err) != backup.ReasonCorrupt {
		t.Errorf("reading a bomb of %d bytes: %v", b.Len(), err)
	}
}

// TestForeign reads what talosctl and siderolabs/talos-backup write.
func TestForeign(t *testing.T) {
	t.Parallel()

	id := identity(t)
	snapshot := realSnapshot(t)
	s := directory(t)

	var compressed, encrypted, both bytes.Buffer

	z, err := zstd.NewWriter(&compressed)
	if err != nil {
		t.Fatal(err)
	}

	z.Write(snapshot)
	z.Close()

	for _, layer := range []struct {
		from []byte
		to   *bytes.Buffer
	}{{snapshot, &encrypted}, {compressed.Bytes(), &both}} {
		w, err := age.Encrypt(layer.to, id.Recipient())
		if err != nil {
			t.Fatal(err)
		}

		w.Write(layer.from)
		w.Close()
	}

	for key, content := range map[string][]byte{
		"db.snapshot":                  snapshot,
		"t/talos-20261120T010203.snap": snapshot,
		"t/a.snap.zst":                 compressed.Bytes(),
		"t/b.snap.age":                 encrypted.Bytes(),
		"t/c.snap.zst.age":             both.Bytes(),
		"t/copied.db":                  snapshot[:len(snapshot)-32],
		"t/readme.txt":                 []byte("no backup"),
	} {
		overwrite(t, s, key, content)
	}

	sets, err := backup.List(t.Context(), s, "")
	if err != nil || len(sets) != 6 {
		t.Fatalf("listed %d, %v", len(sets), err)
	}

	for _, set := range sets {
		if !set.Foreign || !set.Complete() {
			t.Errorf("%+v", set)
		}

		var b bytes.Buffer

		c, err := backup.ReadSnapshot(t.Context(), s, backup.SnapshotOf(set, nil, []age.Identity{id}), &b)
		if err != nil {
			t.Errorf("%s: %v", set.ID, err)

			continue
		}

		copied := set.ID == "t/copied.db"
		if c.Checksummed == copied || !bytes.HasPrefix(snapshot, b.Bytes()) || b.Len() < len(snapshot)-32 {
			t.Errorf("%s: %+v", set.ID, c)
		}

		if err := backup.Delete(t.Context(), s, set, at); failure.Reason(err) != backup.ReasonForeign {
			t.Errorf("deleting %s: %v", set.ID, err)
		}
	}

	overwrite(t, s, "t/cut.snap", snapshot[:len(snapshot)/2+5])

	if _, err := backup.ReadSnapshot(t.Context(), s, backup.Read{Key: "t/cut.snap"}, nil); failure.Reason(err) != backup.ReasonCorrupt {
		t.Errorf("a cut snapshot: %v", err)
	}
}

func TestForeignTimes(t *testing.T) {
	t.Parallel()

	// Keys of talos-backup hold colons, which our own never do.
	sets, err := backup.List(t.Context(), &listed{keys: []string{
		"prefix/talos-default-2026-11-20T03:04:05+02:00.snap.zst.age", "prefix/x-2026-11-20T01:04:06Z.snap.age", "other.snap",
	}}, "")
	if err != nil {
		t.Fatal(err)
	}

	var got []string
	for _, set := range sets {
		got = append(got, set.Cluster+" "+set.Time.Format(time.RFC3339))
	}

	want := []string{" 0001-01-01T00:00:00Z", "talos-default 2026-11-20T01:04:05Z", "x 2026-11-20T01:04:06Z"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// listed is a store that can only be listed.
type listed struct {
	store.Store

	keys []string
}

func (l *listed) List(context.Context, string) iter.Seq2[store.Object, error] {
	return func(yield func(store.Object, error) bool) {
		for _, key := range l.keys {
			if !yield(store.Object{Key: key}, nil) {
				return
			}
		}
	}
}

// TestIncompleteIsNotOffered: without any one of its files a backup is not complete, and its manifest is not read.
func TestIncompleteIsNotOffered(t *testing.T) {
	t.Parallel()

	for _, missing := range []func(backup.Set) string{
		func(s backup.Set) string { return s.Manifest.Key },
		func(s backup.Set) string { return s.Snapshot.Key },
		func(s backup.Set) string { return s.State.Key },
	} {
		s, set, _ := taken(t, identity(t))
		if err := s.Delete(t.Context(), missing(set)); err != nil {
			t.Fatal(err)
		}

		left := only(t, s)
		if left.Complete() {
			t.Errorf("without %s it is complete", missing(set))
		}

		if _, err := backup.ReadManifest(t.Context(), s, left); failure.Reason(err) != backup.ReasonIncomplete {
			t.Errorf("without %s: %v", missing(set), err)
		}

		if err := backup.Delete(t.Context(), s, left, at); err != nil {
			t.Error(err)
		}

		if sets, err := backup.List(t.Context(), s, ""); err != nil || len(sets) != 0 {
			t.Errorf("after deletion: %v, %v", sets, err)
		}
	}
}

// TestDeletionBeginsWithTheManifest: what an interrupted deletion leaves is not offered.
func TestDeletionBeginsWithTheManifest(t *testing.T) {
	t.Parallel()

	s, set, _ := taken(t, identity(t))

	for kept := 2; kept >= 0; kept-- {
		failing := &failingDeletes{Store: s, after: 1}
		err := backup.Delete(t.Context(), failing, set, at)

		if (kept == 0) != (err == nil) {
			t.Errorf("deletion: %v", err)
		}

		sets, err := backup.List(t.Context(), s, "")
		if err != nil || kept > 0 && (len(sets) != 1 || sets[0].Complete()) || kept == 0 && len(sets) > 0 {
			t.Errorf("%d files left: %+v, %v", kept, sets, err)
		}

		if kept > 0 {
			set = sets[0]
		}
	}
}

type failingDeletes struct {
	store.Store

	after int
}

func (f *failingDeletes) Delete(ctx context.Context, key string) error {
	if f.after == 0 {
		return fmt.Errorf("killed before %s", key)
	}

	f.after--

	return f.Store.Delete(ctx, key)
}

// TestStoreFaultsWhileReading: a store that breaks is not a damaged backup.
func TestStoreFaultsWhileReading(t *testing.T) {
	t.Parallel()

	s, server := bucketStore(t)

	proxy, err := s3.NewProxy(server, loopback.Address(t))
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(proxy.Close)

	id := identity(t)
	r := request(madeSnapshot(60_000), id.Recipient().String())
	r.Compression = backup.CompressionNone

	m, err := backup.Take(t.Context(), s, r)
	if err != nil {
		t.Fatal(err)
	}

	set := only(t, s)
	faulty := s3Store(t, server, proxy.Endpoint())

	for reason, fault := range map[string]s3.Fault{
		store.ReasonUnreachable: {CutAfter: 5_000_000},
		store.ReasonUnavailable: {Status: http.StatusServiceUnavailable, Code: "SlowDown"},
		store.ReasonForbidden:   {Status: http.StatusForbidden, Code: "AccessDenied"},
	} {
		proxy.Set(func(*http.Request) s3.Fault { return fault })

		_, err := backup.ReadSnapshot(t.Context(), faulty, backup.SnapshotOf(set, m, []age.Identity{id}), io.Discard)
		if failure.Reason(err) != reason || failure.ClassOf(err) == failure.ClassTerminal {
			t.Errorf("want %s: %v", reason, err)
		}
	}
}

// TestStoreFaultsWhileTaking: wherever the store fails, there is either a whole backup or nothing.
func TestStoreFaultsWhileTaking(t *testing.T) {
	t.Parallel()

	_, server := bucketStore(t)

	proxy, err := s3.NewProxy(server, loopback.Address(t))
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(proxy.Close)

	faulty := s3Store(t, server, proxy.Endpoint())

	for _, suffix := range []string{".snap.age", ".state.json.age", ".manifest.json"} {
		proxy.Set(func(r *http.Request) s3.Fault {
			if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, suffix) {
				return s3.Fault{Status: http.StatusForbidden, Code: "AccessDenied"}
			}

			return s3.Fault{}
		})

		r := request(madeSnapshot(60_000), identity(t).Recipient().String())
		r.Compression = backup.CompressionNone

		if _, err := backup.Take(t.Context(), faulty, r); failure.Reason(err) != store.ReasonForbidden {
			t.Errorf("%s refused: %v", suffix, err)
		}

		if left := inBucket(t, server); len(left) > 0 {
			t.Errorf("%s refused: left %v", suffix, left)
		}
	}
}
