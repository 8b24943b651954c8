package validation

import (
	"encoding/base64"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

// Patches parses config patches. fields are the paths of the cluster's, the group's and the machine's patches.
func Patches(fields [3]string, patches machineconfig.Patches) Failures {
	var failures Failures

	for i, one := range []machineconfig.Patches{
		{Cluster: patches.Cluster}, {Group: patches.Group}, {Machine: patches.Machine},
	} {
		var p *machineconfig.PatchError
		if errors.As(machineconfig.CheckPatches(one), &p) {
			failures = append(failures, Failure{
				Field: fmt.Sprintf("%s[%d]", fields[i], p.Index), Problem: p.Problem, Remedy: "correct the patch",
			})
		}
	}

	return failures
}

// PEM returns what a field holds as PEM: people write PEM, and Talos configs hold it in base64.
func PEM(text string) []byte {
	trimmed := strings.TrimSpace(text)
	if strings.HasPrefix(trimmed, "-----BEGIN") {
		return []byte(trimmed + "\n")
	}

	if decoded, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(trimmed), "")); err == nil {
		return decoded
	}

	return []byte(text)
}

// CertificateAuthority checks a CA that a user brings along, PEM or base64 of it. Neither given is fine.
func CertificateAuthority(field, cert, key string, now time.Time) Failures {
	if cert == "" && key == "" {
		return nil
	}

	certField, keyField := field+".crt", field+".key"

	switch {
	case key == "":
		return Failures{{
			Field: keyField, Problem: "the CA certificate is given without its key",
			Remedy: "give both, or neither to have a CA made",
		}}
	case cert == "":
		return Failures{{
			Field: certField, Problem: "the CA key is given without its certificate",
			Remedy: "give both, or neither to have a CA made",
		}}
	}

	if err := clusterstate.CheckCA(PEM(cert), PEM(key), now); err != nil {
		return Failures{{Field: field, Problem: err.Error(), Remedy: "give a CA certificate and its key, both PEM"}}
	}

	return nil
}

// MachineToken checks a machine token that a user brings along. Empty is fine.
func MachineToken(field, token string) Failures {
	if token == "" || clusterstate.IsMachineToken(token) {
		return nil
	}

	return Failures{{
		Field: field, Problem: "is not a machine token", Remedy: "use 8 to 128 printable characters without blanks",
	}}
}

// KubeletImage checks that the tag of a kubelet image, if it has one, is the Kubernetes version.
func KubeletImage(field, image, kubernetes string) Failures {
	last := image[strings.LastIndex(image, "/")+1:]
	if strings.Contains(last, "@") {
		return nil
	}

	_, tag, tagged := strings.Cut(last, ":")
	if !tagged || tag == kubernetes {
		return nil
	}

	return Failures{{
		Field:   field,
		Problem: fmt.Sprintf("the tag %s is not the Kubernetes version %s", tag, kubernetes),
		Remedy:  "leave the tag out, or change the version",
	}}
}

// Values are fields by their path.
type Values map[string]any

// Immutable compares the fields that cannot change once a cluster exists: old against desired. An old value that is
// empty is unknown and allows anything, so callers fill in defaults on both sides first.
func Immutable(old, wanted Values) Failures {
	var failures Failures

	for field, before := range old {
		if isEmpty(before) || reflect.DeepEqual(before, wanted[field]) {
			continue
		}

		failures = append(failures, Failure{
			Field: field,
			Problem: fmt.Sprintf("changed from %v to %v, but cannot change once the cluster exists",
				before, shown(wanted[field])),
			Remedy: fmt.Sprintf("set it back to %v", before),
		})
	}

	return failures.sorted()
}

func isEmpty(v any) bool {
	if v == nil {
		return true
	}

	value := reflect.ValueOf(v)

	switch value.Kind() { // everything else is empty only when zero
	case reflect.Slice, reflect.Map:
		return value.Len() == 0
	default:
		return value.IsZero()
	}
}

func shown(v any) any {
	if isEmpty(v) {
		return "nothing"
	}

	return v
}

func (f Failures) sorted() Failures {
	slices.SortStableFunc(f, func(a, b Failure) int { return strings.Compare(a.String(), b.String()) })

	return f
}
