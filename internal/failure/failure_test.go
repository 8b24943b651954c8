package failure_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/talos-operator/talos-operator/internal/failure"
)

func TestResult(t *testing.T) {
	plain := errors.New("boom, with the token abc")
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, "x", nil)

	tests := []struct {
		name     string
		err      error
		after    time.Duration
		retried  bool
		terminal bool
		message  string
	}{
		{"success", nil, time.Minute, false, false, ""},
		{"waiting", fmt.Errorf("phase: %w", failure.Waiting("W", "waiting for x", time.Second)), time.Second, false, false, "waiting for x"},
		{"auth", failure.Auth("A", "refused", plain), 30 * time.Second, false, false, "refused"},
		{"terminal", failure.Terminal("T", "broken", plain), time.Minute, true, true, "broken"},
		{"transient", failure.Transient("R", "no answer", plain), 0, true, false, "no answer"},
		{"unknown", plain, 0, true, false, "internal error; see the operator log"},
		{"lost race", fmt.Errorf("writing: %w", conflict), 50 * time.Millisecond, false, false, "internal error; see the " +
			"operator log"},
	}

	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			res, err := failure.Result(ctrl.Result{}, tc.err, time.Minute)
			if res.RequeueAfter != tc.after || (err != nil) != tc.retried || errors.Is(err, reconcile.TerminalError(nil)) != tc.terminal {
				t.Errorf("got %v, %v", res, err)
			}

			if got := failure.Message(tc.err); got != tc.message {
				t.Errorf("message %q, want %q", got, tc.message)
			}
		})
	}
}

// TestRevisit: a refusal is reconciled again, and is no failure to count or to back off from; what else fails is.
func TestRevisit(t *testing.T) {
	boom := errors.New("boom")

	for _, tc := range []struct {
		err   error
		after time.Duration
		want  error
	}{
		{failure.Terminal("T", "broken", nil), time.Minute, nil},
		{boom, 0, boom},
		{nil, time.Minute, nil},
	} {
		r := failure.Revisit(reconcile.Func(func(context.Context, ctrl.Request) (ctrl.Result, error) {
			return failure.Result(ctrl.Result{}, tc.err, time.Minute)
		}))

		if res, err := r.Reconcile(t.Context(), ctrl.Request{}); res.RequeueAfter != tc.after || !errors.Is(err, tc.want) {
			t.Errorf("%v: %v, %v", tc.err, res, err)
		}
	}
}
