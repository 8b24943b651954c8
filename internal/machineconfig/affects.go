package machineconfig

import (
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	"github.com/siderolabs/talos/pkg/machinery/config/types/siderolink"
	"go.yaml.in/yaml/v4"
)

var (
	// Fields of the main document that decide whether the operator reaches a node: its addresses, the certificates of its
	// API, and where it finds the other nodes, which KubeSpan routes to.
	connectionFields = []string{
		"machine.network", "machine.certSANs", "machine.ca", "machine.acceptedCAs", "cluster.discovery",
	}
	// The kernel's settings of IP belong to them: one of them turns IPv6 off.
	connectionSysctls = []string{"net.ipv4.", "net.ipv6.", "net/ipv4/", "net/ipv6/"}
	// Network documents that cannot cut a node off.
	harmlessKinds = []string{network.TimeSyncKind, network.TCPProbeKind}
)

// AffectsConnection lists the changed fields that can cut a node off the operator: addresses, links, routes, firewall
// rules, names, discovery, and the certificates of the Talos API. Such a change has to be tried before it is kept.
// Documents of a kind that the machinery library does not know may be anything, so they are in the list too.
func AffectsConnection(changes []Change) []string {
	var out []string

	for _, c := range changes {
		switch {
		case c.Document != "":
			kind, _, _ := strings.Cut(c.Document, "/")
			if isConnectionKind(kind) {
				out = append(out, c.Field())
			}
		case c.Path == "":
			// The main document itself came or went.
			out = append(out, "machine")
		case isConnectionField(c.Path):
			out = append(out, c.Path)
		}
	}

	slices.Sort(out)

	return slices.Compact(out)
}

// AffectsEtcd tells whether a change concerns the etcd member of a control-plane node.
func AffectsEtcd(changes []Change) bool {
	return slices.ContainsFunc(changes, func(c Change) bool {
		return c.Document == "" && (c.Path == "" || isUnder(c.Path, "cluster.etcd"))
	})
}

func isConnectionField(path string) bool {
	return slices.ContainsFunc(connectionFields, func(field string) bool { return isUnder(path, field) }) ||
		slices.ContainsFunc(connectionSysctls, func(prefix string) bool {
			return strings.HasPrefix(path, `machine.sysctls["`+prefix)
		})
}

var connectionKinds sync.Map

// isConnectionKind checks the package that the library has the kind in, so that a newer library brings its new kinds.
func isConnectionKind(kind string) bool {
	if known, ok := connectionKinds.Load(kind); ok {
		return known.(bool)
	}

	affects := kind == siderolink.Kind ||
		(!slices.Contains(harmlessKinds, kind) && slices.Contains([]string{networkPackage, ""}, packageOf(kind)))
	connectionKinds.Store(kind, affects)

	return affects
}

var networkPackage = reflect.TypeFor[network.DefaultActionConfigV1Alpha1]().PkgPath()

// packageOf is the Go package of a kind of document, empty for an unknown kind.
func packageOf(kind string) string {
	probe, err := yaml.Marshal(map[string]string{"apiVersion": "v1alpha1", "kind": kind})
	if err != nil {
		return ""
	}

	cfg, err := configloader.NewFromBytes(probe)
	if err != nil || len(cfg.Documents()) != 1 {
		return ""
	}

	return reflect.TypeOf(cfg.Documents()[0]).Elem().PkgPath()
}
