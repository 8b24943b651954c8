package talos_test

import (
	"testing"

	"github.com/talos-operator/talos-operator/internal/talos"
)

// TestTellingUUID: what many boards share, or what is none, tells no machine from another.
func TestTellingUUID(t *testing.T) {
	t.Parallel()

	for _, tc := range []struct {
		text  string
		tells bool
	}{
		{"4c4c4544-0042-3510-8054-b4c04f4a4e32", true},
		{"4C4C4544-0042-3510-8054-B4C04F4A4E32", true},
		{"", false},
		{"Not Settable", false},
		{"00000000-0000-0000-0000-000000000000", false},
		{"FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF", false},
		{"58585858-5858-5858-5858-585858585858", false},
		{"03000200-0400-0500-0006-000700080009", false},
		{"12345678-1234-5678-90AB-CDDEEFAABBCC", false},
		{"61F39712-FFFF-FFFF-FFFF-FFFFFFFFFFFF", false},
	} {
		want := ""
		if tc.tells {
			want = tc.text
		}

		if got := talos.TellingUUID(tc.text); got != want {
			t.Errorf("%q is %q, want %q", tc.text, got, want)
		}
	}
}
