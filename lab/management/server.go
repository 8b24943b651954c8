package management

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/talos-operator/talos-operator/lab/process"
)

// readyPoll is the pause between two checks of a process that starts.
const readyPoll = 50 * time.Millisecond

// startTimeout bounds the start of one process; on a machine that is busy with other things it takes longer.
const startTimeout = 5 * time.Minute

// auditPolicy keeps a trace of every write, so that tests and benchmarks can count them by user, and of every request
// of AuditedGroup, without their content: Secrets must not end up in a log.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
  userGroups: ["` + AuditedGroup + `"]
- level: None
  verbs: [get, list, watch]
- level: None
  resources: [{group: authentication.k8s.io}, {group: authorization.k8s.io}]
- level: None
  users: ["system:apiserver"]
- level: Metadata
`

func (p *Plane) startEtcd(ctx context.Context) error {
	if err := p.pki.server(p.pki.etcd, "etcd"); err != nil {
		return err
	}

	log, err := p.log("etcd")
	if err != nil {
		return err
	}

	peer := fmt.Sprintf("https://%s:%d", p.opts.Address, etcdPeerPort)

	p.etcd, err = process.Start("etcd", filepath.Join(p.opts.Assets, "etcd"), []string{
		"--name=management",
		"--data-dir=" + filepath.Join(p.opts.Dir, "etcd"),
		"--listen-client-urls=" + p.etcdURL(), "--advertise-client-urls=" + p.etcdURL(),
		// Where etcd serves HTTP on a port of its own, gRPC does not go through an HTTP server, which costs more.
		"--listen-client-http-urls=" + p.etcdHTTP(),
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=management=" + peer,
		"--client-cert-auth=true", "--trusted-ca-file=" + p.pki.path("etcd-ca.crt"),
		"--cert-file=" + p.pki.path("etcd.crt"), "--key-file=" + p.pki.path("etcd.key"),
		"--peer-client-cert-auth=true", "--peer-trusted-ca-file=" + p.pki.path("etcd-ca.crt"),
		"--peer-cert-file=" + p.pki.path("etcd.crt"), "--peer-key-file=" + p.pki.path("etcd.key"),
		// The page cache survives the death of the process; only the death of the whole computer would lose writes.
		"--unsafe-no-fsync=true",
		"--auto-compaction-mode=periodic", "--auto-compaction-retention=5m",
		"--logger=zap", "--log-level=warn",
	}, append(process.BaseEnv(), process.LazyGC()), log)
	if err != nil {
		return err
	}

	transport, err := rest.TransportFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{
		CAFile: p.pki.path("etcd-ca.crt"), CertFile: p.pki.path("etcd.crt"), KeyFile: p.pki.path("etcd.key"),
	}})
	if err != nil {
		return fmt.Errorf("preparing the connection to etcd: %w", err)
	}

	probe := &http.Client{Transport: transport, Timeout: time.Second}
	defer probe.CloseIdleConnections()

	return await(ctx, p.etcd, "etcd", func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.etcdHTTP()+"/health", nil)
		if err != nil {
			return fmt.Errorf("asking for the health of etcd: %w", err)
		}

		res, err := probe.Do(req)
		if err != nil {
			return fmt.Errorf("asking for the health of etcd: %w", err)
		}

		_ = res.Body.Close()

		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("etcd answers %s", res.Status)
		}

		return nil
	})
}

func (p *Plane) etcdURL() string { return fmt.Sprintf("https://%s:%d", p.opts.Address, etcdClientPort) }

func (p *Plane) etcdHTTP() string { return fmt.Sprintf("https://%s:%d", p.opts.Address, etcdHTTPPort) }

func (p *Plane) startAPIServer(ctx context.Context) error {
	if err := p.pki.server(p.pki.cluster, "kube-apiserver"); err != nil {
		return err
	}

	policy := filepath.Join(p.opts.Dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return fmt.Errorf("writing the audit policy: %w", err)
	}

	log, err := p.log("kube-apiserver")
	if err != nil {
		return err
	}

	p.apiServer, err = process.Start("kube-apiserver", filepath.Join(p.opts.Assets, "kube-apiserver"), []string{
		"--etcd-servers=" + p.etcdURL(), "--etcd-cafile=" + p.pki.path("etcd-ca.crt"),
		"--etcd-certfile=" + p.pki.path("etcd.crt"), "--etcd-keyfile=" + p.pki.path("etcd.key"),
		"--bind-address=" + p.opts.Address, "--advertise-address=" + p.opts.Address,
		fmt.Sprintf("--secure-port=%d", apiServerPort),
		// It would refuse a loopback address, once every ten seconds.
		"--endpoint-reconciler-type=none",
		"--tls-cert-file=" + p.pki.path("kube-apiserver.crt"),
		"--tls-private-key-file=" + p.pki.path("kube-apiserver.key"),
		"--client-ca-file=" + p.pki.path("ca.crt"),
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + p.pki.path("sa.pub"),
		"--service-account-signing-key-file=" + p.pki.path("sa.key"),
		"--service-cluster-ip-range=10.0.0.0/24",
		// Nothing runs here that makes service accounts and quota come to be.
		"--disable-admission-plugins=ServiceAccount,ResourceQuota",
		// This server has few clients, and fair queueing costs a share of every request.
		"--enable-priority-and-fairness=false",
		// Watches never end by themselves: without a period of their own, stopping would wait for them.
		"--shutdown-watch-termination-grace-period=1s", "--shutdown-delay-duration=0s",
		"--shutdown-send-retry-after=false",
		"--audit-policy-file=" + policy, "--audit-log-path=" + p.auditLog(),
		"--audit-log-maxsize=50", "--audit-log-maxbackup=10",
	}, append(process.BaseEnv(), process.LazyGC()), log)
	if err != nil {
		return err
	}

	cs, err := kubernetes.NewForConfig(p.admin)
	if err != nil {
		return fmt.Errorf("preparing the connection to the API server: %w", err)
	}

	return await(ctx, p.apiServer, "kube-apiserver", func(ctx context.Context) error {
		return cs.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// await polls a process that starts until it serves.
func await(ctx context.Context, proc *process.Process, name string, probe func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()

	tick := time.NewTicker(readyPoll)
	defer tick.Stop()

	var last error

	for {
		if last = probe(ctx); last == nil {
			return nil
		}

		select {
		case <-proc.Done():
			return errors.Join(fmt.Errorf("%s ended while it started; its log says why", name), proc.Err())
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w (last answer: %w)", name, ctx.Err(), last)
		case <-tick.C:
		}
	}
}
