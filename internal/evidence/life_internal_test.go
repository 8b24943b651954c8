package evidence

import (
	"testing"

	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/internal/workload"
)

func TestReadyNode(t *testing.T) {
	t.Parallel()

	const its = "its Node is Ready"

	other := func(name string) string {
		return "the Node " + name + ", which has its system UUID or its boot ID, is Ready"
	}
	ref := workload.NodeRef{Name: "w-1", UUID: "ab-1", BootID: "boot"}
	ready := func(name, uuid, boot string) safety.ClusterNode {
		return safety.ClusterNode{Name: name, SystemUUID: uuid, BootID: boot, Ready: true}
	}
	silent := func(n safety.ClusterNode) safety.ClusterNode {
		n.Ready = false

		return n
	}

	tests := map[string]struct {
		ref   workload.NodeRef
		nodes []safety.ClusterNode
		want  string
	}{
		"no Node":                          {ref, nil, ""},
		"its own":                          {ref, []safety.ClusterNode{ready("w-1", "AB-1", "boot")}, its},
		"its own, which is silent":         {ref, []safety.ClusterNode{silent(ready("w-1", "ab-1", "boot"))}, ""},
		"of another machine with its name": {ref, []safety.ClusterNode{ready("w-1", "ab-2", "later")}, ""},
		"without a UUID":                   {ref, []safety.ClusterNode{ready("w-1", "", "")}, its},
		"without a UUID, another name":     {ref, []safety.ClusterNode{ready("w-2", "", "")}, ""},
		"with the UUID of the firmware":    {ref, []safety.ClusterNode{ready("w-1", "ab-2", "boot")}, its},
		"with another name":                {ref, []safety.ClusterNode{ready("a\nb", "ab-1", "later")}, other("a\uFFFDb")},
		"of the same boot":                 {ref, []safety.ClusterNode{ready("w-9", "ab-2", "boot")}, other("w-9")},
		"containers have the boot ID of a host": {
			ref, []safety.ClusterNode{ready("w-2", "ab-2", "boot"), ready("w-3", "ab-3", "boot")}, "",
		},
		"its own in a container": {
			ref, []safety.ClusterNode{ready("w-1", "ab-2", "boot"), ready("w-3", "ab-3", "boot")}, its,
		},
		"boards with the same UUID": {
			ref, []safety.ClusterNode{silent(ready("w-1", "ab-1", "boot")), ready("w-2", "ab-1", "other")}, other("w-2"),
		},
		"a machine without a UUID": {
			workload.NodeRef{Name: "w-1"}, []safety.ClusterNode{ready("w-1", "ab-2", "boot")}, its,
		},
		"nothing is known but a name": {workload.NodeRef{Name: "w-1"}, []safety.ClusterNode{ready("w-2", "", "")}, ""},
	}

	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			if got := readyNode(tt.nodes, tt.ref); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
