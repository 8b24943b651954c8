package quorum_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/siderolabs/crypto/x509"

	"github.com/talos-operator/talos-operator/lab/node/quorum"
)

// TestModelFromOutside: what an observer is told of the members of a modelled cluster, of its writes, and of another cluster
// that is founded under the same PKI.
func TestModelFromOutside(t *testing.T) {
	m, dir := quorum.NewModel(), t.TempDir()
	ca := &x509.PEMEncodedCertificateAndKey{Crt: []byte("a certificate")}
	start := func(name string) quorum.Start {
		return quorum.Start{
			Dir: filepath.Join(dir, name), Name: name, Address: name, CA: ca, Peers: func() []string { return []string{"a", "b"} },
		}
	}

	var founded []quorum.Founding

	cancel := m.Founded(func(f quorum.Founding) { founded = append(founded, f) })

	a, err := m.Bootstrap(t.Context(), start("a"))
	if err != nil {
		t.Fatal(err)
	}

	if _, err := m.Join(t.Context(), start("b")); err != nil {
		t.Fatal(err)
	}

	view := func(name string) (quorum.View, quorum.MemberView) {
		t.Helper()

		for _, c := range m.Clusters() {
			for _, e := range c.Members {
				if e.Name == name {
					return c, e
				}
			}
		}

		t.Fatalf("no cluster has %s", name)

		return quorum.View{}, quorum.MemberView{}
	}

	c, one := view("a")
	if len(c.Members) != 2 || !one.Serving || !one.Data || one.Learner || one.Dir != start("a").Dir {
		t.Errorf("%+v of %+v", one, c)
	}

	if !m.Write(c.ID, "kept") {
		t.Error("a cluster with quorum takes no write")
	}

	a.Kill()

	if c, one = view("a"); one.Serving || !one.Data || m.Write(c.ID, "lost") || len(c.Writes) != 1 {
		t.Errorf("%+v of %+v", one, c)
	}

	if err := os.RemoveAll(start("a").Dir); err != nil {
		t.Fatal(err)
	}

	if _, one = view("a"); one.Data {
		t.Errorf("%+v has data although its disk is empty", one)
	}

	if _, err := m.Bootstrap(t.Context(), start("a2")); err != nil {
		t.Fatal(err)
	}

	second, _ := view("a2")

	cancel()

	if _, err := m.Bootstrap(t.Context(), start("a3")); err != nil {
		t.Fatal(err)
	}

	switch {
	case len(founded) != 2 || len(founded[0].Others) != 0 || len(founded[1].Others) != 1:
		t.Errorf("founded: %+v", founded)
	case founded[1].Cluster != second.ID || founded[1].Others[0].ID != c.ID || second.Authority != c.Authority:
		t.Errorf("founded: %+v beside %+v", founded[1], c)
	}
}
