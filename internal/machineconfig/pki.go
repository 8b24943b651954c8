package machineconfig

import (
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/config"
)

// notPKI are the guarded fields that a patch by hand may change where no operator manages the machine.
var notPKI = []string{"machine.type", "cluster.clusterName", "cluster.controlPlane.endpoint"}

// ChangedPKI returns the first field of the PKI in which two configs of one machine differ: a certificate authority, a
// token, a key, or the ID of the cluster. It is empty where they agree, and names a field without its value.
func ChangedPKI(before, after config.Provider) (string, error) {
	was, err := guardOf(before)
	if err != nil {
		return "", err
	}

	is, err := guardOf(after)
	if err != nil {
		return "", err
	}

	return was.without(notPKI).firstDifference(is.without(notPKI)), nil
}

func (g guard) without(names []string) guard {
	var out guard

	for i, name := range g.names {
		if !slices.Contains(names, name) {
			out.names, out.values = append(out.names, name), append(out.values, g.values[i])
		}
	}

	return out
}
