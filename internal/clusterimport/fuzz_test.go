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

// FuzzDescribe: the configuration of a node is described, or refused without being quoted. The version that it tells is
// one, or nothing.
func FuzzDescribe(f *testing.F) {
	const secret = "c2VjcmV0LWtleS1vZi1hbi1hZG1pbg=="

	f.Add([]byte("machine: {token: "+secret+", install: {image: a:v1}, kubelet: {image: \"a/kubelet:v1.36.2-fat@sha256:b\"}}\n"+
		"cluster: {clusterName: a, secret: "+secret+", controlPlane: {endpoint: https://a:6443}}\n"), "v1.36.2")
	f.Add([]byte("machine: ["+secret+"]\n"), "latest")
	f.Add([]byte("machine: &a {b: *a}\n---\nmachine: {kubelet: "+secret+"}\n"), "v1.36.2\n")
	f.Add([]byte("cluster: {network: {cni: {urls: ["+secret+"]}}}\n"), "")

	f.Fuzz(func(t *testing.T, config []byte, running string) {
		if _, err := clusterimport.Describe(config, "v1.13.9"); err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("the error quotes a secret: %v", err)
		}

		if _, err := clusterimport.ImagesOf(config); err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("the error quotes a secret: %v", err)
		}

		if v := clusterimport.KubernetesVersion(running, config); v != "" && clusterimport.Version(v) != v {
			t.Errorf("%q is the version of %q", v, running)
		}
	})
}
