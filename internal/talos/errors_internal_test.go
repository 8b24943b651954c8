package talos

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
)

func TestClassify(t *testing.T) {
	tests := []struct {
		err    error
		class  failure.Class
		reason string
	}{
		{status.Error(codes.Unavailable, "connection refused"), failure.ClassTransient, v1alpha1.ReasonNodeUnreachable},
		{status.Error(codes.DeadlineExceeded, ""), failure.ClassTransient, v1alpha1.ReasonNodeUnreachable},
		{status.Error(codes.Canceled, ""), failure.ClassTransient, v1alpha1.ReasonNodeUnreachable},
		{status.Error(codes.Unknown, "etcdserver: unhealthy"), failure.ClassTransient, v1alpha1.ReasonNodeUnreachable},
		{status.Error(codes.ResourceExhausted, ""), failure.ClassTransient, v1alpha1.ReasonNodeUnreachable},
		{status.Error(codes.Aborted, ""), failure.ClassTransient, v1alpha1.ReasonNodeUnreachable},
		{
			status.Error(codes.Unknown, "write /var/lib/etcd.snapshot: no space left on device"),
			failure.ClassTransient, v1alpha1.ReasonNodeDiskFull,
		},
		// Our own disk, not that of the node.
		{
			fmt.Errorf("reading: %w", syscall.ENOSPC),
			failure.ClassTransient, v1alpha1.ReasonNodeUnreachable,
		},
		{errors.New("anything"), failure.ClassTransient, v1alpha1.ReasonNodeUnreachable},
		{status.Error(codes.Unauthenticated, ""), failure.ClassAuth, v1alpha1.ReasonAuthFailed},
		{status.Error(codes.PermissionDenied, "not authorized"), failure.ClassAuth, v1alpha1.ReasonAuthFailed},
		{
			status.Error(codes.Unavailable, "authentication handshake failed: tls: failed to verify certificate: x509: "+
				"certificate signed by unknown authority"),
			failure.ClassAuth, v1alpha1.ReasonAuthFailed,
		},
		{
			status.Error(codes.Unavailable, "error reading server preface: remote error: tls: expired certificate"),
			failure.ClassAuth, v1alpha1.ReasonAuthFailed,
		},
		{
			fmt.Errorf("dialing: %w", &tls.CertificateVerificationError{Err: errors.New("bad")}),
			failure.ClassAuth, v1alpha1.ReasonAuthFailed,
		},
		// Not about a certificate: a connection that broke while the node restarted.
		{
			status.Error(codes.Unavailable, "remote error: tls: internal error"),
			failure.ClassTransient, v1alpha1.ReasonNodeUnreachable,
		},
		{status.Error(codes.FailedPrecondition, "not available yet"), failure.ClassWaiting, v1alpha1.ReasonBooting},
		{status.Error(codes.InvalidArgument, "bad"), failure.ClassTerminal, v1alpha1.ReasonConfigRefused},
		{status.Error(codes.Unimplemented, ""), failure.ClassTerminal, v1alpha1.ReasonConfigRefused},
	}

	for _, tc := range tests {
		got := classify("the call", "10.0.0.1", tc.err)
		if failure.ClassOf(got) != tc.class || failure.Reason(got) != tc.reason {
			t.Errorf("%v: class %d, reason %s", tc.err, failure.ClassOf(got), failure.Reason(got))
		}

		if msg := failure.Message(got); !strings.Contains(msg, "10.0.0.1") || strings.Contains(msg, "etcdserver") {
			t.Errorf("%v: the message is %q", tc.err, msg)
		}
	}

	if classify("the call", "n", nil) != nil {
		t.Error("no error became one")
	}
}

// TestRefusalInOneLine: what a node says at length is one short line, without what it quotes of the config.
func TestRefusalInOneLine(t *testing.T) {
	long := "2 errors occurred:\n\t* first\n\t* second " + strings.Repeat("é", 500) + "\n\n"

	got := failure.Message(classify("the config", "n", status.Error(codes.InvalidArgument, long)))
	if !strings.HasPrefix(got, "n refused the request for the config: 2 errors occurred:; first; second é") || strings.Contains(got, "\n") ||
		len([]rune(got)) > maxSummary+50 {
		t.Errorf("got %q", got)
	}
}
