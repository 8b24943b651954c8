package cli_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/test/wait"
)

// clusterFile is the manifest of a control plane of one and a worker.
func clusterFile(t *testing.T, name string) string {
	t.Helper()

	return manifestFile(t, fmt.Sprintf(`
# Written by hand.
apiVersion: talos-operator.io/v1alpha1
kind: TalosControlPlane
metadata: {name: %[1]s}
spec:
  talosVersion: %[2]s
  kubernetesVersion: %[3]s
  endpoint: https://10.0.0.1:6443
  machines: [{name: cp-1, address: 10.0.0.1}]
---
apiVersion: talos-operator.io/v1alpha1
kind: TalosWorker
metadata: {name: %[1]s-workers}
spec:
  controlPlaneRef: {name: %[1]s}
  machines: [{name: w-1, address: 10.0.0.2}]
`, name, talosV, kubernetes))
}

func manifestFile(t *testing.T, content string) string {
	t.Helper()

	path := filepath.Join(t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}

	return path
}

// restores of a namespace.
func (s *shell) restores(namespace string) []v1alpha1.TalosEtcdRestore {
	s.t.Helper()

	list := &v1alpha1.TalosEtcdRestoreList{}
	if err := s.client.List(s.t.Context(), list, client.InNamespace(namespace)); err != nil {
		s.t.Fatal(err)
	}

	return list.Items
}

func kindsOf(t *testing.T, manifest string) []string {
	t.Helper()

	var out []string

	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifest), 4096)

	for {
		o := &unstructured.Unstructured{}
		if err := decoder.Decode(&o.Object); err == io.EOF { //nolint:errorlint // decoders return it as it is
			return out
		} else if err != nil {
			t.Fatal(err)
		}

		out = append(out, o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName())
	}
}

// TestRecoverFromNothing: an empty management plane and a bucket. It is shown first, asked about, and then made in an
// order that may be interrupted anywhere.
func TestRecoverFromNothing(t *testing.T) {
	s := newShellOf(t, root) // the namespace is not there
	v := newVault(t, false)
	id, key := keyFile(t)
	ns := s.ns + "-new"

	take(t, v, "prod", 1, id.Recipient().String())
	newest := take(t, v, "prod", 2, id.Recipient().String())
	args := append([]string{"recover", "-f", clusterFile(t, "prod"), "-n", ns, "-i", key, "--verification-key", signer(t).Public().String()}, v.flags...)
	name := "prod-" + strings.ToLower(newest.ID)

	out, _, failed := s.run(append(args, "--dry-run")...)
	for _, want := range []string{
		"prod: TalosControlPlane prod in namespace " + ns + ", which is not there yet", newest.ID + ", 8h ago", "verified: no",
		"cp-1 10.0.0.1", "w-1 10.0.0.2", "TalosEtcdRestore " + name, "stops before it touches any", "Nothing was changed",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s%s", want, out, failed)
		}
	}

	out, _, failed = s.run(append(args, "--dry-run", "-o", "yaml")...)
	want := []string{
		"Namespace /" + ns, "Secret " + ns + "/prod-recovery-identity", "Secret " + ns + "/prod-recovery-storage",
		"TalosEtcdRestore " + ns + "/" + name, "TalosControlPlane " + ns + "/prod", "TalosWorker " + ns + "/prod-workers",
	}

	if diff := cmp.Diff(want, kindsOf(t, out)); diff != "" || failed != "" {
		t.Errorf("%s, objects (-want +got):\n%s", failed, diff)
	}

	for _, secret := range []string{id.String(), v.server.SecretKey, v.server.AccessKey, "BEGIN CERTIFICATE"} {
		if strings.Contains(out, secret) {
			t.Errorf("%.10s… is printed", secret)
		}
	}

	s.input = "n\n"
	_, told, failed := s.run(args...)

	err := s.client.Get(t.Context(), client.ObjectKey{Name: ns}, &corev1.Namespace{})
	if !strings.Contains(failed, "it was not confirmed") || !strings.Contains(told, "Go on? [y/N]") || !apierrors.IsNotFound(err) {
		t.Errorf("not confirmed: %q, %q, %v", failed, told, err)
	}

	s.input = "y\n"
	out, told, failed = s.run(append(args, "--wait=false")...)

	if failed != "" || !strings.Contains(out, "TalosEtcdRestore "+name+" is made") || strings.Contains(told+out, id.String()) {
		t.Fatalf("%q, %q, %q", out, told, failed)
	}

	s.recovering(ns, name, v, id.String(), newest)

	// Interrupted: the last object was not made, and a newer backup is there since. It goes on without a question.
	worker := &v1alpha1.TalosWorker{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "prod-workers"}}
	if err := s.client.Delete(t.Context(), worker); err != nil {
		t.Fatal(err)
	}

	take(t, v, "prod", 3, id.Recipient().String())

	s.input = ""
	_, told, failed = s.run(append(args, "--wait=false")...)

	if failed != "" || !strings.Contains(told, "TalosEtcdRestore "+name+" is at step Preflight and goes on") {
		t.Errorf("again: %q, %q", told, failed)
	}

	s.recovering(ns, name, v, id.String(), newest)
}

// recovering: all objects are as they should be, and there is one restore.
func (s *shell) recovering(ns, name string, v *vault, identity string, m *backup.Manifest) {
	t := s.t
	t.Helper()

	restores := s.restores(ns)
	if len(restores) != 1 || restores[0].Name != name {
		t.Fatalf("%d restores: %+v", len(restores), restores)
	}

	before := metav1.NewTime(m.StartedAt.Add(time.Second).Local())
	want := v1alpha1.TalosEtcdRestoreSpec{
		ControlPlaneRef: v1alpha1.ObjectReference{Name: "prod"},
		Source: v1alpha1.RestoreSource{
			Storage: &v1alpha1.BackupStorage{S3: &v1alpha1.S3Storage{
				Endpoint: v.server.Endpoint(), Bucket: bucket, Prefix: "deep/down",
				CAFrom:         &v1alpha1.SecretKeyReference{Name: "prod-recovery-storage", Key: "ca.crt"},
				CredentialsRef: &v1alpha1.ObjectReference{Name: "prod-recovery-storage"},
			}},
			Before: &before, VerificationKeys: []string{signer(t).Public().String()},
		},
		IdentitiesFrom: []v1alpha1.SecretKeyReference{{Name: "prod-recovery-identity", Key: "identity"}},
	}
	if diff := cmp.Diff(want, restores[0].Spec); diff != "" {
		t.Errorf("the restore (-want +got):\n%s", diff)
	}

	cp, worker, secret := &v1alpha1.TalosControlPlane{}, &v1alpha1.TalosWorker{}, &corev1.Secret{}

	for name, o := range map[string]client.Object{"prod": cp, "prod-workers": worker, "prod-recovery-identity": secret} {
		if err := s.client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, o); err != nil {
			t.Fatal(err)
		}
	}

	if !strings.Contains(string(secret.Data["identity"]), identity) || len(worker.Spec.Machines) != 1 {
		t.Error("the objects are not what was asked for")
	}

	if cp.ManagedFields[0].Manager != "kubectl" || restores[0].CreationTimestamp.After(cp.CreationTimestamp.Time) {
		t.Errorf("the control plane is of %s, and from %s", cp.ManagedFields[0].Manager, cp.CreationTimestamp)
	}
}

// TestRecoverExisting: a cluster that is there is restored from a backup of its schedule, with its identities. What was
// asked for before and has touched nothing goes; what works on the cluster stays.
func TestRecoverExisting(t *testing.T) {
	s := newShell(t)
	v := newVault(t, false)
	id, _ := keyFile(t)

	s.controlPlane("prod")
	s.schedule("nightly", "prod", v, id)

	older := take(t, v, "prod", 1, id.Recipient().String())
	newest := take(t, v, "prod", 2, id.Recipient().String())

	_, told, failed := s.run("recover", "prod", "--yes", "--wait=false")
	if failed != "" || !strings.Contains(told, newest.ID) || !strings.Contains(told, "which is there") {
		t.Fatalf("%q, %q", told, failed)
	}

	_, told, failed = s.run("recover", "prod", "--backup", older.ID, "--schedule", "nightly", "--discard-newer-data", "--yes",
		"--wait=false", "--lost-machine", "prod-cp", "--last-snapshot", "Try", "--verification", "Drill")
	if failed != "" || !strings.Contains(told, "which has touched nothing") || !strings.Contains(told, "what the cluster wrote after") {
		t.Fatalf("%q, %q", told, failed)
	}

	made := s.restores(s.ns)
	if len(made) != 1 {
		t.Fatalf("%d restores", len(made))
	}

	spec := made[0].Spec
	if spec.Source.Key != older.ID || spec.Source.Before != nil || !spec.DiscardNewerData || spec.Verification != "Drill" ||
		spec.LastSnapshot != "Try" || !slices.Equal(spec.LostMachines, []string{"prod-cp"}) ||
		spec.IdentitiesFrom[0].Name != "nightly-keys" || spec.Source.Storage.S3.CredentialsRef.Name != "nightly-keys" {
		t.Errorf("%+v", spec)
	}

	secrets := &corev1.SecretList{}
	if err := s.client.List(t.Context(), secrets, client.InNamespace(s.ns)); err != nil || len(secrets.Items) != 1 {
		t.Errorf("%d Secrets: %v", len(secrets.Items), err)
	}

	// It works on the cluster: something else is refused.
	made[0].Status.Step = v1alpha1.RestoreWiping
	if err := s.client.Status().Update(t.Context(), &made[0]); err != nil {
		t.Fatal(err)
	}

	_, _, failed = s.run("recover", "prod", "--yes", "--wait=false")
	if !strings.Contains(failed, "nothing was changed: TalosEtcdRestore "+made[0].Name+" is restoring the cluster "+
		"(step Wiping)") {
		t.Errorf("%q", failed)
	}

	// Stopped: the next one has another name.
	made[0].Status.Step = v1alpha1.RestoreStopped
	if err := s.client.Status().Update(t.Context(), &made[0]); err != nil {
		t.Fatal(err)
	}

	if _, _, failed = s.run("recover", "prod", "--backup", older.ID, "--yes", "--wait=false"); failed != "" {
		t.Fatal(failed)
	}

	if made = s.restores(s.ns); len(made) != 2 || made[1].Name != "prod-"+strings.ToLower(older.ID)+"-2" {
		t.Errorf("%+v", made)
	}

	s.recoverObject(v, older)
}

// recoverObject: the backup is that of a TalosEtcdBackup.
func (s *shell) recoverObject(v *vault, m *backup.Manifest) {
	t := s.t
	t.Helper()

	schedule := &v1alpha1.TalosEtcdBackupSchedule{}
	if err := s.client.Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: "nightly"}, schedule); err != nil {
		t.Fatal(err)
	}

	b := &v1alpha1.TalosEtcdBackup{
		ObjectMeta: metav1.ObjectMeta{Name: "by-hand"}, Spec: schedule.Spec.BackupTemplate.Spec,
	}
	s.create(b)

	now := metav1.NewTime(wait.Now())
	b.Status.BackupID, b.Status.Key, b.Status.CompletedAt = m.ID, backup.Prefix("prod")+m.ID+".manifest.json", &now

	if err := s.client.Status().Update(t.Context(), b); err != nil {
		t.Fatal(err)
	}

	out, _, failed := s.run("recover", "prod", "--backup", "by-hand", "--dry-run", "-o", "yaml")
	if failed != "" || !strings.Contains(out, "backupRef:\n      name: by-hand") || strings.Contains(out, "storage:") {
		t.Errorf("%q: %s", failed, out)
	}

	out, _, failed = s.run("backup", "inspect", "--backup", "by-hand")
	if failed != "" || !strings.Contains(out, m.ID) || !strings.Contains(out, "revision 7") {
		t.Errorf("%q: %s", failed, out)
	}
}

// TestRecoverFollows: every step is told once, and the end is how it ended; a restore that is complete is not repeated.
func TestRecoverFollows(t *testing.T) {
	s := newShell(t)
	st, dir := folder(t)
	m := take(t, st, "prod", 1)
	_, key := keyFile(t)
	s.controlPlane("prod")

	args := []string{"recover", "prod", "--storage", dir, "--directory-path", "a/b", "--yes", "--timeout", "1h", "-i", key}
	name := "prod-" + strings.ToLower(m.ID)

	go s.restoring(name, func(r *v1alpha1.TalosEtcdRestore) {
		r.Status.Step, r.Status.Revision = v1alpha1.RestoreComplete, 17
		r.Status.Backup = &v1alpha1.RestoredBackup{ID: m.ID}
		r.Status.Steps = append(r.Status.Steps, stepOf(v1alpha1.RestoreProving, "4 Secrets that can be read"),
			stepOf(v1alpha1.RestoreComplete, "1 members"))
		meta.SetStatusCondition(&r.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionComplete, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonRestored,
		})
	})

	out, told, failed := s.run(args...)
	for _, want := range []string{
		"Cluster prod runs from backup " + m.ID, "Proof: 4 Secrets that can be read.",
		"kubectl get secret prod-kubeconfig -n " + s.ns, "beside the age identity:\n  " + signer(t).Public().String(),
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s%s", want, out, failed)
		}
	}

	if strings.Count(told, "Preflight          done in 1.0s  it is good") != 1 || !strings.Contains(told, "Uploading          sending") {
		t.Errorf("told: %s", told)
	}

	out, told, failed = s.run(append(args, "-o", "json")...)

	var result struct {
		Complete bool
		Revision int64
		Backup   string
	}
	if err := json.Unmarshal([]byte(out), &result); err != nil || failed != "" || !result.Complete || result.Revision != 17 ||
		result.Backup != m.ID || !strings.Contains(told, "it runs from this backup already") || len(s.restores(s.ns)) != 1 {
		t.Errorf("again: %v, %q, %q: %s", err, failed, told, out)
	}

	// No key is needed: the backup is not encrypted.
	secrets := &corev1.SecretList{}
	if err := s.client.List(t.Context(), secrets, client.InNamespace(s.ns)); err != nil || len(secrets.Items) > 0 {
		t.Errorf("%d Secrets, %v", len(secrets.Items), err)
	}

	go s.restoring(name+"-2", func(r *v1alpha1.TalosEtcdRestore) {
		r.Status.Step = v1alpha1.RestoreStopped
		meta.SetStatusCondition(&r.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonDataWouldBeLost, Message: "it has data",
		})
	})

	out, _, failed = s.run(append(args, "--again")...)
	if out != "" || !strings.Contains(failed, "TalosEtcdRestore "+name+"-2 was stopped: it has data (DataWouldBeLost)") {
		t.Errorf("%q, %q", out, failed)
	}

	_, _, failed = s.run(append(args, "--again", "--timeout", "1s")...)
	if !strings.Contains(failed, "goes on without this command") || !strings.Contains(failed, "waiting for the operator") {
		t.Errorf("%q", failed)
	}
}

func stepOf(step v1alpha1.RestoreStep, message string) v1alpha1.RestoreStepStatus {
	at := metav1.NowMicro()
	end := metav1.NewMicroTime(at.Add(time.Second))

	return v1alpha1.RestoreStepStatus{Step: step, StartedAt: at, CompletedAt: &end, Message: message}
}

// restoring does what the operator would.
func (s *shell) restoring(name string, end func(*v1alpha1.TalosEtcdRestore)) {
	s.t.Helper()

	r := &v1alpha1.TalosEtcdRestore{}

	s.play(client.ObjectKey{Namespace: s.ns, Name: name}, r, act{"", func() {
		r.Status.Step = v1alpha1.RestoreUploading
		r.Status.Steps = []v1alpha1.RestoreStepStatus{stepOf(v1alpha1.RestorePreflight, "it is good")}
		meta.SetStatusCondition(&r.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonRestoring, Message: "sending",
		})
	}}, act{"sending", func() { end(r) }})
}

// TestRecoverChooses: a damaged backup is passed over with a word, and what cannot work is refused before anything is
// made.
func TestRecoverChooses(t *testing.T) {
	s := newShell(t)
	st, dir := folder(t)
	id, key := keyFile(t)
	_, strange := keyFile(t)

	good := take(t, st, "prod", 1, id.Recipient().String())
	bad := take(t, st, "prod", 2, id.Recipient().String())
	other := take(t, st, "stage", 3, id.Recipient().String())
	put(t, st, "db.snapshot", realSnapshot(t))

	object := backup.Prefix("prod") + bad.State.Name
	content := readObject(t, st, object)
	overwrite(t, st, object, bytes.Repeat([]byte("x"), len(content)))

	top := manifestFile(t, fmt.Sprintf(`
apiVersion: vitistack.io/v1alpha1
kind: KubernetesCluster
metadata: {name: top, namespace: %s}
spec:
  clusterName: prod
  talosVersion: %s
  kubernetesVersion: %s
  clusterEndpoint: https://10.0.0.1:6443
  controlPlane:
    replicas: 3
    machineTemplate: {spec: {provider: {name: static, addresses: [10.0.0.1, 10.0.0.2]}}}
  workers: [{name: w, replicas: 3}]
`, s.ns, talosV, kubernetes))

	args := []string{"recover", "--storage", dir, "--yes", "--wait=false", "--verification-key", signer(t).Public().String()}

	out, told, failed := s.run(append(args, "-f", top, "-i", key)...)
	if failed != "" || !strings.Contains(told, "Warning: backup "+bad.ID+" is passed over: ") || !strings.Contains(told, good.ID) ||
		!strings.Contains(told, "10.0.0.1, 10.0.0.2, 1 from provider static") ||
		!strings.Contains(told, "3 from any provider") || out == "" {
		t.Errorf("%q, %q, %q", out, told, failed)
	}

	cluster := &vitistackv1alpha1.KubernetesCluster{}
	if err := s.client.Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: "top"}, cluster); err != nil {
		t.Error(err)
	}

	file := clusterFile(t, "stage")
	empty := manifestFile(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n")
	broken := manifestFile(t, "kind: [")

	s.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "stage-recovery-identity"}})

	for name, tt := range map[string]struct {
		args []string
		says string
	}{
		"no cluster":       {nil, "say which cluster"},
		"unknown cluster":  {[]string{"x"}, "name its manifest with -f"},
		"no such file":     {[]string{"-f", "/nowhere"}, "reading the manifest"},
		"broken manifest":  {[]string{"-f", broken}, "reading the manifest"},
		"empty manifest":   {[]string{"-f", empty}, "it must have one of either"},
		"another name":     {[]string{"x", "-f", file}, "is of TalosControlPlane stage, and not of x"},
		"no identity":      {[]string{"-f", top, "--backup", good.ID}, "name the file of its age identity"},
		"another identity": {[]string{"-f", top, "--backup", good.ID, "-i", strange}, "was not encrypted for"},
		"damaged":          {[]string{"-f", top, "--backup", bad.ID, "-i", key}, "is damaged"},
		"another cluster":  {[]string{"-f", top, "--backup", other.ID, "--cluster", "stage", "-i", key}, "is of cluster stage, and KubernetesCluster top makes cluster prod"},
		"foreign":          {[]string{"-f", top, "--backup", "db.snapshot"}, "was written by another tool"},
		"taken Secret":     {[]string{"-f", file, "-i", key}, "was not made by this command"},
		"no backup before": {[]string{"-f", file, "--before", "100h"}, "has no complete backup of cluster stage"},
		"two choices":      {[]string{"-f", file, "--before", "1h", "--latest"}, "[before latest]"},
		"two stores":       {[]string{"prod", "--schedule", "x"}, "none of the others can be"},
	} {
		if out, _, failed := s.run(append(slices.Clone(args), tt.args...)...); !strings.Contains(failed, tt.says) || out != "" {
			t.Errorf("%s: %q, %q", name, failed, out)
		}
	}

	if n := len(s.restores(s.ns)); n != 1 {
		t.Errorf("%d restores", n)
	}
}
