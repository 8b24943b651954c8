package talosetcdrestore

import (
	"context"
	"sync"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
	"github.com/talos-operator/talos-operator/internal/decide/restore"
	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// observe queries every control-plane node live.
func (r *Reconciler) observe(ctx context.Context, s *scope) error {
	var err error
	// Machines that are being deleted are included: their nodes may continue to run the old etcd.
	if s.machines, err = machineset.List(ctx, r.Reader, s.cp); err != nil {
		return err
	}

	src := r.source(s)
	bare := src.Collect(ctx, s.machines)
	s.nodes = make([]restore.Node, len(bare))

	var wg sync.WaitGroup

	for i := range bare {
		s.nodes[i] = restore.Node{Node: bare[i], Leaving: deleting(&s.machines[i])}

		wg.Go(func() {
			switch bare[i].Answer {
			case safety.AnswerMember:
				r.askMore(ctx, s, &s.machines[i], &s.nodes[i])
			case safety.AnswerUnknown:
				s.nodes[i].Foreign = r.foreign(ctx, src.Ref(&s.machines[i]))
			case safety.AnswerMaintenance:
			}
		})
	}

	wg.Wait()

	return ctx.Err()
}

// askMore adds evidence that only a restore needs. What cannot be read stays unknown.
func (r *Reconciler) askMore(ctx context.Context, s *scope, m *v1alpha1.TalosMachine, n *restore.Node) {
	node, err := r.Nodes.Node(ctx, r.source(s).Ref(m))
	if err != nil {
		return
	}

	boot, err := node.BootID(ctx)
	if err != nil {
		return
	}

	// The evidence applies to one boot only: data from the boot before a wipe, attributed to the boot after it, would be
	// wiped once more.
	present, err := node.EtcdDataPresent(ctx)
	if err != nil || present != (n.EtcdData == safety.DataPresent) {
		return
	}

	switch etcd, err := node.Service(ctx, "etcd"); {
	case err != nil:
	case etcd.State == talos.EtcdFailed:
		n.EtcdFailed, n.EtcdMessage = true, etcd.Message
	case etcd.State == talos.EtcdRunning:
		n.EtcdRuns = true
	}

	if at, err := node.TimeStatus(ctx); err == nil {
		n.TimeSynced = at.Synced || at.Disabled
	}

	if state, err := node.ConfigState(ctx); err == nil {
		n.Config, n.Type, n.NextType = configs[state.NextBoot], state.Type, state.NextType
	}

	if again, err := node.BootID(ctx); err == nil && again == boot {
		n.Boot = boot
	}
}

var configs = map[talos.NextBoot]restore.Config{
	talos.NextBootUnknown: restore.ConfigTried, talos.NextBootLive: restore.ConfigSettled,
	talos.NextBootOther: restore.ConfigStaged,
}

func (r *Reconciler) foreign(ctx context.Context, ref talos.NodeRef) bool {
	if ref.Address == "" {
		return false
	}

	probe, err := r.Nodes.Meet(ctx, ref)

	return err == nil && probe.State == talos.StateForeign
}
