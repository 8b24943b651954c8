package configuration

import (
	"net/netip"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/config"
	configconfig "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
)

// Accepts reports whether the firewall of a config accepts connections to a TCP port from an address. Where packets are
// blocked by default, one of the rules has to let them in; where they are accepted, none may keep them out that is
// about the port.
func Accepts(cfg config.Provider, port uint16, from netip.Addr) bool {
	rules := cfg.NetworkRules()
	if rules == nil {
		return true
	}

	block := rules.DefaultAction() == nethelpers.DefaultActionBlock
	accepted := !block

	for _, rule := range rules.Rules() {
		switch {
		case !concerns(rule, port):
		case block:
			accepted = accepted || admits(rule, from)
		default:
			accepted = accepted && admits(rule, from)
		}
	}

	return accepted
}

func concerns(rule configconfig.NetworkRule, port uint16) bool {
	return rule.Protocol() == nethelpers.ProtocolTCP && slices.ContainsFunc(rule.PortRanges(), func(r [2]uint16) bool {
		return r[0] <= port && port <= r[1]
	})
}

// admits reports whether a rule lets an address in. Its exceptions count for all of its networks.
func admits(rule configconfig.NetworkRule, from netip.Addr) bool {
	contains := func(p netip.Prefix) bool { return p.Contains(from) }

	return slices.ContainsFunc(rule.Subnets(), contains) && !slices.ContainsFunc(rule.ExceptSubnets(), contains)
}
