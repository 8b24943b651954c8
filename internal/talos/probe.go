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

// State is the state of a machine according to a probe.
type State int

// States.
const (
	// StateUnreachable: the machine does not respond, or its response does not reveal its state.
	StateUnreachable State = iota
	// StateMaintenance: the machine is in maintenance mode and has no configuration.
	StateMaintenance
	// StateMember: the machine runs under the cluster's CA and accepts the client certificate.
	StateMember
	// StateForeign: the machine is configured under another CA.
	StateForeign
)

// Probe is the result of a probe.
type Probe struct {
	// State of the machine.
	State State
	// Fingerprint of the certificate that a machine in maintenance mode has presented; empty in every other state.
	Fingerprint string
}

const (
	probeTimeout = 3 * time.Second
	// greetingTimeout is how long a server may take to send the first byte, which gRPC servers do immediately.
	greetingTimeout = 500 * time.Millisecond
)

// Probe determines what a machine is, by TLS alone: no data is sent to it. It first connects with the cluster's
// credentials. A connection without them follows only if the certificate was not issued by the cluster's CA, to
// distinguish maintenance mode from another cluster; nothing secret is sent over it. Without credentials, a configured
// machine is always foreign.
//
// StateForeign needs proof: a certificate that the cluster's CA did not issue, and a refusal to communicate without a
// client certificate. A node under the cluster's CA that rejects the credentials, or whose certificate has expired, is
// unreachable, with an error of class Auth.
func (p *Pool) Probe(ctx context.Context, address string, creds *Credentials) (Probe, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()

	if creds != nil {
		met, err := meetMember(ctx, address, creds)
		if met != metStranger {
			return member(met), err
		}
	}

	// No certificate is expected here: the caller learns which one it is, and decides what to send.
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

	// Connect once more with the credentials: the machine may have been configured between the two connections.
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

// meetMember connects with the cluster's credentials. The error is classified; it is nil for a response and for a
// foreign machine.
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

// encounter is the result of a TLS connection to a machine.
type encounter int

const (
	// metNothing: there is no connection, or its end reveals nothing.
	metNothing encounter = iota
	// metAnswer: the machine communicates.
	metAnswer
	// metStranger: the machine's certificate was not issued by the cluster's CA.
	metStranger
	// metInvalid: the certificate was issued by the cluster's CA and is invalid nevertheless.
	metInvalid
	// metRefusal: the machine rejects the client certificate, or requires one.
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

// signedBy reports whether a certificate was issued by one of the CAs, regardless of its validity and names.
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

// preface is the connection preface of HTTP/2, with empty settings.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// greet connects, performs the handshake and reads the first byte of the server. With TLS 1.3, a client certificate is
// rejected after the handshake, and writing before the rejection is read may lose it: the connection then breaks
// without a reason. Since a gRPC server sends first, greet reads first too.
func greet(ctx context.Context, target string, cfg *tls.Config) error {
	cfg = cfg.Clone()
	cfg.NextProtos = []string{"h2"}

	conn, err := (&tls.Dialer{NetDialer: &net.Dialer{}, Config: cfg}).DialContext(ctx, "tcp", target)
	if err != nil {
		return err
	}
	defer conn.Close()

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
