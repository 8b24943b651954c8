package talos

import (
	"io"
	"testing"
	"time"

	cosiv1alpha1 "github.com/cosi-project/runtime/api/v1alpha1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestLatencyAverage: the newest call has an eighth; a failure is no response, and work is none of the network.
func TestLatencyAverage(t *testing.T) {
	l := &latency{}

	if took, known := l.read(); known {
		t.Errorf("before the first call it is %s", took)
	}

	for _, c := range []struct {
		method string
		err    error
		took   time.Duration
		want   time.Duration
	}{
		{cosiv1alpha1.State_Get_FullMethodName, nil, 80 * time.Millisecond, 80 * time.Millisecond},
		{cosiv1alpha1.State_Get_FullMethodName, nil, 160 * time.Millisecond, 90 * time.Millisecond},
		{cosiv1alpha1.State_Get_FullMethodName, status.Error(codes.NotFound, ""), 10 * time.Millisecond, 80 * time.Millisecond},
		{cosiv1alpha1.State_Get_FullMethodName, status.Error(codes.Unavailable, ""), time.Second, 80 * time.Millisecond},
		{cosiv1alpha1.State_Get_FullMethodName, io.EOF, time.Second, 80 * time.Millisecond},
		{"/machine.MachineService/EtcdDefragment", nil, time.Minute, 80 * time.Millisecond},
	} {
		l.note(c.method, c.err, c.took)

		if took, known := l.read(); took != c.want || !known {
			t.Errorf("after %s with %v in %s it is %s", c.method, c.err, c.took, took)
		}
	}
}
