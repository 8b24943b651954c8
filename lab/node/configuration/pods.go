package configuration

import (
	"fmt"
	"maps"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/config"

	"github.com/talos-operator/talos-operator/lab/node/image"
)

// OwnPods returns the static pods of a machine config by their IDs, and their statuses by namespace/name. What becomes
// of a pod is decided by the images of its containers.
func OwnPods(cfg config.Provider, node string) (pods, statuses map[string]map[string]any) {
	pods, statuses = map[string]map[string]any{}, map[string]map[string]any{}

	for _, pod := range cfg.Machine().Pods() {
		namespace, name := nameOf(pod)
		pods[namespace+"-"+name] = pod
		statuses[namespace+"/"+name+"-"+node] = statusOf(pod, namespace+"/"+name+"-"+node)
	}

	return pods, statuses
}

// FailedPods are the static pods of a machine config that do not run, as namespace/name, sorted.
func FailedPods(cfg config.Provider, node string) []string {
	if cfg == nil || cfg.Machine() == nil {
		return nil
	}

	_, statuses := OwnPods(cfg, node)

	return slices.DeleteFunc(slices.Sorted(maps.Keys(statuses)), func(pod string) bool {
		return isReady(statuses[pod])
	})
}

func isReady(status map[string]any) bool {
	conditions, _ := status["conditions"].([]any)

	return slices.ContainsFunc(conditions, func(one any) bool {
		c, _ := one.(map[string]any)

		return c["type"] == "Ready" && c["status"] == "True"
	})
}

func nameOf(pod map[string]any) (namespace, name string) {
	meta, _ := pod["metadata"].(map[string]any)
	name, _ = meta["name"].(string)

	if namespace, _ = meta["namespace"].(string); namespace == "" {
		namespace = "default"
	}

	return namespace, name
}

// statusOf is what the kubelet of a node says about a pod.
func statusOf(pod map[string]any, name string) map[string]any {
	spec, _ := pod["spec"].(map[string]any)
	list, _ := spec["containers"].([]any)

	containers, phase, ready := []any{}, "Running", "True"

	for _, one := range list {
		container, _ := one.(map[string]any)
		containerName, _ := container["name"].(string)
		ref, _ := container["image"].(string)

		state := map[string]any{"running": map[string]any{}}
		if reason, message := failureOf(ref, containerName, name); reason != "" {
			state = map[string]any{"waiting": map[string]any{"reason": reason, "message": message}}
			ready = "False"

			if reason == backOffPull {
				phase = "Pending"
			}
		}

		containers = append(containers, map[string]any{
			"name": containerName, "image": ref, "ready": state["waiting"] == nil, "state": state,
		})
	}

	return map[string]any{
		"phase": phase, "containerStatuses": containers,
		"conditions": []any{map[string]any{"type": "Ready", "status": ready}},
	}
}

const backOffPull = "ImagePullBackOff"

// failureOf is what the kubelet says about a container that does not run; empty when it does.
func failureOf(ref, container, pod string) (reason, message string) {
	if err := image.CheckPull(ref); err != nil {
		return backOffPull, fmt.Sprintf("Back-off pulling image %q: ErrImagePull: %v", ref, err)
	}

	if image.CheckRun(ref) != nil {
		return "CrashLoopBackOff", fmt.Sprintf("back-off 10s restarting failed container=%s pod=%s", container, pod)
	}

	return "", ""
}
