package scheduled_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup/scheduled"
)

// TestDefault: a schedule that takes backups is asked for one by default, of several that which did so last; otherwise
// it is said why none is.
func TestDefault(t *testing.T) {
	with := func(name string, edit func(*v1alpha1.TalosEtcdBackupSchedule)) v1alpha1.TalosEtcdBackupSchedule {
		s := newSchedule(name)
		edit(s)

		return *s
	}
	plain := func(*v1alpha1.TalosEtcdBackupSchedule) {}
	good := func(at time.Duration) func(*v1alpha1.TalosEtcdBackupSchedule) {
		last := metav1.NewTime(now.Add(at))

		return func(s *v1alpha1.TalosEtcdBackupSchedule) { s.Status.LastSuccessTime = &last }
	}
	suspended := with("suspended", func(s *v1alpha1.TalosEtcdBackupSchedule) { s.Spec.Suspend = true })
	paused := with("held", func(s *v1alpha1.TalosEtcdBackupSchedule) {
		s.Annotations = map[string]string{v1alpha1.PausedAnnotation: "true"}
	})
	other := with("other", func(s *v1alpha1.TalosEtcdBackupSchedule) { s.Spec.BackupTemplate.Spec.ControlPlaneRef.Name = "x" })
	gone := with("gone", func(s *v1alpha1.TalosEtcdBackupSchedule) { at := metav1.NewTime(now); s.DeletionTimestamp = &at })

	for name, c := range map[string]struct {
		all           []v1alpha1.TalosEtcdBackupSchedule
		want, missing string
	}{
		"none":        {nil, "", "no TalosEtcdBackupSchedule is known"},
		"of others":   {[]v1alpha1.TalosEtcdBackupSchedule{other, gone}, "", "no TalosEtcdBackupSchedule is known"},
		"one":         {[]v1alpha1.TalosEtcdBackupSchedule{other, with(nightly, plain), suspended, paused}, nightly, ""},
		"suspended":   {[]v1alpha1.TalosEtcdBackupSchedule{suspended}, "", "TalosEtcdBackupSchedule suspended is suspended"},
		"paused":      {[]v1alpha1.TalosEtcdBackupSchedule{paused}, "", "TalosEtcdBackupSchedule held is paused"},
		"two":         {[]v1alpha1.TalosEtcdBackupSchedule{with("b", plain), with("a", plain), with("c", plain)}, "a", ""},
		"one of two":  {[]v1alpha1.TalosEtcdBackupSchedule{with("a", plain), with("b", good(time.Hour))}, "b", ""},
		"the newest":  {[]v1alpha1.TalosEtcdBackupSchedule{with("a", good(time.Hour)), with("c", good(2*time.Hour)), with("b", good(2*time.Hour)), suspended}, "b", ""},
		"all are off": {[]v1alpha1.TalosEtcdBackupSchedule{suspended, paused}, "", "TalosEtcdBackupSchedule held is paused, suspended is suspended"},
	} {
		demand, missing := scheduled.Default(newControlPlane(), c.all)

		got := ""
		if demand != nil {
			got = demand.ScheduleRef.Name
		}

		if got != c.want || !strings.Contains(missing, c.missing) || (missing == "") != (c.missing == "") {
			t.Errorf("%s: %q, %q", name, got, missing)
		}
	}
}
