package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"github.com/talos-operator/talos-operator/test/wait"
)

// ownPod is a patch with a static pod that runs an image.
func ownPod(image string) string {
	return "machine: {pods: [{apiVersion: v1, kind: Pod, metadata: {name: own, namespace: tools}, " +
		"spec: {priority: 7, containers: [{name: c, image: " + image + "}]}}]}"
}

// TestOwnStaticPods: a node shows the static pods of its config next to those of the control plane, and a control-plane
// node what the kubelet says about them. It is not ready while one of them does not run.
func TestOwnStaticPods(t *testing.T) {
	t.Parallel()

	f := newFleet(t, true)
	n := f.boot(1)
	c := f.found(n)[0]

	apply := func(image string) {
		t.Helper()

		if _, err := c.ApplyConfiguration(t.Context(), &machine.ApplyConfigurationRequest{
			Data: f.render(configmachine.TypeControlPlane, ownPod(image)), Mode: machine.ApplyConfigurationRequest_NO_REBOOT,
		}); err != nil {
			t.Fatal(err)
		}
	}

	shows := func(what string, ready bool, text string) {
		t.Helper()
		wait.For(t, what, func(ctx context.Context) error {
			pods, err := safe.StateListAll[*k8s.StaticPod](ctx, c.COSI)
			if err != nil {
				return err
			}

			statuses, err := safe.StateListAll[*k8s.StaticPodStatus](ctx, c.COSI)
			if err != nil {
				return err
			}

			have := map[string]string{}

			for s := range statuses.All() {
				raw, err := json.Marshal(s.TypedSpec().PodStatus)
				if err != nil {
					return err
				}

				have[s.Metadata().ID()] = string(raw)
			}

			st, err := safe.StateGetByID[*runtime.MachineStatus](ctx, c.COSI, runtime.MachineStatusID)
			if err != nil {
				return err
			}

			unmet := fmt.Sprint(st.TypedSpec().Status.UnmetConditions)
			if pods.Len() != 4 || len(have) != 4 || !strings.Contains(have["tools/own-"+n.Name()], text) ||
				st.TypedSpec().Status.Ready != ready || ready == strings.Contains(unmet, "tools/own-"+n.Name()+" not ready") {
				return fmt.Errorf("%d pods, statuses %v, %s, %s", pods.Len(), slices.Sorted(maps.Keys(have)), have["tools/own-"+n.Name()], unmet)
			}

			return nil
		})
	}

	apply("own:1-missing")
	shows("the image is missing", false, "ImagePullBackOff")
	apply("own:1-crashing")
	shows("the pod ends", false, "CrashLoopBackOff")
	apply("own:1")
	shows("the pod runs", true, `"status":"True"`)
}
