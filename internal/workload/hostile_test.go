package workload_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/siderolabs/crypto/x509"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/workload"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/pki"
	"github.com/talos-operator/talos-operator/test/wait"
)

// apiServer is one of a managed cluster whose administrators have it answer whatever they like.
type apiServer struct {
	address string
	bundle  *clusterstate.Bundle
	clients *workload.Clients
	// version is what it reports, answer what it does with all other requests.
	version string
	answer  http.HandlerFunc
	asked   atomic.Int64
}

func newAPIServer(t *testing.T, answer http.HandlerFunc) *apiServer {
	t.Helper()

	bundle, err := pki.New(wait.Now())
	if err != nil {
		t.Fatal(err)
	}

	s := &apiServer{
		address: loopback.Address(t), bundle: bundle, clients: &workload.Clients{Clock: clock.RealClock{}},
		version: `{"gitVersion":"v1.36.2"}`, answer: answer,
	}

	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(bundle.Secrets().Certs.K8s)
	if err != nil {
		t.Fatal(err)
	}

	pair, err := x509.NewKeyPair(ca, x509.IPAddresses([]net.IP{net.ParseIP(s.address)}))
	if err != nil {
		t.Fatal(err)
	}

	l, err := net.Listen("tcp", s.address+":6443")
	if err != nil {
		t.Fatal(err)
	}

	server := &httptest.Server{
		Listener: l, Config: &http.Server{Handler: s}, EnableHTTP2: true,
		TLS: &tls.Config{Certificates: []tls.Certificate{*pair.Certificate}},
	}
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})

	return s
}

// ServeHTTP implements http.Handler.
func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/readyz":
		_, _ = w.Write([]byte("ok"))
	case "/version":
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(s.version))
	default:
		s.asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		s.answer(w, r)
	}
}

func (s *apiServer) cluster(t *testing.T) *workload.Cluster {
	t.Helper()

	c, err := s.clients.Cluster(t.Context(), s.bundle, []string{s.address})
	if err != nil {
		t.Fatal(err)
	}

	return c
}

// list is a list with the given objects and mark of the next page. Where it names no kind, it is that of the request.
func list(next, items string) string {
	return fmt.Sprintf(`{"metadata":{"resourceVersion":"7","continue":%q},"items":[%s]}`, next, items)
}

func say(w http.ResponseWriter, text string) { _, _ = w.Write([]byte(text)) }

// forever sends a text until the connection ends.
func forever(w http.ResponseWriter, head, text string) {
	for _, err := w.Write([]byte(head)); err == nil; _, err = w.Write([]byte(text)) {
		continue
	}
}

// calls are the public functions that read lists.
var calls = map[string]func(context.Context, *workload.Cluster) error{
	"nodes": func(ctx context.Context, c *workload.Cluster) error {
		_, err := c.Nodes(ctx)

		return err
	},
	"pods": func(ctx context.Context, c *workload.Cluster) error {
		_, err := c.Drain(ctx, workload.NodeRef{Name: "n"}, workload.DrainOptions{})

		return err
	},
	"namespaces": func(ctx context.Context, c *workload.Cluster) error {
		_, err := c.Contents(ctx)

		return err
	},
}

// onNode answers requests of single Nodes honestly, for a drain gets to the pods only then.
func onNode(list http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/nodes/n") {
			say(w, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n"},"spec":{"unschedulable":true}}`)

			return
		}

		list(w, r)
	}
}

// TestRedirects: the API server of a managed cluster cannot lead requests of the operator to another address.
func TestRedirects(t *testing.T) {
	t.Parallel()

	var led atomic.Int64

	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { led.Add(1) }))
	t.Cleanup(other.Close)

	for name, call := range calls {
		s := newAPIServer(t, onNode(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL+"/latest/meta-data", http.StatusFound)
		}))

		if err := call(t.Context(), s.cluster(t)); err == nil || !strings.Contains(err.Error(), "redirects the request") {
			t.Errorf("%s ended with %v", name, err)
		}
	}

	if led.Load() > 0 {
		t.Errorf("%d requests were led to another address", led.Load())
	}
}

func TestMain(m *testing.M) {
	workload.TakeTime()
	os.Exit(m.Run())
}

// TestHostileLists: an API server that ignores the size of a page, or answers without an end, is refused before what it
// sends is decoded: decoded, most of these answers take a GiB.
func TestHostileLists(t *testing.T) {
	const many = 1 << 20

	nested := func(field, element string) string {
		return `{"metadata":{"name":"n"},` + field + "[" + strings.Repeat(element+",", many) + element + "]}}"
	}

	for name, text := range map[string]string{
		"empty objects": list("", strings.Repeat("{},", many)+"{}"),
		"nothing":       list("", strings.Repeat("null,", many)+"null"),
		"conditions":    list("", nested(`"status":{"conditions":`, "{}")),
		"containers":    list("", nested(`"spec":{"containers":`, "{}")),
		"twice the items": strings.Replace(list("", strings.Repeat("{},", 249)+"{}"), `"items"`,
			`"items":[`+strings.Repeat("{},", 249)+`{}],"items"`, 1),
	} {
		for what, call := range calls {
			if name == "twice the items" && what == "pods" {
				continue // its pages are smaller anyway
			}

			t.Run(name+" of "+what, func(t *testing.T) {
				server := newAPIServer(t, onNode(func(w http.ResponseWriter, _ *http.Request) { say(w, text) }))
				c := server.cluster(t)

				var before, after runtime.MemStats

				runtime.ReadMemStats(&before)

				if err := call(t.Context(), c); !errors.Is(err, workload.ErrTooMuch) {
					t.Errorf("it ended with %v", err)
				}

				runtime.ReadMemStats(&after)

				if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 96 {
					t.Errorf("it took %d MiB of memory", took)
				}
			})
		}
	}
}

// TestHostilePages: neither lists with ever more pages, nor bodies or marks without an end, are read to it.
func TestHostilePages(t *testing.T) {
	t.Parallel()

	one := `{"metadata":{"name":"o","namespace":"n"}}`

	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		// most requests that may be made
		most int64
	}{
		"ever more pages":       {func(w http.ResponseWriter, _ *http.Request) { say(w, list("more", one)) }, 102},
		"ever more empty pages": {func(w http.ResponseWriter, _ *http.Request) { say(w, list("more", "")) }, 102},
		"a mark without an end": {
			func(w http.ResponseWriter, _ *http.Request) { say(w, list(strings.Repeat("m", 1<<20), one)) }, 8,
		},
		"a body without an end": {
			func(w http.ResponseWriter, _ *http.Request) { forever(w, `{"x":"`, strings.Repeat("y", 1<<16)) }, 8,
		},
		"levels without an end": {func(w http.ResponseWriter, _ *http.Request) { forever(w, `{"x":[`, "[") }, 8},
	} {
		for what, call := range calls {
			t.Run(name+" of "+what, func(t *testing.T) {
				t.Parallel()

				server := newAPIServer(t, onNode(tc.answer))

				if err := call(t.Context(), server.cluster(t)); !errors.Is(err, workload.ErrTooMuch) {
					t.Errorf("it ended with %v", err)
				}

				if asked := server.asked.Load(); asked > tc.most {
					t.Errorf("it was asked %d times, more than %d", asked, tc.most)
				}
			})
		}
	}
}

// TestOtherEncodings: what cannot be counted is not decoded.
func TestOtherEncodings(t *testing.T) {
	t.Parallel()

	for _, media := range []string{"application/vnd.kubernetes.protobuf", "application/yaml", "application/cbor"} {
		server := newAPIServer(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", media)
			say(w, list("", "{}"))
		})

		if nodes, err := server.cluster(t).Nodes(t.Context()); err == nil {
			t.Errorf("%s is decoded: %v", media, nodes)
		}
	}
}

// TestSlowBody: an API server that stops in the middle of an answer is slow, and not hostile.
func TestSlowBody(t *testing.T) {
	t.Parallel()

	server := newAPIServer(t, func(w http.ResponseWriter, r *http.Request) {
		say(w, `{"kind":"NodeList",`)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	c := server.cluster(t)

	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()

	_, err := c.Nodes(ctx)
	if errors.Is(err, workload.ErrTooMuch) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it ended with %v", err)
	}
}

// TestHostileVersion: what is no version is not shown, nor kept.
func TestHostileVersion(t *testing.T) {
	t.Parallel()

	server := newAPIServer(t, http.NotFound)

	for version, good := range map[string]bool{
		"v1.36.2":                            true,
		"v1.36.2-rc.1+talos":                 true,
		"v1.36.2+" + strings.Repeat("x", 56): true,
		"v1.36.2+" + strings.Repeat("x", 57): false,
		"":                                   false,
		"latest":                             false,
		"v1.36":                              false,
		"v1.36.2\n":                          false,
		strings.Repeat("1", 1<<20):           false,
	} {
		server.version = fmt.Sprintf(`{"gitVersion":%q}`, version)

		got, err := server.clients.Version(t.Context(), server.bundle, []string{server.address})
		if (err == nil) != good || good && got != version {
			t.Errorf("%.80q: %q, %.200v", version, got, err)
		}
	}
}

// TestHostileOwner: the UID of another owner is kept with the state of the control plane, so that it has an end.
func TestHostileOwner(t *testing.T) {
	t.Parallel()

	record := corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: workload.OwnerConfigMap},
		Data:       map[string]string{"controlPlaneUID": strings.Repeat("ü", 1<<16)},
	}
	server := newAPIServer(t, func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(record) })

	owner, err := server.cluster(t).Own(t.Context(), workload.Claim{UID: "ours"})
	if err != nil || owner != strings.Repeat("ü", 32) {
		t.Errorf("the owner is %.200q, %v", owner, err)
	}

	// It can be taken over from as well.
	owner, err = server.cluster(t).Own(t.Context(), workload.Claim{UID: "ours", Former: owner})
	if err != nil || owner != "ours" {
		t.Errorf("after it was taken over, the owner is %.200q, %v", owner, err)
	}
}

// pages answers lists of count objects as an honest API server does.
func pages(count int, object func(int) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		first, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		last := min(first+limit, count)

		var items []string

		for i := first; i < last; i++ {
			text, err := json.Marshal(object(i))
			if err != nil {
				panic(err)
			}

			items = append(items, string(text))
		}

		next := ""
		if last < count {
			next = strconv.Itoa(last)
		}

		say(w, list(next, strings.Join(items, ",")))
	}
}

// fullNode is as large as the Nodes of a real cluster: the kubelet tells of fifty images.
func fullNode(i int) any {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i), UID: "u", ResourceVersion: "1"}}

	for j := range 50 {
		image := fmt.Sprintf("registry.example.org/some/project/image-%d", j)
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{
			Names: []string{image + "@sha256:" + strings.Repeat("0", 64), image + ":v1.2.3"}, SizeBytes: 1 << 20,
		})
	}

	fields := map[string]any{}
	for j := range 150 {
		fields[fmt.Sprintf("f:field-%d", j)] = map[string]any{}
	}

	raw, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}

	n.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet", FieldsV1: &metav1.FieldsV1{Raw: raw}}}

	return n
}

// TestLargeClusters: what honest clusters answer is read, however large their objects are.
func TestLargeClusters(t *testing.T) {
	t.Parallel()

	t.Run("full nodes", func(t *testing.T) {
		t.Parallel()

		server := newAPIServer(t, pages(600, fullNode))

		nodes, err := server.cluster(t).Nodes(t.Context())
		if err != nil || len(nodes) != 600 || server.asked.Load() != 3 {
			t.Errorf("%d nodes in %d pages, %v", len(nodes), server.asked.Load(), err)
		}
	})

	t.Run("nodes as large as etcd takes them", func(t *testing.T) {
		t.Parallel()

		large := strings.Repeat("a", 1<<20)
		server := newAPIServer(t, pages(7, func(i int) any {
			return corev1.Node{ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("n%d", i), Annotations: map[string]string{"a": large[:len(large)-i], "b": large},
			}}
		}))

		nodes, err := server.cluster(t).Nodes(t.Context())
		if err != nil || len(nodes) != 7 || nodes[6].Name != "n6" {
			t.Errorf("%d nodes, %v", len(nodes), err)
		}
	})

	t.Run("large Secrets", func(t *testing.T) {
		t.Parallel()

		server := newAPIServer(t, func(w http.ResponseWriter, r *http.Request) {
			object := func(i int) any {
				s := corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s%d", i)}}
				if !strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList") {
					s.Data = map[string][]byte{"x": make([]byte, 1<<20)}
				}

				return s
			}

			pages(300, object)(w, r)
		})

		got, err := server.cluster(t).Contents(t.Context())
		if err != nil || got.Secrets != 300 || got.Revision != 7 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}
