package apid

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestRetired: once the streams of an identity have ended, no call begins under it, not even in the moment in which its
// connections are still open.
func TestRetired(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	r := &router{generation: &generation{ctx: ctx, cancel: cancel}}
	if err := r.handle(nil, nil); status.Code(err) != codes.Unavailable {
		t.Errorf("a call that began after it was retired: %v", err)
	}
}
