package signature_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/internal/backup/signature"
)

func ca(first byte) crypto.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	seed[0] = first

	return ed25519.NewKeyFromSeed(seed)
}

func derive(t testing.TB, ca crypto.PrivateKey) *signature.Key {
	t.Helper()

	k, err := signature.Derive(ca)
	if err != nil {
		t.Fatal(err)
	}

	return k
}

// known is the key of ca(1). It is noted in safes: no change of the code may give another one.
const known = "ed25519:xtZLptwwL8kilH8QypHnoExP/trL9+FiMvoMdEh4usI="

func TestDerive(t *testing.T) {
	t.Parallel()

	if got := derive(t, ca(1)).Public().String(); got != known {
		t.Errorf("the key of a known CA is %s, want %s", got, known)
	}

	if derive(t, ca(1)).Public() == derive(t, ca(2)).Public() {
		t.Error("two CAs have one key")
	}

	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	if first, again := derive(t, other).Public(), derive(t, other).Public(); first != again {
		t.Error("the key of an ECDSA CA is not always the same")
	}

	if _, err := signature.Derive("no key"); err == nil || strings.Contains(err.Error(), "no key") {
		t.Errorf("derived from no key: %v", err)
	}

	// The CA's own key signs certificates: it must be another one.
	if own := ca(1).(ed25519.PrivateKey).Public().(ed25519.PublicKey); derive(t, ca(1)).Public() == signature.Public(own) {
		t.Error("backups are signed with the key of the CA itself")
	}
}

func TestKeyIsNeverPrinted(t *testing.T) {
	t.Parallel()

	k := derive(t, ca(1))
	public := k.Public().String()

	for _, text := range []string{fmt.Sprint(k), fmt.Sprintf("%+v", *k), fmt.Sprintf("%#v", *k), fmt.Sprintf("%#v", k)} {
		if rest := strings.ReplaceAll(text, public, ""); rest != "private key of " {
			t.Errorf("printed %s", text)
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()

	good := derive(t, ca(1)).Public()

	if p, err := signature.Parse(good.String()); err != nil || p != good {
		t.Fatalf("%v, %v", p, err)
	}

	text := good.String()
	body := strings.TrimPrefix(text, "ed25519:")

	for name, bad := range map[string]string{
		"nothing": "", "no prefix": body, "another prefix": "ed448:" + body, "capitals": "ED25519:" + body,
		"space before": " " + text, "space behind": text + " ", "line break": text + "\n",
		"line break inside": "ed25519:" + body[:20] + "\n" + body[20:], "no padding": strings.TrimSuffix(text, "="),
		"short": "ed25519:" + body[4:], "long": "ed25519:" + body[:40] + "AAAA" + body[40:],
		"of URLs": "ed25519:" + strings.Repeat("_", 43) + "=", "age identity": "AGE-SECRET-KEY-1QQQQ",
		// The last character before the padding has bits that no byte takes.
		"loose bits": "ed25519:" + strings.Repeat("A", 42) + "B=",
	} {
		if _, err := signature.Parse(bad); err == nil {
			t.Errorf("%s: accepted %q", name, bad)
		} else if bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("%s: it is quoted: %v", name, err)
		}
	}

	if _, err := signature.ParseAll([]string{text, "x"}); err == nil || !strings.Contains(err.Error(), "key 2") {
		t.Errorf("of two keys: %v", err)
	}
}

func TestSigns(t *testing.T) {
	t.Parallel()

	k := derive(t, ca(1))
	good := k.Sign("a", []byte("message"))

	if !good.Signs("a", []byte("message")) {
		t.Fatal("its own signature is wrong")
	}

	for name, wrong := range map[string]bool{
		"other message": good.Signs("a", []byte("massage")),
		"other purpose": good.Signs("b", []byte("message")),
		"shifted":       k.Sign("a\x00m", []byte("essage")).Signs("a", []byte("message")),
		"none":          (*signature.Signature)(nil).Signs("a", []byte("message")),
		"other key":     changed(good, func(s *signature.Signature) { s.Key = derive(t, ca(2)).Public() }).Signs("a", []byte("message")),
		"other type":    changed(good, func(s *signature.Signature) { s.Type = "none" }).Signs("a", []byte("message")),
		"other value":   changed(good, func(s *signature.Signature) { s.Value = k.Sign("a", nil).Value }).Signs("a", []byte("message")),
		"no value":      changed(good, func(s *signature.Signature) { s.Value = "" }).Signs("a", []byte("message")),
		"line break":    changed(good, func(s *signature.Signature) { s.Value += "\n" }).Signs("a", []byte("message")),
	} {
		if wrong {
			t.Errorf("%s is accepted", name)
		}
	}
}

func changed(s *signature.Signature, change func(*signature.Signature)) *signature.Signature {
	other := *s
	change(&other)

	return &other
}

// FuzzParse: what is accepted is written the same way again.
func FuzzParse(f *testing.F) {
	f.Add(known)
	f.Add("ed25519:")
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := signature.Parse(text); err == nil && p.String() != text {
			t.Errorf("%q is read as %s", text, p)
		}
	})
}

// FuzzSignature feeds anything to the parser of signatures: none is accepted that the key did not make, and what is
// accepted reads the same once written again.
func FuzzSignature(f *testing.F) {
	k := derive(f, ca(1))

	good, err := json.Marshal(k.Sign("fuzz", []byte("message")))
	if err != nil {
		f.Fatal(err)
	}

	f.Add(good)
	f.Add([]byte(`{"type":"ed25519","key":"` + known + `","value":""}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		s := &signature.Signature{}
		if json.Unmarshal(content, s) != nil || s.Validate() != nil {
			return
		}

		again, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}

		other := &signature.Signature{}
		if err := json.Unmarshal(again, other); err != nil || *other != *s {
			t.Errorf("not stable: %s, %v", again, err)
		}

		if s.Signs("fuzz", []byte("forged")) {
			t.Errorf("accepted %s", content)
		}
	})
}
