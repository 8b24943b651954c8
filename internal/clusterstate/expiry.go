package clusterstate

import (
	"encoding/base64"
	"errors"
	"time"
)

// Expiry is when a certificate ends.
type Expiry struct {
	// Certificate is its name, for people and metrics.
	Certificate string
	// NotAfter is its last moment.
	NotAfter time.Time
	// Authority is true for a CA: it does not renew by itself.
	Authority bool
}

// Authorities are the ends of the cluster's CAs.
func (b *Bundle) Authorities() []Expiry {
	certs := b.secrets.Certs

	var out []Expiry

	for _, ca := range []authority{
		{"ca-aggregator", certs.K8sAggregator}, {"ca-etcd", certs.Etcd}, {"ca-kubernetes", certs.K8s},
		{"ca-talos", certs.OS},
	} {
		// A bundle is only made or read with certificates that parse.
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
