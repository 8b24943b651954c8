package patchsource_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/machineconfig/netconfig"
	"github.com/talos-operator/talos-operator/internal/patchsource"
)

const wireGuardKey = "OJ34O6J1z4ZZB+t16c+vYrzIrKddxyU3Z2eLhwYzqE8="

// tunnelled is a machine with a WireGuard interface whose private key is in the Secret shut.
func tunnelled() *v1alpha1.TalosMachine {
	_, _, m := owners()
	m.Spec.Network = &v1alpha1.MachineNetwork{Interfaces: []v1alpha1.NetworkInterface{{
		Name:      "wg0",
		WireGuard: &v1alpha1.WireGuard{PrivateKeyFrom: v1alpha1.SecretKeyReference{Name: "shut", Key: "k"}},
	}}}

	return m
}

// TestNetworkValue: the value of a field is what its Secret holds, without the end of the line that editors add.
// Another version of the Secret is another version of what was read.
func TestNetworkValue(t *testing.T) {
	t.Parallel()

	cp, _, _ := owners()
	m := tunnelled()

	if !patchsource.Any(cp, nil, m) {
		t.Error("the Secret would not be read again")
	}

	got, err := patchsource.For(t.Context(), newAPI(secret("shut", "k", wireGuardKey+"\n")), cp, nil, m)
	want := netconfig.Values{"network.interfaces[0].wireguard.privateKeyFrom": wireGuardKey}

	if diff := cmp.Diff(want, got.Values); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}

	later := secret("shut", "k", wireGuardKey)
	later.ResourceVersion = "2"

	next, err := patchsource.For(t.Context(), newAPI(later), cp, nil, m)
	if err != nil || got.Version == "" || next.Version == got.Version {
		t.Errorf("versions %q and %q, %v", got.Version, next.Version, err)
	}
}

// TestNetworkValueRefused: what is missing is named with the field that needs it, and no value is quoted.
func TestNetworkValueRefused(t *testing.T) {
	t.Parallel()

	kept := secret("shut", "k", wireGuardKey)
	kept.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "TalosMachine"}}

	const field = "spec.network.interfaces[0].wireguard.privateKeyFrom of TalosMachine m"

	for name, tt := range map[string]struct {
		api    *api
		reason string
		says   []string
	}{
		"no Secret": {newAPI(), v1alpha1.ReasonPatchSourceNotFound, []string{"Secret shut does not exist", field, "nothing was sent to m: create it"}},
		"no key": {
			newAPI(secret("shut", "other", wireGuardKey)), v1alpha1.ReasonPatchSourceNotFound, []string{"has no key k", field, "add the key"},
		},
		"no key of WireGuard": {
			newAPI(secret("shut", "k", "aHVzaC1odXNo")), v1alpha1.ReasonInvalidPatch, []string{"32 bytes in base64", field, "correct it"},
		},
		"reserved": {newAPI(kept), v1alpha1.ReasonInvalidPatch, []string{"a Secret of the operator"}},
	} {
		cp, _, _ := owners()

		_, err := patchsource.For(t.Context(), tt.api, cp, nil, tunnelled())
		if failure.Reason(err) != tt.reason || strings.Contains(err.Error(), "aHVzaC") || strings.Contains(err.Error(), wireGuardKey) {
			t.Errorf("%s: %v", name, err)

			continue
		}

		for _, part := range tt.says {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", name, err, part)
			}
		}
	}
}
