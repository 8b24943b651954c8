package chaos

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/apid"
)

// loopback is where the operator's calls come from.
var loopback = netip.MustParseAddr("127.0.0.1")

func (h *history) hosts(names []string) []netip.Prefix {
	var out []netip.Prefix

	for _, name := range names {
		if addr, err := netip.ParseAddr(h.node(name).Address()); err == nil {
			out = append(out, apid.Hosts(addr)...)
		}
	}

	return out
}

// goneBound is how long a step waits for objects to go. They may go later, too.
const goneBound = 15 * time.Second

// deleteObjects deletes the objects and applies them again: the same, with another list, or with a list of other
// machines while those of the cluster are off.
func (h *history) deleteObjects(step Step) (string, func()) {
	if h.absent {
		return "", nil
	}

	h.absent = true
	if left := h.remove(h.ctx, goneBound); left != "" {
		h.tell("%s", left)
	}

	const variants = 3

	blank := h.blanks()

	switch n := len(h.want.Members); {
	case step.B%variants == 0 && len(blank) >= n:
		return h.listOthers(blank[:n])
	case step.B%variants == 1 && len(blank) > 0:
		i := int(step.A) % n
		old := h.want.Members[i]
		h.want.Members[i] = blank[0]

		return fmt.Sprintf("%s will be listed instead of %s", short(blank[0]), short(old)), h.bringBack
	default:
		return "the same list will be applied", h.bringBack
	}
}

func (h *history) bringBack() {
	h.await(goneBound, func() string {
		if h.controlPlane() != nil || h.workers() != nil {
			return "not gone"
		}

		return ""
	})

	h.absent = false
	h.apply()
}

// listOthers switches all members off and lists machines without a config instead: what the remembered machines have on
// their disks is unknown meanwhile.
func (h *history) listOthers(others []string) (string, func()) {
	right := h.want.clone()

	for _, name := range right.Members {
		h.hit(name)

		if err := h.stack.Lab.Kill(name); err != nil {
			h.tell("%v", err)
		}
	}

	h.want.Members = slices.Clone(others)
	h.bringBack()

	return fmt.Sprintf("%s are listed instead of %s, which are off", shorts(others), shorts(right.Members)), func() {
		h.want = right
		h.apply()

		for _, name := range right.Members {
			h.powerOn(name)
		}
	}
}

// copied is a backup of the objects of the history on the management plane.
type copied struct {
	at      time.Time
	want    lists
	patches int
	label   int
	release int
	secrets []corev1.Secret
	plane   v1alpha1.TalosControlPlaneStatus
	group   v1alpha1.TalosWorkerStatus
}

// takeCopy backs the objects up, as a backup tool of Kubernetes does.
func (h *history) takeCopy(Step) (string, func()) {
	cp, w := h.controlPlane(), h.workers()
	if cp == nil || w == nil || h.absent || cp.Status.SecretBundle == nil {
		return "", nil
	}

	c := &copied{
		at: time.Now(), want: h.want.clone(), patches: h.patches, label: h.label,
		release: h.release, plane: cp.Status, group: w.Status,
	}

	for _, s := range h.secrets() {
		if len(s.OwnerReferences) > 0 { // those are made anew, and go with their owner
			continue
		}

		c.secrets = append(c.secrets, corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, Labels: s.Labels, Annotations: s.Annotations},
			Type:       s.Type, Data: s.Data,
		})
	}

	h.copies = append(h.copies, c)

	return fmt.Sprintf("number %d, %d Secrets", len(h.copies), len(c.secrets)), nil
}

func (h *history) copyOf(step Step) (*copied, string) {
	if len(h.copies) == 0 {
		return nil, ""
	}

	i := int(step.A) % len(h.copies)
	c := h.copies[i]

	return c, fmt.Sprintf("copy %d, %s old", i+1, time.Since(c.at).Round(time.Second))
}

// restoreState puts an older state Secret back, while the operator runs or while it does not.
func (h *history) restoreState(step Step) (string, func()) {
	c, what := h.copyOf(step)
	if c == nil {
		return "", nil
	}

	offline := step.B%2 == 0 && h.operators[0].manager != nil
	if offline {
		h.operators[0].stop()
	}

	for i := range c.secrets {
		if s := c.secrets[i].DeepCopy(); s.Name == clusterName+"-state" {
			data := s.Data
			h.put(s, func() { s.Data = data })
		}
	}

	if offline {
		h.start(0)
	}

	return fmt.Sprintf("%s, operator stopped: %t", what, offline), nil
}

// restoreObjects restores the management plane of this cluster: everything is removed without a trace on the nodes, and
// made again from a copy, with the status or without it. What users requested since then comes back with it, or later.
func (h *history) restoreObjects(step Step) (string, func()) {
	c, what := h.copyOf(step)
	if c == nil || h.absent {
		return "", nil
	}

	for _, o := range h.operators {
		o.stop()
	}

	h.wipeObjects()

	for i := range c.secrets {
		s := c.secrets[i].DeepCopy()
		data := s.Data
		h.put(s, func() { s.Data = data })
	}

	latest, patches, label, release := h.want.clone(), h.patches, h.label, h.release
	h.want, h.patches, h.label, h.release = c.want.clone(), c.patches, c.label, c.release

	for _, name := range h.machines { // they may come back with what they were listed as then
		if slices.Contains(latest.names(), name) != slices.Contains(h.want.names(), name) {
			h.surrendered[name] = true
		}
	}

	h.apply()

	withStatus := step.B%2 == 0
	if withStatus {
		h.restoreStatus(c)
	}

	h.start(0)

	return fmt.Sprintf("%s, with status: %t", what, withStatus), func() {
		h.want, h.patches, h.label, h.release = latest, patches, label, max(release, h.release)
		h.apply()
	}
}

func (h *history) restoreStatus(c *copied) {
	if cp := h.controlPlane(); cp != nil {
		cp.Status = *c.plane.DeepCopy()
		if err := h.client.Status().Update(h.ctx, cp); err != nil {
			h.tell("%v", err)
		}
	}

	if w := h.workers(); w != nil {
		w.Status = *c.group.DeepCopy()
		if err := h.client.Status().Update(h.ctx, w); err != nil {
			h.tell("%v", err)
		}
	}
}

// wipeObjects removes all objects of the history, finalizers or not.
func (h *history) wipeObjects() {
	objects := []client.Object{}

	if cp := h.controlPlane(); cp != nil {
		objects = append(objects, cp)
	}

	if w := h.workers(); w != nil {
		objects = append(objects, w)
	}

	machines := h.talosMachines()
	for i := range machines {
		objects = append(objects, &machines[i])
	}

	secrets := h.secrets()
	for i := range secrets {
		objects = append(objects, &secrets[i])
	}

	ctx := context.WithoutCancel(h.ctx)

	for _, o := range objects {
		bare, ok := o.DeepCopyObject().(client.Object)
		if !ok {
			continue
		}

		bare.SetFinalizers(nil)

		if err := client.IgnoreNotFound(h.client.Patch(ctx, bare, client.MergeFrom(o))); err != nil {
			h.tell("%v", err)
		}

		if err := client.IgnoreNotFound(h.client.Delete(ctx, bare)); err != nil {
			h.tell("%v", err)
		}
	}
}
