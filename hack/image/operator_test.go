//go:build long

package main

import "testing"

// TestOperatorImage builds what is released. To compile the operator for two platforms takes minutes: make image-test.
func TestOperatorImage(t *testing.T) {
	first := makeImage(t, "../..", operator)
	first.check("talos-operator")

	if second := makeImage(t, "../..", operator); second.digest != first.digest {
		t.Errorf("the first image is %s, the second one %s", first.digest, second.digest)
	}
}
