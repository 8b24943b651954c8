package main

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/examples"
	"github.com/talos-operator/talos-operator/lab"
	"github.com/talos-operator/talos-operator/lab/control"
	"github.com/talos-operator/talos-operator/test/loopback"
)

// execute runs the command line and returns its exit code and outputs.
func execute(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()

	var out, errOut bytes.Buffer

	cmd := newCommand()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&errOut)

	return run(t.Context(), cmd), out.String(), errOut.String()
}

// serve runs a lab with its socket, without management plane.
func serve(t *testing.T) (string, *lab.Lab) {
	t.Helper()

	dir := t.TempDir()

	l, err := lab.New(lab.Options{Dir: dir, Subnet: loopback.Network(t), Modelled: true})
	if err != nil {
		t.Fatal(err)
	}

	s, err := control.Serve(dir, l, func() control.Info { return control.Info{Dir: dir, Ready: true} }, func() {})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := errors.Join(s.Close(ctx), l.Close(ctx)); err != nil {
			t.Error(err)
		}
	})

	return dir, l
}

func TestNodeCommands(t *testing.T) {
	dir, l := serve(t)

	if code, out, _ := execute(t, "node", "list", "--dir", dir); code != 0 || out != "No machines.\n" {
		t.Errorf("empty list: %d, %q", code, out)
	}

	address := l.Subnet().Addr().Next().String()
	if code, out, errOut := execute(t, "node", "boot", "edge-1", "--address", address, "--dir", dir); code != 0 ||
		!strings.Contains(out, "edge-1") {
		t.Fatalf("boot: %d, %q, %q", code, out, errOut)
	}

	if code, out, _ := execute(t, "node", "freeze", "edge-1", "--dir", dir); code != 0 || !strings.Contains(out, "frozen") {
		t.Errorf("freeze: %d, %q", code, out)
	}

	if code, out, _ := execute(t, "node", "list", "-o", "json", "--dir", dir); code != 0 ||
		!strings.Contains(out, `"frozen": true`) {
		t.Errorf("list as JSON: %d, %q", code, out)
	}

	if code, out, _ := execute(t, "node", "list", "-o", "name", "--dir", dir); code != 0 || out != "edge-1\n" {
		t.Errorf("list of names: %d, %q", code, out)
	}

	if code, _, errOut := execute(t, "node", "fail", "edge-1", "--code", "Unavailable", "--dir", dir); code != 0 {
		t.Errorf("fail: %d, %q", code, errOut)
	}

	if code, out, _ := execute(t, "node", "kill", "edge-1", "--dir", dir); code != 0 || !strings.Contains(out, "off") ||
		l.Node("edge-1").Powered() {
		t.Errorf("kill: %d, %q", code, out)
	}

	if code, out, _ := execute(t, "__complete", "node", "kill", "--dir", dir, "e"); code != 0 ||
		!strings.HasPrefix(out, "edge-1\n") {
		t.Errorf("completion: %d, %q", code, out)
	}
}

// TestDown: a lab that has stopped says how it is started again.
func TestDown(t *testing.T) {
	dir, _ := serve(t)

	if code, out, errOut := execute(t, "down", "--dir", dir); code != 0 || !strings.Contains(out, "talos-lab up --dir "+dir+"\n") {
		t.Errorf("%d, %q, %q", code, out, errOut)
	}
}

func TestExitCodes(t *testing.T) {
	dir, _ := serve(t)

	for _, c := range []struct {
		want int
		args []string
	}{
		{exitUsage, []string{"node", "freeze", "--dir", dir}},
		{exitUsage, []string{"node", "list", "--nonsense"}},
		{exitUsage, []string{"node", "list", "-o", "yaml", "--dir", dir}},
		{exitNoLab, []string{"node", "list", "--dir", t.TempDir()}},
		{exitNoLab, []string{"down", "--dir", t.TempDir()}},
		{exitNotFound, []string{"node", "kill", "nobody", "--dir", dir}},
		{1, []string{"up", "--operator", filepath.Join(dir, "missing"), "--dir", t.TempDir()}},
		{0, []string{"--help"}},
	} {
		if code, _, errOut := execute(t, c.args...); code != c.want {
			t.Errorf("%v: exit code %d, want %d (%s)", c.args, code, c.want, errOut)
		}
	}
}

// TestQuickstartMovesWithTheLab holds the endpoint of the example and the lab's load balancer together.
func TestQuickstartMovesWithTheLab(t *testing.T) {
	for subnet, want := range map[string]string{
		lab.DefaultSubnet: "clusterEndpoint: https://127.10.255.100:6443",
		"127.13.0.0/16":   "clusterEndpoint: https://127.13.255.100:6443",
	} {
		if got := quickstart(netip.MustParsePrefix(subnet)); !bytes.Contains(got, []byte(want)) {
			t.Errorf("quickstart in %s:\n%s", subnet, got)
		}
	}
}

// TestOlder: the cluster of a demo begins with older versions, and is upgraded to the Talos of the example.
func TestOlder(t *testing.T) {
	got := older(examples.Quickstart)

	for _, want := range []string{"\n  talosVersion: " + oldTalos + "\n", "\n  kubernetesVersion: " + oldKubernetes + "\n"} {
		if !bytes.Contains(got, []byte(want)) {
			t.Errorf("without %q:\n%s", want, got)
		}
	}

	if want := "talosVersion: " + newTalos; !bytes.Contains(examples.Quickstart, []byte(want)) {
		t.Errorf("the example is without %q", want)
	}
}
