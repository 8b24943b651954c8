package talosetcdbackup_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/storage"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/lab/s3"
	"github.com/talos-operator/talos-operator/test/harness"
)

// refusal is one thing that is wrong before the first byte, and how it is put right.
type refusal struct {
	name   string
	spec   func(*v1alpha1.TalosEtcdBackup)
	wrong  func(*env)
	mend   func(*env)
	reason string
	part   string
}

func refusals() []refusal {
	password := func(key string) func(*env) {
		return func(e *env) {
			harness.Change(e.Env, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: "s3"}}, func(s *corev1.Secret) {
				s.Data[storage.SecretAccessKey] = []byte(key)
			})
		}
	}
	recipients := func(value func(*env) string) func(*env) {
		return func(e *env) {
			harness.Change(e.Env, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: "age"}}, func(s *corev1.Secret) {
				s.Data["recipients"] = []byte(value(e))
			})
		}
	}
	answers := func(status int, code string) func(*env) {
		return func(e *env) {
			e.proxy.Set(func(*http.Request) s3.Fault { return s3.Fault{Status: status, Code: code} })
		}
	}
	healthy := func(e *env) { e.proxy.Set(nil) }

	return []refusal{
		{
			name: "another password, and then the right one", wrong: password("not the password"),
			mend:   func(e *env) { password(e.s3.SecretKey)(e) },
			reason: store.ReasonForbidden, part: "rejects the operator's credentials",
		},
		{
			name: "no bucket", spec: func(b *v1alpha1.TalosEtcdBackup) { b.Spec.Storage.S3.Bucket = "nobody-made-this" },
			reason: store.ReasonNotFound, part: "nobody-made-this",
		},
		{
			name: "no credentials", spec: func(b *v1alpha1.TalosEtcdBackup) { b.Spec.Storage.S3.CredentialsRef.Name = "gone" },
			mend: func(e *env) {
				e.CreateSecret("gone", map[string]string{
					storage.AccessKeyID: e.s3.AccessKey, storage.SecretAccessKey: e.s3.SecretKey,
				})
			},
			reason: storage.ReasonSecret, part: "gone",
		},
		{
			name: "another CA", spec: func(b *v1alpha1.TalosEtcdBackup) { b.Spec.Storage.S3.CAFrom = nil },
			reason: store.ReasonUntrusted, part: "certificate",
		},
		{
			name:   "recipients that are none, and then some",
			wrong:  recipients(func(*env) string { return "age1nonsense" }),
			mend:   recipients(func(e *env) string { return e.id.Recipient().String() }),
			reason: backup.ReasonRecipients, part: "recipient",
		},
		{name: "503", wrong: answers(http.StatusServiceUnavailable, "SlowDown"), mend: healthy, reason: store.ReasonUnavailable},
		{name: "403", wrong: answers(http.StatusForbidden, "AccessDenied"), mend: healthy, reason: store.ReasonForbidden},
		{
			name: "nobody writes there", mend: healthy, reason: store.ReasonForbidden,
			wrong: func(e *env) { e.proxy.Set(on(http.MethodPut, "/", s3.Fault{Status: 403, Code: "AccessDenied"})) },
		},
	}
}

// TestRefusals: what is wrong is told with a reason before a byte is read from the node; nothing is left in the store;
// and once it is put right, the same object succeeds.
func TestRefusals(t *testing.T) {
	for _, c := range refusals() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			e := newEnv(t, must(t, modelled))
			if c.wrong != nil {
				c.wrong(e)
			}

			edits := []func(*v1alpha1.TalosEtcdBackup){}
			if c.spec != nil {
				edits = append(edits, c.spec)
			}

			b := e.backup("b", edits...)
			e.fails(b, v1alpha1.ConditionReady, c.reason)
			e.Condition(b, v1alpha1.ConditionReady, metav1.ConditionFalse, c.reason, c.part)
			e.empty("after the refusal")

			if b.Status.Tries != 0 || b.Status.BackupID != "" || b.Status.Failures == 0 {
				t.Errorf("status %s", harness.Show(b))
			}

			if _, counted := e.failed.Load(c.reason); !counted {
				t.Errorf("the failure %s is not counted", c.reason)
			}

			if c.mend != nil {
				c.mend(e)
				e.done(b)
			}

			e.keepsSecrets("not the password")
		})
	}
}

// TestWithoutControlPlane: a backup may be older than its control plane. It waits, and says for what.
func TestWithoutControlPlane(t *testing.T) {
	t.Parallel()

	e := newEnv(t, must(t, modelled))
	b := e.backup("b", func(b *v1alpha1.TalosEtcdBackup) { b.Spec.ControlPlaneRef.Name = "later" })
	e.fails(b, v1alpha1.ConditionReady, v1alpha1.ReasonWaitingForControlPlane)
	e.Condition(b, v1alpha1.ConditionReconciling, metav1.ConditionTrue, v1alpha1.ReasonWaitingForControlPlane, "later")

	if b.Status.Failures != 0 || b.Status.Tries != 0 {
		t.Errorf("waiting counts as a failure: %s", harness.Show(b))
	}
}

// TestAPIRefuses: root credentials are not stored in the clear by accident, and a backup does not change its place.
func TestAPIRefuses(t *testing.T) {
	t.Parallel()

	e := newEnv(t, must(t, modelled))

	for want, edit := range map[string]func(*v1alpha1.TalosEtcdBackup){
		"set recipients, recipientsFrom or allowUnencrypted": func(b *v1alpha1.TalosEtcdBackup) { b.Spec.RecipientsFrom = nil },
		"set recipients or allowUnencrypted, not both":       func(b *v1alpha1.TalosEtcdBackup) { b.Spec.AllowUnencrypted = true },
		"set exactly one of s3 and directory":                func(b *v1alpha1.TalosEtcdBackup) { b.Spec.Storage.Directory = &v1alpha1.DirectoryStorage{} },
		"Database and Drill read the snapshot": func(b *v1alpha1.TalosEtcdBackup) {
			b.Spec.Verification = &v1alpha1.BackupVerification{Level: v1alpha1.VerificationDrill}
		},
		"spec.recipients[0] in body should match '^age1[": func(b *v1alpha1.TalosEtcdBackup) { b.Spec.Recipients = []string{"ssh-rsa"} },
	} {
		if err := e.Admin.Create(t.Context(), e.object("b", edit)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}

	b := e.backup("b")
	b.Spec.Storage.S3.Bucket = "another"

	if err := e.Admin.Update(t.Context(), b); err == nil || !strings.Contains(err.Error(), "immutable") {
		t.Errorf("the place of a backup was changed: %v", err)
	}
}

// TestHeldByARestore: what a restore is about to wipe must not look like a backup of the cluster.
func TestHeldByARestore(t *testing.T) {
	t.Parallel()

	e := newEnv(t, must(t, modelled))
	r := &v1alpha1.TalosEtcdRestore{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: "r"},
		Spec: v1alpha1.TalosEtcdRestoreSpec{
			ControlPlaneRef: v1alpha1.ObjectReference{Name: cluster},
			Source:          v1alpha1.RestoreSource{BackupRef: &v1alpha1.ObjectReference{Name: "older"}},
		},
	}
	e.Create(r)

	b := e.backup("b")
	e.fails(b, v1alpha1.ConditionReady, v1alpha1.ReasonRestoreInProgress)
	e.Condition(b, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonRestoreInProgress, "TalosEtcdRestore r")
	e.empty("during a restore")

	// One that waits for a person goes on by itself, once that person has repaired what it waits for. Where it has touched
	// nothing yet, it does not keep the cluster from its backups until then.
	meta.SetStatusCondition(&r.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonBackupNotFound,
	})
	e.restoreAt(r, v1alpha1.RestorePreparing)
	e.Clock.Sleep(time.Hour)

	if _, err := e.pass(b); err != nil {
		t.Error(err)
	}

	e.Condition(b, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonRestoreInProgress, "TalosEtcdRestore r")

	e.restoreAt(r, v1alpha1.RestorePreflight)
	e.done(b)
}

// TestNamedByARestore: a restore that waits for a backup does not keep that backup from being taken.
func TestNamedByARestore(t *testing.T) {
	t.Parallel()

	e := newEnv(t, must(t, modelled))
	r := &v1alpha1.TalosEtcdRestore{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: "r"},
		Spec: v1alpha1.TalosEtcdRestoreSpec{
			ControlPlaneRef: v1alpha1.ObjectReference{Name: cluster},
			Source:          v1alpha1.RestoreSource{BackupRef: &v1alpha1.ObjectReference{Name: "b"}},
		},
	}
	e.Create(r)
	meta.SetStatusCondition(&r.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionComplete, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonBackupNotFound,
	})
	e.restoreAt(r, v1alpha1.RestorePreflight)

	e.done(e.backup("b"))
}

// restoreAt says that a restore is at a step.
func (e *env) restoreAt(r *v1alpha1.TalosEtcdRestore, step v1alpha1.RestoreStep) {
	e.Helper()

	r.Status.Step = step
	e.UpdateStatus(r)
}

// TestPaused: an annotation on the control plane pauses its backups, and what is paused is not a failure.
func TestPaused(t *testing.T) {
	t.Parallel()

	e := newEnv(t, must(t, modelled))
	pause := func(value string) {
		cp := e.fleet.ControlPlane(e.Namespace, 1)
		harness.Change(e.Env, cp, func(cp *v1alpha1.TalosControlPlane) {
			metav1.SetMetaDataAnnotation(&cp.ObjectMeta, v1alpha1.PausedAnnotation, value)
		})
	}

	pause("true")

	b := e.backup("b")
	e.until(b, "it is paused", func() bool {
		return meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionPaused)
	})

	for range 3 {
		if _, err := e.pass(b); err != nil {
			t.Error(err)
		}
	}

	e.empty("while it is paused")

	if len(b.Finalizers) > 0 {
		t.Errorf("a backup that is held has got %v: who moves it elsewhere would never be rid of it", b.Finalizers)
	}

	pause("false")
	e.done(b)

	if meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionPaused) != nil {
		t.Errorf("status %s", harness.Show(b))
	}
}

// TestStoreLosesABackup: a store that says yes and has nothing is found out.
func TestStoreLosesABackup(t *testing.T) {
	t.Parallel()

	e := newEnv(t, must(t, modelled))
	e.proxy.Set(on(http.MethodPut, ".snap.zst.age", s3.Fault{Swallow: true}))

	b := e.backup("b")
	e.fails(b, v1alpha1.ConditionReady, store.ReasonLost)
	e.empty("after the store lost the snapshot")
	e.proxy.Set(nil)
	e.done(b)
}
