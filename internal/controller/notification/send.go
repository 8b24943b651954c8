package notification

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/notification"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/metrics"
)

// recordTimeout is how long the results of what was sent may take to be recorded while the operator is being stopped.
const recordTimeout = 5 * time.Second

// attempt is one that was made.
type attempt struct {
	notification.Due

	outcome notification.Outcome
	result  notification.Result
}

// send sends what is due about a record. The attempts are recorded before they are made, over the version of the record
// that was read, and their results after them. An operator that is killed in between, or that cannot record a result,
// makes the attempt again, as receivers recognise by the ID.
func (r *Reconciler) send(
	ctx context.Context, s *scope, o client.Object, ledger notification.Ledger, due []notification.Due,
) error {
	ledger = ledger.Claim(due, s.targets, r.Clock.Now())
	if err := r.annotate(ctx, o, ledger, true); err != nil {
		return err
	}

	var made []attempt

	for _, one := range due {
		if ctx.Err() != nil {
			break // the operator is being stopped
		}

		a := attempt{Due: one}

		var err error
		if a.outcome, err = r.try(ctx, s, o, one); err != nil {
			return err
		}

		ledger, a.result = ledger.Settle(one, a.outcome, r.Clock.Now())
		made = append(made, a)
	}

	// What was sent is recorded although the operator is being stopped: otherwise each stop would repeat something.
	writing, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()

	if err := r.annotate(writing, o, ledger, false); client.IgnoreNotFound(err) != nil {
		return err
	}

	for _, a := range made {
		r.report(ctx, s, o, a)
	}

	return nil
}

// try makes one attempt.
func (r *Reconciler) try(
	ctx context.Context, s *scope, o client.Object, one notification.Due,
) (notification.Outcome, error) {
	spec, _ := partsOf(o)
	run := notification.Run{Namespace: o.GetNamespace(), UID: string(o.GetUID()), Spec: spec}

	if o == client.Object(s.cp) { // no run has begun
		run.Spec.ControlPlaneRef.Name = s.cp.Name
	} else {
		run.Name, run.Kind = o.GetName(), kube.KindOf(r.Client, o)
	}

	body, err := run.Body(one.Target.Type, &one.Entry)
	if err != nil {
		return notification.Outcome{}, fmt.Errorf("encoding a notification about %s: %w", o.GetName(), err)
	}

	address, problem, err := r.address(ctx, s, one.Target)
	if err != nil {
		// The others are sent all the same, and what was sent is recorded.
		ctrl.LoggerFrom(ctx).Error(err, "Reading the address of a webhook failed; it is read again later")

		problem = "its Secret cannot be read"
	}

	if problem != "" {
		return notification.Outcome{Why: problem}, nil
	}

	return r.Sender.Send(ctx, address, run.ID(&one.Entry), body), nil
}

// address reads the address of a webhook. The problem with it is what a user can put right, without the address; the
// error is one of the API server.
func (r *Reconciler) address(
	ctx context.Context, s *scope, t notification.Target,
) (address, problem string, err error) {
	secret, ref := &corev1.Secret{}, t.SecretRef

	err = r.Reader.Get(ctx, client.ObjectKey{Namespace: s.cp.Namespace, Name: ref.Name}, secret)

	switch {
	case apierrors.IsNotFound(err):
		problem = fmt.Sprintf("Secret %s does not exist", ref.Name)
	case apierrors.IsForbidden(err):
		problem = fmt.Sprintf("the operator may not read Secret %s", ref.Name)
	case err != nil:
		return "", "", fmt.Errorf("reading Secret %s: %w", ref.Name, err)
	default:
		address = strings.TrimSpace(string(secret.Data[ref.Key]))
		if address == "" {
			problem = fmt.Sprintf("Secret %s has no key %s, or it is empty", ref.Name, ref.Key)
		} else if err := r.Sender.Check(address); err != nil {
			problem = fmt.Sprintf("the address in Secret %s, key %s, cannot be used: %s", ref.Name, ref.Key, err)
		}
	}

	s.problems[t.Key()] = problem

	return address, problem, nil
}

// report counts a delivery that has ended, and tells of one that has failed.
func (r *Reconciler) report(ctx context.Context, s *scope, o client.Object, a attempt) {
	t := a.Target
	log := ctrl.LoggerFrom(ctx).WithValues("record", o.GetName(), "event", a.Entry.Event, "type", t.Type,
		"secret", t.SecretRef.Name)

	switch a.result {
	case notification.ResultSent:
		metrics.NotificationsSent.WithLabelValues(string(t.Type)).Inc()
		log.Info("Sent a notification")
	case notification.ResultFailed:
		metrics.NotificationsFailed.WithLabelValues(string(t.Type)).Inc()
		r.Recorder.Eventf(s.cp, o, corev1.EventTypeWarning, v1alpha1.ReasonNotificationFailed, "Notify",
			"a notification of type %s about %s was not delivered and is not sent again: %s; check the receiver and the "+
				"address in Secret %s, key %s", t.Type, o.GetName(), a.outcome.Why, t.SecretRef.Name, t.SecretRef.Key)
	default:
		log.Info("A notification was not delivered; it is sent again later", "why", a.outcome.Why)
	}
}
