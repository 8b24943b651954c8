package netconfig

import (
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// Modes of a bond in which some options have no meaning.
const (
	modeLACP         = "802.3ad"
	modeRoundRobin   = "balance-rr"
	modeActiveBackup = "active-backup"
	modeTLB          = "balance-tlb"
	modeALB          = "balance-alb"
)

// bond checks what the kernel's driver refuses. Talos checks most of it in machine.network, and nothing of it in
// documents.
func (c *checker) bond(path *field.Path, b *v1alpha1.Bond) {
	if b == nil {
		return
	}

	if (len(b.Interfaces) > 0) == (len(b.Selectors) > 0) {
		c.add(field.Required(path, "set interfaces or selectors"))
	}

	for i, name := range b.Interfaces {
		c.member(path.Child("interfaces").Index(i), path.String(), name)
	}

	seen := map[string]bool{}

	for i, selector := range b.Selectors {
		text := expression(selector)
		if text == "" || seen[text] {
			c.add(field.Invalid(path.Child("selectors").Index(i), text, "has to select another interface than the others"))
		}

		seen[text] = true
	}

	c.bondDelays(path, b)
	c.bondModes(path, b)
	c.bondTargets(path, b)

	if b.Primary != "" && len(b.Interfaces) > 0 && !slices.Contains(b.Interfaces, b.Primary) {
		c.add(field.Invalid(path.Child("primary"), b.Primary, "is not one of its interfaces"))
	}
}

func (c *checker) bondTargets(path *field.Path, b *v1alpha1.Bond) {
	for i, target := range b.ARPIPTargets {
		if addr, err := netip.ParseAddr(target); err != nil || !addr.Is4() {
			c.add(field.Invalid(path.Child("arpIPTargets").Index(i), target, "is not an IPv4 address"))
		}
	}

	for i, target := range b.NSIP6Targets {
		if addr, err := netip.ParseAddr(target); err != nil || !addr.Is6() {
			c.add(field.Invalid(path.Child("nsIP6Targets").Index(i), target, "is not an IPv6 address"))
		}
	}
}

func (c *checker) bondDelays(path *field.Path, b *v1alpha1.Bond) {
	miimon := orZero(b.MIIMon)

	for name, delay := range map[string]int32{"upDelay": orZero(b.UpDelay), "downDelay": orZero(b.DownDelay)} {
		switch {
		case delay > 0 && miimon == 0:
			c.add(field.Invalid(path.Child(name), delay, "needs miimon"))
		case miimon > 0 && delay%miimon != 0:
			c.add(field.Invalid(path.Child(name), delay, "must be a multiple of miimon"))
		}
	}

	if miimon > 0 && orZero(b.ARPInterval) > 0 {
		c.add(field.Invalid(path.Child("arpInterval"), *b.ARPInterval, "cannot be combined with miimon"))
	}
}

// bondModes checks that each option belongs to the mode of the bond.
func (c *checker) bondModes(path *field.Path, b *v1alpha1.Bond) {
	lacp := []string{modeLACP}
	balanced := []string{modeTLB, modeALB}
	static := []string{modeRoundRobin, modeActiveBackup, "balance-xor", "broadcast"}

	for _, option := range []struct {
		name  string
		set   bool
		modes []string
	}{
		{"lacpRate", b.LACPRate != "", lacp},
		{"adActorSysPrio", orZero(b.ADActorSysPrio) > 0, lacp},
		{"adUserPortKey", orZero(b.ADUserPortKey) > 0, lacp},
		{"adSelect", b.ADSelect != "", lacp},
		{"adLACPActive", b.ADLACPActive != "", lacp},
		{"minLinks", orZero(b.MinLinks) > 0, lacp},
		{"arpInterval", orZero(b.ARPInterval) > 0, static},
		{"arpValidate", b.ARPValidate != "", static},
		{"packetsPerSlave", orZero(b.PacketsPerSlave) > 1, []string{modeRoundRobin}},
		{"tlbDynamicLB", orZero(b.TLBDynamicLB) > 0, balanced},
		{"primary", b.Primary != "", append(balanced, modeActiveBackup)},
	} {
		if option.set && !slices.Contains(option.modes, b.Mode) {
			c.add(field.Forbidden(path.Child(option.name), "has no meaning in the mode "+b.Mode))
		}
	}
}

func orZero(n *int32) int32 {
	if n == nil {
		return 0
	}

	return *n
}
