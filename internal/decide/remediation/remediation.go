// Package remediation decides which machine of a group is replaced by which spare. It is pure; the controllers of the
// groups consult the safety package and act.
package remediation

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// Group is a control plane or a worker group.
type Group struct {
	// Machines and Spares, as listed in the spec.
	Machines, Spares []v1alpha1.MachineEntry
	// Options of the spec; nil if machines are replaced only on request.
	Options *v1alpha1.RemediationOptions
	// Replaced maps replaced machines to the spares that replace them.
	Replaced map[string]string
	// Existing TalosMachines of the group.
	Existing []v1alpha1.TalosMachine
	// Unfit maps spares to the reason why they cannot replace a machine now.
	Unfit map[string]string
	// Held reports whether a machine is blocked from all changes; nil if no machine is.
	Held func(*v1alpha1.TalosMachine) bool
	// Now is the current time.
	Now time.Time

	// spared are machines that count as gone and are not replaced.
	spared map[string]bool
}

// free reports whether the machine may be replaced, if there is a reason to.
func (g Group) free(m *v1alpha1.TalosMachine) bool {
	return m.DeletionTimestamp.IsZero() && (g.Held == nil || !g.Held(m))
}

// Entries returns the machine list with replaced machines removed and their spares added. A spare is added only once
// the machine is gone: a dead member is removed from etcd before another one joins.
func (g Group) Entries() []v1alpha1.MachineEntry {
	out := make([]v1alpha1.MachineEntry, 0, len(g.Machines))

	for _, m := range g.Machines {
		spare, replaced := g.spare(g.Replaced[m.Name])

		switch {
		case !replaced:
			out = append(out, m)
		case !g.exists(m.Name) && !g.leaving():
			out = append(out, spare)
		}
	}

	return out
}

// leaving reports whether a spare that replaced a machine and was replaced itself still exists.
func (g Group) leaving() bool {
	inUse := slices.Collect(maps.Values(g.Replaced))

	return slices.ContainsFunc(g.Spares, func(s v1alpha1.MachineEntry) bool {
		return g.exists(s.Name) && !slices.Contains(inUse, s.Name)
	})
}

// Replace records that a spare replaces a machine, which may itself be a spare that replaced another one.
func Replace(replaced map[string]string, machine, spare string) map[string]string {
	out := maps.Clone(replaced)
	if out == nil {
		out = map[string]string{}
	}

	for listed, standIn := range replaced {
		if standIn == machine {
			machine = listed
		}
	}

	out[machine] = spare

	return out
}

// Obsolete returns the replaced machines whose entry has been updated in the spec: they, or their spare, are no longer
// listed as before.
func (g Group) Obsolete() []string {
	var out []string

	for _, machine := range slices.Sorted(maps.Keys(g.Replaced)) {
		_, spare := g.spare(g.Replaced[machine])
		if !spare || !slices.ContainsFunc(g.Machines, named(machine)) {
			out = append(out, machine)
		}
	}

	return out
}

// Choice is the next replacement.
type Choice struct {
	// Machine to replace; empty if there is none. Spare that replaces it; empty if none is available.
	Machine, Spare string
	// Gone: the machine has been unreachable for longer than the timeout.
	Gone bool
	// Asked: a user requested the replacement.
	Asked bool
	// Reason and Message say what the replacement waits for; empty if it may begin.
	Reason, Message string
}

// Choose selects the one machine that is replaced next: one that a user has chosen, else one that has been unreachable
// for longer than the timeout, unless too many are unreachable at once.
func (g Group) Choose() Choice {
	for i := range g.Existing {
		m := &g.Existing[i]
		wish, asked := m.Annotations[v1alpha1.ReplaceAnnotation]
		if asked && g.listed(m.Name) && g.free(m) {
			return g.with(Choice{Machine: m.Name, Gone: g.Gone(m), Asked: true}, wish)
		}
	}

	var silent, gone []string

	for i := range g.Existing {
		m := &g.Existing[i]
		if !g.listed(m.Name) || !isSilent(m) {
			continue
		}

		silent = append(silent, m.Name)

		if g.Gone(m) && g.free(m) && !g.spared[m.Name] {
			gone = append(gone, m.Name)
		}
	}

	if len(gone) == 0 {
		return Choice{}
	}

	if most := safety.Budget(g.Options.MaxUnhealthy, len(g.Machines)); len(silent) > most {
		return Choice{
			Machine: gone[0], Gone: true, Reason: v1alpha1.ReasonTooManyUnhealthy,
			Message: fmt.Sprintf("%s are unreachable, and maxUnhealthy is %d: no machine is replaced automatically; check "+
				"the network, or replace a machine manually", strings.Join(silent, ", "), most),
		}
	}

	return g.with(Choice{Machine: gone[0], Gone: true}, "")
}

// with finds a spare for the chosen machine.
func (g Group) with(c Choice, wish string) Choice {
	var unfit []string

	for _, s := range g.Spares {
		if wish != "" && wish != s.Name || g.used(s.Name) {
			continue
		}

		why := g.Unfit[s.Name]
		if why == "" {
			c.Spare = s.Name

			return c
		}

		unfit = append(unfit, s.Name+" "+why)
	}

	c.Reason, c.Message = v1alpha1.ReasonNoSpare, fmt.Sprintf("%s is to be replaced, and no spare machine is free; list "+
		"one in spec.spares", c.Machine)

	switch {
	case len(unfit) > 0:
		c.Message = fmt.Sprintf("%s is to be replaced, and no spare machine is suitable: %s", c.Machine, strings.Join(unfit,
			", "))
	case wish != "":
		c.Message = fmt.Sprintf("%s is to be replaced by %s, which is no free machine of spec.spares", c.Machine, wish)
	}

	return c
}

// Look queries the live state of machines.
type Look struct {
	// Unfit says why a spare cannot replace a machine; empty if it can.
	Unfit func(spare v1alpha1.MachineEntry) (string, error)
	// Sign returns a sign of life of a machine that counts as gone; empty if there is none. An error means that the state
	// is unknown.
	Sign func(m *v1alpha1.TalosMachine) (string, error)
}

// ChooseNow is Choose, restricted to spares that are suitable and machines that are gone according to a live query. A
// machine that turns out to be alive does not block the replacement of the next one.
func (g Group) ChooseNow(look Look) (Choice, error) {
	var (
		kept  Choice
		signs map[string]sighting
	)

	g.Unfit, g.spared = map[string]string{}, map[string]bool{}

	first := g.Choose()
	if first.Spare == "" {
		return first, nil
	}

	if err := g.askSpares(look); err != nil {
		return first, err
	}

	for {
		c := g.Choose()

		if c.Gone && c.Reason == "" {
			if signs == nil {
				signs = g.askGone(look)
			}

			if c = c.Confirm(signs[c.Machine].sign, signs[c.Machine].err); c.Reason != "" {
				g.spared[c.Machine] = true
				kept = c

				continue
			}
		}

		if kept.Machine != "" && (c.Machine == "" || c.Reason != "") {
			return kept, nil
		}

		return c, nil
	}
}

// sighting is the result of a live query of a machine that counts as gone.
type sighting struct {
	sign string
	err  error
}

// askSpares queries all free spares concurrently: each unreachable spare takes seconds to time out, and the first
// suitable one may be the last on the list.
func (g Group) askSpares(look Look) error {
	free := slices.DeleteFunc(slices.Clone(g.Spares), func(s v1alpha1.MachineEntry) bool { return g.used(s.Name) })
	errs := make([]error, len(free))
	unfit := make([]string, len(free))

	atOnce(len(free), func(i int) { unfit[i], errs[i] = look.Unfit(free[i]) })

	for i, spare := range free {
		if unfit[i] != "" {
			g.Unfit[spare.Name] = unfit[i]
		}
	}

	return errors.Join(errs...)
}

// askGone queries all machines that count as gone concurrently, for the same reason.
func (g Group) askGone(look Look) map[string]sighting {
	var gone []*v1alpha1.TalosMachine

	for i := range g.Existing {
		if m := &g.Existing[i]; g.Gone(m) && g.listed(m.Name) && g.free(m) {
			gone = append(gone, m)
		}
	}

	found := make([]sighting, len(gone))
	atOnce(len(gone), func(i int) { found[i].sign, found[i].err = look.Sign(gone[i]) })

	out := map[string]sighting{}
	for i, m := range gone {
		out[m.Name] = found[i]
	}

	return out
}

// askedAtOnce limits how many machines are queried concurrently.
const askedAtOnce = 32

// atOnce calls do for 0 to n-1 with limited concurrency.
func atOnce(n int, do func(int)) {
	var wg sync.WaitGroup

	places := make(chan struct{}, askedAtOnce)

	for i := range n {
		places <- struct{}{}

		wg.Go(func() {
			defer func() { <-places }()

			do(i)
		})
	}

	wg.Wait()
}

// Confirm applies the result of a live query of a gone machine: a sign of life, or an error if its state is unknown. A
// machine that is alive is replaced only on request of a user, and is then removed as a live machine.
func (c Choice) Confirm(sign string, err error) Choice {
	switch {
	case sign != "" && c.Asked:
		c.Gone = false
	case sign != "":
		c.Reason, c.Message = v1alpha1.ReasonMachineAlive, fmt.Sprintf("%s has been unreachable for longer than its "+
			"timeout, but %s: it is not replaced; check why the operator cannot reach it, or replace it manually", c.Machine,
			sign)
	case err != nil && !c.Asked:
		c.Reason, c.Message = v1alpha1.ReasonWaitingForEvidence, fmt.Sprintf("%s is unreachable, and the state of its "+
			"Node is unknown: %s", c.Machine, failure.Message(err))
	}

	return c
}

// Abandoned returns the replaced machines that are abandoned: unreachable for longer than the timeout, without a sign
// of life. A machine that was replaced manually also counts as abandoned if a sign of life cannot be queried. leaving
// names the machines that are being removed.
func (g Group) Abandoned(
	leaving []string, sign func(m *v1alpha1.TalosMachine) (string, error),
) []*v1alpha1.TalosMachine {
	var candidates, out []*v1alpha1.TalosMachine

	for i := range g.Existing {
		m := &g.Existing[i]
		_, replaced := g.Replaced[m.Name]
		_, spare := g.spare(m.Name)

		if !replaced && !spare || !slices.Contains(leaving, m.Name) || !g.Gone(m) || g.Held != nil && g.Held(m) ||
			kube.AnnotationTrue(m, v1alpha1.SkipResetAnnotation) {
			continue
		}

		candidates = append(candidates, m)
	}

	found := make([]sighting, len(candidates))
	atOnce(len(candidates), func(i int) { found[i].sign, found[i].err = sign(candidates[i]) })

	for i, m := range candidates {
		// A machine that is alive is wiped as soon as it responds.
		_, asked := m.Annotations[v1alpha1.ReplaceAnnotation]
		if found[i].sign == "" && (found[i].err == nil || asked) {
			out = append(out, m)
		}
	}

	return out
}

// Gone reports whether a machine has been unreachable for longer than the timeout.
func (g Group) Gone(m *v1alpha1.TalosMachine) bool {
	if g.Options == nil || !isSilent(m) {
		return false
	}

	c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReachable)

	return g.Now.Sub(c.LastTransitionTime.Time) >= g.Options.Timeout.Duration
}

// Next returns when the timeout of the next unreachable machine expires; zero if there is none.
func (g Group) Next() time.Time {
	var next time.Time

	for i := range g.Existing {
		m := &g.Existing[i]
		if g.Options == nil || !g.listed(m.Name) || !isSilent(m) || g.Gone(m) {
			continue
		}

		c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReachable)
		if at := c.LastTransitionTime.Add(g.Options.Timeout.Duration); next.IsZero() || at.Before(next) {
			next = at
		}
	}

	return next
}

// isSilent reports whether the machine was configured by the operator and is unreachable. A machine that presents
// another certificate, or rejects the operator's credentials, is not gone.
func isSilent(m *v1alpha1.TalosMachine) bool {
	c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReachable)

	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonNodeUnreachable &&
		meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionConfigured)
}

// Report returns the replacements for a status, sorted.
func Report(replaced map[string]string, machines []v1alpha1.MachineEntry) []v1alpha1.Replacement {
	var out []v1alpha1.Replacement

	for _, m := range machines {
		if spare := replaced[m.Name]; spare != "" {
			out = append(out, v1alpha1.Replacement{Machine: m.Name, Spare: spare})
		}
	}

	return out
}

func (g Group) spare(name string) (v1alpha1.MachineEntry, bool) {
	i := slices.IndexFunc(g.Spares, named(name))
	if name == "" || i < 0 {
		return v1alpha1.MachineEntry{}, false
	}

	return g.Spares[i], true
}

// listed reports whether the machine is on the current list, including the spares that replace machines.
func (g Group) listed(name string) bool { return slices.ContainsFunc(g.Entries(), named(name)) }

func (g Group) used(spare string) bool {
	return slices.Contains(slices.Collect(maps.Values(g.Replaced)), spare) || g.exists(spare)
}

func (g Group) exists(name string) bool { return g.existing(name) != nil }

func (g Group) existing(name string) *v1alpha1.TalosMachine {
	i := slices.IndexFunc(g.Existing, func(m v1alpha1.TalosMachine) bool { return m.Name == name })
	if i < 0 {
		return nil
	}

	return &g.Existing[i]
}

func named(name string) func(v1alpha1.MachineEntry) bool {
	return func(m v1alpha1.MachineEntry) bool { return m.Name == name }
}
