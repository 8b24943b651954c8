package upgrade_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// settle ends the faults, and checks what becomes of the upgrade.
func (w *world) settle() {
	w.quiet, w.missing, w.crowded, w.cached, w.silent, w.interrupts = true, false, false, false, false, nil
	w.managers[1].killed()
	w.Logf("nothing breaks any more")

	for _, n := range w.nodes {
		n.cut, n.split, n.behind, n.sick = false, false, false, false
		if n.off {
			w.power(n)
		}

		switch { // what is lost is not waited for: a person says so
		case n.dead && w.listedNow(n):
			w.replace(n.name)
		case n.dead:
			w.abandon(n.name)
		}
	}

	w.edit(func(cp *v1alpha1.TalosControlPlane) {
		cp.Spec.Rollout = &v1alpha1.RolloutOptions{RebootPolicy: v1alpha1.RebootAutomatic}
	})

	if w.rest(); w.arrived() == "" {
		return
	}

	// It says why not: a person reads that, and acts.
	if why := w.says(); why == "" {
		w.Fatalf("it neither arrives nor says why: %s; %s", w.arrived(), w.state())
	}

	w.Logf("a person acts on %s", w.says())

	w.broken, w.brief = map[string]bool{}, map[string]bool{}
	for _, n := range w.nodes {
		n.fails = time.Time{}
	}

	w.aim(releases[len(releases)-1])

	for range 3 {
		for _, n := range w.nodes {
			w.care(n)
		}

		w.rest()
	}

	if why := w.arrived(); why != "" {
		w.Fatalf("it does not arrive: %s, and says %q; %s", why, w.says(), w.state())
	}
}

// care is what a person does about a machine that does not go on.
func (w *world) care(n *node) {
	if etcdOf(n.runs) < w.needs { // rolled back by hand, or added by a spec that is older than the cluster
		n.next = w.cp.Spec.TalosVersion
		w.restart(n)
	}

	if n.stage == stageUpgrading { // its installer hangs
		w.restart(n)
	}

	// A machine is lost while the disruption of another one is recorded, which waits for etcd to be healthy: the control
	// plane replaces none before that has ended.
	if n.dead {
		w.bury(n)

		return
	}

	if c := w.find(n.name).Status.Change; c != nil && c.Phase == v1alpha1.ChangeFailed {
		w.retry(n)
	}
}

// bury takes a machine that is lost out of the cluster by hand, with its member.
func (w *world) bury(n *node) {
	if w.listedNow(n) {
		w.unlist(n.name)
	}

	w.members = slices.DeleteFunc(slices.Clone(w.members), func(m safety.Member) bool { return m.ID == n.member })
	w.forget(n.name)

	if w.disruption != nil && w.disruption.Machine == n.name {
		w.record(w.version, nil)
	}
}

// rest goes on until the cluster has arrived, or nothing has been disrupted for an hour.
func (w *world) rest() {
	for idle := 0; idle < 60 && w.arrived() != ""; idle++ {
		before := w.disruptions

		w.passes(time.Minute)
		w.managers[0].round()

		if w.disruptions != before {
			idle = 0
		}
	}
}

// arrived says what is missing; nothing if the cluster is as the spec asks for.
func (w *world) arrived() string {
	target, config := w.cp.Spec.TalosVersion, w.cp.Labels[configLabel]

	for _, n := range w.nodes {
		m := w.find(n.name)

		switch {
		case n.runs != target || n.next != target:
			return fmt.Sprintf("%s runs %s and boots %s instead of %s", n.name, n.runs, n.next, target)
		case n.live != config || n.disk != config:
			return fmt.Sprintf("%s has the configuration %s and on disk %s instead of %s", n.name, n.live, n.disk, config)
		case m.Status.Change != nil:
			return fmt.Sprintf("%s changes: %+v", n.name, m.Status.Change)
		case n.cordoned || !w.serves(n) || !w.votes(n.member):
			return fmt.Sprintf("%s is cordoned: %t, serves: %t, votes: %t", n.name, n.cordoned, w.serves(n), w.votes(n.member))
		}
	}

	if w.disruption != nil || w.cp.Status.Upgrade != nil {
		return fmt.Sprintf("recorded are %+v and %+v", w.disruption, w.cp.Status.Upgrade)
	}

	return ""
}

// says is what the objects tell about an upgrade that does not go on.
func (w *world) says() string {
	var out []string

	if u := w.cp.Status.Upgrade; u != nil && u.Message != "" {
		out = append(out, u.Message)
	}

	if p := w.cp.Status.Plan; p != nil && p.Message != "" {
		out = append(out, p.Message)
	}

	if d := w.disruption; d != nil && d.Act == string(safety.ActRemove) {
		out = append(out, d.Machine+" is being taken out")
	}

	for _, m := range w.machines {
		if c := m.Status.Change; c != nil && (c.Phase == v1alpha1.ChangeFailed || c.Phase == v1alpha1.ChangeRebooting ||
			strings.Contains(c.Message, "waiting for etcd")) && c.Message != "" {
			out = append(out, c.Message)
		}
	}

	return strings.Join(out, "; ")
}

// state is what a failure shows of a cluster that does not go on.
func (w *world) state() string {
	nodes, _ := w.collect(w.managers[0].list())
	out := fmt.Sprintf("etcd: %s; members: %+v; disruption: %+v; plan: %+v", safety.AssessEtcd(nodes).Message, w.members,
		w.disruption, w.cp.Status.Plan)

	for _, n := range w.nodes {
		m := w.find(n.name)
		out += fmt.Sprintf("\n%+v; listed: %t, leaves: %t, change %+v, intent %+v", *n, w.listedNow(n),
			m.DeletionTimestamp != nil, m.Status.Change, m.Status.Intent)
	}

	return out
}
