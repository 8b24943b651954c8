package taloscontrolplane_test

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/workload"
	"github.com/talos-operator/talos-operator/test/harness"
)

// claim makes a control plane claim the cluster, and returns the resulting owner.
func (e *env) claim(uid, former string) string {
	e.Helper()

	c, err := e.r.Workloads.Cluster(e.Context(), e.state().Bundle, []string{e.address(0)})
	if err != nil {
		e.Fatal(err)
	}

	owner, err := c.Own(e.Context(), workload.Claim{UID: uid, Name: "elsewhere/c", Former: former})
	if err != nil {
		e.Fatal(err)
	}

	return owner
}

// owner returns the owner that the cluster records. A query without a UID never takes over the cluster, even if no
// owner is recorded yet: otherwise the query would precede the operator.
func (e *env) owner() string { return e.claim("", "") }

// owning creates a control plane with one machine whose cluster runs and records its owner.
func (e *env) owning() *v1alpha1.TalosControlPlane {
	e.Helper()

	cp, _ := e.found(1)
	e.until(cp, "the cluster names it", func() bool {
		if !bootstrapped(cp) || e.state().Runtime.Bootstrap.EstablishedAt == nil {
			return false
		}

		_, err := e.r.Workloads.Cluster(e.Context(), e.state().Bundle, []string{e.address(0)})

		return err == nil && e.owner() == string(cp.UID)
	})

	return cp
}

// TestOwnerInTheCluster: a cluster records its owner. If that is another control plane, for example one that took over
// with a copy of the state, the former one stops until a user confirms otherwise.
func TestOwnerInTheCluster(t *testing.T) {
	e := newEnv(t)
	cp := e.owning()

	if got := e.claim(elsewhere, string(cp.UID)); got != elsewhere {
		t.Fatalf("the takeover: %s", got)
	}

	// Nothing is disrupted, so the owner is queried only periodically.
	if _, err := e.pass(cp); failure.Reason(err) == v1alpha1.ReasonOwnedElsewhere {
		t.Error("a cluster is asked with every pass")
	}

	e.Clock.SetTime(e.Clock.Now().Add(5 * time.Minute))

	for range 2 {
		if _, err := e.pass(cp); failure.Reason(err) != v1alpha1.ReasonOwnedElsewhere {
			t.Errorf("after the takeover: %v", err)
		}
	}

	e.Condition(cp, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonOwnedElsewhere, "kube-system/"+workload.OwnerConfigMap)

	if got := e.state().Runtime.RivalUID; got != elsewhere {
		t.Errorf("what machines and workers read: %q", got)
	}

	e.annotate(cp, v1alpha1.TakeOverAnnotation, elsewhere)
	e.until(cp, "it has the cluster back", func() bool { return e.owner() == string(cp.UID) })

	if rt := e.state().Runtime; rt.RivalUID != "" || rt.OwnerUID != string(cp.UID) || len(cp.Annotations) != 0 {
		t.Errorf("recorded: rival %q, owner %q, annotations %v", rt.RivalUID, rt.OwnerUID, cp.Annotations)
	}
}

// TestOwnerIsAskedAlthoughTheSpecIsRefused: the owner is also queried where every reconciliation ends early, because machines and workers
// go on meanwhile.
func TestOwnerIsAskedAlthoughTheSpecIsRefused(t *testing.T) {
	e := newEnv(t)
	cp := e.owning()

	harness.Change(e.Env, cp, func(cp *v1alpha1.TalosControlPlane) { cp.Spec.TalosVersion = "v1.13.1" })

	if _, err := e.pass(cp); failure.Reason(err) != v1alpha1.ReasonDowngradeRefused {
		t.Fatalf("the spec is not refused: %v", err)
	}

	e.claim(elsewhere, string(cp.UID))
	e.Clock.SetTime(e.Clock.Now().Add(5 * time.Minute))

	if _, err := e.pass(cp); failure.Reason(err) != v1alpha1.ReasonOwnedElsewhere || e.state().Runtime.RivalUID != elsewhere {
		t.Errorf("after the takeover: %v; machines and workers read %q", err, e.state().Runtime.RivalUID)
	}
}

// TestOwnerIsGivenBack: the other control plane releases the cluster, and no confirmation is needed here.
func TestOwnerIsGivenBack(t *testing.T) {
	e := newEnv(t)
	cp := e.owning()

	e.claim(elsewhere, string(cp.UID))
	e.restart() // a restart queries the owner
	e.until(cp, "it sees the other one", func() bool { return e.state().Runtime.RivalUID == elsewhere })

	if got := e.claim(string(cp.UID), elsewhere); got != string(cp.UID) {
		t.Fatal(got)
	}

	e.until(cp, "it goes on", func() bool { return e.state().Runtime.RivalUID == "" })
}

// TestOwnerLetsGo: a control plane that is deleted properly leaves a cluster that the next one takes over without
// confirmation, with or without its state.
func TestOwnerLetsGo(t *testing.T) {
	e := newEnv(t)
	cp := e.owning()

	e.Delete(cp)
	e.until(cp, "it is gone", func() bool { return e.Gone(cp) })

	if got := e.claim("next", ""); got != "next" {
		t.Errorf("the cluster still names %s", got)
	}
}

// TestWipeAsksTheCluster: machines of a cluster that another control plane took over are not wiped, although the state
// does not record that yet.
func TestWipeAsksTheCluster(t *testing.T) {
	e := newEnv(t)
	cp := e.owning()

	cp.Spec.DeletionPolicy = v1alpha1.DeletionReset
	e.Update(cp)
	e.claim(elsewhere, string(cp.UID))
	e.Delete(cp)

	if _, err := e.pass(cp); err != nil {
		t.Fatal(err)
	}

	e.Condition(cp, v1alpha1.ConditionDeleting, metav1.ConditionTrue, v1alpha1.ReasonOwnedElsewhere, elsewhere)

	if m := e.talosMachine(0); !m.DeletionTimestamp.IsZero() {
		t.Error("its machine is being deleted")
	}

	e.annotate(cp, v1alpha1.TakeOverAnnotation, elsewhere)
	e.Eventually("its machines go", func(context.Context) error {
		if _, err := e.pass(cp); err != nil {
			return err
		}

		m := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: "cp-0"}}
		if !e.Gone(m) {
			return errors.New("they do not")
		}

		return nil
	})
}

// TestDisruptionAsksTheCluster: right before a disruption, the cluster is asked for its owner. If its API is down, only
// the state decides, because the step may be what repairs it.
func TestDisruptionAsksTheCluster(t *testing.T) {
	for what, c := range map[string]struct {
		before func(*env, *v1alpha1.TalosControlPlane)
		begins bool
	}{
		"ours":      {func(*env, *v1alpha1.TalosControlPlane) {}, true},
		"another's": {func(e *env, cp *v1alpha1.TalosControlPlane) { e.claim(elsewhere, string(cp.UID)) }, false},
		"API down": {func(e *env, cp *v1alpha1.TalosControlPlane) {
			e.claim(elsewhere, string(cp.UID))
			e.r.Workloads = &workload.Clients{Clock: shut{e.Clock}}
		}, true},
	} {
		t.Run(what, func(t *testing.T) {
			e := newEnv(t)
			cp := e.owning()
			e.show(cp, 0, func(*v1alpha1.TalosMachine) {})
			e.until(cp, "the record is ours", func() bool { return e.owner() == string(cp.UID) })

			c.before(e, cp)
			e.show(cp, 0, pending)
			_, _ = e.pass(cp)

			if got := e.granted(1) != ""; got != c.begins {
				t.Errorf("begins: %t, %s", got, harness.Show(cp))
			}
		})
	}
}

// shut makes client certificates invalid for years, so that every API server rejects the operator.
type shut struct{ *harness.Clock }

func (c shut) Now() time.Time { return c.Clock.Now().Add(-20 * 365 * 24 * time.Hour) }
