package validation

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// ControlPlaneReplicas checks the number of control-plane nodes: an even number tolerates no more failures than the odd
// one below it, and two tolerate none.
func ControlPlaneReplicas(field string, replicas int) Failures {
	switch {
	case replicas < 1:
		return Failures{{
			Field: field, Problem: fmt.Sprintf("%d control-plane nodes make no cluster", replicas), Remedy: "use 1, 3 or 5",
		}}
	case replicas%2 == 0:
		return Failures{{
			Field:   field,
			Problem: fmt.Sprintf("%d control-plane nodes are an even number, which etcd gains nothing from", replicas),
			Remedy:  fmt.Sprintf("use %d or %d", replicas-1, replicas+1),
		}}
	default:
		return nil
	}
}

// Group is a group of machines whose names are generated.
type Group struct {
	// Field is the path of the group, for example spec.workers[0].
	Field string
	// Name of the group; cp for the control plane.
	Name     string
	Replicas int
}

// ControlPlaneGroup is the name of the control plane in machine names.
const ControlPlaneGroup = "cp"

// MachineName is the name of a generated machine.
func MachineName(cluster, group string, index int) string {
	return fmt.Sprintf("%s-%s-%d", cluster, group, index)
}

// MachineNames checks that the names that a cluster's groups make are valid host names and differ from each other.
func MachineNames(cluster string, groups []Group) Failures {
	var failures Failures

	owners := map[string]string{}
	groupNames := map[string]string{}

	for _, group := range groups {
		if other, taken := groupNames[group.Name]; taken {
			failures = append(failures, Failure{
				Field:   group.Field + ".name",
				Problem: fmt.Sprintf("%q is also the name of %s", group.Name, other),
				Remedy:  "give every group a name of its own; cp is the control plane's",
			})

			continue
		}

		groupNames[group.Name] = group.Field

		failures = append(failures, namesOf(cluster, group, owners)...)
	}

	return failures
}

func namesOf(cluster string, group Group, owners map[string]string) Failures {
	// The longest name decides for its whole group; a group of none today may grow tomorrow.
	longest := MachineName(cluster, group.Name, max(group.Replicas-1, 0))
	if problems := utilvalidation.IsDNS1123Label(longest); len(problems) > 0 {
		return Failures{{
			Field:   group.Field + ".name",
			Problem: fmt.Sprintf("makes the machine name %q, which is not a host name", longest),
			Remedy:  "use lower-case letters, digits and -, and at most 63 characters for the whole machine name",
		}}
	}

	for i := range group.Replicas {
		name := MachineName(cluster, group.Name, i)
		if other, taken := owners[name]; taken {
			return Failures{{
				Field:   group.Field + ".name",
				Problem: fmt.Sprintf("makes the machine name %s, which %s makes too", name, other),
				Remedy:  "rename the group",
			}}
		}

		owners[name] = group.Field
	}

	return nil
}

// Hostname checks the name of one node.
func Hostname(field, name string) Failures {
	if len(utilvalidation.IsDNS1123Label(name)) == 0 {
		return nil
	}

	return Failures{{
		Field: field, Problem: fmt.Sprintf("%q is not a host name", name),
		Remedy: "use lower-case letters, digits and -, at most 63 characters",
	}}
}

// Claim is an address that a machine uses.
type Claim struct {
	// Owner is what a person calls the claimant, for example "TalosMachine default/prod-cp-0". Claims of one owner do not
	// conflict.
	Owner string
	// Field is the path of the address in the object that is checked; empty for claims of other objects.
	Field   string
	Address string
}

// Addresses checks that addresses are addresses and that no two owners use one. Only claims with a field can fail.
func Addresses(claims []Claim) Failures {
	var failures Failures

	type use struct{ owner, field string }

	seen := map[netip.Addr][]use{}

	for _, claim := range claims {
		// A zone may be any text, and is known to one machine only.
		addr, err := netip.ParseAddr(claim.Address)
		if err != nil || addr.Zone() != "" {
			if claim.Field != "" {
				failures = append(failures, Failure{
					Field: claim.Field, Problem: fmt.Sprintf("%q is not an IP address", claim.Address),
					Remedy: "give the address of the machine's Talos API",
				})
			}

			continue
		}

		addr = addr.Unmap()
		seen[addr] = append(seen[addr], use{claim.Owner, claim.Field})
	}

	for addr, uses := range seen {
		for i, one := range uses {
			if one.field == "" {
				continue
			}

			at := slices.IndexFunc(uses, func(other use) bool { return other.owner != one.owner })
			if at < 0 || at == i {
				continue
			}

			failures = append(failures, Failure{
				Field: one.field, Problem: fmt.Sprintf("%s is also the address of %s", addr, uses[at].owner),
				Remedy: "give every machine an address of its own",
			})
		}
	}

	return failures.sorted()
}

// kubeletLabels are the prefixes under kubernetes.io and k8s.io that a kubelet may set on its own Node.
var (
	kubeletPrefixes = []string{"kubelet.kubernetes.io", "node.kubernetes.io"}
	kubeletLabels   = []string{
		"beta.kubernetes.io/arch", "beta.kubernetes.io/instance-type", "beta.kubernetes.io/os",
		"failure-domain.beta.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone",
		"kubernetes.io/arch", "kubernetes.io/hostname", "kubernetes.io/os",
		"topology.kubernetes.io/region", "topology.kubernetes.io/zone",
	}
)

// NodeLabels checks labels of a Kubernetes Node.
func NodeLabels(field string, labels map[string]string) Failures {
	var failures Failures

	for key, value := range labels {
		at := fmt.Sprintf("%s[%q]", field, key)

		if problems := utilvalidation.IsQualifiedName(key); len(problems) > 0 {
			failures = append(failures, Failure{Field: at, Problem: "is not a label key", Remedy: problems[0]})
		}

		if problems := utilvalidation.IsValidLabelValue(value); len(problems) > 0 {
			failures = append(failures, Failure{
				Field: at, Problem: fmt.Sprintf("%q is not a label value", value),
				Remedy: problems[0],
			})
		}
	}

	return failures.sorted()
}

// talosAnnotations are those in which Talos records what it has set on a Node.
var talosAnnotations = []string{
	constants.AnnotationOwnedAnnotations, constants.AnnotationOwnedLabels, constants.AnnotationOwnedTaints,
}

// NodeAnnotations checks annotations of a Kubernetes Node.
func NodeAnnotations(field string, annotations map[string]string) Failures {
	var failures Failures

	for key := range annotations {
		at := fmt.Sprintf("%s[%q]", field, key)

		switch problems := utilvalidation.IsQualifiedName(key); {
		case len(problems) > 0:
			failures = append(failures, Failure{Field: at, Problem: "is not an annotation key", Remedy: problems[0]})
		case key == v1alpha1.KeepNodeAnnotation: // of users
		case strings.HasPrefix(key, v1alpha1.AnnotationPrefix), slices.Contains(talosAnnotations, key):
			failures = append(failures, Failure{
				Field: at, Problem: "is an annotation that Talos or the operator keeps", Remedy: "use a prefix of your own",
			})
		}
	}

	return failures.sorted()
}

// WorkerLabels are NodeLabels plus what Kubernetes forbids workers: they label themselves with their kubelet's rights.
func WorkerLabels(field string, labels map[string]string) Failures {
	failures := NodeLabels(field, labels)

	for key := range labels {
		prefix, _, hasPrefix := strings.Cut(key, "/")
		if !hasPrefix || !isKubernetesDomain(prefix) || slices.Contains(kubeletLabels, key) ||
			slices.ContainsFunc(kubeletPrefixes, func(allowed string) bool {
				return prefix == allowed || strings.HasSuffix(prefix, "."+allowed)
			}) {
			continue
		}

		failures = append(failures, Failure{
			Field:   fmt.Sprintf("%s[%q]", field, key),
			Problem: "is a label that Kubernetes does not let a worker set on itself",
			Remedy:  "use a prefix of your own, or node.kubernetes.io",
		})
	}

	return failures.sorted()
}

func isKubernetesDomain(prefix string) bool {
	for _, domain := range []string{"kubernetes.io", "k8s.io"} {
		if prefix == domain || strings.HasSuffix(prefix, "."+domain) {
			return true
		}
	}

	return false
}

// NodeTaints checks taints of a Kubernetes Node. Talos knows one taint for each key.
func NodeTaints(field string, taints []corev1.Taint) Failures {
	var failures Failures

	seen := map[string]bool{}

	for i, taint := range taints {
		at := fmt.Sprintf("%s[%d]", field, i)

		if problems := utilvalidation.IsQualifiedName(taint.Key); len(problems) > 0 {
			failures = append(failures, Failure{
				Field: at + ".key", Problem: fmt.Sprintf("%q is not a taint key", taint.Key),
				Remedy: problems[0],
			})
		}

		if problems := utilvalidation.IsValidLabelValue(taint.Value); len(problems) > 0 {
			failures = append(failures, Failure{
				Field:   at + ".value",
				Problem: fmt.Sprintf("%q is not a taint value", taint.Value), Remedy: problems[0],
			})
		}

		switch taint.Effect {
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		default:
			failures = append(failures, Failure{
				Field:   at + ".effect",
				Problem: fmt.Sprintf("%q is not a taint effect", taint.Effect),
				Remedy:  "use NoSchedule, PreferNoSchedule or NoExecute",
			})
		}

		if seen[taint.Key] {
			failures = append(failures, Failure{
				Field:   at + ".key",
				Problem: fmt.Sprintf("%q occurs twice", taint.Key), Remedy: "Talos knows one taint for each key",
			})
		}

		seen[taint.Key] = true
	}

	return failures
}
