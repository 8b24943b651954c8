package talosetcdrestore

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/pause"
)

// TestNoConditionLies: wherever reconciliations end, in whatever step, paused or not, the conditions tell of that one:
// nothing is claimed to be restored, under way, refused or held that is not.
func TestNoConditionLies(t *testing.T) {
	refused := failure.Terminal(v1alpha1.ReasonRestoreRefused, "it cannot be", nil)
	errs := []error{
		nil, errors.New("the API server is gone"), refused,
		failure.Waiting(v1alpha1.ReasonWaitingForEvidence, "waiting for cp-0 to answer", time.Minute),
	}

	rapid.Check(t, func(t *rapid.T) {
		o := &v1alpha1.TalosEtcdRestore{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r", Generation: 1}}

		for range rapid.IntRange(1, 20).Draw(t, "passes") {
			o.Annotations = nil
			if rapid.Bool().Draw(t, "held") {
				o.Annotations = map[string]string{v1alpha1.PausedAnnotation: "true"}
			}

			s := newScope(o)
			s.hold = pause.Of(o)

			// A reconciliation that is paused goes no further.
			var err error

			if !s.hold.Any() {
				err = rapid.SampledFrom(errs).Draw(t, "error")
				o.Status.Step = rapid.SampledFrom([]v1alpha1.RestoreStep{
					v1alpha1.RestorePreflight, v1alpha1.RestoreWiping, v1alpha1.RestoreRecovering, v1alpha1.RestoreComplete,
				}).Draw(t, "step")
			}

			complete := o.Status.Step == v1alpha1.RestoreComplete
			if complete {
				err = nil
			}

			setConditions(s, err)

			for kind, want := range map[string]bool{
				v1alpha1.ConditionComplete: complete, v1alpha1.ConditionStalled: errors.Is(err, refused),
				v1alpha1.ConditionPaused:      s.hold.Any(),
				v1alpha1.ConditionReconciling: !complete && !s.hold.Any() && !errors.Is(err, refused),
			} {
				if is := meta.IsStatusConditionTrue(o.Status.Conditions, kind); is != want {
					t.Fatalf("%s is %t after %v in step %s: %+v", kind, is, err, o.Status.Step, o.Status.Conditions)
				}
			}

			ready := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionComplete)
			if s.hold.Any() && !complete && ready.Reason != v1alpha1.ReasonPaused {
				t.Fatalf("it is held, and Complete says %+v", ready)
			}
		}
	})
}

// TestStepsSayWhatTheyDo: a step with nothing more precise to report says what it does, and one that has says that.
func TestStepsSayWhatTheyDo(t *testing.T) {
	for step, want := range map[v1alpha1.RestoreStep]string{
		"":                         "checking the backup and the machines",
		v1alpha1.RestorePreflight:  "checking the backup and the machines",
		v1alpha1.RestoreSaving:     "copying the current data of etcd",
		v1alpha1.RestoreWiping:     "wiping the etcd data of the control-plane machines",
		v1alpha1.RestorePreparing:  "preparing the control-plane machines",
		v1alpha1.RestoreUploading:  "uploading the snapshot",
		v1alpha1.RestoreRecovering: "starting etcd from the snapshot",
		v1alpha1.RestoreProving:    "verifying the restored data",
		v1alpha1.RestoreJoining:    "adding the other control-plane machines to etcd",
	} {
		for said, want := range map[string]string{"": want, "waiting for cp-0": "waiting for cp-0"} {
			s := newScope(&v1alpha1.TalosEtcdRestore{Status: v1alpha1.TalosEtcdRestoreStatus{Step: step}})
			s.message = said

			setConditions(s, nil)

			for _, kind := range []string{v1alpha1.ConditionComplete, v1alpha1.ConditionReconciling} {
				c := meta.FindStatusCondition(s.restore.Status.Conditions, kind)
				if c == nil || c.Message != want {
					t.Errorf("step %q says %+v, want %q", step, c, want)
				}
			}
		}
	}
}
