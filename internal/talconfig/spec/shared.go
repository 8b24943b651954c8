package spec

import (
	"cmp"
	"net/netip"
	"reflect"
	"regexp"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	talosv1alpha1 "github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// Limits of SharedNetwork.
const (
	mostServers = 8
	mostHosts   = 64
	mostNames   = 16
	longestName = 253
)

var (
	domain     = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?$`)
	timeServer = regexp.MustCompile(`^[A-Za-z0-9:]([-A-Za-z0-9.:]*[A-Za-z0-9:])?$`)
)

// sharedNetwork reads what a machine config says about DNS, NTP and static hosts, as far as typed fields can say it.
// Patches do the rest. hasDocuments is false for a cluster whose machines have it in the main document.
func sharedNetwork(
	main *talosv1alpha1.MachineConfig, docs []config.Document, hasDocuments bool,
) v1alpha1.SharedNetwork {
	if !hasDocuments {
		out := sayable(legacyNetwork(main))
		// A group sorts them, and the order of the main document would be another one.
		if !slices.IsSortedFunc(out.Hosts, byAddress) {
			out.Hosts = nil
		}

		return out
	}

	var out v1alpha1.SharedNetwork

	for _, doc := range docs {
		switch doc := doc.(type) {
		case *network.ResolverConfigV1Alpha1:
			out.SearchDomains = doc.ResolverSearchDomains.SearchDomains
			out.DisableDefaultSearchDomain = doc.ResolverSearchDomains.SearchDisableDefault

			for _, server := range doc.ResolverNameservers {
				out.Nameservers = append(out.Nameservers, server.Address.String())
			}
		case *network.TimeSyncConfigV1Alpha1:
			if doc.TimeNTP != nil {
				out.TimeServers = doc.TimeNTP.Servers
			}
		case *network.StaticHostConfigV1Alpha1:
			out.Hosts = append(out.Hosts, v1alpha1.StaticHost{Address: doc.Name(), Hostnames: doc.Hostnames})
		}
	}

	slices.SortFunc(out.Hosts, byAddress)

	return sayable(out)
}

func byAddress(a, b v1alpha1.StaticHost) int { return cmp.Compare(a.Address, b.Address) }

func legacyNetwork(main *talosv1alpha1.MachineConfig) v1alpha1.SharedNetwork {
	var out v1alpha1.SharedNetwork

	if main.MachineTime != nil {
		out.TimeServers = main.MachineTime.TimeServers
	}

	n := main.MachineNetwork
	if n == nil {
		return out
	}

	out.Nameservers, out.SearchDomains = n.NameServers, n.Searches
	out.DisableDefaultSearchDomain = n.NetworkDisableSearchDomain

	for _, host := range n.ExtraHostEntries {
		out.Hosts = append(out.Hosts, v1alpha1.StaticHost{Address: host.HostIP, Hostnames: host.HostAliases})
	}

	return out
}

// sayable leaves out the lists that the API would refuse.
func sayable(n v1alpha1.SharedNetwork) v1alpha1.SharedNetwork {
	isAddress := func(text string) bool {
		addr, err := netip.ParseAddr(text)

		return err == nil && addr.Zone() == ""
	}
	isName := func(text string) bool { return len(text) <= longestName && domain.MatchString(text) }
	isTimeServer := func(text string) bool { return len(text) <= longestName && timeServer.MatchString(text) }
	isHost := func(h v1alpha1.StaticHost) bool {
		return isAddress(h.Address) && len(h.Hostnames) > 0 && len(listOf(h.Hostnames, mostNames, isName)) > 0
	}
	known := map[string]bool{}

	n.Nameservers = listOf(n.Nameservers, mostServers, isAddress)
	n.SearchDomains = listOf(n.SearchDomains, mostServers, isName)
	n.TimeServers = listOf(n.TimeServers, mostServers, isTimeServer)
	n.Hosts = listOf(n.Hosts, mostHosts, func(h v1alpha1.StaticHost) bool {
		isNew := isHost(h) && !known[netip.MustParseAddr(h.Address).String()]
		if isNew {
			known[netip.MustParseAddr(h.Address).String()] = true
		}

		return isNew
	})

	return n
}

// listOf returns a list if it is short enough and each of its items is fine; nil otherwise.
func listOf[T any](list []T, most int, isFine func(T) bool) []T {
	if len(list) > most || slices.ContainsFunc(list, func(item T) bool { return !isFine(item) }) {
		return nil
	}

	return list
}

// shareNetwork moves the fields of the network that all machines of a group have alike to the group; nil if there are
// none.
func shareNetwork(entries []v1alpha1.MachineEntry) *v1alpha1.SharedNetwork {
	var group v1alpha1.SharedNetwork

	into := reflect.ValueOf(&group).Elem()

	for i := range into.NumField() {
		fieldOf := func(e *v1alpha1.MachineEntry) reflect.Value {
			if e.Network == nil {
				return reflect.Zero(into.Field(i).Type())
			}

			return reflect.ValueOf(&e.Network.SharedNetwork).Elem().Field(i)
		}

		first := fieldOf(&entries[0])
		if first.IsZero() || slices.ContainsFunc(entries, func(e v1alpha1.MachineEntry) bool {
			return !reflect.DeepEqual(fieldOf(&e).Interface(), first.Interface())
		}) {
			continue
		}

		into.Field(i).Set(first)

		for j := range entries {
			fieldOf(&entries[j]).SetZero()
		}
	}

	for i := range entries {
		if n := entries[i].Network; n != nil && reflect.ValueOf(*n).IsZero() {
			entries[i].Network = nil
		}
	}

	if reflect.ValueOf(group).IsZero() {
		return nil
	}

	return &group
}
