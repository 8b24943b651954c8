package cli_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/test/wait"
)

// controlPlane makes one that no controller works on.
func (s *shell) controlPlane(name string) {
	s.t.Helper()

	cp := &v1alpha1.TalosControlPlane{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.TalosControlPlaneSpec{
			TalosVersion: talosV, KubernetesVersion: kubernetes, Endpoint: "https://10.0.0.1:6443",
			Machines: []v1alpha1.MachineEntry{{Name: name + "-cp", Address: "10.0.0.1"}},
		},
	}
	s.create(cp)

	cp.Status.BackupVerificationKey = signer(s.t).Public().String()
	if err := s.client.Status().Update(s.t.Context(), cp); err != nil {
		s.t.Fatal(err)
	}
}

// backups of the namespace.
func (s *shell) backups() []v1alpha1.TalosEtcdBackup {
	s.t.Helper()

	list := &v1alpha1.TalosEtcdBackupList{}
	if err := s.client.List(s.t.Context(), list, client.InNamespace(s.ns)); err != nil {
		s.t.Fatal(err)
	}

	return list.Items
}

// TestBackupCreate: from the template of a schedule, or from flags, and never without a word on who can read it.
func TestBackupCreate(t *testing.T) {
	s := newShell(t)
	s.controlPlane("prod")
	s.controlPlane("lone")

	id, _ := keyFile(t)
	v := newVault(t, false)
	schedule := s.schedule("nightly", "prod", v, id)

	out, _, failed := s.run("backup", "create", "--control-plane", "prod")
	if failed != "" || !strings.Contains(out, "is made; kubectl get talosetcdbackup prod-") {
		t.Fatalf("%q, %q", out, failed)
	}

	made := s.backups()
	if len(made) != 1 || made[0].Labels[v1alpha1.ScheduleLabel] != "" {
		t.Fatalf("%+v", made)
	}

	if diff := cmp.Diff(schedule.Spec.BackupTemplate.Spec, made[0].Spec); diff != "" {
		t.Errorf("the spec is not the template (-want +got):\n%s", diff)
	}

	_, _, failed = s.run("backup", "create", "--control-plane", "lone", "--name", "by-hand", "--storage", "s3://other/a/b",
		"--s3-endpoint", "https://s3.example.com", "--s3-credentials-secret", "keys", "--s3-ca-secret", "ca/ca.crt",
		"--recipient", id.Recipient().String())
	if failed != "" {
		t.Fatal(failed)
	}

	got := &v1alpha1.TalosEtcdBackup{}
	if err := s.client.Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: "by-hand"}, got); err != nil {
		t.Fatal(err)
	}

	want := v1alpha1.TalosEtcdBackupSpec{
		ControlPlaneRef: v1alpha1.ObjectReference{Name: "lone"},
		Storage: v1alpha1.BackupStorage{S3: &v1alpha1.S3Storage{
			Endpoint: "https://s3.example.com", Bucket: "other", Prefix: "a/b",
			CAFrom:         &v1alpha1.SecretKeyReference{Name: "ca", Key: "ca.crt"},
			CredentialsRef: &v1alpha1.ObjectReference{Name: "keys"},
		}},
		Recipients: []string{id.Recipient().String()},
	}
	if diff := cmp.Diff(want, got.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}

	s.schedule("weekly", "prod", v)
	s.createRefuses()

	if n := len(s.backups()); n != 2 {
		t.Errorf("%d backups were made", n)
	}
}

func (s *shell) createRefuses() {
	s.t.Helper()

	for name, tt := range map[string]struct {
		args []string
		says string
	}{
		"nothing named":        {nil, "at least one of the flags in the group [control-plane schedule] is required"},
		"no control plane":     {[]string{"--control-plane", "x", "--storage", "dir:/x", "--allow-unencrypted"}, "no TalosControlPlane x"},
		"no schedule":          {[]string{"--control-plane", "lone"}, "has no TalosEtcdBackupSchedule"},
		"several schedules":    {[]string{"--control-plane", "prod"}, "nightly, weekly"},
		"of another":           {[]string{"--control-plane", "lone", "--schedule", "nightly"}, "is one of prod, and not of lone"},
		"unknown schedule":     {[]string{"--schedule", "x"}, "no TalosEtcdBackupSchedule x"},
		"for nobody":           {[]string{"--control-plane", "lone", "--storage", "s3://abc"}, "name who can read it"},
		"private key":          {[]string{"--control-plane", "lone", "--storage", "s3://abc", "--recipient", "AGE-SECRET-KEY-1X"}, "spec.recipients"},
		"schedule's own":       {[]string{"--schedule", "nightly", "--recipient", "age1"}, "a schedule has its own"},
		"CA without a key":     {[]string{"--control-plane", "lone", "--storage", "s3://abc", "--s3-ca-secret", "x"}, "use NAME/KEY"},
		"keys for a directory": {[]string{"--control-plane", "lone", "--storage", "dir:/x", "--s3-credentials-secret", "x"}, "go with --storage s3"},
	} {
		if _, _, failed := s.run(append([]string{"backup", "create"}, tt.args...)...); !strings.Contains(failed, tt.says) {
			s.t.Errorf("%s: %q", name, failed)
		}
	}
}

// TestBackupCreateWaits: what the operator says is told line by line, and the exit code is how it ended.
func TestBackupCreateWaits(t *testing.T) {
	s := newShell(t)
	s.controlPlane("prod")

	args := func(name string, more ...string) []string {
		return append([]string{
			"backup", "create", "--control-plane", "prod", "--storage", "dir:x", "--allow-unencrypted", "--name", name, "--wait", "--timeout", "1h",
		}, more...)
	}

	go s.operate("good", func(b *v1alpha1.TalosEtcdBackup) {
		now, size := metav1.NewTime(wait.Now()), resource.MustParse("12Mi")
		b.Status.BackupID, b.Status.CompletedAt, b.Status.StoredSize = "20261122T060000Z-1a2b3c4d", &now, &size
		b.Status.Verification = &v1alpha1.VerificationStatus{Level: v1alpha1.VerificationChecksum, Time: now}
		meta.RemoveStatusCondition(&b.Status.Conditions, v1alpha1.ConditionReconciling)
		meta.SetStatusCondition(&b.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionComplete, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonBackupComplete,
		})
	})

	out, told, failed := s.run(args("good", "-o", "json")...)

	var result struct {
		ID, Verified string
		Complete     bool
		Size         int64
	}
	if err := json.Unmarshal([]byte(out), &result); failed != "" || err != nil || !result.Complete || result.Size != 12<<20 ||
		result.Verified != "Checksum" || result.ID == "" {
		t.Errorf("%v, %q: %s", err, failed, out)
	}

	if !strings.Contains(told, "reading the snapshot") || !strings.Contains(told, "waiting for the operator") {
		t.Errorf("told: %q", told)
	}

	go s.operate("bad", func(b *v1alpha1.TalosEtcdBackup) {
		meta.SetStatusCondition(&b.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: "StoreForbidden", Message: "it refuses us",
		})
	})

	out, _, failed = s.run(args("bad")...)
	if out != "" || !strings.Contains(failed, "TalosEtcdBackup bad failed: it refuses us (StoreForbidden)") {
		t.Errorf("%q, %q", out, failed)
	}

	_, _, failed = s.run(args("slow", "--timeout", "1s")...)
	if !strings.Contains(failed, "slow is not complete yet, and goes on without this command") {
		t.Errorf("%q", failed)
	}
}

// operate does what the operator would: it works a while, and then ends as it is told.
func (s *shell) operate(name string, end func(*v1alpha1.TalosEtcdBackup)) {
	s.t.Helper()

	b := &v1alpha1.TalosEtcdBackup{}

	// Each step waits until the command has observed the one before.
	s.play(client.ObjectKey{Namespace: s.ns, Name: name}, b, act{"waiting for the operator", func() {
		b.Status.ObservedGeneration = b.Generation
		meta.SetStatusCondition(&b.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonBackingUp,
			Message: "reading the snapshot",
		})
	}}, act{"reading the snapshot", func() { end(b) }})
}

// act is a change of an object's status once the running command has said something.
type act struct {
	said   string
	change func()
}

// play changes the status of an object, step by step, from when a command makes it. It runs beside the test.
func (s *shell) play(key client.ObjectKey, o client.Object, acts ...act) {
	s.t.Helper()

	ctx := s.t.Context()

	err := wait.Until(ctx, key.Name+" is made", func(ctx context.Context) error { return s.client.Get(ctx, key, o) })

	for _, a := range acts {
		if err == nil {
			err = s.says(ctx, a.said)
		}

		if err == nil {
			a.change()
			err = s.client.Status().Update(ctx, o)
		}
	}

	if err != nil {
		s.t.Error(err)
	}
}
