package node

import (
	"errors"
	"fmt"

	"github.com/siderolabs/talos/pkg/machinery/config"

	"github.com/talos-operator/talos-operator/lab/node/configuration"
	"github.com/talos-operator/talos-operator/lab/node/image"
	"github.com/talos-operator/talos-operator/lab/node/service"
)

// kubeletStarted reports whether the boot has come as far as the kubelet.
func (s *session) kubeletStarted() bool {
	st, ok := s.services.Get(svcKubelet)

	return ok && st.State != service.Starting
}

// restartKubelet starts the kubelet anew, as a node does when its flags change.
func (s *session) restartKubelet() {
	s.kubeletMu.Lock()
	defer s.kubeletMu.Unlock()

	if s.ctx.Err() != nil {
		return
	}

	s.stopKubelet()
	s.stopService(svcKubelet)
	s.update(svcKubelet, service.Starting, "Starting service")

	if err := s.startKubelet(s.ctx); err != nil {
		s.logf("kubelet: %v", err)
	}
}

// errKubelet is how a kubelet ends that does not know a flag, or does not run on this system.
var errKubelet = errors.New(`task "kubelet" failed: exit code 1`)

// kubeletEnds says how the kubelet ends as soon as it has started; nil if it runs.
func (s *session) kubeletEnds(cfg config.Provider) error {
	if err := image.CheckRun(cfg.Machine().Kubelet().Image()); err != nil {
		return err
	}

	if flag := configuration.UnknownFlag(cfg); flag != "" {
		_, _ = fmt.Fprintf(s.journal.Writer(svcKubelet), "failed to parse kubelet flag: unknown flag: --%s\n", flag)

		return errKubelet
	}

	if s.faulty(image.BadHealth) || s.faulty(image.BadStay) {
		return errKubelet
	}

	return nil
}

// followKubernetes applies a changed config to kubelet and API server.
func (s *session) followKubernetes(old, cfg config.Provider) {
	s.mu.Lock()
	kubelet, server := s.kube.kubelet, s.kube.server
	s.mu.Unlock()

	if s.n.opts.modelsKubernetes() {
		s.followModel(old, cfg)
	}

	switch {
	case configuration.KubeletChanged(old, cfg) && s.kubeletStarted():
		s.spawn(s.restartKubelet)
	case kubelet != nil:
		kubelet.SetConfig(cfg)
	}

	if server == nil || !configuration.APIServerChanged(old, cfg) {
		return
	}

	s.spawn(func() { s.dropAPIServer(server) }) // its supervisor starts the next one
}
