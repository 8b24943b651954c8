package kubernetes

import (
	"io"
	"net/http"
	"strconv"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
)

// configMaps of a modelled cluster are read, made and replaced one by one; nothing lists or watches them.
func (m *Model) configMaps(mux *http.ServeMux) {
	const all = "/api/v1/namespaces/{namespace}/configmaps"

	mux.HandleFunc("GET "+all+"/{name}", func(w http.ResponseWriter, r *http.Request) {
		reply[*corev1.ConfigMap](w)(m.opts.Nodes.configMap(r.PathValue("namespace"), r.PathValue("name")))
	})
	mux.HandleFunc("POST "+all, func(w http.ResponseWriter, r *http.Request) {
		reply[*corev1.ConfigMap](w)(m.opts.Nodes.putConfigMap(r.PathValue("namespace"), r.Body, true))
	})
	mux.HandleFunc("PUT "+all+"/{name}", func(w http.ResponseWriter, r *http.Request) {
		reply[*corev1.ConfigMap](w)(m.opts.Nodes.putConfigMap(r.PathValue("namespace"), r.Body, false))
	})
}

func noConfigMap(name string) error {
	return apierrors.NewNotFound(corev1.Resource("configmaps"), name)
}

func (m *ModelNodes) configMap(namespace, name string) (*corev1.ConfigMap, error) {
	m.mu.Lock()
	defer m.mu.Unlock()

	c := m.configs[types.NamespacedName{Namespace: namespace, Name: name}]
	if c == nil {
		return nil, noConfigMap(name)
	}

	return c.DeepCopy(), nil
}

// putConfigMap makes a ConfigMap, or replaces the very version that the new one names.
func (m *ModelNodes) putConfigMap(namespace string, body io.Reader, create bool) (*corev1.ConfigMap, error) {
	data, err := io.ReadAll(io.LimitReader(body, maxBody))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}

	next := &corev1.ConfigMap{}
	// Clients write in protobuf, too.
	if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, next); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}

	m.mu.Lock()
	defer m.mu.Unlock()

	key := types.NamespacedName{Namespace: namespace, Name: next.Name}
	have := m.configs[key]

	switch {
	case create && have != nil:
		return nil, apierrors.NewAlreadyExists(corev1.Resource("configmaps"), next.Name)
	case create:
		next.UID = types.UID(uuid.NewString())
	case have == nil:
		return nil, noConfigMap(next.Name)
	case next.ResourceVersion != "" && next.ResourceVersion != have.ResourceVersion:
		return nil, apierrors.NewConflict(corev1.Resource("configmaps"), next.Name, nil)
	default:
		next.UID = have.UID
	}

	m.rev++
	next.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
	next.Namespace, next.ResourceVersion = namespace, strconv.Itoa(m.rev)

	if m.configs == nil {
		m.configs = map[types.NamespacedName]*corev1.ConfigMap{}
	}

	m.configs[key] = next

	return next.DeepCopy(), nil
}
