package kubernetes

import (
	"context"
	"crypto/tls"
	stdx509 "crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
)

// ModelOptions describe the modelled API server of one control-plane node.
type ModelOptions struct {
	// Name is the host name, Address the node's IP: both are in the serving certificate.
	Name, Address string
	// Config is the machine config that everything else follows from.
	Config config.Config
	// Nodes are the Node objects of the cluster, shared by its API servers.
	Nodes *ModelNodes
	// Pass holds a request up while the machine is frozen or cut off; nil lets everything pass.
	Pass func(context.Context) error
	// Accepts tells from which addresses the firewall of the machine lets connections in; nil lets all of them in.
	Accepts func(netip.Addr) bool
}

// Model is an API server without the API server: it serves the readiness, the version, the Node objects, the ConfigMaps
// and the workloads of a cluster over the same TLS with the same certificates, and knows no other kind. Hundreds of
// them cost what one real API server does.
type Model struct {
	opts ModelOptions
	http *http.Server
	done chan struct{}
}

// StartModel listens and serves.
func StartModel(ctx context.Context, o ModelOptions) (*Model, error) {
	cfg, err := o.tls()
	if err != nil {
		return nil, fmt.Errorf("preparing a modelled API server: %w", err)
	}

	var lc net.ListenConfig

	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(o.Address, apiPort))
	if err != nil {
		return nil, fmt.Errorf("listening for a modelled API server: %w", err)
	}

	m := &Model{opts: o, done: make(chan struct{})}
	m.http = &http.Server{
		Handler: m.routes(), TLSConfig: cfg, ReadHeaderTimeout: modelTimeout,
		// Clients that go away in the middle of a handshake are no news.
		ErrorLog: log.New(io.Discard, "", 0),
	}

	go func() {
		defer close(m.done)

		// It ends with an error only when it is closed.
		_ = m.http.ServeTLS(&filter{Listener: l, accepts: o.Accepts}, "", "")
	}()

	return m, nil
}

// modelTimeout bounds how long a client may take to say what it wants.
const modelTimeout = 10 * time.Second

// Close ends the API server as a power cut does.
func (m *Model) Close() {
	_ = m.http.Close()

	<-m.done
}

// Done is closed when the API server has ended.
func (m *Model) Done() <-chan struct{} { return m.done }

func (o ModelOptions) tls() (*tls.Config, error) {
	serving, err := APIServerOptions{Name: o.Name, Address: o.Address, Config: o.Config}.serving()
	if err != nil {
		return nil, err
	}

	pair, err := tls.X509KeyPair(serving.Crt, serving.Key)
	if err != nil {
		return nil, fmt.Errorf("reading the serving certificate: %w", err)
	}

	clients := stdx509.NewCertPool()
	if !clients.AppendCertsFromPEM(authorities(o.Config)) {
		return nil, errNoCA
	}

	return &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientCAs: clients,
		ClientAuth: tls.VerifyClientCertIfGiven, NextProtos: []string{"h2", "http/1.1"},
	}, nil
}

func (m *Model) routes() http.Handler {
	mux := http.NewServeMux()

	for _, path := range []string{"/readyz", "/livez", "/healthz"} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	}

	mux.HandleFunc("GET /version", m.version)
	mux.HandleFunc("GET /api", func(w http.ResponseWriter, _ *http.Request) { answer(w, modelVersions) })
	mux.HandleFunc("GET /apis", func(w http.ResponseWriter, _ *http.Request) { answer(w, modelGroups) })
	mux.HandleFunc("GET /api/v1", func(w http.ResponseWriter, _ *http.Request) { answer(w, modelResources) })
	mux.HandleFunc("GET /api/v1/nodes", func(w http.ResponseWriter, _ *http.Request) { answer(w, m.opts.Nodes.list()) })
	mux.HandleFunc("GET /api/v1/nodes/{name}", func(w http.ResponseWriter, r *http.Request) {
		reply[*corev1.Node](w)(m.opts.Nodes.get(r.PathValue("name")))
	})
	mux.HandleFunc("PATCH /api/v1/nodes/{name}", m.patch)
	mux.HandleFunc("DELETE /api/v1/nodes/{name}", func(w http.ResponseWriter, r *http.Request) {
		reply[*corev1.Node](w)(m.opts.Nodes.Delete(r.PathValue("name")))
	})
	mux.HandleFunc("GET /api/v1/namespaces/kube-system/pods/{name}", func(w http.ResponseWriter, r *http.Request) {
		reply[*corev1.Pod](w)(m.opts.Nodes.pod(r.Context(), r.PathValue("name")))
	})
	m.configMaps(mux)
	m.workloads(mux)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, apierrors.NewNotFound(schema.GroupResource{Resource: r.URL.Path}, ""))
	})

	return m.guard(mux)
}

// modelVersions and modelGroups are what kubectl asks for first. The groups that the model serves a little of are not
// among them: a client that looks for kinds would miss the others.
var (
	modelVersions = &metav1.APIVersions{
		TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"},
	}
	modelGroups = &metav1.APIGroupList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroupList"}, Groups: []metav1.APIGroup{},
	}
)

// modelResources are the kinds that a client finds.
var modelResources = &metav1.APIResourceList{
	TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: "v1",
	APIResources: []metav1.APIResource{
		{Name: "nodes", Kind: "Node", Verbs: metav1.Verbs{"delete", "get", "list", "patch"}},
		{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: metav1.Verbs{"create", "get", "update"}},
	},
}

// guard accepts no client without a certificate of the cluster, and none at all while the machine is cut off.
func (m *Model) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if m.opts.Pass != nil && m.opts.Pass(r.Context()) != nil {
			panic(http.ErrAbortHandler) // there is no client to respond to any more
		}

		if len(r.TLS.VerifiedChains) == 0 {
			refuse(w, apierrors.NewUnauthorized("Unauthorized"))

			return
		}

		next.ServeHTTP(w, r)
	})
}

func (m *Model) version(w http.ResponseWriter, _ *http.Request) {
	answer(w, &version.Info{
		GitVersion: versionOf(m.opts.Config.Cluster().APIServer().Image()), Platform: "linux/amd64",
	})
}

func (m *Model) patch(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		refuse(w, apierrors.NewBadRequest(err.Error()))

		return
	}

	reply[*corev1.Node](w)(m.opts.Nodes.patch(r.PathValue("name"), types.PatchType(r.Header.Get("Content-Type")), body))
}

func reply[T any](w http.ResponseWriter) func(T, error) {
	return func(obj T, err error) {
		if err != nil {
			refuse(w, err)

			return
		}

		answer(w, obj)
	}
}

func answer(w http.ResponseWriter, obj any) {
	w.Header().Set("Content-Type", "application/json")
	// A client that is gone has no use for an error.
	_ = json.NewEncoder(w).Encode(obj)
}

func refuse(w http.ResponseWriter, err error) {
	status := apierrors.NewInternalError(err).Status()

	var known apierrors.APIStatus
	if errors.As(err, &known) {
		status = known.Status()
	}

	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}

	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))

	_ = json.NewEncoder(w).Encode(status)
}
