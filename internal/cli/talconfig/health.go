package talconfig

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"

	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// isAboutNode reports whether an unmet condition of Talos waits for the Node.
func isAboutNode(unmet string) bool { return strings.HasPrefix(unmet, "nodeReady:") }

// lacksOf says what a node lacks to be healthy by its own account. A Node that was not ready before need not be ready
// now: a cluster may have no network for its pods yet.
func lacksOf(f talos.Facts, wasReady bool) error {
	unmet := slices.DeleteFunc(slices.Clone(f.Unmet), func(u string) bool { return !wasReady && isAboutNode(u) })

	switch {
	case f.Stage != change.StageRunning:
		return fmt.Errorf("its stage is %s", f.Stage)
	case len(unmet) > 0:
		return errors.New("it is not ready: " + change.List(unmet))
	case !f.Ready && len(f.Unmet) == 0:
		return errors.New("it is not ready")
	}

	return nil
}

// isReady reports whether a node calls its Node ready.
func isReady(f talos.Facts) bool { return f.Ready || !slices.ContainsFunc(f.Unmet, isAboutNode) }

// restartsPods reports whether the kubelet of a node starts static pods anew for what changes, without a reboot.
func (t *target) restartsPods() bool {
	return t.ControlPlane && !t.reboots && slices.ContainsFunc(t.fields(), func(field string) bool {
		return strings.HasPrefix(field, "cluster.") || field == "machine.pods" || strings.HasPrefix(field, "machine.pods[")
	})
}

// healthyServices reports which of the services of a configured node does not run.
func healthyServices(t *target, services map[string]talos.Service) error {
	required := []string{"apid", "kubelet"}
	if t.ControlPlane {
		required = append(required, "etcd")
	}

	for _, name := range required {
		if s := services[name]; s.State != serviceRunning || !s.Healthy {
			return fmt.Errorf("its service %s is not healthy: %s %s", name, s.State, s.Message)
		}
	}

	return nil
}

// health reports what a node lacks that runs with its config.
func (d *drive) health(ctx context.Context, t *target, node *talos.Node) error {
	services, err := node.Services(ctx)
	if err != nil {
		return err
	}

	if t.isEarly {
		return prepared(services)
	}

	if err := healthyServices(t, services); err != nil {
		return err
	}

	facts, err := node.Facts(ctx)
	if err != nil {
		return err
	}

	if t.restartsPods() && d.drain.now().Sub(t.sent) < talos.StaticPodLag {
		return errors.New("its kubelet may not have started its static pods anew yet")
	}

	return lacksOf(facts, t.wasReady)
}

// checkUnchanged refuses to change nodes while one that has its config already is not healthy: the last run may have
// broken it, and would break the next one.
func (d *drive) checkUnchanged(ctx context.Context) error {
	if !slices.ContainsFunc(d.nodes, func(t *target) bool { return len(t.changes) > 0 && !t.isEarly }) {
		return nil
	}

	var problems []error

	for _, t := range d.nodes {
		if !t.isSelected || t.bare != nil || t.isEarly || len(t.changes) > 0 || t.status.Marked {
			continue // one that is marked is waited for
		}

		node, err := d.pool.Node(ctx, d.ref(t))
		if err == nil {
			err = d.health(ctx, t, node)
		}

		if err != nil {
			problems = append(problems, fmt.Errorf("%s has its config already and is not healthy: %w", t.Hostname, err))
		}
	}

	if len(problems) == 0 {
		return nil
	}

	return fmt.Errorf("%w; repair it, or correct its config, or name other nodes by --node", errors.Join(problems...))
}

// checkTried refuses changes that may cut a node off and cannot be tried, because they also need a reboot.
func (a *applier) checkTried(d *drive) error {
	if a.untried {
		return nil
	}

	var problems []error

	for _, t := range d.nodes {
		fields := machineconfig.AffectsConnection(t.changes)
		if t.bare != nil || t.isEarly || !t.reboots || len(fields) == 0 {
			continue
		}

		problems = append(problems, fmt.Errorf("%s would reboot with a change of %s, which could not be tried: it might cut "+
			"the node off for good; change that alone first, and the rest once that is done, or add --untried; nothing was "+
			"changed", t.Hostname, change.List(fields)))
	}

	return errors.Join(problems...)
}

// checkType refuses a patch that gives a machine another type than its entry. One of the type init would bootstrap an
// etcd of its own.
func (t *target) checkType() error {
	cfg, err := configloader.NewFromBytes(t.config)
	if err != nil {
		return fmt.Errorf("%s: %s", t.Hostname, machineconfig.Describe(err)) // the cause may quote secrets
	}

	if is := cfg.Machine().Type().String(); is != string(t.role()) {
		return fmt.Errorf("%s: a patch sets machine.type to %s, and controlPlane of the node says %s: remove it from the "+
			"patch", t.Hostname, is, t.role())
	}

	return nil
}
