package netconfig

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/cel"
	"github.com/siderolabs/talos/pkg/machinery/cel/celenv"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// linkEther is the type of Ethernet links (ARPHRD_ETHER of Linux).
const linkEther = 1

// permanentAddress returns a hardware address in the form in which Talos compares it.
func permanentAddress(mac string) (string, error) {
	mac = strings.ToLower(mac)

	digits := strings.ReplaceAll(mac, ":", "")
	if len(digits) != 12 || len(mac) != 17 || strings.Trim(digits, "0123456789abcdef") != "" {
		return "", errors.New("is no hardware address like 00:1a:2b:3c:4d:5e")
	}

	return mac, nil
}

// expression returns the CEL expression that selects what a selector does; empty for an empty selector.
func expression(s v1alpha1.LinkSelector) string {
	var terms []string

	glob := func(pattern, value string) {
		if pattern == "" {
			return
		}

		if strings.Contains(pattern, "*") {
			terms = append(terms, fmt.Sprintf("glob(%s, %s)", strconv.Quote(pattern), value))
		} else {
			terms = append(terms, value+" == "+strconv.Quote(pattern))
		}
	}

	glob(s.BusPath, "link.bus_path")
	glob(s.Driver, "link.driver")
	glob(s.PCIID, "link.pciid")
	glob(strings.ToLower(s.HardwareAddress), "mac(link.hardware_addr)")
	glob(strings.ToLower(s.PermanentAddress), "mac(link.permanent_addr)")

	switch physical := fmt.Sprintf(`link.type == %d && link.kind == ""`, linkEther); {
	case s.Physical == nil:
	case *s.Physical:
		terms = append(terms, physical)
	default:
		terms = append(terms, "!("+physical+")")
	}

	return strings.Join(terms, " && ")
}

// alias returns the document that gives a link a name of ours, so that other documents can name it. The name depends on
// what is selected alone: it stays the same when other interfaces come or go.
func alias(name, expr string) (*network.LinkAliasConfigV1Alpha1, error) {
	match, err := cel.ParseBooleanExpression(expr, celenv.LinkLocator())
	if err != nil {
		return nil, fmt.Errorf("selecting a link: %w", err)
	}

	doc := network.NewLinkAliasConfigV1Alpha1(name)
	doc.Selector.Match = match

	return doc, nil
}

// aliasOfAddress selects a link by its permanent hardware address.
func aliasOfAddress(mac string) (*network.LinkAliasConfigV1Alpha1, error) {
	mac, err := permanentAddress(mac)
	if err != nil {
		return nil, err
	}

	return alias("nic"+strings.ReplaceAll(mac, ":", ""), `mac(link.permanent_addr) == "`+mac+`"`)
}

// aliasOfSelector selects a link by its properties.
func aliasOfSelector(s v1alpha1.LinkSelector) (*network.LinkAliasConfigV1Alpha1, error) {
	expr := expression(s)
	sum := sha256.Sum256([]byte(expr))

	return alias("sel"+hex.EncodeToString(sum[:6]), expr)
}
