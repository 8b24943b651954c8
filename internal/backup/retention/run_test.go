package retention_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/retention"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/backup/verify"
	"github.com/talos-operator/talos-operator/internal/failure"
)

var cluster = backup.Cluster{Name: "c", Namespace: "ns", ID: "the ID", CAFingerprint: "aa:bb"}

func directory(t *testing.T) store.Store {
	t.Helper()

	s, err := store.NewDirectory(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	return s
}

// memory is a store without a disk, for many objects.
type memory struct {
	store.Store

	objects map[string][]byte
}

func inMemory() store.Store { return &memory{objects: map[string][]byte{}} }

func (m *memory) Put(_ context.Context, key string, write func(io.Writer) error) (store.Object, error) {
	b := &bytes.Buffer{}
	if err := write(b); err != nil {
		return store.Object{}, err
	}

	m.objects[key] = b.Bytes()

	return store.Object{Key: key, Size: int64(b.Len()), Modified: now}, nil
}

func (m *memory) Replace(_ context.Context, key string, content []byte) error {
	m.objects[key] = content

	return nil
}

func (m *memory) Stat(_ context.Context, key string) (store.Object, error) {
	content, ok := m.objects[key]
	if !ok {
		return store.Object{}, failure.Terminal(store.ReasonObjectNotFound, "gone", store.ErrNotFound)
	}

	return store.Object{Key: key, Size: int64(len(content)), Modified: now}, nil
}

func (m *memory) Get(ctx context.Context, key string) (io.ReadCloser, store.Object, error) {
	o, err := m.Stat(ctx, key)

	return io.NopCloser(bytes.NewReader(m.objects[key])), o, err
}

func (m *memory) List(ctx context.Context, prefix string) iter.Seq2[store.Object, error] {
	return func(yield func(store.Object, error) bool) {
		for key := range m.objects {
			if o, err := m.Stat(ctx, key); strings.HasPrefix(key, prefix) && !yield(o, err) {
				return
			}
		}
	}
}

func (m *memory) Delete(_ context.Context, key string) error {
	delete(m.objects, key)

	return nil
}

func put(t *testing.T, s store.Store, key, content string) {
	t.Helper()

	if _, err := s.Put(t.Context(), key, func(w io.Writer) error {
		_, err := io.WriteString(w, content)

		return err
	}); err != nil {
		t.Fatal(err)
	}
}

const sum = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// keep stores a backup as the operator does.
func keep(t *testing.T, s store.Store, age time.Duration, of backup.Cluster, verified bool) string {
	t.Helper()

	at := now.Add(-age).Truncate(time.Second)
	id := backup.NewID(at, fmt.Sprint(age))
	folder := backup.Prefix("c")
	of.ID = backup.Fingerprint(of.ID)
	file := func(name string) backup.File {
		return backup.File{Name: id + name, Size: 4, SHA256: sum, PlainSize: 9, PlainSHA256: sum, Compression: "none"}
	}

	m := backup.Manifest{
		Format: "talos-operator.io/etcd-backup", Version: 1, ID: id, Cluster: of, Snapshot: file(".snap"),
		State: file(".state.json"), StartedAt: at, FinishedAt: at,
	}
	m.Snapshot.DatabaseSHA256 = sum

	content, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}

	put(t, s, folder+m.Snapshot.Name, "snap")
	put(t, s, folder+m.State.Name, "stat")
	put(t, s, folder+id+".manifest.json", string(content))

	if verified {
		set := backup.Set{ID: id, Cluster: "c"}
		report := &verify.Report{
			Format: "talos-operator.io/etcd-backup-verification", Version: 1, Backup: id, Level: verify.Checksum,
			Snapshot:  verify.SnapshotFile{Size: 4, SHA256: sum},
			StartedAt: at, FinishedAt: at,
		}

		if err := verify.Record(t.Context(), s, set, report); err != nil {
			t.Fatal(err)
		}
	}

	return id
}

func files(t *testing.T, s store.Store) []string {
	t.Helper()

	var out []string

	for o, err := range s.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}

		out = append(out, path.Base(o.Key))
	}

	return out
}

func options(p ...retention.Policy) retention.Options {
	return retention.Options{Cluster: cluster, Policies: p, Now: now}
}

// TestRun: backups are deleted whole, and what is not ours stays.
func TestRun(t *testing.T) {
	s := directory(t)
	other := cluster
	other.ID = "another ID"

	newest := keep(t, s, 0, cluster, false)
	foreignOne := keep(t, s, time.Minute, other, true)
	checked := keep(t, s, time.Hour, cluster, true)
	old := keep(t, s, 2*time.Hour, cluster, true)
	older := keep(t, s, 3*time.Hour, cluster, false)

	put(t, s, backup.Prefix("c")+"etcd.snapshot", "by hand")
	put(t, s, backup.Prefix("c")+"note.txt", "a note")
	put(t, s, backup.Prefix("c")+backup.NewID(now.Add(-48*time.Hour), "x")+".snap.zst", "debris")

	r, err := retention.Run(t.Context(), s, options(retention.Policy{Last: 1}))
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff([]string{older, old}, r.Deleted); diff != "" {
		t.Error(diff)
	}

	if r.Count != 2 || !r.Oldest.Before(r.Newest) || r.Others != 1 || r.Foreign != 1 || r.Incomplete != 1 || r.More {
		t.Errorf("%+v", r)
	}

	var left []string

	for _, id := range []string{newest, foreignOne, checked} {
		left = append(left, id+".manifest.json", id+".snap", id+".state.json")
	}

	for _, name := range append(left, checked+".verified.json", "etcd.snapshot", "note.txt") {
		if !strings.Contains(strings.Join(files(t, s), " "), name) {
			t.Errorf("%s is gone", name)
		}
	}

	if again, err := retention.Run(t.Context(), s, options(retention.Policy{Last: 1})); err != nil || len(again.Deleted) > 0 {
		t.Errorf("a second run: %+v, %v", again, err)
	}
}

// TestRunUnreadable: a manifest that is damaged or newer than we are keeps its backup.
func TestRunUnreadable(t *testing.T) {
	s := directory(t)
	keep(t, s, 0, cluster, false)

	for i, content := range []string{"{", `{"format":"talos-operator.io/etcd-backup","version":2}`, ""} {
		id := keep(t, s, time.Duration(i+1)*time.Hour, cluster, false)
		key := backup.Prefix("c") + id + ".manifest.json"

		if err := s.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}

		put(t, s, key, content)
	}

	r, err := retention.Run(t.Context(), s, options(retention.Policy{Last: 1}))
	if err != nil || len(r.Deleted) > 0 || r.Unreadable != 3 || r.Count != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestRunNoID: without an ID to compare, nothing counts as ours.
func TestRunNoID(t *testing.T) {
	s := directory(t)
	keep(t, s, 0, cluster, false)
	keep(t, s, time.Hour, cluster, false)

	o := options(retention.Policy{Last: 1})
	o.Cluster.ID = ""

	if r, err := retention.Run(t.Context(), s, o); err != nil || len(r.Deleted) > 0 || r.Others != 2 {
		t.Errorf("%+v, %v", r, err)
	}
}

// failing is a store that fails after so many deletions.
type failing struct {
	store.Store

	left   int
	locked string
}

var errGone = failure.Transient(store.ReasonUnreachable, "the store does not respond", errors.New("cut"))

func (f *failing) Delete(ctx context.Context, key string) error {
	if f.left == 0 {
		return errGone
	}

	f.left--

	return f.Store.Delete(ctx, key)
}

func (f *failing) Stat(ctx context.Context, key string) (store.Object, error) {
	o, err := f.Store.Stat(ctx, key)
	if f.locked != "" && strings.Contains(key, f.locked) {
		o.LockedUntil = now.Add(time.Hour)
	}

	return o, err
}

// TestRunInterrupted: however far a deletion came, no backup is left that looks whole and is not, and a later run ends
// the work.
func TestRunInterrupted(t *testing.T) {
	for after := range 7 {
		s := inMemory()
		keep(t, s, 0, cluster, true)
		keep(t, s, 48*time.Hour, cluster, false)
		keep(t, s, 49*time.Hour, cluster, true)

		_, err := retention.Run(t.Context(), &failing{Store: s, left: after}, options(retention.Policy{Last: 1}))
		if failure.Reason(err) != store.ReasonUnreachable {
			t.Fatalf("cut after %d: %v", after, err)
		}

		sets, err := backup.List(t.Context(), s, "")
		if err != nil {
			t.Fatal(err)
		}

		for _, set := range sets {
			if _, err := backup.ReadManifest(t.Context(), s, set); set.Complete() && err != nil {
				t.Errorf("cut after %d: %s looks whole: %v", after, set.ID, err)
			}
		}

		// What was written just now counts as young until the store has something that is a day younger.
		o := options(retention.Policy{Last: 1})
		if _, err := retention.Run(t.Context(), s, o); err != nil {
			t.Fatal(err)
		}

		complete := 0

		for _, name := range files(t, s) {
			if strings.HasSuffix(name, ".manifest.json") {
				complete++
			}
		}

		if complete != 1 {
			t.Errorf("cut after %d: %d manifests are left", after, complete)
		}
	}
}

// TestRunLocked: a lock keeps its backup, and the others go all the same.
func TestRunLocked(t *testing.T) {
	s := directory(t)
	keep(t, s, 0, cluster, false)
	free := keep(t, s, time.Hour, cluster, false)
	locked := keep(t, s, 2*time.Hour, cluster, false)

	r, err := retention.Run(t.Context(), &failing{Store: s, left: -1, locked: locked}, options(retention.Policy{Last: 1}))
	if err != nil || r.Locked != 1 || r.Count != 2 || len(r.Deleted) != 1 || r.Deleted[0] != free {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestRunMany: thousands of old objects go in runs of a limited size, and what stays is what should.
func TestRunMany(t *testing.T) {
	s := inMemory()

	const sets = 3400

	for i := range sets {
		keep(t, s, time.Duration(i)*6*time.Hour, cluster, i == 700)
	}

	if n := len(files(t, s)); n < 10000 {
		t.Fatalf("%d objects", n)
	}

	o := options(retention.Policy{Last: 3, Daily: 7, Weekly: 4, Monthly: 6})
	o.Limit = 2000

	first, err := retention.Run(t.Context(), s, o)
	if err != nil || !first.More || len(first.Deleted) < 2000 || len(first.Deleted) > 2100 {
		t.Fatalf("%d deleted, more %v, %v", len(first.Deleted), first.More, err)
	}

	second, err := retention.Run(t.Context(), s, o)
	if err != nil || second.More {
		t.Fatalf("%d deleted, more %v, %v", len(second.Deleted), second.More, err)
	}

	// 3 of today's, 6 days, 3 weeks, 5 months, and the verified one; some are one and the same.
	if second.Count != sets-len(first.Deleted)-len(second.Deleted) || second.Count < 12 || second.Count > 18 {
		t.Errorf("%d are left", second.Count)
	}

	if n := len(files(t, s)); n != 3*second.Count+1 {
		t.Errorf("%d files of %d backups are left", n, second.Count)
	}
}
