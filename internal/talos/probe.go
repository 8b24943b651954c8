package talos

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// State is what a machine turns out to be when it is asked.
type State int

// States.
const (
	// StateUnreachable: no answer, or none that tells.
	StateUnreachable State = iota
	// StateMaintenance: the machine has no config.
	StateMaintenance
	// StateMember: the machine runs under our CA and takes our certificate.
	StateMember
	// StateForeign: the machine is configured, under another CA.
	StateForeign
)

// Probe is the outcome of a probe.
type Probe struct {
	// State of the machine.
	State State
	// Fingerprint of the certificate that a machine in maintenance mode has shown; empty in every other state.
	Fingerprint string
}

const (
	probeTimeout = 3 * time.Second
	// greetingTimeout is how long a server may take to speak first. gRPC servers do so at once.
	greetingTimeout = 500 * time.Millisecond
)

// Probe finds out what a machine is, by TLS alone: nothing is sent to it. With our credentials first; a connection
// without them follows only where the certificate was not of our CA, to tell maintenance mode from another cluster,
// and nothing secret goes over it. Without credentials a configured machine is always foreign.
//
// Foreign needs proof: a certificate that our CA did not sign, and a refusal to talk without a client certificate. A
// node of our CA that refuses us, or whose certificate is out of date, is unreachable, with an error of class Auth.
func (p *Pool) Probe(ctx context.Context, address string, creds *Credentials) (Probe, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()

	if creds != nil {
		met, err := meetMember(ctx, address, creds)
		if met != metStranger {
			return member(met), err
		}
	}

	// Nothing is expected of the certificate here: who asks learns which one it is, and what to send depends on it.
	shown := ""
	cfg := (&pin{}).tls()
	cfg.VerifyConnection = func(c tls.ConnectionState) error {
		shown = shownBy(c).String()

		return nil
	}

	switch met, err := meet(ctx, address, cfg); met {
	case metAnswer:
		return Probe{State: StateMaintenance, Fingerprint: shown}, nil
	case metRefusal:
	case metStranger, metInvalid, metNothing:
		return Probe{}, silent(address, err)
	}

	if creds == nil {
		return Probe{State: StateForeign}, nil
	}

	// Once more with our credentials: a machine that took its config between the two looks is ours.
	met, err := meetMember(ctx, address, creds)
	if met == metStranger {
		return Probe{State: StateForeign}, nil
	}

	return member(met), err
}

func member(met encounter) Probe {
	if met == metAnswer {
		return Probe{State: StateMember}
	}

	return Probe{}
}

// meetMember connects with our credentials. The error is classified; it is nil for an answer and for a stranger.
func meetMember(ctx context.Context, address string, creds *Credentials) (encounter, error) {
	cfg, err := creds.TLSConfig()
	if err != nil {
		return metNothing, err
	}

	met, err := meet(ctx, address, cfg)

	switch met {
	case metAnswer, metStranger:
		return met, nil
	case metRefusal:
		return met, failure.Auth(v1alpha1.ReasonAuthFailed, address+" rejects the operator's client certificate; check "+
			"for clock skew",
			err)
	case metInvalid:
		return met, failure.Auth(v1alpha1.ReasonAuthFailed, address+" presents a certificate of its cluster that is not "+
			"valid now or not for this address", err)
	case metNothing:
	}

	return met, silent(address, err)
}

func silent(address string, err error) error {
	return failure.Transient(v1alpha1.ReasonNodeUnreachable, "no response from "+address, err)
}

// encounter is how a TLS connection to a machine went.
type encounter int

const (
	// metNothing: no connection, or an end that does not tell.
	metNothing encounter = iota
	// metAnswer: the machine talks to us.
	metAnswer
	// metStranger: the machine's certificate is not of our CA.
	metStranger
	// metInvalid: the certificate is of our CA, and still not good.
	metInvalid
	// metRefusal: the machine refuses us because of our certificate, or for want of one.
	metRefusal
)

func meet(ctx context.Context, address string, cfg *tls.Config) (encounter, error) {
	err := greet(ctx, net.JoinHostPort(address, apidPort), cfg)

	var verify *tls.CertificateVerificationError

	switch {
	case err == nil:
		return metAnswer, nil
	case errors.As(err, &verify):
		if signedBy(cfg.RootCAs, verify.UnverifiedCertificates) {
			return metInvalid, err
		}

		return metStranger, err
	case isCertificateAlert(err.Error()):
		return metRefusal, err
	}

	return metNothing, err
}

// signedBy tells whether a certificate comes from one of the CAs, whatever its dates and names.
func signedBy(roots *x509.CertPool, chain []*x509.Certificate) bool {
	if len(chain) == 0 {
		return false
	}

	opts := x509.VerifyOptions{
		Roots: roots, CurrentTime: chain[0].NotBefore, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
		Intermediates: x509.NewCertPool(),
	}
	for _, c := range chain[1:] {
		opts.Intermediates.AddCert(c)
	}

	_, err := chain[0].Verify(opts)

	var unknown x509.UnknownAuthorityError

	return !errors.As(err, &unknown)
}

var apidPort = portText(constants.ApidPort)

// preface is that of HTTP/2, with empty settings.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// greet connects, shakes hands and reads the first byte of the server. With TLS 1.3 the refusal of a client certificate
// comes after the handshake, and writing before it has been read may lose it: the connection breaks then, without a
// word. So the server, which speaks first in gRPC, has the first word here too.
func greet(ctx context.Context, target string, cfg *tls.Config) error {
	cfg = cfg.Clone()
	cfg.NextProtos = []string{"h2"}

	conn, err := (&tls.Dialer{NetDialer: &net.Dialer{}, Config: cfg}).DialContext(ctx, "tcp", target)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // only asked

	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()

	if err := conn.SetReadDeadline(time.Now().Add(greetingTimeout)); err != nil {
		return fmt.Errorf("setting a deadline: %w", err)
	}

	first := make([]byte, 1)

	_, err = io.ReadFull(conn, first)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}

	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("removing a deadline: %w", err)
	}

	if _, err := conn.Write([]byte(preface)); err != nil {
		return err
	}

	_, err = io.ReadFull(conn, first)

	return err
}
