package chaos

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

const (
	workersName = clusterName + "-workers"
	// remedyTimeout is the shortest that the API allows.
	remedyTimeout = 10 * time.Second
)

// apply writes the desired state, as a user applies manifests: the objects are made, or their specs changed.
func (h *history) apply() {
	if h.absent {
		return
	}

	for _, name := range h.machines {
		h.oracle.Yield(short(name), h.surrendered[name] || !slices.Contains(h.want.names(), name))
	}

	cp := &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: h.ns, Name: clusterName}}
	h.put(cp, func() { h.fillControlPlane(cp) })

	workers := &v1alpha1.TalosWorker{ObjectMeta: metav1.ObjectMeta{Namespace: h.ns, Name: workersName}}
	h.put(workers, func() { h.fillWorkers(workers) })
}

func (h *history) fillControlPlane(cp *v1alpha1.TalosControlPlane) {
	s := &cp.Spec
	s.TalosVersion, s.KubernetesVersion = releases[h.release].talos, releases[h.release].kubernetes
	s.Upgrade = &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic, Kubernetes: v1alpha1.UpgradeAutomatic}
	s.Endpoint = "https://" + clusterName + ".example.org:6443"
	s.Machines, s.Spares = h.entries(h.want.Members), h.entries(h.want.Spares)
	s.ClusterConfigPatches = nil
	s.Rollout = h.rollout()
	s.Remediation = h.remediation()
	s.NodeLabels = nil

	if h.patches > 0 {
		s.ClusterConfigPatches = []string{fmt.Sprintf("machine: {env: {CHAOS: %q}}", fmt.Sprint(h.patches))}
	}

	if h.label > 0 {
		s.NodeLabels = map[string]string{"chaos": fmt.Sprint(h.label)}
	}
}

func (h *history) fillWorkers(w *v1alpha1.TalosWorker) {
	w.Spec.ControlPlaneRef.Name = clusterName
	w.Spec.Machines = h.entries(h.want.Workers)
	w.Spec.Remediation = h.remediation()
}

func (h *history) remediation() *v1alpha1.RemediationOptions {
	if !h.remedy {
		return nil
	}

	return &v1alpha1.RemediationOptions{Timeout: metav1.Duration{Duration: remedyTimeout}}
}

func (h *history) entries(names []string) []v1alpha1.MachineEntry {
	var out []v1alpha1.MachineEntry

	for _, name := range names {
		address := h.addresses[name]
		if address == "" {
			address = h.node(name).Address()
		}

		out = append(out, v1alpha1.MachineEntry{Name: short(name), Address: address})
	}

	return out
}

// put makes an object, or changes the one that is there.
func (h *history) put(o client.Object, fill func()) {
	err := retry.OnError(retry.DefaultBackoff, func(error) bool { return h.ctx.Err() == nil }, func() error {
		err := h.client.Get(h.ctx, client.ObjectKeyFromObject(o), o)

		switch {
		case apierrors.IsNotFound(err):
			o.SetResourceVersion("")
			o.SetUID("")
			fill()

			return h.client.Create(h.ctx, o)
		case err != nil:
			return err
		}

		fill()

		return h.client.Update(h.ctx, o)
	})
	if err != nil {
		h.tell("applying %s: %v", o.GetName(), err)
	}
}

// change changes an object that is there.
func (h *history) change(o client.Object, name string, do func()) bool {
	err := retry.OnError(retry.DefaultBackoff, apierrors.IsConflict, func() error {
		if err := h.client.Get(h.ctx, client.ObjectKey{Namespace: h.ns, Name: name}, o); err != nil {
			return err
		}

		do()

		return h.client.Update(h.ctx, o)
	})

	return err == nil
}

// annotate sets an annotation, or takes it off where the value is empty.
func (h *history) annotate(o client.Object, name, key, value string) bool {
	return h.change(o, name, func() {
		all := o.GetAnnotations()
		if all == nil {
			all = map[string]string{}
		}

		if all[key] = value; value == "" {
			delete(all, key)
		}

		o.SetAnnotations(all)
	})
}

// controlPlane reads the control plane; nil where there is none.
func (h *history) controlPlane() *v1alpha1.TalosControlPlane {
	cp := &v1alpha1.TalosControlPlane{}
	if h.client.Get(h.ctx, client.ObjectKey{Namespace: h.ns, Name: clusterName}, cp) != nil {
		return nil
	}

	return cp
}

// workers reads the worker group; nil where there is none.
func (h *history) workers() *v1alpha1.TalosWorker {
	w := &v1alpha1.TalosWorker{}
	if h.client.Get(h.ctx, client.ObjectKey{Namespace: h.ns, Name: workersName}, w) != nil {
		return nil
	}

	return w
}

// talosMachines lists the TalosMachines.
func (h *history) talosMachines() []v1alpha1.TalosMachine {
	list := &v1alpha1.TalosMachineList{}
	if err := h.client.List(h.ctx, list, client.InNamespace(h.ns)); err != nil {
		return nil
	}

	return list.Items
}

// remove deletes the objects and waits until they are gone; those that do not go are told of.
func (h *history) remove(ctx context.Context, bound time.Duration) string {
	for _, o := range []client.Object{
		&v1alpha1.TalosWorker{ObjectMeta: metav1.ObjectMeta{Namespace: h.ns, Name: workersName}},
		&v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: h.ns, Name: clusterName}},
	} {
		if err := client.IgnoreNotFound(h.client.Delete(ctx, o)); err != nil {
			h.tell("deleting %s: %v", o.GetName(), err)
		}
	}

	return h.await(bound, func() string {
		if h.controlPlane() != nil {
			return "the TalosControlPlane does not go: " + h.situation()
		}

		if left := h.talosMachines(); len(left) > 0 {
			return fmt.Sprintf("%d TalosMachines do not go: %s", len(left), h.situation())
		}

		return ""
	})
}

// secrets lists the Secrets of the history.
func (h *history) secrets() []corev1.Secret {
	list := &corev1.SecretList{}
	if err := h.client.List(h.ctx, list, client.InNamespace(h.ns)); err != nil {
		return nil
	}

	return list.Items
}
