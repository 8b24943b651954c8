package backup_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	corev1 "k8s.io/api/core/v1"

	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// TestTakeAndRead takes a backup of a real etcd to a real S3 server, and reads it with the plain libraries.
func TestTakeAndRead(t *testing.T) {
	t.Parallel()

	snapshot := realSnapshot(t)
	s, server := bucketStore(t)
	first, second := identity(t), identity(t)

	var last backup.Progress

	r := request(snapshot, first.Recipient().String(), "# the other one\n"+second.Recipient().String())
	r.Progress = func(p backup.Progress) { last = p }

	if err := backup.Preflight(t.Context(), s, &r, 1<<20); err != nil {
		t.Fatal(err)
	}

	m, err := backup.Take(t.Context(), s, r)
	if err != nil {
		t.Fatal(err)
	}

	const base = "talos-operator-etcd-backups/c1/20261121T065007Z-"

	id := strings.TrimPrefix(base, "talos-operator-etcd-backups/c1/") + m.ID[len(m.ID)-8:]
	want := []string{
		"talos-operator-etcd-backups/c1/" + id + ".manifest.json",
		"talos-operator-etcd-backups/c1/" + id + ".snap.zst.age",
		"talos-operator-etcd-backups/c1/" + id + ".state.json.age",
	}

	if diff := cmp.Diff(want, inBucket(t, server)); diff != "" {
		t.Fatalf("in the bucket (-want +got):\n%s", diff)
	}

	if last.Read != int64(len(snapshot)) || last.Stored == 0 {
		t.Errorf("progress ended at %+v of %d", last, len(snapshot))
	}

	// Either identity opens it, with the plain libraries.
	for _, id := range []age.Identity{first, second} {
		plain, err := age.Decrypt(bytes.NewReader(get(t, s, want[1])), id)
		if err != nil {
			t.Fatal(err)
		}

		z, err := zstd.NewReader(plain)
		if err != nil {
			t.Fatal(err)
		}

		if got, err := io.ReadAll(z); err != nil || !bytes.Equal(got, snapshot) {
			t.Errorf("read %d bytes of %d, %v", len(got), len(snapshot), err)
		}

		z.Close()
	}

	checkState(t, get(t, s, want[2]), second)

	for _, key := range want {
		if content := get(t, s, key); bytes.Contains(content, []byte("private key")) || bytes.Contains(content, []byte("cluster-id")) {
			t.Errorf("%s holds a secret", key)
		}
	}

	// What we read back ourselves.
	sets, err := backup.List(t.Context(), s, backup.Prefix("c1"))
	if err != nil || len(sets) != 1 || !sets[0].Complete() || !sets[0].Time.Equal(at) || sets[0].Cluster != "c1" {
		t.Fatalf("listed %+v, %v", sets, err)
	}

	again, err := backup.ReadManifest(t.Context(), s, sets[0])
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(m, again); diff != "" {
		t.Errorf("manifest (-taken +read):\n%s", diff)
	}

	var b bytes.Buffer

	c, err := backup.ReadSnapshot(t.Context(), s, backup.SnapshotOf(sets[0], again, []age.Identity{first}), &b)
	if err != nil || !c.Checksummed || !c.Encrypted || !c.Compressed || !bytes.Equal(b.Bytes(), snapshot) {
		t.Errorf("read %+v, %v", c, err)
	}

	state, err := backup.ReadState(t.Context(), s, backup.StateOf(sets[0], again, []age.Identity{second}))
	if err != nil || string(state.Data["secretBundle"]) != "the private key" || state.Name != "c1-state" {
		t.Errorf("state %v, %v", state, err)
	}
}

// checkState proves that kubectl could apply the state after `age -d`.
func checkState(t *testing.T, stored []byte, id age.Identity) {
	t.Helper()

	plain, err := age.Decrypt(bytes.NewReader(stored), id)
	if err != nil {
		t.Fatal(err)
	}

	var state corev1.Secret
	if err := json.NewDecoder(plain).Decode(&state); err != nil {
		t.Fatal(err)
	}

	if state.Kind != "Secret" || state.APIVersion != "v1" || state.Namespace != "ns" || state.UID != "" || state.ResourceVersion != "" ||
		string(state.Data["secretBundle"]) != "the private key" {
		t.Errorf("state %+v", state)
	}
}

func TestTakeInEveryForm(t *testing.T) {
	t.Parallel()

	id := identity(t)

	for _, tc := range []struct {
		compression string
		encrypted   bool
		suffix      string
	}{
		{backup.CompressionZstd, true, ".snap.zst.age"},
		{backup.CompressionZstd, false, ".snap.zst"},
		{backup.CompressionNone, true, ".snap.age"},
		{backup.CompressionNone, false, ".snap"},
	} {
		s := directory(t)
		snapshot := madeSnapshot(3000)
		r := request(snapshot)
		r.Compression, r.AllowUnencrypted = tc.compression, true

		if tc.encrypted {
			r.Recipients = []string{id.Recipient().String()}
		}

		m, err := backup.Take(t.Context(), s, r)
		if err != nil {
			t.Fatal(err)
		}

		if !strings.HasSuffix(m.Snapshot.Name, tc.suffix) {
			t.Errorf("%s is not a %s", m.Snapshot.Name, tc.suffix)
		}

		sets, err := backup.List(t.Context(), s, "")
		if err != nil || len(sets) != 1 {
			t.Fatal(sets, err)
		}

		var b bytes.Buffer

		c, err := backup.ReadSnapshot(t.Context(), s, backup.SnapshotOf(sets[0], m, []age.Identity{id}), &b)
		if err != nil || !bytes.Equal(b.Bytes(), snapshot) || c.Size != m.Snapshot.Size {
			t.Errorf("%s: %+v, %v", tc.suffix, c, err)
		}

		// Without an identity what is stored can be checked, and what is not encrypted can be read.
		c, err = backup.ReadSnapshot(t.Context(), s, backup.SnapshotOf(sets[0], m, nil), nil)
		if err != nil || c.Decoded == tc.encrypted {
			t.Errorf("%s without an identity: %+v, %v", tc.suffix, c, err)
		}
	}
}

func TestRequestsThatCannotWork(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		change func(*backup.Request)
		reason string
	}{
		"no recipients":       {func(r *backup.Request) { r.Recipients = nil }, backup.ReasonUnencrypted},
		"bad recipient":       {func(r *backup.Request) { r.Recipients = []string{"age1nothing"} }, backup.ReasonRecipients},
		"identity instead":    {func(r *backup.Request) { r.Recipients = []string{"AGE-SECRET-KEY-1QQQ"} }, backup.ReasonRecipients},
		"no state":            {func(r *backup.Request) { r.State = nil }, backup.ReasonInvalid},
		"empty state":         {func(r *backup.Request) { r.State.Data = nil }, backup.ReasonInvalid},
		"bad ID":              {func(r *backup.Request) { r.ID = "../x" }, backup.ReasonInvalid},
		"cluster that climbs": {func(r *backup.Request) { r.Cluster.Name = ".." }, backup.ReasonInvalid},
		"compression":         {func(r *backup.Request) { r.Compression = "lzw" }, backup.ReasonInvalid},
	} {
		r := request(madeSnapshot(1), identity(t).Recipient().String())
		r.Snapshot = func(context.Context) (io.ReadCloser, error) {
			t.Errorf("%s: the node was asked", name)

			return nil, errors.New("x")
		}
		tc.change(&r)

		_, err := backup.Take(t.Context(), directory(t), r)
		if failure.Reason(err) != tc.reason || failure.ClassOf(err) != failure.ClassTerminal || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: %v", name, err)
		}

		if pre := backup.Preflight(t.Context(), directory(t), &r, 0); failure.Reason(pre) != tc.reason {
			t.Errorf("%s in the preflight: %v", name, pre)
		}
	}
}

// blocking never yields anything after its content, and ignores its context.
type blocking struct {
	io.Reader

	closed chan struct{}
}

func (b *blocking) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if n > 0 {
		return n, nil
	}

	<-b.closed

	return 0, errors.Join(err, io.ErrClosedPipe)
}

func (b *blocking) Close() error {
	close(b.closed)

	return nil
}

// TestBadStreamsLeaveNothing: whatever is wrong with the snapshot, the error says it and the bucket stays empty.
func TestBadStreamsLeaveNothing(t *testing.T) {
	t.Parallel()

	s, server := bucketStore(t)
	good := madeSnapshot(60_000) // several parts when it is not compressed
	flipped := bytes.Clone(good)
	flipped[12345] ^= 1

	for name, tc := range map[string]struct {
		open   func(context.Context) (io.ReadCloser, error)
		reason string
	}{
		"empty":             {opener(nil), backup.ReasonTruncated},
		"cut":               {opener(good[:20_000_000]), backup.ReasonTruncated},
		"no trailer":        {opener(good[:len(good)-32]), backup.ReasonTruncated},
		"cut at a sector":   {opener(good[:512*30_000+32]), backup.ReasonTruncated},
		"only 32 bytes":     {opener(make([]byte, 32)), backup.ReasonTruncated},
		"flipped":           {opener(flipped), backup.ReasonTruncated},
		"something behind":  {opener(append(bytes.Clone(good), 'x')), backup.ReasonTruncated},
		"error":             {opened(io.MultiReader(bytes.NewReader(good), iotest.ErrReader(errors.New("gone")))), backup.ReasonSource},
		"cannot be opened":  {func(context.Context) (io.ReadCloser, error) { return nil, errors.New("no etcd") }, backup.ReasonSource},
		"class of its own":  {func(context.Context) (io.ReadCloser, error) { return nil, failure.Auth("Refused", "no", nil) }, "Refused"},
		"stalls":            {hanging(good[:20_000_000]), backup.ReasonStalled},
		"stalls at once":    {hanging(nil), backup.ReasonStalled},
		"never even opened": {func(ctx context.Context) (io.ReadCloser, error) { <-ctx.Done(); return nil, ctx.Err() }, backup.ReasonStalled},
	} {
		r := request(nil, identity(t).Recipient().String())
		r.Snapshot, r.Compression = tc.open, backup.CompressionNone

		if tc.reason == backup.ReasonStalled {
			r.Stall = time.Second
		}

		_, err := backup.Take(t.Context(), s, r)
		if failure.Reason(err) != tc.reason {
			t.Errorf("%s: %v", name, err)
		}

		if left := inBucket(t, server); len(left) > 0 {
			t.Fatalf("%s: left %v", name, left)
		}
	}
}

func opened(r io.Reader) func(context.Context) (io.ReadCloser, error) {
	return func(context.Context) (io.ReadCloser, error) { return io.NopCloser(r), nil }
}

func hanging(content []byte) func(context.Context) (io.ReadCloser, error) {
	return func(context.Context) (io.ReadCloser, error) {
		return &blocking{Reader: bytes.NewReader(content), closed: make(chan struct{})}, nil
	}
}

// TestCancelledLeavesNothing cancels at every step. A client may turn the cancellation into a clean end.
func TestCancelledLeavesNothing(t *testing.T) {
	t.Parallel()

	s, server := bucketStore(t)

	for _, after := range []string{"start", "middle", "clean end", ".snap.age", ".state.json.age"} {
		ctx, cancel := context.WithCancel(t.Context())
		content := madeSnapshot(60_000)
		r := request(content, identity(t).Recipient().String())
		r.Compression = backup.CompressionNone

		var target store.Store = s //nolint:staticcheck // the faulty store below takes its place

		switch after {
		case "start":
			cancel()
		case "middle":
			r.Progress = func(p backup.Progress) {
				if p.Read > 20_000_000 {
					cancel()
				}
			}
		case "clean end":
			r.Snapshot = opened(io.MultiReader(bytes.NewReader(content[:1000]), readerFunc(func([]byte) (int, error) {
				cancel()

				return 0, io.EOF
			})))
		default:
			target = &cancelling{Store: s, after: after, cancel: cancel}
		}

		_, err := backup.Take(ctx, target, r)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled at %s: %v", after, err)
		}

		if left := inBucket(t, server); len(left) > 0 {
			t.Fatalf("cancelled at %s: left %v", after, left)
		}

		cancel()
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// cancelling cancels once a file was stored.
type cancelling struct {
	store.Store

	after  string
	cancel func()
}

func (c *cancelling) Put(ctx context.Context, key string, write func(io.Writer) error) (store.Object, error) {
	o, err := c.Store.Put(ctx, key, write)
	if strings.HasSuffix(key, c.after) {
		c.cancel()
	}

	return o, err
}
