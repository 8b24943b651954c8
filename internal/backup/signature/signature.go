// Package signature proves the origin of files in a store of backups. Age recipients are public, so everyone who can
// write to the store can encrypt for them: encryption proves nothing about the origin. The signing key is derived from
// the PKI of the cluster, and its public key verifies the signatures if that PKI is lost.
package signature

import (
	"crypto"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

const (
	// Type of all keys and signatures.
	Type = "ed25519"
	// derivation separates this key from all other keys that may be derived from the same CA. Changing it changes the key:
	// existing signatures would no longer be authentic.
	derivation = "talos-operator.io backup signing key v1"
	// publicPrefix is the prefix of the text form of a public key.
	publicPrefix = Type + ":"
)

var encoding = base64.StdEncoding.Strict()

// Key signs. It is as secret as the CA that it is derived from, and never printed.
type Key struct{ private ed25519.PrivateKey }

// Derive derives the key from the private key of a CA. The same private key results in the same key, whatever its
// encoding, and also after its certificate is renewed.
func Derive(ca crypto.PrivateKey) (*Key, error) {
	secret, err := x509.MarshalPKCS8PrivateKey(ca)
	if err != nil {
		// The cause may contain the key.
		return nil, errors.New("the private key of the CA is of an unknown kind")
	}

	seed, err := hkdf.Key(sha256.New, secret, nil, derivation, ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("deriving the key that signs backups: %w", err)
	}

	return &Key{private: ed25519.NewKeyFromSeed(seed)}, nil
}

// Public returns the key that verifies the signatures of this one.
func (k Key) Public() Public {
	var p Public

	copy(p[:], k.private[ed25519.SeedSize:])

	return p
}

// String returns the public key: the private key never appears in a text.
func (k Key) String() string { return "private key of " + k.Public().String() }

// GoString implements fmt.GoStringer, for %#v.
func (k Key) GoString() string { return k.String() }

// Sign signs a message for one purpose. A signature for one purpose is never valid for another one.
func (k Key) Sign(purpose string, message []byte) *Signature {
	return &Signature{
		Type: Type, Key: k.Public(), Value: encoding.EncodeToString(ed25519.Sign(k.private, framed(purpose, message))),
	}
}

// framed prepends the purpose to the message, separated by a zero byte, which no purpose contains.
func framed(purpose string, message []byte) []byte {
	return append([]byte("talos-operator.io/"+purpose+"\x00"), message...)
}

// Public is the public key that verifies signatures. It is no secret.
type Public [ed25519.PublicKeySize]byte

// Parse parses the text form of a public key. Each key has exactly one text form.
func Parse(text string) (Public, error) {
	var p Public

	encoded, ok := strings.CutPrefix(text, publicPrefix)
	if !ok || len(encoded) != encoding.EncodedLen(len(p)) {
		return p, errNoKey
	}

	// The decoder ignores line breaks, which would give one key several text forms.
	raw, err := encoding.DecodeString(encoded)
	if err != nil || len(raw) != len(p) || encoding.EncodeToString(raw) != encoded {
		return p, errNoKey
	}

	return Public(raw), nil
}

// errNoKey does not quote the input, which may be a private key.
var errNoKey = errors.New("a verification key is " + publicPrefix + " and 44 characters of base64")

// ParseAll parses several public keys.
func ParseAll(texts []string) ([]Public, error) {
	var out []Public

	for i, text := range texts {
		p, err := Parse(text)
		if err != nil {
			return nil, fmt.Errorf("reading verification key %d: %w", i+1, err)
		}

		out = append(out, p)
	}

	return out, nil
}

// String returns the text form that Parse accepts.
func (p Public) String() string { return publicPrefix + encoding.EncodeToString(p[:]) }

// MarshalText implements encoding.TextMarshaler.
func (p Public) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Public) UnmarshalText(text []byte) (err error) {
	*p, err = Parse(string(text))

	return err
}

// Signature of a message.
type Signature struct {
	// Type is ed25519.
	Type string `json:"type"`
	// Key that verifies it. A valid signature proves nothing unless the key is known from elsewhere.
	Key Public `json:"key"`
	// Value in base64.
	Value string `json:"value"`
}

// Validate checks whether it can be a signature at all.
func (s *Signature) Validate() error {
	if s.Type != Type {
		return errors.New("the type of the signature is not known")
	}

	_, err := s.value()

	return err
}

func (s *Signature) value() ([]byte, error) {
	raw, err := encoding.DecodeString(s.Value)
	if err != nil || len(raw) != ed25519.SignatureSize || encoding.EncodeToString(raw) != s.Value {
		return nil, errors.New("the signature is not 64 bytes in base64")
	}

	return raw, nil
}

// Signs reports whether it is the signature of a message for one purpose, made with the key that it names.
func (s *Signature) Signs(purpose string, message []byte) bool {
	if s == nil || s.Validate() != nil {
		return false
	}

	raw, err := s.value()

	return err == nil && ed25519.Verify(s.Key[:], framed(purpose, message), raw)
}
