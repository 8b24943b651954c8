package talos

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc"
)

// TestPulse: whatever a node sends is a sign of life; for one that sends nothing there is an end.
func TestPulse(t *testing.T) {
	n := &Node{pulse: &pulse{}}
	p := n.pulse

	p.beat()
	p.heard.Add(-int64(2 * time.Hour))

	if left := p.left(time.Hour); left > 0 {
		t.Errorf("a node that was heard of two hours ago has %s left of one", left)
	}

	answer := func(err error) grpc.UnaryInvoker {
		return func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return err }
	}

	if err := n.count(t.Context(), "m", nil, nil, nil, answer(io.EOF)); !errors.Is(err, io.EOF) || p.left(time.Hour) > 0 {
		t.Errorf("after a failure with %v %s are left", err, p.left(time.Hour))
	}

	if err := n.count(t.Context(), "m", nil, nil, nil, answer(nil)); err != nil || p.left(time.Hour) <= 0 {
		t.Errorf("after an answer with %v %s are left", err, p.left(time.Hour))
	}

	for range 100 {
		if d := nextSilence(); d < heartbeat/2 || d > max(heartbeat, time.Duration(streams.Load())*heartbeatShare)*3/2 {
			t.Fatalf("it may be silent for %s", d)
		}
	}
}
