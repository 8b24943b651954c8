package clusterimport_test

import (
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/internal/clusterimport"
)

// FuzzReadMaterial: what a user gives to import a cluster with is taken whole or refused without quoting it.
func FuzzReadMaterial(f *testing.F) {
	const secret = "c2VjcmV0LWtleS1vZi1hbi1hZG1pbg=="

	f.Add([]byte("context: a\ncontexts:\n  a: {endpoints: [127.0.0.1], ca: "+secret+", crt: "+secret+", key: "+secret+"}\n"), "a",
		[]byte("machine: {token: "+secret+"}\n"))
	f.Add([]byte("contexts: {a: }\n"), "", []byte("cluster: {}\n"))

	f.Fuzz(func(t *testing.T, talosconfig []byte, context string, pki []byte) {
		m, err := clusterimport.ReadMaterial(talosconfig, context, pki)

		switch {
		case err == nil && m.Bundle == nil:
			t.Error("accepted without a PKI")
		case err != nil && !strings.Contains(context, secret) && strings.Contains(err.Error(), secret):
			t.Errorf("the error quotes a secret: %v", err)
		}
	})
}
