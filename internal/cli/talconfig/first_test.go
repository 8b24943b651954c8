package talconfig_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "k8s.io/client-go/kubernetes"

	"github.com/talos-operator/talos-operator/internal/cli/exit"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/foreign"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

// fresh are machines in maintenance mode, and the talconfig.yaml of their cluster.
type fresh struct {
	*running

	cluster *foreign.Cluster
}

// newFresh powers three control planes and some workers on; the disks of the workers hold another system.
func newFresh(t *testing.T, workers ...string) *fresh {
	t.Helper()

	subnet := loopback.Subnet(t)
	f := &fresh{
		running: &running{folder: folder{t: t, dir: t.TempDir()}, workers: len(workers)},
		cluster: foreign.New(t, "prod", subnet+".1"),
	}
	registry := node.NewRegistry()

	for i, name := range append([]string{"cp-1", "cp-2", "cp-3"}, workers...) {
		disk := node.Disk{Name: "sda", Size: 20 * node.GiB, Model: "LAB DISK", Transport: "sata"}
		if slices.Contains(workers, name) {
			disk.Content = []string{"ext4"}
		}

		n, err := node.New(node.Options{
			Name: name, Address: fmt.Sprintf("%s.%d", subnet, i+1), Dir: t.TempDir(), Modelled: true, Cluster: registry,
			Disks: []node.Disk{disk},
		})
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(n.Kill)

		if err := n.PowerOn(t.Context()); err != nil {
			t.Fatal(err)
		}

		f.nodes = append(f.nodes, n)
		f.maintenance(n)
	}

	f.bundle = f.cluster.SecretsYAML()
	f.write("talsecret.yaml", string(f.bundle))
	f.configure("one")

	return f
}

// maintenance waits until a machine is in maintenance mode.
func (f *fresh) maintenance(n *node.Node) {
	f.t.Helper()

	pool := talos.NewPool()
	defer pool.Close()

	wait.For(f.t, n.Name()+" is in maintenance mode", func(ctx context.Context) error {
		if probe, err := pool.Probe(ctx, n.Address(), nil); probe.State != talos.StateMaintenance {
			return fmt.Errorf("state %d: %w", probe.State, err)
		}

		return nil
	})
}

// wipe makes a machine forget everything, behind the back of its cluster.
func (f *fresh) wipe(n *node.Node) {
	f.t.Helper()
	n.Kill()

	if err := n.WipeDisk(); err != nil {
		f.t.Fatal(err)
	}

	if err := n.PowerOn(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}

	f.maintenance(n)
}

// reset has a machine forget its config and its data, and boot the Talos that stays on its disk.
func (f *fresh) reset(bundle *clusterstate.Bundle, n *node.Node) {
	f.t.Helper()

	access, err := bundle.TalosCredentials(wait.Now(), time.Hour)
	if err != nil {
		f.t.Fatal(err)
	}

	pool := talos.NewPool()
	defer pool.Close()

	at, err := pool.Node(f.t.Context(), talos.NodeRef{
		Key: n.Name(), Address: n.Address(), Credentials: talos.Credentials{CA: access.CA, Cert: access.Cert, Key: access.Key},
	})
	if err != nil {
		f.t.Fatal(err)
	}

	if err := at.Reset(f.t.Context(), talos.ResetOptions{Reboot: true}); err != nil {
		f.t.Fatal(err)
	}

	f.maintenance(n)
}

// refused runs a command that changes nothing, and compares why.
func (f *fresh) refused(want string, words ...string) {
	f.t.Helper()

	before := f.mutating()

	if out, _, err := f.run(words...); err == nil || !strings.Contains(err.Error(), want) {
		f.t.Errorf("%v: %v, want %s\n%s", words, err, want, out)
	}

	if after := f.mutating(); !slices.Equal(after, before) {
		f.t.Errorf("%v: the nodes were written to: %v, %v", words, before, after)
	}
}

var applyFirst = []string{"apply", "-c", "FOLDER/talconfig.yaml", "--yes", "--first-config", "--new-cluster"}

// TestFirstConfig: machines in maintenance mode get their first config where the user says so, one at a time, on a disk
// that holds nothing or that the user names, and only those machines that the plan shows.
func TestFirstConfig(t *testing.T) {
	t.Parallel()

	f := newFresh(t, "w-1")
	wiped := with(applyFirst, "--wipe", "w-1")

	f.refused("no control plane of the talconfig.yaml proves that the cluster runs: add --new-cluster",
		with(applyAll, "--yes", "--first-config", "--wipe", "w-1")...)
	f.refused("is in maintenance mode: --first-config configures and installs it", with(applyAll, "--yes")...)
	f.refused("disk /dev/sda holds another installation or data (ext4): nothing was installed; choose another disk, or "+
		"overwrite it by --wipe w-1", applyFirst...)
	f.refused("--wipe w-2: no node of the talconfig.yaml", with(applyFirst, "--wipe", "w-1,w-2")...)
	f.refused("--wipe w-1: the node does not get its first config", with(wiped, "--node", "cp-1")...)

	out, _, err := f.run(with(wiped, "--dry-run")...)
	if exit.CodeOf(err) != 2 || strings.Count(out, "is installed to /dev/sda ") != 3 ||
		!strings.Contains(out, "is installed to /dev/sda, which is wiped") || !strings.Contains(out, "(ext4)") ||
		!strings.Contains(out, f.nodes[0].UUID()) || !strings.Contains(out, f.nodes[0].Status().MaintenanceFingerprint) {
		t.Errorf("the plan: %v, %s", err, out)
	}

	for _, n := range f.nodes {
		if n.Faults().Calls("ApplyConfiguration") > 0 {
			t.Errorf("%s got the keys of the cluster without a confirmation", n.Name())
		}
	}

	f.nodes[0].Faults().Fail("ApplyConfiguration", codes.InvalidArgument, 1, 1)
	f.refused("cp-1: the machine refuses the config in a dry run", wiped...)
	f.exchanged(wiped)

	f.configured(wiped)

	before := f.mutating()

	if out, errOut, err := f.run(with(wiped, "--node", "w-1")...); err != nil || !strings.Contains(out, "0 nodes would change") ||
		!strings.Contains(errOut, "--wipe w-1 has no effect") || !slices.Equal(f.mutating(), before) {
		t.Errorf("the same command again: %v, %s%s", err, out, errOut)
	}

	f.refused("--wipe w-1: the node does not get its first config", with(applyAll, "--yes", "--wipe", "w-1")...)

	for _, n := range f.nodes {
		if s := n.Status(); !s.Installed {
			t.Errorf("%s is not installed: %+v", n.Name(), s)
		}
	}

	f.known()
}

// configured: control planes get their first config one after the other, and the worker gets its own once etcd runs.
func (f *fresh) configured(words []string) {
	f.t.Helper()

	f.nodes[0].Partition(true)
	f.refused("cp-1: the Talos API at "+f.nodes[0].Address()+" does not respond", words...)
	f.refused("if its first config has cut it off, reset it", words...)
	f.nodes[0].Partition(false)
	f.maintenance(f.nodes[0])

	f.refused("workers get their first config once it is healthy: run the command again with --bootstrap; "+
		"0 of 1 machines got their first config", with(words, "--node", "w-1")...)

	out, _, err := f.run(words...)
	if err == nil || !strings.Contains(err.Error(), "run the command again with --bootstrap; 3 of 4 machines got their first config") ||
		!strings.Contains(out, "Workers get it only once etcd is healthy: add --bootstrap.") ||
		!strings.Contains(out, "cp-1 is configured (1 of 4)") || !strings.Contains(out, "cp-3 is configured (3 of 4)") || f.holds("one") != 3 {
		f.t.Errorf("%d machines are configured: %v, %s", f.holds("one"), err, out)
	}

	f.cluster.Bootstrap(f.nodes[0].Address(), 3)

	out = f.mustRun(with(words, "--bootstrap", "-o", "FOLDER/out")...)
	if !strings.Contains(out, "w-1 is configured (1 of 1)") || f.holds("one") != 4 {
		f.t.Errorf("%d machines are configured: %s", f.holds("one"), out)
	}
}

// exchanged: another machine has the address once the plan is made. It does not get the keys of the cluster.
func (f *fresh) exchanged(words []string) {
	f.t.Helper()

	n, sent := f.nodes[0], f.nodes[0].Faults().Calls("ApplyConfiguration")
	out := &hook{call: func(text string) {
		if !strings.Contains(text, "would get the first config") {
			return
		}

		n.Kill()

		if err := n.PowerOn(f.t.Context()); err != nil {
			f.t.Error(err)
		}

		f.maintenance(n)
	}}

	if err := f.follow(out, words...); err == nil || !strings.Contains(err.Error(), "another one has its address") {
		f.t.Errorf("another certificate: %v", err)
	}

	if got := n.Faults().Calls("ApplyConfiguration"); got != sent {
		f.t.Errorf("it got a config")
	}
}

// known: machines that were wiped behind the back of the cluster are refused until it has forgotten them.
func (f *fresh) known() {
	f.t.Helper()

	bundle, err := clusterstate.ParseBundle(f.bundle)
	if err != nil {
		f.t.Fatal(err)
	}

	cfg, err := bundle.RESTConfig("https://"+f.nodes[0].Address()+":6443", wait.Now(), time.Hour)
	if err != nil {
		f.t.Fatal(err)
	}

	api, err := kube.NewForConfig(cfg)
	if err != nil {
		f.t.Fatal(err)
	}

	wait.For(f.t, "w-1 registers", func(ctx context.Context) error {
		_, err := api.CoreV1().Nodes().Get(ctx, "w-1", metav1.GetOptions{})

		return err
	})

	worker := with(applyFirst, "--node", "w-1", "--wipe", "w-1")

	f.reset(bundle, f.nodes[3])
	f.refused("the machine has a Talos on /dev/sda that was configured before (EPHEMERAL)", worker...)
	f.refused("talos.experimental.wipe=system", with(applyFirst, "--node", "w-1")...)

	f.wipe(f.nodes[3])

	right := f.read("talconfig.yaml")
	f.write("talconfig.yaml", strings.Replace(right, "v1.36.2", "v1.36.3", 1))
	f.refused("w-1: cp-1 runs another version of machine.kubelet.image", worker...)
	f.write("talconfig.yaml", right)
	f.refused("the cluster already has the Node w-1 of it", worker...)

	good, err := bundle.Kubeconfig(clusterstate.KubeconfigParams{ClusterName: "prod", Server: cfg.Host}, wait.Now())
	if err != nil {
		f.t.Fatal(err)
	}

	f.write("good", string(good))
	f.write("silent", strings.ReplaceAll(string(good), ":6443", ":6444"))
	f.refused("it is unknown whether the cluster has a Node of it", with(worker, "--kubeconfig", "FOLDER/silent")...)

	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"apiVersion": "v1", "kind": "NodeList", "items": []}`))
	}))
	defer other.Close()

	f.write("other", "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c}}]\n"+
		"clusters: [{name: c, cluster: {server: '"+other.URL+"'}}]\n")
	f.refused("check --kubeconfig", with(worker, "--kubeconfig", "FOLDER/other")...)

	if err := api.CoreV1().Nodes().Delete(f.t.Context(), "w-1", metav1.DeleteOptions{}); err != nil {
		f.t.Fatal(err)
	}

	if out := f.mustRun(with(worker, "--kubeconfig", "FOLDER/good")...); !strings.Contains(out, "w-1 is configured (1 of 1)") {
		f.t.Errorf("after the Node was deleted: %s", out)
	}

	f.wipe(f.nodes[2])
	f.refused("etcd already has the member", with(applyFirst, "--node", "cp-3")...)
}
