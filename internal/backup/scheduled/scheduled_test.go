package scheduled_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup/scheduled"
)

const (
	namespace = "ns"
	nightly   = "nightly"
	cluster   = "c"
)

var (
	now     = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	errAway = errors.New("the API server is away")
)

// api returns an API server with objects; calls go through funcs if there are any.
func api(t testing.TB, funcs interceptor.Funcs, objects ...client.Object) client.Client {
	t.Helper()

	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}

	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(funcs).Build()
}

// noList is an API server that lists nothing.
var noList = interceptor.Funcs{
	List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return errAway },
}

// noGet is an API server that reads nothing.
var noGet = interceptor.Funcs{
	Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		return errAway
	},
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now)}
}

func bucket(name, prefix string) v1alpha1.BackupStorage {
	return v1alpha1.BackupStorage{S3: &v1alpha1.S3Storage{Bucket: name, Prefix: prefix}}
}

func directory(path string) v1alpha1.BackupStorage {
	return v1alpha1.BackupStorage{Directory: &v1alpha1.DirectoryStorage{Path: path}}
}

func newSchedule(name string) *v1alpha1.TalosEtcdBackupSchedule {
	s := &v1alpha1.TalosEtcdBackupSchedule{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-of-" + name), Generation: 3},
	}
	s.Spec.BackupTemplate.Spec = v1alpha1.TalosEtcdBackupSpec{
		ControlPlaneRef: v1alpha1.ObjectReference{Name: cluster}, Storage: bucket("backups", "p"), Recipients: []string{"age1x"},
		DeletionPolicy: v1alpha1.BackupDelete,
	}

	return s
}

type change func(*v1alpha1.TalosEtcdBackup)

// newBackup returns a backup of the schedule nightly that has not begun.
func newBackup(name string, changes ...change) *v1alpha1.TalosEtcdBackup {
	b := &v1alpha1.TalosEtcdBackup{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID("uid-of-" + name),
		Labels: map[string]string{v1alpha1.ScheduleLabel: nightly},
	}}
	b.Spec.ControlPlaneRef.Name = cluster

	for _, c := range changes {
		c(b)
	}

	return b
}

// set adds a condition with an arbitrary reason.
func set(kind string, status metav1.ConditionStatus) change {
	return says(kind, status, "Reason", "message of "+kind)
}

func says(kind string, status metav1.ConditionStatus, reason, message string) change {
	return func(b *v1alpha1.TalosEtcdBackup) {
		b.Status.Conditions = append(b.Status.Conditions, condition(kind, status, reason, message))
	}
}

func completed(at time.Time) change {
	return func(b *v1alpha1.TalosEtcdBackup) {
		t := metav1.NewTime(at)
		b.Status.CompletedAt = &t
	}
}

func all(changes ...change) change {
	return func(b *v1alpha1.TalosEtcdBackup) {
		for _, c := range changes {
			c(b)
		}
	}
}

// The states of a backup.
var (
	running = set(v1alpha1.ConditionReconciling, metav1.ConditionTrue)
	failed  = all(set(v1alpha1.ConditionReady, metav1.ConditionFalse), set(v1alpha1.ConditionStalled, metav1.ConditionTrue))
)

func good(at time.Time) change {
	return all(completed(at), set(v1alpha1.ConditionReady, metav1.ConditionTrue))
}

func unverified(at time.Time) change { return all(good(at), running) }

func refuted(at time.Time) change {
	return all(good(at), set(v1alpha1.ConditionStalled, metav1.ConditionTrue))
}

func damaged(at time.Time) change {
	return all(completed(at), set(v1alpha1.ConditionReady, metav1.ConditionFalse))
}

// TestNames: whatever a schedule is called, its label is a valid value of a label, and the names of its backups are valid
// names of objects. They are the same each time, differ from those of any other schedule, and name the time in UTC, so
// that they sort by it.
//
// No dot is where a long name is cut; there is a dot before it, as in any name of an object.
func TestNames(t *testing.T) {
	const most = 253

	oslo := time.FixedZone("Oslo", 3600)

	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`([a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?\.){0,4}`).Draw(t, "parts")
		size := rapid.IntRange(0, most-2-len(name)).Draw(t, "size")
		name += "a" + rapid.StringOfN(rapid.RuneFrom([]rune("abyz019-")), size, size, -1).Draw(t, "rest") + "z"

		slot := now.Add(time.Duration(rapid.IntRange(0, 1e8).Draw(t, "seconds")) * time.Second)
		later := slot.Add(time.Duration(rapid.IntRange(1, 1e8).Draw(t, "later")) * time.Second)
		// The other one differs only in its last character.
		other := name[:len(name)-1] + "y"

		value := scheduled.Label(name)
		if faults := validation.IsValidLabelValue(value); len(faults) != 0 || value == "" {
			t.Fatalf("label %q: %v", value, faults)
		}

		if value != scheduled.Label(strings.Clone(name)) || value == scheduled.Label(other) {
			t.Fatalf("label %q, again %q, of another schedule %q", value, scheduled.Label(name), scheduled.Label(other))
		}

		object := scheduled.Name(name, slot)
		if faults := validation.IsDNS1123Subdomain(object); len(faults) != 0 {
			t.Fatalf("name %q: %v", object, faults)
		}

		if again := scheduled.Name(strings.Clone(name), slot.In(oslo)); object != again {
			t.Fatalf("name %q, in another time zone %q", object, again)
		}

		if next := scheduled.Name(name, later); object >= next {
			t.Fatalf("name %q, later %q", object, next)
		}

		if theirs := scheduled.Name(other, slot); object == theirs {
			t.Fatalf("name %q of two schedules", object)
		}
	})
}

// TestNamesStay: names and labels stay what they were in earlier versions, which made backups that still exist. Only
// what is too long is shortened.
func TestNamesStay(t *testing.T) {
	slot := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

	for size, want := range map[int]struct{ label, stem string }{
		1:   {"a", "a"},
		63:  {strings.Repeat("a", 63), strings.Repeat("a", 63)},
		64:  {strings.Repeat("a", 54) + "-ffe054fe", strings.Repeat("a", 64)},
		200: {strings.Repeat("a", 54) + "-c2a908d9", strings.Repeat("a", 200)},
		201: {strings.Repeat("a", 54) + "-a92efd82", strings.Repeat("a", 191) + "-a92efd82"},
		253: {strings.Repeat("a", 54) + "-32859a3a", strings.Repeat("a", 191) + "-32859a3a"},
	} {
		name := strings.Repeat("a", size)

		if got := scheduled.Label(name); got != want.label {
			t.Errorf("label for %d characters: %s", size, got)
		}

		if got := scheduled.Name(name, slot); got != want.stem+"-20260304-050607" {
			t.Errorf("name for %d characters: %s", size, got)
		}
	}

	// What stands at the cut stays in a label, and in a name unless it is a dot.
	for _, c := range []string{"-", "."} {
		name := strings.Repeat("a", 53) + c + strings.Repeat("b", 10)
		if got := scheduled.Label(name); !strings.HasPrefix(got, strings.Repeat("a", 53)+c+"-") {
			t.Errorf("label with %q: %s", c, got)
		}

		name = strings.Repeat("a", 190) + c + strings.Repeat("b", 10)
		if got := scheduled.Name(name, slot); strings.HasPrefix(got, strings.Repeat("a", 190)+c+"-") != (c == "-") {
			t.Errorf("name with %q: %s", c, got)
		}
	}
}

// TestNew: a backup has the template, the namespace and the label of its schedule, and no owner. It shares no memory with
// the schedule.
func TestNew(t *testing.T) {
	for _, name := range []string{nightly, strings.Repeat("long-", 40) + "name"} {
		s := newSchedule(name)
		b := scheduled.New(s, "one")

		if b.Name != "one" || b.Namespace != namespace || len(b.OwnerReferences) != 0 {
			t.Errorf("%s: %+v", name, b.ObjectMeta)
		}

		if !reflect.DeepEqual(b.Spec, s.Spec.BackupTemplate.Spec) {
			t.Errorf("%s: %+v", name, b.Spec)
		}

		other := newSchedule(name)
		other.Spec.BackupTemplate.Spec.ControlPlaneRef.Name = "former"

		if !scheduled.IsOf(b, s) || scheduled.IsOf(b, newSchedule(name+"2")) || scheduled.IsOf(b, other) ||
			scheduled.IsOf(&v1alpha1.TalosEtcdBackup{}, s) {
			t.Errorf("%s: wrong about the label %v", name, b.Labels)
		}

		b.Spec.Recipients[0], b.Spec.Storage.S3.Bucket = "age1other", "other"
		if !reflect.DeepEqual(s.Spec, newSchedule(name).Spec) {
			t.Errorf("%s: the schedule was changed: %+v", name, s.Spec)
		}
	}
}

// TestList: the backups of a schedule are those with its label in its namespace, also if its name is too long for a label.
func TestList(t *testing.T) {
	long := strings.Repeat("long-", 40) + "name"
	elsewhere := newBackup("elsewhere")
	elsewhere.Namespace = "other"

	unlabelled := newBackup("unlabelled")
	unlabelled.Labels = nil

	c := api(t, interceptor.Funcs{}, scheduled.New(newSchedule(nightly), "a"), scheduled.New(newSchedule(nightly), "b"),
		scheduled.New(newSchedule(long), "l"), scheduled.New(newSchedule("hourly"), "h"), elsewhere, unlabelled)

	for name, want := range map[string]string{nightly: "a b", long: "l", "hourly": "h", "none": ""} {
		backups, err := scheduled.List(t.Context(), c, newSchedule(name))
		if err != nil {
			t.Fatal(err)
		}

		var got []string
		for i := range backups {
			got = append(got, backups[i].Name)
		}

		slices.Sort(got)

		if strings.Join(got, " ") != want {
			t.Errorf("backups of %s: %v, want %s", name, got, want)
		}
	}

	if _, err := scheduled.List(t.Context(), api(t, noList), newSchedule(nightly)); !errors.Is(err, errAway) {
		t.Errorf("a list that failed: %v", err)
	}
}

// TestFinishedAndGood: a backup is final once nothing is left to do, including its verification, or once it has failed for
// good. It is good if it is final, complete, and neither failed nor damaged.
func TestFinishedAndGood(t *testing.T) {
	at := now.Add(-time.Minute)

	for name, tc := range map[string]struct {
		change         change
		finished, good bool
	}{
		"new":                     {all(), false, false},
		"running":                 {running, false, false},
		"a first attempt failed":  {all(set(v1alpha1.ConditionReady, metav1.ConditionFalse), running), false, false},
		"failed":                  {failed, true, false},
		"claims without an end":   {set(v1alpha1.ConditionReady, metav1.ConditionTrue), false, false},
		"complete, not verified":  {unverified(at), false, false},
		"complete":                {good(at), true, true},
		"verification failed":     {refuted(at), true, false},
		"damaged later":           {damaged(at), true, false},
		"nothing known about it":  {completed(at), true, false},
		"ready is unknown":        {all(completed(at), set(v1alpha1.ConditionReady, metav1.ConditionUnknown)), true, false},
		"stalled no more":         {all(good(at), set(v1alpha1.ConditionStalled, metav1.ConditionFalse)), true, true},
		"not stalled, and no end": {set(v1alpha1.ConditionStalled, metav1.ConditionFalse), false, false},
	} {
		b := newBackup("b", tc.change)
		if got := scheduled.Finished(b); got != tc.finished {
			t.Errorf("%s: finished %v", name, got)
		}

		if got := scheduled.Good(b); got != tc.good {
			t.Errorf("%s: good %v", name, got)
		}
	}
}

// TestNewest: whatever backups there are, the newest is a good one that did not complete in the future, and no such one
// completed after it. There is none only if there is no such backup.
func TestNewest(t *testing.T) {
	states := map[string]func(time.Time) change{
		"good": good, "unverified": unverified, "refuted": refuted, "damaged": damaged,
		"running": func(time.Time) change { return running },
		"failed":  func(time.Time) change { return failed },
	}
	kinds := []string{"good", "good", "unverified", "refuted", "damaged", "running", "failed"}

	rapid.Check(t, func(t *rapid.T) {
		var (
			backups []v1alpha1.TalosEtcdBackup
			best    *time.Duration
		)

		for i := range rapid.IntRange(0, 8).Draw(t, "backups") {
			kind := rapid.SampledFrom(kinds).Draw(t, "state")
			// Five minutes is the clock skew that counts as no future.
			ahead := time.Duration(rapid.SampledFrom([]int{-4000, -60, -1, 0, 1, 299, 300, 301, 4000}).Draw(t, "ahead")) * time.Second
			backups = append(backups, *newBackup(fmt.Sprintf("b%d", i), states[kind](now.Add(ahead))))

			if kind == "good" && ahead <= 5*time.Minute && (best == nil || *best < ahead) {
				best = &ahead
			}
		}

		newest := scheduled.Newest(backups, now)

		switch {
		case (newest == nil) != (best == nil):
			t.Fatalf("the newest is %v", newest)
		case newest == nil:
		case !newest.Status.CompletedAt.Equal(&metav1.Time{Time: now.Add(*best)}):
			t.Fatalf("the newest is %s of %s", newest.Name, newest.Status.CompletedAt)
		case !slices.ContainsFunc(backups, func(b v1alpha1.TalosEtcdBackup) bool {
			return b.Name == newest.Name && scheduled.Good(newest)
		}):
			t.Fatalf("the newest is %s, which is none of them or not good", newest.Name)
		}
	})
}

// TestInFuture: a time is in the future if it is further ahead than clocks may differ. No time at all is not.
func TestInFuture(t *testing.T) {
	if scheduled.InFuture(nil, now) {
		t.Error("nothing is in the future")
	}

	for ahead, want := range map[time.Duration]bool{
		-time.Hour: false, 0: false, time.Minute: false, 5 * time.Minute: false,
		5*time.Minute + time.Second: true, 24 * time.Hour: true,
	} {
		at := metav1.NewTime(now.Add(ahead))
		if got := scheduled.InFuture(&at, now); got != want {
			t.Errorf("%s ahead: %v", ahead, got)
		}
	}
}
