package apid

import (
	"context"
	"maps"
	"net/netip"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Call is a call as the node that runs it sees it.
type Call struct {
	Time time.Time
	// Method is the full method name.
	Method string
	// Roles of the caller, sorted.
	Roles []string
	// Peer is who is connected: the caller, or the node that forwarded the call.
	Peer netip.Addr
	// Forwarded says that another node forwarded the call.
	Forwarded bool
	// Mutating says that the call asks for a change: a dry run does not. It is set only for calls that were authorized.
	Mutating bool
	// Request is the message of a call with a single one; nil otherwise. Who subscribes must not change it.
	Request any
}

// call is a call under way.
type call struct {
	Call

	faults *Faults
	// flood: what is sent first is sent without an end.
	flood bool
	// flap: what is watched goes and comes back without an end, each after this time.
	flap time.Duration
}

type outcome struct {
	method string
	code   codes.Code
}

// counters hold only what has been received, so that an idle node needs no memory for them.
type counters struct {
	arrived     map[string]int // by method
	answered    map[outcome]int
	mutating    int
	subscribers map[int]func(Call)
	nextID      int
}

// Calls returns how many calls of a method have arrived, refused ones included. The method may be abbreviated as in
// Rule; empty counts all.
func (f *Faults) Calls(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()

	return sum(f.counters.arrived, method)
}

// Methods returns how many calls of each method have arrived, refused ones included.
func (f *Faults) Methods() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()

	return maps.Clone(f.counters.arrived)
}

// Open returns how many calls of a method are under way: watches last.
func (f *Faults) Open(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()

	open := sum(f.counters.arrived, method)

	for o, n := range f.counters.answered {
		if matches(method, o.method) {
			open -= n
		}
	}

	return open
}

func sum(counts map[string]int, method string) int {
	total := 0

	for m, n := range counts {
		if matches(method, m) {
			total += n
		}
	}

	return total
}

// MutatingCalls returns how many authorized calls asked for a change, whether or not they succeeded.
func (f *Faults) MutatingCalls() int {
	f.mu.Lock()
	defer f.mu.Unlock()

	return f.counters.mutating
}

// Answers returns how many calls of a method have ended with a code.
func (f *Faults) Answers(method string, code codes.Code) int {
	f.mu.Lock()
	defer f.mu.Unlock()

	total := 0

	for o, n := range f.counters.answered {
		if o.code == code && matches(method, o.method) {
			total += n
		}
	}

	return total
}

// Subscribe calls a function for every authorized call, before faults apply and before the handler runs: a
// function that blocks holds up the call. The returned function ends the subscription.
func (f *Faults) Subscribe(fn func(Call)) (cancel func()) {
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.counters.subscribers == nil {
		f.counters.subscribers = map[int]func(Call){}
	}

	id := f.counters.nextID
	f.counters.nextID++
	f.counters.subscribers[id] = fn

	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()

		delete(f.counters.subscribers, id)
	}
}

// arrive counts a call.
func (f *Faults) arrive(ctx context.Context, method string, who *caller) *call {
	md, _ := metadata.FromIncomingContext(ctx)
	_, forwarded := md[keyProxyFrom]

	c := &call{faults: f, Call: Call{
		Time:      time.Now(),
		Method:    method,
		Roles:     who.roles.Strings(),
		Peer:      who.peer,
		Forwarded: forwarded,
	}}

	f.mu.Lock()
	defer f.mu.Unlock()

	if f.counters.arrived == nil {
		f.counters.arrived, f.counters.answered = map[string]int{}, map[outcome]int{}
	}

	f.counters.arrived[method]++

	return c
}

// started notes that a call is authorized and about to run.
func (f *Faults) started(c *call, request any) {
	c.Mutating, c.Request = isMutating(c.Method, request), request

	f.mu.Lock()

	if c.Mutating {
		f.counters.mutating++
	}

	subscribers := make([]func(Call), 0, len(f.counters.subscribers))
	for _, fn := range f.counters.subscribers {
		subscribers = append(subscribers, fn)
	}

	f.mu.Unlock()

	for _, fn := range subscribers {
		fn(c.Call)
	}
}

// end notes how a call ended.
func (c *call) end(err error) {
	c.faults.mu.Lock()
	defer c.faults.mu.Unlock()

	c.faults.counters.answered[outcome{method: c.Method, code: status.Code(err)}]++
}
