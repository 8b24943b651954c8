package cli_test

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/cli"
	"github.com/talos-operator/talos-operator/internal/cli/exit"
)

// fromSecret has the control plane of a sample take a sysctl from a Secret, and other patches from the spec.
func (s *shell) fromSecret(c *sample, value string) {
	s.t.Helper()

	s.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "shut"},
		StringData: map[string]string{"value": value},
	})

	if err := s.client.Get(s.t.Context(), client.ObjectKeyFromObject(c.cp), c.cp); err != nil {
		s.t.Fatal(err)
	}

	c.cp.Spec.ClusterConfigPatches = []string{"machine: {sysctls: {kernel.hostname: in-the-open}}"}
	c.cp.Spec.ConfigPatchesFrom = []v1alpha1.ConfigPatchSource{
		{Kind: v1alpha1.ConfigPatchFromSecret, Name: "shut", Key: "value", Path: "/machine/sysctls/kernel.domainname"},
	}

	if err := s.client.Update(s.t.Context(), c.cp); err != nil {
		s.t.Fatal(err)
	}
}

// exitCode is that of a command.
func exitCode(t *testing.T, args ...string) int {
	t.Helper()

	streams := genericiooptions.NewTestIOStreamsDiscard()

	for _, cmd := range cli.Commands(streams, builtFrom) {
		if cmd.Name() == args[0] {
			cmd.SetArgs(args[1:])
			cmd.SilenceUsage, cmd.SilenceErrors = true, true

			return exit.CodeOf(cmd.ExecuteContext(t.Context()))
		}
	}

	t.Fatalf("no command %s", args[0])

	return 0
}

// TestConfig: the commands show the desired configuration, how it differs from the live one, and where its fields come
// from. They print secrets only on request, and change nothing.
func TestConfig(t *testing.T) {
	s := newShell(t)
	c := s.sample("shown")
	n := s.bootControlPlane(c)
	calls := n.Faults().MutatingCalls()

	if code := exitCode(t, "config", "diff", "shown-cp"); code != 0 {
		t.Errorf("exit code %d while nothing differs", code)
	}

	s.fromSecret(c, "hush-hush")

	if code := exitCode(t, "config", "diff", "shown-cp"); code != 1 {
		t.Errorf("exit code %d of a difference", code)
	}

	token := c.state.Bundle.Secrets().TrustdInfo.Token

	for _, command := range []string{"render", "diff", "explain"} {
		for _, format := range []string{"", "yaml", "json"} {
			masked, _, _ := s.run("config", command, "shown-cp", "-o", format)
			if strings.Contains(masked, "hush-hush") || strings.Contains(masked, token) || !strings.Contains(masked, "in-the-open") {
				t.Errorf("%s -o %s: %s", command, format, masked)
			}

			open, _, failed := s.run("config", command, "shown-cp", "-o", format, "--show-secrets")
			if !strings.Contains(open, "hush-hush") || command != "diff" && !strings.Contains(open, token) {
				t.Errorf("%s -o %s --show-secrets: %s: %s", command, format, failed, open)
			}
		}
	}

	want := "--- shown-cp (live)\n+++ shown-cp (desired)\n" +
		"+machine.sysctls[\"kernel.domainname\"]: <redacted>\n+machine.sysctls[\"kernel.hostname\"]: in-the-open\n"
	if out, _, _ := s.run("config", "diff", "shown-cp"); out != want {
		t.Errorf("got %q, want %q", out, want)
	}

	checkOrigins(t, s)

	c.cp.Spec.ClusterConfigPatches = append(c.cp.Spec.ClusterConfigPatches, "apiVersion: v1alpha1\nkind: TimeMachineConfig\nspeed: 88\n")
	if err := s.client.Update(t.Context(), c.cp); err != nil {
		t.Fatal(err)
	}

	for _, command := range []string{"render", "diff"} {
		if out, errOut, failed := s.run("config", command, "shown-cp"); !strings.HasPrefix(errOut, "Warning: document TimeMachineConfig") ||
			!strings.Contains(errOut, "of a kind that this operator does not know") {
			t.Errorf("%s: %s: %s: %s", command, failed, errOut, out)
		}
	}

	if got := n.Faults().MutatingCalls(); got != calls {
		t.Errorf("%d mutating calls", got-calls)
	}
}

func checkOrigins(t *testing.T, s *shell) {
	t.Helper()

	out, _, failed := s.run("config", "explain", "shown-cp", "-o", "json")

	var fields []struct{ Field, Value, SetBy string }
	if err := json.Unmarshal([]byte(out), &fields); err != nil {
		t.Fatalf("%v: %s%s", err, out, failed)
	}

	by := map[string]string{}
	for _, f := range fields {
		by[f.Field] = f.SetBy
	}

	for field, want := range map[string]string{
		"machine.type":                         "generated",
		`machine.sysctls["kernel.hostname"]`:   "cluster[0]",
		`machine.sysctls["kernel.domainname"]`: "Secret shut, key value (group)",
		"HostnameConfig: hostname":             "generated",
	} {
		if by[field] != want {
			t.Errorf("%s is set by %q, want %q", field, by[field], want)
		}
	}

	if text, _, _ := s.run("config", "explain", "shown-cp"); !strings.HasPrefix(text, "FIELD") {
		t.Errorf("as text: %s", text)
	}
}

// TestConfigRefuses: what is missing is named, and a comparison that failed has an exit code of its own.
func TestConfigRefuses(t *testing.T) {
	s := newShell(t)
	c := s.sample("lost")
	s.fromSecret(c, "hush-hush")

	for name, tt := range map[string]struct {
		args []string
		says string
	}{
		"unknown":     {[]string{"diff", "nobody"}, "TalosMachine nobody"},
		"unreachable": {[]string{"diff", "lost-cp"}, "is unreachable"},
		"format":      {[]string{"diff", "lost-cp", "-o", "xml"}, "unknown output format"},
		"no name":     {[]string{"diff"}, "accepts 1 arg"},
		"flag":        {[]string{"diff", "lost-cp", "--unknown"}, "unknown flag"},
	} {
		if _, _, failed := s.run(append([]string{"config"}, tt.args...)...); !strings.Contains(failed, tt.says) {
			t.Errorf("%s: %q", name, failed)
		}

		if code := exitCode(t, append([]string{"config"}, tt.args...)...); code != 2 {
			t.Errorf("%s: exit code %d", name, code)
		}
	}

	if err := s.client.Delete(t.Context(), s.secret("shut")); err != nil {
		t.Fatal(err)
	}

	for _, command := range []string{"render", "explain"} {
		if _, _, failed := s.run("config", command, "lost-cp"); !strings.Contains(failed, "Secret shut does not exist") {
			t.Errorf("%s: %q", command, failed)
		}
	}
}
