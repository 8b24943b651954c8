package apid

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Faults are what is wrong with one node, or with its network, at the moment, and a count of the calls it has received.
// They outlive reboots of the node. All methods may be called concurrently.
type Faults struct {
	link atomic.Pointer[link] // nil while nothing is wrong

	// muted: watches bring nothing.
	muted atomic.Bool

	mu       sync.Mutex
	rules    []*activeRule
	hooks    []func()
	counters counters
}

// link is the state of a node's connection to everybody. It is never changed, only replaced.
type link struct {
	frozen      bool
	partitioned bool
	changed     chan struct{} // closed when another state replaces this one
}

// Rule is a fault of single calls.
type Rule struct {
	// Method is a full method name ("/machine.MachineService/Reboot"), its last part, or empty for every method.
	Method string
	// Changes leaves calls alone that change nothing, such as dry runs.
	Changes bool
	// From is the number of the first call that the rule applies to, counted from now; 0 means 1.
	From int
	// Count is how many calls the rule applies to; 0 means all that follow.
	Count int
	// Delay comes before anything else happens.
	Delay time.Duration
	// Code is what the call answers; with OK it answers what the handler says.
	Code    codes.Code
	Message string
	// Late lets the handler do its work and then loses the answer: the caller sees only Code.
	Late bool
	// Flood has a stream bring the first part of its answer over and over, without an end.
	Flood bool
	// Flap has a watch tell without an end that what it watches is gone, and back again, each after this time.
	Flap time.Duration
}

type activeRule struct {
	Rule

	seen int
}

// NewFaults returns the faults of a healthy node.
func NewFaults() *Faults {
	return &Faults{}
}

// Freeze stops the node in its tracks, or lets it go on: it accepts connections and never responds.
func (f *Faults) Freeze(on bool) {
	f.relink(func(l *link) { l.frozen = on })
}

// Partition takes the node off the network, or brings it back: nothing gets in or out. Connections stay established and
// silent, new ones hang.
func (f *Faults) Partition(on bool) {
	f.relink(func(l *link) { l.partitioned = on })
}

// Slow makes every call of a method take longer. An empty method means all.
func (f *Faults) Slow(method string, delay time.Duration) {
	f.Add(Rule{Method: method, Delay: delay})
}

// Flood makes the streams of a method bring the first part of their answers without an end. An empty method means all.
func (f *Faults) Flood(method string) {
	f.Add(Rule{Method: method, Flood: true})
}

// Flap makes watches tell without an end that what they watch is gone, and back again, each after a time.
func (f *Faults) Flap(every time.Duration) {
	f.Add(Rule{Method: "Watch", Flap: every})
}

// Mute has all watches, those that are open included, drop what they would bring, while the node answers everything
// else: they hang in silence. What was dropped does not come later.
func (f *Faults) Mute(on bool) { f.muted.Store(on) }

// Fail makes calls of a method fail, from the nth call on (1 is the next one), count times (0: for ever), without doing
// anything.
func (f *Faults) Fail(method string, code codes.Code, nth, count int) {
	f.Add(Rule{Method: method, Code: code, From: nth, Count: count})
}

// Add adds a rule. Of several rules that match a call, all delays and the first code apply.
func (f *Faults) Add(rule Rule) {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.rules = append(f.rules, &activeRule{Rule: rule})
}

// Clear ends all faults. Counters stay.
func (f *Faults) Clear() {
	f.mu.Lock()
	f.rules = nil
	f.mu.Unlock()

	f.muted.Store(false)
	f.relink(func(l *link) { *l = link{} })
}

// Frozen says whether the node is frozen.
func (f *Faults) Frozen() bool {
	l := f.link.Load()

	return l != nil && l.frozen
}

// Partitioned says whether the node is off the network.
func (f *Faults) Partitioned() bool {
	l := f.link.Load()

	return l != nil && l.partitioned
}

func (f *Faults) relink(change func(*link)) {
	f.mu.Lock()

	next := &link{changed: make(chan struct{})}

	old := f.link.Load()
	if old != nil {
		next.frozen, next.partitioned = old.frozen, old.partitioned
	}

	change(next)

	if next.frozen || next.partitioned {
		next.changed = make(chan struct{})
		f.link.Store(next)
	} else {
		f.link.Store(nil)
	}

	if old != nil {
		close(old.changed)
	}

	hooks := slices.Clone(f.hooks)
	f.mu.Unlock()

	for _, hook := range hooks {
		hook()
	}
}

// onChange calls a function after each change of the link.
func (f *Faults) onChange(hook func()) {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.hooks = append(f.hooks, hook)
}

// silent returns a channel to wait for if no byte passes between the node and a peer now.
func (f *Faults) silent(self, peer netip.Addr) <-chan struct{} {
	l := f.link.Load()

	switch {
	case l == nil:
		return nil
	case l.frozen:
		return l.changed
	case peer == self: // never leaves the node
		return nil
	case l.partitioned:
		return l.changed
	default:
		return nil
	}
}

// verdict is what rules say about one call.
type verdict struct {
	delay time.Duration
	err   error
	late  bool
	flood bool
	flap  time.Duration
}

func (f *Faults) judge(method string, request any) verdict {
	f.mu.Lock()
	defer f.mu.Unlock()

	var out verdict

	for _, rule := range f.rules {
		if !matches(rule.Method, method) || rule.Changes && !isMutating(method, request) {
			continue
		}

		rule.seen++

		from := max(rule.From, 1)
		if rule.seen < from || rule.Count > 0 && rule.seen >= from+rule.Count {
			continue
		}

		out.delay += rule.Delay
		out.flood = out.flood || rule.Flood
		out.flap = max(out.flap, rule.Flap)

		if rule.Code != codes.OK && out.err == nil {
			message := rule.Message
			if message == "" {
				message = "injected fault"
			}

			out.err, out.late = status.Error(rule.Code, message), rule.Late
		}
	}

	return out
}

// matches says whether a method, given in full, is meant by a pattern.
func matches(pattern, method string) bool {
	switch {
	case pattern == "" || pattern == method:
		return true
	case strings.HasPrefix(pattern, "/"):
		return false
	default:
		return strings.HasSuffix(method, "/"+pattern)
	}
}

// run runs the handler of a call under the faults.
func (c *call) run(ctx context.Context, request any, handler func() (any, error)) (any, error) {
	c.faults.started(c, request)

	v := c.faults.judge(c.Method, request)
	c.flood, c.flap = v.flood, v.flap

	if v.delay > 0 {
		timer := time.NewTimer(v.delay)
		defer timer.Stop()

		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}

	if v.err != nil && !v.late {
		return nil, v.err
	}

	reply, err := handler()
	if v.err != nil {
		return nil, v.err
	}

	return reply, err
}
