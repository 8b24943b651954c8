package talconfig_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/talos-operator/talos-operator/internal/cli/exit"
)

// called are how often the control planes were asked to bootstrap etcd.
func (f *fresh) called() []int {
	var out []int
	for _, n := range f.nodes[:3] {
		out = append(out, n.Faults().Calls("Bootstrap"))
	}

	return out
}

// record is the record of the bootstrap, empty if there is none.
func (f *fresh) record() string {
	f.t.Helper()

	raw, err := os.ReadFile(f.path("prod-bootstrap.json"))
	if err != nil && !os.IsNotExist(err) {
		f.t.Fatal(err)
	}

	return string(raw)
}

// exchange swaps the lines of two nodes in the talconfig.yaml.
func (f *fresh) exchange(a, b string) {
	f.t.Helper()

	lines := strings.Split(f.read("talconfig.yaml"), "\n")
	line := func(name string) int {
		return slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, "hostname: "+name+",") })
	}

	i, j := line(a), line(b)
	lines[i], lines[j] = lines[j], lines[i]
	f.write("talconfig.yaml", strings.Join(lines, "\n"))
}

// TestBootstrap: etcd is bootstrapped on one node, once all control planes have reported that they have no etcd data. The
// node is recorded before it is asked, and no run asks another one.
func TestBootstrap(t *testing.T) {
	t.Parallel()

	f := newFresh(t, "w-1")
	words := with(applyFirst, "--bootstrap", "--wipe", "w-1", "-o", "FOLDER/out")

	f.unproven(words)
	f.unreachable(words)

	f.refused("no control plane of the talconfig.yaml proves that the cluster runs: add --new-cluster",
		with(applyAll, "--yes", "--first-config", "--bootstrap", "--wipe", "w-1", "-o", "FOLDER/out")...)

	if got := f.called(); !slices.Equal(got, []int{0, 0, 0}) || f.record() != "" {
		t.Errorf("without evidence: %v calls, record %s", got, f.record())
	}

	if _, _, err := f.run(append(slices.Clone(words), "--dry-run")...); exit.CodeOf(err) != 2 || f.record() != "" {
		t.Errorf("a dry run: %v, record %s", err, f.record())
	}

	f.nodes[0].Faults().Fail("Bootstrap", codes.Unavailable, 1, 1)

	if _, _, err := f.run(words...); err == nil {
		t.Error("the call failed without an error")
	}

	if got := f.called(); !slices.Equal(got, []int{1, 0, 0}) || !strings.Contains(f.record(), `"machine": "cp-1"`) ||
		strings.Contains(f.record(), "establishedAt") {
		t.Errorf("after a call that failed: %v calls, record %s", got, f.record())
	}

	f.anotherMachine(words)
	f.exchange("cp-1", "cp-3")

	out := f.mustRun(words...)
	if !slices.Equal(f.called(), []int{2, 0, 0}) || !strings.Contains(out, "etcd runs: 3 voting members agree") ||
		!strings.Contains(f.record(), "establishedAt") {
		t.Errorf("again: %v calls, record %s, %s", f.called(), f.record(), out)
	}

	if runs, sent := strings.Index(out, "etcd runs"), strings.Index(out, "w-1: sending its first config"); runs < 0 || sent < runs {
		t.Errorf("the worker did not wait for etcd: %s", out)
	}

	f.alreadyBootstrapped()
	f.lost(with(applyFirst, "--bootstrap", "-o", "FOLDER/out"))
}

// alreadyBootstrapped: there is nothing to do where etcd runs, which is no failure and no change. Without a record there
// is one afterwards.
func (f *fresh) alreadyBootstrapped() {
	f.t.Helper()

	words := with(applyAll, "--bootstrap", "-o", "FOLDER/out")

	for _, dryRun := range []bool{true, false} {
		for _, keeps := range []bool{true, false} {
			before := f.called()

			if !keeps {
				if err := os.Remove(f.path("prod-bootstrap.json")); err != nil {
					f.t.Fatal(err)
				}
			}

			out, _, err := f.run(with(words, fmt.Sprintf("--dry-run=%t", dryRun))...)
			if err != nil || !strings.Contains(out, "etcd is already bootstrapped: nothing to do.") {
				f.t.Errorf("dry run %t, with a record %t: %v, %s", dryRun, keeps, err, out)
			}

			if is := strings.Contains(f.record(), "establishedAt"); is != (keeps || !dryRun) || !slices.Equal(f.called(), before) {
				f.t.Errorf("dry run %t, with a record %t: record %s, calls %v", dryRun, keeps, f.record(), f.called())
			}

			if dryRun && !keeps {
				f.mustRun(words...)
			}
		}
	}
}

// anotherMachine: the record is of a machine that is replaced, or not listed any more.
func (f *fresh) anotherMachine(words []string) {
	f.t.Helper()

	right := f.record()
	old := regexp.MustCompile(`"chosenAt": "[^"]*"`).ReplaceAllString(right, `"chosenAt": "2026-01-01T00:00:00Z"`)

	f.write("prod-bootstrap.json", strings.ReplaceAll(old, f.nodes[0].UUID(), "other"))
	f.refused("cp-1 was chosen for the bootstrap, with the UUID other", words...)

	f.write("prod-bootstrap.json", strings.ReplaceAll(old, "cp-1", "cp-9"))
	f.refused("is no control plane of the talconfig.yaml any more", words...)

	f.write("prod-bootstrap.json", right)
}

// unproven: a control plane that does not say that it waits may have been called by another client.
func (f *fresh) unproven(words []string) {
	f.t.Helper()

	out := &hook{call: func(text string) {
		if strings.Contains(text, "cp-3 is configured (3 of 4)") {
			f.nodes[1].Faults().Fail("Read", codes.Unavailable, 1, 0)
		}
	}}

	err := f.follow(out, append(words, "--timeout", "30s")...)
	if err == nil || !strings.Contains(err.Error(), "waiting for cp-2 to wait for the bootstrap of etcd") ||
		!strings.Contains(err.Error(), "etcd on cp-2 has no data, and does not wait for its bootstrap (Preparing") ||
		!strings.Contains(err.Error(), "talosctl reset --nodes "+f.nodes[1].Address()) {
		f.t.Errorf("a control plane that may have been called: %v\n%s", err, out)
	}

	f.nodes[1].Faults().Clear()
}

// unreachable: a control plane that does not respond may have etcd data.
func (f *fresh) unreachable(words []string) {
	f.t.Helper()

	out := &hook{call: func(text string) {
		if strings.Contains(text, "etcd would be bootstrapped") {
			f.nodes[2].Partition(true)
		}
	}}

	err := f.follow(out, append(slices.Clone(words), "--timeout", "20s")...)
	if err == nil || !strings.Contains(err.Error(), "etcd is not bootstrapped: waiting for cp-3 to respond") {
		f.t.Errorf("a control plane is unreachable: %v\n%s", err, out)
	}

	f.nodes[2].Partition(false)
}

// lost: where etcd ran before, an empty one is a loss. Records that are not understood are no reason to go on.
func (f *fresh) lost(words []string) {
	f.t.Helper()

	right := f.record()

	for record, want := range map[string]string{
		"":  "is no record of a bootstrap",
		"{": "is no record of a bootstrap",
		strings.Replace(right, `"ca": "`, `"ca": "0`, 1): "is the record of a cluster with another PKI",
	} {
		f.write("prod-bootstrap.json", record)
		f.refused(want, words...)
	}

	f.write("prod-bootstrap.json", right)

	for _, n := range f.nodes[:3] {
		f.wipe(n)
	}

	before := f.called()

	if _, _, err := f.run(words...); err == nil || !strings.Contains(err.Error(), "was bootstrapped before") {
		f.t.Errorf("all etcd data is lost: %v", err)
	}

	if after := f.called(); !slices.Equal(after, before) {
		f.t.Errorf("a new etcd was bootstrapped: %v", after)
	}
}

// TestCorrectedFirstConfig: before etcd is bootstrapped, a control plane whose first config was wrong gets the right one.
// No etcd is waited for that does not exist, and no pods are moved by an API server that does not run.
func TestCorrectedFirstConfig(t *testing.T) {
	t.Parallel()

	f := newFresh(t, "w-1")
	words := with(applyFirst, "--bootstrap", "--wipe", "w-1", "-o", "FOLDER/out")

	f.nodes[1].Faults().Fail("ApplyConfiguration", codes.InvalidArgument, 1, 1)

	if out, _, err := f.run(words...); err == nil || !strings.Contains(out, "cp-1 is configured (1 of 4)") {
		t.Fatalf("cp-2 refuses its config: %v, %s", err, out)
	}

	f.reboots = true
	f.configure("two")

	// Without the word of the user, the cluster may run elsewhere.
	f.refused("cp-1 cannot be drained before the reboot", with(applyAll, "--yes", "--first-config", "--wipe", "w-1")...)

	before := f.nodes[0].Status().BootID
	out := f.mustRun(words...)

	changed, called := strings.Index(out, "cp-1: applying"), strings.Index(out, "bootstrapping etcd")
	if changed < 0 || called < changed || !strings.Contains(out, "reboots, before etcd is bootstrapped") ||
		strings.Contains(out, "draining") || f.nodes[0].Status().BootID == before || f.holds("two") != 4 {
		t.Errorf("%d machines have the right config: %s", f.holds("two"), out)
	}

	if got := f.called(); got[0]+got[1]+got[2] != 1 {
		t.Errorf("etcd was bootstrapped %v times", got)
	}
}
