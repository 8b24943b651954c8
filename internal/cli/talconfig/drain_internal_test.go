package talconfig

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	model "github.com/talos-operator/talos-operator/internal/talconfig"
	"github.com/talos-operator/talos-operator/internal/workload"
)

// TestJudge: only pods that have left, or a user who says so, end a drain without an error.
func TestJudge(t *testing.T) {
	t.Parallel()

	const early, late, over = time.Minute, 5 * time.Minute, 15 * time.Minute

	pods, unclear := []string{"a/b"}, &workload.NodeUnclearError{Why: "there is no Node"}

	for name, c := range map[string]struct {
		on   v1alpha1.DrainTimeout
		left []string
		err  error
		took time.Duration
		done bool
		want string
	}{
		"drained":                  {on: v1alpha1.DrainHold, took: over, done: true},
		"in time":                  {on: v1alpha1.DrainHold, left: pods, took: early},
		"in time, skip":            {on: v1alpha1.DrainSkip, left: pods, took: early},
		"in time, unclear":         {on: v1alpha1.DrainSkip, err: unclear, took: early},
		"in time, no API":          {on: v1alpha1.DrainHold, err: errors.ErrUnsupported, took: early},
		"hold":                     {on: v1alpha1.DrainHold, left: pods, took: late, want: "because of a/b; move these pods"},
		"hold, unclear":            {on: v1alpha1.DrainHold, err: unclear, took: late, want: "there is no Node; let its kubelet register"},
		"skip":                     {on: v1alpha1.DrainSkip, left: pods, took: late, done: true},
		"skip, unclear":            {on: v1alpha1.DrainSkip, err: unclear, took: late, done: true},
		"skip, no API":             {on: v1alpha1.DrainSkip, err: errors.ErrUnsupported, took: late, want: "unsupported operation"},
		"force":                    {on: v1alpha1.DrainForce, left: pods, took: late},
		"force, no API":            {on: v1alpha1.DrainForce, err: errors.ErrUnsupported, took: late},
		"force, unclear":           {on: v1alpha1.DrainForce, err: unclear, took: late, want: "there is no Node; let its kubelet register"},
		"force, pods that stay":    {on: v1alpha1.DrainForce, left: pods, took: over, want: "have not ended: a/b"},
		"force, no API until then": {on: v1alpha1.DrainForce, err: errors.ErrUnsupported, took: over, want: "unsupported operation"},
	} {
		dr := &drainer{timeout: late, onTimeout: c.on}

		done, err := dr.judge(c.left, c.err, c.took, 10*time.Minute)
		if done != c.done || (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %t, %v", name, done, err)
		}

		if forced := c.on == v1alpha1.DrainForce && c.took >= late; dr.isForced(c.took) != forced {
			t.Errorf("%s: pods are deleted: %t", name, !forced)
		}
	}
}

// kubernetesOf serves one Node.
func kubernetesOf(t *testing.T, n *corev1.Node) *drive {
	t.Helper()

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")

		if r.URL.Path == "/api/v1/nodes/"+n.Name {
			_ = json.NewEncoder(w).Encode(n)
		}
	}))
	t.Cleanup(server.Close)

	return &drive{drain: &drainer{}, api: kubernetesAPI{
		open: func(ctx context.Context, _ []string) (*workload.Cluster, error) {
			return workload.Open(ctx, &rest.Config{Host: server.URL})
		},
	}}
}

func nodeOf(boot string, ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: "w-1"},
		Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{BootID: boot},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}},
		},
	}
}

// TestRegistered: a node that was drained is done once its kubelet has reported it ready since the reboot.
func TestRegistered(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		node            *corev1.Node
		drained, exists bool
		want            bool
	}{
		"ready":                     {nodeOf("new", corev1.ConditionTrue), true, true, true},
		"ready before the reboot":   {nodeOf("old", corev1.ConditionTrue), true, true, false},
		"not ready":                 {nodeOf("new", corev1.ConditionFalse), true, true, false},
		"not drained":               {nodeOf("old", corev1.ConditionFalse), false, true, true},
		"without a Node before too": {nodeOf("old", corev1.ConditionFalse), true, false, true},
	} {
		d := kubernetesOf(t, c.node)
		target := &target{
			drained: c.drained, ref: workload.NodeRef{Name: "w-1", BootID: "old"}, status: workload.NodeStatus{Exists: c.exists},
		}

		if err := d.registered(t.Context(), target, "new"); (err == nil) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAnotherCluster: the Nodes of a kubeconfig have to be those of the machines.
func TestAnotherCluster(t *testing.T) {
	t.Parallel()

	for boot, given := range map[string]bool{"boot": true, "other": true, "another": false} {
		d := kubernetesOf(t, nodeOf(boot, corev1.ConditionTrue))
		d.api.isGiven = given
		d.nodes = []*target{{
			Machine: &model.Machine{Node: model.Node{Hostname: "w-1"}}, isSelected: true, reboots: true, ref: workload.NodeRef{Name: "w-1", BootID: "boot"},
		}}

		err := d.lookUp(t.Context())
		if wrong := boot == "other"; (err != nil) != wrong || wrong && !strings.Contains(err.Error(), "check --kubeconfig") {
			t.Errorf("a Node of boot %s: %v", boot, err)
		}
	}
}
