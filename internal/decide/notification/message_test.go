package notification_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/notification"
)

func run(from, schematic string) notification.Run {
	return notification.Run{
		Namespace: "clusters", Name: "prod-talos-1", UID: "u", Kind: "TalosUpgrade", Spec: &v1alpha1.UpgradeRunSpec{
			ControlPlaneRef: v1alpha1.ObjectReference{Name: "prod"}, From: from, To: "v1.13.9", Schematic: schematic,
		},
	}
}

func body(t *testing.T, r notification.Run, as v1alpha1.NotificationType, e *notification.Entry) string {
	t.Helper()

	b, err := r.Body(as, e)
	if err != nil {
		t.Fatal(err)
	}

	return string(b)
}

// TestGeneric: the shape that is documented. A change of it is another version.
func TestGeneric(t *testing.T) {
	e := notification.Entry{
		Number: 3, Event: v1alpha1.NotificationFailed, Time: at(time.Minute), Phase: v1alpha1.UpgradeRunStopped,
		Message: "a failed: <no> image", Total: 5, Done: 2, Failed: 1,
	}
	want := `{"apiVersion":"notifications.talos-operator.io/v1","kind":"UpgradeNotification","id":"u-3","event":"Failed",` +
		`"time":"2026-05-04T10:01:00Z","text":"Cluster clusters/prod: the upgrade of Talos from v1.12.4 to v1.13.9 has stopped ` +
		`(2 of 5 machines done): a failed: \u003cno\u003e image; repair the machine, then continue with talos-operator retry MACHINE",` +
		`"cluster":{"namespace":"clusters","controlPlane":"prod"},` +
		`"run":{"kind":"TalosUpgrade","name":"prod-talos-1","from":"v1.13.9","to":"v1.13.9","schematic":"abc","phase":"Stopped",` +
		`"message":"a failed: \u003cno\u003e image","machines":{"total":5,"done":2,"failed":1}}}`

	got := body(t, run("v1.13.9", "abc"), v1alpha1.NotificationGeneric, &e)
	if diff := cmp.Diff(strings.Replace(want, "the upgrade of Talos from v1.12.4 to v1.13.9", "the upgrade of Talos v1.13.9 to schematic abc", 1), got); diff != "" {
		t.Error(diff)
	}

	got = body(t, run("v1.13.9", ""), v1alpha1.NotificationGeneric, &e)
	if !strings.Contains(got, "the upgrade of Talos v1.13.9 that removes the schematic has stopped") || strings.Contains(got, `"schematic"`) {
		t.Error(got)
	}
}

// TestSlack: one sentence for each transition, in which nothing is markup.
func TestSlack(t *testing.T) {
	for name, c := range map[string]struct {
		event v1alpha1.NotificationEvent
		phase v1alpha1.UpgradeRunPhase
		hook  bool
		want  string
	}{
		"a hook":     {v1alpha1.NotificationFailed, v1alpha1.UpgradeRunStopped, true, "has stopped (2 of 5 machines done): <!channel> & a"},
		"started":    {v1alpha1.NotificationStarted, v1alpha1.UpgradeRunSucceeded, false, "has started (2 of 5 machines done)"},
		"succeeded":  {v1alpha1.NotificationFinished, v1alpha1.UpgradeRunSucceeded, false, "has succeeded (2 of 5 machines done)"},
		"called off": {v1alpha1.NotificationFinished, v1alpha1.UpgradeRunCalledOff, false, "was called off (2 of 5 machines done): <!channel> & a"},
		"failed":     {v1alpha1.NotificationFailed, v1alpha1.UpgradeRunFailed, false, "has failed (2 of 5 machines done): <!channel> & a"},
		"stopped":    {v1alpha1.NotificationFailed, v1alpha1.UpgradeRunStopped, false, "has stopped (2 of 5 machines done): <!channel> & a; repair the machine, then continue with talos-operator retry MACHINE"},
		"a machine":  {v1alpha1.NotificationMachineFailed, v1alpha1.UpgradeRunStopped, false, "has failed on machines (2 of 5 machines done): <!channel> & a; repair each, then run talos-operator retry MACHINE"},
		"manifests":  {v1alpha1.NotificationWaiting, v1alpha1.UpgradeRunWaiting, false, "is waiting for a user (2 of 5 machines done): <!channel> & a"},
		"a drain":    {v1alpha1.NotificationWaiting, v1alpha1.UpgradeRunRunning, false, "is waiting for a user (2 of 5 machines done): <!channel> & a"},
		"approval":   {v1alpha1.NotificationWaiting, v1alpha1.UpgradeRunRunning, false, "is waiting for a user (2 of 5 machines done): <!channel> & a; approve it with talos-operator approve CLUSTER"},
	} {
		got := body(t, run("v1.12.4", ""), v1alpha1.NotificationSlack, &notification.Entry{
			Event: c.event, Phase: c.phase, Message: "<!channel> & a", Total: 5, Done: 2, Hook: c.hook,
			Manifests: name == "manifests", Held: name == "a drain",
		})

		text := "Cluster clusters/prod: the upgrade of Talos from v1.12.4 to v1.13.9 " +
			strings.Replace(c.want, "<!channel> & a", `\u0026lt;!channel\u0026gt; \u0026amp; a`, 1)
		if got != `{"text":"`+text+`"}` {
			t.Errorf("%s: %s", name, got)
		}
	}
}
