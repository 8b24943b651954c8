// Package signature proves who wrote what lies in a store of backups. Age recipients are public, so that anyone who can
// write to the store can encrypt for them: encryption says nothing about the origin. The signing key follows from the
// PKI of the cluster, and its public key checks what was signed where that PKI is lost.
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
	// derivation separates this key from all others that may ever follow from the same CA. Another version of it is
	// another key: what the old one signed would no longer be authentic.
	derivation = "talos-operator.io backup signing key v1"
	// publicPrefix begins the text of a public key.
	publicPrefix = Type + ":"
)

var encoding = base64.StdEncoding.Strict()

// Key signs. It is as secret as the CA that it follows from, and never printed.
type Key struct{ private ed25519.PrivateKey }

// Derive makes the key that follows from the private key of a CA. The same private key gives the same key, however it
// was written down, and also when its certificate is renewed.
func Derive(ca crypto.PrivateKey) (*Key, error) {
	secret, err := x509.MarshalPKCS8PrivateKey(ca)
	if err != nil {
		// The cause may describe the key.
		return nil, errors.New("the private key of the CA is of an unknown kind")
	}

	seed, err := hkdf.Key(sha256.New, secret, nil, derivation, ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("deriving the key that signs backups: %w", err)
	}

	return &Key{private: ed25519.NewKeyFromSeed(seed)}, nil
}

// Public is the key that checks what this one signs.
func (k Key) Public() Public {
	var p Public

	copy(p[:], k.private[ed25519.SeedSize:])

	return p
}

// String names the public key: the private one stays out of every text.
func (k Key) String() string { return "private key of " + k.Public().String() }

// GoString is for %#v.
func (k Key) GoString() string { return k.String() }

// Sign signs a message of one purpose. What was signed for one purpose never counts for another one.
func (k Key) Sign(purpose string, message []byte) *Signature {
	return &Signature{
		Type: Type, Key: k.Public(), Value: encoding.EncodeToString(ed25519.Sign(k.private, framed(purpose, message))),
	}
}

// framed puts the purpose before the message; the zero byte, which no purpose has, ends it.
func framed(purpose string, message []byte) []byte {
	return append([]byte("talos-operator.io/"+purpose+"\x00"), message...)
}

// Public is the public key that checks signatures. It is no secret.
type Public [ed25519.PublicKeySize]byte

// Parse reads the text of a public key. Each key has one text only.
func Parse(text string) (Public, error) {
	var p Public

	encoded, ok := strings.CutPrefix(text, publicPrefix)
	if !ok || len(encoded) != encoding.EncodedLen(len(p)) {
		return p, errNoKey
	}

	// The decoder passes over line breaks; what it passes over would give one key several texts.
	raw, err := encoding.DecodeString(encoded)
	if err != nil || len(raw) != len(p) || encoding.EncodeToString(raw) != encoded {
		return p, errNoKey
	}

	return Public(raw), nil
}

// errNoKey quotes nothing: somebody may have given a private key.
var errNoKey = errors.New("a verification key is " + publicPrefix + " and 44 characters of base64")

// ParseAll reads several public keys.
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

// String is what Parse reads.
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
	// Key that checks it. That it does proves nothing unless the key is known from elsewhere.
	Key Public `json:"key"`
	// Value in base64.
	Value string `json:"value"`
}

// Validate says whether it can be a signature at all.
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

// Signs says whether it is the signature of a message of one purpose, by the key that it names.
func (s *Signature) Signs(purpose string, message []byte) bool {
	if s == nil || s.Validate() != nil {
		return false
	}

	raw, err := s.value()

	return err == nil && ed25519.Verify(s.Key[:], framed(purpose, message), raw)
}
