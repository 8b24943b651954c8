package etcd_test

import (
	"crypto/sha256"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/lab/etcd"
)

// snapshot takes a snapshot of a fresh cluster that holds k=v, and returns its bytes.
func snapshot(t *testing.T, c *cluster) []byte {
	t.Helper()

	m := c.must(etcd.Bootstrap(t.Context(), c.options(1)))
	c.healthy(m)
	c.put(m, "k", "v")

	r, err := m.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	defer r.Close()

	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}

	m.Kill()

	if len(b)%512 != sha256.Size || sha256.Sum256(b[:len(b)-sha256.Size]) != [sha256.Size]byte(b[len(b)-sha256.Size:]) {
		t.Fatalf("snapshot of %d bytes does not end with its sha256", len(b))
	}

	return b
}

func file(t *testing.T, b []byte) string {
	t.Helper()

	name := filepath.Join(t.TempDir(), "etcd.snapshot")
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}

	return name
}

func TestRecover(t *testing.T) {
	t.Parallel()

	c := newCluster(t)
	snap := file(t, snapshot(t, c))

	m := c.must(etcd.Recover(t.Context(), c.options(2), snap, false))
	c.healthy(m)
	c.voters(m, "n2")

	if got := c.get(m, "k"); got != "v" {
		t.Errorf("recovered %q", got)
	}

	// Others join the recovered cluster.
	c.must(etcd.Join(t.Context(), c.options(3), []string{c.address(2)}))
	c.voters(m, "n2", "n3")

	if _, err := etcd.Recover(t.Context(), c.options(2), snap, false); err == nil ||
		err.Error() != "etcd data directory is not empty" {
		t.Errorf("recovering over data: %v", err)
	}
}

// damage changes four bytes where no key is, so that only the sha256 tells.
func damage(t *testing.T, c *cluster, good []byte) string {
	t.Helper()

	// The end of a page that is not full is padding: etcdutl's own check does not read it.
	for at := len(good) - sha256.Size - 4; at > 0; at -= 512 {
		if string(good[at:at+4]) != "\x00\x00\x00\x00" {
			continue
		}

		bad := append([]byte(nil), good...)
		copy(bad[at:], "oops")

		return file(t, bad)
	}

	t.Fatal("no padding in the snapshot")

	return ""
}

func TestDamagedSnapshotLeavesDebris(t *testing.T) {
	t.Parallel()

	c := newCluster(t)
	good := snapshot(t, c)
	bad := damage(t, c, good)
	o := c.options(2)

	_, err := etcd.Recover(t.Context(), o, bad, false)
	if err == nil || !strings.HasPrefix(err.Error(), "error recovering from the snapshot: expected sha256 [") ||
		!strings.Contains(err.Error(), "], got [") {
		t.Fatalf("recovering a damaged snapshot: %v", err)
	}

	if !etcd.HasData(o.Dir) {
		t.Fatal("no debris")
	}

	if _, err := etcd.Bootstrap(t.Context(), o); err == nil {
		t.Error("bootstrapped over debris")
	}

	if _, err := etcd.Recover(t.Context(), o, file(t, good), false); err == nil {
		t.Error("recovered over debris")
	}

	// A restart finds data that is no member: it must not become a cluster.
	m := c.must(etcd.Resume(t.Context(), o))
	ended(t, m)

	if err := etcd.Wipe(o.Dir); err != nil {
		t.Fatal(err)
	}

	// The damage is where nothing is stored: without the check the data is usable.
	m = c.must(etcd.Recover(t.Context(), o, bad, true))
	c.healthy(m)

	if got := c.get(m, "k"); got != "v" {
		t.Errorf("recovered %q", got)
	}
}

func TestTruncatedSnapshotIsOnlyAnError(t *testing.T) {
	t.Parallel()

	c := newCluster(t)
	good := snapshot(t, c)

	for _, cut := range []int{0, 100, 4096 + 32, len(good) / 2, len(good) - 32} {
		o := c.options(2)
		if _, err := etcd.Recover(t.Context(), o, file(t, good[:cut]), false); err == nil {
			t.Errorf("recovered from the first %d bytes", cut)
		}

		if err := etcd.Wipe(o.Dir); err != nil {
			t.Fatal(err)
		}
	}

	// What was cut off is only the sha256: good data for a person who insists.
	m := c.must(etcd.Recover(t.Context(), c.options(3), file(t, good[:len(good)-32]), true))
	c.healthy(m)

	if got := c.get(m, "k"); got != "v" {
		t.Errorf("recovered %q", got)
	}
}
