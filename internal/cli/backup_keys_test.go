package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup/signature"
	"github.com/talos-operator/talos-operator/test/pki"
)

// stranger is the key of another PKI.
func stranger(t *testing.T) *signature.Key {
	t.Helper()

	b, err := pki.New(time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}

	key, err := b.BackupKey()
	if err != nil {
		t.Fatal(err)
	}

	return key
}

// TestBackupKey: the key is that of the status, or follows from the state Secret, and no private one is printed.
func TestBackupKey(t *testing.T) {
	s := newShell(t)
	want := signer(t).Public().String()

	s.controlPlane("told")

	if out, _, failed := s.run("backup", "key", "told"); out != want+"\n" || failed != "" {
		t.Errorf("%q, %q, want %s", out, failed, want)
	}

	out, _, failed := s.run("backup", "key", "told", "-o", "json")

	var result struct{ Cluster, VerificationKey string }
	if err := json.Unmarshal([]byte(out), &result); err != nil || result.VerificationKey != want || result.Cluster != "told" {
		t.Errorf("%v, %q: %s", err, failed, out)
	}

	cp := &v1alpha1.TalosControlPlane{
		ObjectMeta: metav1.ObjectMeta{Name: "silent"},
		Spec: v1alpha1.TalosControlPlaneSpec{
			TalosVersion: talosV, KubernetesVersion: kubernetes, Endpoint: "https://10.0.0.1:6443",
			Machines: []v1alpha1.MachineEntry{{Name: "cp", Address: "10.0.0.1"}},
		},
	}
	s.create(cp)

	if _, _, failed := s.run("backup", "key", "silent"); !strings.Contains(failed, "has no PKI yet") {
		t.Errorf("without a PKI: %q", failed)
	}

	secret, _ := stateSecret(t, "silent")
	s.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "silent-state"}, Data: secret.Data})

	if out, _, failed := s.run("backup", "key", "silent"); out != want+"\n" {
		t.Errorf("from the state Secret: %q, %q", out, failed)
	}
}

// TestBackupsShowTheirOrigin: with the key, without it, and what is refused.
func TestBackupsShowTheirOrigin(t *testing.T) {
	s := newShell(t)
	st, dir := folder(t)

	old := takeSigned(t, st, "prod", 1, nil)
	good := take(t, st, "prod", 2)
	forged := takeSigned(t, st, "prod", 3, stranger(t))
	key := []string{"--storage", dir, "--verification-key", signer(t).Public().String()}
	keyless := []string{"--storage", dir}

	row := func(out, id string) string {
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, id) {
				return strings.Join(strings.Fields(line), " ")
			}
		}

		return ""
	}

	out, told, failed := s.backupCommand(key, "list")
	if !strings.Contains(row(out, old.ID), " no no no no Complete") || !strings.Contains(row(out, good.ID), " no yes no no Complete") ||
		!strings.Contains(row(out, forged.ID), " WRONG no no NotAuthentic") || !strings.Contains(told, "1 are not authentic") ||
		!strings.Contains(told, "1 have no signature") {
		t.Errorf("%q:\n%s", failed, out)
	}

	out, told, failed = s.backupCommand(keyless, "list")
	if !strings.Contains(row(out, good.ID), " unchecked ") || !strings.Contains(told, "name the key with --verification-key") {
		t.Errorf("%q:\n%s", failed, out)
	}

	target := filepath.Join(t.TempDir(), "x")

	for name, tt := range map[string]struct {
		flags, args       []string
		out, told, failed string
	}{
		"verify":                 {key, []string{"verify", good.ID}, "It is signed with the key of its cluster.", "", ""},
		"verify without a key":   {keyless, []string{"verify", good.ID}, "its signature was not checked", "", ""},
		"verify an unsigned one": {key, []string{"verify", old.ID}, "it has no signature", "", ""},
		"verify a forged one":    {key, []string{"verify", forged.ID}, "", "", "is not the verification key of the cluster"},
		// The PKI in it is not that of the key: no key from elsewhere is needed to see that.
		"verify it without a key": {keyless, []string{"verify", forged.ID}, "", "", "not signed with the key of the PKI that is in it"},
		"verify the newest":       {key, []string{"verify", "--latest"}, good.ID, "it is passed over", ""},
		"inspect":                 {key, []string{"inspect", good.ID}, "yes, with " + key[3], "", ""},
		"inspect a forged one":    {key, []string{"inspect", forged.ID}, "WRONG, with " + stranger(t).Public().String()[:8], "", ""},
		"download the newest":     {key, []string{"download", "--latest", "-f", target + "1"}, good.ID, "it is passed over", ""},
		"download an unsigned":    {key, []string{"download", old.ID, "-f", target + "2"}, old.ID, "it has no signature", ""},
		"download a forged one":   {key, []string{"download", forged.ID, "-f", target + "3"}, "", "", "is not authentic"},
		"a forged one as it is":   {key, []string{"download", forged.ID, "--raw", "-f", target + "4/"}, forged.ID, "is not authentic", ""},
		"no key":                  {[]string{"--storage", dir, "--verification-key", "x"}, []string{"list"}, "", "", "--verification-key: reading verification key 1"},
	} {
		out, told, failed := s.backupCommand(tt.flags, tt.args...)
		if !strings.Contains(out, tt.out) || !strings.Contains(told, tt.told) || !strings.Contains(failed, tt.failed) ||
			(failed == "") != (tt.failed == "") {
			t.Errorf("%s: %q, %q, %q", name, out, told, failed)
		}
	}

	if _, err := os.Stat(target + "3"); !os.IsNotExist(err) {
		t.Errorf("the forged one was written: %v", err)
	}
}

// TestForgedVerification: a result that anyone could write does not count where the key is known.
func TestForgedVerification(t *testing.T) {
	s := newShell(t)
	st, dir := folder(t)
	m := take(t, st, "prod", 1)
	flags := []string{"--storage", dir}
	key := append(slices.Clone(flags), "--verification-key", signer(t).Public().String())

	out, _, failed := s.backupCommand(flags, "verify", m.ID, "--record")
	if failed != "" || !strings.Contains(out, "recorded in the store without a signature") {
		t.Fatalf("%q: %s", failed, out)
	}

	if out, _, _ := s.backupCommand(flags, "list"); !strings.Contains(out, "Database ") {
		t.Errorf("without the key: %s", out)
	}

	out, _, _ = s.backupCommand(key, "list", "-o", "wide")
	if strings.Contains(out, "Database ") || !strings.Contains(out, "is not signed with the key of the cluster") {
		t.Errorf("with the key: %s", out)
	}
}

// TestRecoverAuthenticates: what a stranger wrote into the store is not restored, whatever its name.
func TestRecoverAuthenticates(t *testing.T) {
	s := newShell(t)
	st, dir := folder(t)

	old := takeSigned(t, st, "prod", 1, nil)
	good := take(t, st, "prod", 2)
	forged := takeSigned(t, st, "prod", 3, stranger(t))
	stripped := takeSigned(t, st, "prod", 4, nil)
	put(t, st, "db.snapshot", realSnapshot(t))

	keyless := []string{"recover", "-f", clusterFile(t, "prod"), "--storage", dir, "--yes", "--wait=false", "--dry-run", "-o", "yaml"}
	args := append(slices.Clone(keyless), "--verification-key", signer(t).Public().String())
	accept := "--allow-unauthenticated"

	for name, tt := range map[string]struct {
		args              []string
		out, told, failed string
	}{
		"newest":                 {args, "before: \"" + good.StartedAt.Add(time.Second).Format(time.RFC3339), "backup " + forged.ID + " is passed over", ""},
		"newest, without a key":  {keyless, "", "", "name the verification key of the cluster with --verification-key"},
		"not signed":             {append(slices.Clone(args), "--backup", old.ID), "", "", "it has no signature"},
		"not signed, accepted":   {append(slices.Clone(args), "--backup", stripped.ID, accept), "allowUnauthenticated: true", "is accepted although it has no signature", ""},
		"no key, accepted":       {append(slices.Clone(keyless), "--backup", good.ID, accept), "allowUnauthenticated: true", "its signature was not checked", ""},
		"forged, accepted":       {append(slices.Clone(args), "--backup", forged.ID, accept), "", "", "is not authentic"},
		"forged, without a key":  {append(slices.Clone(keyless), "--backup", forged.ID, accept), "", "", "not signed with the key of the PKI that is in it"},
		"newest, accepted":       {append(slices.Clone(args), accept), "", "", "name it with --backup"},
		"of another tool":        {append(slices.Clone(args), "--backup", "db.snapshot", "--allow-foreign"), "allowForeign: true", "anyone who can write to the store", ""},
		"the key of another one": {append(slices.Clone(keyless), "--verification-key", stranger(t).Public().String()), "", "", "no backup of prod is good"},
	} {
		out, told, failed := s.run(tt.args...)
		if !strings.Contains(out, tt.out) || !strings.Contains(told, tt.told) || !strings.Contains(failed, tt.failed) ||
			(failed == "") != (tt.failed == "") {
			t.Errorf("%s: %q, %q, %q", name, out, told, failed)
		}
	}
}
