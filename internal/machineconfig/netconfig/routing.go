package netconfig

import (
	"net/netip"
	"slices"

	"github.com/blang/semver/v4"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

const unicast = "unicast"

// notBefore113 is the message about a document that earlier versions do not know.
const notBefore113 = "needs Talos 1.13 or later; upgrade first, or remove it"

// reservedRules are the priorities of KubeSpan's rules. A rule with one of them would replace it.
var reservedRules = []int32{constants.KubeSpanDefaultRulePriority, constants.KubeSpanDefaultRulePriority + 1}

func rulePath(i int) *field.Path { return field.NewPath(Root, "routingRules").Index(i) }

func blackholePath(i int) *field.Path { return field.NewPath(Root, "blackholeRoutes").Index(i) }

// routing checks rules and routes that belong to no interface.
func (c *checker) routing(n v1alpha1.MachineNetwork) {
	priorities := map[int32]bool{}

	for i, rule := range n.RoutingRules {
		path := rulePath(i)

		switch {
		case rule.Priority < 1 || rule.Priority >= constants.LinuxReservedRulePriorityMain:
			c.add(field.Invalid(path.Child("priority"), rule.Priority, "must be between 1 and 32765"))
		case slices.Contains(reservedRules, rule.Priority):
			c.add(field.Invalid(path.Child("priority"), rule.Priority, "belongs to KubeSpan; use another one"))
		case priorities[rule.Priority]:
			c.add(field.Duplicate(path.Child("priority"), rule.Priority))
		}

		priorities[rule.Priority] = true

		c.rule(path, rule)
	}

	networks := map[netip.Prefix]bool{}

	for i, route := range n.BlackholeRoutes {
		path := blackholePath(i).Child("network")

		prefix := c.masked(path, route.Network)
		switch {
		case prefix.IsValid() && prefix.Bits() == 0:
			c.add(field.Invalid(path, route.Network, "would drop everything that has no route of its own"))
		case prefix.IsValid() && networks[prefix]:
			c.add(field.Duplicate(path, route.Network))
		}

		networks[prefix] = true
	}
}

func (c *checker) rule(path *field.Path, r v1alpha1.RoutingRule) {
	source, destination := c.maskedOrNone(path.Child("source"), r.Source), c.maskedOrNone(path.Child("destination"),
		r.Destination)

	if source.IsValid() && destination.IsValid() && source.Addr().Is4() != destination.Addr().Is4() {
		c.add(field.Invalid(path.Child("destination"), r.Destination, "is of another IP family than "+r.Source))
	}

	looksUp := r.Action == "" || r.Action == unicast
	if looksUp != (r.Table != 0) {
		c.add(field.Forbidden(path.Child("table"), "the action unicast needs a table, and the others have none"))
	}

	if r.FirewallMask != 0 && r.FirewallMark == 0 {
		c.add(field.Required(path.Child("firewallMark"), "firewallMask needs it"))
	}

	everything := r.Source+r.Destination+r.InputInterface+r.OutputInterface == "" && r.FirewallMark == 0
	if everything && !looksUp {
		c.add(field.Required(path, "drops all packets: say which, by source, destination, interface or mark"))
	}
}

// masked reads a network without bits outside of its prefix.
func (c *checker) masked(path *field.Path, text string) netip.Prefix {
	prefix, err := parsePrefix(path, text)

	switch {
	case err != nil:
		c.add(err)
	case prefix.Masked() != prefix:
		c.add(field.Invalid(path, text, "has bits outside of its prefix; write "+prefix.Masked().String()))
	default:
		return prefix
	}

	return netip.Prefix{}
}

func (c *checker) maskedOrNone(path *field.Path, text string) netip.Prefix {
	if text == "" {
		return netip.Prefix{}
	}

	return c.masked(path, text)
}

// routing adds the documents of rules and routes that belong to no interface.
func (d *documents) routing(n v1alpha1.MachineNetwork, talos string) {
	old := olderThan(talos, 13)

	for i, rule := range n.RoutingRules {
		d.unsupported(rulePath(i), notBefore113, old)

		doc := network.NewRoutingRuleConfigV1Alpha1(uint32(rule.Priority))
		doc.RuleSrc, doc.RuleDst = prefix(rule.Source), prefix(rule.Destination)
		doc.RuleIIFName, doc.RuleOIFName = rule.InputInterface, rule.OutputInterface
		doc.RuleFwMark, doc.RuleFwMask = uint32(rule.FirewallMark), uint32(rule.FirewallMask)
		doc.RuleTable = nethelpers.RoutingTable(rule.Table)

		if action := enum[nethelpers.RoutingRuleAction](d, rulePath(i).Child("action"), rule.Action); action != nil {
			doc.RuleAction = *action
		}

		d.docs = append(d.docs, doc)
	}

	for i, route := range n.BlackholeRoutes {
		d.unsupported(blackholePath(i), notBefore113, old)

		doc := network.NewBlackholeRouteConfigV1Alpha1(route.Network)
		doc.RouteMetric = uint32(route.Metric)
		d.docs = append(d.docs, doc)
	}
}

// olderThan tells whether a version of Talos is older than a minor version of Talos 1. An unknown one is not.
func olderThan(talos string, minor uint64) bool {
	v, err := semver.ParseTolerant(talos)

	return err == nil && v.Major == 1 && v.Minor < minor
}

func (r *reader) unsupported(path *field.Path, why string, is bool) {
	if is {
		r.errs = append(r.errs, field.Forbidden(path, why))
	}
}
