package validation

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/keyref"
)

// Endpoint checks the URL of a Kubernetes API. Talos itself escapes what is no URL and accepts it.
func Endpoint(field, endpoint string) Failures {
	fail := func(what string) Failures {
		return Failures{{
			Field: field, Problem: fmt.Sprintf("%q %s", keyref.WithoutUser(endpoint), what),
			Remedy: "write it like https://10.0.0.10:6443",
		}}
	}

	if endpoint == "" {
		return Failures{{Field: field, Problem: "is required", Remedy: "write it like https://10.0.0.10:6443"}}
	}

	u, err := url.Parse(endpoint)

	switch {
	case err != nil:
		return fail("is not a URL")
	case u.Scheme != "https":
		return fail("does not begin with https://")
	case u.User != nil:
		return fail("holds credentials")
	case u.Hostname() == "":
		return fail("has no host")
	case u.Port() == "":
		return fail("has no port")
	case u.Path != "" && u.Path != "/", u.RawQuery != "", u.Fragment != "":
		return fail("has more than scheme, host and port")
	}

	if port, err := strconv.Atoi(u.Port()); err != nil || port < 1 || port > 65535 {
		return fail("has an invalid port")
	}

	if problem := hostProblem(u.Hostname()); problem != "" {
		return fail(problem)
	}

	return nil
}

// hostProblem says why a host cannot be that of an endpoint; empty if it can. A zone may be any text, and is known to
// one machine only.
func hostProblem(host string) string {
	switch addr, err := netip.ParseAddr(host); {
	case err == nil && addr.Zone() != "":
		return "has an address with a zone, which means something on one machine only"
	case err != nil && len(utilvalidation.IsDNS1123Subdomain(strings.ToLower(host))) > 0:
		return "has a host that is neither an IP address nor a DNS name"
	}

	return ""
}

// ClusterSubnets are the networks inside a cluster, and the addresses that must lie outside of them.
type ClusterSubnets struct {
	// PodsField and ServicesField are the paths of the fields.
	PodsField, ServicesField string
	Pods, Services           []string
	// Outside are addresses that the nodes and the endpoint use, by the path of their field.
	Outside map[string]string
}

// Check parses the subnets and finds overlaps, wrong families and wrong order. Empty lists stand for the defaults.
func (c ClusterSubnets) Check() Failures {
	// A subnet that a user chose may overlap with the default of the other field.
	if len(c.Pods) == 0 {
		c.Pods = []string{machineconfig.DefaultPodSubnet}
	}

	if len(c.Services) == 0 {
		c.Services = []string{machineconfig.DefaultServiceSubnet}
	}

	pods, failures := prefixes(c.PodsField, c.Pods)
	services, more := prefixes(c.ServicesField, c.Services)

	failures = append(failures, more...)
	failures = append(failures, families(c.PodsField, pods)...)
	failures = append(failures, families(c.ServicesField, services)...)

	for _, service := range services {
		// kube-apiserver refuses larger ranges: it keeps a bitmap of them.
		if bits := service.prefix.Addr().BitLen() - service.prefix.Bits(); bits > 20 {
			failures = append(failures, Failure{
				Field:   service.field,
				Problem: fmt.Sprintf("%s has %d host bits, and Kubernetes allows 20 for services", service.prefix, bits),
				Remedy: fmt.Sprintf("use a prefix of /%d or longer",
					service.prefix.Addr().BitLen()-20),
			})
		}
	}

	all := slices.Concat(pods, services)
	for i, a := range all {
		for _, b := range all[i+1:] {
			if a.prefix.Overlaps(b.prefix) {
				failures = append(failures, Failure{
					Field:   b.field,
					Problem: fmt.Sprintf("%s overlaps with %s in %s", b.prefix, a.prefix, a.field),
					Remedy:  "use networks that have no address in common",
				})
			}
		}
	}

	failures = append(failures, c.sameFamilies(pods, services)...)

	return append(failures, c.outside(all)...)
}

type subnet struct {
	field  string
	prefix netip.Prefix
}

func prefixes(field string, texts []string) ([]subnet, Failures) {
	var (
		out      []subnet
		failures Failures
	)

	for i, text := range texts {
		at := fmt.Sprintf("%s[%d]", field, i)

		prefix, err := netip.ParsePrefix(text)

		switch {
		case err != nil:
			failures = append(failures, Failure{
				Field: at, Problem: fmt.Sprintf("%q is not a network in CIDR notation", text),
				Remedy: "write it like 10.244.0.0/16",
			})
		case prefix.Masked() != prefix:
			failures = append(failures, Failure{
				Field: at, Problem: fmt.Sprintf("%s is an address inside of a network", text),
				Remedy: fmt.Sprintf("write %s", prefix.Masked()),
			})
		default:
			out = append(out, subnet{field: at, prefix: prefix})
		}
	}

	return out, failures
}

// families allows one subnet, or two of different families: dual stack, the primary family first.
func families(field string, subnets []subnet) Failures {
	switch {
	case len(subnets) > 2:
		return Failures{{
			Field: field, Problem: fmt.Sprintf("has %d networks", len(subnets)),
			Remedy: "give one, or one IPv4 and one IPv6 network for dual stack",
		}}
	case len(subnets) == 2 && subnets[0].prefix.Addr().Is4() == subnets[1].prefix.Addr().Is4():
		return Failures{{
			Field: field, Problem: "has two networks of one family",
			Remedy: "give one, or one IPv4 and one IPv6 network for dual stack",
		}}
	default:
		return nil
	}
}

// sameFamilies wants pods and services to speak of the same families in the same order: the first is the primary one.
func (c ClusterSubnets) sameFamilies(pods, services []subnet) Failures {
	if len(pods) != len(c.Pods) || len(services) != len(c.Services) {
		return nil // some did not parse, which has been said
	}

	p, s := familyNames(pods), familyNames(services)
	if p == s {
		return nil
	}

	return Failures{{
		Field:   c.ServicesField,
		Problem: fmt.Sprintf("is %s while %s is %s", s, c.PodsField, p),
		Remedy:  "give both the same families in the same order, the primary one first",
	}}
}

func familyNames(subnets []subnet) string {
	var names []string

	for _, s := range subnets {
		name := "IPv6"
		if s.prefix.Addr().Is4() {
			name = "IPv4"
		}

		names = append(names, name)
	}

	return strings.Join(names, " and ")
}

func (c ClusterSubnets) outside(subnets []subnet) Failures {
	var failures Failures

	for field, text := range c.Outside {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			continue // a name
		}

		for _, s := range subnets {
			if s.prefix.Contains(addr.Unmap()) {
				failures = append(failures, Failure{
					Field:   s.field,
					Problem: fmt.Sprintf("%s contains %s, the address in %s", s.prefix, addr, field),
					Remedy:  "use a network that none of the machines is in",
				})
			}
		}
	}

	return failures.sorted()
}

// DNSDomain checks the DNS domain inside a cluster. Empty stands for the default.
func DNSDomain(field, domain string) Failures {
	if domain == "" || len(utilvalidation.IsDNS1123Subdomain(domain)) == 0 {
		return nil
	}

	return Failures{{
		Field: field, Problem: fmt.Sprintf("%q is not a DNS domain", domain),
		Remedy: "use lower-case letters, digits, - and ., like cluster.local",
	}}
}

// CertSANs checks names and addresses for certificates.
func CertSANs(field string, sans []string) Failures {
	var failures Failures

	for i, san := range sans {
		// A zone may be any text, and a certificate has none.
		addr, err := netip.ParseAddr(san)
		if err == nil && addr.Zone() == "" || len(utilvalidation.IsDNS1123Subdomain(strings.ToLower(san))) == 0 ||
			len(utilvalidation.IsWildcardDNS1123Subdomain(strings.ToLower(san))) == 0 {
			continue
		}

		failures = append(failures, Failure{
			Field:   fmt.Sprintf("%s[%d]", field, i),
			Problem: fmt.Sprintf("%q is neither an IP address nor a DNS name", san),
			Remedy:  "give names and addresses without scheme and port",
		})
	}

	return failures
}
