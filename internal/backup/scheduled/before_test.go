package scheduled_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup/scheduled"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// newControlPlane returns a control plane that demands a backup of the schedule nightly.
func newControlPlane() *v1alpha1.TalosControlPlane {
	cp := &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: cluster, UID: "uid-of-c"}}
	cp.Spec.BackupBeforeDisruption = &v1alpha1.BackupBeforeDisruption{ScheduleRef: v1alpha1.ObjectReference{Name: nightly}}

	return cp
}

// nextName returns the name of the backup that is created if these exist.
func nextName(t testing.TB, cp *v1alpha1.TalosControlPlane, s *v1alpha1.TalosEtcdBackupSchedule, exist ...*v1alpha1.TalosEtcdBackup,
) string {
	t.Helper()

	objects := []client.Object{s.DeepCopy()}
	for _, b := range exist {
		objects = append(objects, b.DeepCopy())
	}

	known, wanted, err := scheduled.Before(t.Context(), api(t, interceptor.Funcs{}, objects...), cp, now)
	if err != nil || wanted == nil {
		t.Fatalf("no backup is created: %+v, %v", known, err)
	}

	return wanted.Name
}

// deleted makes a backup one that is being deleted.
func deleted(b *v1alpha1.TalosEtcdBackup) {
	at := metav1.NewTime(now)
	b.DeletionTimestamp, b.Finalizers = &at, []string{v1alpha1.Finalizer}
}

// TestBefore: a disruption is permitted by a good backup of the schedule that is recent enough, and by nothing else. A
// running one is waited for, the failed one that was taken for the disruption blocks, and none is created then. One is
// created otherwise, unless the schedule is missing, paused or of another control plane.
func TestBefore(t *testing.T) {
	mine := nextName(t, newControlPlane(), newSchedule(nightly))
	hour, stale := now.Add(-time.Hour), now.Add(-time.Hour-time.Second)
	other := newSchedule(nightly)
	other.Spec.BackupTemplate.Spec.ControlPlaneRef.Name = "another"

	annotated := func(key, value string) *v1alpha1.TalosEtcdBackupSchedule {
		s := newSchedule(nightly)
		s.Annotations = map[string]string{key: value}

		return s
	}
	paused := annotated(v1alpha1.PausedAnnotation, "true")
	suspended := newSchedule(nightly)
	suspended.Spec.Suspend = true
	elsewhere := newSchedule(nightly)
	elsewhere.Namespace = "other"

	foreign := func(b *v1alpha1.TalosEtcdBackup) { b.Labels[v1alpha1.ScheduleLabel] = "hourly" }
	theirs := func(b *v1alpha1.TalosEtcdBackup) { b.Namespace = "other" }
	busy := says(v1alpha1.ConditionReconciling, metav1.ConditionTrue, v1alpha1.ReasonBackingUp, "half of it is stored")
	full := all(failed, func(b *v1alpha1.TalosEtcdBackup) { b.Status.Conditions[1].Message = "the disk is full" })

	type backups = []*v1alpha1.TalosEtcdBackup

	const (
		fresh, runs, fails = safety.BackupFresh, safety.BackupRunning, safety.BackupFailed
		waits              = "message of Reconciling"
	)

	b := newBackup
	lonely := func(b *v1alpha1.TalosEtcdBackup) { b.Status.Source = &v1alpha1.BackupSource{WithoutQuorum: true} }

	for name, tc := range map[string]struct {
		schedule *v1alpha1.TalosEtcdBackupSchedule
		maxAge   time.Duration
		backups  backups
		state    safety.BackupState
		backup   string
		message  string
		created  bool
	}{
		"there is none":            {created: true},
		"suspended":                {schedule: suspended, created: true},
		"no schedule":              {schedule: newSchedule("hourly"), message: "TalosEtcdBackupSchedule nightly does not exist"},
		"schedule elsewhere":       {schedule: elsewhere, message: "TalosEtcdBackupSchedule nightly does not exist"},
		"another control plane":    {schedule: other, message: "TalosEtcdBackupSchedule nightly backs up another control plane"},
		"paused":                   {schedule: paused, message: "TalosEtcdBackupSchedule nightly is paused"},
		"dry run":                  {schedule: annotated(v1alpha1.ReconcileModeAnnotation, "DryRun"), message: "nightly is paused"},
		"another's is fresh":       {schedule: other, backups: backups{b("a", good(now))}, message: "another control plane"},
		"an hour old":              {backups: backups{b("a", good(hour))}, state: fresh, backup: "a"},
		"without quorum":           {backups: backups{b("a", good(now), lonely)}, created: true},
		"its own without quorum":   {backups: backups{b(mine, good(now), lonely)}, created: true},
		"and one with quorum":      {backups: backups{b("a", good(now), lonely), b("b", good(hour))}, state: fresh, backup: "b"},
		"too old":                  {backups: backups{b("a", good(stale))}, created: true},
		"two hours are permitted":  {maxAge: 2 * time.Hour, backups: backups{b("a", good(stale))}, state: fresh, backup: "a"},
		"a minute is permitted":    {maxAge: time.Minute, backups: backups{b("a", good(now.Add(-time.Minute-time.Second)))}, created: true},
		"a clock is ahead":         {backups: backups{b("a", good(now.Add(time.Minute)))}, state: fresh, backup: "a"},
		"from the future":          {backups: backups{b("a", good(now.Add(time.Hour)))}, created: true},
		"future, and a fresh one":  {backups: backups{b("a", good(now.Add(time.Hour))), b("b", good(hour))}, state: fresh, backup: "b"},
		"paused, but fresh":        {schedule: paused, backups: backups{b("a", good(hour))}, state: fresh, backup: "a"},
		"paused, but running":      {schedule: paused, backups: backups{b("a", running)}, state: runs, backup: "a", message: waits},
		"not verified":             {backups: backups{b("a", unverified(now))}, state: runs, backup: "a", message: waits},
		"damaged":                  {backups: backups{b("a", damaged(now))}, created: true},
		"has not begun":            {backups: backups{b("a")}, state: runs, backup: "a"},
		"waits":                    {backups: backups{b("a", running)}, state: runs, backup: "a", message: waits},
		"makes progress":           {backups: backups{b("a", busy)}, state: runs, backup: "a"},
		"running, and an old one":  {backups: backups{b("a", good(stale)), b("b", busy)}, state: runs, backup: "b"},
		"running, and a fresh one": {backups: backups{b("a", busy), b("b", good(hour))}, state: fresh, backup: "b"},
		"a scheduled one failed":   {backups: backups{b("a", failed)}, created: true},
		"its own failed":           {backups: backups{b(mine, full)}, state: fails, backup: mine, message: "the disk is full"},
		"its own is damaged":       {backups: backups{b(mine, damaged(now))}, state: fails, backup: mine},
		"paused, its own failed":   {schedule: paused, backups: backups{b(mine, full)}, state: fails, backup: mine, message: "the disk is full"},
		"failed, then a fresh one": {backups: backups{b(mine, full), b("a", good(hour))}, state: fresh, backup: "a"},
		"failed, then a good one":  {backups: backups{b(mine, full), b("a", good(stale))}, created: true},
		"failed, the next runs":    {backups: backups{b(mine, full), b("z", busy)}, state: runs, backup: "z"},
		"the first runs, failed":   {backups: backups{b("a", busy), b(mine, full)}, state: runs, backup: "a"},
		"failed, is being deleted": {backups: backups{b(mine, full, deleted)}, state: runs, backup: mine, message: "it is being deleted"},
		"of another schedule":      {backups: backups{b("a", good(now), foreign), b("b", busy, foreign)}, created: true},
		"of another namespace":     {backups: backups{b("a", good(now), theirs), b("b", busy, theirs)}, created: true},
	} {
		cp := newControlPlane()
		if tc.maxAge != 0 {
			cp.Spec.BackupBeforeDisruption.MaxAge = &metav1.Duration{Duration: tc.maxAge}
		}

		if tc.schedule == nil {
			tc.schedule = newSchedule(nightly)
		}

		objects := []client.Object{tc.schedule.DeepCopy()}
		for _, existing := range tc.backups {
			objects = append(objects, existing)
		}

		known, wanted, err := scheduled.Before(t.Context(), api(t, interceptor.Funcs{}, objects...), cp, now)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}

		if !known.Demanded || known.State != tc.state || known.Name != tc.backup || (wanted != nil) != tc.created {
			t.Errorf("%s: %+v, to create: %v", name, known, wanted)
		}

		if !strings.HasSuffix(known.Message, tc.message) || tc.message == "" && known.Message != "" {
			t.Errorf("%s: message %q", name, known.Message)
		}
	}
}

// TestBeforeNotDemanded: a control plane that demands no backup gets none, and nothing is read for it.
func TestBeforeNotDemanded(t *testing.T) {
	cp := newControlPlane()
	cp.Spec.BackupBeforeDisruption = nil

	known, wanted, err := scheduled.Before(t.Context(), api(t, noGet, newSchedule(nightly)), cp, now)
	if err != nil || wanted != nil || known != (safety.Backup{}) {
		t.Errorf("%+v, to create: %v, %v", known, wanted, err)
	}
}

// TestBeforeUnreadable: as long as the schedule or its backups cannot be read, nothing is permitted and nothing created.
func TestBeforeUnreadable(t *testing.T) {
	for name, funcs := range map[string]interceptor.Funcs{"the schedule": noGet, "the backups": noList} {
		c := api(t, funcs, newSchedule(nightly), newBackup("a", good(now)))

		known, wanted, err := scheduled.Before(t.Context(), c, newControlPlane(), now)
		if !errors.Is(err, errAway) || !strings.Contains(err.Error(), nightly) || wanted != nil || known.State == safety.BackupFresh {
			t.Errorf("%s: %+v, to create: %v, %v", name, known, wanted, err)
		}
	}
}

// TestBeforeCreated: the backup has the template of the schedule, counts as one of its backups, and names the control plane
// that waits for it.
func TestBeforeCreated(t *testing.T) {
	s := newSchedule(nightly)

	_, b, err := scheduled.Before(t.Context(), api(t, interceptor.Funcs{}, s), newControlPlane(), now)
	if err != nil || b == nil {
		t.Fatalf("%v, %v", b, err)
	}

	if !reflect.DeepEqual(b.Spec, s.Spec.BackupTemplate.Spec) || b.Namespace != namespace || !scheduled.IsOf(b, s) {
		t.Errorf("%+v", b)
	}

	if b.Annotations[v1alpha1.BeforeDisruptionAnnotation] != cluster {
		t.Errorf("annotations %v", b.Annotations)
	}
}

// TestBeforeName: the name stays the same until something changes that may help: the schedule, the control plane, or the
// last good backup. Failed backups of the schedule do not change it, so that no second one is taken after a failure.
func TestBeforeName(t *testing.T) {
	old := newBackup("old", good(now.Add(-3*time.Hour)))
	first := nextName(t, newControlPlane(), newSchedule(nightly), old)

	if !strings.HasPrefix(first, cluster+"-before-") {
		t.Errorf("name %s", first)
	}

	for name, exist := range map[string][]*v1alpha1.TalosEtcdBackup{
		"the same again":        {old},
		"an older one":          {old, newBackup("older", good(now.Add(-4*time.Hour)))},
		"a scheduled failed":    {old, newBackup("later", failed)},
		"one is damaged":        {old, newBackup("later", damaged(now.Add(-2*time.Hour)))},
		"one from the future":   {old, newBackup("later", good(now.Add(2*time.Hour)))},
		"another schedule's":    {old, newBackup("later", good(now), func(b *v1alpha1.TalosEtcdBackup) { b.Labels = nil })},
		"verified once more":    {newBackup("old", good(now.Add(-3*time.Hour)), set(v1alpha1.ConditionVerified, metav1.ConditionTrue))},
		"completed differently": {newBackup("old", good(now.Add(-2*time.Hour)))},
	} {
		if got := nextName(t, newControlPlane(), newSchedule(nightly), exist...); got != first {
			t.Errorf("%s: %s, before %s", name, got, first)
		}
	}

	seen := map[string]string{first: "the first"}

	differs := func(name, got string) {
		t.Helper()

		if seen[got] != "" {
			t.Errorf("%s: %s, which is the name for %s", name, got, seen[got])
		}

		seen[got] = name
	}

	edited, recreated := newSchedule(nightly), newSchedule(nightly)
	edited.Generation++
	recreated.UID = "uid-of-another"
	reborn := newControlPlane()
	reborn.UID = "uid-of-another"

	differs("an edited schedule", nextName(t, newControlPlane(), edited, old))
	differs("a new schedule", nextName(t, newControlPlane(), recreated, old))
	differs("a new control plane", nextName(t, reborn, newSchedule(nightly), old))
	differs("no good backup", nextName(t, newControlPlane(), newSchedule(nightly)))
	differs("a later one", nextName(t, newControlPlane(), newSchedule(nightly), old, newBackup("later", good(now.Add(-2*time.Hour)))))

	// Good ones exist under these names, but a clock was set since, and they count as ones of the future.
	ahead := []*v1alpha1.TalosEtcdBackup{old, newBackup(first, good(now.Add(time.Hour)))}
	second := nextName(t, newControlPlane(), newSchedule(nightly), ahead...)
	differs("its name is taken", second)
	differs("both names are taken", nextName(t, newControlPlane(), newSchedule(nightly),
		append(ahead, newBackup(second, good(now.Add(2*time.Hour))))...))
}

// TestBeforeNameOfAny: whatever the control plane is called, the name is a valid name of an object, and two control planes
// never share it.
func TestBeforeNameOfAny(t *testing.T) {
	for _, size := range []int{1, 63, 200, 201, 253} {
		cp, s := newControlPlane(), newSchedule(nightly)
		cp.Name = strings.Repeat("c", size)
		s.Spec.BackupTemplate.Spec.ControlPlaneRef.Name = cp.Name

		got := nextName(t, cp, s)
		if faults := validation.IsDNS1123Subdomain(got); len(faults) != 0 {
			t.Errorf("name for %d characters: %s: %v", size, got, faults)
		}

		cp.UID = "uid-of-another"
		if other := nextName(t, cp, s); other == got {
			t.Errorf("name for %d characters: %s of two control planes", size, got)
		}
	}
}

// asked is a safety kernel that answers by what it is told about the backup.
type asked struct {
	told   []safety.Backup
	answer func(safety.Backup) safety.Verdict
}

func (a *asked) ask(b safety.Backup) safety.Verdict {
	a.told = append(a.told, b)

	return a.answer(b)
}

// onlyBackup is a safety kernel with no other reason to block than the backup.
func onlyBackup(b safety.Backup) safety.Verdict {
	switch {
	case !b.Demanded || b.State == safety.BackupFresh:
		return safety.Verdict{Action: safety.Proceed, Reason: "Safe"}
	case b.State == safety.BackupFailed:
		return safety.Verdict{Action: safety.Refuse, Reason: v1alpha1.ReasonBackupFailed, Message: b.Name}
	}

	return safety.Verdict{Action: safety.Wait, Reason: v1alpha1.ReasonWaitingForBackup, Message: b.Name}
}

func always(v safety.Verdict) func(safety.Backup) safety.Verdict {
	return func(safety.Backup) safety.Verdict { return v }
}

func backupsIn(t testing.TB, c client.Client) []v1alpha1.TalosEtcdBackup {
	t.Helper()

	list := &v1alpha1.TalosEtcdBackupList{}
	if err := c.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}

	return list.Items
}

// TestPermit: a backup is created only if its absence is all that blocks the disruption. If the safety kernel permits the
// disruption anyway, or blocks it for another reason, its verdict stands and nothing is created.
func TestPermit(t *testing.T) {
	mine := nextName(t, newControlPlane(), newSchedule(nightly))
	unsafe := safety.Verdict{Action: safety.Refuse, Reason: "QuorumAtRisk", Message: "two of three members are down"}
	proceed := safety.Verdict{Action: safety.Proceed, Reason: "Safe"}
	wait := safety.Verdict{Action: safety.Wait, Reason: v1alpha1.ReasonWaitingForBackup}
	named := func(name string) safety.Verdict {
		return safety.Verdict{Action: safety.Wait, Reason: v1alpha1.ReasonWaitingForBackup, Message: name}
	}
	blocked := safety.Verdict{Action: safety.Refuse, Reason: v1alpha1.ReasonBackupFailed, Message: mine}

	for name, tc := range map[string]struct {
		objects []client.Object
		kernel  func(safety.Backup) safety.Verdict
		free    bool
		want    safety.Verdict
		created bool
	}{
		"created":             {[]client.Object{newSchedule(nightly)}, onlyBackup, false, named(mine), true},
		"unsafe anyway":       {[]client.Object{newSchedule(nightly)}, always(unsafe), false, unsafe, false},
		"safe anyway":         {[]client.Object{newSchedule(nightly)}, always(proceed), false, proceed, false},
		"fresh":               {[]client.Object{newSchedule(nightly), newBackup("a", good(now))}, onlyBackup, false, proceed, false},
		"fresh, but unsafe":   {[]client.Object{newSchedule(nightly), newBackup("a", good(now))}, always(unsafe), false, unsafe, false},
		"running":             {[]client.Object{newSchedule(nightly), newBackup("a", running)}, onlyBackup, false, named("a"), false},
		"failed":              {[]client.Object{newSchedule(nightly), newBackup(mine, failed)}, onlyBackup, false, blocked, false},
		"there is no way":     {nil, onlyBackup, false, wait, false},
		"not demanded":        {[]client.Object{newSchedule(nightly)}, onlyBackup, true, proceed, false},
		"not demanded, waits": {[]client.Object{newSchedule(nightly)}, always(wait), true, wait, false},
	} {
		cp := newControlPlane()
		if tc.free {
			cp.Spec.BackupBeforeDisruption = nil
		}

		a, c := &asked{answer: tc.kernel}, api(t, interceptor.Funcs{}, tc.objects...)
		had := len(backupsIn(t, c))

		verdict, made, err := scheduled.Permit(t.Context(), c, c, cp, now, a.ask)
		if err != nil || verdict != tc.want || (made != nil) != tc.created {
			t.Errorf("%s: %+v, created %v, %v", name, verdict, made, err)
		}

		got := backupsIn(t, c)
		if created := len(got) - had; (created == 1) != tc.created || created != 0 && !tc.created {
			t.Errorf("%s: %d backups were created", name, created)
		}

		if !tc.created {
			continue
		}

		if got[0].Name != mine || made.Name != mine || got[0].Annotations[v1alpha1.BeforeDisruptionAnnotation] != cluster {
			t.Errorf("%s: created %+v", name, got[0].ObjectMeta)
		}

		told := []safety.Backup{{Demanded: true}, {Demanded: true, State: safety.BackupRunning, Name: mine}}
		if !slices.Equal(a.told, told) {
			t.Errorf("%s: the safety kernel was told %+v", name, a.told)
		}
	}
}

// TestPermitReadsLive: what exists is decided by the live reader alone: a cache may lag behind, and the second backup of a
// disruption would be the result.
func TestPermitReadsLive(t *testing.T) {
	live := api(t, interceptor.Funcs{}, newSchedule(nightly), newBackup("a", running))
	cache := api(t, interceptor.Funcs{Get: noGet.Get}, newSchedule(nightly))

	verdict, made, err := scheduled.Permit(t.Context(), cache, live, newControlPlane(), now, onlyBackup)
	if err != nil || made != nil || verdict.Message != "a" || len(backupsIn(t, cache)) != 0 {
		t.Errorf("%+v, created %v, %v", verdict, made, err)
	}
}

// TestPermitFails: without knowing what exists, and if the backup cannot be created, nothing is permitted.
func TestPermitFails(t *testing.T) {
	refused := interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return errAway },
	}

	for name, funcs := range map[string]interceptor.Funcs{"reading": noGet, "listing": noList, "creating": refused} {
		c := api(t, funcs, newSchedule(nightly))
		// A kernel that is asked a second time would let it pass.
		a := &asked{answer: func(b safety.Backup) safety.Verdict {
			if b.State == safety.BackupRunning {
				return safety.Verdict{Action: safety.Proceed}
			}

			return onlyBackup(b)
		}}

		verdict, made, err := scheduled.Permit(t.Context(), c, c, newControlPlane(), now, a.ask)
		if !errors.Is(err, errAway) || verdict != (safety.Verdict{}) || made != nil {
			t.Errorf("%s: %+v, created %v, %v", name, verdict, made, err)
		}
	}
}

// TestMake: a backup is created in the name of the operator. One that exists stays as it is, and is no error; any other
// failure is one and names the backup.
func TestMake(t *testing.T) {
	owner := ""
	c := api(t, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			options := &client.CreateOptions{}
			owner = options.ApplyOptions(opts).FieldManager

			return c.Create(ctx, o, opts...)
		},
	})

	if err := scheduled.Make(t.Context(), c, newBackup("a", good(now))); err != nil || owner != "talos-operator" {
		t.Fatalf("by %q: %v", owner, err)
	}

	if err := scheduled.Make(t.Context(), c, newBackup("a", failed)); err != nil {
		t.Errorf("it exists: %v", err)
	}

	if got := backupsIn(t, c); len(got) != 1 || !scheduled.Good(&got[0]) {
		t.Errorf("there are %+v", got)
	}

	away := api(t, interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return errAway },
	})
	if err := scheduled.Make(t.Context(), away, newBackup("b")); !errors.Is(err, errAway) || !strings.Contains(err.Error(), "b") {
		t.Errorf("it cannot be created: %v", err)
	}
}

// TestHolds: the object of a failed backup is kept while it blocks a disruption, so until a good one was begun after it.
// Backups that were not taken for a disruption, that still run, or that are good, block nothing.
func TestHolds(t *testing.T) {
	taken := func(at time.Time) change {
		return func(b *v1alpha1.TalosEtcdBackup) { b.CreationTimestamp = metav1.NewTime(at) }
	}
	waited := func(b *v1alpha1.TalosEtcdBackup) {
		b.Annotations = map[string]string{v1alpha1.BeforeDisruptionAnnotation: cluster}
	}
	earlier, later := newBackup("e", taken(now.Add(-time.Hour)), good(now)), newBackup("l", taken(now.Add(time.Hour)), good(now))

	for name, tc := range map[string]struct {
		change change
		newest *v1alpha1.TalosEtcdBackup
		want   bool
	}{
		"failed, none is good":         {all(waited, failed), nil, true},
		"failed, a good one before it": {all(waited, failed), earlier, true},
		"failed, a good one after it":  {all(waited, failed), later, false},
		"damaged":                      {all(waited, damaged(now)), earlier, true},
		"running":                      {all(waited, running), earlier, false},
		"not verified":                 {all(waited, unverified(now)), nil, false},
		"good":                         {all(waited, good(now)), earlier, false},
		"a scheduled one failed":       {failed, nil, false},
	} {
		if got := scheduled.Holds(newBackup("b", taken(now), tc.change), tc.newest); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestHistories: whatever happens to the backups, the schedule and the operator, no disruption is permitted without a good
// backup that is recent enough, never are two backups for disruptions under way, and none is taken a second time after a
// failure or a crash, unless another one succeeded or a user changed something. Then the next one is taken. The failed one
// that blocks is kept.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := newHistory(t)

		for range rapid.IntRange(1, 40).Draw(rt, "events") {
			switch event := rapid.SampledFrom([]string{
				"ask", "ask", "ask", "die before it", "die after it", "succeed", "fail", "begin", "time", "time", "edit", "delete",
			}).Draw(rt, "event"); event {
			case "ask", "die before it", "die after it":
				h.die = strings.TrimPrefix(event, "die ")
				h.permit(rt)
			case "succeed":
				h.end(rt, good(h.now))
				h.now = h.now.Add(time.Second)
			case "fail":
				h.end(rt, failed)
			case "begin":
				h.made++
				h.create(rt, newBackup(fmt.Sprintf("scheduled-%d", h.made)))
			case "time":
				h.now = h.now.Add(rapid.SampledFrom([]time.Duration{time.Second, time.Hour, time.Hour + time.Second}).Draw(rt, "passed"))
			case "edit":
				h.schedule.Generation++
				h.update(rt, h.schedule)
			case "delete":
				h.remove(rt)
			}
		}
	})
}

// history is one schedule, its control plane, and what they have gone through.
type history struct {
	client   client.Client
	schedule *v1alpha1.TalosEtcdBackupSchedule
	now      time.Time
	// die says when the operator dies as it creates a backup.
	die string
	// made counts all backups, so that each has a UID of its own.
	made int
	// tried are the reasons for which a backup was created: the last good one, and the generation of the schedule.
	tried map[string]string
}

func newHistory(t *testing.T) *history {
	h := &history{schedule: newSchedule(nightly), now: now, tried: map[string]string{}}
	h.client = api(t, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if h.die == "before it" {
				return errAway
			}

			h.made++
			o.SetUID(types.UID(fmt.Sprintf("uid-%d", h.made)))
			o.SetCreationTimestamp(metav1.NewTime(h.now))

			if err := c.Create(ctx, o, opts...); err != nil {
				return err
			}

			if h.die == "after it" {
				return errAway
			}

			return nil
		},
	}, h.schedule)

	return h
}

func (h *history) create(t *rapid.T, b *v1alpha1.TalosEtcdBackup) {
	h.die = ""
	if err := h.client.Create(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

func (h *history) update(t *rapid.T, o client.Object) {
	if err := h.client.Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// backups returns the backups that exist, and those of them that were taken for a disruption and still run.
func (h *history) backups(t *rapid.T) (all, active []v1alpha1.TalosEtcdBackup) {
	list := &v1alpha1.TalosEtcdBackupList{}
	if err := h.client.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}

	for i := range list.Items {
		b := &list.Items[i]
		if b.Annotations[v1alpha1.BeforeDisruptionAnnotation] != "" && len(b.Status.Conditions) == 0 {
			active = append(active, *b)
		}
	}

	return list.Items, active
}

// end ends one of the backups that run.
func (h *history) end(t *rapid.T, how change) {
	backups, _ := h.backups(t)
	for i := range backups {
		if b := &backups[i]; len(b.Status.Conditions) == 0 {
			how(b)
			h.update(t, b)

			return
		}
	}
}

// remove deletes the failed backups, as a user does who wants another try.
func (h *history) remove(t *rapid.T) {
	backups, _ := h.backups(t)
	for i := range backups {
		if b := &backups[i]; len(b.Status.Conditions) != 0 && b.Status.CompletedAt == nil {
			if err := h.client.Delete(t.Context(), b); err != nil {
				t.Fatal(err)
			}

			maps.DeleteFunc(h.tried, func(_, name string) bool { return name == b.Name })
		}
	}
}

// permit asks for a disruption, and checks the answer.
func (h *history) permit(t *rapid.T) {
	had, _ := h.backups(t)
	fresh, last := false, ""

	var lastAt time.Time

	for i := range had {
		if at := had[i].Status.CompletedAt; at != nil {
			fresh = fresh || h.now.Sub(at.Time) <= time.Hour

			if at.After(lastAt) {
				last, lastAt = had[i].Name, at.Time
			}
		}
	}

	var told safety.Backup

	verdict, made, err := scheduled.Permit(t.Context(), h.client, h.client, newControlPlane(), h.now,
		func(b safety.Backup) safety.Verdict {
			told = b

			return onlyBackup(b)
		})

	if err != nil && (!errors.Is(err, errAway) || h.die == "ask") || apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}

	if (verdict.Action == safety.Proceed && err == nil) != fresh {
		t.Fatalf("a fresh backup: %v, verdict: %+v, %v", fresh, verdict, err)
	}

	have, active := h.backups(t)
	if len(active) > 1 {
		t.Fatalf("%d backups for disruptions run", len(active))
	}

	h.checkFailed(t, told, have)

	why := fmt.Sprintf("the last good one is %q, generation %d", last, h.schedule.Generation)
	if len(have) == len(had) {
		idle := !slices.ContainsFunc(had, func(b v1alpha1.TalosEtcdBackup) bool { return len(b.Status.Conditions) == 0 })
		if !fresh && idle && h.die == "ask" && h.tried[why] == "" {
			t.Fatalf("nothing is created although %s: %+v", why, told)
		}

		return
	}

	if fresh || len(have) != len(had)+1 || made == nil && err == nil {
		t.Fatalf("a fresh one: %v, %d backups, before %d, created %v", fresh, len(have), len(had), made)
	}

	if h.tried[why] != "" {
		t.Fatalf("created again although %s: %s, before %s", why, active[0].Name, h.tried[why])
	}

	h.tried[why] = active[0].Name
}

// checkFailed: a backup that blocks exists, has failed, and is not pruned.
func (h *history) checkFailed(t *rapid.T, told safety.Backup, backups []v1alpha1.TalosEtcdBackup) {
	if told.State != safety.BackupFailed {
		return
	}

	i := slices.IndexFunc(backups, func(b v1alpha1.TalosEtcdBackup) bool { return b.Name == told.Name })
	if i < 0 || !scheduled.Finished(&backups[i]) || scheduled.Good(&backups[i]) {
		t.Fatalf("blocked by %s, which has not failed", told.Name)
	}

	if !scheduled.Holds(&backups[i], scheduled.Newest(backups, h.now)) {
		t.Fatalf("%s blocks, and is not kept", told.Name)
	}
}

// TestSince: a backup has to be newer than a moment, and not older than the spec allows.
func TestSince(t *testing.T) {
	ago := func(d time.Duration) time.Time { return now.Add(-d) }

	for name, c := range map[string]struct {
		maxAge, moment, taken time.Duration
		fresh                 bool
	}{
		"older than the moment": {moment: time.Minute, taken: 2 * time.Minute},
		"newer than the moment": {moment: 2 * time.Minute, taken: time.Minute, fresh: true},
		"in the same second":    {moment: time.Minute, taken: time.Minute, fresh: true},
		"newer, but too old":    {moment: 5 * time.Hour, taken: 2 * time.Hour},
		"of a clock ahead":      {moment: -time.Hour, fresh: true},
		"newer, and allowed":    {maxAge: 3 * time.Hour, moment: 5 * time.Hour, taken: 2 * time.Hour, fresh: true},
	} {
		cp := newControlPlane()
		if c.maxAge != 0 {
			cp.Spec.BackupBeforeDisruption.MaxAge = &metav1.Duration{Duration: c.maxAge}
		}

		was := cp.DeepCopy()
		demands := scheduled.Since(cp, ago(c.moment), now)
		c1 := api(t, interceptor.Funcs{}, newSchedule(nightly), newBackup("a", good(ago(c.taken))))

		known, _, err := scheduled.Before(t.Context(), c1, demands, now)
		if err != nil || (known.State == safety.BackupFresh) != c.fresh || !reflect.DeepEqual(cp, was) {
			t.Errorf("%s: %+v, %v", name, known, err)
		}
	}

	if got := scheduled.Since(&v1alpha1.TalosControlPlane{}, now, now); got.Spec.BackupBeforeDisruption != nil {
		t.Error("a control plane that demands no backup demands one")
	}
}
