package talos

import (
	"context"
	"fmt"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
)

// serviceRunning is the state of a running service.
const serviceRunning = "Running"

// KubeletStandsAlone reports whether the kubelet of the node runs with a configuration that keeps it from registering
// with Kubernetes (machine.kubelet.skipNodeRegistration): such a node never gets a Node object.
func (n *Node) KubeletStandsAlone(ctx context.Context) (bool, error) {
	live, err := n.MachineConfig(ctx)
	if err != nil {
		return false, err
	}

	parsed, err := configloader.NewFromBytes(live)
	if err != nil || parsed.Machine() == nil {
		return false, fmt.Errorf("the machine config of %s cannot be read", n.name()) // the cause may quote it
	}

	if !parsed.Machine().Kubelet().SkipNodeRegistration() {
		return false, nil
	}

	kubelet, err := n.Service(ctx, "kubelet")

	return kubelet.State == serviceRunning, err
}
