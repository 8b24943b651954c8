package talconfig

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// tally counts what a run has done.
type tally struct{ done, total int }

// carryOut changes the nodes, each part once that is there which it depends on. Control planes get their first config
// and etcd is bootstrapped before workers get theirs: a worker gets its certificate from a control plane at the
// endpoint of the cluster, and where that is a virtual IP, only a member of etcd holds it.
func (d *drive) carryOut(ctx context.Context, b *bootstrapper, boots bool) error {
	bares, due := d.bares(), d.due()
	planes, workers := split(bares, func(t *target) bool { return t.ControlPlane })
	early, late := split(due, func(t *target) bool { return t.isEarly })
	first, changed := &tally{total: len(bares)}, &tally{total: len(due)}

	if err := d.work(ctx, early, changed); err != nil {
		return err
	}

	if err := d.workFirst(ctx, planes, first); err != nil {
		return err
	}

	if boots {
		if err := b.run(ctx); err != nil {
			return err
		}
	}

	if len(workers) > 0 {
		if err := d.joinable(ctx, b.isWanted, first); err != nil {
			return err
		}
	}

	if err := d.workFirst(ctx, workers, first); err != nil {
		return err
	}

	return d.work(ctx, late, changed)
}

// split returns the nodes that a function chooses, and the others.
func split(all []*target, chooses func(*target) bool) (chosen, others []*target) {
	for _, t := range all {
		if chooses(t) {
			chosen = append(chosen, t)
		} else {
			others = append(others, t)
		}
	}

	return chosen, others
}

// hasNoEtcd reports whether each of the control planes that run has said that it has no etcd data.
func hasNoEtcd(nodes []safety.Node) bool {
	return !slices.ContainsFunc(nodes, func(n safety.Node) bool { return n.EtcdData != safety.DataAbsent })
}

// observeEtcd finds out, for the plan, whether etcd is still to be bootstrapped. Until then, control planes that run
// may be changed without the evidence of a healthy etcd: a first config that keeps etcd from waiting for its bootstrap
// could not be corrected otherwise. There is nothing to drain, as no API server runs.
func (d *drive) observeEtcd(ctx context.Context, b *bootstrapper) error {
	if !d.firstConfig && !d.newCluster {
		return nil
	}

	d.noEtcd = hasNoEtcd(d.collect(ctx, false))
	if !d.noEtcd || !d.newCluster {
		return nil
	}

	rec, err := b.read()
	if err != nil {
		return err
	}

	d.isNew = isBeforeBootstrap(rec, b.now())

	for _, t := range d.planes() {
		t.isEarly = d.isNew && t.bare == nil && len(t.changes) > 0
	}

	return nil
}

// isBeforeBootstrap reports whether no bootstrap can be in progress, or over.
func isBeforeBootstrap(rec *bootstrapRecord, now time.Time) bool {
	return rec == nil || rec.EstablishedAt == nil && now.Sub(rec.ChosenAt) >= chosenLately
}

// permitEarly permits the change of a control plane before the bootstrap, on the evidence of all that run.
func (d *drive) permitEarly(ctx context.Context) error {
	if hasNoEtcd(d.collect(ctx, false)) {
		return nil
	}

	return errors.New("not every control plane that runs reports that it has no etcd data; if etcd was bootstrapped " +
		"since the plan was made, run the command again")
}

// prepared reports what a control plane lacks to be bootstrapped.
func prepared(services map[string]talos.Service) error {
	if s := services["apid"]; s.State != serviceRunning || !s.Healthy {
		return fmt.Errorf("its service apid is not healthy: %s %s", s.State, s.Message)
	}

	if s := services["etcd"]; s.State != talos.EtcdPreparing {
		return fmt.Errorf("its etcd does not wait for the bootstrap: %s %s", s.State, s.Message)
	}

	return nil
}

// errNoEtcd is why workers wait.
var errNoEtcd = errors.New("etcd is not bootstrapped, and workers get their first config once it is healthy: run the " +
	"command again with --bootstrap")

// joinable returns nil once workers can join: etcd has data, and, where it may have been bootstrapped just now, the
// Kubernetes API responds, which has to tell whether it knows them.
func (d *drive) joinable(ctx context.Context, isBootstrapped bool, first *tally) error {
	if hasNoEtcd(d.collect(ctx, false)) {
		return fmt.Errorf("%w; %d of %d machines got their first config", errNoEtcd, first.done, first.total)
	}

	if !isBootstrapped {
		return nil
	}

	err := d.until(ctx, "the Kubernetes API does not respond", 1, func(ctx context.Context) error {
		cluster, err := d.kubernetes(ctx)
		if err == nil {
			_, err = cluster.Nodes(ctx)
		}

		return err
	})

	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted while waiting for the Kubernetes API; etcd is bootstrapped; %d of %d machines got "+
			"their first config: run the command again to go on", first.done, first.total)
	}

	return fmt.Errorf("%w; etcd is bootstrapped; %d of %d machines got their first config: run the command again to go on",
		err, first.done, first.total)
}
