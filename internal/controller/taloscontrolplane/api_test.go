package taloscontrolplane_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/test/harness"
)

// TestNoAPI: a control plane with a working etcd and an unreachable Kubernetes API is reconciled at long intervals,
// even while it is young, because each reconciliation queries every node.
func TestNoAPI(t *testing.T) {
	e := newEnv(t)
	cp, _ := e.found(1, harness.RealEtcd)

	e.until(cp, "etcd is healthy, and there is no API", func() bool {
		return meta.IsStatusConditionTrue(cp.Status.Conditions, v1alpha1.ConditionEtcdHealthy) &&
			meta.IsStatusConditionFalse(cp.Status.Conditions, v1alpha1.ConditionAvailable)
	})

	if res, err := e.pass(cp); err != nil || res.RequeueAfter < 5*time.Second {
		t.Errorf("the nodes are asked again after %s (%v)", res.RequeueAfter, err)
	}

	e.Condition(cp, v1alpha1.ConditionAvailable, metav1.ConditionFalse, v1alpha1.ReasonAPIServerUnavailable, "")
}

// TestBringUpSlowsDown: nodes that do not come up are queried less and less often.
func TestBringUpSlowsDown(t *testing.T) {
	e := newEnv(t)
	cp := e.create(1)

	var last time.Duration

	for _, age := range []time.Duration{10 * time.Second, time.Minute, 3 * time.Minute} {
		e.Clock.SetTime(cp.CreationTimestamp.Add(age))

		for range 3 {
			res, err := e.pass(cp)
			if err != nil || res.RequeueAfter < last {
				t.Fatalf("after %s: again after %s, %s before (%v)", age, res.RequeueAfter, last, err)
			}

			last = max(last, res.RequeueAfter)
		}

		if age >= time.Minute && last <= 250*time.Millisecond {
			t.Errorf("after %s the nodes are asked every %s", age, last)
		}
	}
}

// TestAPIReturns: a control plane is triggered once when the API of its cluster responds again.
func TestAPIReturns(t *testing.T) {
	e := newEnv(t)
	cp, nodes := e.established(1)

	e.until(cp, "the API answers", func() bool {
		return meta.IsStatusConditionTrue(cp.Status.Conditions, v1alpha1.ConditionAvailable)
	})
	nodes[0].Kill()

	for range 2 {
		e.r.APIs.Await(e.Key(name), e.state().Bundle, []string{e.address(0)})
	}

	if err := nodes[0].PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	e.Eventually("the control plane is woken", func(context.Context) error {
		select {
		case woken := <-e.r.APIs.Events():
			if woken.Object.GetName() != name || woken.Object.GetNamespace() != e.Namespace {
				return errors.New("another one is")
			}

			return nil
		default:
			return errors.New("it is not")
		}
	})

	select {
	case woken := <-e.r.APIs.Events():
		t.Errorf("woken again: %v", woken.Object.GetName())
	default:
	}
}

// TestNobodyAsks: the API of a cluster that is paused, disabled or being deleted is no longer polled.
func TestNobodyAsks(t *testing.T) {
	e := newEnv(t)
	cp, _ := e.found(1)

	for _, step := range []struct {
		name   string
		change func()
	}{
		{"paused", func() { e.annotate(cp, v1alpha1.PausedAnnotation, "true") }},
		{"disabled", func() { e.annotate(cp, v1alpha1.ReconcileModeAnnotation, "Disabled") }},
		{"deleted", func() {
			e.annotate(cp, "", "")
			e.Delete(cp)
		}},
	} {
		e.r.APIs.Await(e.Key(name), e.state().Bundle, []string{"127.0.0.1"})
		step.change()

		_, _ = e.pass(cp) // the reason to wait does not matter

		ended := make(chan struct{})

		go func() {
			e.r.APIs.Wait()
			close(ended)
		}()

		e.Eventually(step.name+": nobody asks", func(context.Context) error {
			select {
			case <-ended:
				return nil
			default:
				return errors.New("the API is asked on and on")
			}
		})
	}
}

// annotate sets the only annotation of a control plane, or removes all.
func (e *env) annotate(cp *v1alpha1.TalosControlPlane, key, value string) {
	e.Helper()

	if cp.Annotations = nil; key != "" {
		cp.Annotations = map[string]string{key: value}
	}

	e.Update(cp)
}
