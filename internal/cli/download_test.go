package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	corev1 "k8s.io/api/core/v1"

	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/lab/s3"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

// TestBackupDownload: etcdutl reads the snapshot, kubectl's libraries the state, plain age and zstd what is stored; and
// no other user can read the files.
func TestBackupDownload(t *testing.T) {
	s := newShell(t)
	v := newVault(t, false)
	id, key := keyFile(t)
	m := take(t, v, "prod", 1, id.Recipient().String())
	dir := t.TempDir()

	file := filepath.Join(dir, "prod.snapshot")

	out, _, failed := s.backupCommand(v.flags, "download", m.ID, "-i", key, "-f", file)
	if failed != "" || !strings.Contains(out, "Wrote the snapshot of backup "+m.ID) {
		t.Fatalf("%q, %q", out, failed)
	}

	status, err := exec.CommandContext(t.Context(), asset("etcdutl"), "snapshot", "status", file, "-w", "json").Output()
	if err != nil || !strings.Contains(string(status), `"revision":7`) {
		t.Errorf("etcdutl: %v: %s", err, status)
	}

	if !bytes.Equal(read(t, file), realSnapshot(t)) {
		t.Error("it is not the snapshot")
	}

	whole := filepath.Join(dir, "whole") + "/"

	out, _, failed = s.backupCommand(v.flags, "download", "--latest", "--state", "-i", key, "-f", whole)
	if failed != "" || !strings.Contains(out, "root credential") {
		t.Fatalf("%q, %q", out, failed)
	}

	want := map[string]fs.FileMode{".": 0o700, m.ID + ".snap": 0o600, m.ID + ".state.json": 0o600}
	if diff := cmp.Diff(want, tree(t, whole)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}

	_, state := stateSecret(t, "prod")

	secret := &corev1.Secret{}
	if err := json.Unmarshal(read(t, whole, m.ID+".state.json"), secret); err != nil || secret.Kind != "Secret" {
		t.Fatal(err)
	}

	got, err := clusterstate.Decode(secret.Data)
	if err != nil || !got.Bundle.Equal(state.Bundle) {
		t.Errorf("the state is another one: %v", err)
	}

	s.downloadRaw(v, m, id)
}

func (s *shell) downloadRaw(v *vault, m *backup.Manifest, id *age.X25519Identity) {
	t := s.t
	t.Helper()

	dir := filepath.Join(t.TempDir(), "raw")

	if _, _, failed := s.backupCommand(v.flags, "download", m.ID, "--raw", "-f", dir); failed != "" {
		t.Fatal(failed)
	}

	want := map[string]fs.FileMode{
		".": 0o700, m.Snapshot.Name: 0o600, m.State.Name: 0o600, m.ID + ".manifest.json": 0o600,
	}
	if diff := cmp.Diff(want, tree(t, dir)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}

	plain, err := age.Decrypt(bytes.NewReader(read(t, dir, m.Snapshot.Name)), id)
	if err != nil {
		t.Fatal(err)
	}

	z, err := zstd.NewReader(plain)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()

	if content, err := io.ReadAll(z); err != nil || !bytes.Equal(content, realSnapshot(t)) {
		t.Errorf("what comes out of it is not the snapshot: %v", err)
	}
}

// TestBackupDownloadRefuses: nothing is overwritten, nothing half-written stays, and a state that all users could read
// comes only when it is asked for.
func TestBackupDownloadRefuses(t *testing.T) {
	s := newShell(t)
	st, store := folder(t)
	id, key := keyFile(t)
	_, strange := keyFile(t)
	flags := []string{"--storage", store}

	good := take(t, st, "prod", 1, id.Recipient().String())
	open := take(t, st, "prod", 2)
	bad := take(t, st, "prod", 3, id.Recipient().String())

	object := backup.Prefix("prod") + bad.Snapshot.Name
	content := readObject(t, st, object)
	content[len(content)/2] ^= 1
	overwrite(t, st, object, content)

	put(t, st, "db.snapshot", realSnapshot(t))

	dir := t.TempDir()
	taken := filepath.Join(dir, "taken")

	if err := os.WriteFile(taken, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}

	for name, tt := range map[string]struct {
		args []string
		says string
	}{
		"existing":         {[]string{good.ID, "-i", key, "-f", taken}, "overwrite it with --force"},
		"no identity":      {[]string{good.ID, "-f", dir + "/x"}, "there is no identity to decrypt it"},
		"another identity": {[]string{good.ID, "-i", strange, "-f", dir + "/x"}, "was not encrypted for"},
		"damaged":          {[]string{bad.ID, "-i", key, "-f", dir + "/x"}, "is damaged"},
		"damaged, raw":     {[]string{bad.ID, "--raw", "-f", dir + "/raw"}, "is damaged"},
		"nothing":          {[]string{good.ID, "--snapshot=false", "-f", dir + "/x"}, "nothing is asked for"},
		"no state":         {[]string{"db.snapshot", "--state", "-f", dir + "/x"}, "has no state Secret"},
		"no target":        {[]string{good.ID}, `required flag(s) "file" not set`},
		"no folder":        {[]string{good.ID, "-i", key, "-f", dir + "/none/x"}, "no such file or directory"},
	} {
		_, _, failed := s.backupCommand(flags, append([]string{"download"}, tt.args...)...)
		if !strings.Contains(failed, tt.says) {
			t.Errorf("%s: %q", name, failed)
		}
	}

	if diff := cmp.Diff(map[string]fs.FileMode{".": 0o755, "taken": 0o644, "raw": 0o700}, tree(t, dir),
		cmp.Transformer("folder", func(m fs.FileMode) fs.FileMode {
			if m == 0o755 { // that of the test
				return 0o700
			}

			return m
		})); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}

	if _, _, failed := s.backupCommand(flags, "download", good.ID, "-i", key, "-f", taken, "--force"); failed != "" ||
		tree(t, dir)["taken"] != 0o600 || !bytes.Equal(read(t, taken), realSnapshot(t)) {
		t.Errorf("with --force: %q", failed)
	}

	if _, _, failed := s.backupCommand(flags, "download", "db.snapshot", "-f", filepath.Join(dir, "foreign")); failed != "" ||
		!bytes.Equal(read(t, dir, "foreign"), realSnapshot(t)) {
		t.Errorf("of another tool: %q", failed)
	}

	out, _, failed := s.backupCommand(flags, "download", open.ID, "--raw", "-f", filepath.Join(dir, "open"))
	if failed != "" || strings.Contains(out, "state") || len(tree(t, filepath.Join(dir, "open"))) != 3 {
		t.Errorf("not encrypted: %q, %q", out, failed)
	}
}

// TestBackupDownloadEnds: a download that is interrupted leaves nothing.
func TestBackupDownloadEnds(t *testing.T) {
	s := newShell(t)
	v := newVault(t, false)
	m := take(t, v, "prod", 1)

	proxy, err := s3.NewProxy(v.server, loopback.Address(t))
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(proxy.Close)
	proxy.Set(func(r *http.Request) s3.Fault {
		if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, ".snap") {
			return s3.Fault{}
		}

		return s3.Fault{Hang: true, CutAfter: 100}
	})

	ctx, cancel := context.WithCancel(t.Context())
	dir := t.TempDir()

	go func() {
		defer cancel()

		_ = wait.Until(ctx, "something is written", func(context.Context) error {
			files, err := os.ReadDir(dir)
			if err != nil {
				return err
			}

			return wait.True(len(files) > 0)
		})
	}()

	flags := append([]string{}, v.flags...)
	flags[3] = proxy.Endpoint()

	_, _, failed := s.runWith(ctx, append([]string{"backup", "download", m.ID, "-f", filepath.Join(dir, "x")}, flags...)...)
	if !strings.Contains(failed, "fetching the snapshot of backup "+m.ID) {
		t.Errorf("it ended with %q", failed)
	}

	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("something stays: %v, %v", files, err)
	}
}
