// Package failure sorts errors into classes: what to do about one, and what to tell a person. An error without a class
// is transient.
package failure

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Class is what kind of failure an error is.
type Class int

// Classes.
const (
	// ClassTransient: try again with backoff.
	ClassTransient Class = iota
	// ClassWaiting: nothing is wrong, something has to happen first.
	ClassWaiting
	// ClassAuth: the other side refuses our credentials. Never followed by an attempt without them.
	ClassAuth
	// ClassTerminal: only a change by a person helps.
	ClassTerminal
)

// authRetry is how soon refused credentials are tried again.
const authRetry = 30 * time.Second

// conflictRetry is how soon a reconciliation that lost a race is repeated.
const conflictRetry = 50 * time.Millisecond

// Error is a classified error.
type Error struct {
	// Class of the error.
	Class Class
	// Reason is a condition reason.
	Reason string
	// Message is stable and holds no secrets, times or ports.
	Message string
	// After is how soon to reconcile again.
	After time.Duration
	// Err is the cause; it goes to the log only.
	Err error
	// Elsewhere: the object that was read is in another shard, with all that it belongs to, and that one works on it.
	Elsewhere bool
	// Left: the object that was read is in another shard itself; what it belongs to may be in this one.
	Left bool
}

// Error implements error.
func (e *Error) Error() string {
	if e.Err != nil && e.Err.Error() != e.Message {
		return fmt.Sprintf("%s: %s", e.Message, e.Err)
	}

	return e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Waiting says that something has to happen first; reconcile again after the given time at the latest.
func Waiting(reason, message string, after time.Duration) error {
	return &Error{Class: ClassWaiting, Reason: reason, Message: message, After: after}
}

// Terminal says that only a person can help.
func Terminal(reason, message string, err error) error {
	return &Error{Class: ClassTerminal, Reason: reason, Message: message, Err: err}
}

// Auth says that credentials were refused.
func Auth(reason, message string, err error) error {
	return &Error{Class: ClassAuth, Reason: reason, Message: message, After: authRetry, Err: err}
}

// Transient says that a call failed in a way that a repeat may repair.
func Transient(reason, message string, err error) error {
	return &Error{Class: ClassTransient, Reason: reason, Message: message, Err: err}
}

// Gone reports whether a controller has nothing to do with the object that it was asked to reconcile: it does not
// exist, or its cluster is in another shard. What is remembered of it, and what runs for it, has to end. An error about
// any other object must not be taken for this.
func Gone(err error) bool {
	var e *Error

	return apierrors.IsNotFound(err) || errors.As(err, &e) && e.Elsewhere
}

// Left tells whether an object that could not be read is in another shard by its own label.
func Left(err error) bool {
	var e *Error

	return errors.As(err, &e) && e.Left
}

// IgnoreGone returns nil for an error that is Gone.
func IgnoreGone(err error) error {
	if Gone(err) {
		return nil
	}

	return err
}

// ClassOf returns the class of an error; unknown errors are transient.
func ClassOf(err error) Class {
	var e *Error
	if errors.As(err, &e) {
		return e.Class
	}

	return ClassTransient
}

// Reason returns the condition reason of an error, empty when it has none.
func Reason(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}

	return ""
}

// Message returns what to tell a person. The text of unclassified errors stays in the log: it may hold anything.
func Message(err error) string {
	var e *Error

	switch {
	case err == nil:
		return ""
	case errors.As(err, &e):
		return e.Message
	}

	return "internal error; see the operator log"
}

// Revisit wraps a reconciler so that what it refuses is reconciled again after the time that it says. A refusal stops
// writes, and may depend on other objects; what is true of the nodes goes on to change meanwhile, and
// controller-runtime forgets an object after a terminal error.
func Revisit(next reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
		res, err := next.Reconcile(ctx, req)

		// The object could not even be read, because it has to be somewhere else first. That is no failure to back off from.
		if ClassOf(err) == ClassWaiting {
			ctrl.LoggerFrom(ctx).Info("Waiting", "reason", Reason(err), "error", err.Error())

			return Result(res, err, 0)
		}

		if !errors.Is(err, reconcile.TerminalError(nil)) {
			return res, err
		}

		ctrl.LoggerFrom(ctx).Info("Refused, until the spec or what it depends on changes", "reason", Reason(err),
			"error", err.Error())

		return res, nil
	})
}

// Result maps the outcome of a reconciliation to what controller-runtime understands. What is terminal goes through
// Revisit.
func Result(res ctrl.Result, err error, resync time.Duration) (ctrl.Result, error) {
	if err == nil {
		if res.IsZero() {
			res.RequeueAfter = resync
		}

		return res, nil
	}

	// Another client wrote in between: read again what is there now. That is no failure to back off from.
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: conflictRetry}, nil
	}

	var e *Error
	if !errors.As(err, &e) {
		return ctrl.Result{}, err
	}

	switch e.Class {
	case ClassWaiting, ClassAuth:
		return ctrl.Result{RequeueAfter: e.After}, nil
	case ClassTerminal:
		return ctrl.Result{RequeueAfter: resync}, reconcile.TerminalError(err)
	case ClassTransient:
	}

	return ctrl.Result{}, err
}
