package talos

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"go.yaml.in/yaml/v4"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/text"
)

// States of links that carry nothing, as Talos reports them.
const linkDown, linkLowerDown, linkNotPresent = "down", "lowerLayerDown", "notPresent"

// States of peers of KubeSpan, as Talos reports them.
const (
	PeerUp      = "up"
	PeerDown    = "down"
	PeerUnknown = "unknown"
)

// peerSilence is how long after its last handshake Talos takes a tunnel of KubeSpan for down.
const peerSilence = 275 * time.Second

// Standing is the state of a peer: up, down, or unknown while a tunnel that was there may still come back. Talos itself
// gives a peer without a tunnel its next endpoint every half minute, and calls it unknown until that one has failed,
// too: its down is seen by chance only.
func (p Peer) Standing(now time.Time) string {
	switch {
	case p.State == PeerUp:
		return PeerUp
	case p.LastHandshake == nil || now.Sub(*p.LastHandshake) > peerSilence:
		return PeerDown
	}

	return PeerUnknown
}

// Down reports whether nothing passes over a link. Kinds of links that have no carrier, such as WireGuard, do not
// report whether they are up.
func (l Link) Down() bool {
	return slices.Contains([]string{linkDown, linkLowerDown, linkNotPresent}, l.State)
}

// Lacks returns which parts of the network are not up.
func (r *NetworkReady) Lacks() []string {
	if r == nil {
		return nil
	}

	var out []string

	for _, part := range []struct {
		name string
		up   bool
	}{
		{"addresses", r.Address},
		{"connectivity", r.Connectivity},
		{"hostname", r.Hostname},
		{"files in /etc", r.EtcFiles},
	} {
		if !part.up {
			out = append(out, part.name)
		}
	}

	return out
}

// FindLink returns the link that a configuration calls by a name or an alias; false if there is none.
func (n Network) FindLink(name string) (Link, bool) {
	i := slices.IndexFunc(n.Links, func(l Link) bool { return l.Name == name || l.Alias != "" && l.Alias == name })
	if i < 0 {
		return Link{}, false
	}

	return n.Links[i], true
}

// UnknownMachines lists the machines of a cluster that are nodes, and that none of the members is, by their names and
// addresses.
func UnknownMachines(machines []v1alpha1.TalosMachine, members []ClusterMember) []string {
	var out []string

	for i := range machines {
		m := &machines[i]
		if m.Status.Hostname == "" {
			continue // it has not joined yet
		}

		known := slices.ContainsFunc(members, func(member ClusterMember) bool {
			return SameHost(member.Name, m.Status.Hostname) || slices.ContainsFunc(member.Addresses, func(a string) bool {
				return a == m.Status.Address || slices.Contains(m.Status.Addresses, a)
			})
		})
		if !known {
			out = append(out, m.Name)
		}
	}

	slices.Sort(out)

	return out
}

// SameHost reports whether two names are those of one host. A node calls itself by its short name, and others may know
// it by the name with its domain.
func SameHost(a, b string) bool {
	shortA, domainA, _ := strings.Cut(a, ".")
	shortB, domainB, _ := strings.Cut(b, ".")

	return shortA != "" && strings.EqualFold(shortA, shortB) &&
		(domainA == "" || domainB == "" || strings.EqualFold(domainA, domainB))
}

// readConfiguredLinks takes the names alone: specs of links have the keys of WireGuard, in the clear.
func readConfiguredLinks(ctx context.Context, r *reader, out *Network) {
	for _, l := range listAll[*network.LinkSpec](ctx, r) {
		if spec := l.TypedSpec(); spec.Up && spec.ConfigLayer == network.ConfigMachineConfiguration {
			out.ConfiguredLinks = append(out.ConfiguredLinks, text.Name(spec.Name))
		}
	}

	slices.Sort(out.ConfiguredLinks)
}

// readUpstreams reads which DNS servers do not answer. Only nodes with a DNS cache of their own ask them and report
// it. Talos encodes these resources as YAML alone.
func readUpstreams(ctx context.Context, r *reader, out *Network) {
	if r.err != nil {
		return
	}

	list, err := r.c.COSI.List(ctx, resource.NewMetadata(
		network.NamespaceName, network.DNSUpstreamType, "", resource.VersionUndefined))
	if err != nil {
		if !isAbsent(err) {
			r.err = err
		}

		return
	}

	for _, item := range list.Items {
		var spec struct {
			Healthy string `yaml:"healthy"`
			Addr    string `yaml:"addr"`
		}

		err := decodeWith(network.DNSUpstreamType, func() error {
			raw, err := yaml.Marshal(item.Spec())
			if err != nil {
				return err
			}

			return yaml.Unmarshal(raw, &spec)
		})

		// What cannot be read is not known to fail.
		if err == nil && spec.Healthy == "false" {
			out.FailingResolvers = append(out.FailingResolvers, text.Name(spec.Addr))
		}
	}

	slices.SortFunc(out.FailingResolvers, strings.Compare)
}

func readDiscovery(ctx context.Context, r *reader, out *Network) {
	if c := get[*cluster.Config](ctx, r, config.NamespaceName, cluster.ConfigType, cluster.ConfigID); c != nil {
		spec := c.TypedSpec()
		out.Discovers = spec.DiscoveryEnabled && (spec.RegistryServiceEnabled || spec.RegistryKubernetesEnabled)
	}
}
