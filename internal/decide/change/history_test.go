package change_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
)

// TestMain draws more histories than rapid does by default.
func TestMain(m *testing.M) {
	flag.Parse()

	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })

	if !given {
		if err := flag.Set("rapid.checks", "5000"); err != nil {
			panic(err)
		}
	}

	os.Exit(m.Run())
}

// Configurations of the model. Each character after the number is a property.
const (
	needsReboot = "r" // takes effect with a reboot only
	mayCut      = "c" // could cut the node off, and does not
	cuts        = "x" // cuts the node off
	sickens     = "s" // with it the node never becomes healthy
	refused     = "n" // the node rejects it
	kubernetes  = "k" // it differs in a version of Kubernetes only
	missing     = "m" // its image cannot be pulled
	lags        = "l" // its component never runs
)

func has(config, property string) bool { return strings.Contains(config, property) }

// timeouts of the model.
const (
	health = 10 * time.Minute
	try    = time.Minute
)

// world is one node, the operator that changes it, and the group that allows it to.
type world struct {
	*rapid.T

	now time.Time
	// node
	live, disk string
	before     string // what a trial returns to
	reverts    time.Time
	boot       int
	bootsAt    time.Time // when a requested reboot happens
	asked      time.Time // when this process requested it first
	cordoned   bool
	// operator
	record     change.Record
	grant      *v1alpha1.ChangeGrant
	generation int
	want       string
	known      string // the disruption that the control plane has a record of, by the ID of its change
	controls   bool
	reboots    bool
	retry      bool
	// pulled is what the node has the image of.
	pulled string
	// denied: the safety kernel does not permit the disruption; crowded: pods do not leave the node.
	denied, crowded bool
}

func (w *world) reachable() bool { return !has(w.live, cuts) }

func (w *world) well() bool { return !has(w.live, sickens) && w.bootsAt.IsZero() }

// passes advances the clock and what happens on the node by itself.
func (w *world) passes(d time.Duration) {
	w.now = w.now.Add(d)

	if !w.reverts.IsZero() && !w.now.Before(w.reverts) {
		w.live, w.reverts = w.before, time.Time{}
	}

	if !w.bootsAt.IsZero() && !w.now.Before(w.bootsAt) {
		w.restart()
	}
}

// restart boots the node from its disk.
func (w *world) restart() {
	w.boot++
	w.live, w.reverts, w.bootsAt = w.disk, time.Time{}, time.Time{}
}

func (w *world) input() change.Input {
	in := change.Input{
		Now: w.now, Name: "node", Key: fmt.Sprint(w.generation), ControlPlane: w.controls,
		Options: change.Options{
			HealthTimeout: health, TryTimeout: try, Drift: v1alpha1.DriftReport, Drains: true, Reboots: w.reboots,
		},
		Record: w.record, Grant: w.grant, Live: w.live, Want: w.want, Equal: w.live == w.want, Retry: w.retry,
		BootID: fmt.Sprint(w.boot), Stage: change.StageRunning, Ready: w.well(), Asked: w.asked,
	}

	if has(w.live, lags) {
		in.Lags = "kube-apiserver"
	}

	w.record = change.Arrived(w.record, w.live)
	in.Record = w.record

	if !w.bootsAt.IsZero() {
		in.Stage = "rebooting"
	}

	if r := w.record; r.Sent != "" && w.live != r.Sent && w.live != w.want && !r.Between() {
		in.Edited = []string{"edited to " + w.live}
	}

	return in
}

// save keeps a record, as the API server does: what is written does not share memory with the writer.
func (w *world) save(r change.Record) {
	if r.Intent == nil {
		w.asked = time.Time{}
	}

	w.record = change.Record{Change: r.Change.DeepCopy(), Intent: r.Intent.DeepCopy(), Sent: r.Sent}
}

// reconcile is one reconciliation. It ends before or after the n-th act, as if the operator had crashed.
func (w *world) reconcile(crash int) {
	if !w.reachable() {
		if step, ends := change.Silent(w.input(), true, 0); ends {
			w.save(step.Before)
		}

		return
	}

	if i := w.record.Intent; change.Checked(i, try, w.now) {
		i.Checked = true
	}

	if !w.compare() {
		return
	}

	var pass change.Pass

	for n := range 20 {
		in := w.input()
		in.Pass = pass

		step := change.Next(in)
		if step.Act == change.None {
			w.save(step.Before)

			return
		}

		if i := step.Before.Intent; i != nil && (w.record.Intent == nil || i.Step != w.record.Intent.Step ||
			i.Attempt != w.record.Intent.Attempt) {
			w.save(step.Before) // written before the act
		}

		if step.Act == change.Drain { // the drain records its own beginning
			step.Before.Intent = &v1alpha1.MachineIntent{Step: v1alpha1.StepDrain, Since: metav1.NewTime(w.now)}
			w.save(step.Before)
		}

		if crash == 2*n {
			w.asked = time.Time{}

			return
		}

		in.Record = step.Before

		instead := w.perform(in, step.Act, &pass)
		if crash == 2*n+1 {
			w.asked = time.Time{}

			return
		}

		switch {
		case instead != nil:
			w.save(instead.Before)

			return
		case step.After != nil:
			w.save(*step.After)
		default:
			w.save(step.Before)
		}

		if step.Again > 0 {
			return
		}
	}

	w.Fatalf("the steps do not end: %+v", w.record)
}

// compare records the change that the difference needs; it reports whether the reconciliation goes on.
func (w *world) compare() bool {
	in := w.input()

	outcome, record := change.Compare(in)
	if outcome == change.Unfinished {
		return true
	}

	w.save(record)
	w.retry = false

	switch outcome {
	case change.Forgone, change.TakenOver:
		if w.record.Change != nil {
			w.unstage()

			w.cordoned = false
			w.record.Change, w.record.Intent = nil, nil
		}
	case change.Described:
		w.unstage()

		if change.MayBeDrained(w.record.Change) {
			w.cordoned = false
		}

		w.save(change.Describe(in, change.Effect{
			Kind: kindOf(w.want), Image: w.want, Reboot: has(w.want, needsReboot), Cuts: has(w.want, mayCut) || has(w.want, cuts),
			Fields: []v1alpha1.FieldChange{{Field: w.want}},
		}))
	case change.Kept, change.Unfinished:
	}

	return true
}

func kindOf(config string) v1alpha1.ChangeKind {
	if has(config, kubernetes) {
		return v1alpha1.ChangeKubernetes
	}

	return ""
}

// unstage puts the live configuration in the place of a staged one.
func (w *world) unstage() {
	if in := w.input(); in.MayBeStaged() && w.record.Change.Base == w.live {
		w.disk = w.live
	}
}

// perform makes an act happen, and checks that it may.
func (w *world) perform(in change.Input, act change.Act, pass *change.Pass) *change.Step {
	c := w.record.Change

	switch act {
	case change.AskStaged:
		pass.Asked, pass.Holds = true, w.disk != w.live
	case change.Drain:
		w.cordoned, pass.Drained = true, !w.crowded
		if w.crowded {
			pass.Held = "pods"
		}
	case change.Permit:
		pass.Permitted, pass.Unrecorded = w.known == c.ID && !w.denied, w.known != c.ID
		if w.denied && w.known == c.ID {
			pass.Held = "etcd"
		}
	case change.Pull:
		w.pulled, pass.Pulled = c.Image, true
		if has(c.Image, missing) {
			pass.Pulled, pass.Failed = false, "it cannot be pulled"
		}
	case change.Prove:
		pass.Proven = w.live == c.Target
	case change.Uncordon:
		w.cordoned, pass.Uncordoned = false, true
	case change.Remember:
		pass.Remembered = true

		if has(w.live, sickens) || has(w.live, lags) && c != nil {
			w.Fatalf("%s is remembered as working", w.live)
		}
	case change.Try, change.Apply, change.Stage:
		return w.send(in, act, pass)
	case change.Reboot:
		w.mayDisrupt(act, pass)

		if w.disk != c.Target && w.record.Intent.BootID == fmt.Sprint(w.boot) && w.live != w.disk {
			w.Fatalf("it reboots into %s instead of %s", w.disk, c.Target)
		}

		w.bootsAt = w.now.Add(20 * time.Second)
		if w.asked.IsZero() {
			w.asked = w.now
		}
	case change.None:
	}

	return nil
}

// send gives the node the desired configuration.
func (w *world) send(in change.Input, act change.Act, pass *change.Pass) *change.Step {
	if has(w.want, refused) {
		step := change.Refuse(in, "it refuses "+w.want)

		return &step
	}

	switch act {
	case change.Try:
		w.mayDisrupt(act, pass)
		w.before, w.live, w.reverts = w.live, w.want, w.now.Add(try)
	case change.Apply:
		if w.live != w.want {
			w.mayDisrupt(act, pass)

			if has(w.want, missing) || has(w.want, kubernetes) && w.pulled != w.want {
				w.Fatalf("%s is sent and its image was not pulled", w.want)
			}

			if w.record.Change.Try {
				w.Fatalf("%s is sent without a trial", w.want)
			}
		}

		w.live, w.disk, w.reverts, pass.Sent = w.want, w.want, time.Time{}, true
	default:
		w.disk, pass.Staged = w.want, true
	}

	return nil
}

// mayDisrupt checks that a disruption was granted, permitted, and recorded.
func (w *world) mayDisrupt(act change.Act, pass *change.Pass) {
	c, i := w.record.Change, w.record.Intent

	switch {
	case w.grant == nil || w.grant.ID != c.ID:
		w.Fatalf("%s without a grant: %+v", act, c)
	case act == change.Reboot && !w.reboots:
		w.Fatalf("a reboot outside of a window: %+v", c)
	case act == change.Reboot && !w.grant.Reboot:
		w.Fatalf("a reboot that was not granted: %+v", c)
	case c.Etcd && !pass.Permitted:
		w.Fatalf("%s without permission: %+v", act, c)
	case i == nil || i.Step != map[change.Act]string{
		change.Reboot: v1alpha1.StepReboot, change.Try: v1alpha1.StepTry, change.Apply: v1alpha1.StepApply,
	}[act]:
		w.Fatalf("%s with the record %+v", act, i)
	}
}

// allow lets the machine begin, as its group does: a control plane records the disruption first.
func (w *world) allow(reboot bool) {
	c := w.record.Change
	if c == nil || c.Phase != v1alpha1.ChangePending && c.Phase != v1alpha1.ChangeAwaitingReboot {
		return
	}

	if w.grant != nil && w.grant.ID == c.ID && w.grant.Reboot == reboot {
		return
	}

	if !c.Reboot || reboot {
		w.known = c.ID
	}

	w.grant = &v1alpha1.ChangeGrant{ID: c.ID, Reboot: c.Reboot && reboot}
	w.generation++
}

// check holds whatever happens.
func (w *world) check() {
	c := w.record.Change

	switch {
	case has(w.disk, cuts):
		w.Fatalf("%s would cut the node off for good", w.disk)
	case (c == nil || c.Phase == v1alpha1.ChangePending || c.Phase == v1alpha1.ChangeAwaitingReboot) && w.cordoned:
		w.Fatalf("the node stays unschedulable: %+v", c)
	case c == nil && w.record.Intent == nil && w.record.Sent == w.live && w.disk != w.live && w.reverts.IsZero():
		w.Fatalf("%s waits on the disk of a node that runs %s", w.disk, w.live)
	}
}

// TestHistories: whatever the spec, the group, the node and crashes do, a node is disrupted only with a record, a grant
// and a permission, is never cut off for good, never keeps on its disk what is no longer desired, and in the end runs
// what the spec says, or its change has failed.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		configs := []string{
			"1", "2", "3" + needsReboot, "4" + needsReboot, "5" + mayCut, "6" + cuts, "7" + sickens,
			"8" + needsReboot + sickens, "9" + needsReboot + mayCut, "10" + refused,
			"11" + kubernetes, "12" + kubernetes + missing, "13" + kubernetes + lags,
		}
		w := &world{
			T: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), live: "1", disk: "1", want: "1",
			record: change.Record{Sent: "1"}, reboots: true, controls: rapid.Bool().Draw(t, "control plane"),
		}

		crash := func(t *rapid.T) int {
			return rapid.OneOf(rapid.Just(-1), rapid.IntRange(0, 12)).Draw(t, "crash")
		}

		t.Repeat(map[string]func(*rapid.T){
			"":          func(*rapid.T) { w.check() },
			"reconcile": func(t *rapid.T) { w.reconcile(crash(t)) },
			"again":     func(t *rapid.T) { w.passes(2 * time.Second); w.reconcile(crash(t)) },
			"later":     func(t *rapid.T) { w.passes(time.Minute); w.reconcile(crash(t)) },
			"time": func(t *rapid.T) {
				w.passes(time.Duration(rapid.IntRange(1, 300).Draw(t, "seconds")) * time.Second)
			},
			"spec":    func(t *rapid.T) { w.want = rapid.SampledFrom(configs).Draw(t, "want"); w.generation++ },
			"allow":   func(t *rapid.T) { w.allow(rapid.Bool().Draw(t, "reboot")) },
			"window":  func(*rapid.T) { w.reboots = !w.reboots },
			"deny":    func(*rapid.T) { w.denied = !w.denied },
			"crowd":   func(*rapid.T) { w.crowded = !w.crowded },
			"restore": func(*rapid.T) { w.known = "" },
			"retry":   func(*rapid.T) { w.retry = true },
			"reboot": func(*rapid.T) {
				if w.reachable() {
					w.restart()
				}
			},
		})

		w.settle()
	})
}

// settle leaves the operator alone until nothing changes any more.
func (w *world) settle() {
	w.reboots, w.retry, w.denied, w.crowded = true, false, false, false

	for range 400 {
		w.allow(true)
		w.passes(2 * time.Second)
		w.reconcile(-1)
		w.check()
	}

	c := w.record.Change

	switch {
	case c != nil && c.Phase == v1alpha1.ChangeFailed:
		bad := slices.ContainsFunc([]string{mayCut, cuts, sickens, refused, missing, lags}, func(p string) bool { return has(w.want, p) })
		if !bad && !has(w.live, sickens) && !has(w.live, lags) && !strings.Contains(c.Message, "does not run the config that was staged") {
			w.Fatalf("the change to %s failed: %s", w.want, c.Message)
		}
	case c != nil && c.Phase == v1alpha1.ChangeSettling && (has(w.live, sickens) || has(w.live, lags)): // has more time
	case c != nil:
		w.Fatalf("the change to %s does not end: %+v, intent %+v", w.want, c, w.record.Intent)
	case w.record.Intent != nil:
		w.Fatalf("the step %+v does not end", w.record.Intent)
	case w.live != w.want:
		w.Fatalf("it runs %s and not %s: %+v", w.live, w.want, w.record)
	}
}
