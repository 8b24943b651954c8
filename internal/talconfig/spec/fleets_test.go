package spec_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/validation"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterimport"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/desired"
	"github.com/talos-operator/talos-operator/internal/talconfig"
	"github.com/talos-operator/talos-operator/internal/talconfig/render"
	"github.com/talos-operator/talos-operator/internal/talconfig/spec"
)

var update = flag.Bool("update", false, "write the golden file anew")

// now is after the certificates of the test PKI begin.
var now = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// secretMark is in every secret of the test data.
const secretMark = "hunter2"

func testBundle(t *testing.T) *clusterstate.Bundle {
	t.Helper()

	raw, err := os.ReadFile(filepath.Join("..", "..", "machineconfig", "testdata", "secrets.yaml"))
	if err != nil {
		t.Fatal(err)
	}

	bundle, err := clusterstate.ParseBundle(raw)
	if err != nil {
		t.Fatal(err)
	}

	return bundle
}

func ageKeys() ([]age.Identity, error) {
	file, err := os.Open(filepath.Join("testdata", "fleets", "files", "age.txt"))
	if err != nil {
		return nil, err
	}
	defer file.Close()

	return age.ParseIdentities(file)
}

// importFile goes the way of the command.
func importFile(path string, bundle *clusterstate.Bundle, isNew bool) (*spec.Cluster, []render.File, error) {
	fleet, err := talconfig.Load(talconfig.Options{Path: path, Keys: ageKeys})
	if err != nil {
		return nil, nil, err
	}

	files, err := render.Nodes(fleet, render.Options{Secrets: bundle.Secrets()})
	if err != nil {
		return nil, nil, err
	}

	cluster, err := spec.Make(fleet, spec.Options{
		Namespace: "clusters", Files: files, Bundle: bundle, Now: now, IsNew: isNew,
	})

	return cluster, files, err
}

// contracts are files of each release, of which the operator has to find the version contract.
var contracts = []string{"talos-1.10", "talos-1.11-network", "talos-1.12-bonds", "json-patches"}

// TestFleets imports each talconfig.yaml, and compares what the operator renders from the objects with what genconfig
// writes. The golden file has what became of it.
func TestFleets(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join("testdata", "fleets", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}

	bundle := testBundle(t)

	var got strings.Builder

	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		if name == "talenv" {
			continue
		}

		t.Run(name, func(t *testing.T) {
			cluster, files, err := importFile(path, bundle, false)
			if err != nil {
				t.Fatal(err)
			}

			checkConfigs(t, files)
			checkSecrets(t, cluster, bundle)
			checkRendered(t, stored(t, cluster), bundle, files)
			checkImport(t, cluster, bundle, files, slices.Contains(contracts, name))
			summarize(&got, name, cluster)
		})
	}

	golden := filepath.Join("testdata", "fleets.txt")

	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}

	if string(want) != got.String() {
		t.Errorf("differs from %s; run with -update and read the difference:\n%s", golden, got.String())
	}
}

func checkConfigs(t *testing.T, files []render.File) {
	t.Helper()

	for _, file := range files {
		cfg, err := configloader.NewFromBytes(file.Content)
		if err != nil {
			t.Fatal(err)
		}

		if _, err := cfg.Validate(render.Metal, validation.WithLocal()); err != nil {
			t.Errorf("the machinery library refuses the config of %s: %v", file.Hostname, err)
		}
	}
}

// checkSecrets looks for secrets in everything that is no Secret.
func checkSecrets(t *testing.T, c *spec.Cluster, bundle *clusterstate.Bundle) {
	t.Helper()

	private := []string{secretMark, bundle.Secrets().Cluster.Secret, bundle.Secrets().TrustdInfo.Token, "PRIVATE KEY"}

	for _, o := range c.Objects() {
		if _, ok := o.(*corev1.Secret); ok {
			continue
		}

		raw, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}

		for _, secret := range private {
			if strings.Contains(string(raw), secret) {
				t.Errorf("%s has the secret %s:\n%s", o.GetObjectKind().GroupVersionKind().Kind, secret, raw)
			}
		}
	}

	for _, text := range append(c.Notes, fmt.Sprint(c.Machines)) {
		if strings.Contains(text, secretMark) {
			t.Errorf("a secret is shown: %s", text)
		}
	}
}

// stored is the cluster as an API server returns it.
func stored(t *testing.T, c *spec.Cluster) *spec.Cluster {
	t.Helper()

	out := &spec.Cluster{}

	for _, o := range c.Objects() {
		raw, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}

		var into runtime.Object

		switch o.(type) {
		case *corev1.Secret:
			s := &corev1.Secret{}
			out.Patches, into = append(out.Patches, s), s
		case *v1alpha1.TalosControlPlane:
			out.ControlPlane = &v1alpha1.TalosControlPlane{}
			into = out.ControlPlane
		case *v1alpha1.TalosWorker:
			w := &v1alpha1.TalosWorker{}
			out.Workers, into = append(out.Workers, w), w
		}

		if err := json.Unmarshal(raw, into); err != nil {
			t.Fatal(err)
		}
	}

	return out
}

// machinesOf calls a function for each machine of a cluster, with the sources of its machine config.
func machinesOf(c *spec.Cluster, bundle *clusterstate.Bundle, do func(string, desired.Sources)) {
	cp := c.ControlPlane
	state := clusterstate.NewState(bundle, desired.BundleConfig(cp), "")
	state.BundleConfig.KubePrism = "" // as in the state of an imported cluster

	each := func(worker *v1alpha1.TalosWorker, role v1alpha1.Role, entries []v1alpha1.MachineEntry) {
		for i := range entries {
			e := &entries[i]
			do(e.Name, desired.Sources{
				ControlPlane: cp, Worker: worker, State: state, From: c.From(worker, e),
				Machine: &v1alpha1.TalosMachine{
					ObjectMeta: metav1.ObjectMeta{Name: e.Name},
					Spec:       v1alpha1.TalosMachineSpec{Role: role, Network: e.Network, NodeOptions: e.NodeOptions},
				},
			})
		}
	}

	each(nil, v1alpha1.RoleControlPlane, cp.Spec.Machines)

	for _, w := range c.Workers {
		each(w, v1alpha1.RoleWorker, w.Spec.Machines)
	}
}

func checkRendered(t *testing.T, c *spec.Cluster, bundle *clusterstate.Bundle, files []render.File) {
	t.Helper()

	compared := 0

	machinesOf(c, bundle, func(name string, s desired.Sources) {
		file := fileOf(files, s)
		// The operator takes the disk from the wish, or chooses one: whichever it is, the config leaves it to Talos then.
		s.Disk = s.Install().Disk
		if s.Disk == "" {
			s.Disk = "/dev/vda"
		}

		rendered, err := machineconfig.Render(desired.Input(s))
		if err != nil {
			t.Errorf("%s: %v", name, err)

			return
		}

		difference, err := machineconfig.DiffWithSecrets(rendered.Bytes, file.Content)
		if err != nil || !difference.Equal() {
			t.Errorf("%s: %+v, %v", name, difference.Changes, err)
		}

		compared++
	})

	if compared != len(files) {
		t.Errorf("%d of %d machines were compared", compared, len(files))
	}
}

// fileOf finds the machine config of a machine by its place in the list: names may differ.
func fileOf(files []render.File, s desired.Sources) render.File {
	for _, file := range files {
		if file.Hostname == s.Machine.Name || strings.HasPrefix(file.Hostname, s.Machine.Name+".") ||
			s.Machine.Spec.Network != nil && s.Machine.Spec.Network.Hostname == file.Hostname {
			return file
		}
	}

	// Host names whose first parts are the same are numbered.
	for _, file := range files {
		if strings.HasPrefix(file.Hostname, "node.") &&
			strings.Contains(string(file.Content), "type: "+string(s.Machine.Spec.Role)) {
			return file
		}
	}

	return render.File{}
}

// checkImport does what the operator does before it takes a running cluster over.
func checkImport(
	t *testing.T, c *spec.Cluster, bundle *clusterstate.Bundle, files []render.File, withContract bool,
) {
	t.Helper()

	material, err := clusterimport.ReadMaterial(c.PKI.Data["talosconfig"], "", c.PKI.Data["secrets.yaml"])
	if err != nil || !material.Bundle.Equal(bundle) {
		t.Errorf("the Secret of the import: %v", err)
	}

	if c.ControlPlane.Spec.Import.SecretRef.Name != c.PKI.Name || c.ControlPlane.Annotations[v1alpha1.PausedAnnotation] == "" {
		t.Errorf("the control plane begins at once, or without its PKI: %+v", c.ControlPlane)
	}

	isFirst := true

	machinesOf(c, bundle, func(name string, s desired.Sources) {
		if s.Machine.Spec.Role != v1alpha1.RoleControlPlane {
			return
		}

		file := fileOf(files, s)

		live, err := clusterimport.Describe(file.Content, c.ControlPlane.Spec.TalosVersion)
		if err != nil {
			t.Fatal(err)
		}

		live.KubernetesVersion = c.ControlPlane.Spec.KubernetesVersion

		made := desired.BundleConfig(c.ControlPlane)
		if conflicts := clusterimport.Conflicts(made, live.BundleConfig); len(conflicts) > 0 {
			t.Errorf("%s: %v", name, conflicts)
		}

		// The configs of all contracts are rendered for it, so one machine of some files has to do.
		if !isFirst || !withContract {
			return
		}

		isFirst = false
		s.From, s.Disk = desired.Patches{}, "/dev/sda"

		contract, err := clusterimport.Contract(desired.Input(s), file.Content)
		if err != nil || contract != made.Contract {
			t.Errorf("%s: contract %s, not %s, %v", name, contract, made.Contract, err)
		}
	})
}

// summarize tells where the settings of a talconfig.yaml went.
func summarize(out *strings.Builder, name string, c *spec.Cluster) {
	fmt.Fprintf(out, "## %s\n", name)

	for _, m := range c.Machines {
		fmt.Fprintf(out, "%s %s: patches %v, secret %v\n", m.Name, m.Address, m.Patched, m.Hidden)
	}

	shared := []*v1alpha1.SharedNetwork{c.ControlPlane.Spec.MachineNetwork}
	for _, w := range c.Workers {
		shared = append(shared, w.Spec.MachineNetwork)
	}

	for i, n := range shared {
		if n != nil {
			fmt.Fprintf(out, "network of group %d: %s\n", i, marshal(n))
		}
	}

	for _, note := range c.Notes {
		fmt.Fprintln(out, "note: "+note)
	}

	out.WriteString("\n")
}

func marshal(o any) []byte {
	text, err := json.Marshal(o)
	if err != nil {
		return []byte(err.Error())
	}

	return text
}

// TestRefused: what is wrong, or what no object can describe, is an error that says so.
func TestRefused(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join("testdata", "bad", "*.yaml"))
	if err != nil || len(paths) < 5 {
		t.Fatal(paths, err)
	}

	bundle := testBundle(t)

	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		first, _, _ := strings.Cut(string(text), "\n")
		want := strings.TrimPrefix(first, "# want: ")

		_, _, err = importFile(path, bundle, false)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secretMark) {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
	}
}

// TestNewCluster: the state Secret has the same PKI, and says nothing of machines or a bootstrap.
func TestNewCluster(t *testing.T) {
	bundle := testBundle(t)

	cluster, _, err := importFile(filepath.Join("testdata", "fleets", "three-and-two.yaml"), bundle, true)
	if err != nil {
		t.Fatal(err)
	}

	state, err := clusterstate.Decode(cluster.PKI.Data)
	if err != nil {
		t.Fatal(err)
	}

	rt := state.Runtime
	if cluster.PKI.Name != "prod-state" || cluster.ControlPlane.Spec.Import != nil || !state.Bundle.Equal(bundle) ||
		rt.Bootstrap != nil || rt.ImportedAt != nil || len(rt.Machines) != 0 || rt.OwnerUID != "" {
		t.Errorf("got %s, %+v", cluster.PKI.Name, rt)
	}

	if err := state.CheckCluster("prod"); err != nil {
		t.Error(err)
	}
}
