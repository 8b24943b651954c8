// Package history decides what the records of upgrades say: one record for each version of the path that the machines
// of a cluster are brought to. It is pure: the control plane, its machines and the records so far in, what is written
// out.
//
// Records follow what happens, and nothing follows them. Each decision is made anew from what is observed, so it may
// be repeated, and a caller may die between any two of its writes: a record without a status is a run that has begun.
package history

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// Kept is the number of finished runs of a control plane that are kept, of each component.
const Kept = 10

// Run is a record: a TalosUpgrade or a KubernetesUpgrade.
type Run struct {
	Name   string
	Spec   v1alpha1.UpgradeRunSpec
	Status v1alpha1.UpgradeRunStatus

	// any: it brings machines the schematic that each of them wants.
	any bool
}

// Finished reports whether a run has ended. It does not change any more.
func Finished(st *v1alpha1.UpgradeRunStatus) bool { return st.CompletionTime != nil }

// Input is what was observed.
type Input struct {
	// Component whose records are decided about.
	Component    upgrade.Component
	ControlPlane *v1alpha1.TalosControlPlane
	// Machines of the cluster, workers included.
	Machines []v1alpha1.TalosMachine
	// Workers are the groups of the cluster. A machine of a group that is not among them may not fail.
	Workers []v1alpha1.TalosWorker
	// Runs of the control plane and the component, in any order.
	Runs []Run
	Now  time.Time
}

// Outcome is what is written, in this order.
type Outcome struct {
	// Update has a new status; nil if no status changes.
	Update *Run
	// Create is a run that begins; nil if none does.
	Create *Run
	// Delete are the names of finished runs that are no longer kept.
	Delete []string
}

// Settles reports whether the outcome begins or ends a run. What was observed has to be current then: a cache that
// lags behind would end a run that goes on, and a finished run does not change any more.
func (o Outcome) Settles() bool {
	return o.Create != nil || o.Update != nil && Finished(&o.Update.Status)
}

// Next decides what the records become. There is one open run at most: a run ends before the next one begins.
func Next(in Input) Outcome {
	var (
		out  Outcome
		open []Run
		done []string
	)

	// What is decided depends on no order.
	in.Machines = slices.SortedFunc(slices.Values(in.Machines), func(a, b v1alpha1.TalosMachine) int {
		return strings.Compare(a.Name, b.Name)
	})
	runs := slices.Clone(in.Runs)
	slices.SortFunc(runs, func(a, b Run) int { return cmp.Compare(in.number(a.Name), in.number(b.Name)) })

	for _, r := range runs {
		if Finished(&r.Status) {
			done = append(done, r.Name)
		} else {
			open = append(open, r)
		}
	}

	if len(open) > 0 {
		next := in.goOn(open[0])
		if !equality.Semantic.DeepEqual(next.Status, open[0].Status) {
			out.Update = &next
		}

		if Finished(&next.Status) {
			done = append(done, next.Name)
			open = open[1:]
		}
	}

	if len(open) == 0 {
		out.Create = in.begin(1 + in.highest(runs))
	}

	out.Delete = done[:max(0, len(done)-Kept)]

	return out
}

// Name returns the name of a run. It tells which one it is, so that a caller that does not see the newest one cannot
// create it again under another name.
func Name(controlPlane string, of upgrade.Component, number int) string {
	return prefix(controlPlane, of) + strconv.Itoa(number)
}

func prefix(controlPlane string, of upgrade.Component) string {
	return controlPlane + "-" + strings.ToLower(string(of)) + "-"
}

// Number returns the number in the name of a run; 0 if the name is that of something else.
func Number(name, controlPlane string, of upgrade.Component) int {
	text, ok := strings.CutPrefix(name, prefix(controlPlane, of))
	if n, err := strconv.Atoi(text); ok && err == nil && n > 0 {
		return n
	}

	return 0
}

func (in Input) number(name string) int { return Number(name, in.ControlPlane.Name, in.Component) }

func (in Input) highest(runs []Run) int {
	if len(runs) == 0 {
		return 0
	}

	return in.number(runs[len(runs)-1].Name)
}

// planned returns the version of a component that machines get now; empty if they get none, or schematics only.
func (in Input) planned(of upgrade.Component) string {
	switch u := in.ControlPlane.Status.Upgrade; {
	case u == nil:
		return ""
	case of == upgrade.Kubernetes:
		return u.KubernetesVersion
	case u.SchematicsOnly:
		return ""
	default:
		return u.TalosVersion
	}
}

// bringsSchematics reports whether machines get other schematics now, and the records are those of Talos.
func (in Input) bringsSchematics() bool {
	return in.Component == upgrade.Talos && upgrade.BringsSchematics(in.ControlPlane.Status.Upgrade)
}

// unclear reports whether an upgrade is left to do and no machine may be upgraded: the path waits, or there is none.
// What becomes of an open run is not decided then.
func (in Input) unclear() bool {
	u := in.ControlPlane.Status.Upgrade

	return u != nil && u.TalosVersion == "" && u.KubernetesVersion == ""
}

// automatic reports whether the spec has upgrades of the component brought about.
func (in Input) automatic() bool {
	o := in.ControlPlane.Spec.Upgrade
	if o == nil {
		return false
	}

	if in.Component == upgrade.Kubernetes {
		return o.Kubernetes == v1alpha1.UpgradeAutomatic
	}

	return o.Talos == v1alpha1.UpgradeAutomatic
}

// begin returns the run that begins now; nil if none does.
func (in Input) begin(number int) *Run {
	spec := v1alpha1.UpgradeRunSpec{
		ControlPlaneRef: v1alpha1.ObjectReference{Name: in.ControlPlane.Name}, To: in.planned(in.Component),
	}

	switch u := in.ControlPlane.Status.Upgrade; {
	case u == nil || u.ObservedGeneration != in.ControlPlane.Generation:
	case in.bringsSchematics() && in.automatic():
		in.schematic(&spec)
	default:
		spec.From = in.furthest(spec.To)
	}

	if spec.From == "" || spec.To == "" {
		return nil
	}

	run := in.goOn(Run{Name: Name(in.ControlPlane.Name, in.Component, number), Spec: spec})

	return &run
}

// furthest returns the version furthest from another one: the oldest that runs or, where nothing is older because an
// upgrade is taken back, the newest. It is empty if each machine runs that version already.
func (in Input) furthest(from string) string {
	oldest, newest := from, from

	for i := range in.Machines {
		if m := &in.Machines[i]; takesPart(m) {
			for _, v := range versionsOf(in.Component, m) {
				switch {
				case upgrade.Newer(oldest, v):
					oldest = v
				case upgrade.Newer(v, newest):
					newest = v
				}
			}
		}
	}

	switch {
	case oldest != from:
		return oldest
	case newest != from && in.Component == upgrade.Kubernetes: // Talos is never taken back
		return newest
	}

	return ""
}

// schematic completes the spec of a run in which only the schematic changes, or goes. A step of the path brings each
// machine the schematic that it wants, and there is a record of each schematic: the changes of machines tell of it.
func (in Input) schematic(spec *v1alpha1.UpgradeRunSpec) {
	for i := range in.Machines {
		m := &in.Machines[i]
		if c := m.Status.Change; in.wantsSchematic(*m) && m.Status.TalosVersion != "" {
			_, schematic := upgrade.Brings(c)
			spec.From, spec.To = m.Status.TalosVersion, m.Status.TalosVersion
			spec.Schematic, spec.Image = *schematic, c.Image

			return
		}
	}
}

// stamp is a time as an object holds it.
func (in Input) stamp() *metav1.Time {
	t := metav1.NewTime(in.Now.UTC().Truncate(time.Second))

	return &t
}

// title names what the run brings.
func (in Input) title(spec *v1alpha1.UpgradeRunSpec) string {
	switch {
	case !onlySchematic(spec):
	case spec.Schematic != "":
		return fmt.Sprintf("%s %s with schematic %s", in.Component, spec.To, spec.Schematic)
	default:
		return fmt.Sprintf("%s %s without a schematic", in.Component, spec.To)
	}

	return fmt.Sprintf("%s %s", in.Component, spec.To)
}
