package workload

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/blang/semver/v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/talos-operator/talos-operator/internal/decide/manifests"
)

// FuzzCount: of each JSON text as much is counted as a decoder finds in it, wherever the parts of the text end.
func FuzzCount(f *testing.F) {
	for _, text := range []string{
		`{}`, `[]`, `[[1,2],[3]]`, `{"items":[{},{"a":[1,2,3],"b":"]},{"}]}`, `{"a":"\"[{,","items":["\\",{}, {"x":2}]}`,
		` {"items" : [ null , true, -1.5e9, "\u005b" ] } `, `"["`, `12`,
	} {
		f.Add([]byte(text), uint8(3))
	}

	f.Fuzz(func(t *testing.T, text []byte, size uint8) {
		c := &counter{maxItems: 1 << 20, maxValues: 1 << 20}
		step := int(size) + 1

		for at := 0; at < len(text); at += step {
			if c.count(text[at:min(at+step, len(text))]) != nil {
				return
			}
		}

		if !json.Valid(text) {
			return
		}

		dec := json.NewDecoder(bytes.NewReader(text))
		dec.UseNumber()

		items, values := tallied(t, dec, 1)
		if c.items != items || c.values != values {
			t.Errorf("%q: %d items and %d values were counted, there are %d and %d", text, c.items, c.values, items, values)
		}
	})
}

// tallied returns how many elements the arrays at the second level have, and how many objects, arrays and elements of arrays
// there are, in the next value of a valid text.
func tallied(t *testing.T, dec *json.Decoder, level int) (items, values int) {
	t.Helper()

	token := func() json.Token {
		next, err := dec.Token()
		if err != nil {
			t.Fatal(err)
		}

		return next
	}

	opened, _ := token().(json.Delim)
	if opened == 0 {
		return 0, 0
	}

	values = 1

	for dec.More() {
		if opened == '{' {
			token()
		} else {
			values++

			if level == 2 {
				items++
			}
		}

		i, v := tallied(t, dec, level+1)
		items, values = items+i, values+v
	}

	token()

	return items, values
}

// fixed responds to each request with the same.
type fixed struct {
	code    int
	content string
	body    []byte
}

func (r *fixed) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: r.code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{"Content-Type": {r.content}}, Body: io.NopCloser(bytes.NewReader(r.body)),
	}, nil
}

// FuzzAnswers: whatever an API server responds with, each call ends with a result that an API server can have, or an error.
func FuzzAnswers(f *testing.F) {
	const jsonType = "application/json"

	f.Add(uint16(200), jsonType, []byte(list7(`{"metadata":{"name":"n"},"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.1"}],`+
		`"conditions":[{"type":"Ready","status":"True"}],"nodeInfo":{"kubeletVersion":"v1.36.2"}}}`)))
	f.Add(uint16(200), jsonType, []byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"n","ownerReferences":[{"kind":"DaemonSet"}]},`+
		`"spec":{"containers":[{"image":"a"}],"nodeName":"n"},"status":{"conditions":[{"type":"Ready","status":"True"}]}}`))
	f.Add(uint16(200), jsonType, []byte(`{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"configmaps","kind":"ConfigMap",`+
		`"namespaced":true,"verbs":["get","list"]}]}`))
	f.Add(uint16(409), jsonType, []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409,"details":`+
		`{"causes":[{"reason":"FieldManagerConflict","message":"conflict with \"talos\"","field":".data.a"}]}}`))
	f.Add(uint16(404), jsonType, []byte(`{"kind":"Status","status":"Failure","reason":"NotFound","code":404}`))
	f.Add(uint16(200), "application/vnd.kubernetes.protobuf", []byte("k8s\x00"))
	f.Add(uint16(500), "text/plain; charset=utf-8", []byte("internal error"))
	f.Add(uint16(200), "", []byte(`[]`))

	answers := &fixed{}
	cfg := &rest.Config{Host: "http://192.0.2.1", Transport: answers, QPS: -1}
	boundAnswers(cfg)

	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		f.Fatal(err)
	}

	c := &Cluster{client: client, rest: cfg}

	f.Fuzz(func(t *testing.T, code uint16, content string, body []byte) {
		// Below 200, a transport reads on.
		answers.code, answers.content, answers.body = 200+int(code)%400, content, body
		ctx := t.Context()

		nodes, err := c.Nodes(ctx)
		for _, n := range nodes {
			if !fits(n) {
				t.Errorf("a Node that no API server accepts: %+v", n)
			}
		}

		if err == nil && answers.code >= 400 {
			t.Errorf("an error with the code %d is taken for a list", answers.code)
		}

		ref := NodeRef{Name: "n"}
		_, _ = c.Lags(ctx, ref, Images{Kubelet: "v1.36.2", Pods: []PodImage{{Pod: "kube-apiserver", Image: "a"}}})
		_, _ = c.Drain(ctx, ref, DrainOptions{})
		_, _ = c.Contents(ctx)
		_, _ = c.Alive(ctx, ref, time.Time{})

		for _, q := range []Query{
			{APIVersion: "v1", Kind: "ConfigMap", Namespace: "a", Name: "n"},
			{APIVersion: "apps/v1", Kind: "Deployment", Selector: "a"},
			{APIVersion: "v1", Kind: "Secret", Namespace: "a", Name: "n"},
		} {
			got, missing, err := c.Objects(ctx, q)

			switch {
			case err == nil && missing == "" && len(got) == 0:
				t.Errorf("%s: neither objects, nor what is missing, nor an error", q)
			case q.Kind == "Secret" && len(got) > 0 && !strings.Contains(string(body), "Secret"):
				t.Errorf("Secrets are read: %v", got)
			}
		}

		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "a", "name": "n"},
		}}
		_, _ = c.Manifests(ctx, manifests.Wanted{Objects: []*unstructured.Unstructured{object}}, false)
	})
}

func list7(items string) string {
	return `{"metadata":{"resourceVersion":"7","continue":""},"items":[` + items + `]}`
}

// FuzzVersion: the version of an API server, which is shown and compared, is one that can be compared, and short.
func FuzzVersion(f *testing.F) {
	f.Add([]byte(`{"gitVersion":"v1.36.2"}`))
	f.Add([]byte(`{"gitVersion":"v1.36.2-acme+b\u001b"}`))
	f.Add([]byte(`{"gitVersion":"1"}`))

	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := gitVersion(raw, "192.0.2.1")
		if err != nil {
			return
		}

		_, bad := semver.Parse(strings.TrimPrefix(got, "v"))
		if unprintable := strings.IndexFunc(got, func(r rune) bool { return r < ' ' || r > '~' }); unprintable >= 0 {
			bad = errors.New("it has a character that cannot be shown")
		}

		if bad != nil || len(got) > maxVersion {
			t.Errorf("%q is taken for a version: %v", got, bad)
		}
	})
}
