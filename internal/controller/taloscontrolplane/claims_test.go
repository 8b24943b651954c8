package taloscontrolplane_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/lab/node"
)

// disaster is a control plane of three nodes with random faults, and its real state.
type disaster struct {
	*env

	cp    *v1alpha1.TalosControlPlane
	good  v1alpha1.TalosControlPlaneSpec
	nodes []*node.Node
	state []byte

	down, cut                   [3]bool
	refused, unreadable, paused bool
}

// TestNoConditionLies: whatever is killed, cut off, rejected, interrupted or paused, in any order and between any two
// reconciliations, no condition makes a false claim for longer than its bound.
func TestNoConditionLies(t *testing.T) {
	e := newEnv(t)
	cp, nodes := e.established(3)
	e.available(cp)

	d := &disaster{env: e, cp: cp, good: *cp.Spec.DeepCopy(), nodes: nodes, state: e.secret("c-state").Data["secretBundle"]}
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))

	var events []string

	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d: %s", seed, strings.Join(events, ", "))
		}
	})

	for range 6 {
		for range 1 + random.IntN(2) {
			events = append(events, d.happen(random))
		}

		// A reconciliation in between observes an intermediate state; its claims are not checked yet.
		_, _ = d.pass(cp)

		d.Clock.Sleep(condition.Bound)

		lie := ""

		d.Eventually("after "+strings.Join(events, ", "), func(context.Context) error {
			_, _ = d.pass(cp)

			if lie = d.lie(); lie != "" {
				return fmt.Errorf("%s; conditions %+v", lie, cp.Status.Conditions)
			}

			return nil
		})
	}
}

// happen causes one event, and returns its description.
func (d *disaster) happen(random *rand.Rand) string {
	i := random.IntN(len(d.nodes))

	switch random.IntN(6) {
	case 0, 1:
		if d.down[i] = !d.down[i]; d.down[i] {
			d.nodes[i].Kill()

			return fmt.Sprintf("power off %d", i)
		}

		if err := d.nodes[i].PowerOn(d.Context()); err != nil {
			d.Fatal(err)
		}

		return fmt.Sprintf("power on %d", i)
	case 2:
		d.cut[i] = !d.cut[i]
		d.nodes[i].Partition(d.cut[i])

		return fmt.Sprintf("cut off %d: %t", i, d.cut[i])
	case 3:
		d.refused = !d.refused
		d.good.DeepCopyInto(&d.cp.Spec)

		if d.refused {
			d.cp.Spec.ConfigPatches = []string{"machine: ["}
		}

		d.Update(d.cp)

		return fmt.Sprintf("spec refused: %t", d.refused)
	case 4:
		d.unreadable = !d.unreadable

		secret := d.secret("c-state")
		secret.Data["secretBundle"] = d.state

		if d.unreadable {
			secret.Data["secretBundle"] = d.state[:len(d.state)/2]
		}

		d.Update(secret)

		return fmt.Sprintf("state unreadable: %t", d.unreadable)
	}

	d.paused = !d.paused
	metav1.SetMetaDataAnnotation(&d.cp.ObjectMeta, v1alpha1.PausedAnnotation, fmt.Sprint(d.paused))
	d.Update(d.cp)

	return fmt.Sprintf("paused: %t", d.paused)
}

// lie returns a false claim of a condition; empty if there is none.
func (d *disaster) lie() string {
	up := 0

	for i := range d.nodes {
		if !d.down[i] && !d.cut[i] {
			up++
		}
	}

	blind := d.unreadable
	quorum, all := up >= 2, up == len(d.nodes)

	for kind, is := range map[string]bool{
		v1alpha1.ConditionReachable: all, v1alpha1.ConditionEtcdHealthy: all, v1alpha1.ConditionAvailable: quorum,
		v1alpha1.ConditionReady: all && !d.refused, v1alpha1.ConditionUpToDate: !d.refused,
	} {
		c := meta.FindStatusCondition(d.cp.Status.Conditions, kind)

		switch {
		case c.Status == metav1.ConditionTrue && (!is || blind):
			return kind + " is claimed"
		case c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonQuorumLost && quorum:
			return kind + " claims that quorum is lost"
		case slices.Contains([]string{v1alpha1.ConditionReachable, v1alpha1.ConditionAvailable}, kind) && !blind &&
			(is != (c.Status == metav1.ConditionTrue) || c.Status == metav1.ConditionUnknown):
			return kind + " is not told"
		case kind == v1alpha1.ConditionReachable && blind && c.Status != metav1.ConditionUnknown:
			return kind + " is claimed by nobody who can know"
		}
	}

	if !meta.IsStatusConditionTrue(d.cp.Status.Conditions, v1alpha1.ConditionBootstrapped) {
		return "what happened is denied"
	}

	return ""
}
