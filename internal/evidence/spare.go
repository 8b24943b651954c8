package evidence

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// Unfit says why a spare machine cannot replace another machine now; empty if it can. The spare has to respond in
// maintenance mode: abandoning a machine in favor of a dead spare loses two machines, and an etcd member with them.
func Unfit(
	ctx context.Context, c client.Reader, nodes *talos.Pool, namespace string, spare v1alpha1.MachineEntry,
) (string, error) {
	address := spare.Address

	if spare.MachineRef != nil {
		infra := &vitistackv1alpha1.Machine{}

		err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: spare.MachineRef.Name}, infra)
		if client.IgnoreNotFound(err) != nil {
			return "", fmt.Errorf("reading Machine %s: %w", spare.MachineRef.Name, err)
		}

		if address = infra.Address(); apierrors.IsNotFound(err) || address == "" {
			return "has no address yet", nil
		}
	}

	probe, err := nodes.Probe(ctx, address, nil)

	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err != nil || probe.State == talos.StateUnreachable:
		return "does not respond at " + address, nil
	case probe.State != talos.StateMaintenance:
		return "is not in maintenance mode", nil
	}

	if wrong := probe.Check(spare.MaintenanceFingerprint); wrong != nil {
		return fmt.Sprintf("shows the certificate fingerprint %s instead of its maintenanceFingerprint", wrong.Shown), nil
	}

	return "", nil
}
