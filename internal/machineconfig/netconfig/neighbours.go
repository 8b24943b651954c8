package netconfig

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	netres "github.com/siderolabs/talos/pkg/machinery/resources/network"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Machine is one of the machines of a cluster, as far as firewalls are concerned.
type Machine struct {
	Name         string
	ControlPlane bool
	// Reached are the addresses at which the operator reaches it. All of them have to be let in.
	Reached []netip.Addr
	// Addresses are others that it has, as far as is known. One of them has to be let in, if Reached is empty. Nothing is
	// told about a machine without any.
	Addresses []netip.Addr
}

// Neighbours is what a machine has to be reached by.
type Neighbours struct {
	// Machine is the one with the firewall, and Others are those of its cluster.
	Machine Machine
	Others  []Machine
	// VIPs are virtual addresses of the cluster: no machine sends from one for good.
	VIPs []netip.Addr
}

// need is a port that has to be open, for some machines, or, if there are none, for the operator at least.
type need struct {
	protocol nethelpers.Protocol
	lo, hi   uint16
	what     string
	all      bool
	operator bool
}

// needs returns the ports that have to be open with a configuration.
func (n Neighbours) needs(cfg config.Provider) []need {
	out := []need{
		{nethelpers.ProtocolTCP, 50000, 50000, "the Talos API", false, true},
		{nethelpers.ProtocolTCP, 10250, 10250, "the kubelet", false, false},
	}

	if n.Machine.ControlPlane {
		out = append(out,
			need{nethelpers.ProtocolTCP, 50001, 50001, "trustd", true, false},
			need{nethelpers.ProtocolTCP, 6443, 6443, "the Kubernetes API", true, true},
			need{nethelpers.ProtocolTCP, 2379, 2380, "etcd", false, false})
	}

	if main := cfg.Cluster(); main != nil && main.Network().CNI().Name() == constants.FlannelCNI {
		out = append(out, need{nethelpers.ProtocolUDP, 4789, 4789, "flannel", true, false})
	}

	if kubeSpans(cfg) {
		out = append(out, need{nethelpers.ProtocolUDP, 51820, 51820, "KubeSpan", true, false})
	}

	return out
}

// kubeSpans tells whether KubeSpan is enabled in a configuration.
func kubeSpans(cfg config.Provider) bool {
	k := cfg.NetworkKubeSpanConfig()

	return k != nil && k.Enabled()
}

// Discovers tells whether a machine with a configuration learns of the others.
func Discovers(cfg config.Provider) bool {
	main := cfg.Cluster()
	if main == nil || !main.Discovery().Enabled() {
		return false
	}

	registries := main.Discovery().Registries()

	return registries.Service().Enabled() || registries.Kubernetes().Enabled()
}

// CheckConfig returns what cannot work of what the machines of a cluster share, in a configuration with all patches.
// One in which KubeSpan is a matter of patches alone is not judged.
func (c Cluster) CheckConfig(cfg config.Provider) field.ErrorList {
	if c.KubeSpan == nil || !kubeSpans(cfg) || Discovers(cfg) {
		return nil
	}

	return field.ErrorList{withoutDiscovery(field.NewPath(KubeSpanRoot))}
}

// namesShown is how many machines an error names.
const namesShown = 5

// operatorName stands for the operator where machines are named.
const operatorName = "the operator"

// Closed are the ports that a firewall closes although the cluster or the operator needs them.
type Closed []closed

type closed struct {
	need need
	// machine is to whom; address is where that machine is.
	machine string
	address netip.Addr
}

// Closed returns which ports the firewall of a configuration closes that the cluster or the operator needs. It checks
// what the machine gets in the end, patches included.
func (n Neighbours) Closed(cfg config.Provider) Closed {
	var out Closed

	f, foreign := filterOf(cfg.Documents()), n.foreign(cfg)

	for _, need := range n.needs(cfg) {
		for _, m := range n.Others {
			if m.Name == n.Machine.Name || !need.all && !m.ControlPlane {
				continue
			}

			if at, shut := f.shuts(need, m, foreign); shut {
				out = append(out, closed{need, m.Name, at})
			}
		}

		if need.operator && !f.isOpen(need) {
			out = append(out, closed{need: need, machine: operatorName})
		}
	}

	return out
}

// shuts tells whether a port is closed to a machine, and one of the addresses that it is closed to.
func (f filter) shuts(n need, m Machine, foreign func(netip.Addr) bool) (netip.Addr, bool) {
	shut := func(a netip.Addr) bool { return !f.accepts(n, a) }

	if len(m.Reached) > 0 {
		at := slices.IndexFunc(m.Reached, shut)

		return m.Reached[max(at, 0)], at >= 0
	}

	own := slices.DeleteFunc(slices.Clone(m.Addresses), foreign)
	if len(own) == 0 {
		return netip.Addr{}, false
	}

	return own[0], !slices.ContainsFunc(own, func(a netip.Addr) bool { return !shut(a) })
}

// foreign returns what tells addresses that machines report but do not send from to each other: those of the CNI, of
// KubeSpan, and virtual ones.
func (n Neighbours) foreign(cfg config.Provider) func(netip.Addr) bool {
	var networks []netip.Prefix

	if main := cfg.Cluster(); main != nil {
		networks = append(networks, netres.ULAPrefix(main.ID(), netres.ULAKubeSpan))

		for _, text := range slices.Concat(main.Network().PodCIDRs(), main.Network().ServiceCIDRs()) {
			if p, err := netip.ParsePrefix(text); err == nil {
				networks = append(networks, p)
			}
		}
	}

	vips := slices.Clone(n.VIPs)

	for _, doc := range cfg.Documents() {
		if vip, ok := doc.(interface{ VIP() netip.Addr }); ok {
			vips = append(vips, vip.VIP())
		}
	}

	return func(a netip.Addr) bool {
		return slices.Contains(vips, a) ||
			slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(a) })
	}
}

// Without returns those that are not among others.
func (c Closed) Without(others Closed) Closed {
	return slices.DeleteFunc(slices.Clone(c), func(one closed) bool {
		return slices.ContainsFunc(others, func(other closed) bool {
			return other.need == one.need && other.machine == one.machine
		})
	})
}

// Texts says, for each port, to which machines it is closed.
func (c Closed) Texts() []string {
	var out []string

	for i, first := range c {
		if slices.ContainsFunc(c[:i], func(other closed) bool { return other.need == first.need }) {
			continue
		}

		var names []string

		for _, one := range c {
			switch {
			case one.need != first.need:
			case one.machine != operatorName:
				names = append(names, fmt.Sprintf("%s (%s)", one.machine, one.address))
			case len(names) == 0:
				names = append(names, operatorName)
			}
		}

		if len(names) > namesShown {
			names = append(names[:namesShown], fmt.Sprintf("%d more", len(names)-namesShown))
		}

		out = append(out, fmt.Sprintf("%s (%s) to %s", first.need, first.need.what, strings.Join(names, ", ")))
	}

	return out
}

// Errors says what has to be opened.
func (c Closed) Errors() field.ErrorList {
	var errs field.ErrorList

	for _, text := range c.Texts() {
		errs = append(errs, field.Forbidden(field.NewPath(FirewallRoot, RulesField), "do not open "+text+
			"; add the addresses to a rule for it"))
	}

	return errs
}

// String is the port with its protocol.
func (n need) String() string {
	if n.lo == n.hi {
		return fmt.Sprintf("%s %d", n.protocol, n.lo)
	}

	return fmt.Sprintf("%s %d-%d", n.protocol, n.lo, n.hi)
}
