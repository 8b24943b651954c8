package talosetcdbackupschedule_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/examples"
	"github.com/talos-operator/talos-operator/test/harness"
)

type spec = v1alpha1.TalosEtcdBackupScheduleSpec

func duration(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

// TestSchedule: a backup is made at its time and not before, and a schedule with nothing to do writes nothing.
func TestSchedule(t *testing.T) {
	e := newEnv(t)
	o := e.schedule()

	if res := e.pass(o); res.RequeueAfter != time.Second {
		t.Errorf("looks again in %s, and the first backup is due in a second", res.RequeueAfter)
	}

	e.only("before its time")
	e.Condition(o, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonScheduled, "")
	e.absent(o, v1alpha1.ConditionRecoveryPointMet)
	e.absent(o, v1alpha1.ConditionVerified)

	if next := o.Status.NextScheduleTime; next == nil || !next.After(e.Clock.Now()) || o.Status.LastScheduleTime != nil {
		t.Errorf("next %v, last %v", next, o.Status.LastScheduleTime)
	}

	e.later(o, time.Second)
	e.only("at its time", e.slot(0))
	e.Condition(o, v1alpha1.ConditionReconciling, metav1.ConditionTrue, v1alpha1.ReasonBackingUp, e.slot(0))

	b := e.backup(e.slot(0))
	if o.Status.Active != b.Name || !o.Status.LastScheduleTime.Time.Equal(e.Clock.Now()) || len(b.OwnerReferences) != 0 ||
		b.Labels[v1alpha1.ScheduleLabel] != name || b.Spec.ControlPlaneRef.Name != cluster {
		t.Errorf("status %+v, backup %+v", o.Status, b)
	}

	e.later(o, 20*time.Minute)
	e.finish(e.slot(0))
	e.until(o, "the store is looked at", func() bool { return o.Status.Stored != nil })

	if o.Status.Active != "" || o.Status.LastSuccessBackup != e.slot(0) || o.Status.LastSuccessTime == nil {
		t.Errorf("status %+v", o.Status)
	}

	e.absent(o, v1alpha1.ConditionReconciling)

	before := e.Client.Writes()

	for range 10 {
		if res := e.later(o, time.Minute); res.RequeueAfter < 20*time.Minute {
			t.Errorf("looks again in %s", res.RequeueAfter)
		}
	}

	if n := e.Client.Writes() - before; n != 0 {
		t.Errorf("%d writes with nothing to do", n)
	}

	e.later(o, 30*time.Minute)
	e.only("an hour later", e.slot(0), e.slot(1))
}

// TestCrash: whatever write the operator dies after, there is one backup for each time.
func TestCrash(t *testing.T) {
	e := newEnv(t)
	o := e.schedule()
	e.Clock.Sleep(time.Second)

	want := []string{}

	for round := range 4 {
		want = append(want, e.slot(round))
		e.Client.DieAfter(1 + round%2)

		if _, err := e.tryPass(o); !errors.Is(err, harness.ErrDead) {
			t.Fatalf("round %d: %v", round, err)
		}

		e.restart()
		e.pass(o)
		e.only("after a crash", want...)
		e.finish(e.slot(round))
		e.until(o, "it is seen", func() bool { return o.Status.LastSuccessBackup == e.slot(round) })
		e.Clock.Sleep(time.Hour)
	}
}

// TestClock: of times that were missed one is made up for, and a clock that is set back neither repeats nor silences.
func TestClock(t *testing.T) {
	e := newEnv(t)
	o := e.schedule()
	e.pass(o)

	e.later(o, 10*time.Hour)
	e.only("ten hours later", e.slot(9))
	e.finish(e.slot(9))
	e.pass(o)

	e.later(o, -2*time.Hour)
	e.only("set back", e.slot(9))

	if next := o.Status.NextScheduleTime; next == nil || next.Sub(e.Clock.Now()) > time.Hour {
		t.Errorf("the next one is at %v, and it is %v", next, e.Clock.Now())
	}

	e.later(o, time.Second)
	e.only("a time that was passed over", e.slot(8), e.slot(9))
	e.finish(e.slot(8))
	e.later(o, time.Hour)
	e.only("a time that was handled", e.slot(8), e.slot(9))
	e.later(o, time.Hour)
	e.only("a new time", e.slot(8), e.slot(9), e.slot(10))
}

// TestDeadline: what could not start in time is told of and not made up for.
func TestDeadline(t *testing.T) {
	e := newEnv(t)
	o := e.schedule(func(s *spec) { s.StartingDeadline = duration(10 * time.Minute) })
	e.pass(o)

	e.later(o, 2*time.Hour+11*time.Minute)
	e.only("too late")

	if !e.told(v1alpha1.ReasonBackupMissed) || o.Status.LastScheduleTime == nil {
		t.Error("nobody was told, or it is not handled")
	}

	e.later(o, time.Hour-2*time.Minute)
	e.only("in time", e.slot(3))
}

// TestForbid: while a backup runs none is made.
func TestForbid(t *testing.T) {
	e := newEnv(t)
	o := e.schedule()
	e.later(o, time.Second)
	e.told("")
	e.later(o, time.Hour)
	e.only("the first one runs", e.slot(0))

	if !e.told(v1alpha1.ReasonBackupSkipped) || o.Status.Active != e.slot(0) {
		t.Errorf("nobody was told; active %q", o.Status.Active)
	}

	e.finish(e.slot(0))
	e.later(o, time.Minute)
	e.only("what was skipped is not made up for", e.slot(0))
	e.later(o, time.Hour)
	e.only("the next one", e.slot(0), e.slot(2))
}

// TestReplace: the backup that runs is ended first, and its data is not deleted with it.
func TestReplace(t *testing.T) {
	e := newEnv(t)
	o := e.schedule(func(s *spec) {
		s.ConcurrencyPolicy = v1alpha1.ConcurrencyReplace
		s.BackupTemplate.Spec.DeletionPolicy = v1alpha1.BackupDelete
	})
	e.later(o, time.Second)

	// The controller of backups holds it until its work has ended.
	harness.Change(e.Env, e.backup(e.slot(0)), func(b *v1alpha1.TalosEtcdBackup) { b.Finalizers = []string{v1alpha1.Finalizer} })

	for range 3 {
		e.later(o, time.Hour)
		e.only("it ends", e.slot(0))
		e.Condition(o, v1alpha1.ConditionReconciling, metav1.ConditionTrue, v1alpha1.ReasonBackupReplaced, e.slot(0))
	}

	old := e.backup(e.slot(0))
	if old.DeletionTimestamp.IsZero() || old.Spec.DeletionPolicy != v1alpha1.BackupRetain {
		t.Errorf("deleted %v, with policy %s", old.DeletionTimestamp, old.Spec.DeletionPolicy)
	}

	harness.Change(e.Env, old, func(b *v1alpha1.TalosEtcdBackup) { b.Finalizers = nil })
	e.later(o, time.Minute)
	e.only("it is gone", e.slot(3))
}

// TestHeld: whatever holds a schedule, no backup is made until it is let go, and then one.
func TestHeld(t *testing.T) {
	paused := func(o client.Object, key, value string) {
		a := o.GetAnnotations()
		if a == nil {
			a = map[string]string{}
		}

		a[key] = value
		if value == "" {
			delete(a, key)
		}

		o.SetAnnotations(a)
	}

	own := func(key, value string) func(*env, *v1alpha1.TalosEtcdBackupSchedule) {
		return func(e *env, o *v1alpha1.TalosEtcdBackupSchedule) {
			harness.Change(e.Env, o, func(o *v1alpha1.TalosEtcdBackupSchedule) { paused(o, key, value) })
		}
	}

	plane := func(key, value string) func(*env, *v1alpha1.TalosEtcdBackupSchedule) {
		return func(e *env, _ *v1alpha1.TalosEtcdBackupSchedule) {
			cp := &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: cluster}}
			harness.Change(e.Env, cp, func(cp *v1alpha1.TalosControlPlane) { paused(cp, key, value) })
		}
	}

	suspend := func(is bool) func(*env, *v1alpha1.TalosEtcdBackupSchedule) {
		return func(e *env, o *v1alpha1.TalosEtcdBackupSchedule) {
			harness.Change(e.Env, o, func(o *v1alpha1.TalosEtcdBackupSchedule) { o.Spec.Suspend = is })
		}
	}

	for name, tt := range map[string]struct {
		hold, release func(*env, *v1alpha1.TalosEtcdBackupSchedule)
		kind, reason  string
	}{
		"suspended": {suspend(true), suspend(false), v1alpha1.ConditionReady, v1alpha1.ReasonSuspended},
		"paused": {
			own(v1alpha1.PausedAnnotation, "true"), own(v1alpha1.PausedAnnotation, ""),
			v1alpha1.ConditionPaused, v1alpha1.ReasonPaused,
		},
		"the control plane is paused": {
			plane(v1alpha1.PausedAnnotation, "true"), plane(v1alpha1.PausedAnnotation, ""),
			v1alpha1.ConditionPaused, v1alpha1.ReasonPaused,
		},
		"dry run": {
			own(v1alpha1.ReconcileModeAnnotation, "DryRun"), own(v1alpha1.ReconcileModeAnnotation, ""),
			v1alpha1.ConditionPaused, v1alpha1.ReasonDryRun,
		},
		"disabled": {
			plane(v1alpha1.ReconcileModeAnnotation, "Disabled"), plane(v1alpha1.ReconcileModeAnnotation, ""),
			v1alpha1.ConditionPaused, v1alpha1.ReasonDisabled,
		},
		"a restore": {
			func(e *env, _ *v1alpha1.TalosEtcdBackupSchedule) {
				e.Create(&v1alpha1.TalosEtcdRestore{
					ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: "back"},
					Spec: v1alpha1.TalosEtcdRestoreSpec{
						ControlPlaneRef: v1alpha1.ObjectReference{Name: cluster},
						Source:          v1alpha1.RestoreSource{BackupRef: &v1alpha1.ObjectReference{Name: "b"}},
					},
				})
			},
			func(e *env, _ *v1alpha1.TalosEtcdBackupSchedule) {
				restore := &v1alpha1.TalosEtcdRestore{}
				e.Get(restore, "back")

				restore.Status.Step = v1alpha1.RestoreComplete
				e.UpdateStatus(restore)
			},
			v1alpha1.ConditionReconciling, v1alpha1.ReasonRestoreInProgress,
		},
		"no control plane": {
			func(e *env, _ *v1alpha1.TalosEtcdBackupSchedule) {
				cp := &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: cluster}}
				e.Delete(cp)
			},
			func(e *env, _ *v1alpha1.TalosEtcdBackupSchedule) {
				e.Create(e.controlPlane())
			},
			v1alpha1.ConditionReady, v1alpha1.ReasonWaitingForControlPlane,
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			o := e.schedule()
			e.pass(o)

			first := e.slot(2)

			tt.hold(e, o)
			e.later(o, 150*time.Minute)
			e.only("held")

			if c := meta.FindStatusCondition(o.Status.Conditions, tt.kind); c == nil || c.Reason != tt.reason {
				t.Errorf("condition %s: %+v", tt.kind, c)
			}

			if tt.kind == v1alpha1.ConditionPaused && tt.reason != v1alpha1.ReasonDisabled {
				e.Condition(o, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonPaused, "no backups are made")
			}

			before := e.Client.Writes()
			e.later(o, time.Minute)

			if n := e.Client.Writes() - before; n != 0 {
				t.Errorf("%d writes while it is held", n)
			}

			tt.release(e, o)
			e.later(o, time.Second)
			e.only("let go", first)
			e.absent(o, v1alpha1.ConditionPaused)
		})
	}
}

// TestInvalid: a schedule that never fires, or a zone that does not exist, is told, and can be corrected.
func TestInvalid(t *testing.T) {
	for name, tt := range map[string]struct {
		break_ func(*spec)
		part   string
	}{
		"30 February": {func(s *spec) { s.Schedule = "0 0 30 2 *" }, "never fires"},
		"no cron":     {func(s *spec) { s.Schedule = "every day" }, "no cron expression"},
		"the zone":    {func(s *spec) { s.TimeZone = "Middle/Earth" }, "time zone"},
		"the verification": {func(s *spec) {
			s.Verification = &v1alpha1.ScheduledVerification{
				Schedule: "0 0 31 11 *", BackupVerification: v1alpha1.BackupVerification{Level: v1alpha1.VerificationChecksum},
			}
		}, "verification.schedule"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			o := e.schedule(tt.break_, func(s *spec) { s.MaxAge = duration(2 * time.Hour) })
			res := e.later(o, time.Second)
			e.only("invalid")
			e.Condition(o, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonInvalidSchedule, tt.part)
			e.Condition(o, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonInvalidSchedule, tt.part)

			if !e.told(v1alpha1.ReasonInvalidSchedule) || o.Status.NextScheduleTime != nil || res.RequeueAfter <= time.Second {
				t.Errorf("next %v, again in %s", o.Status.NextScheduleTime, res.RequeueAfter)
			}

			// It is watched all the same.
			e.later(o, 3*time.Hour)
			e.Condition(o, v1alpha1.ConditionRecoveryPointMet, metav1.ConditionFalse, v1alpha1.ReasonRecoveryPointMissed, "2h")

			harness.Change(e.Env, o, func(o *v1alpha1.TalosEtcdBackupSchedule) {
				o.Spec.Schedule, o.Spec.TimeZone, o.Spec.Verification = e.cron(), "Europe/Oslo", nil
			})
			e.pass(o)
			e.only("mended", e.slot(3))
			e.absent(o, v1alpha1.ConditionStalled)
		})
	}
}

// TestRecoveryPoint: the condition tells when the last good backup is too old, and when there is a new one.
func TestRecoveryPoint(t *testing.T) {
	e := newEnv(t)
	o := e.schedule(func(s *spec) { s.MaxAge = duration(90 * time.Minute) })
	e.pass(o)
	e.Condition(o, v1alpha1.ConditionRecoveryPointMet, metav1.ConditionUnknown, v1alpha1.ReasonNoBackupYet, "")

	e.later(o, time.Second)
	e.finish(e.slot(0))
	e.until(o, "the store is looked at", func() bool { return o.Status.Stored != nil })
	e.Condition(o, v1alpha1.ConditionRecoveryPointMet, metav1.ConditionTrue, v1alpha1.ReasonRecoveryPointMet, "1h30m")

	e.later(o, time.Hour)
	e.fail(e.slot(1))
	res := e.pass(o)
	e.Condition(o, v1alpha1.ConditionRecoveryPointMet, metav1.ConditionTrue, v1alpha1.ReasonRecoveryPointMet, "")
	e.Condition(o, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonBackupFailed, "the store says no")

	if !e.told(v1alpha1.ReasonBackupFailed) || res.RequeueAfter != 30*time.Minute+time.Second {
		t.Errorf("looks again in %s, and the recovery point is missed in 30m", res.RequeueAfter)
	}

	e.later(o, res.RequeueAfter)
	e.Condition(o, v1alpha1.ConditionRecoveryPointMet, metav1.ConditionFalse, v1alpha1.ReasonRecoveryPointMissed, "1h30m")

	if !e.told(v1alpha1.ReasonRecoveryPointMissed) {
		t.Error("nobody was told")
	}

	e.later(o, 30*time.Minute)
	e.finish(e.slot(2))
	e.pass(o)
	e.Condition(o, v1alpha1.ConditionRecoveryPointMet, metav1.ConditionTrue, v1alpha1.ReasonRecoveryPointMet, "")
	e.Condition(o, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonScheduled, "")

	// The newest one turns out to be bad: the one before counts.
	bad := e.backup(e.slot(2))
	meta.SetStatusCondition(&bad.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "BackupCorrupt", Message: "it is damaged",
	})

	e.UpdateStatus(bad)

	e.pass(o)

	if o.Status.LastSuccessBackup != e.slot(0) {
		t.Errorf("the last good one is %s", o.Status.LastSuccessBackup)
	}

	e.Condition(o, v1alpha1.ConditionRecoveryPointMet, metav1.ConditionFalse, v1alpha1.ReasonRecoveryPointMissed, "")
}

// TestHistory: old objects go, the data that they stand for does not, and neither does the newest good one.
func TestHistory(t *testing.T) {
	e := newEnv(t)
	successful, failed := int32(2), int32(1)
	o := e.schedule(func(s *spec) {
		s.SuccessfulHistory, s.FailedHistory = &successful, &failed
		s.BackupTemplate.Spec.DeletionPolicy = v1alpha1.BackupDelete
	})
	e.Clock.Sleep(time.Second)

	for i := range 6 {
		e.pass(o)
		harness.Change(e.Env, e.backup(e.slot(i)), func(b *v1alpha1.TalosEtcdBackup) { b.Finalizers = []string{v1alpha1.Finalizer} })

		if i == 1 || i == 3 {
			e.fail(e.slot(i))
		} else {
			e.finish(e.slot(i))
		}

		e.later(o, time.Hour-time.Second)
		e.Clock.Sleep(time.Second)
	}

	gone := []string{}

	for _, name := range e.backups() {
		if b := e.backup(name); !b.DeletionTimestamp.IsZero() {
			gone = append(gone, name)

			if b.Spec.DeletionPolicy != v1alpha1.BackupRetain {
				t.Errorf("%s takes its data along", name)
			}
		}
	}

	if want := []string{e.slot(0), e.slot(1), e.slot(2)}; !slices.Equal(gone, want) {
		t.Errorf("gone are %v, want %v", gone, want)
	}
}

// TestScheduleDeleted: its backups stay, and one of the same name goes on from them.
func TestScheduleDeleted(t *testing.T) {
	e := newEnv(t)
	o := e.schedule()
	e.later(o, time.Second)
	e.finish(e.slot(0))
	e.pass(o)

	e.Delete(o)

	e.pass(o)
	e.only("the schedule is gone", e.slot(0))

	again := e.schedule()
	e.pass(again)
	e.only("made anew", e.slot(0))

	if again.Status.LastSuccessBackup != e.slot(0) {
		t.Errorf("the last good one is %q", again.Status.LastSuccessBackup)
	}
}

// TestNameTaken: an object of the name that another owner made is not taken for the backup.
func TestNameTaken(t *testing.T) {
	e := newEnv(t)
	o := e.schedule()
	b := &v1alpha1.TalosEtcdBackup{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: e.slot(0)}, Spec: o.Spec.BackupTemplate.Spec,
	}
	e.Create(b)
	e.later(o, time.Second)
	e.Condition(o, v1alpha1.ConditionReconciling, metav1.ConditionTrue, v1alpha1.ReasonNameConflict, b.Name)

	e.Delete(b)

	e.later(o, time.Minute)

	if made := e.backup(e.slot(0)); !strings.Contains(made.Labels[v1alpha1.ScheduleLabel], name) {
		t.Errorf("%+v", made.Labels)
	}
}

// TestExample: the example is accepted as it is, and fires.
func TestExample(t *testing.T) {
	e := newEnv(t)
	o := &v1alpha1.TalosEtcdBackupSchedule{}

	if err := yaml.UnmarshalStrict(examples.BackupSchedule, o); err != nil {
		t.Fatal(err)
	}

	o.Namespace, o.Spec.BackupTemplate.Spec.ControlPlaneRef.Name = e.Namespace, cluster
	e.Create(o)
	e.pass(o)
	e.Condition(o, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonScheduled, "")

	if o.Status.NextScheduleTime == nil {
		t.Error("it never fires")
	}
}
