package raise_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/talos-operator/talos-operator/internal/backup/raise"
	"github.com/talos-operator/talos-operator/internal/backup/scratch"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/lab/etcd"
	"github.com/talos-operator/talos-operator/lab/process"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

// TestMain is also the child process.
func TestMain(m *testing.M) {
	if len(os.Args) != 4 || os.Args[1] != raise.CommandName {
		os.Exit(m.Run())
	}

	by, err := strconv.ParseInt(os.Args[2], 10, 64)
	if err == nil {
		err = raise.Run(os.Stdin, by, os.Args[3] == "true")
	}

	if err != nil {
		os.Exit(1)
	}
}

const (
	bump = 1_000_000
	keys = 20
)

func options(t *testing.T, dir string) etcd.Options {
	t.Helper()

	assets, err := process.Assets()
	if err != nil {
		t.Fatal(err)
	}

	ca, err := secrets.NewEtcdCA(wait.Now(), config.TalosVersionCurrent)
	if err != nil {
		t.Fatal(err)
	}

	return etcd.Options{
		Binary: filepath.Join(assets, "etcd"), Utl: filepath.Join(assets, "etcdutl"), Dir: filepath.Join(t.TempDir(), dir),
		Name: "n1", Address: loopback.Address(t), CA: x509.NewCertificateAndKeyFromCertificateAuthority(ca),
	}
}

// run starts a member and waits for it.
func run(t *testing.T, start func(context.Context) (*etcd.Member, error)) *etcd.Member {
	t.Helper()

	m, err := start(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(m.Kill)

	wait.For(t, "etcd serves", m.Health)

	return m
}

// snapshot of an etcd with some keys, and the revision that it had when more was written.
func snapshot(t *testing.T) (data []byte, lost int64) {
	t.Helper()

	o := options(t, "first")
	m := run(t, func(ctx context.Context) (*etcd.Member, error) { return etcd.Bootstrap(ctx, o) })

	for i := range keys {
		if _, err := m.Client().Put(t.Context(), fmt.Sprintf("/registry/k%d", i), "v"); err != nil {
			t.Fatal(err)
		}
	}

	r, err := m.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()

	if data, err = io.ReadAll(r); err != nil {
		t.Fatal(err)
	}

	put, err := m.Client().Put(t.Context(), "/registry/late", "v")
	if err != nil {
		t.Fatal(err)
	}

	m.Kill()

	return data, put.Header.Revision
}

// raised is what becomes of a snapshot; nothing stays on the disk.
func raised(t *testing.T, data []byte, o raise.Options) ([]byte, error) {
	t.Helper()

	o.Dir = t.TempDir()

	var out bytes.Buffer

	err := raise.Snapshot(t.Context(), o, func(w io.Writer) error {
		_, err := w.Write(data)

		return err
	}, func(r io.Reader) error {
		_, err := io.Copy(&out, talos.VerifySnapshot(r))

		return err
	})

	if left, rerr := os.ReadDir(o.Dir); rerr != nil || len(left) > 0 {
		t.Errorf("left on the disk: %v, %v", left, rerr)
	}

	return out.Bytes(), err
}

// TestSnapshot: etcd starts from what comes out, above the revision that was lost, with every key, and tells watchers
// from before that they are too old.
func TestSnapshot(t *testing.T) {
	data, lost := snapshot(t)

	t.Run("in vain", func(t *testing.T) { inVain(t, data) })

	out, err := raised(t, data, raise.Options{By: bump})
	if err != nil {
		t.Fatal(err)
	}

	copied, err := raised(t, data[:len(data)-sha256.Size], raise.Options{By: bump, Copied: true})
	if err != nil || len(copied) != len(out) {
		t.Errorf("of a copied database: %d bytes, %v", len(copied), err)
	}

	file := filepath.Join(t.TempDir(), "snapshot")
	if err := os.WriteFile(file, out, 0o600); err != nil {
		t.Fatal(err)
	}

	o := options(t, "second")
	status(t, o.Utl, file)

	m := run(t, func(ctx context.Context) (*etcd.Member, error) { return etcd.Recover(ctx, o, file, false) })

	got, err := m.Client().Get(t.Context(), "/registry/", clientv3.WithPrefix())
	if err != nil || got.Count != keys || got.Header.Revision <= lost+bump/2 {
		t.Errorf("%d keys at revision %d, %v; %d was lost", got.Count, got.Header.Revision, err, lost)
	}

	if _, err := m.Client().Get(t.Context(), "/registry/k1", clientv3.WithRev(lost)); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Errorf("reading at revision %d: %v", lost, err)
	}

	w := <-m.Client().Watch(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithRev(lost))
	if w.CompactRevision == 0 || !w.Canceled {
		t.Errorf("a watch from revision %d: %+v", lost, w)
	}
}

// status has etcdutl read it.
func status(t *testing.T, utl, file string) {
	t.Helper()

	raw, err := exec.CommandContext(t.Context(), utl, "snapshot", "status", file, "-w", "json").Output()
	if err != nil {
		t.Fatal(err)
	}

	var told struct{ Revision, TotalKey int64 }
	if err := json.Unmarshal(raw, &told); err != nil || told.Revision < bump || told.TotalKey != keys+1 { // etcd adds an empty one
		t.Errorf("etcdutl says %s, %v", raw, err)
	}
}

// inVain: what cannot be raised is not used.
func inVain(t *testing.T, data []byte) {
	t.Helper()

	bad := bytes.Clone(data)
	bad[len(bad)-1] ^= 1

	for name, tc := range map[string]struct {
		data []byte
		o    raise.Options
	}{
		"a wrong checksum": {bad, raise.Options{By: bump}},
		"no checksum":      {data[:len(data)-sha256.Size], raise.Options{By: bump}},
		// Which pages are in use is chance; but never only those that name the others.
		"its beginning": {data[:2*os.Getpagesize()], raise.Options{By: bump, Copied: true}},
		"nothing":       {nil, raise.Options{By: bump, Copied: true}},
		"by nothing":    {data, raise.Options{}},
		"no binary":     {data, raise.Options{By: bump, Exe: "/nowhere"}},
	} {
		if out, err := raised(t, tc.data, tc.o); failure.Reason(err) != raise.Reason || len(out) > 0 {
			t.Errorf("%s: %d bytes, %v", name, len(out), err)
		}
	}

	broken := errors.New("the store is gone")

	err := raise.Snapshot(t.Context(), raise.Options{Dir: t.TempDir(), By: bump}, func(io.Writer) error { return broken },
		func(io.Reader) error {
			t.Error("it was used")

			return nil
		})
	if !errors.Is(err, broken) {
		t.Errorf("the error of the writer is lost: %v", err)
	}

	err = raise.Snapshot(t.Context(), raise.Options{Dir: filepath.Join(t.TempDir(), "gone"), By: bump}, nil, nil)
	if failure.Reason(err) != scratch.Reason {
		t.Errorf("without a folder: %v", err)
	}
}

// TestOrphan: the child does not outlive the process that wants the snapshot, whatever it waits for.
func TestOrphan(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	// Reading from it never ends.
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "snapshot"), 0o600); err != nil {
		t.Fatal(err)
	}

	cmd := exec.CommandContext(t.Context(), exe, raise.CommandName, "1", "false")
	cmd.Dir = dir

	alive, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	if err := alive.Close(); err != nil {
		t.Fatal(err)
	}

	ended := make(chan error, 1)

	go func() { ended <- cmd.Wait() }()

	if err := wait.Done(t, "the child ends", ended); err == nil {
		t.Error("it ended well")
	}
}
