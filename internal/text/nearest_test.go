package text_test

import (
	"testing"

	"github.com/talos-operator/talos-operator/internal/text"
)

// TestNearest: the name that differs least is suggested, in whatever order the names are; one that differs much is not.
func TestNearest(t *testing.T) {
	t.Parallel()

	names := []string{"sysfs", "kubelet", "sysctls", "install", "env"}

	for name, want := range map[string]string{
		"kublet": "kubelet", "KUBELET": "kubelet", "sysctl": "sysctls", "instal": "install", "surroundings": "", "": "",
		"sysf": "sysfs", "frobnicate": "",
	} {
		if got := text.Nearest(name, names); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}

	if got := text.Nearest("ab", []string{"b", "a"}); got != "a" {
		t.Errorf("of two that are as near: got %q, want the first of the alphabet", got)
	}
}
