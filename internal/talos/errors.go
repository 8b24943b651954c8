package talos

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/cosi-project/runtime/pkg/state"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/text"
)

// ErrAlreadyExists is returned by a bootstrap if etcd data exists.
var ErrAlreadyExists = errors.New("etcd data exists already")

// ErrNotServing is returned by etcd calls while etcd does not run: the node never responds to them, so they end at
// their deadline.
var ErrNotServing = errors.New("etcd does not respond")

// ErrNoLeader is returned by etcd calls that need a quorum while there is none.
var ErrNoLeader = errors.New("etcd has no leader")

// classify assigns a class to an error of a call to a node. The message names the call and the node; the cause is for
// the log, without the parts of configurations that the node prints.
func classify(call, node string, err error) error {
	if err == nil {
		return nil
	}

	cause := scrubbed(err)

	if isTooMuch(err) {
		return failure.Transient(v1alpha1.ReasonAnswerTooLarge, fmt.Sprintf("%s returned more data for %s than any Talos "+
			"node has: is it a Talos node?", node, call), fmt.Errorf("%w: %w", ErrTooMuch, cause))
	}

	if bad, invalid := errors.AsType[*invalidError](err); invalid {
		return failure.Transient(v1alpha1.ReasonAnswerInvalid, fmt.Sprintf("%s returned an invalid %s for %s; check "+
			"that the address belongs to a Talos node", node, bad.typ, call), cause)
	}

	if isTrust(err) {
		return failure.Auth(v1alpha1.ReasonAuthFailed, node+" rejects the operator's certificate, or presents one that "+
			"the CA of its cluster did not sign", cause)
	}

	if isFull(err) {
		return failure.Transient(v1alpha1.ReasonNodeDiskFull, fmt.Sprintf("%s failed to serve the request for %s: its "+
			"disk is full",
			node, call), cause)
	}

	switch status.Code(err) { //nolint:exhaustive // all others are transient
	case codes.Unauthenticated, codes.PermissionDenied:
		return failure.Auth(v1alpha1.ReasonAuthFailed, fmt.Sprintf("%s denies the request for %s with the operator's "+
			"credentials", node, call), cause)
	case codes.FailedPrecondition:
		return failure.Waiting(
			v1alpha1.ReasonBooting,
			fmt.Sprintf("%s is not ready for %s yet", node, call),
			retryPrecondition,
		)
	case codes.InvalidArgument, codes.Unimplemented:
		return failure.Terminal(v1alpha1.ReasonConfigRefused,
			fmt.Sprintf("%s refused the request for %s: %s", node, call, summary(err)), cause)
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return failure.Transient(v1alpha1.ReasonNodeUnreachable, fmt.Sprintf("%s did not respond to the request for %s",
			node, call), cause)
	}

	return failure.Transient(v1alpha1.ReasonNodeUnreachable, fmt.Sprintf("%s failed to serve the request for %s", node,
		call), cause)
}

// isFull reports whether a node is out of disk space, which it reports only as text.
func isFull(err error) bool {
	s, ok := status.FromError(err)

	return ok && strings.Contains(s.Message(), syscall.ENOSPC.Error())
}

// scrubbed returns the error in a form that may be logged. An error that is not a response of a node is unchanged.
func scrubbed(err error) error {
	if s, ok := status.FromError(err); ok {
		return status.Error(s.Code(), redactText(text.Cut(s.Message(), maxErrorText)))
	}

	// The library hides that this is a response, too.
	if state.IsNotFoundError(err) {
		return errors.New(redactText(text.Cut(err.Error(), maxErrorText)))
	}

	return err
}

// summary returns a rejection in one line.
func summary(err error) string {
	lines := strings.FieldsFunc(redactText(status.Convert(err).Message()), func(r rune) bool { return r == '\n' })
	for i := range lines {
		lines[i] = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(lines[i]), "*"))
	}

	text := []rune(strings.Join(lines, "; "))
	if len(text) > maxSummary {
		text = append(text[:maxSummary], '…')
	}

	return string(text)
}

const maxSummary = 400

// isTrust reports whether a connection failed because one side does not trust the certificate of the other. gRPC passes
// the cause on only as text.
func isTrust(err error) bool {
	var verify *tls.CertificateVerificationError
	if errors.As(err, &verify) {
		return true
	}

	text := err.Error()

	return strings.Contains(text, "x509:") || isCertificateAlert(text)
}

// isCertificateAlert reports whether the other side closed a TLS connection because of a certificate, or because none
// was presented. crypto/tls does not export the type of alerts.
func isCertificateAlert(text string) bool {
	_, alert, found := strings.Cut(text, "remote error: tls: ")

	return found && strings.Contains(alert, "certificate")
}

// serverLead is how much earlier than the caller a node may notice the caller's deadline, which is sent with the call.
const serverLead = 50 * time.Millisecond

// over says why the caller has no more time; nil if it has.
func over(parent context.Context, err error) error {
	if cause := parent.Err(); cause != nil {
		return cause
	}

	if at, ok := parent.Deadline(); ok && isDeadline(err) && time.Until(at) < serverLead {
		return context.DeadlineExceeded
	}

	return nil
}

func isDeadline(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded
}
