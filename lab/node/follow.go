package node

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
	configconfig "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"

	"github.com/talos-operator/talos-operator/lab/node/image"
	"github.com/talos-operator/talos-operator/lab/node/service"
)

// removedFlags are those that kubelets knew once. One that is given such a flag ends at once.
var removedFlags = []string{
	"cni-bin-dir", "cni-conf-dir", "container-runtime", "docker-endpoint", "dynamic-config-dir", "network-plugin",
}

// unknownFlag returns a flag in the config that the kubelet does not know; empty when there is none.
func unknownFlag(cfg config.Provider) string {
	for _, flag := range slices.Sorted(maps.Keys(cfg.Machine().Kubelet().ExtraArgs())) {
		if slices.Contains(removedFlags, flag) {
			return flag
		}
	}

	return ""
}

// kubeletChanged reports whether the kubelet has to start anew for a config.
func kubeletChanged(old, cfg config.Provider) bool {
	describe := func(c config.Provider) string {
		k := c.Machine().Kubelet()

		return fmt.Sprint(k.Image(), k.ExtraArgs(), k.ExtraMounts(), k.ExtraConfig(), k.ClusterDNS())
	}

	return describe(old) != describe(cfg)
}

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

	if flag := unknownFlag(cfg); flag != "" {
		_, _ = fmt.Fprintf(s.journal.Writer(svcKubelet), "failed to parse kubelet flag: unknown flag: --%s\n", flag)

		return errKubelet
	}

	if loader := s.n.system.Loader(); loader != nil && loader.Entries[s.slot] != nil &&
		strings.Contains(loader.Entries[s.slot].Image, image.BadHealth) {
		return errKubelet
	}

	return nil
}

// shutsOut reports whether the firewall of a config keeps new connections from the Talos API: what comes in is blocked,
// and no rule lets its port through.
func shutsOut(cfg config.Provider) bool {
	rules := cfg.NetworkRules()
	if rules == nil || rules.DefaultAction() != nethelpers.DefaultActionBlock {
		return false
	}

	return !slices.ContainsFunc(rules.Rules(), func(r configconfig.NetworkRule) bool {
		return r.Protocol() == nethelpers.ProtocolTCP && slices.ContainsFunc(r.PortRanges(), func(p [2]uint16) bool {
			return p[0] <= constants.ApidPort && constants.ApidPort <= p[1]
		})
	})
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
	case kubeletChanged(old, cfg) && s.kubeletStarted():
		s.spawn(s.restartKubelet)
	case kubelet != nil:
		kubelet.SetConfig(cfg)
	}

	if server == nil || !apiServerChanged(old, cfg) {
		return
	}

	s.spawn(func() { s.dropAPIServer(server) }) // its supervisor starts the next one
}

// apiServerChanged reports whether the API server has to start anew for a config.
func apiServerChanged(old, cfg config.Provider) bool {
	describe := func(c config.Provider) string {
		cl := c.Cluster()

		return fmt.Sprint(cl.APIServer().Image(), cl.APIServer().ExtraArgs(), cl.CertSANs(), cl.AcceptedCAs(), cl.IssuingCA(),
			cl.Endpoint(), cl.Network().ServiceCIDRs(), cl.ServiceAccount(), cl.AggregatorCA(), cl.APIServer().Env())
	}

	return describe(old) != describe(cfg)
}
