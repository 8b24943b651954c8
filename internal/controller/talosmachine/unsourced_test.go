package talosmachine_test

import (
	"maps"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// planFrom plans a change of w-0 whose patch comes from the Secret shut.
func (e *env) planFrom(patch string) *v1alpha1.MachineChange {
	e.Helper()
	e.CreateSecret("shut", map[string]string{"patch.yaml": patch})
	e.fromPatches(v1alpha1.ConfigPatchFromSecret, "shut")

	return e.planned("w-0")
}

// loseSource deletes the Secret.
func (e *env) loseSource() {
	e.Helper()

	if err := e.Admin.Delete(e.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: "shut"},
	}); err != nil {
		e.Fatal(err)
	}
}

// handedBack: the change waits for another grant, and its group begins nothing with the machine.
func (e *env) handedBack(id string) {
	e.Helper()

	m := e.until("w-0", "it returns the grant", func(m *v1alpha1.TalosMachine) bool {
		return m.Status.Change != nil && m.Status.Change.ID != id
	})
	if !in(v1alpha1.ChangePending)(m) || m.Status.Intent != nil || m.Status.ComparedTo != "" || e.cordoned("w-0") ||
		!strings.Contains(m.Status.Change.Message, "Secret shut does not exist") {
		e.Errorf("cordoned: %t; compared to %q; %s", e.cordoned("w-0"), m.Status.ComparedTo, show(m))
	}
}

// ended: the change is complete, whatever comes next.
func ended(m *v1alpha1.TalosMachine) bool {
	return m.Status.Change == nil && m.Status.Intent == nil && m.Status.WorkingHash == m.Status.ConfigHash
}

// TestSourceGoneBeforeGrant: a machine whose patch is gone counts as not compared, and returns the grant of what was
// planned before. It goes on when the patch is back.
func TestSourceGoneBeforeGrant(t *testing.T) {
	e := found(t, 1, 1)
	c, calls := e.planFrom(sysctl(firstValue)), e.mutations("w-0")
	e.loseSource()

	if m, _, err := e.pass("w-0"); err == nil || m.Status.ComparedTo != "" || m.Status.Change.ID != c.ID {
		t.Errorf("%v; compared to %q; %s", err, m.Status.ComparedTo, show(m))
	}

	e.grant("w-0", false)
	e.handedBack(c.ID)

	if e.mutations("w-0") != calls {
		t.Error("something was sent")
	}

	e.CreateSecret("shut", map[string]string{"patch.yaml": sysctl(firstValue)})
	e.until("w-0", "it is compared", func(m *v1alpha1.TalosMachine) bool { return m.Status.ComparedTo != "" })
	e.roll("w-0")

	// The same holds for a patch that is there and cannot be used.
	change(e, &corev1.Secret{}, "shut", func(s *corev1.Secret) { s.Data["patch.yaml"] = []byte("machine: {none: 1}") })

	if m, _, err := e.pass("w-0"); err == nil || m.Status.ComparedTo != "" {
		t.Errorf("%v; compared to %q; %s", err, m.Status.ComparedTo, show(m))
	}
}

// TestSourceGoneMidReboot: a change that was sent ends without its patch, and the error is told meanwhile.
func TestSourceGoneMidReboot(t *testing.T) {
	e := found(t, 1, 1)
	e.planFrom(needsReboot)
	e.grant("w-0", true)
	e.until("w-0", "it reboots", rebooting)
	e.loseSource()

	m := e.until("w-0", "the change ends", ended)
	if e.cordoned("w-0") || !e.runs("w-0", "SHELF") {
		t.Errorf("cordoned: %t; %s", e.cordoned("w-0"), show(m))
	}

	e.condition("w-0", v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonPatchSourceNotFound, "Secret shut")

	stored, err := e.r.Configs.Load(t.Context(), e.machine("w-0"))
	if err != nil || len(stored.Hidden) == 0 || !strings.Contains(string(stored.Working), "SHELF") {
		t.Errorf("what is hidden is forgotten: %q, %v", stored.Hidden, err)
	}
}

// TestSourceGoneMidTrial: a change on trial is proven without its patch.
func TestSourceGoneMidTrial(t *testing.T) {
	e := found(t, 1, 1)
	e.planFrom(connection)
	e.grant("w-0", false)
	e.until("w-0", "it is tried", onTrial)
	e.loseSource()
	e.until("w-0", "the change ends", ended)

	if !e.runs("w-0", "tried.example.org") {
		t.Error("it was rolled back")
	}
}

// TestSourceGoneMidSettling: a node that does not become healthy fails its change in time.
func TestSourceGoneMidSettling(t *testing.T) {
	e := found(t, 1, 1)
	e.planFrom(sickening)
	e.grant("w-0", false)
	e.until("w-0", "it settles", in(v1alpha1.ChangeSettling))
	e.loseSource()
	e.pass("w-0")
	e.sleep(patience)
	e.until("w-0", "the change fails", failed)
}

// TestSourceGoneMidDrain: nothing was sent, and nothing can be: the node gets its pods back.
func TestSourceGoneMidDrain(t *testing.T) {
	e := found(t, 1, 1)
	c := e.planFrom(needsReboot)
	e.grant("w-0", true)

	workloads := e.r.Workloads
	e.lockOut()

	if m, _, err := e.pass("w-0"); err == nil || !in(v1alpha1.ChangeDraining)(m) {
		t.Fatalf("%v: %s", err, show(m))
	}

	e.r.Workloads = workloads
	e.loseSource()
	e.handedBack(c.ID)
}

// TestBadValueMidDrain: a value that becomes one that cannot be used, or values that are too long together, keep no node
// drained.
func TestBadValueMidDrain(t *testing.T) {
	long := strings.Repeat("x", 200<<10)

	for name, bad := range map[string]map[string][]byte{
		"key": {"a": []byte("two\nlines")}, "long": {"a": []byte(long), "b": []byte(long), "c": []byte(long)},
	} {
		t.Run(name, func(t *testing.T) {
			e := found(t, 1, 1)
			e.CreateSecret("shut", map[string]string{"a": "1", "b": "2", "c": "3"})
			change(e, &v1alpha1.TalosWorker{}, group, func(w *v1alpha1.TalosWorker) {
				w.Spec.ConfigPatches = []string{needsReboot}
				for _, key := range []string{"a", "b", "c"} {
					w.Spec.Environment = append(w.Spec.Environment, v1alpha1.EnvironmentVariable{
						Name: key, ValueFrom: &v1alpha1.SecretKeyReference{Name: "shut", Key: key},
					})
				}
			})
			c := e.planned("w-0")
			e.grant("w-0", true)

			workloads := e.r.Workloads
			e.lockOut()

			if m, _, err := e.pass("w-0"); err == nil || !in(v1alpha1.ChangeDraining)(m) {
				t.Fatalf("%v: %s", err, show(m))
			}

			e.r.Workloads = workloads
			change(e, &corev1.Secret{}, "shut", func(s *corev1.Secret) { maps.Copy(s.Data, bad) })

			m := e.until("w-0", "it returns the grant", func(m *v1alpha1.TalosMachine) bool {
				return m.Status.Change != nil && m.Status.Change.ID != c.ID
			})
			if !in(v1alpha1.ChangePending)(m) || m.Status.Intent != nil || m.Status.ComparedTo != "" || e.cordoned("w-0") {
				t.Errorf("cordoned: %t; compared to %q; %s", e.cordoned("w-0"), m.Status.ComparedTo, show(m))
			}

			e.condition("w-0", v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonInvalidPatch, "")
		})
	}
}

// TestOptionalSourceGone: a patch that is optional is undone when its Secret is deleted, by a change that shows no value.
func TestOptionalSourceGone(t *testing.T) {
	e := found(t, 1, 1)
	e.planFrom(sysctl(firstValue))

	optional := true
	change(e, &v1alpha1.TalosWorker{}, group, func(w *v1alpha1.TalosWorker) { w.Spec.ConfigPatchesFrom[0].Optional = &optional })
	e.roll("w-0")
	e.loseSource()

	if c := e.planned("w-0"); len(c.Fields) != 1 || c.Fields[0].Old != "<redacted>" || c.Fields[0].New != "" {
		t.Errorf("planned: %+v", c)
	}

	e.roll("w-0")
	e.keepsSecrets(firstValue)

	if e.runs("w-0", firstValue) {
		t.Error("the node still has it")
	}
}

// TestErrorsOfNodesQuoteNoSecret: what a node says when it does not take a configuration is neither told nor logged.
func TestErrorsOfNodesQuoteNoSecret(t *testing.T) {
	e := found(t, 1, 1)
	e.planFrom(sysctl(firstValue))
	e.nodes["w-0"].Faults().Fail("ApplyConfiguration", codes.Unknown, 1, 1)
	e.grant("w-0", false)

	_, _, err := e.pass("w-0")
	if err == nil || !strings.Contains(err.Error(), "the reason is not shown") || strings.Contains(err.Error(), "injected") {
		t.Errorf("got %v", err)
	}

	e.until("w-0", "it is changed", done)
}

// TestVolumesRefusedMidReboot: a change that was sent ends although a later one of volumes is refused, and the node is
// schedulable again.
func TestVolumesRefusedMidReboot(t *testing.T) {
	e := found(t, 1, 1)
	e.planFrom(needsReboot)
	e.grant("w-0", true)
	e.until("w-0", "it reboots", rebooting)
	change(e, &v1alpha1.TalosMachine{}, "w-0", func(m *v1alpha1.TalosMachine) {
		m.Spec.Volumes = &v1alpha1.Volumes{Ephemeral: &v1alpha1.VolumeOptions{Encryption: &v1alpha1.VolumeEncryption{
			Keys: []v1alpha1.VolumeKey{{Slot: new(int32), Type: v1alpha1.VolumeKeyNodeID}},
		}}}
	})

	m := e.until("w-0", "the change ends", ended)
	if e.cordoned("w-0") || !e.runs("w-0", "SHELF") {
		t.Errorf("cordoned: %t; %s", e.cordoned("w-0"), show(m))
	}

	e.condition("w-0", v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonVolumeChangeRefused, "is not encrypted")
}
