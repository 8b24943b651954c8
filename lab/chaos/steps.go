package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/talos-operator/talos-operator/lab/apid"
)

// kinds are all ways to make life hard, with how often each is drawn.
var kinds []kind

func init() { // the table refers to functions that refer to it
	kinds = []kind{
		{"power-cut", 10, (*history).cutPower},
		{"freeze", 6, (*history).freeze},
		{"partition", 5, (*history).partition},
		{"network-split", 4, (*history).splitNetwork},
		{"calls-fail", 8, (*history).failCalls},
		{"disk-swap", 5, (*history).swapDisk},
		{"total-loss", 1, (*history).loseAll},
		{"address-swap", 3, (*history).swapAddresses},
		{"operator-kill", 8, (*history).killOperator},
		{"operator-down", 3, (*history).stopOperator},
		{"second-operator", 3, (*history).secondOperator},
		{"clock-jump", 4, (*history).jumpClock},
		{"scale-control-plane", 5, (*history).scaleMembers},
		{"scale-workers", 5, (*history).scaleWorkers},
		{"exchange-member", 4, (*history).exchangeMember},
		{"replace", 4, (*history).replace},
		{"remediation", 2, (*history).toggleRemediation},
		{"config-reboot", 12, (*history).changeConfig},
		{"config-label", 3, (*history).changeLabel},
		{"upgrade", 10, (*history).upgrade},
		{"installer-fails", 3, (*history).failInstaller},
		{"window-closed", 3, (*history).closeWindow},
		{"approval", 2, (*history).toggleApproval},
		{"pause", 2, (*history).pauseObjects},
		{"objects-deleted", 6, (*history).deleteObjects},
		{"nothing", 6, (*history).nothing},
		{"copy", 6, (*history).takeCopy},
		{"state-restored", 4, (*history).restoreState},
		{"objects-restored", 3, (*history).restoreObjects},
	}
}

// nothing happens for a while, so that the operator acts on the faults that there are.
func (h *history) nothing(step Step) (string, func()) {
	const most = 8

	d := time.Duration(1+step.A%most) * time.Second
	h.pause(d)

	return "for " + d.String(), nil
}

// pick chooses one of a list; empty where there is none.
func pick(from []string, n uint32) string {
	if len(from) == 0 {
		return ""
	}

	return from[int(n)%len(from)]
}

// victim is a machine that a fault hits: mostly a member of the control plane.
func (h *history) victim(step Step) string {
	const workersShare = 4

	if step.B%workersShare == 0 {
		return pick(h.want.Workers, step.A)
	}

	return pick(h.want.Members, step.A)
}

// hit says that a fault is about to take a machine away. With remediation it may be abandoned for that.
func (h *history) hit(name string) {
	h.oracle.Fault(short(name))

	if h.remedy {
		h.surrender(name)
	}
}

// surrender says that the operator may take a machine out of the cluster although it is listed.
func (h *history) surrender(name string) {
	h.surrendered[name] = true
	h.oracle.Yield(short(name), true)
}

func (h *history) powerOn(name string) {
	if err := h.stack.Lab.PowerOn(h.ctx, name); err != nil {
		h.tell("%v", err)
	}
}

func (h *history) cutPower(step Step) (string, func()) {
	name := h.victim(step)
	if !h.node(name).Status().Powered {
		return "", nil
	}

	h.hit(name)

	if err := h.stack.Lab.Kill(name); err != nil {
		return "", nil
	}

	return short(name), func() { h.powerOn(name) }
}

func (h *history) freeze(step Step) (string, func()) {
	name := h.victim(step)
	h.hit(name)
	h.node(name).Freeze(true)

	return short(name), func() { h.node(name).Freeze(false) }
}

func (h *history) partition(step Step) (string, func()) {
	name := h.victim(step)
	h.hit(name)
	h.node(name).Partition(true)

	return short(name), func() { h.node(name).Partition(false) }
}

// splitNetwork drops what passes between the machine API of some nodes and the rest, or the operator. The modelled etcd
// has a network of its own, so no member is lost: the operator sees less than there is.
func (h *history) splitNetwork(step Step) (string, func()) {
	side, other := []string{}, []string{}

	for i, name := range h.want.names() {
		if step.A>>(i%32)&1 == 1 {
			side = append(side, name)
		} else {
			other = append(other, name)
		}
	}

	const withOperator = 3

	b, from := h.hosts(other), "the others"
	if step.B%withOperator == 0 {
		b, from = apid.Hosts(loopback), "the operator"
	}

	if len(side) == 0 || len(b) == 0 {
		return "", nil
	}

	network := h.stack.Lab.Registry().Network()
	id := fmt.Sprintf("%s/%d", h.ns, step.A)
	network.Partition(id, h.hosts(side), b)

	return shorts(side) + " from " + from, func() { network.Heal(id) }
}

// failing are calls that go wrong, with a few of each kind of answer.
var failing = []string{
	"", "Bootstrap", "ApplyConfiguration", "Reboot", "Reset", "EtcdMemberList", "EtcdStatus", "EtcdLeaveCluster",
	"EtcdForfeitLeadership", "EtcdRemoveMemberByID", "Version", "Get", "List", "Watch",
}

// failCalls makes a few calls of one method slow, fail, or fail after they were carried out.
func (h *history) failCalls(step Step) (string, func()) {
	name := h.victim(step)
	rule := apid.Rule{Method: failing[int(step.A/7)%len(failing)], Count: 1 + int(step.B/5)%5}

	switch step.B / 3 % 3 {
	case 0:
		rule.Delay = time.Duration(1+step.B%6) * time.Second / 2
	case 1:
		rule.Code = codes.Unavailable
	default:
		rule.Code, rule.Late = codes.Unavailable, true
	}

	h.node(name).Faults().Add(rule)

	return fmt.Sprintf("%s: %d calls of %q, delay %s, answer %s, late %t", short(name), rule.Count, rule.Method,
		rule.Delay, rule.Code, rule.Late), nil
}

// swapDisk replaces the disk of a machine by an empty one. Etcd keeps a majority of its data.
func (h *history) swapDisk(step Step) (string, func()) {
	name := h.victim(step)
	if !h.spareable(name) {
		return "", nil
	}

	h.wipe(name)

	return short(name), func() { h.powerOn(name) }
}

func (h *history) wipe(name string) {
	h.hit(name)

	if err := h.stack.Lab.Wipe(name); err != nil {
		h.tell("%v", err)
	}

	h.oracle.Destroyed()
}

// spareable tells whether every etcd keeps a majority of its data without a machine.
func (h *history) spareable(name string) bool {
	dir := h.node(name).EtcdDir()

	for _, c := range h.etcds() {
		voters, left, hit := 0, 0, false

		for _, m := range c.Members {
			if m.Learner {
				continue
			}

			voters++

			switch {
			case m.Dir == dir:
				hit = hit || m.Data
			case m.Data:
				left++
			}
		}

		if hit && left <= voters/2 {
			return false
		}
	}

	return true
}

// loseAll replaces the disks of all machines.
func (h *history) loseAll(Step) (string, func()) {
	hit := slices.Clone(h.machines)
	for _, name := range hit {
		h.wipe(name)
	}

	return "all machines", func() {
		for _, name := range hit {
			h.powerOn(name)
		}
	}
}

// swapAddresses gives two machines each other's address, as a DHCP server without reservations does.
func (h *history) swapAddresses(step Step) (string, func()) {
	one, other := h.victim(step), pick(h.machines, step.B/7)
	if one == other {
		return "", nil
	}

	swap := func() {
		a, b := h.node(one), h.node(other)
		first, second := a.Address(), b.Address()

		h.hit(one)
		h.hit(other)

		for _, err := range []error{a.Readdress(second), b.Readdress(first)} {
			if err != nil {
				h.tell("%v", err)
			}
		}

		h.powerOn(one)
		h.powerOn(other)
	}
	// The list says where machines belong: it is not changed while they are elsewhere.
	before := h.addresses
	if before != nil {
		return "", nil
	}

	h.addresses = map[string]string{}
	for _, name := range h.machines {
		h.addresses[name] = h.node(name).Address()
	}

	swap()

	return short(one) + " and " + short(other), func() { swap(); h.addresses = nil }
}

func (h *history) killOperator(step Step) (string, func()) {
	running := slices.DeleteFunc(slices.Clone(h.operators), func(o *operator) bool { return o.manager == nil })
	if len(running) == 0 {
		return "", nil
	}

	i := int(step.A) % len(running)
	running[i].manager.Kill()

	return fmt.Sprintf("one of %d", len(running)), nil
}

func (h *history) stopOperator(Step) (string, func()) {
	if h.operators[0].manager == nil {
		return "", nil
	}

	h.operators[0].stop()

	return "the first one", func() { h.start(0) }
}

func (h *history) start(which int) {
	if err := h.startOperator(which); err != nil {
		h.tell("%v", err)
	}
}

// secondOperator lets two work at once, as they do where a lease has changed hands and the old holder has not noticed.
func (h *history) secondOperator(Step) (string, func()) {
	if len(h.operators) > 1 && h.operators[1].manager != nil {
		return "", nil
	}

	h.start(1)

	return "beside the first one", func() { h.operators[1].stop() }
}

// jumps are how wrong a clock becomes.
var jumps = []time.Duration{
	-24 * time.Hour, -time.Hour, -5 * time.Minute, -30 * time.Second,
	30 * time.Second, 5 * time.Minute, time.Hour, 24 * time.Hour,
}

// jumpClock sets the clock of the operators wrong, and right again.
func (h *history) jumpClock(step Step) (string, func()) {
	if !h.opts.Skewed {
		return "", nil
	}

	skew := jumps[int(step.A)%len(jumps)]
	h.setClock(skew)

	return skew.String(), func() { h.setClock(0) }
}

func shorts(names []string) string {
	var out []string
	for _, name := range names {
		out = append(out, short(name))
	}

	return strings.Join(out, ",")
}
