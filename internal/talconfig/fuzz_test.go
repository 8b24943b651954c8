package talconfig_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/talos-operator/talos-operator/internal/talconfig"
)

// FuzzLoad: a talconfig.yaml with its variables and a file is read, always the same way, or is refused with problems that
// quote no key.
func FuzzLoad(f *testing.F) {
	const hidden = "kLdhpuOYh1nq7sAOvb5WmjQJ0hZWHuMhGUhTOvPdS0k="

	f.Add(minimal, "", "")
	f.Add(strings.Replace(minimal, "/dev/sda", "${DISK:-a}", 1), "DISK: /dev/sdb\nB: ~\n", "")
	f.Add(minimal+"patches: [\"@file.yaml\"]\n", "", "machine: {sysctls: {a: \"{{ .Hostname }}${A}\"}}\n")
	f.Add(strings.Replace(minimal, "nodes:", "x-a: &a {nodeLabels: {a: b}}\ncontrolPlane: {<<: *a, schematic: {customization: {}}}\nnodes:", 1), "", "")
	f.Add(minimal+"    networkInterfaces: [{interface: wg0, wireguard: {privateKey: "+hidden+", peers: [{publicKey: x}]}}]\n", "", "")
	f.Add(minimal+"    networkInterfaces: [{interface: bond0, bond: {interfaces: [eth0], mode: 802.3ad}, vlans: [{vlanId: 5}]}]\n", "", "")
	f.Add(minimal+"    ingressFirewall: {defaultAction: block, rules: [{name: a, portSelector: {ports: [1-2], protocol: tcp}}]}\n", "", "")
	f.Add(minimal+"    machineFiles: [{path: /a, op: create, content: \"@file.yaml\"}]\n    extraManifests: [file.yaml]\n", "A: "+hidden, "${A} $$ ${")
	f.Add(minimal+"    filenameTmpl: \"{{.Hostname}}-{{.Role}}\"\n    volumes: [{name: EPHEMERAL, provisioning: {maxSize: 1GiB}}]\n", "", "")
	f.Add("a: &a [*a, *a]\n", "A: [b]\n", "\x00")

	dir := f.TempDir()
	path := filepath.Join(dir, "talconfig.yaml")

	f.Fuzz(func(t *testing.T, text, variables, file string) {
		// It reads each file that it names, and there are some in /proc and /dev that a test should not.
		if strings.Contains(text+variables, "/proc") || strings.Contains(text+variables, "@/") {
			return
		}

		for name, content := range map[string]string{"talconfig.yaml": text, "talenv.yaml": variables, "file.yaml": file} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}

		fleet, err := talconfig.Load(talconfig.Options{Path: path})
		if err == nil {
			show(t, fleet)

			return
		}

		var problems talconfig.Problems
		if !errors.As(err, &problems) {
			t.Errorf("unclassified: %v", err)
		}

		// The names of keys are told.
		if strings.Contains(strings.ReplaceAll(err.Error(), hidden+": ", ""), hidden) {
			t.Errorf("a problem quotes a key: %v", err)
		}

		if _, again := talconfig.Load(talconfig.Options{Path: path}); again == nil || again.Error() != err.Error() {
			t.Errorf("it has other problems the next time: %v; %v", err, again)
		}
	})
}

// show computes what commands print of each node.
func show(t *testing.T, fleet *talconfig.Fleet) {
	t.Helper()

	for i := range fleet.Nodes {
		m := &fleet.Nodes[i]

		name, err := fleet.Filename(m)
		if err != nil || filepath.IsAbs(name) || strings.HasPrefix(name, "..") {
			t.Errorf("the file of %s is %q: %v", m.Hostname, name, err)
		}

		if _, err := fleet.InstallerOf(m); err != nil && m.TalosImageURL != "" {
			t.Errorf("the installer of %s: %v", m.Hostname, err)
		}

		_, _ = fleet.BootImageOf(m)
	}
}

// FuzzSubstitute: variables are replaced, or refused without their values; a text without a dollar sign stays as it is.
func FuzzSubstitute(f *testing.F) {
	for _, text := range []string{
		"${A}", "$A", "$$A", "$1", "${A:-b}", "${B-${A}}", "${A:=x}", "${A:+y}", "${#A}", "${A/a/b}", "${A:1:2}", "${A^^}", "${",
		"${}", "$", "${A", "a${A}${B:-}${C?}", "${!A}", "${A@Q}", "${A:-$", "\xff${A}",
		"${_}", "${A:\n-$_}", "${B:-$_}", "${B:-${A}$_}", "$_ ${A}", "${B-$_\xc3\xed}",
	} {
		f.Add(text, "value")
	}

	f.Fuzz(func(t *testing.T, text, value string) {
		const mark = "hunter2hunter2"

		got, err := talconfig.Variables{"A=" + mark + value}.Substitute(text)

		switch {
		case err != nil && strings.Contains(err.Error(), mark) && !strings.Contains(text, mark):
			t.Errorf("the error quotes a value: %v", err)
		case err == nil && !strings.Contains(text, "$") && got != text:
			t.Errorf("%q became %q", text, got)
		case err == nil && text == "${A}" && got != mark+value:
			t.Errorf("the value %q became %q", mark+value, got)
		}
	})
}

// FuzzDecrypt: a file that sops encrypted is decrypted as it was written, or refused without being quoted.
func FuzzDecrypt(f *testing.F) {
	const hidden = "hunter2hunter2"

	// Each process that fuzzes has the same key.
	raw, err := os.ReadFile("spec/testdata/fleets/files/age.txt")
	if err != nil {
		f.Fatal(err)
	}

	keys, err := age.ParseIdentities(bytes.NewReader(raw))
	if err != nil {
		f.Fatal(err)
	}

	s := newSealer(f)
	s.ages = keys[0].(*age.X25519Identity)
	good := s.file("a: "+s.seal("a:", hidden, "str")+"\n", "", hidden)

	f.Add([]byte(good))
	f.Add([]byte(strings.Replace(good, "type:str", "type:int", 1)))
	f.Add([]byte(strings.Replace(good, "iv:", "iv:,x:", 1)))
	f.Add([]byte(good + "  encrypted_regex: \"(\"\n"))
	f.Add([]byte("a: ENC[AES256_GCM,data:,iv:,tag:,type:str]\nsops: {mac: ENC[], age: [{enc: a}]}\n"))
	f.Add([]byte("plain"))
	f.Add([]byte("# ENC[AES256_GCM, is what sops: writes\n"))
	f.Add([]byte("0: ENC[AES256_GCM,\nsops: # nothing\n"))

	f.Fuzz(func(t *testing.T, raw []byte) {
		plain, err := talconfig.Decrypt(raw, s.keys)

		switch {
		case err == nil && bytes.Contains(plain, []byte("ENC[AES256_GCM,")) && !bytes.Equal(plain, raw):
			t.Errorf("a value stays encrypted: %q", plain)
		case err != nil && plain != nil:
			t.Errorf("content in spite of %v", err)
		case err != nil && strings.Contains(err.Error(), hidden):
			t.Errorf("the error quotes a value: %v", err)
		}
	})
}
