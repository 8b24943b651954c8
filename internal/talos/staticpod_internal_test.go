package talos

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// TestJudge: what a container waits for, or how it ended, is told with the kubelet's error, unless
// that may have the output or the command line of a program in it. A pod that may only need
// more time is told apart, and one that is ready or has ended with success has no problem.
func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		status  string
		problem string
		starts  bool
	}{
		"ready":     {"{phase: Running, conditions: [{type: Ready, status: 'True'}]}", "", false},
		"succeeded": {"{phase: Succeeded, conditions: [{type: Ready, status: 'False'}]}", "", false},
		"no image": {
			"{phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: ImagePullBackOff, message: Back-off}}}]}",
			"container c: ImagePullBackOff: Back-off", false,
		},
		"crashes": {
			"{phase: Running, containerStatuses: [{name: c, state: {waiting: {reason: CrashLoopBackOff, message: back-off 10s}}, " +
				"lastState: {terminated: {exitCode: 137, reason: OOMKilled, message: hush-hush}}}]}",
			"container c: CrashLoopBackOff; it ended with exit code 137 (OOMKilled)", false,
		},
		"init container ends": {
			"{phase: Pending, initContainerStatuses: [{name: d, state: {terminated: {exitCode: 2, reason: Error}}}], " +
				"containerStatuses: [{name: c, state: {waiting: {reason: PodInitializing}}}]}",
			"container d: it ended with exit code 2", false,
		},
		"creates": {
			"{phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: ContainerCreating}}}], " +
				"conditions: [{type: Ready, status: 'False', message: 'containers with unready status: [c]'}]}",
			"not ready: containers with unready status: [c]", true,
		},
		"refused":   {"{phase: Failed, reason: NodePorts, message: no free ports}", "NodePorts: no free ports", false},
		"failed":    {"{phase: Failed}", "Failed", false},
		"no status": {"{}", "not ready", true},
		"secret": {
			"{containerStatuses: [{name: c, state: {waiting: {reason: ErrImagePull, message: 'exec: -----BEGIN KEY-----x'}}}]}",
			"container c: ErrImagePull: exec: " + hidden, false,
		},
		"hook": {
			"{containerStatuses: [{name: c, state: {waiting: {reason: PostStartHookError, message: 'Exec lifecycle hook " +
				"([sh -c hush-hush]) failed, message: hush-hush'}}}]}",
			"container c: PostStartHookError", false,
		},
		"does not start": {
			"{containerStatuses: [{name: c, state: {waiting: {reason: RunContainerError, message: hush-hush}}}]}",
			"container c: RunContainerError", false,
		},
		"long": {
			"{phase: Failed, reason: A, message: " + strings.Repeat("b ", 400) + "}", "A: " + strings.Repeat("b ", 148) + "…", false,
		},
	} {
		var st corev1.PodStatus
		if err := yaml.UnmarshalStrict([]byte(c.status), &st); err != nil {
			t.Fatalf("%s: %v", name, err)
		}

		if got := judge(&st); got.Problem != c.problem || got.Starting != c.starts {
			t.Errorf("%s: %+v, want %q", name, got, c.problem)
		}
	}
}
