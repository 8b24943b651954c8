package scheduled_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup/scheduled"
)

// TestDefault: the only schedule that takes backups is asked for one by default; otherwise it is said why none is.
func TestDefault(t *testing.T) {
	with := func(name string, edit func(*v1alpha1.TalosEtcdBackupSchedule)) v1alpha1.TalosEtcdBackupSchedule {
		s := newSchedule(name)
		edit(s)

		return *s
	}
	plain := func(*v1alpha1.TalosEtcdBackupSchedule) {}
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
		"none":            {nil, "", "no TalosEtcdBackupSchedule is known"},
		"of others":       {[]v1alpha1.TalosEtcdBackupSchedule{other, gone}, "", "no TalosEtcdBackupSchedule is known"},
		"one":             {[]v1alpha1.TalosEtcdBackupSchedule{other, with(nightly, plain), suspended, paused}, nightly, ""},
		"suspended":       {[]v1alpha1.TalosEtcdBackupSchedule{suspended}, "", "TalosEtcdBackupSchedule suspended is suspended"},
		"paused":          {[]v1alpha1.TalosEtcdBackupSchedule{paused}, "", "TalosEtcdBackupSchedule held is paused"},
		"two":             {[]v1alpha1.TalosEtcdBackupSchedule{with("b", plain), with("a", plain)}, "", "2 TalosEtcdBackupSchedules could take it (a, b): name one"},
		"several of them": {[]v1alpha1.TalosEtcdBackupSchedule{with("d", plain), with("c", plain), with("b", plain), with("a", plain)}, "", "(a, b, c and 1 more)"},
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
