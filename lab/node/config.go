package node

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"github.com/talos-operator/talos-operator/lab/apid"
	"github.com/talos-operator/talos-operator/lab/cosi"
	"github.com/talos-operator/talos-operator/lab/node/configuration"
	"github.com/talos-operator/talos-operator/lab/node/discovery"
	"github.com/talos-operator/talos-operator/lab/node/pace"
)

// config returns the live machine config, nil when there is none.
func (s *session) config() config.Provider {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.live
}

// complete returns the live machine config when it is enough to boot with.
func (s *session) complete() (config.Provider, bool) {
	cfg := s.config()

	return cfg, cfg != nil && cfg.CompleteForBoot()
}

// inMaintenance reports whether the node has no config that it could boot with.
func (s *session) inMaintenance() bool {
	_, ok := s.complete()

	return !ok
}

// hostname is what the config says, or else what DHCP says.
func (s *session) hostname() string {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.hostnameLocked()
}

// hostnameLocked is hostname for callers that hold s.mu.
func (s *session) hostnameLocked() string {
	if s.live == nil {
		return s.n.opts.Name
	}

	if h := s.live.NetworkHostnameConfig(); h != nil && h.Hostname() != "" {
		name, _, _ := strings.Cut(h.Hostname(), ".")

		return name
	}

	return s.n.opts.Name
}

// kubeletName is the name that the kubelet registers with, which an extra argument of the config overrides.
func (s *session) kubeletName() string {
	if cfg, ok := s.complete(); ok {
		if names := cfg.Machine().Kubelet().ExtraArgs()["hostname-override"]; len(names) > 0 {
			return names[len(names)-1]
		}
	}

	return s.nodeName()
}

// nodeName is what Talos calls the node in Kubernetes: the hostname, or with machine.kubelet.registerWithFQDN the fully
// qualified one.
func (s *session) nodeName() string {
	if cfg, ok := s.complete(); ok && cfg.Machine().Kubelet().RegisterWithFQDN() {
		if h := cfg.NetworkHostnameConfig(); h != nil && h.Hostname() != "" {
			return h.Hostname()
		}
	}

	return s.hostname()
}

// clusterKey is what the node shares with the others of its cluster.
func (s *session) clusterKey() (discovery.Key, bool) {
	cfg, ok := s.complete()
	if !ok || cfg.Cluster().ID() == "" {
		return discovery.Key{}, false
	}

	return discovery.Key{ID: cfg.Cluster().ID(), Secret: cfg.Cluster().Secret()}, true
}

// setPersistent makes a config the one that the next boot loads. Only what is applied shows as such: what a boot has
// loaded does not.
func (s *session) setPersistent(cfg config.Provider) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.persistent = cfg
	s.store.SetPersistentConfig(cfg)

	// before the installation there is no STATE partition; installing writes it
	if !s.n.system.Installed() {
		return nil
	}

	return s.writeConfig()
}

// writeConfig writes the persistent config to the disk; the caller holds s.mu.
func (s *session) writeConfig() error {
	data, err := s.persistent.Bytes()
	if err != nil {
		return fmt.Errorf("serializing the machine config: %w", err)
	}

	return s.n.system.SetConfig(data)
}

// setLive makes a config the one that the node follows.
func (s *session) setLive(cfg config.Provider) {
	// Before a client hears of the config: one that asks again then meets the firewall. Otherwise a client that looked a
	// moment before keeps its connection and has no reason to open another.
	if cfg != nil && cfg.CompleteForBoot() {
		s.n.raiseFirewall(cfg)
	}

	s.mu.Lock()
	old := s.live
	s.live = cfg

	if s.persistent == nil {
		s.persistent = cfg
	}

	s.store.SetLiveConfig(s.live)
	s.mu.Unlock()

	if cfg == nil || !cfg.CompleteForBoot() {
		return
	}

	if old == nil || !old.CompleteForBoot() {
		s.becomeMember()
		close(s.configured)

		return
	}

	s.interruptPull()
	s.followConfig(old, cfg)
}

// becomeMember is what follows from the first complete config.
func (s *session) becomeMember() {
	s.showConfig()
	s.renewIdentity()

	s.n.api.Handover(s.n.pace.Lasts(pace.Stream), answerGrace, s.n.pace.Lasts(pace.Reload))
	s.announce()
}

// showConfig brings the resources in line with the config.
func (s *session) showConfig() {
	cfg, ok := s.complete()
	if !ok {
		return
	}

	kind := cosi.Worker
	if cfg.Machine().Type().IsControlPlane() {
		kind = cosi.ControlPlane
	}

	s.setKind(kind)
	s.store.SetMachineType(cfg.Machine().Type())
	s.store.SetHostname(s.hostname())
	s.store.SetClusterInfo(cfg.Cluster().ID(), cfg.Cluster().Name())
	s.store.SetNodename(s.nodeName())
	s.showPods()
}

func (s *session) setKind(kind cosi.Kind) {
	if err := s.store.SetStage(kind); err != nil {
		s.logf("showing the resources of a %s: %v", kind, err)
	}
}

// followConfig applies a changed config to what already runs.
func (s *session) followConfig(old, cfg config.Provider) {
	s.store.SetHostname(s.hostname())

	if !s.identifies(old, cfg) && s.renewIdentity() {
		s.n.api.Reload()
	}

	s.announce()
	s.followKubernetes(old, cfg)
	s.followExtensions()
	s.showPods()
	s.refreshStatus()
}

// identifies reports whether what apid shows is right after a change of the config, too. Its API does not restart then.
func (s *session) identifies(old, cfg config.Provider) bool {
	if !s.hasCertificate() {
		return false
	}

	s.mu.Lock()
	shown := s.identity.Hostname
	s.mu.Unlock()

	was, is := old.Machine().Security(), cfg.Machine().Security()

	return shown == s.hostname() && was.Token() == is.Token() && slices.Equal(was.CertSANs(), is.CertSANs()) &&
		reflect.DeepEqual(was.IssuingCA(), is.IssuingCA()) && reflect.DeepEqual(was.AcceptedCAs(), is.AcceptedCAs())
}

// kubeSpans tells whether a config turns KubeSpan on.
func kubeSpans(cfg config.Provider) bool {
	k := cfg.NetworkKubeSpanConfig()

	return k != nil && k.Enabled() && cfg.Cluster().Discovery().Enabled()
}

// announce tells discovery about the node, unless it cannot be heard.
func (s *session) announce() {
	cfg, ok := s.complete()
	key, inCluster := s.clusterKey()

	if !ok || !inCluster || s.n.isolated() || s.ctx.Err() != nil {
		return
	}

	s.n.opts.Cluster.nodes.Announce(key, discovery.Affiliate[*Node]{
		Node: s.n, ID: s.nodeID, Hostname: s.hostname(), Address: s.n.Address(),
		MachineType: cfg.Machine().Type(), Version: s.tag, KubeSpan: kubeSpans(cfg),
	})
}

// names are the subject names of the node's certificate.
func (s *session) names() apid.Names {
	names := apid.Names{Hostname: s.hostname()}

	if addr, err := netip.ParseAddr(s.n.Address()); err == nil {
		names.Addresses = []netip.Addr{addr}
	}

	if cfg, ok := s.complete(); ok {
		names.Extra = cfg.Machine().Security().CertSANs()
	}

	return names
}

// renewIdentity is refreshIdentity while nothing else does the same: apid may have begun with what the first one made
// when the second one is done, and would restart for it.
func (s *session) renewIdentity() bool {
	s.obtaining.Lock()
	defer s.obtaining.Unlock()

	return s.refreshIdentity()
}

// refreshIdentity brings what apid shows in line with the config and reports whether the node has a certificate of its
// cluster. Without one, a node that was in maintenance mode keeps its certificate and trusts only its cluster.
func (s *session) refreshIdentity() bool {
	s.mu.Lock()
	s.pending = false
	s.mu.Unlock()

	identity, err := s.newIdentity()
	if err != nil {
		s.logf("making the node's API certificate: %v", err)

		return false
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	s.identity = identity

	return true
}

// maintenanceFingerprint is that of the certificate that is shown in maintenance mode; empty in every other.
func (s *session) maintenanceFingerprint() string {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.identity == nil || !s.identity.Maintenance {
		return ""
	}

	return s.identity.Fingerprint()
}

func (s *session) newIdentity() (*apid.Identity, error) {
	cfg, ok := s.complete()
	if !ok {
		return apid.NewMaintenanceIdentity(s.names())
	}

	security := cfg.Machine().Security()
	if cfg.Machine().Type().IsControlPlane() {
		return apid.NewControlPlaneIdentity(s.names(), security.IssuingCA(), security.AcceptedCAs())
	}

	cert, err := s.requestCertificate()
	if err != nil {
		return s.pendingIdentity(cfg, err)
	}

	return apid.NewWorkerIdentity(s.names(), cert, configuration.Trusted(cfg))
}

// pendingIdentity is that of a worker which has its config but no certificate yet.
func (s *session) pendingIdentity(cfg config.Provider, cause error) (*apid.Identity, error) {
	s.mu.Lock()
	current := s.identity
	s.mu.Unlock()

	if current == nil {
		return nil, cause
	}

	s.logf("%v", cause)

	pending, err := apid.NewWorkerIdentity(s.names(), current.Certificate, configuration.Trusted(cfg))
	if err != nil {
		return nil, err
	}

	s.mu.Lock()
	s.pending = true
	s.mu.Unlock()

	return pending, nil
}

var errNoTrustd = errors.New("no control-plane node issued a certificate yet")

// requestCertificate asks the trustd of a control-plane node of the same cluster for a server certificate. Without its
// token, or with another CA, there is none.
func (s *session) requestCertificate() (tls.Certificate, error) {
	cfg, _ := s.complete()

	for _, other := range s.others() {
		theirs, ok := other.complete()
		if !ok || !other.accepts(constants.TrustdPort, s) || !other.serviceUp("trustd") ||
			theirs.Machine().Security().Token() != cfg.Machine().Security().Token() {
			continue
		}

		if ca := theirs.Machine().Security().IssuingCA(); ca != nil && configuration.Trusts(cfg, ca.Crt) {
			other.journal.Issued(s.n.Address())

			return apid.NewServerCertificate(ca, s.names())
		}
	}

	return tls.Certificate{}, errNoTrustd
}

// hasCertificate reports whether the node shows a certificate that its config calls for.
func (s *session) hasCertificate() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.identity == nil {
		return false
	}

	return !s.pending && s.identity.Maintenance == (s.live == nil || !s.live.CompleteForBoot())
}

// revertAfter puts the present config back when nothing confirms its successor in time.
func (s *session) revertAfter(timeout time.Duration) {
	s.cancelRevert()

	s.mu.Lock()
	defer s.mu.Unlock()

	before := s.live
	s.revert = time.AfterFunc(timeout, func() {
		if s.ctx.Err() != nil {
			return
		}

		s.logf("rolling back the configuration")
		s.setLive(before)
	})
}

// cancelRevert keeps the config that was applied in mode try.
func (s *session) cancelRevert() {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.revert != nil {
		s.revert.Stop()
		s.revert = nil
	}
}
