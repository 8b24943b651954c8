package talconfig_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/talos-operator/talos-operator/internal/cli/exit"
	"github.com/talos-operator/talos-operator/internal/cli/talconfig"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/foreign"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

// running is a cluster of modelled nodes, with the talconfig.yaml of it.
type running struct {
	folder

	nodes []*node.Node
	// bundle is the PKI, workers is how many of the nodes are workers, the last ones.
	bundle  []byte
	workers int
	// reboots: each value of the talconfig.yaml needs a reboot.
	reboots bool
	// pods are static pods of all nodes.
	pods string
}

func newRunning(t *testing.T, workers int) *running {
	t.Helper()

	subnet := loopback.Subnet(t)
	r := &running{folder: folder{t: t, dir: t.TempDir()}, workers: workers}
	cluster := foreign.New(t, "prod", subnet+".1")
	registry := node.NewRegistry()

	for i := range 3 + workers {
		name, role := fmt.Sprintf("cp-%d", i+1), foreign.ControlPlane
		if i >= 3 {
			name, role = fmt.Sprintf("w-%d", i-2), foreign.Worker
		}

		n, err := node.New(node.Options{
			Name: name, Address: fmt.Sprintf("%s.%d", subnet, i+1), Dir: t.TempDir(), Modelled: true, Cluster: registry,
		})
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(n.Kill)

		if err := n.PowerOn(t.Context()); err != nil {
			t.Fatal(err)
		}

		r.nodes = append(r.nodes, n)
		cluster.Join(role, n.Address())
	}

	cluster.Bootstrap(r.nodes[0].Address(), 3)

	r.bundle = cluster.SecretsYAML()
	r.write("talsecret.yaml", string(r.bundle))
	r.configure("one")

	return r
}

// configure writes a talconfig.yaml that sets a field of all nodes.
func (r *running) configure(value string) {
	r.t.Helper()

	// What may cut a node off is not changed together with what needs a reboot.
	env, names := "TOKEN: hunter2hunter2", value+".example.org"
	if r.reboots {
		env, names = env+", ROUND: "+value, "prod.example.org"
	}

	text := "clusterName: prod\nendpoint: https://" + r.nodes[0].Address() + ":6443\nkubernetesVersion: v1.36.2\n" +
		"patches: [\"machine: {sysctls: {vm.max_map_count: " + value + "}, env: {" + env + "}, " +
		"certSANs: [" + names + "], pods: [" + r.pods + "]}\"]\nnodes:\n"

	for i, n := range r.nodes {
		text += fmt.Sprintf("  - {hostname: %s, ipAddress: %s, controlPlane: %t, installDisk: /dev/sda}\n", n.Name(),
			n.Address(), i < len(r.nodes)-r.workers)
	}

	r.write("talconfig.yaml", text)
}

func (r *running) mutating() []int {
	out := make([]int, len(r.nodes))
	for i, n := range r.nodes {
		out[i] = n.Faults().MutatingCalls()
	}

	return out
}

// holds returns how many nodes run with a value.
func (r *running) holds(value string) int {
	out := 0

	for _, n := range r.nodes {
		if raw, ok := n.LiveConfig(); ok && strings.Contains(string(raw), "vm.max_map_count: "+value+"\n") {
			out++
		}
	}

	return out
}

// boots are the IDs of the boots of all nodes.
func (r *running) boots() []string {
	var out []string
	for _, n := range r.nodes {
		out = append(out, n.Status().BootID)
	}

	return out
}

// hook calls a function for what is printed.
type hook struct {
	bytes.Buffer

	call func(text string)
}

func (h *hook) Write(p []byte) (int, error) {
	h.call(string(p))

	return h.Buffer.Write(p)
}

// follow runs a command with an output that acts on what is printed.
func (r *running) follow(out *hook, words ...string) error {
	return r.followIn(r.t.Context(), out, words...)
}

// interruptAt runs a command, and interrupts it when it prints a text.
func (r *running) interruptAt(text string, words ...string) error {
	r.t.Helper()

	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()

	out := &hook{call: func(line string) {
		if strings.Contains(line, text) {
			cancel()
		}
	}}

	err := r.followIn(ctx, out, words...)
	if ctx.Err() == nil {
		r.t.Errorf("%q was not printed: %s", text, out)
	}

	return err
}

func (r *running) followIn(ctx context.Context, out *hook, words ...string) error {
	cmd := talconfig.NewCommand(genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: out, ErrOut: &bytes.Buffer{}})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true

	args := make([]string, len(words))
	for i, word := range words {
		args[i] = strings.ReplaceAll(word, "FOLDER", r.dir)
	}

	cmd.SetArgs(args)

	return cmd.ExecuteContext(ctx)
}

// TestApply: nodes are changed one at a time, after a look, a confirmation and with a healthy etcd alone; what a failure
// leaves is done by the next run.
func TestApply(t *testing.T) {
	t.Parallel()

	r := newRunning(t, 0)
	words := []string{"apply", "-c", "FOLDER/talconfig.yaml", "--untried"}
	before := r.mutating()

	out, _, err := r.run(append(words, "--dry-run")...)
	if exit.CodeOf(err) != 2 || !strings.Contains(out, "3 nodes would change") || strings.Count(out, "reboots") != 3 ||
		strings.Contains(out, "hunter2") {
		t.Errorf("a dry run: %s, %v", out, err)
	}

	if _, _, err := r.run(words...); err == nil || !strings.Contains(err.Error(), "it was not confirmed") {
		t.Errorf("without an answer: %v", err)
	}

	if after := r.mutating(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("the nodes were written to: %v, %v", before, after)
	}

	boots := r.boots()

	if out := r.mustRun(append(words, "--yes")...); !strings.Contains(out, "(3 of 3)") || r.holds("one") != 3 ||
		slices.ContainsFunc(r.boots(), func(id string) bool { return slices.Contains(boots, id) }) {
		t.Errorf("%d nodes changed: %s", r.holds("one"), out)
	}

	if out := r.mustRun(append(words, "--yes")...); !strings.Contains(out, "0 nodes would change") {
		t.Errorf("a second time: %s", out)
	}

	r.configure("two")
	r.interrupt(words)

	if out := r.mustRun(append(words, "--yes")...); !strings.Contains(out, "(2 of 2)") || r.holds("two") != 3 {
		t.Errorf("%d nodes changed: %s", r.holds("two"), out)
	}
}

// TestApplyToAnotherNode: an address that is not that of the node is noticed before anything is changed.
func TestApplyToAnotherNode(t *testing.T) {
	t.Parallel()

	r := newRunning(t, 0)
	words := []string{"apply", "-c", "FOLDER/talconfig.yaml", "--untried", "--yes"}
	r.mustRun(words...)
	r.configure("two")

	before, text := r.mutating(), r.read("talconfig.yaml")
	second, third := "ipAddress: "+r.nodes[1].Address()+",", "ipAddress: "+r.nodes[2].Address()+","

	r.write("talconfig.yaml", strings.NewReplacer(second, third, third, second).Replace(text))

	for _, more := range []string{"--dry-run", "--node=cp-1"} {
		_, _, err := r.run(append(words, more)...)
		if err == nil || !strings.Contains(err.Error(), "runs as cp-3, and the talconfig.yaml has that address for cp-2") ||
			!strings.Contains(err.Error(), "nothing was changed") {
			t.Errorf("%s: %v", more, err)
		}
	}

	if after := r.mutating(); !slices.Equal(after, before) {
		t.Errorf("the nodes were written to: %v, %v", before, after)
	}

	r.write("talconfig.yaml", strings.NewReplacer("cp-3", "cp-4").Replace(text))

	if out, _, err := r.run(append(words, "--dry-run")...); exit.CodeOf(err) != 2 || !strings.Contains(out, "hostname") {
		t.Errorf("a new name: %s, %v", out, err)
	}
}

// TestApplyFollowsTheAddress: a node that responds at another of its addresses, once it has the new config, is found
// there.
func TestApplyFollowsTheAddress(t *testing.T) {
	t.Parallel()

	r := newRunning(t, 1)
	r.reboots = true
	r.configure("one")

	moves, address := r.nodes[3], r.nodes[3].Address()
	other := address[:strings.LastIndex(address, ".")] + ".77"
	r.write("talconfig.yaml", strings.Replace(r.read("talconfig.yaml"), address+",", "'"+address+", "+other+"',", 1))

	moved, before := make(chan error, 1), moves.Status().BootID
	out := &hook{call: func(text string) {
		if !strings.Contains(text, "w-1: applying") {
			return
		}

		go func() {
			// It has rebooted with its config, so the call that sent it is over.
			err := wait.Until(t.Context(), "it has rebooted", func(context.Context) error {
				return wait.True(r.holds("one") == 1 && moves.Status().BootID != before)
			})
			moved <- errors.Join(err, moves.Readdress(other), moves.PowerOn(t.Context()))
		}()
	}}

	err := r.follow(out, "apply", "-c", "FOLDER/talconfig.yaml", "--untried", "--no-drain", "--yes", "--node", "w-1")
	if err := errors.Join(err, wait.Done(t, "the machine has moved", moved)); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestApplyStopsAtBrokenPods: a static pod that does not run stops the command at the first node, which is not healthy by
// its own account, and the next run does not give it to another one.
func TestApplyStopsAtBrokenPods(t *testing.T) {
	t.Parallel()

	r := newRunning(t, 0)
	words := []string{"apply", "-c", "FOLDER/talconfig.yaml", "--untried", "--yes"}
	r.mustRun(words...)

	holds := func() int {
		return len(slices.DeleteFunc(slices.Clone(r.nodes), func(n *node.Node) bool {
			raw, _ := n.LiveConfig()

			return !strings.Contains(string(raw), "own:1-missing")
		}))
	}

	r.pods = "{apiVersion: v1, kind: Pod, metadata: {name: own}, spec: {containers: [{name: c, image: 'own:1-missing'}]}}"
	r.configure("one")

	// The kubelet has a minute to start its pods anew.
	_, _, err := r.run(append(words, "--timeout", "75s")...)
	if err == nil || !strings.Contains(err.Error(), "cp-1: it has not become healthy with the new config: it is not ready: staticPods") ||
		holds() != 1 {
		t.Errorf("%d nodes have the pod: %v", holds(), err)
	}

	_, _, err = r.run(words...)
	if err == nil || !strings.Contains(err.Error(), "cp-1 has its config already and is not healthy: it is not ready: staticPods") ||
		holds() != 1 {
		t.Errorf("the next run: %d nodes have the pod: %v", holds(), err)
	}
}

// interrupt cuts a node off once the first one is done: the next one is not changed.
func (r *running) interrupt(words []string) {
	r.t.Helper()

	lost := r.nodes[0]
	out := &hook{call: func(text string) {
		if !strings.Contains(text, "(1 of 3)") {
			return
		}

		// One that is done already: it is missed all the same.
		for _, n := range r.nodes {
			if strings.HasPrefix(text, n.Name()) {
				lost = n
			}
		}

		lost.Partition(true)
	}}

	err := r.follow(out, append(words, "--yes", "--timeout", "20s")...)
	if err == nil || !strings.Contains(err.Error(), "1 of 3 nodes were changed, and no other one is") ||
		strings.Count(out.String(), "no reboot, is tried first") != 3 {
		r.t.Errorf("a node was lost: %v\n%s", err, out.String())
	}

	if r.holds("two") != 1 {
		r.t.Errorf("%d nodes were changed", r.holds("two"))
	}

	if _, _, err := r.run(append(words, "--yes")...); err == nil || !strings.Contains(err.Error(), lost.Name()+": ") ||
		!strings.Contains(err.Error(), "nothing was changed") {
		r.t.Errorf("while a node is missing: %v", err)
	}

	lost.Partition(false)

	wait.For(r.t, "the node responds again", func(context.Context) error {
		if _, _, err := r.run(append(words, "--dry-run")...); exit.CodeOf(err) != 2 {
			return errors.Join(errors.New("it does not"), err)
		}

		return nil
	})
}
