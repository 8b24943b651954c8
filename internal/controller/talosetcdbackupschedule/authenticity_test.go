package talosetcdbackupschedule_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/test/harness"
)

func unsigned(r *backup.Request) { r.Sign = nil }

// forged says that it is of our cluster, and is signed with another PKI.
func (e *env) forged() func(*backup.Request) {
	e.Helper()

	other, err := harness.NewState(cluster, endpoint)
	if err != nil {
		e.Fatal(err)
	}

	return func(r *backup.Request) {
		if r.Sign, err = other.Bundle.BackupKey(); err != nil {
			e.Fatal(err)
		}
	}
}

// TestPlantedBackups: newer backups that a stranger wrote do not push ours out, and are told of.
func TestPlantedBackups(t *testing.T) {
	e := newEnv(t)
	forge := e.forged()
	old, second, newest := e.keep(5*time.Hour), e.keep(4*time.Hour), e.keep(3*time.Hour)

	for i := range 5 {
		e.keep(time.Duration(i+1)*time.Minute, forge)
	}

	plain := []string{e.keep(2*time.Hour, unsigned), e.keep(time.Hour, unsigned)}

	o := e.schedule(last(2))
	e.later(o, time.Second)
	e.finish(e.slot(0))
	e.until(o, "the store is looked at", func() bool { return o.Status.Stored != nil })

	left := e.kept()
	if slices.Contains(left, old) || !slices.Contains(left, second) || !slices.Contains(left, newest) {
		t.Errorf("left are %v", left)
	}

	if len(left) != 2+5+len(plain) || o.Status.Stored.Count != 4 {
		t.Errorf("left are %v, stored %+v", left, o.Status.Stored)
	}

	e.Condition(o, v1alpha1.ConditionRetentionApplied, metav1.ConditionTrue, v1alpha1.ReasonRetentionApplied, "5 not authentic")
	e.Condition(o, v1alpha1.ConditionRetentionApplied, metav1.ConditionTrue, v1alpha1.ReasonRetentionApplied, "2 without a signature")

	if !e.told(backup.ReasonNotAuthentic) {
		t.Error("nobody was told of the forged ones")
	}
}

// TestVerificationOfTheAuthentic: the newest backup is the newest that the cluster signed, and the result is signed.
func TestVerificationOfTheAuthentic(t *testing.T) {
	e := newEnv(t)
	id := e.keep(3 * time.Hour)
	e.keep(2*time.Hour, unsigned)
	e.keep(time.Hour, e.forged())

	o := e.schedule(e.verification(v1alpha1.VerificationChecksum))
	e.later(o, time.Second)
	e.until(o, "it is verified", func() bool { return o.Status.Verification != nil })
	e.Condition(o, v1alpha1.ConditionVerified, metav1.ConditionTrue, v1alpha1.ReasonVerified, id)

	content, err := os.ReadFile(e.dir + "/" + backup.Prefix(cluster) + id + ".verified.json")
	if err != nil {
		t.Fatal(err)
	}

	key, err := e.state.Bundle.BackupVerificationKey()
	if err != nil {
		t.Fatal(err)
	}

	if !strings.Contains(string(content), key.String()) {
		t.Errorf("it is not signed: %s", content)
	}
}

// TestVerificationOfTheUnsigned: what an older version made has to do until there is another one.
func TestVerificationOfTheUnsigned(t *testing.T) {
	e := newEnv(t)
	id := e.keep(2*time.Hour, unsigned)
	e.keep(time.Hour, e.forged())

	o := e.schedule(e.verification(v1alpha1.VerificationChecksum))
	e.later(o, time.Second)
	e.until(o, "it is verified", func() bool { return o.Status.Verification != nil })
	e.Condition(o, v1alpha1.ConditionVerified, metav1.ConditionTrue, v1alpha1.ReasonVerified, id)
}

// TestStrippedRecoveryPoint: a newest backup that has lost its signature in the store is no recovery point. One that
// a stranger adds changes nothing.
func TestStrippedRecoveryPoint(t *testing.T) {
	e := newEnv(t)
	o := e.schedule(e.verification(v1alpha1.VerificationChecksum), func(s *spec) { s.Suspend = false })
	e.keep(time.Hour)
	id := e.keep(0)
	e.later(o, time.Second)

	b := e.finish(e.slot(0))
	b.Status.BackupID, b.Status.VerificationKey = id, "ed25519:x"
	e.UpdateStatus(b)
	e.keep(-time.Second, unsigned)

	e.until(o, "it is verified", func() bool { return o.Status.Verification != nil && o.Status.Stored != nil })
	e.Condition(o, v1alpha1.ConditionVerified, metav1.ConditionTrue, v1alpha1.ReasonVerified, id)
	e.Condition(o, v1alpha1.ConditionRecoveryPointMet, metav1.ConditionTrue, v1alpha1.ReasonRecoveryPointMet, "")

	name := e.dir + "/" + backup.Prefix(cluster) + id + ".manifest.json"

	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}

	m := map[string]any{}
	if err := json.Unmarshal(content, &m); err != nil {
		t.Fatal(err)
	}

	delete(m, "signature")
	m["version"] = 1

	if content, err = json.Marshal(m); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}

	harness.Change(e.Env, o, func(o *v1alpha1.TalosEtcdBackupSchedule) { o.Spec.Suspend = true })
	e.later(o, time.Hour)
	e.until(o, "it is found", func() bool { return len(e.failures()) > 0 })
	e.Condition(o, v1alpha1.ConditionVerified, metav1.ConditionFalse, backup.ReasonNotAuthentic, id)
	e.Condition(o, v1alpha1.ConditionRecoveryPointMet, metav1.ConditionFalse, v1alpha1.ReasonBackupDamaged, "")
}
