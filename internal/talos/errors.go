package talos

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// ErrAlreadyExists is what a bootstrap answers where etcd data exists.
var ErrAlreadyExists = errors.New("etcd data exists already")

// ErrNotServing is what etcd calls end with where etcd does not run: the node never answers them, so the deadline does.
var ErrNotServing = errors.New("etcd does not respond")

// ErrNoLeader is what etcd calls end with that need a quorum, while there is none.
var ErrNoLeader = errors.New("etcd has no leader")

// classify gives an error of a call to a node its class. The message names call and node; the cause goes to the log,
// without what the node prints of configs.
func classify(call, node string, err error) error {
	if err == nil {
		return nil
	}

	cause := scrubbed(err)

	if isTooMuch(err) {
		return failure.Transient(v1alpha1.ReasonAnswerTooLarge, fmt.Sprintf("%s returned more data for %s than any Talos "+
			"node has: is it a Talos node?", node, call), fmt.Errorf("%w: %w", ErrTooMuch, cause))
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

// isFull tells whether a node has answered that nothing more fits on its disk: it hands that on as text only.
func isFull(err error) bool {
	s, ok := status.FromError(err)

	return ok && strings.Contains(s.Message(), syscall.ENOSPC.Error())
}

// scrubbed is the error as it may be logged. What is no answer of a node is left as it is.
func scrubbed(err error) error {
	if s, ok := status.FromError(err); ok {
		text := s.Message()
		if len(text) > maxErrorText {
			text = strings.ToValidUTF8(text[:maxErrorText], "") + "…"
		}

		return status.Error(s.Code(), redactText(text))
	}

	return err
}

// summary is a refusal in one line.
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

// isTrust tells whether a connection failed because the other side's certificate is not of our CA, or because it does
// not take ours. gRPC hands the cause on as text only.
func isTrust(err error) bool {
	var verify *tls.CertificateVerificationError
	if errors.As(err, &verify) {
		return true
	}

	text := err.Error()

	return strings.Contains(text, "x509:") || isCertificateAlert(text)
}

// isCertificateAlert tells whether the other side ended a TLS connection because of a certificate, or for want of one.
// crypto/tls does not export the type of alerts.
func isCertificateAlert(text string) bool {
	_, alert, found := strings.Cut(text, "remote error: tls: ")

	return found && strings.Contains(alert, "certificate")
}

// serverLead is how much earlier than the caller a node may notice that the caller's time is over: a deadline travels
// with the call.
const serverLead = 50 * time.Millisecond

// over says why the caller has no more time, nil when it has.
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
