package workload_test

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/workload"
)

// served are the kinds of a cluster that also serves Secrets under another name.
const served = `{"kind":"APIResourceList","groupVersion":"v1","resources":[
	{"name":"configmaps/status","kind":"ConfigMap","namespaced":true,"verbs":["get"]},
	{"name":"configmaps","kind":"ConfigMap","namespaced":true,"verbs":["get","list"]},
	{"name":"secrets","kind":"Secret","namespaced":true,"verbs":["get","list"]},
	{"name":"Secrets","kind":"Hidden","namespaced":true,"verbs":["get","list"]},
	{"name":"../secrets","kind":"Escape","namespaced":true,"verbs":["get","list"]},
	{"name":"bindings","kind":"Binding","namespaced":true,"verbs":["create"]},
	{"name":"nodes","kind":"Node","verbs":["get","list"]}]}`

// TestObjects: an object of any kind but a Secret is read, and what does not exist is said.
func TestObjects(t *testing.T) {
	t.Parallel()

	pages := map[string]string{
		"": list("more", `{"metadata":{"name":"a"},"spec":{"n":1}}`), "more": list("", `{"metadata":{"name":"b"}},{"metadata":{"name":"c"}}`),
	}

	s := newAPIServer(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/v1":
			say(w, served)
		case "/apis/apps/v1":
			say(w, `{"resources":[{"name":"deployments","kind":"Deployment","namespaced":true,"verbs":["get","list"]}]}`)
		case "/api/v1/namespaces/ns/configmaps/x", "/api/v1/nodes/n", "/apis/apps/v1/namespaces/ns/deployments/d":
			say(w, `{"metadata":{"name":"one"},"spec":{"n":1}}`)
		case "/api/v1/configmaps", "/api/v1/namespaces/ns/configmaps":
			if r.URL.Query().Get("labelSelector") == "app=none" {
				say(w, list("", ""))

				return
			}

			say(w, pages[r.URL.Query().Get("continue")])
		default:
			if strings.Contains(strings.ToLower(r.URL.Path), "secrets") {
				t.Errorf("Secrets are read: %s", r.URL.Path)
			}

			w.WriteHeader(http.StatusNotFound)
			say(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
		}
	})
	c := s.cluster(t)

	for name, q := range map[string]struct {
		query   workload.Query
		found   int
		missing string
		fails   string
	}{
		"one":              {workload.Query{APIVersion: "v1", Kind: "ConfigMap", Namespace: "ns", Name: "x"}, 1, "", ""},
		"without one":      {workload.Query{APIVersion: "v1", Kind: "Node", Name: "n"}, 1, "", ""},
		"of a group":       {workload.Query{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "ns", Name: "d"}, 1, "", ""},
		"selected":         {workload.Query{APIVersion: "v1", Kind: "ConfigMap", Namespace: "ns", Selector: "app=x"}, 3, "", ""},
		"everywhere":       {workload.Query{APIVersion: "v1", Kind: "ConfigMap", Selector: "app=x"}, 3, "", ""},
		"none selected":    {workload.Query{APIVersion: "v1", Kind: "ConfigMap", Namespace: "ns", Selector: "app=none"}, 0, "there is no v1 ConfigMap with app=none in ns", ""},
		"does not exist":   {workload.Query{APIVersion: "v1", Kind: "ConfigMap", Namespace: "ns", Name: "y"}, 0, "there is no v1 ConfigMap ns/y", ""},
		"no such node":     {workload.Query{APIVersion: "v1", Kind: "Node", Name: "m"}, 0, "there is no v1 Node m", ""},
		"no such kind":     {workload.Query{APIVersion: "v1", Kind: "Gate", Namespace: "ns", Name: "x"}, 0, "the cluster does not serve the kind Gate of v1", ""},
		"no such API":      {workload.Query{APIVersion: "gate.io/v1", Kind: "Gate", Namespace: "ns", Name: "x"}, 0, "the cluster does not serve the API gate.io/v1", ""},
		"cannot be read":   {workload.Query{APIVersion: "v1", Kind: "Binding", Namespace: "ns", Name: "x"}, 0, "the cluster does not serve the kind Binding of v1", ""},
		"Secret":           {workload.Query{APIVersion: "v1", Kind: "Secret", Namespace: "ns", Name: "x"}, 0, "the cluster does not serve the kind Secret of v1", ""},
		"disguised":        {workload.Query{APIVersion: "v1", Kind: "Hidden", Namespace: "ns", Name: "x"}, 0, "the cluster does not serve the kind Hidden of v1", ""},
		"path of a kind":   {workload.Query{APIVersion: "v1", Kind: "Escape", Namespace: "ns", Name: "x"}, 0, "the cluster does not serve the kind Escape of v1", ""},
		"path of a name":   {workload.Query{APIVersion: "v1", Kind: "ConfigMap", Namespace: "ns", Name: "../secrets/x"}, 0, "", "the API server does not return v1 ConfigMap ns/../secrets/x"},
		"without its own":  {workload.Query{APIVersion: "v1", Kind: "ConfigMap", Name: "x"}, 0, "v1 ConfigMap has a namespace, which the check does not name", ""},
		"with a namespace": {workload.Query{APIVersion: "v1", Kind: "Node", Namespace: "ns", Name: "n"}, 0, "v1 Node has no namespace, and the check names one", ""},
	} {
		found, missing, err := c.Objects(t.Context(), q.query)
		if len(found) != q.found || missing != q.missing || failure.Message(err) != q.fails {
			t.Errorf("%s: %d found, missing: %q, %v", name, len(found), missing, err)

			continue
		}

		if len(found) == 0 {
			continue
		}

		spec, _ := found[0]["spec"].(map[string]any)
		if n, ok := spec["n"].(int64); !ok || n != 1 {
			t.Errorf("%s: %v", name, found[0])
		}
	}
}

// TestObjectsAreBounded: a cluster that returns too many objects, too large ones, or refuses them, returns none.
func TestObjectsAreBounded(t *testing.T) {
	t.Parallel()

	all := workload.Query{APIVersion: "v1", Kind: "ConfigMap", Namespace: "ns", Selector: "app=x"}
	one := workload.Query{APIVersion: "v1", Kind: "ConfigMap", Namespace: "ns", Name: "x"}

	for name, c := range map[string]struct {
		query  workload.Query
		answer func(http.ResponseWriter, *http.Request)
		fails  string
		tooBig bool
	}{
		"pages without end": {all, func(w http.ResponseWriter, r *http.Request) {
			n, _ := strconv.Atoi(r.URL.Query().Get("limit"))
			say(w, list("more", strings.TrimSuffix(strings.Repeat(`{},`, n), ",")))
		}, "v1 ConfigMap with app=x in ns: more than 200 objects, or too large ones", true},
		"an object without end": {
			one, func(w http.ResponseWriter, _ *http.Request) { forever(w, `{"data":{"a":"`, strings.Repeat("a", 1<<16)) },
			"v1 ConfigMap ns/x: more than 200 objects, or too large ones", true,
		},
		"forbidden": {one, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			say(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"hidden","code":403}`)
		}, "the API server refuses to read v1 ConfigMap ns/x", false},
		"an error": {one, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			say(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","message":"hidden","code":500}`)
		}, "the API server does not return v1 ConfigMap ns/x", false},
		"no object": {one, func(w http.ResponseWriter, _ *http.Request) { say(w, `[]`) }, "the API server does not return v1 ConfigMap ns/x", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/api/v1" {
					say(w, served)

					return
				}

				c.answer(w, r)
			})

			found, missing, err := s.cluster(t).Objects(t.Context(), c.query)
			if len(found) > 0 || missing != "" || failure.Message(err) != c.fails || errors.Is(err, workload.ErrTooMuch) != c.tooBig {
				t.Error(fmt.Sprint(len(found), missing), err)
			}
		})
	}
}
