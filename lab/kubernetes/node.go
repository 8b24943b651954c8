package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

const (
	// leaseSeconds is how long a lease promises to live; real kubelets promise the same.
	leaseSeconds = 40
	// statusPeriod is how often an unchanged status is posted.
	statusPeriod = 5 * time.Minute

	defaultCPUs      = 2
	defaultMemoryMiB = 2048
	podCapacity      = 110
)

// syncNode makes the Node object what the machine is, and creates it when there is none.
func (k *Kubelet) syncNode(ctx context.Context, client clientset.Interface, cfg config.Config) (*corev1.Node, error) {
	nodes := client.CoreV1().Nodes()

	node, err := nodes.Get(ctx, k.opts.NodeName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: k.opts.NodeName}}
		k.describe(node, cfg)
		node, err = nodes.Create(ctx, node, metav1.CreateOptions{})
	}

	if err != nil {
		return nil, fmt.Errorf("registering the node: %w", err)
	}

	wanted := node.DeepCopy()
	k.describe(wanted, cfg)

	if !equality.Semantic.DeepEqual(node.ObjectMeta, wanted.ObjectMeta) ||
		!equality.Semantic.DeepEqual(node.Spec, wanted.Spec) {
		if node, err = nodes.Update(ctx, wanted, metav1.UpdateOptions{}); err != nil {
			return nil, fmt.Errorf("updating the node: %w", err)
		}
	}

	wanted = node.DeepCopy()
	k.postStatus(wanted, cfg, metav1.Now())

	if equality.Semantic.DeepEqual(node.Status, wanted.Status) {
		return node, nil
	}

	if node, err = nodes.UpdateStatus(ctx, wanted, metav1.UpdateOptions{}); err != nil {
		return nil, fmt.Errorf("updating the node status: %w", err)
	}

	return node, nil
}

// describe sets labels, annotations and taints. What an earlier config asked for and this one does not is removed;
// what other people added stays.
func (k *Kubelet) describe(node *corev1.Node, cfg config.Config) {
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}

	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}

	labels := maps.Clone(map[string]string(cfg.Machine().NodeLabels()))
	taints := maps.Clone(map[string]string(cfg.Machine().NodeTaints()))

	if k.opts.ControlPlane {
		if labels == nil {
			labels = map[string]string{}
		}

		labels[constants.LabelNodeRoleControlPlane] = ""

		if taints == nil {
			taints = map[string]string{}
		}

		if !cfg.Cluster().ScheduleOnControlPlanes() {
			taints[constants.LabelNodeRoleControlPlane] = string(corev1.TaintEffectNoSchedule)
		}
	}

	owned := node.Annotations
	own(owned, constants.AnnotationOwnedLabels, node.Labels, labels)
	own(owned, constants.AnnotationOwnedAnnotations, node.Annotations, cfg.Machine().NodeAnnotations())
	ownTaints(owned, node, taints)

	for _, prefix := range []string{"kubernetes.io", "beta.kubernetes.io"} {
		node.Labels[prefix+"/os"] = "linux"
		node.Labels[prefix+"/arch"] = runtime.GOARCH
	}

	node.Labels[corev1.LabelHostname] = k.opts.NodeName
}

// own sets the desired entries, removes those that this node set earlier, and remembers what it has set.
func own(annotations map[string]string, key string, have, want map[string]string) {
	for _, name := range remembered(annotations, key) {
		delete(have, name)
	}

	maps.Copy(have, want)
	remember(annotations, key, slices.Sorted(maps.Keys(want)))
}

// ownTaints does the same for taints. A taint in a config reads effect or value:effect.
func ownTaints(annotations map[string]string, node *corev1.Node, want map[string]string) {
	before := remembered(annotations, constants.AnnotationOwnedTaints)
	taints := slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t corev1.Taint) bool {
		_, wanted := want[t.Key]

		return wanted || slices.Contains(before, t.Key)
	})

	names := slices.Sorted(maps.Keys(want))

	for _, name := range names {
		value, effect, found := strings.Cut(want[name], ":")
		if !found {
			value, effect = "", value
		}

		taints = append(taints, corev1.Taint{Key: name, Value: value, Effect: corev1.TaintEffect(effect)})
	}

	// The order is fixed, or two passes would undo each other.
	slices.SortFunc(taints, func(a, b corev1.Taint) int {
		return strings.Compare(a.Key+string(a.Effect), b.Key+string(b.Effect))
	})

	sorted := slices.Clone(node.Spec.Taints)
	slices.SortFunc(sorted, func(a, b corev1.Taint) int {
		return strings.Compare(a.Key+string(a.Effect), b.Key+string(b.Effect))
	})

	if !equality.Semantic.DeepEqual(sorted, taints) {
		node.Spec.Taints = taints
	}

	remember(annotations, constants.AnnotationOwnedTaints, names)
}

// remembered reads a list of names from an annotation. Rubbish counts as nothing: a person may have edited it.
func remembered(annotations map[string]string, key string) []string {
	var names []string
	if json.Unmarshal([]byte(annotations[key]), &names) != nil {
		return nil
	}

	return names
}

func remember(annotations map[string]string, key string, names []string) {
	if len(names) == 0 {
		delete(annotations, key)

		return
	}

	// A list of strings has a JSON form.
	out, _ := json.Marshal(names)
	annotations[key] = string(out)
}

// postStatus writes what the machine is and that it is healthy.
func (k *Kubelet) postStatus(node *corev1.Node, cfg config.Config, now metav1.Time) {
	cpus, memory := k.opts.CPUs, k.opts.MemoryMiB
	if cpus == 0 {
		cpus = defaultCPUs
	}

	if memory == 0 {
		memory = defaultMemoryMiB
	}

	s := &node.Status
	s.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: k.opts.Address},
		{Type: corev1.NodeHostName, Address: k.opts.NodeName},
	}
	s.Capacity = corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(cpus), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(int64(memory)<<20, resource.BinarySI),
		corev1.ResourcePods:   *resource.NewQuantity(podCapacity, resource.DecimalSI),
	}
	s.Allocatable = s.Capacity
	s.DaemonEndpoints.KubeletEndpoint.Port = constants.KubeletPort
	s.NodeInfo = corev1.NodeSystemInfo{
		MachineID: strings.ReplaceAll(k.opts.MachineUUID, "-", ""), SystemUUID: k.opts.MachineUUID, BootID: k.opts.BootID,
		KernelVersion: constants.DefaultKernelVersion, OSImage: "Talos (" + k.opts.TalosVersion + ")",
		ContainerRuntimeVersion: "containerd://" + constants.DefaultContainerdVersion,
		KubeletVersion:          k.version(cfg), OperatingSystem: "linux", Architecture: runtime.GOARCH,
	}

	for _, c := range []corev1.NodeCondition{
		{
			Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory",
			Message: "kubelet has sufficient memory available",
		},
		{
			Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure",
			Message: "kubelet has no disk pressure",
		},
		{
			Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID",
			Message: "kubelet has sufficient PID available",
		},
		{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
			Message: "kubelet is posting ready status",
		},
	} {
		setNodeCondition(s, c, now)
	}
}

// version is the tag of the kubelet image in the config.
func (k *Kubelet) version(cfg config.Config) string {
	if v := versionOf(cfg.Machine().Kubelet().Image()); strings.HasPrefix(v, "v") {
		return v
	}

	return k.opts.Version
}

// setNodeCondition replaces the condition of the same type. An unchanged one keeps its times until it is due again,
// so that a node at rest writes nothing but its lease.
func setNodeCondition(s *corev1.NodeStatus, c corev1.NodeCondition, now metav1.Time) {
	c.LastHeartbeatTime, c.LastTransitionTime = now, now

	i := slices.IndexFunc(s.Conditions, func(have corev1.NodeCondition) bool { return have.Type == c.Type })
	if i < 0 {
		s.Conditions = append(s.Conditions, c)

		return
	}

	have := s.Conditions[i]
	if have.Status == c.Status {
		c.LastTransitionTime = have.LastTransitionTime
	}

	if have.Status == c.Status && have.Reason == c.Reason && now.Sub(have.LastHeartbeatTime.Time) < statusPeriod {
		return
	}

	s.Conditions[i] = c
}

// renewLease is the heartbeat.
func (k *Kubelet) renewLease(ctx context.Context, client clientset.Interface, node *corev1.Node) error {
	leases := client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NowMicro()

	lease, err := leases.Get(ctx, k.opts.NodeName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{
				Name: k.opts.NodeName, Namespace: corev1.NamespaceNodeLease,
				OwnerReferences: []metav1.OwnerReference{nodeReference(node)},
			},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: &k.opts.NodeName, LeaseDurationSeconds: ptr.To[int32](leaseSeconds), RenewTime: &now,
			},
		}, metav1.CreateOptions{})
	} else if err == nil {
		// A Node object that was deleted and came back needs a lease that follows the new one.
		lease.OwnerReferences = []metav1.OwnerReference{nodeReference(node)}
		lease.Spec.RenewTime = &now
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}

	if err != nil {
		return fmt.Errorf("renewing the node's lease: %w", err)
	}

	return nil
}

func nodeReference(node *corev1.Node) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}
}
