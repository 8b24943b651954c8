package node

import (
	"context"
	"errors"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"

	"github.com/talos-operator/talos-operator/lab/kubernetes"
	"github.com/talos-operator/talos-operator/lab/node/configuration"
	"github.com/talos-operator/talos-operator/lab/node/image"
	"github.com/talos-operator/talos-operator/lab/node/pace"
)

// runModel runs one modelled API server until it ends.
func (s *session) runModel(ctx context.Context) error {
	start := time.Now()

	cfg, ok := s.complete()
	key, inCluster := s.clusterKey()

	if !ok || !inCluster {
		return errors.New("there is no machine config")
	}

	if err := image.CheckRun(cfg.Cluster().APIServer().Image()); err != nil {
		return err
	}

	if err := s.spend(ctx, pace.APIServer); err != nil {
		return err
	}

	model, err := kubernetes.StartModel(ctx, kubernetes.ModelOptions{
		Name: s.hostname(), Address: s.n.Address(), Config: cfg, Nodes: s.n.opts.Cluster.modelNodes(key),
		Pass: s.passAPI, Accepts: s.acceptsAPI,
	})
	if err != nil {
		return err
	}

	defer model.Close()

	s.mu.Lock()
	s.kube.model = model
	s.mu.Unlock()

	s.setAPIReady(true)
	s.n.timed("apiserver", start)

	select {
	case <-ctx.Done():
	case <-model.Done():
	}

	return ctx.Err()
}

// passAPI holds up a request to a modelled API server while its machine is frozen or cut off.
func (s *session) passAPI(ctx context.Context) error {
	if s.n.partitioned.Load() {
		<-ctx.Done()
	}

	return s.n.pass(ctx)
}

// followModel applies a changed config to a modelled kubelet and API server.
func (s *session) followModel(old, cfg config.Provider) {
	s.mu.Lock()
	model, seen := s.kube.model, s.kube.nodeSeen
	s.mu.Unlock()

	if seen && !configuration.KubeletChanged(old, cfg) { // otherwise the next kubelet does it
		s.registerModel()
	}

	if model != nil && configuration.APIServerChanged(old, cfg) {
		s.spawn(model.Close) // the next one is started in its place
	}
}

// registerModel makes the modelled Node object what the machine is.
func (s *session) registerModel() {
	cfg, ok := s.complete()
	key, inCluster := s.clusterKey()

	if !ok || !inCluster {
		return
	}

	// Another boot of the machine registers itself anew.
	alive := func() bool { return s.n.Reachable() && s.n.current() == s }

	s.n.opts.Cluster.modelNodes(key).Register(s.kubeletOptions(cfg), alive)
}
