package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	jsonpatch "github.com/evanphx/json-patch"
	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// ModelNodes are the Node objects of one modelled cluster, its ConfigMaps and its workloads.
type ModelNodes struct {
	mu      sync.Mutex
	rev     int
	nodes   map[string]*modelNode
	configs map[types.NamespacedName]*corev1.ConfigMap
	work    modelWork
}

// modelNode is a Node object and whether its kubelet is heard of.
type modelNode struct {
	node    *corev1.Node
	alive   func() bool
	kubelet *Kubelet
}

// Register makes the Node object of a kubelet what its machine is. It is ready while alive says so.
func (m *ModelNodes) Register(o KubeletOptions, alive func() bool) {
	m.mu.Lock()
	defer m.mu.Unlock()

	if m.nodes == nil {
		m.nodes = map[string]*modelNode{}
	}

	now := metav1.NewTime(time.Now().Truncate(time.Second))

	n := m.nodes[o.NodeName]
	if n == nil {
		n = &modelNode{node: &corev1.Node{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
			ObjectMeta: metav1.ObjectMeta{Name: o.NodeName, UID: types.UID(uuid.NewString()), CreationTimestamp: now},
		}}
		m.nodes[o.NodeName] = n
	}

	k := &Kubelet{opts: o}
	k.describe(n.node, o.Config)
	k.postStatus(n.node, o.Config, now)

	n.alive, n.kubelet = alive, k
	m.touch(n.node)
	m.settle(time.Now())
}

// Delete removes a Node object.
func (m *ModelNodes) Delete(name string) (*corev1.Node, error) {
	m.mu.Lock()
	defer m.mu.Unlock()

	n := m.nodes[name]
	if n == nil {
		return nil, noNode(name)
	}

	delete(m.nodes, name)

	return n.node, nil
}

func (m *ModelNodes) get(name string) (*corev1.Node, error) {
	m.mu.Lock()
	defer m.mu.Unlock()

	n := m.nodes[name]
	if n == nil {
		return nil, noNode(name)
	}

	return n.show(), nil
}

// pod returns the mirror of a static pod, as the kubelet of its node would post it.
func (m *ModelNodes) pod(ctx context.Context, name string) (*corev1.Pod, error) {
	m.mu.Lock()
	defer m.mu.Unlock()

	for _, n := range m.nodes {
		k := n.kubelet
		if !k.opts.ControlPlane {
			continue
		}

		for _, static := range staticPods(k.opts.Config) {
			if static.name+"-"+k.opts.NodeName != name {
				continue
			}

			pod := k.mirrorPod(n.node, static.name, static.image)
			pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
			up := k.opts.APIServerReady == nil || k.opts.APIServerReady(ctx) == nil
			k.postPodStatus(pod, n.alive() && up && k.runs(static.image))

			return pod, nil
		}
	}

	return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
}

func (m *ModelNodes) list() *corev1.NodeList {
	m.mu.Lock()
	defer m.mu.Unlock()

	list := &corev1.NodeList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"},
		ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(m.rev)},
	}

	for _, name := range slices.Sorted(maps.Keys(m.nodes)) {
		list.Items = append(list.Items, *m.nodes[name].show())
	}

	return list
}

func (m *ModelNodes) patch(name string, kind types.PatchType, patch []byte) (*corev1.Node, error) {
	m.mu.Lock()
	defer m.mu.Unlock()

	n := m.nodes[name]
	if n == nil {
		return nil, noNode(name)
	}

	before, err := json.Marshal(n.node)
	if err != nil {
		return nil, fmt.Errorf("encoding the node: %w", err)
	}

	after, err := applyPatch(before, kind, patch)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}

	next := &corev1.Node{}
	if err := json.Unmarshal(after, next); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}

	if next.ResourceVersion != "" && next.ResourceVersion != n.node.ResourceVersion {
		return nil, apierrors.NewConflict(corev1.Resource("nodes"), name, errChanged)
	}

	n.node = next
	m.touch(next)
	m.settle(time.Now())

	return n.show(), nil
}

var errChanged = errors.New("the object has been modified; please apply your changes to the latest version and try " +
	"again")

func applyPatch(doc []byte, kind types.PatchType, patch []byte) ([]byte, error) {
	if kind == types.StrategicMergePatchType {
		return strategicpatch.StrategicMergePatch(doc, patch, corev1.Node{})
	}

	return jsonpatch.MergePatch(doc, patch)
}

// touch gives an object its next resource version.
func (m *ModelNodes) touch(n *corev1.Node) {
	m.rev++
	n.ResourceVersion = strconv.Itoa(m.rev)
}

// show is the object as the cluster sees it: a kubelet that is not heard of makes its node Unknown.
func (n *modelNode) show() *corev1.Node {
	out := n.node.DeepCopy()
	if n.alive() {
		return out
	}

	for i := range out.Status.Conditions {
		c := &out.Status.Conditions[i]
		c.Status, c.Reason, c.Message = corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status."
	}

	return out
}

func noNode(name string) error { return apierrors.NewNotFound(corev1.Resource("nodes"), name) }
