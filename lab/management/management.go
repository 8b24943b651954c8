// Package management runs a management plane: a real etcd and a real kube-apiserver, with TLS and RBAC, that hold the
// objects of the operator. Its data stay in a directory, so that a management plane that is started again carries on.
package management

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/siderolabs/crypto/x509"
	"k8s.io/client-go/rest"

	"github.com/talos-operator/talos-operator/lab/process"
)

const (
	apiServerPort  = 6443
	etcdClientPort = 2379
	etcdPeerPort   = 2380
	etcdHTTPPort   = 2381
)

// Options describe a management plane.
type Options struct {
	// Dir holds data, certificates and logs.
	Dir string
	// Assets is the folder with etcd and kube-apiserver; found by itself when empty.
	Assets string
	// Address is a loopback address of its own: the ports are always the same.
	Address string
	// Log receives what etcd and kube-apiserver print; DIR/etcd.log and DIR/kube-apiserver.log when nil.
	Log io.Writer
}

// Plane is a running management plane.
type Plane struct {
	opts  Options
	pki   *pki
	admin *rest.Config

	etcd      *process.Process
	apiServer *process.Process
	logs      []io.Closer
}

// Start starts a management plane and returns when it serves and knows the kinds of the operator.
func Start(ctx context.Context, o Options) (*Plane, error) {
	if o.Assets == "" {
		assets, err := process.Assets()
		if err != nil {
			return nil, err
		}

		o.Assets = assets
	}

	keys, err := openPKI(filepath.Join(o.Dir, "pki"), o.Address)
	if err != nil {
		return nil, err
	}

	p := &Plane{opts: o, pki: keys}

	if err := p.start(ctx); err != nil {
		p.Kill()

		return nil, fmt.Errorf("starting the management plane: %w", err)
	}

	return p, nil
}

// Attach returns a management plane that another process has started in a directory, and keeps: it can be used as one's
// own, but not stopped, killed or frozen.
func Attach(dir, address string) (*Plane, error) {
	keys, err := openPKI(filepath.Join(dir, "pki"), address)
	if err != nil {
		return nil, err
	}

	p := &Plane{opts: Options{Dir: dir, Address: address}, pki: keys}

	if p.admin, err = p.User("admin", groupMasters); err != nil {
		return nil, err
	}

	return p, nil
}

func (p *Plane) start(ctx context.Context) error {
	var err error

	if p.admin, err = p.User("admin", groupMasters); err != nil {
		return err
	}

	if err := p.free(ctx); err != nil {
		return err
	}

	if err := p.startEtcd(ctx); err != nil {
		return err
	}

	if err := p.startAPIServer(ctx); err != nil {
		return err
	}

	return p.install(ctx)
}

// free makes sure that nothing else serves at the address, because etcd would only say so in its log.
func (p *Plane) free(ctx context.Context) error {
	var lc net.ListenConfig

	for _, port := range []int{etcdClientPort, etcdPeerPort, etcdHTTPPort, apiServerPort} {
		l, err := lc.Listen(ctx, "tcp", fmt.Sprintf("%s:%d", p.opts.Address, port))
		if err != nil {
			return fmt.Errorf("is another lab running? %w", err)
		}

		_ = l.Close()
	}

	return nil
}

// Address is the IP of the management plane.
func (p *Plane) Address() string { return p.opts.Address }

// Dir is the folder of the plane.
func (p *Plane) Dir() string { return p.opts.Dir }

// Host is the URL of its API server.
func (p *Plane) Host() string { return fmt.Sprintf("https://%s:%d", p.opts.Address, apiServerPort) }

// Config reaches the API server as an admin.
func (p *Plane) Config() *rest.Config { return rest.CopyConfig(p.admin) }

// User returns access for a user with a client certificate; which roles it has is a matter of RBAC.
func (p *Plane) User(name string, groups ...string) (*rest.Config, error) {
	pair, err := client(p.pki.cluster, name, groups...)
	if err != nil {
		return nil, err
	}

	return p.restConfig(pair), nil
}

func (p *Plane) restConfig(pair *x509.PEMEncodedCertificateAndKey) *rest.Config {
	return &rest.Config{
		Host: p.Host(),
		// The lab and the tests must not be slowed down by their own client.
		QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{
			CAData: p.pki.cluster.Crt, CertData: pair.Crt, KeyData: pair.Key,
		},
	}
}

// stopGrace is how long a process may take to end before it is killed, which costs nothing: etcd has every write that
// was acknowledged.
const stopGrace = 10 * time.Second

// Stop ends the management plane in order, and kills what takes long.
func (p *Plane) Stop(ctx context.Context) error {
	var errs []error

	for _, proc := range []*process.Process{p.apiServer, p.etcd} {
		if proc == nil {
			continue
		}

		grace, cancel := context.WithTimeout(ctx, stopGrace)
		if err := proc.Stop(grace); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			errs = append(errs, err)
		}

		cancel()
	}

	p.closeLogs()

	return errors.Join(errs...)
}

// Kill ends the management plane as a power cut does.
func (p *Plane) Kill() {
	for _, proc := range []*process.Process{p.apiServer, p.etcd} {
		if proc != nil {
			proc.Kill()
		}
	}

	p.closeLogs()
}

// Freeze halts the API server, or lets it continue.
func (p *Plane) Freeze(frozen bool) error { return p.apiServer.Freeze(frozen) }

// Done is closed when the API server is gone.
func (p *Plane) Done() <-chan struct{} { return p.apiServer.Done() }

// APIServer is the process of the API server.
func (p *Plane) APIServer() *process.Process { return p.apiServer }

// Etcd is the process of etcd.
func (p *Plane) Etcd() *process.Process { return p.etcd }

// log opens the log of a process.
func (p *Plane) log(name string) (io.Writer, error) {
	if p.opts.Log != nil {
		return p.opts.Log, nil
	}

	file, err := os.OpenFile(filepath.Join(p.opts.Dir, name+".log"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", name, err)
	}

	p.logs = append(p.logs, file)

	return file, nil
}

func (p *Plane) closeLogs() {
	for _, file := range p.logs {
		_ = file.Close()
	}

	p.logs = nil
}
