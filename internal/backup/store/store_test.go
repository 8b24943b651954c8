package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/lab/s3"
	"github.com/talos-operator/talos-operator/test/wait"
)

// each runs a test against every kind of store.
func each(t *testing.T, test func(t *testing.T, s store.Store)) {
	t.Run("S3", func(t *testing.T) {
		t.Parallel()
		test(t, open(t, settings(serve(t, s3.Options{}, false))))
	})
	t.Run("Directory", func(t *testing.T) {
		t.Parallel()

		s, err := store.NewDirectory(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}

		test(t, s)
	})
}

func TestObjects(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s store.Store) {
		ctx := t.Context()

		if err := s.Check(ctx, 1000); err != nil {
			t.Fatal(err)
		}

		if left := keys(t, s, ""); len(left) != 0 {
			t.Errorf("the check left %v", left)
		}

		want := map[string][]byte{
			"a/empty": {}, "a/small": noise(10), "a/part": noise(5 << 20), "a/part-and-one": noise(5<<20 + 1),
			"a.b": noise(1), "b/large": noise(30 << 20),
		}
		for key, content := range want {
			o, err := s.Put(ctx, key, writer(content))
			if err != nil {
				t.Fatalf("%s: %v", key, err)
			}

			if o.Key != key || o.Size != int64(len(content)) || wait.Now().Sub(o.Modified).Abs() > time.Hour {
				t.Errorf("%s: put says %+v", key, o)
			}

			if stat, err := s.Stat(ctx, key); err != nil || stat.Size != o.Size {
				t.Errorf("%s: stat says %+v, %v", key, stat, err)
			}

			if got := read(t, s, key); !bytes.Equal(got, content) {
				t.Errorf("%s: read %d other bytes", key, len(got))
			}
		}

		if _, err := s.Put(ctx, "a/small", writer(noise(5))); failure.Reason(err) != store.ReasonObjectExists {
			t.Errorf("replacing an object: %v", err)
		}

		for _, key := range []string{"a/small", "a/empty"} {
			if err := s.Replace(ctx, key, want["a/small"][:7]); err != nil || len(read(t, s, key)) != 7 {
				t.Errorf("replacing %s: %v", key, err)
			}
		}

		for prefix, want := range map[string][]string{
			"": {"a.b", "a/empty", "a/part", "a/part-and-one", "a/small", "b/large"}, "a/": {"a/empty", "a/part", "a/part-and-one", "a/small"},
			"a/p": {"a/part", "a/part-and-one"}, "c/d/": {}, "b": {"b/large"},
		} {
			if diff := cmp.Diff(want, keys(t, s, prefix)); diff != "" {
				t.Errorf("list of %q (-want +got):\n%s", prefix, diff)
			}
		}

		for range 2 {
			if err := s.Delete(ctx, "a/small"); err != nil {
				t.Fatal(err)
			}
		}

		if _, err := s.Stat(ctx, "a/small"); !errors.Is(err, store.ErrNotFound) || failure.Reason(err) != store.ReasonObjectNotFound {
			t.Errorf("stat of a deleted object: %v", err)
		}

		if _, _, err := s.Get(ctx, "a/small"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("reading a deleted object: %v", err)
		}
	})
}

func TestListPagesThroughManyObjects(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s store.Store) {
		const many = 1100 // S3 lists a thousand at once

		for i := range many {
			if _, err := s.Put(t.Context(), fmt.Sprintf("m/%05d", i), writer([]byte("x"))); err != nil {
				t.Fatal(err)
			}
		}

		got := keys(t, s, "m/")
		if len(got) != many || got[0] != "m/00000" || got[many-1] != "m/01099" {
			t.Fatalf("%d objects, %s to %s", len(got), got[0], got[len(got)-1])
		}

		for range s.List(t.Context(), "m/") {
			break // an early end must not hang or panic
		}
	})
}

func TestAbortedPutLeavesNothing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s store.Store) {
		for _, size := range []int{0, 100, 20 << 20} {
			_, err := s.Put(t.Context(), "x/y", func(w io.Writer) error {
				if werr := writer(noise(size))(w); werr != nil {
					return werr
				}

				return errMine
			})
			if !errors.Is(err, errMine) {
				t.Errorf("after %d bytes: %v", size, err)
			}

			ctx, cancel := context.WithCancel(t.Context())
			_, err = s.Put(ctx, "x/z", func(w io.Writer) error {
				if werr := writer(noise(size))(w); werr != nil {
					return werr
				}

				cancel()

				return nil
			})

			if !errors.Is(err, context.Canceled) {
				t.Errorf("cancelled after %d bytes: %v", size, err)
			}
		}

		if left := keys(t, s, ""); len(left) > 0 {
			t.Errorf("objects left: %v", left)
		}

		// Whatever is older than tomorrow: all that there is.
		if n, err := s.Sweep(t.Context(), "", wait.Now().Add(24*time.Hour)); n != 0 || err != nil {
			t.Errorf("%d uploads left, %v", n, err)
		}
	})
}

func TestInvalidKeys(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s store.Store) {
		for _, key := range []string{"", "/a", "../a", "a/../../b", "a//b", "a/", ".", "..", "a:b", "a b", "a\x00b", strings.Repeat("a", 1000)} {
			if _, err := s.Put(t.Context(), key, writer(nil)); failure.Reason(err) != store.ReasonInvalid {
				t.Errorf("put %q: %v", key, err)
			}

			if err := s.Delete(t.Context(), key); failure.Reason(err) != store.ReasonInvalid {
				t.Errorf("delete %q: %v", key, err)
			}
		}

		// Others name objects as they like.
		for _, key := range []string{"../a", "/etc/passwd", "a/../../b"} {
			if _, _, err := s.Get(t.Context(), key); failure.Reason(err) != store.ReasonInvalid {
				t.Errorf("get %q: %v", key, err)
			}
		}
	})
}

func TestDirectoryStaysInside(t *testing.T) {
	t.Parallel()

	outside, inside := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}

	if err := os.Symlink(outside, filepath.Join(inside, "link")); err != nil {
		t.Fatal(err)
	}

	s, err := store.NewDirectory(inside)
	if err != nil {
		t.Fatal(err)
	}

	if _, _, err := s.Get(t.Context(), "link/secret"); err == nil {
		t.Error("read through a link")
	}

	if _, err := s.Put(t.Context(), "link/new", writer([]byte("x"))); err == nil {
		t.Error("wrote through a link")
	}

	if err := s.Delete(t.Context(), "link/secret"); err == nil {
		t.Error("deleted through a link")
	}

	if got := keys(t, s, ""); len(got) != 0 {
		t.Errorf("listed %v", got)
	}

	if _, err := s.Put(t.Context(), "d/f", writer([]byte("x"))); err != nil {
		t.Fatal(err)
	}

	info, err := os.Stat(filepath.Join(inside, "d/f"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestDirectoryFaults(t *testing.T) {
	t.Parallel()

	gone, err := store.NewDirectory(filepath.Join(t.TempDir(), "gone"))
	if err != nil {
		t.Fatal(err)
	}

	if err := gone.Check(t.Context(), 0); failure.Reason(err) != store.ReasonNotFound {
		t.Errorf("check of a directory that is gone: %v", err)
	}

	s, err := store.NewDirectory(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	if err := s.Check(t.Context(), 1<<60); failure.Reason(err) != store.ReasonFull {
		t.Errorf("check for an exabyte: %v", err)
	}

	full, err := store.NewDirectory("/dev")
	if err != nil {
		t.Fatal(err)
	}

	if _, _, err := full.Get(t.Context(), "full"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a device is no object: %v", err)
	}

	if _, err := store.NewDirectory("relative"); failure.Reason(err) != store.ReasonInvalid {
		t.Errorf("relative directory: %v", err)
	}
}

func TestSweepTakesOldUploadsOnly(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	part := filepath.Join(dir, "a", ".b.XYZ.talos-operator-part")

	if err := os.MkdirAll(filepath.Dir(part), 0o700); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(part, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}

	directory, err := store.NewDirectory(dir)
	if err != nil {
		t.Fatal(err)
	}

	server := serve(t, s3.Options{}, false)
	bucket := open(t, settings(server))

	client, err := server.Client()
	if err != nil {
		t.Fatal(err)
	}

	beginUpload(t, client, "some/where/a/b")
	beginUpload(t, client, "else/where/a/b")

	now := wait.Now()

	for name, s := range map[string]store.Store{"directory": directory, "S3": bucket} {
		if got := keys(t, s, ""); len(got) != 0 {
			t.Errorf("%s: an upload is listed: %v", name, got)
		}

		for _, sweep := range []struct {
			prefix string
			before time.Time
			want   int
		}{
			{"a/b", now.Add(-time.Hour), 0},
			{"other/", now.Add(time.Hour), 0},
			{"a/c", now.Add(time.Hour), 0},
			{"a/b", now.Add(time.Hour), 1},
			{"a/", now.Add(time.Hour), 0},
		} {
			if n, err := s.Sweep(t.Context(), sweep.prefix, sweep.before); n != sweep.want || err != nil {
				t.Errorf("%s: swept %d of %s before %v, %v", name, n, sweep.prefix, sweep.before, err)
			}
		}
	}

	if diff := cmp.Diff([]string{"upload of else/where/a/b"}, leftovers(t, server)); diff != "" {
		t.Errorf("left in the bucket (-want +got):\n%s", diff)
	}
}
