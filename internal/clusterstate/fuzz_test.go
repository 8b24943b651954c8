package clusterstate_test

import (
	"bytes"
	"maps"
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/internal/clusterstate"
)

// FuzzImportBundle: what a user gives as the PKI of a cluster is refused without quoting it, or reads the same once written.
func FuzzImportBundle(f *testing.F) {
	b := newBundle(f)
	f.Add(marshal(f, b))
	f.Add([]byte("machine: {}\n"))
	f.Add([]byte("cluster:\n  id: !!binary x\n"))

	hidden := secretsOf(b)

	f.Fuzz(func(t *testing.T, data []byte) {
		read, err := clusterstate.ImportBundle(data)
		if err != nil {
			for _, s := range hidden {
				if strings.Contains(err.Error(), s) {
					t.Errorf("the error quotes a secret: %v", err)
				}
			}

			return
		}

		written, err := read.Marshal()
		if err != nil {
			t.Fatal(err)
		}

		again, err := clusterstate.ParseBundle(written)
		if err != nil {
			t.Fatalf("refused its own: %v", err)
		}

		if second, err := again.Marshal(); err != nil || !bytes.Equal(written, second) {
			t.Errorf("not stable (%v)", err)
		}
	})
}

// FuzzDecode: a state Secret that was edited is refused, or reads the same once written.
func FuzzDecode(f *testing.F) {
	whole := encode(f, newState(f, newBundle(f)))

	f.Add(whole[clusterstate.KeyBundleConfig], whole[clusterstate.KeyState])
	f.Add([]byte(`{}`), []byte(`{"version":99}`))

	f.Fuzz(func(t *testing.T, config, state []byte) {
		data := maps.Clone(whole)
		data[clusterstate.KeyBundleConfig], data[clusterstate.KeyState] = config, state

		read, err := clusterstate.Decode(data)
		if err != nil {
			return
		}

		once, err := read.Encode()
		if err != nil {
			t.Fatalf("refused its own: %v", err)
		}

		again, err := clusterstate.Decode(once)
		if err != nil {
			t.Fatal(err)
		}

		twice, err := again.Encode()
		if err != nil || !bytes.Equal(once[clusterstate.KeyState], twice[clusterstate.KeyState]) ||
			!bytes.Equal(once[clusterstate.KeyBundleConfig], twice[clusterstate.KeyBundleConfig]) {
			t.Errorf("not stable (%v)", err)
		}
	})
}

// FuzzReadTalosconfig: a talosconfig is read or refused, whatever a Secret holds.
func FuzzReadTalosconfig(f *testing.F) {
	f.Add([]byte("context: a\ncontexts: {a: {endpoints: [127.0.0.1], target: 127.0.0.1}}\n"))
	f.Add([]byte("contexts: {a: }\n"))
	f.Add([]byte("contexts: {a: ~, b: {}}\n"))
	f.Add([]byte("x: &x\ncontexts: {a: *x}\n"))

	f.Fuzz(func(t *testing.T, data []byte) {
		if cfg, err := clusterstate.ReadTalosconfig(data); (cfg == nil) == (err == nil) {
			t.Errorf("%v, %v", cfg, err)
		}
	})
}
