// Package kubernetes gives an emulated control-plane node a real Kubernetes API server, and every emulated node a
// kubelet as the API server sees one.
package kubernetes

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"k8s.io/client-go/rest"

	"github.com/talos-operator/talos-operator/lab/process"
)

// maxBody bounds what is read of an answer to a readiness check.
const maxBody = 64 << 10

// APIServerOptions describe the API server of one control-plane node.
type APIServerOptions struct {
	// Binary is the path to kube-apiserver.
	Binary string
	// Dir holds its certificates and configuration, written afresh at each start.
	Dir string
	// Name is the host name, Address the node's IP: both are in the serving certificate.
	Name, Address string
	// Config is the machine config that everything else follows from.
	Config config.Config
	// Log receives what the API server prints; it may be nil.
	Log io.Writer
}

// APIServer is one running API server.
type APIServer struct {
	proc *process.Process
	rest *rest.Config
	http *http.Client
}

// StartAPIServer starts the API server. It returns once the process runs; Ready tells when it serves. It needs the
// node's etcd member to be up, as on a real node.
func StartAPIServer(_ context.Context, o APIServerOptions) (*APIServer, error) {
	if err := o.writeFiles(); err != nil {
		return nil, err
	}

	cfg, err := AdminConfig(o.Config, o.Address)
	if err != nil {
		return nil, err
	}

	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("making a client of the API server: %w", err)
	}

	env := append(process.Node(), "LAB_KUBERNETES_VERSION="+versionOf(o.Config.Cluster().APIServer().Image()))

	proc, err := process.Start("kube-apiserver "+o.Name, o.Binary, o.flags(), env, o.Log)
	if err != nil {
		return nil, err
	}

	return &APIServer{proc: proc, rest: cfg, http: client}, nil
}

// versionOf is the tag of an image, without a digest.
func versionOf(image string) string {
	image, _, _ = strings.Cut(image, "@")

	return image[strings.LastIndex(image, ":")+1:]
}

// writeFiles writes everything that the flags name.
func (o APIServerOptions) writeFiles() error {
	files, err := o.pki()
	if err != nil {
		return fmt.Errorf("preparing kube-apiserver: %w", err)
	}

	if files["admission-control-config.yaml"], err = o.admission(); err != nil {
		return err
	}

	if files["encryptionconfig.yaml"], err = o.encryption(); err != nil {
		return err
	}

	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return fmt.Errorf("preparing kube-apiserver: %w", err)
	}

	for name, content := range files {
		if err := os.WriteFile(o.path(name), content, 0o600); err != nil {
			return fmt.Errorf("preparing kube-apiserver: %w", err)
		}
	}

	return nil
}

// Ready is nil when the API server calls itself ready. It is a plain request: a client with retries and discovery
// would hide a server that hangs.
func (a *APIServer) Ready(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.rest.Host+"/readyz", nil)
	if err != nil {
		return fmt.Errorf("asking kube-apiserver: %w", err)
	}

	resp, err := a.http.Do(req)
	if err != nil {
		return fmt.Errorf("asking kube-apiserver: %w", err)
	}

	defer resp.Body.Close()

	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return fmt.Errorf("asking kube-apiserver: %w", err)
	}

	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("kube-apiserver is not ready: %s: %s", resp.Status, strings.TrimSpace(string(body)))
	}

	return nil
}

// Config reaches this API server directly, as cluster admin.
func (a *APIServer) Config() *rest.Config { return rest.CopyConfig(a.rest) }

// PID is the process ID of the API server.
func (a *APIServer) PID() int { return a.proc.PID() }

// Stop ends the API server.
func (a *APIServer) Stop(ctx context.Context) error {
	defer a.http.CloseIdleConnections()

	return a.proc.Stop(ctx)
}

// Kill ends the API server as a power cut does.
func (a *APIServer) Kill() {
	a.proc.Kill()
	a.http.CloseIdleConnections()
}

// Freeze halts the API server or lets it continue.
func (a *APIServer) Freeze(frozen bool) error { return a.proc.Freeze(frozen) }

// Done is closed when the process is gone.
func (a *APIServer) Done() <-chan struct{} { return a.proc.Done() }

// Err says how the process ended; nil while it runs.
func (a *APIServer) Err() error { return a.proc.Err() }
