package kubernetes

import (
	"io"
	"net/http"
	"time"

	"github.com/google/uuid"
	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
)

// workloads of a modelled cluster: Deployments and PodDisruptionBudgets are made once and stay, pods are listed,
// evicted and deleted. Nothing watches them.
func (m *Model) workloads(mux *http.ServeMux) {
	const (
		pods    = "/api/v1/namespaces/{namespace}/pods"
		budgets = "/poddisruptionbudgets"
	)

	listPods := func(w http.ResponseWriter, r *http.Request) {
		answer(w, m.opts.Nodes.podList(r.PathValue("namespace"), nodeOf(r), time.Now()))
	}
	mux.HandleFunc("GET /api/v1/pods", listPods)
	mux.HandleFunc("GET "+pods, listPods)
	mux.HandleFunc("POST "+pods+"/{name}/eviction", func(w http.ResponseWriter, r *http.Request) {
		done(w, m.opts.Nodes.evict(named(r), time.Now()))
	})
	mux.HandleFunc("DELETE "+pods+"/{name}", func(w http.ResponseWriter, r *http.Request) {
		done(w, m.opts.Nodes.deletePod(named(r), time.Now()))
	})

	listBudgets := func(w http.ResponseWriter, r *http.Request) {
		answer(w, m.opts.Nodes.budgetList(r.PathValue("namespace"), time.Now()))
	}
	mux.HandleFunc("GET /apis/policy/v1"+budgets, listBudgets)
	mux.HandleFunc("GET /apis/policy/v1/namespaces/{namespace}"+budgets, listBudgets)
	mux.HandleFunc("POST /apis/policy/v1/namespaces/{namespace}"+budgets, func(w http.ResponseWriter, r *http.Request) {
		made(w, r, m.opts.Nodes.putBudget)
	})
	mux.HandleFunc("POST /apis/apps/v1/namespaces/{namespace}/deployments", func(w http.ResponseWriter, r *http.Request) {
		made(w, r, m.opts.Nodes.putDeployment)
	})
}

func named(r *http.Request) types.NamespacedName {
	return types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
}

// nodeOf is the node that a list of pods is limited to, empty where it is not.
func nodeOf(r *http.Request) string {
	selector, err := fields.ParseSelector(r.URL.Query().Get("fieldSelector"))
	if err != nil {
		return ""
	}

	name, _ := selector.RequiresExactMatch("spec.nodeName")

	return name
}

func done(w http.ResponseWriter, err error) {
	if err != nil {
		refuse(w, err)

		return
	}

	answer(w, &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess})
}

// made reads an object that a client makes, in JSON or in protobuf, and stores it.
func made[T any, P interface {
	*T
	runtime.Object
	metav1.Object
}](w http.ResponseWriter, r *http.Request, put func(P)) {
	data, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		refuse(w, apierrors.NewBadRequest(err.Error()))

		return
	}

	o := P(new(T))

	_, kind, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, o)
	if err != nil {
		refuse(w, apierrors.NewBadRequest(err.Error()))

		return
	}

	o.SetNamespace(r.PathValue("namespace"))
	o.SetUID(types.UID(uuid.NewString()))
	o.GetObjectKind().SetGroupVersionKind(*kind)
	put(o)
	answer(w, o)
}

func (m *ModelNodes) putDeployment(d *appsv1.Deployment) {
	m.mu.Lock()
	defer m.mu.Unlock()

	if m.work.deployments == nil {
		m.work.deployments = map[types.NamespacedName]*appsv1.Deployment{}
		m.work.pods = map[types.NamespacedName]*modelPod{}
	}

	m.work.deployments[types.NamespacedName{Namespace: d.Namespace, Name: d.Name}] = d.DeepCopy()
	m.settle(time.Now())
}

func (m *ModelNodes) putBudget(b *policyv1.PodDisruptionBudget) {
	m.mu.Lock()
	defer m.mu.Unlock()

	if m.work.budgets == nil {
		m.work.budgets = map[types.NamespacedName]*policyv1.PodDisruptionBudget{}
	}

	m.work.budgets[types.NamespacedName{Namespace: b.Namespace, Name: b.Name}] = b.DeepCopy()
}
