// Package notification decides which transitions of the runs of upgrades are told, to which webhooks, and when. It is
// pure: the records, what was recorded about them so far and the time in, what is recorded and sent out.
//
// A notification is sent at least once, and normally once. An attempt is recorded before it is made, and its result
// after it: a caller that dies in between repeats it, with the same ID.
package notification

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/history"
	"github.com/talos-operator/talos-operator/internal/kube"
)

const (
	// Recent is how old a transition may be for a webhook that was configured after it.
	Recent = time.Hour
	// GiveUp is how long a transition is tried after it was observed.
	GiveUp = 6 * time.Hour
	// kept is how many transitions of a run are remembered, and how many plans that have awaited approval. Older ones are
	// no longer tried.
	kept = 16
	// longestMessage is the maximum length of a message: a record holds those of the entries that are remembered.
	longestMessage = 1000
)

// Ledger is what is recorded of one run.
type Ledger struct {
	// Phase of the run when it was last observed; empty if it never was.
	Phase v1alpha1.UpgradeRunPhase `json:"phase,omitempty"`
	// Plans whose wait for approval is among the entries, or was.
	Plans []string `json:"plans,omitempty"`
	// Refused: that bootstrap manifests are refused is among the entries, or was.
	Refused bool `json:"refused,omitempty"`
	// Failing are the machines that have failed now, and whose failure is among the entries, or was.
	Failing []string `json:"failing,omitempty"`
	// Held are the machines whose drain waits for a user now, and whose hold is among the entries, or was.
	Held []string `json:"held,omitempty"`
	// Blocked is what holds the upgrade of a control plane before a version begins and is among the entries, or was.
	Blocked []string `json:"blocked,omitempty"`
	// Last is the number of the last entry.
	Last int `json:"last,omitempty"`
	// Entries are the transitions of the run, in their order.
	Entries []Entry `json:"entries,omitempty"`
}

// Entry is one transition of a run, with what the run was like then: a repetition says the same.
type Entry struct {
	Number int                        `json:"number"`
	Event  v1alpha1.NotificationEvent `json:"event"`
	// Time of the transition, and when it was Observed: later if the operator was not running.
	Time     metav1.Time `json:"time"`
	Observed metav1.Time `json:"observed"`

	Phase   v1alpha1.UpgradeRunPhase `json:"phase"`
	Message string                   `json:"message,omitempty"`
	Total   int32                    `json:"total,omitempty"`
	Done    int32                    `json:"done,omitempty"`
	Failed  int32                    `json:"failed,omitempty"`
	// Hook is set where a failed hook has stopped the run, and not a machine.
	Hook bool `json:"hook,omitempty"`
	// Manifests is set where the run waits for bootstrap manifests that are refused, and not for an approval.
	Manifests bool `json:"manifests,omitempty"`
	// Held is set where machines, or the whole run, wait for something else than an approval. The message says what to do.
	Held bool `json:"held,omitempty"`
	// Target are the versions that the spec asks for, where the upgrade is held before a version begins.
	Target string `json:"target,omitempty"`
	// Deliveries that were attempted, by the key of their target.
	Deliveries map[string]Delivery `json:"deliveries,omitempty"`
}

// Result is how a delivery ended.
type Result string

// Results of deliveries.
const (
	// ResultSent: the receiver has accepted it.
	ResultSent Result = "Sent"
	// ResultFailed: the receiver has refused it, or it was tried for too long.
	ResultFailed Result = "Failed"
)

// Delivery are the attempts to send one transition to one target.
type Delivery struct {
	Attempts int         `json:"attempts"`
	First    metav1.Time `json:"first"`
	// Next is when it is tried again, unless Result is set.
	Next   metav1.Time `json:"next"`
	Result Result      `json:"result,omitempty"`
}

// Plan is a plan of a group of machines that awaits the approval of a user.
type Plan struct{ ID, Message string }

// Observe returns the ledger with the transitions that a run has made since it was last observed. The plans are those
// of its cluster. Where a run was never observed before, the times of its transitions are those of its record: whether
// they are still told depends on them. A plan that awaits approval does so now, however long the run goes on.
func (l Ledger) Observe(st *v1alpha1.UpgradeRunStatus, plans []Plan, now time.Time) Ledger {
	if st.Phase == "" || st.StartTime == nil || finished(l.Phase) {
		return l
	}

	l.Entries = slices.Clone(l.Entries)

	began := st.StartTime.Time
	if l.Phase == "" {
		l = l.add(st, v1alpha1.NotificationStarted, began, "")
	} else {
		began = now
	}

	switch st.Phase {
	case v1alpha1.UpgradeRunSucceeded, v1alpha1.UpgradeRunCalledOff:
		l = l.add(st, v1alpha1.NotificationFinished, ended(st, began), st.Message)
	case v1alpha1.UpgradeRunFailed:
		l = l.add(st, v1alpha1.NotificationFailed, ended(st, began), st.Message)
	case v1alpha1.UpgradeRunStopped:
		l = l.failMachines(st, stopped(st, began))
		if l.Phase != st.Phase {
			l = l.add(st, v1alpha1.NotificationFailed, stopped(st, began), st.Message)
		}

		l = l.await(st, plans, now).hold(st, now) // of other groups, which go on
	case v1alpha1.UpgradeRunRunning, v1alpha1.UpgradeRunWaiting:
		l = l.failMachines(st, began).await(st, plans, now).refuse(st, now).hold(st, now)
	}

	for i := range l.Entries {
		if e := &l.Entries[i]; e.Observed.IsZero() { // one of those above
			e.Observed = stamp(now)
		}
	}

	l.Phase = st.Phase
	if l.Phase == v1alpha1.UpgradeRunWaiting { // a window, for example: it comes and goes with each machine
		l.Phase = v1alpha1.UpgradeRunRunning
	}

	return l
}

// failMachines adds the machines that have failed and were not told yet, as one entry. One that was retried, and fails
// again, is told again.
func (l Ledger) failMachines(st *v1alpha1.UpgradeRunStatus, at time.Time) Ledger {
	told := l.Failing
	l.Failing = Failing(st)

	var messages []string

	for _, m := range st.Machines {
		if m.State == v1alpha1.UpgradeMachineFailed && !slices.Contains(told, m.Name) {
			messages = append(messages, fmt.Sprintf("%s failed: %s", m.Name, m.Message))
		}
	}

	if len(messages) == 0 {
		return l
	}

	return l.add(st, v1alpha1.NotificationMachineFailed, at, strings.Join(messages, "; "))
}

// Failing returns the machines of a run that have failed now.
func Failing(st *v1alpha1.UpgradeRunStatus) []string {
	var out []string

	for _, m := range st.Machines {
		if m.State == v1alpha1.UpgradeMachineFailed {
			out = append(out, m.Name)
		}
	}

	slices.Sort(out)

	return out
}

// await adds the plans that await approval and that were not told yet, as one entry. A plan that is told has to be
// approved, whatever else happens in the meantime, so it is told once.
func (l Ledger) await(st *v1alpha1.UpgradeRunStatus, plans []Plan, at time.Time) Ledger {
	var messages []string

	l.Plans = slices.Clone(l.Plans)

	for _, p := range plans {
		if !slices.Contains(l.Plans, p.ID) {
			l.Plans = append(l.Plans, p.ID)
			messages = append(messages, p.Message)
		}
	}

	if len(messages) == 0 {
		return l
	}

	// A plan that awaits approval now is not forgotten, however many there are: it would be new again, and told for ever.
	excess := len(l.Plans) - kept
	l.Plans = slices.DeleteFunc(l.Plans, func(id string) bool {
		if excess <= 0 || slices.ContainsFunc(plans, func(p Plan) bool { return p.ID == id }) {
			return false
		}

		excess--

		return true
	})

	slices.Sort(messages)

	return l.ask(st, at, strings.Join(messages, "; "))
}

// ask adds that a run waits for a user. Where it has stopped, another group has.
func (l Ledger) ask(st *v1alpha1.UpgradeRunStatus, at time.Time, message string) Ledger {
	asks := *st
	if asks.Phase == v1alpha1.UpgradeRunStopped {
		asks.Phase = v1alpha1.UpgradeRunWaiting
	}

	return l.add(&asks, v1alpha1.NotificationWaiting, at, message)
}

// hold adds the machines whose drain waits for a user and that were not told yet, as one entry. Each is told once for
// as long as it does, although the pods that hold it change.
func (l Ledger) hold(st *v1alpha1.UpgradeRunStatus, at time.Time) Ledger {
	told := l.Held
	l.Held = Held(st)

	var messages []string

	for _, m := range st.Machines {
		if slices.Contains(l.Held, m.Name) && !slices.Contains(told, m.Name) {
			messages = append(messages, m.Message)
		}
	}

	if len(messages) == 0 {
		return l
	}

	l = l.ask(st, at, strings.Join(messages, "; "))
	l.Entries[len(l.Entries)-1].Held = true

	return l
}

// Held returns the machines of a run that wait for a user in the middle of their upgrade.
func Held(st *v1alpha1.UpgradeRunStatus) []string {
	var out []string

	for _, m := range st.Machines {
		if m.State == v1alpha1.UpgradeMachineInProgress && m.Message != "" {
			out = append(out, m.Name)
		}
	}

	slices.Sort(out)

	return out
}

// refuse adds that a run waits for bootstrap manifests that are refused, once for as long as it does: which ones are
// may change with each attempt.
func (l Ledger) refuse(st *v1alpha1.UpgradeRunStatus, at time.Time) Ledger {
	told := l.Refused
	l.Refused = ManifestsRefused(st)

	if l.Refused && !told {
		l = l.add(st, v1alpha1.NotificationWaiting, at, st.Message)
		l.Entries[len(l.Entries)-1].Manifests = true
	}

	return l
}

// ManifestsRefused reports whether a run waits because the API server refuses bootstrap manifests.
func ManifestsRefused(st *v1alpha1.UpgradeRunStatus) bool {
	c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionReconciling)

	return c != nil && c.Reason == v1alpha1.ReasonManifestsRefused
}

func (l Ledger) add(
	st *v1alpha1.UpgradeRunStatus, event v1alpha1.NotificationEvent, at time.Time, message string,
) Ledger {
	l.Last++
	l.Entries = append(l.Entries, Entry{
		Number: l.Last, Event: event, Time: stamp(at), Phase: st.Phase, Message: kube.Shorten(message, longestMessage),
		Total: st.Total, Done: st.Done, Failed: st.Failed,
		Hook: event == v1alpha1.NotificationFailed && st.Phase == v1alpha1.UpgradeRunStopped &&
			reasonOf(st) == v1alpha1.ReasonUpgradeHookFailed,
	})
	l.Entries = l.Entries[max(0, len(l.Entries)-kept):]

	return l
}

// reasonOf says what a run has stopped at; empty if it has not.
func reasonOf(st *v1alpha1.UpgradeRunStatus) string {
	if c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionStalled); c != nil {
		return c.Reason
	}

	return ""
}

// Worth reports whether a ledger has to be recorded although nothing is sent: the next transition of a run that goes on
// is recognised by it. The record of a finished run of which nothing is told stays as it is.
func (l Ledger) Worth(before Ledger) bool {
	if before.Phase == "" && finished(l.Phase) {
		return false
	}

	return l.Phase != before.Phase || l.Last != before.Last || l.Refused != before.Refused ||
		!slices.Equal(l.Failing, before.Failing) || !slices.Equal(l.Held, before.Held) ||
		!slices.Equal(l.Blocked, before.Blocked)
}

// entry returns a copy of the ledger, and the place of an entry in it, which may be changed; nil if there is none.
func (l Ledger) entry(number int) (Ledger, *Entry) {
	l.Entries = slices.Clone(l.Entries)

	at := slices.IndexFunc(l.Entries, func(e Entry) bool { return e.Number == number })
	if at < 0 {
		return l, nil
	}

	e := &l.Entries[at]

	e.Deliveries = maps.Clone(e.Deliveries)
	if e.Deliveries == nil {
		e.Deliveries = map[string]Delivery{}
	}

	return l, e
}

func finished(phase v1alpha1.UpgradeRunPhase) bool {
	switch phase {
	case v1alpha1.UpgradeRunSucceeded, v1alpha1.UpgradeRunFailed, v1alpha1.UpgradeRunCalledOff:
		return true
	case v1alpha1.UpgradeRunRunning, v1alpha1.UpgradeRunWaiting, v1alpha1.UpgradeRunStopped:
	}

	return false
}

func ended(st *v1alpha1.UpgradeRunStatus, otherwise time.Time) time.Time {
	if history.Finished(st) {
		return st.CompletionTime.Time
	}

	return otherwise
}

func stopped(st *v1alpha1.UpgradeRunStatus, otherwise time.Time) time.Time {
	if c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionStalled); c != nil {
		return c.LastTransitionTime.Time
	}

	return otherwise
}

// stamp is a time as an object holds it.
func stamp(t time.Time) metav1.Time { return metav1.NewTime(t.UTC().Truncate(time.Second)) }

// KeyOf names a webhook of a spec, by what is not secret about it.
func KeyOf(n *v1alpha1.UpgradeNotification) string {
	return fmt.Sprintf("%s/%s/%s", n.Type, n.SecretRef.Name, n.SecretRef.Key)
}
