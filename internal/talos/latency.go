package talos

import (
	"sync"
	"time"

	cosiv1alpha1 "github.com/cosi-project/runtime/api/v1alpha1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// latencyShare is the inverse of the share of the newest call in the average: a slow one is forgotten after some dozen.
const latencyShare = 8

// latency is a moving average of how long a node takes to respond. Only calls that read one resource count: they are
// small, the same for each machine, and sent as heartbeats all the time. Others take as long as their work, such as the
// defragmentation of a database.
type latency struct {
	mu      sync.Mutex
	average time.Duration
	known   bool
}

// note takes a call that has ended into account. That a resource does not exist is a response, too.
func (l *latency) note(method string, err error, took time.Duration) {
	if method != cosiv1alpha1.State_Get_FullMethodName || err != nil && status.Code(err) != codes.NotFound {
		return
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	if !l.known {
		l.average, l.known = took, true

		return
	}

	l.average += (took - l.average) / latencyShare
}

func (l *latency) read() (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.average, l.known
}

// Latency returns how long a node takes to respond, by the key of its NodeRef: a moving average over the calls that
// read one resource and that it responded to. It is false if the node is not connected, or was not asked since it is.
func (p *Pool) Latency(key string) (time.Duration, bool) {
	p.mu.Lock()
	n := p.nodes[key]
	p.mu.Unlock()

	if n == nil || !n.ready() {
		return 0, false
	}

	return n.latency.read()
}
