package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/blang/semver/v4"

	"github.com/talos-operator/talos-operator/lab/node/quorum"
)

// Rule is what must never happen, whatever faults there are.
type Rule string

// Rules.
const (
	// RuleSplit: a second etcd is founded under a PKI while data of the first could still serve.
	RuleSplit Rule = "split"
	// RuleQuorum: a step of the operator takes the quorum of an etcd that had one.
	RuleQuorum Rule = "quorum"
	// RuleWrites: a write that was acknowledged is missing in the end, although the faults left a majority of the disks.
	RuleWrites Rule = "writes"
	// RuleWipe: the operator wipes a member of etcd, or a ready node that no user has abandoned.
	RuleWipe Rule = "wipe"
	// RuleAlone: the operator takes a member of the control plane away while another one has not come back that it took
	// away before.
	RuleAlone Rule = "alone"
	// RuleVersion: an upgrade skips a minor, is reverted or is done twice, or a component becomes newer than an API
	// server.
	RuleVersion Rule = "version"
	// RuleConvergence: a cluster without faults comes neither to rest nor into a state that names what a person must do.
	RuleConvergence Rule = "convergence"
)

// Violation is a rule that was violated.
type Violation struct {
	Rule    Rule
	At      time.Time
	Message string
}

// etcds is what an oracle knows of etcd: a quorum.Model, or what a test makes up.
type etcds interface {
	Clusters() []quorum.View
}

// Oracle judges what an operator does to the machines of one cluster, from outside: by the calls that reach them and by
// what is true of their etcd. It knows nothing of how the operator decides, and it does not judge people: what they
// abandon may be wiped. All methods may be called concurrently.
type Oracle struct {
	etcd  etcds
	clock func() time.Time

	mu         sync.Mutex
	subjects   map[string]*subject // by the directory of their etcd
	acked      map[string]uint64   // acknowledged writes, by the cluster that took them
	images     map[string]string   // references of images by their digest
	gone       map[uint64]bool     // clusters that faults have taken a majority of the disks from
	retired    bool
	violations []Violation
}

// Machine is what the oracle asks a machine.
type Machine struct {
	// Ready tells whether its Kubernetes node is Ready.
	Ready func() bool
	// Talos is the version that runs, empty while none does.
	Talos func() string
	// Config is the machine config that it runs; ok is false while it is off.
	Config func() (raw []byte, ok bool)
}

// subject is one machine.
type subject struct {
	Machine

	name    string
	yielded bool
	// components of Kubernetes that its config named when it was last on.
	components map[string]semver.Version
	// acted is when the operator last took its member away.
	acted time.Time
	// faulted is when a fault last took away its member while that served.
	faulted time.Time
}

// excuse is how long the operator need not have noticed that a fault took a member away: calls that were under way and
// evidence that was being gathered are as old as that on a busy computer. What goes away by an act of the operator has
// no such excuse.
const excuse = 5 * time.Second

// NewOracle returns an oracle without machines.
func NewOracle(etcd etcds, clock func() time.Time) *Oracle {
	return &Oracle{
		etcd: etcd, clock: clock, subjects: map[string]*subject{}, acked: map[string]uint64{}, gone: map[uint64]bool{},
		images: map[string]string{},
	}
}

// Watch makes a machine one of the cluster's. Its etcd keeps its data in dir.
func (o *Oracle) Watch(name, dir string, m Machine) {
	o.mu.Lock()
	defer o.mu.Unlock()

	o.subjects[dir] = &subject{Machine: m, name: name}
}

// Fault says that a fault is about to take a machine away.
func (o *Oracle) Fault(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()

	for _, c := range o.etcd.Clusters() {
		for _, m := range c.Members {
			if s := o.subjects[m.Dir]; s != nil && s.name == name && m.Serving {
				s.faulted = o.clock()
			}
		}
	}
}

// Destroyed says that faults have destroyed disks: a cluster that has lost too many of them need not come back.
func (o *Oracle) Destroyed() {
	o.mu.Lock()
	defer o.mu.Unlock()

	for _, c := range o.mine() {
		voters, held := 0, 0

		for _, m := range c.Members {
			if m.Learner {
				continue
			}

			voters++

			if m.Data {
				held++
			}
		}

		if held <= voters/2 {
			o.gone[c.ID] = true
		}
	}
}

// Yield says that a person gives a machine up, or wants it in the cluster.
func (o *Oracle) Yield(name string, up bool) {
	o.mu.Lock()
	defer o.mu.Unlock()

	for _, s := range o.subjects {
		if s.name == name {
			s.yielded = up
		}
	}
}

// Retire says that a person gives the whole cluster up: nothing is judged any more but whether it comes to rest.
func (o *Oracle) Retire() {
	o.mu.Lock()
	defer o.mu.Unlock()

	o.retired = true
}

// Acknowledged says that a cluster has acknowledged a write.
func (o *Oracle) Acknowledged(cluster uint64, value string) {
	o.mu.Lock()
	defer o.mu.Unlock()

	o.acked[value] = cluster
}

// Founded judges the beginning of an etcd.
func (o *Oracle) Founded(f quorum.Founding) {
	o.mu.Lock()
	defer o.mu.Unlock()

	s := o.subjects[f.Dir]
	if s == nil {
		return
	}

	for _, c := range f.Others {
		var holders []string

		for _, m := range c.Members {
			if m.Data && !m.Learner {
				holders = append(holders, o.nameOf(m))
			}
		}

		if len(holders) > 0 {
			slices.Sort(holders)
			o.violate(RuleSplit, "%s founded etcd %016x while %s hold data of %016x", s.name, f.Cluster,
				strings.Join(holders, ", "), c.ID)
		}
	}
}

// Settled judges the end, when all faults are over and the cluster has come to rest.
func (o *Oracle) Settled() {
	o.mu.Lock()
	defer o.mu.Unlock()

	kept := map[string]bool{}

	var serving []string

	for _, c := range o.mine() {
		if voters, alive := o.tally(c, false, nil); alive <= voters/2 {
			continue
		}

		serving = append(serving, fmt.Sprintf("%016x", c.ID))

		for _, w := range c.Writes {
			kept[w] = true
		}
	}

	slices.Sort(serving)

	if len(serving) > 1 {
		o.violate(RuleSplit, "etcds serve at once: %s", strings.Join(serving, ", "))
	}

	lost := map[uint64]int{}

	for value, cluster := range o.acked {
		if !o.gone[cluster] && !kept[value] {
			lost[cluster]++
		}
	}

	for _, cluster := range slices.Sorted(maps.Keys(lost)) {
		o.violate(RuleWrites, "%d acknowledged writes of etcd %016x are lost; now serve: %s", lost[cluster], cluster,
			strings.Join(serving, ", "))
	}
}

// Stuck says that the cluster does not come to rest.
func (o *Oracle) Stuck(why string) {
	o.mu.Lock()
	defer o.mu.Unlock()

	o.violate(RuleConvergence, "%s", why)
}

// Violations are all so far.
func (o *Oracle) Violations() []Violation {
	o.mu.Lock()
	defer o.mu.Unlock()

	return slices.Clone(o.violations)
}

// mine are the etcds with a member on a machine of the cluster; the caller holds the lock.
func (o *Oracle) mine() []quorum.View {
	return slices.DeleteFunc(o.etcd.Clusters(), func(c quorum.View) bool {
		return !slices.ContainsFunc(c.Members, func(m quorum.MemberView) bool { return o.subjects[m.Dir] != nil })
	})
}

func (o *Oracle) nameOf(m quorum.MemberView) string {
	if s := o.subjects[m.Dir]; s != nil {
		return s.name
	}

	return m.Name
}

// violate notes a violation; the caller holds the lock.
func (o *Oracle) violate(rule Rule, format string, args ...any) {
	if o.retired && rule != RuleConvergence {
		return
	}

	o.violations = append(o.violations, Violation{Rule: rule, At: o.clock(), Message: fmt.Sprintf(format, args...)})
}
