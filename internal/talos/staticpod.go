package talos

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/talos-operator/talos-operator/internal/text"
)

// StaticPod is the state of a static pod, as the kubelet of its node reports it.
type StaticPod struct {
	// Problem says why the pod does not run; empty if it is ready, or has ended with success.
	Problem string
	// Starting: nothing is known to be wrong, the pod may only need more time.
	Starting bool
}

// StaticPodLag is how long after a change the states of static pods are not believed: the kubelet reads its static pods
// every 20 seconds, and Talos their states every 15. Until then, they may be those of the pods before.
const StaticPodLag = time.Minute

// longestProblem is the maximum length of a text of a kubelet.
const longestProblem = 300

// StaticPods are what the kubelet of a node reports.
type StaticPods struct {
	// Node is the name that the kubelet registers with, which is not always the host name; empty while it has none.
	Node string
	// Pods by namespace/name, where name ends with that of the node.
	Pods map[string]StaticPod
}

// Of finds a pod of the node by its namespace/name without that of the node.
func (p StaticPods) Of(name string) (pod StaticPod, known bool) {
	if p.Node == "" {
		return StaticPod{}, false
	}

	pod, known = p.Pods[name+"-"+strings.ToLower(p.Node)]

	return pod, known
}

// StaticPods returns the static pods of a node. Only control-plane nodes report them: on workers, there are none.
func (n *Node) StaticPods(ctx context.Context) (StaticPods, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	out := StaticPods{Pods: map[string]StaticPod{}}

	list, err := safe.ReaderListAll[*k8s.StaticPodStatus](ctx, n.c.COSI)
	if err != nil {
		if isAbsent(err) {
			return out, nil
		}

		return out, classify("its static pods", n.name(), err)
	}

	for s := range list.All() {
		var st corev1.PodStatus
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(s.TypedSpec().PodStatus, &st); err != nil {
			out.Pods[s.Metadata().ID()] = StaticPod{Problem: "its status cannot be read"}

			continue
		}

		out.Pods[s.Metadata().ID()] = judge(&st)
	}

	r := &reader{c: n.c}
	out.Node = text.Name(kubeletName(ctx, r))

	return out, classify("its static pods", n.name(), r.err)
}

// staticNames returns the names that the kubelet gives to the static pods of the node, as namespace/name, from the
// manifests that Talos serves to it. Control-plane nodes and workers have them. Without a manifest, a pod is not
// static, whatever its name looks like.
func (n *Node) staticNames(ctx context.Context) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	list, err := safe.ReaderListAll[*k8s.StaticPod](ctx, n.c.COSI)
	if err != nil {
		if isAbsent(err) {
			return nil, nil
		}

		return nil, classify("its static pods", n.name(), err)
	}

	r := &reader{c: n.c}

	node := kubeletName(ctx, r)
	if r.err != nil {
		return nil, classify("the name of its kubelet", n.name(), r.err)
	}

	out := map[string]bool{}

	for pod := range list.All() {
		meta, _ := pod.TypedSpec().Pod["metadata"].(map[string]any)
		namespace, _ := meta["namespace"].(string)

		if name, _ := meta["name"].(string); name != "" && node != "" {
			out[text.Name(cmp.Or(namespace, corev1.NamespaceDefault)+"/"+name+"-"+strings.ToLower(node))] = true
		}
	}

	return out, nil
}

// judge reads the status of a pod as kubectl shows it: what a container waits for, or how it ended, comes before the
// condition that only counts the containers.
func judge(st *corev1.PodStatus) StaticPod {
	if st.Phase == corev1.PodSucceeded || isReady(st) {
		return StaticPod{}
	}

	for _, c := range slices.Concat(st.InitContainerStatuses, st.ContainerStatuses) {
		if why := failureOf(&c); why != "" {
			return StaticPod{Problem: problem("container "+c.Name, why)}
		}
	}

	if st.Phase == corev1.PodFailed || st.Reason != "" {
		return StaticPod{Problem: problem(cmp.Or(st.Reason, string(st.Phase)), st.Message)}
	}

	for _, c := range st.Conditions {
		if c.Type == corev1.PodReady && c.Message != "" {
			return StaticPod{Problem: problem("not ready", c.Message), Starting: true}
		}
	}

	return StaticPod{Problem: "not ready", Starting: true}
}

func isReady(st *corev1.PodStatus) bool {
	return slices.ContainsFunc(st.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// quoted are the reasons whose messages are shown. Those of others may have command lines and what programs wrote in
// them, as that of a failed hook, or change with each attempt, as that of a container that is restarted.
var quoted = []string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError"}

// failureOf says why a container does not run; empty if it runs, or is about to.
func failureOf(c *corev1.ContainerStatus) string {
	switch w, ended := c.State.Waiting, c.State.Terminated; {
	case w != nil && w.Reason != "" && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing":
		why := w.Reason
		if slices.Contains(quoted, w.Reason) {
			why = problem(w.Reason, w.Message)
		}

		if last := c.LastTerminationState.Terminated; last != nil {
			why += "; it ended with " + endOf(last)
		}

		return why
	case ended != nil && ended.ExitCode != 0:
		return "it ended with " + endOf(ended)
	}

	return ""
}

// endOf leaves the message out: it is what a program wrote, which may be anything.
func endOf(t *corev1.ContainerStateTerminated) string {
	if t.Reason == "" || t.Reason == "Error" {
		return fmt.Sprintf("exit code %d", t.ExitCode)
	}

	return fmt.Sprintf("exit code %d (%s)", t.ExitCode, t.Reason)
}

func problem(head, words string) string {
	if words != "" {
		head += ": " + words
	}

	return clip(text.Plain(redactText(head)), longestProblem)
}
