package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// personPause is how often the person looks whether something has to be done by hand.
const personPause = 5 * time.Second

// The person lists machines again that hold members of etcd and are not listed: soon, or not before the operator would
// have removed the members by itself, which takes two looks a minute apart. It does not while it remembers the machine.
const (
	relistSoon = 10 * time.Second
	relistLate = 75 * time.Second
)

// settle ends all faults and waits until the cluster has come to rest, acting as the person whom conditions ask for. It
// returns the state in which the cluster waits for something that this person cannot do, empty where there is none.
func (h *history) settle() string {
	h.tell("the faults are over: %s", shorts(h.want.names()))

	for _, name := range h.machines {
		n := h.node(name)
		n.Freeze(false)
		n.Partition(false)
		n.Faults().Clear()
		n.FailInstaller("")
		h.powerOn(name)
	}

	h.start(0)

	h.absent, h.remedy, h.closed, h.approval = false, false, false, v1alpha1.ApprovalAutomatic
	h.apply()

	began := time.Now()
	looked, relistAfter := began, relistSoon

	if h.script.Late {
		relistAfter = relistLate
	}

	wrong := h.await(h.opts.Bound, func() string {
		what := h.unsettled()
		if what != "" && time.Since(looked) > personPause {
			looked = time.Now()
			h.help()

			if time.Since(began) > relistAfter {
				h.relist()
			}
		}

		return what
	})

	if wrong == "" || h.ctx.Err() != nil {
		h.tell("at rest")

		return ""
	}

	if held := h.held(); held != "" {
		h.tell("held: %s", held)

		return held
	}

	h.tell("not at rest: %s: %s", wrong, h.situation())
	h.oracle.Stuck(wrong + ": " + h.situation())

	return ""
}

// unsettled says what a cluster that has come to rest would not have; empty when it has.
func (h *history) unsettled() string {
	cp, w := h.controlPlane(), h.workers()

	switch {
	case cp == nil || w == nil || !cp.DeletionTimestamp.IsZero():
		return "the objects are not there"
	case cp.Status.ObservedGeneration != cp.Generation || w.Status.ObservedGeneration != w.Generation:
		return "the specs are not observed"
	}

	for _, c := range []struct {
		of         string
		conditions []metav1.Condition
		kinds      []string
	}{
		{"control plane", cp.Status.Conditions, []string{
			v1alpha1.ConditionReady, v1alpha1.ConditionEtcdHealthy, v1alpha1.ConditionUpToDate,
		}},
		{"workers", w.Status.Conditions, []string{v1alpha1.ConditionReady, v1alpha1.ConditionUpToDate}},
	} {
		for _, kind := range c.kinds {
			if !meta.IsStatusConditionTrue(c.conditions, kind) {
				return fmt.Sprintf("the %s is not %s", c.of, kind)
			}
		}
	}

	return h.strangers(cp)
}

// strangers says how the members of etcd differ from the list.
func (h *history) strangers(cp *v1alpha1.TalosControlPlane) string {
	want := []string{}

	for _, m := range cp.Spec.Machines {
		name := m.Name
		for _, r := range cp.Status.Replacements {
			if r.Machine == name {
				name = r.Spare
			}
		}

		want = append(want, name)
	}

	slices.Sort(want)

	for _, c := range h.etcds() {
		got := []string{}

		for _, m := range c.Members {
			if !m.Serving {
				got = nil

				break
			}

			got = append(got, m.Name)
		}

		if slices.Sort(got); slices.Equal(got, want) {
			return ""
		}
	}

	return "the members of etcd are not " + strings.Join(want, ", ")
}

// help does what conditions ask a person for, where it is right: the person knows which disks were destroyed.
func (h *history) help() {
	cp := h.controlPlane()
	if cp == nil || h.workers() == nil {
		h.apply()

		return
	}

	h.adoptReplacements(cp)

	if plan := cp.Status.Plan; plan != nil && plan.Phase == v1alpha1.PlanAwaitingApproval {
		h.tell("person: approve")
		h.approve()
	}

	if w := h.workers(); w != nil && w.Status.Plan != nil && w.Status.Plan.Phase == v1alpha1.PlanAwaitingApproval {
		h.tell("person: approve")
		h.approve()
	}

	h.helpOwner(cp)
	h.helpEtcd(cp)

	for _, m := range h.talosMachines() {
		h.helpMachine(m)
	}
}

// helpOwner confirms that objects which were restored manage the cluster that their earlier life managed, and has
// machines wiped that the user has abandoned, and that are back.
func (h *history) helpOwner(cp *v1alpha1.TalosControlPlane) {
	for _, c := range cp.Status.Conditions {
		_, uid, ok := strings.Cut(c.Message, v1alpha1.TakeOverAnnotation+"=")
		if ok && c.Reason == v1alpha1.ReasonOwnedElsewhere {
			h.tell("person: take over from %s", uid)
			h.annotate(cp, clusterName, v1alpha1.TakeOverAnnotation, uid)
		}
	}

	if !reasonIn(cp.Status.Conditions, v1alpha1.ReasonMachineReturned) {
		return
	}

	var wipe []string

	for _, name := range h.machines {
		if h.surrendered[name] && !slices.Contains(h.want.names(), name) {
			wipe = append(wipe, short(name))
		}
	}

	if len(wipe) > 0 {
		h.tell("person: wipe %s", strings.Join(wipe, ","))
		h.annotate(cp, clusterName, v1alpha1.WipeMachinesAnnotation, strings.Join(wipe, ","))
	}
}

// adoptReplacements writes into the lists what replacements have made of them.
func (h *history) adoptReplacements(cp *v1alpha1.TalosControlPlane) {
	replaced := slices.Clone(cp.Status.Replacements)
	if w := h.workers(); w != nil {
		replaced = append(replaced, w.Status.Replacements...)
	}

	before := shorts(h.want.names())

	for _, r := range replaced {
		for _, list := range [][]string{h.want.Members, h.want.Workers} {
			if i := slices.Index(list, h.ns+"/"+r.Machine); i >= 0 {
				list[i] = h.ns + "/" + r.Spare
			}
		}

		h.want.Spares = slices.DeleteFunc(h.want.Spares, func(s string) bool { return short(s) == r.Spare })
		h.surrendered[h.ns+"/"+r.Machine] = true
	}

	if shorts(h.want.names()) != before {
		h.tell("person: list the replacements: %s", shorts(h.want.names()))
		h.apply()
	}
}

// relist puts machines with members of etcd that serves on the list again, from which they were taken while the objects
// were deleted or by an older copy of them.
func (h *history) relist() {
	members := slices.Clone(h.want.Members)

	for _, c := range h.etcds() {
		for _, m := range c.Members {
			for _, name := range h.machines {
				if m.Serving && h.node(name).EtcdDir() == m.Dir && !slices.Contains(h.want.names(), name) {
					members = append(members, name)
				}
			}
		}
	}

	if len(members) == len(h.want.Members) {
		return
	}

	h.want.Spares = nil // they may be needed to make the number odd

	// A machine that left a list before is no member, and waits for a config soon.
	leaving := len(h.machines) > len(members)+len(h.want.Workers)
	before := len(h.want.names())
	h.want = h.want.relisted(members, h.blanks(), leaving)

	if len(h.want.names()) != before {
		h.tell("person: list %s", shorts(h.want.names()))
		h.apply()
	}
}

// relisted are the lists with these members. A control plane has an odd number of machines: another one joins it, and
// where none waits for a config or will soon, a worker leaves its list first.
func (l lists) relisted(members, blank []string, leaving bool) lists {
	out := l.clone()

	switch workers := len(out.Workers); {
	case len(members)%2 == 1:
		out.Members = members
	case len(blank) > 0:
		out.Members = append(slices.Clone(members), blank[0])
	case workers > 1 && !leaving:
		out.Workers = out.Workers[:workers-1]
	}

	return out
}

// helpEtcd allows a new etcd once no disk holds data of one, and has machines forgotten whose disks are empty.
func (h *history) helpEtcd(cp *v1alpha1.TalosControlPlane) {
	holders := h.holders()

	if reasonIn(cp.Status.Conditions, v1alpha1.ReasonEtcdLost) && len(holders) == 0 {
		h.tell("person: allow a new etcd")
		h.annotate(cp, clusterName, v1alpha1.AllowBootstrapAnnotation, "true")
	}

	var forget []string

	for _, name := range h.machines {
		asked := slices.Contains(forgettable(cp.Status.Conditions), short(name))

		switch {
		case !asked || slices.Contains(h.want.names(), name) || slices.Contains(holders, name):
		case h.isBlank(name):
			forget = append(forget, short(name))
		default: // it is off the list, and has nothing that is needed
			h.tell("person: wipe the disk of %s", short(name))
			h.wipe(name)
			h.powerOn(name)
		}
	}

	if len(forget) > 0 {
		h.tell("person: forget %s", strings.Join(forget, ","))
		h.annotate(cp, clusterName, v1alpha1.ForgetMachinesAnnotation, strings.Join(forget, ","))
	}
}

// forgettable are the machines of which conditions say that they can be declared wiped or destroyed.
func forgettable(conditions []metav1.Condition) []string {
	var out []string

	for _, c := range conditions {
		for _, after := range strings.Split(c.Message, v1alpha1.ForgetMachinesAnnotation+"=")[1:] {
			list, _, _ := strings.Cut(after, " ")
			out = append(out, strings.Split(strings.TrimRight(list, ".;,:)"), ",")...)
		}
	}

	return out
}

// holders are the machines with data of an etcd.
func (h *history) holders() []string {
	var out []string

	for _, name := range h.machines {
		dir := h.node(name).EtcdDir()

		for _, c := range h.etcds() {
			for _, m := range c.Members {
				if m.Dir == dir && m.Data {
					out = append(out, name)
				}
			}
		}
	}

	return out
}

// helpMachine has a failed change tried again, and accepts the machine at the address of the list where another one was
// there when the cluster first asked.
func (h *history) helpMachine(m v1alpha1.TalosMachine) {
	name := h.ns + "/" + m.Name
	uuid := h.node(name).UUID()

	if reasonIn(m.Status.Conditions, v1alpha1.ReasonWrongMachine) && h.isBlank(name) &&
		m.Annotations[v1alpha1.AcceptMachineAnnotation] != uuid {
		h.tell("person: accept %s", m.Name)
		h.annotate(&m, m.Name, v1alpha1.AcceptMachineAnnotation, uuid)
	}

	if reasonIn(m.Status.Conditions, v1alpha1.ReasonChangeFailed) ||
		reasonIn(m.Status.Conditions, v1alpha1.ReasonRolloutStopped) {
		h.tell("person: retry %s", m.Name)
		h.annotate(&m, m.Name, v1alpha1.RetryAnnotation, "true")
	}
}

func reasonIn(conditions []metav1.Condition, reason string) bool {
	return slices.ContainsFunc(conditions, func(c metav1.Condition) bool { return c.Reason == reason })
}

// holding are the documented reasons that say what a person must do and that this person does not.
var holding = []string{
	v1alpha1.ReasonQuorumLost, v1alpha1.ReasonEtcdSplit, v1alpha1.ReasonForeignNode, v1alpha1.ReasonStateSecretInvalid,
}

// held returns the holding state that the cluster is in.
func (h *history) held() string {
	var conditions []metav1.Condition

	if cp := h.controlPlane(); cp != nil {
		conditions = append(conditions, cp.Status.Conditions...)
	}

	for _, m := range h.talosMachines() {
		conditions = append(conditions, m.Status.Conditions...)
	}

	for _, c := range conditions {
		if slices.Contains(holding, c.Reason) {
			return c.Reason + ": " + c.Message
		}
	}

	return ""
}

// situation is what the objects say is wrong.
func (h *history) situation() string {
	var all []string

	add := func(of string, conditions []metav1.Condition) {
		for _, c := range conditions {
			good := metav1.ConditionTrue
			if slices.Contains([]string{
				v1alpha1.ConditionStalled, v1alpha1.ConditionReconciling, v1alpha1.ConditionDeleting, v1alpha1.ConditionPaused,
				v1alpha1.ConditionRemediating, v1alpha1.ConditionFencing, v1alpha1.ConditionDrifted,
			}, c.Type) {
				good = metav1.ConditionFalse
			}

			if c.Status != good {
				all = append(all, fmt.Sprintf("%s %s=%s %s: %s", of, c.Type, c.Status, c.Reason, c.Message))
			}
		}
	}

	if cp := h.controlPlane(); cp != nil {
		add("control plane", cp.Status.Conditions)
	}

	if w := h.workers(); w != nil {
		add("workers", w.Status.Conditions)
	}

	machines := h.talosMachines()
	slices.SortFunc(machines, func(a, b v1alpha1.TalosMachine) int { return cmp.Compare(a.Name, b.Name) })

	for _, m := range machines {
		add(m.Name, m.Status.Conditions)
	}

	for _, name := range h.machines {
		st := h.node(name).Status()
		all = append(all, fmt.Sprintf("node %s at %s: %s %s etcd %s", short(name), st.Address, st.Stage, st.MachineType,
			st.EtcdMember))
	}

	return strings.Join(all, "; ")
}

// delete ends the cluster, and its machines where the script says so.
func (h *history) delete() {
	policy := v1alpha1.DeletionPreserve
	if h.script.Reset {
		policy = v1alpha1.DeletionReset
	}

	h.tell("delete, %s", policy)

	if h.script.Reset {
		h.oracle.Retire()
	}

	cp := &v1alpha1.TalosControlPlane{}
	h.change(cp, clusterName, func() { cp.Spec.DeletionPolicy = policy })

	w := &v1alpha1.TalosWorker{}
	h.change(w, workersName, func() { w.Spec.DeletionPolicy = policy })

	if left := h.remove(h.ctx, h.opts.Bound); left != "" {
		h.tell("%s", left)
		h.oracle.Stuck(left)
	}
}
