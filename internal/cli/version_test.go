package cli_test

import (
	"encoding/json"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/blang/semver/v4"
	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/talos-operator/talos-operator/internal/app"
	"github.com/talos-operator/talos-operator/internal/cli"
)

var builtFrom = cli.Build{Version: "v0.7.1", Commit: "0123abcd", Date: "2026-11-25T12:00:00Z"}

// TestVersion: what a program was compiled from and what it supports, in each format and without a cluster.
func TestVersion(t *testing.T) {
	s := &shell{t: t}
	t.Setenv("KUBECONFIG", "/nonexistent")

	out, _, failed := s.run("version")
	if failed != "" {
		t.Fatal(failed)
	}

	got := map[string]string{}

	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(line, "  ")
		got[name] = strings.TrimSpace(value)
	}

	if diff := cmp.Diff(map[string]string{
		"talos-operator": "v0.7.1", "Commit": "0123abcd", "Date": "2026-11-25T12:00:00Z", "Go": runtime.Version(),
		"Platform": runtime.GOOS + "/" + runtime.GOARCH, "Talos": got["Talos"], "Kubernetes": got["Kubernetes"],
	}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	for format, decode := range map[string]func([]byte, any) error{
		"json": json.Unmarshal,
		"yaml": func(data []byte, into any) error { return yaml.Unmarshal(data, into) },
	} {
		out, _, _ := s.run("version", "-o", format)

		var v struct {
			Version, Commit, Date, Go, Platform string
			Talos, Kubernetes                   struct{ From, To string }
		}
		if err := decode([]byte(out), &v); err != nil {
			t.Fatal(err)
		}

		if v.Version != "v0.7.1" || v.Commit != "0123abcd" || v.Date != "2026-11-25T12:00:00Z" || v.Go != runtime.Version() ||
			v.Talos.From+" to "+v.Talos.To != got["Talos"] || v.Kubernetes.From+" to "+v.Kubernetes.To != got["Kubernetes"] {
			t.Errorf("%s: %+v, as text %v", format, v, got)
		}
	}

	if _, _, failed := s.run("version", "-o", "xml"); !strings.Contains(failed, "unknown output format") {
		t.Errorf("another format: %q", failed)
	}
}

// TestVersionSupported: the versions that tests run are among those that are said to be supported.
func TestVersionSupported(t *testing.T) {
	out, _, failed := (&shell{t: t}).run("version", "-o", "json")
	if failed != "" {
		t.Fatal(failed)
	}

	var v struct{ Talos, Kubernetes struct{ From, To string } }
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatal(err)
	}

	for name, r := range map[string]struct{ from, version, to string }{
		"Talos":      {v.Talos.From, talosV, v.Talos.To},
		"Kubernetes": {v.Kubernetes.From, kubernetes, v.Kubernetes.To},
	} {
		if minor(t, r.from) > minor(t, r.version) || minor(t, r.version) > minor(t, r.to) || minor(t, r.from) == minor(t, r.to) {
			t.Errorf("%s %s is tested, and supported are %s to %s", name, r.version, r.from, r.to)
		}
	}
}

func minor(t *testing.T, version string) uint64 {
	t.Helper()

	v, err := semver.ParseTolerant(version)
	if err != nil {
		t.Fatal(err)
	}

	return v.Minor
}

// TestVersionOfServer: the Lease of the leader tells which version runs; without one the own version is printed still.
func TestVersionOfServer(t *testing.T) {
	renewed := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

	for name, test := range map[string]struct {
		lease  *coordinationv1.Lease
		says   string
		failed string
	}{
		"runs": {
			lease: lease(map[string]string{app.VersionLabel: "v0.6.0"}, new("pod-1_x"), renewed),
			says:  "v0.6.0 (leader pod-1_x, Lease renewed 2026-11-25T12:00:00Z)",
		},
		"not installed":   {failed: "not found"},
		"stopped":         {lease: lease(map[string]string{app.VersionLabel: "v0.6.0"}, new(""), renewed), failed: "the operator is not running"},
		"without a label": {lease: lease(nil, new("pod-1_x"), renewed), failed: "the operator is older than this program"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShell(t)

			if test.lease != nil {
				s.create(test.lease)
			}

			out, _, failed := s.run("version", "--operator")
			if !strings.Contains(out, builtFrom.Version) || !strings.Contains(out, test.says) ||
				(failed == "") != (test.failed == "") || !strings.Contains(failed, test.failed) {
				t.Errorf("%q, %q", out, failed)
			}
		})
	}
}

func lease(labels map[string]string, holder *string, renewed time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: app.LeaseName, Labels: labels},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: holder, RenewTime: &metav1.MicroTime{Time: renewed}},
	}
}

// TestBuildComplete: what was set at link time counts more than what the toolchain recorded.
func TestBuildComplete(t *testing.T) {
	recorded := func(version string) *debug.BuildInfo {
		return &debug.BuildInfo{
			Main:     debug.Module{Version: version},
			Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "ffff"}, {Key: "vcs.time", Value: "2026-11-01T00:00:00Z"}},
		}
	}

	for name, test := range map[string]struct {
		build cli.Build
		info  *debug.BuildInfo
		want  cli.Build
	}{
		"linked":     {build: builtFrom, info: recorded("v0.9.0"), want: builtFrom},
		"no record":  {build: cli.Build{Version: cli.Unreleased}, want: cli.Build{Version: cli.Unreleased}},
		"checkout":   {build: cli.Build{Version: cli.Unreleased}, info: recorded("(devel)"), want: cli.Build{cli.Unreleased, "ffff", "2026-11-01T00:00:00Z"}},
		"go install": {build: cli.Build{Version: cli.Unreleased}, info: recorded("v0.9.0"), want: cli.Build{"v0.9.0", "ffff", "2026-11-01T00:00:00Z"}},
	} {
		if diff := cmp.Diff(test.want, test.build.Complete(test.info)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
