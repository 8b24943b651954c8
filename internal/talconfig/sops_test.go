package talconfig_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"filippo.io/age"
	"filippo.io/age/armor"

	"github.com/talos-operator/talos-operator/internal/talconfig"
)

// sealer encrypts values as sops does. Its keys are fixed: it protects nothing.
type sealer struct {
	t    testing.TB
	key  []byte
	ages *age.X25519Identity
}

func newSealer(t testing.TB) *sealer {
	t.Helper()

	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}

	return &sealer{t: t, key: bytes.Repeat([]byte{7}, 32), ages: identity}
}

func (s *sealer) keys() ([]age.Identity, error) { return []age.Identity{s.ages}, nil }

func (s *sealer) seal(path, value, kind string) string {
	s.t.Helper()

	block, err := aes.NewCipher(s.key)
	if err != nil {
		s.t.Fatal(err)
	}

	iv := bytes.Repeat([]byte{9}, 32)

	gcm, err := cipher.NewGCMWithNonceSize(block, len(iv))
	if err != nil {
		s.t.Fatal(err)
	}

	sealed := gcm.Seal(nil, iv, []byte(value), []byte(path))
	text, tag := sealed[:len(sealed)-16], sealed[len(sealed)-16:]
	encode := base64.StdEncoding.EncodeToString

	return fmt.Sprintf("ENC[AES256_GCM,data:%s,iv:%s,tag:%s,type:%s]", encode(text), encode(iv), encode(tag), kind)
}

// file adds the metadata to a body. The checksum is over the given values.
func (s *sealer) file(body, rules string, values ...string) string {
	s.t.Helper()

	var enc bytes.Buffer

	out := armor.NewWriter(&enc)

	sealed, err := age.Encrypt(out, s.ages.Recipient())
	if err != nil {
		s.t.Fatal(err)
	}

	_, werr := sealed.Write(s.key)
	if err := errors.Join(werr, sealed.Close(), out.Close()); err != nil {
		s.t.Fatal(err)
	}

	const at = "2026-11-01T10:00:00Z"

	mac := fmt.Sprintf("%X", sha512.Sum512([]byte(strings.Join(values, ""))))

	return body + "sops:\n  age:\n    - recipient: " + s.ages.Recipient().String() + "\n      enc: |\n        " +
		strings.ReplaceAll(strings.TrimSpace(enc.String()), "\n", "\n        ") +
		"\n  lastmodified: \"" + at + "\"\n  mac: " + s.seal(at, mac, "str") + "\n" + rules
}

func TestSops(t *testing.T) {
	s := newSealer(t)
	body := "a: " + s.seal("a:", "hunter2hunter2", "str") + "\nlist:\n  - " + s.seal("list:", "3", "int") +
		"\nb:\n  c: " + s.seal("b:c:", "True", "bool") + "\nopen_unencrypted: 5\nempty: \"\"\nnothing:\n"
	whole := s.file(body, "  unencrypted_suffix: _unencrypted\n", "hunter2hunter2", "3", "True", "5")

	plain, err := talconfig.Decrypt([]byte(whole), s.keys)
	if err != nil {
		t.Fatal(err)
	}

	if want := "a: hunter2hunter2\nlist:\n    - 3\nb:\n    c: true\nopen_unencrypted: 5\nempty: \"\"\nnothing:\n"; string(plain) != want {
		t.Errorf("got %s, want %s", plain, want)
	}

	other := newSealer(t)

	for name, tt := range map[string]struct {
		text string
		keys func() ([]age.Identity, error)
		want string
	}{
		"another key":    {whole, other.keys, "no age key fits"},
		"no key":         {whole, nil, "SOPS_AGE_KEY_FILE"},
		"changed value":  {strings.Replace(whole, "open_unencrypted: 5", "open_unencrypted: 6", 1), s.keys, "its checksum does not fit"},
		"removed value":  {strings.Replace(whole, "open_unencrypted: 5\n", "", 1), s.keys, "its checksum does not fit"},
		"plain value":    {strings.Replace(whole, s.seal("a:", "hunter2hunter2", "str"), "hunter2hunter2", 1), s.keys, "a: is not encrypted"},
		"moved value":    {strings.Replace(whole, "a: ENC", "z: ENC", 1), s.keys, "z: was changed after it was encrypted"},
		"another method": {strings.Replace(whole, "  age:\n", "  pgp:\n", 1), s.keys, "only age is supported"},
		"key groups":     {whole + "  key_groups: [a]\n", s.keys, "key groups"},
	} {
		_, err := talconfig.Decrypt([]byte(tt.text), tt.keys)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}

		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v has the secret", name, err)
		}
	}
}

// TestSopsRules: what is encrypted is chosen by rules, and the checksum may leave out the rest.
func TestSopsRules(t *testing.T) {
	s := newSealer(t)
	secret := s.seal("secret:", "a", "str")

	for rules, values := range map[string][]string{
		"  encrypted_regex: ^secret$\n":                           {"a", "b"},
		"  encrypted_suffix: cret\n":                              {"a", "b"},
		"  unencrypted_regex: ^open$\n":                           {"a", "b"},
		"  encrypted_regex: secret\n  mac_only_encrypted: true\n": {macOnlyEncrypted, "a"},
	} {
		plain, err := talconfig.Decrypt([]byte(s.file("secret: "+secret+"\nopen: b\n", rules, values...)), s.keys)
		if err != nil || string(plain) != "secret: a\nopen: b\n" {
			t.Errorf("%s: got %s, %v", rules, plain, err)
		}
	}
}

// macOnlyEncrypted is the SHA-256 of the word sops.
const macOnlyEncrypted = "\x8a\x3f\xd2\xad\x54\xce\x66\x52\x7b\x10\x34\xf3\xd1\x47\xbe\x0b" +
	"\x0b\x97\x5b\x3b\xf4\x4f\x72\xc6\xfd\xad\xec\x81\x76\xf2\x7d\x69"

// TestSopsFiles: each file that a talconfig.yaml names may be encrypted, and one that cannot be decrypted is a problem.
func TestSopsFiles(t *testing.T) {
	s := newSealer(t)
	patch := "machine:\n  env:\n    TOKEN: " + s.seal("machine:env:TOKEN:", "hunter2hunter2", "str") + "\n"
	files := map[string]string{
		"talconfig.yaml": strings.Replace(minimal, "nodes:", "domain: ${DOMAIN}\npatches: [\"@patch.sops.yaml\"]\nnodes:", 1) +
			"    machineFiles: [{path: /a, op: create, content: \"@binary.sops\"}]\n",
		"talenv.sops.yaml": s.file("DOMAIN: "+s.seal("DOMAIN:", "example.org", "str")+"\n", "", "example.org"),
		"patch.sops.yaml":  s.file(patch, "", "hunter2hunter2"),
		"binary.sops":      s.file("data: "+s.seal("data:", "#!/bin/sh\n", "str")+"\n", "", "#!/bin/sh\n"),
	}
	path := folder(t, files)

	fleet, err := talconfig.Load(talconfig.Options{Path: path, Keys: s.keys})
	if err != nil {
		t.Fatal(err)
	}

	if fleet.Config.Domain != "example.org" || fleet.Nodes[0].MachineFiles[0].Content != "#!/bin/sh\n" ||
		fleet.Patches[0].Text != "machine:\n    env:\n        TOKEN: hunter2hunter2\n" {
		t.Errorf("got %+v", fleet)
	}

	_, err = talconfig.Load(talconfig.Options{Path: path, Keys: newSealer(t).keys})
	if err == nil || !strings.Contains(err.Error(), "talenv.sops.yaml: no age key fits") {
		t.Errorf("got %v", err)
	}

	_, err = talconfig.Load(talconfig.Options{Path: path, Keys: newSealer(t).keys, EnvFiles: []string{}, Environ: []string{"DOMAIN=a"}})
	if err == nil || !strings.Contains(err.Error(), "patches[0]: reading the file that it names: no age key fits") {
		t.Errorf("got %v", err)
	}
}

func TestAgeKeys(t *testing.T) {
	s := newSealer(t)
	path := folder(t, map[string]string{"keys.txt": "# a comment\n" + s.ages.String() + "\n"})
	path = strings.Replace(path, "talconfig.yaml", "keys.txt", 1)

	for name, tt := range map[string]struct {
		env  map[string]string
		want int
		err  string
	}{
		"key":     {map[string]string{"SOPS_AGE_KEY": s.ages.String(), "SOPS_AGE_KEY_FILE": path}, 2, ""},
		"file":    {map[string]string{"SOPS_AGE_KEY_FILE": path}, 1, ""},
		"missing": {map[string]string{"SOPS_AGE_KEY_FILE": path + ".not"}, 0, "reading age keys"},
		"no key":  {map[string]string{"SOPS_AGE_KEY": "AGE-SECRET-KEY-BAD"}, 0, "SOPS_AGE_KEY has no age key"},
	} {
		keys, err := talconfig.AgeKeys(func(key string) string { return tt.env[key] })
		if len(keys) != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: got %d keys, %v", name, len(keys), err)
		}
	}
}
