package machineconfig

import (
	"errors"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
	docconfig "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/talos-operator/talos-operator/internal/machineconfig/netconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/registry"
)

// addDocuments writes hostname, network and registries as Talos 1.12 and later want them: in documents of their own.
func addDocuments(in Input, docs []docconfig.Document) ([]docconfig.Document, error) {
	for _, doc := range docs {
		if hostname, ok := doc.(*network.HostnameConfigV1Alpha1); ok && in.Machine.Hostname != "" {
			off := nethelpers.AutoHostnameKindOff
			hostname.ConfigAuto, hostname.ConfigHostname = &off, in.Machine.Hostname
		}
	}

	extra, problems := netconfig.Documents(in.Machine, in.TalosVersion, in.Values)
	registries, more := registry.Documents(in.Registries, in.Values)

	if problems = append(problems, more...); len(problems) > 0 {
		return nil, inputErrors(problems)
	}

	extra = append(extra, registries...)

	slices.SortStableFunc(extra, func(a, b docconfig.Document) int {
		return strings.Compare(documentID(a), documentID(b))
	})

	return append(docs, extra...), nil
}

// cluster returns what the machines of the cluster share of their network.
func (in Input) cluster() netconfig.Cluster {
	return netconfig.Cluster{
		KubeSpan: in.KubeSpan, KubePrism: in.KubePrism, Discovery: in.Discovery, Kubernetes: in.KubernetesVersion,
		Talos: in.TalosVersion,
	}
}

// addKubeSpan writes KubeSpan into the main document of an older cluster, or returns its document. Talos refuses both
// together.
func addKubeSpan(in Input, contract *config.VersionContract, docs []docconfig.Document) []docconfig.Document {
	if contract.KubeSpanMultidocConfig() {
		return in.cluster().KubeSpanDocuments()
	}

	for _, doc := range docs {
		if main, ok := doc.(*v1alpha1.Config); ok {
			in.cluster().KubeSpanLegacy(main.MachineConfig)
		}
	}

	return nil
}

// checkShared refuses KubeSpan that cannot work, and a network or a firewall that cuts the machine off. It checks the
// config after all patches. It returns what the live firewall closes already: to refuse that would keep other changes
// from the machine, and open nothing.
func checkShared(in Input, base config.Provider, d *draft) ([]string, error) {
	contract, err := in.contract()
	if err != nil {
		return nil, err
	}

	problems := in.cluster().CheckConfig(d.known)

	// One that cannot be read excuses nothing.
	var live config.Provider
	if runs, err := configloader.NewFromBytes(in.Live); err == nil && len(in.Live) > 0 {
		live = runs
	}

	// A document of a kind that is not known may bring an address.
	if len(d.unknown) == 0 {
		problems = append(problems,
			netconfig.CheckPatched(in.Machine, base, d.known, live, contract.MultidocNetworkConfigSupported())...)
	}

	if len(problems) > 0 {
		return nil, inputErrors(problems)
	}

	if in.Firewall == nil {
		return nil, nil
	}

	n := in.Neighbours
	n.Machine.ControlPlane = in.Role == ControlPlane

	shut := n.Closed(d.known)
	added := shut

	if live != nil {
		added = shut.Without(n.Closed(live))
	}

	if len(added) > 0 {
		return nil, inputErrors(added.Errors())
	}

	return shut.Texts(), nil
}

// ShutsOut tells whether a config was refused because its firewall closes a port that is needed.
func ShutsOut(err error) bool {
	var refused *InputError

	return errors.As(err, &refused) && refused.Field == netconfig.FirewallRoot+"."+netconfig.RulesField
}

func documentID(doc docconfig.Document) string {
	if named, ok := doc.(docconfig.NamedDocument); ok {
		return doc.Kind() + "/" + named.Name()
	}

	return doc.Kind()
}

// inputErrors makes errors about fields one error about the first of them.
func inputErrors(problems field.ErrorList) error {
	texts := make([]string, len(problems))
	for i, problem := range problems {
		texts[i] = problem.ErrorBody()
		if i > 0 {
			texts[i] = problem.Error()
		}
	}

	return &InputError{Field: problems[0].Field, Problem: strings.Join(texts, "; ")}
}
