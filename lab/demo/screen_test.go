package demo

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/lab/control"
)

func progress(seconds int, doing string) Progress {
	return Progress{
		Elapsed: time.Duration(seconds) * time.Second, Phase: "Provisioning", Message: "waiting",
		Machines: []MachineProgress{{Name: "cp-0", Address: "127.10.0.1", Doing: doing}},
	}
}

// TestPlainScreen says only what changed.
func TestPlainScreen(t *testing.T) {
	var out bytes.Buffer

	s := NewScreen(&out, false, 0)
	s.Show(progress(1, "booting"))
	s.Show(progress(2, "booting"))
	s.Show(progress(3, "running"))

	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 || !strings.Contains(lines[2], "3.0s") || !strings.Contains(lines[2], "running") {
		t.Errorf("output:\n%s", out.String())
	}
}

// TestLiveScreen draws each frame over the one before, in lines that do not wrap.
func TestLiveScreen(t *testing.T) {
	var out bytes.Buffer

	s := NewScreen(&out, true, 40)
	s.Show(progress(1, strings.Repeat("long ", 20)))

	first := out.Len()

	s.Show(progress(2, "short"))

	if second := out.String()[first:]; !strings.HasPrefix(second, "\x1b[2A") {
		t.Errorf("second frame %q", second)
	}

	for line := range strings.Lines(out.String()) {
		text := line[strings.LastIndex(line, "\x1b[K")+3:]
		if n := len([]rune(strings.TrimSpace(text))); n > 40 {
			t.Errorf("a line of %d columns", n)
		}
	}
}

func TestDoing(t *testing.T) {
	for want, n := range map[string]control.Node{
		"in maintenance mode, waiting for a config": {Powered: true, Stage: "maintenance"},
		"booting: waiting for nodeReady":            {Powered: true, Stage: "booting", Unmet: []string{"nodeReady"}},
		"running, waiting for etcd":                 {Powered: true, Stage: "running", MachineType: "controlplane"},
		"running as etcd member and API server":     {Powered: true, Stage: "running", MachineType: "controlplane", EtcdMember: "1"},
		"running as a worker":                       {Powered: true, Stage: "running", MachineType: "worker", Ready: true},
		"what the operator says":                    {Powered: true, Stage: "upgrading"},
		"rebooting into the installed system":       {Powered: true, Stage: "unknown", Installed: true},
		"powering on":                               {},
	} {
		if got := doing(n, "what the operator says"); got != want {
			t.Errorf("%+v: %q, want %q", n, got, want)
		}
	}
}
