package talosetcdrestore_test

import (
	"context"
	"crypto/tls"
	stdx509 "crypto/x509"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/siderolabs/crypto/x509"
	clientv3 "go.etcd.io/etcd/client/v3"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/test/harness"
	"github.com/talos-operator/talos-operator/test/wait"
)

// kubeAPI stands in for the API server of a node: it answers from the node's real etcd what a restore asks for, and not
// at all where that does not run. All kubelets are alive. A real API server takes more time than the rest of a restore.
type kubeAPI struct {
	etcd *clientv3.Client
	http *http.Server
	// empty: no kubelet has registered.
	empty atomic.Bool
}

// serveKubernetes stands in for the API servers of all nodes.
func (e *fleet) serveKubernetes(t *testing.T, st *clusterstate.State) {
	t.Helper()

	if len(e.apis) > 0 {
		return
	}

	for _, n := range e.Nodes {
		a, err := startKubeAPI(st, n.Address())
		if err != nil {
			t.Fatal(err)
		}

		e.apis = append(e.apis, a)
	}
}

func (e *fleet) stopKubernetes() {
	for _, a := range e.apis {
		a.close()
	}
}

func startKubeAPI(st *clusterstate.State, address string) (*kubeAPI, error) {
	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(st.Bundle.Secrets().Certs.K8s)
	if err != nil {
		return nil, err
	}

	pair, err := x509.NewKeyPair(ca, x509.NotAfter(wait.Now().Add(time.Hour)),
		x509.IPAddresses([]net.IP{net.ParseIP(address)}),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageServerAuth}))
	if err != nil {
		return nil, err
	}

	cert, err := tls.X509KeyPair(pair.CrtPEM, pair.KeyPEM)
	if err != nil {
		return nil, err
	}

	clients := stdx509.NewCertPool()
	clients.AppendCertsFromPEM(ca.CrtPEM)

	a := &kubeAPI{}
	if a.etcd, err = harness.EtcdClient(st, address); err != nil {
		return nil, err
	}

	l, err := tls.Listen("tcp", net.JoinHostPort(address, "6443"), &tls.Config{
		Certificates: []tls.Certificate{cert}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert,
		MinVersion: tls.VersionTLS12,
	})
	if err != nil {
		return nil, err
	}

	a.http = &http.Server{Handler: a.routes(), ReadHeaderTimeout: time.Hour, ErrorLog: log.New(io.Discard, "", 0)}

	go func() { _ = a.http.Serve(l) }()

	return a, nil
}

func (a *kubeAPI) close() {
	_ = a.http.Close()
	_ = a.etcd.Close()
}

func (a *kubeAPI) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { a.from(w, r, "/", func(int, int64) any { return "ok" }) })
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) { reply(w, &version.Info{GitVersion: kubernetes}) })
	mux.HandleFunc("GET /api/v1/namespaces", func(w http.ResponseWriter, r *http.Request) {
		a.from(w, r, "/registry/namespaces/", func(n int, revision int64) any {
			return &corev1.NamespaceList{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NamespaceList"},
				ListMeta: metav1.ListMeta{ResourceVersion: strconv.FormatInt(revision, 10)}, Items: make([]corev1.Namespace, n),
			}
		})
	})
	mux.HandleFunc("GET /api/v1/secrets", func(w http.ResponseWriter, r *http.Request) {
		a.from(w, r, "/registry/secrets/", func(n int, _ int64) any {
			return &corev1.SecretList{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "SecretList"}, Items: make([]corev1.Secret, n),
			}
		})
	})
	mux.HandleFunc("GET /api/v1/nodes/{name}", func(w http.ResponseWriter, r *http.Request) {
		if a.empty.Load() {
			w.WriteHeader(http.StatusNotFound)
			reply(w, &metav1.Status{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
				Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound,
			})

			return
		}

		reply(w, &corev1.Node{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: r.PathValue("name")},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		})
	})
	mux.HandleFunc("GET /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}",
		func(w http.ResponseWriter, _ *http.Request) {
			// Later than any time to which a test moves the clock on.
			at := metav1.NewMicroTime(time.Date(2126, 11, 25, 12, 0, 0, 0, time.UTC))
			reply(w, &coordinationv1.Lease{
				TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
				Spec:     coordinationv1.LeaseSpec{RenewTime: &at},
			})
		})

	return mux
}

// from responds with what etcd has below a prefix.
func (a *kubeAPI) from(w http.ResponseWriter, r *http.Request, prefix string, answer func(keys int, revision int64) any) {
	// An API server times out as well, and is asked again.
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()

	got, err := a.etcd.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		http.Error(w, "etcd does not respond", http.StatusInternalServerError)

		return
	}

	reply(w, answer(int(got.Count), got.Header.Revision))
}

func reply(w http.ResponseWriter, o any) {
	w.Header().Set("Content-Type", "application/json")

	_ = json.NewEncoder(w).Encode(o)
}
