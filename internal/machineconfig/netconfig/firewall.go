package netconfig

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig/optional"
)

// FirewallRoot is the name of the field, with which the paths of errors begin.
const FirewallRoot = "ingressFirewall"

// RulesField is the field below it, to which errors about closed ports belong.
const RulesField = "rules"

// CheckFirewall returns what of a firewall Talos cannot read, or nothing.
func CheckFirewall(path *field.Path, f *v1alpha1.IngressFirewall) field.ErrorList {
	if f == nil {
		return nil
	}

	var errs field.ErrorList

	names := map[string]bool{}

	for i, rule := range f.Rules {
		at := path.Child("rules").Index(i)

		if names[rule.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), rule.Name))
		}

		names[rule.Name] = true

		if len(rule.Ingress) == 0 {
			errs = append(errs, field.Required(at.Child("ingress"), "list the networks that the ports are open to"))
		}

		errs = append(errs, checkPorts(at.Child("ports"), rule.Ports)...)

		for j, from := range rule.Ingress {
			errs = append(errs, checkSource(at.Child("ingress").Index(j), from)...)
		}
	}

	return errs
}

func checkPorts(path *field.Path, ports []string) field.ErrorList {
	var (
		errs field.ErrorList
		seen network.PortRanges
	)

	if len(ports) == 0 {
		errs = append(errs, field.Required(path, "list ports, such as 10250 or 2379-2380"))
	}

	for i, text := range ports {
		ports, ok := portRange(text)
		if !ok {
			errs = append(errs, field.Invalid(path.Index(i), text, "is neither a port nor a range of ports, such as 10250 "+
				"and 2379-2380"))

			continue
		}

		overlaps := func(other network.PortRange) bool { return ports.Lo <= other.Hi && other.Lo <= ports.Hi }
		if at := slices.IndexFunc(seen, overlaps); at >= 0 {
			errs = append(errs, field.Invalid(path.Index(i), text, "overlaps with "+seen[at].String()))
		}

		seen = append(seen, ports)
	}

	return errs
}

// portRange reads a port or a range of them.
func portRange(text string) (network.PortRange, bool) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}

	lo, err := strconv.ParseUint(first, 10, 16)
	if err != nil || lo == 0 {
		return network.PortRange{}, false
	}

	hi, err := strconv.ParseUint(last, 10, 16)

	return network.PortRange{Lo: uint16(lo), Hi: uint16(hi)}, err == nil && lo <= hi
}

func checkSource(path *field.Path, from v1alpha1.FirewallSource) field.ErrorList {
	var errs field.ErrorList

	read := func(path *field.Path, text string) netip.Prefix {
		prefix, err := parsePrefix(path, text)

		switch {
		case err != nil:
			errs = append(errs, err)
		case prefix.Masked() != prefix:
			errs = append(errs, field.Invalid(path, text, "has bits outside of its prefix; write "+prefix.Masked().String()))
		default:
			return prefix
		}

		return netip.Prefix{}
	}

	subnet := read(path.Child("subnet"), from.Subnet)

	if from.Except == "" {
		return errs
	}

	except := read(path.Child("except"), from.Except)
	if subnet.IsValid() && except.IsValid() && (!subnet.Contains(except.Addr()) || except.Bits() <= subnet.Bits()) {
		errs = append(errs, field.Invalid(path.Child("except"), from.Except, "is no part of the subnet "+from.Subnet))
	}

	return errs
}

// MergeFirewalls returns the firewall of a group with what the firewall of a machine says instead: its default action,
// and rules by their names. Both may be nil.
func MergeFirewalls(group, machine *v1alpha1.IngressFirewall) *v1alpha1.IngressFirewall {
	if group == nil || machine == nil {
		return optional.Either(group, machine)
	}

	out := &v1alpha1.IngressFirewall{DefaultAction: group.DefaultAction}
	if machine.DefaultAction != "" {
		out.DefaultAction = machine.DefaultAction
	}

	name := func(r v1alpha1.FirewallRule) string { return r.Name }
	out.Rules = append(optional.Without(group.Rules, machine.Rules, name), machine.Rules...)

	return out
}

// firewallDocuments returns the documents of a firewall, sorted by name.
func firewallDocuments(f *v1alpha1.IngressFirewall) []config.Document {
	if f == nil {
		return nil
	}

	action := network.NewDefaultActionConfigV1Alpha1()
	if f.DefaultAction == v1alpha1.FirewallBlock {
		action.Ingress = nethelpers.DefaultActionBlock
	}

	out := []config.Document{action}

	rules := slices.Clone(f.Rules)
	slices.SortStableFunc(rules, func(a, b v1alpha1.FirewallRule) int { return strings.Compare(a.Name, b.Name) })

	for _, rule := range rules {
		doc := network.NewRuleConfigV1Alpha1()
		doc.MetaName, doc.PortSelector.Protocol = rule.Name, nethelpers.ProtocolTCP

		if rule.Protocol == "udp" {
			doc.PortSelector.Protocol = nethelpers.ProtocolUDP
		}

		for _, text := range rule.Ports {
			ports, _ := portRange(text)
			doc.PortSelector.Ports = append(doc.PortSelector.Ports, ports)
		}

		for _, from := range rule.Ingress {
			doc.Ingress = append(doc.Ingress, network.IngressRule{
				Subnet: prefix(from.Subnet).Prefix, Except: prefix(from.Except),
			})
		}

		out = append(out, doc)
	}

	return out
}

// filter is what a firewall does, as Talos makes it: where packets are accepted by default, each rule drops those for
// its ports that come from elsewhere; where they are blocked, each rule accepts those that it names.
type filter struct {
	block bool
	rules []*network.RuleConfigV1Alpha1
}

func filterOf(docs []config.Document) filter {
	var f filter

	for _, doc := range docs {
		switch doc := doc.(type) {
		case *network.DefaultActionConfigV1Alpha1:
			f.block = doc.Ingress == nethelpers.DefaultActionBlock
		case *network.RuleConfigV1Alpha1:
			f.rules = append(f.rules, doc)
		}
	}

	return f
}

// accepts tells whether all ports are open to an address.
func (f filter) accepts(n need, from netip.Addr) bool {
	for port := n.lo; port <= n.hi; port++ {
		accepted := !f.block

		for _, rule := range f.rules {
			switch {
			case !concerns(rule, n.protocol, port):
			case f.block:
				accepted = accepted || admits(rule, from)
			default:
				accepted = accepted && admits(rule, from)
			}
		}

		if !accepted {
			return false
		}
	}

	return true
}

// isOpen tells whether all ports are open to some address.
func (f filter) isOpen(n need) bool {
	for port := n.lo; port <= n.hi; port++ {
		open := func(rule *network.RuleConfigV1Alpha1) bool {
			return concerns(rule, n.protocol, port) && len(rule.Ingress) > 0
		}

		if f.block && !slices.ContainsFunc(f.rules, open) {
			return false
		}
	}

	return true
}

func concerns(rule *network.RuleConfigV1Alpha1, protocol nethelpers.Protocol, port uint16) bool {
	return rule.PortSelector.Protocol == protocol && slices.ContainsFunc(rule.PortSelector.Ports,
		func(r network.PortRange) bool { return r.Lo <= port && port <= r.Hi })
}

// admits tells whether an address is in the networks of a rule. Talos takes all exceptions of a rule together.
func admits(rule *network.RuleConfigV1Alpha1, from netip.Addr) bool {
	return slices.ContainsFunc(rule.Ingress, func(r network.IngressRule) bool { return r.Subnet.Contains(from) }) &&
		!slices.ContainsFunc(rule.Ingress, func(r network.IngressRule) bool { return r.Except.Contains(from) })
}
