package harness_test

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/talos-operator/talos-operator/test/harness"
)

func secret(name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}}
}

// TestDeath: the last effect of an operator that dies after it is there, and that of one that dies before it is not.
// Nothing is read or written afterwards.
func TestDeath(t *testing.T) {
	for name, tt := range map[string]struct {
		die   func(*harness.Client)
		there bool
	}{
		"before": {func(c *harness.Client) { c.DieBefore(2) }, false},
		"after":  {func(c *harness.Client) { c.DieAfter(2) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			api := fake.NewClientBuilder().Build()
			c := harness.NewClient(api)

			// What was written before does not count.
			if err := c.Create(t.Context(), secret("zero")); err != nil {
				t.Fatal(err)
			}

			tt.die(c)
			c.Effect()

			if c.Dead() {
				t.Fatal("it died at its first effect")
			}

			if err := c.Create(t.Context(), secret("second")); !errors.Is(err, harness.ErrDead) || !c.Dead() {
				t.Errorf("the second effect: %v", err)
			}

			err := api.Get(t.Context(), client.ObjectKey{Namespace: "n", Name: "second"}, &corev1.Secret{})
			if there := err == nil; there != tt.there {
				t.Errorf("it is there: %t (%v)", there, err)
			}

			for _, err := range []error{
				c.Get(t.Context(), client.ObjectKey{Namespace: "n", Name: "zero"}, &corev1.Secret{}),
				c.Status().Update(t.Context(), secret("zero")), c.Delete(t.Context(), secret("zero")),
			} {
				if !errors.Is(err, harness.ErrDead) {
					t.Errorf("a dead operator: %v", err)
				}
			}

			if n := c.Writes(); n != 3 {
				t.Errorf("%d effects", n)
			}
		})
	}
}

// TestClock: it stands still, and goes once it is told to; moving it on works either way.
func TestClock(t *testing.T) {
	c := harness.NewClock()
	at := c.Now()

	c.Sleep(time.Hour)

	if d := c.Since(at); d != time.Hour {
		t.Errorf("an hour later it is %s later", d)
	}

	c.SetTime(at)
	c.Run()
	c.Sleep(time.Hour)

	if d := c.Since(at); d < time.Hour {
		t.Errorf("an hour later it is %s later", d)
	}
}
