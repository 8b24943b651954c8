package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/talos-operator/talos-operator/internal/backup/storage"
	"github.com/talos-operator/talos-operator/lab/s3"
	"github.com/talos-operator/talos-operator/test/wait"
)

// vault is a bucket, and what a person at the command line has: the environment, the flags and an identity file.
type vault struct {
	server *s3.Server
	env    []string
	flags  []string
	id     *age.X25519Identity
	key    string
}

func (w *world) newVault() *vault {
	w.t.Helper()

	ctx := w.t.Context()

	server, err := s3.Start(ctx, s3.Options{
		Binary: filepath.Join(w.assets, "versitygw"), Dir: filepath.Join(w.dir, "s3"), Address: w.subnet + ".245",
	})
	if err != nil {
		w.t.Fatal(err)
	}

	w.t.Cleanup(server.Kill)

	if err := server.CreateBucket(ctx, "backups", false); err != nil {
		w.t.Fatal(err)
	}

	id, err := age.GenerateX25519Identity()
	if err != nil {
		w.t.Fatal(err)
	}

	v := &vault{server: server, id: id, key: filepath.Join(w.dir, "key.txt")}
	ca := filepath.Join(w.dir, "s3-ca.crt")

	for path, content := range map[string]string{v.key: id.String() + "\n", ca: string(server.CA())} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}

	v.env = []string{"AWS_ACCESS_KEY_ID=" + server.AccessKey, "AWS_SECRET_ACCESS_KEY=" + server.SecretKey}
	v.flags = []string{
		"--storage", "s3://backups/site", "--s3-endpoint", server.Endpoint(), "--s3-ca-file", ca,
	}

	return v
}

// TestRecoverCommand: a backup is taken and inspected from the command line. Then the management plane, all nodes and
// their disks are gone, and one command brings the cluster back from the bucket, an identity file and the manifest. It
// is killed on the way and run again.
func TestRecoverCommand(t *testing.T) {
	w := newLonelyWorld(t)
	v := w.newVault()

	w.boot(1)
	w.boot(2)

	manifest := singleManifest(w, "ash")
	w.apply(manifest)
	w.whole("ash")

	c := w.kubernetes("ash") // keeps the old kubeconfig
	note(t, c, "early")

	fingerprint := w.identity("ash").fingerprint
	w.backUpByCommand("ash", v)

	// What a person keeps beside the age identity.
	printed, _ := w.commandWith(nil, "backup", "key", "ash", "--kubeconfig", w.kubeconfigOf(w.plane, "first"))
	key := strings.TrimSpace(printed)

	// Everything burns.
	w.manager.kill()
	w.plane.Kill()

	for _, n := range maps.Clone(w.nodes) {
		if err := n.WipeDisk(); err != nil {
			t.Fatal(err)
		}

		if err := n.PowerOn(context.Background()); err != nil {
			t.Fatal(err)
		}
	}

	w.plane = w.startPlane()
	w.client = w.clientTo(w.plane)
	w.manager = w.startManager(w.plane)

	file := filepath.Join(w.dir, "ash.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}

	args := append([]string{
		"recover", "--kubeconfig", w.kubeconfigOf(w.plane, "second"), "-f", file, "-i", v.key, "--yes",
		"--verification-key", key,
	}, v.flags...)

	w.killedWith(v.env, args)

	out, told := w.commandWith(v.env, args...)
	for _, want := range []string{"Cluster ash runs from backup ", "Proof: etcd runs at revision ", "ash-kubeconfig"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s%s", want, told, out)
		}
	}

	if strings.Contains(out+told, v.id.String()) || strings.Contains(out+told, v.server.SecretKey) {
		t.Error("a secret is printed")
	}

	t.Logf("%s\n%s", told, out)

	w.whole("ash")
	noted(t, c, "early", "")

	if got := w.identity("ash").fingerprint; got != fingerprint {
		t.Errorf("the PKI is another one: %s, was %s", got, fingerprint)
	}

	w.oneEtcd("ash", 1)
	w.fromDisk("ash", 1, 2)
	w.nodesReady("ash", 2)

	if _, told := w.commandWith(v.env, args...); !strings.Contains(told, "it runs from this backup already") {
		t.Errorf("once more: %s", told)
	}
}

// backUpByCommand takes a backup, verifies it by a drill and lists it, all as a person does.
func (w *world) backUpByCommand(cluster string, v *vault) {
	w.t.Helper()

	w.secret("s3", map[string]string{
		storage.AccessKeyID: v.server.AccessKey, storage.SecretAccessKey: v.server.SecretKey,
		"ca.crt": string(v.server.CA()),
	})

	out, told := w.commandWith(nil, "backup", "create", "--kubeconfig", w.kubeconfigOf(w.plane, "first"),
		"--control-plane", cluster, "--recipient", v.id.Recipient().String(), "--wait", v.flags[0], v.flags[1], v.flags[2],
		v.flags[3], "--s3-credentials-secret", "s3", "--s3-ca-secret", "s3/ca.crt")
	if !strings.Contains(out, "is complete: ") || !strings.Contains(out, "verified: Checksum") {
		w.t.Fatalf("%s\n%s", told, out)
	}

	w.t.Logf("%s%s", told, out)

	for _, command := range [][]string{
		{"verify", "--latest", "--level", "Drill", "--record", "-i", v.key},
		{"list", cluster},
		{"inspect", "--latest", "--cluster", cluster},
		{"download", "--latest", "--cluster", cluster, "--state", "-i", v.key, "-f", filepath.Join(w.dir, cluster)},
	} {
		out, _ := w.commandWith(v.env, append(append([]string{"backup"}, command...), v.flags...)...)
		if !strings.Contains(out, cluster) || strings.Contains(out, "has not been inspected") {
			w.t.Errorf("%v: %s", command, out)
		}

		w.t.Logf("%s", out)
	}
}

// commandWith runs the binary in an environment, and returns what it prints to both outputs.
func (w *world) commandWith(env []string, args ...string) (out, told string) {
	w.t.Helper()

	var failed strings.Builder

	cmd := exec.CommandContext(w.t.Context(), operator, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = &failed

	printed, err := cmd.Output()
	if err != nil {
		w.t.Fatalf("talos-operator %s: %v: %s", args[0], err, failed.String())
	}

	return string(printed), failed.String()
}

// killedWith runs a command and kills it at random moments, before and after it has made its objects.
func (w *world) killedWith(env, args []string) {
	w.t.Helper()

	for range 3 {
		cmd := exec.Command(operator, args...)
		cmd.Env = append(os.Environ(), env...)

		if err := cmd.Start(); err != nil {
			w.t.Fatal(err)
		}

		wait.Pass(w.t, time.Duration(rand.IntN(2000))*time.Millisecond)

		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	}
}

// singleManifest is a control plane of one and a worker.
func singleManifest(w *world, name string) string {
	return fmt.Sprintf(`
apiVersion: talos-operator.io/v1alpha1
kind: TalosControlPlane
metadata: {name: %[1]s}
spec:
  talosVersion: v1.13.9
  kubernetesVersion: v1.36.2
  endpoint: https://%[2]s:6443
  machines:
    - {name: cp-1, address: %[2]s}
---
apiVersion: talos-operator.io/v1alpha1
kind: TalosWorker
metadata: {name: %[1]s-workers}
spec:
  controlPlaneRef: {name: %[1]s}
  machines:
    - {name: w-2, address: %[3]s}
`, name, w.address(1), w.address(2))
}
