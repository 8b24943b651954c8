package kubernetes_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/talos-operator/talos-operator/lab/kubernetes"
	"github.com/talos-operator/talos-operator/test/wait"
)

func TestAdminKubeconfigWorks(t *testing.T) {
	t.Parallel()

	c := general.join(t)

	raw, err := kubernetes.AdminKubeconfig(c.cfg, c.cfg.Cluster().Endpoint().String())
	if err != nil {
		t.Fatal(err)
	}

	kubeconfig, err := clientcmd.Load(raw)
	if err != nil {
		t.Fatal(err)
	}

	if kubeconfig.CurrentContext != "admin@lab" {
		t.Errorf("context %q", kubeconfig.CurrentContext)
	}

	cfg, err := clientcmd.RESTConfigFromKubeConfig(raw)
	if err != nil {
		t.Fatal(err)
	}

	client, err := clientset.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}

	version, err := client.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}

	if version.GitVersion != "v1.36.4" {
		t.Errorf("the API server reports %s", version.GitVersion)
	}

	// An administrator may do anything.
	if _, err := client.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
}

func TestServingCertificate(t *testing.T) {
	t.Parallel()

	c := general.join(t)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.cfg.Cluster().IssuingCA().Crt)

	for _, name := range []string{
		c.address, "127.0.0.1", "10.96.0.1", "api.example.org", "n1", "localhost", "kubernetes.default.svc.cluster.local",
	} {
		conn, err := tls.Dial("tcp", c.address+":6443", &tls.Config{RootCAs: roots, ServerName: name})
		if err != nil {
			t.Errorf("dialing as %s: %v", name, err)

			continue
		}

		conn.Close()
	}

	// No client gets in without a certificate.
	anonymous := c.server.Config()
	anonymous.CertData, anonymous.KeyData = nil, nil

	client, err := clientset.NewForConfig(anonymous)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("an anonymous caller was served")
	}
}

func TestSecretsLieEncryptedInThisEtcd(t *testing.T) {
	t.Parallel()

	c := general.join(t)

	eventually(t, "a secret", func(ctx context.Context) error {
		_, err := c.client().CoreV1().Secrets("default").Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"key": "plain words"},
		}, metav1.CreateOptions{})

		return err
	})

	resp, err := c.member.Client().Get(t.Context(), "/registry/secrets/default/s")
	if err != nil {
		t.Fatal(err)
	}

	if len(resp.Kvs) != 1 {
		t.Fatalf("%d values in etcd", len(resp.Kvs))
	}

	value := resp.Kvs[0].Value
	if !bytes.HasPrefix(value, []byte("k8s:enc:secretbox:v1:key2:")) || bytes.Contains(value, []byte("plain words")) {
		t.Errorf("stored as %q", value)
	}
}

func TestKillFreezeAndStop(t *testing.T) {
	t.Parallel()

	c := start(t)

	if err := c.server.Freeze(true); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()

	if err := c.server.Ready(ctx); err == nil {
		t.Error("a frozen API server is ready")
	}

	if err := c.server.Freeze(false); err != nil {
		t.Fatal(err)
	}

	c.ready()
	c.server.Kill()

	if c.server.Err() == nil {
		t.Error("a killed API server has no error")
	}

	if err := c.server.Ready(t.Context()); err == nil {
		t.Error("a dead API server is ready")
	}

	// Another version takes over the data.
	c.opts.Config = patched(t, c.cfg, "cluster: {apiServer: {image: registry.k8s.io/kube-apiserver:v1.35.2}}")
	c.run()

	version, err := c.client().Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}

	if version.GitVersion != "v1.35.2" {
		t.Errorf("the API server reports %s", version.GitVersion)
	}

	// A watch never ends by itself; it must not hold up a node that shuts down.
	watch, err := c.client().CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}

	defer watch.Stop()

	stopped := make(chan error, 1)

	go func() { stopped <- c.server.Stop(t.Context()) }()

	if err := wait.Done(t, "the API server stops", stopped); err != nil {
		t.Error(err)
	}
}

func TestExtraArgsOfTheConfig(t *testing.T) {
	t.Parallel()

	c := start(t, `cluster: {apiServer: {extraArgs: {max-requests-inflight: "77", bind-address: "127.0.0.1"}}}`)

	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", c.server.PID()))
	if err != nil {
		t.Fatal(err)
	}

	if !bytes.Contains(cmdline, []byte("--max-requests-inflight=77")) {
		t.Error("the extra argument is missing")
	}

	// That it is ready at all at its own address shows that the config could not move it.
	if bytes.Contains(cmdline, []byte("--bind-address=127.0.0.1")) {
		t.Error("the config moved the API server")
	}

	// A flag that does not exist ends the API server, as on a real node.
	c.server.Kill()

	c.opts.Config = patched(t, c.cfg, `cluster: {apiServer: {extraArgs: {no-such-flag: "1"}}}`)

	server, err := kubernetes.StartAPIServer(t.Context(), c.opts)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(server.Kill)

	wait.Done(t, "an API server with a flag that does not exist ends", server.Done())

	if !strings.Contains(c.log.String(), "unknown flag: --no-such-flag") {
		t.Error("the log does not say why")
	}
}

func TestWorkerConfigMakesNoAPIServer(t *testing.T) {
	t.Parallel()

	cfg := machineConfig(t, "https://127.33.6.1:6443", machine.TypeWorker)

	_, err := kubernetes.StartAPIServer(t.Context(), kubernetes.APIServerOptions{
		Binary: "/nonexistent", Dir: t.TempDir(), Name: "w1", Address: "127.33.6.1", Config: cfg,
	})
	if err == nil || !strings.Contains(err.Error(), "no CA key") {
		t.Errorf("error %v", err)
	}

	if _, err := kubernetes.AdminKubeconfig(cfg, "https://127.33.6.1:6443"); err == nil {
		t.Error("a worker made an admin kubeconfig")
	}
}

func conditions(node *corev1.Node) string {
	var all []string
	for _, c := range node.Status.Conditions {
		all = append(all, fmt.Sprintf("%s=%s (%s)", c.Type, c.Status, c.Reason))
	}

	slices.Sort(all)

	return strings.Join(all, ", ")
}
