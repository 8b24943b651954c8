package clusterstate

import (
	"encoding/base64"
	"errors"
	"time"
)

// Expiry is when a certificate expires.
type Expiry struct {
	// Certificate is its name, for users and metrics.
	Certificate string
	// NotAfter is the end of its validity.
	NotAfter time.Time
	// Authority is true for a CA, which is not renewed automatically.
	Authority bool
}

// Authorities returns the expiry times of the cluster's CAs.
func (b *Bundle) Authorities() []Expiry {
	certs := b.secrets.Certs

	var out []Expiry

	for _, ca := range []authority{
		{"ca-aggregator", certs.K8sAggregator},
		{"ca-etcd", certs.Etcd},
		{"ca-kubernetes", certs.K8s},
		{"ca-talos", certs.OS},
	} {
		// A bundle is only created or read with certificates that can be parsed.
		if cert, err := ca.pair.GetCert(); err == nil {
			out = append(out, Expiry{Certificate: ca.name, NotAfter: cert.NotAfter, Authority: true})
		}
	}

	return out
}

// TalosconfigCredentials reads the credentials in a talosconfig's current context.
func TalosconfigCredentials(data []byte) (*TalosCredentials, error) {
	ctx, err := talosContext(data)
	if err != nil {
		return nil, err
	}

	out := &TalosCredentials{}

	for _, part := range []struct {
		text string
		into *[]byte
	}{{ctx.CA, &out.CA}, {ctx.Crt, &out.Cert}, {ctx.Key, &out.Key}} {
		if *part.into, err = base64.StdEncoding.DecodeString(part.text); err != nil {
			return nil, errors.New("reading talosconfig: the credentials are not base64")
		}
	}

	if out.NotAfter, err = certificateEnd(out.Cert); err != nil {
		return nil, err
	}

	return out, nil
}
