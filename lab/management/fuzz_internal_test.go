package management

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// FuzzAuditLine: a line of an audit log is refused, or each field is what the API server has written. Names in it are
// those of users, who may quote anything: none of them gets into another field, or is cut off.
func FuzzAuditLine(f *testing.F) {
	f.Add("patch", "system:serviceaccount:ns:operator", "machines", "status", "ns", "m-0", 200, []byte(`{}`))
	f.Add("create", `a","verb":"delete`, "leases", "", "", "", 403, []byte(`{"verb":"get","user":{"username":"u"}}`))
	f.Add("get", "u\n", "pods", "eviction/", "n\x00", "\u2028", 0, []byte(`{"verb":"pat`))
	f.Add("watch", "", "", "", "", "", -1, []byte(`{"stageTimestamp":"2026-11-01T12:00:00.5Z","responseStatus":null}`))
	f.Add("", "", "/", "/", "", "", 201, []byte(`{"objectRef":[],"verb":7}`))

	received := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

	f.Fuzz(func(t *testing.T, verb, user, resource, subresource, namespace, name string, code int, raw []byte) {
		line, err := json.Marshal(map[string]any{
			"verb": verb, "requestReceivedTimestamp": received, "stageTimestamp": received.Add(time.Second),
			"user": map[string]any{"username": user}, "requestURI": "/" + name + "?" + verb,
			"objectRef": map[string]any{
				"resource": resource, "subresource": subresource, "namespace": namespace, "name": name, "apiGroup": subresource,
			},
			"responseStatus": map[string]any{"code": code},
		})
		if err != nil {
			t.Fatal(err)
		}

		valid := func(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

		if subresource != "" {
			resource += "/" + subresource
		}

		want := Write{
			Time: received, User: valid(user), Verb: valid(verb), Resource: valid(resource), Namespace: valid(namespace),
			Name: valid(name), Code: code,
		}

		if got, err := parseWrite(line); err != nil || !sameText(got, want) {
			t.Errorf("%s is read as %+v: %v", line, got, err)
		}

		if r, err := parseRequest(line); err != nil || !sameText(writeOf(r, want), want) || r.Forbidden != (code == 403) ||
			r.Created != (code == 201) || strings.Contains(r.URL, "?") {
			t.Errorf("%s is read as %+v: %v", line, r, err)
		}

		if ended, err := endOf(line); err != nil || !ended.Equal(received.Add(time.Second)) {
			t.Errorf("%s has ended at %s: %v", line, ended, err)
		}

		agree(t, raw)
	})
}

// agree: both parsers read the same in a line that may be anything, if they read it.
func agree(t *testing.T, raw []byte) {
	t.Helper()

	w, err := parseWrite(raw)
	r, err2 := parseRequest(raw)

	if err == nil && err2 == nil && writeOf(r, w) != w {
		t.Errorf("%q is read as %+v and as %+v", raw, w, r)
	}
}

// writeOf is a write with what a request tells.
func writeOf(r Request, w Write) Write {
	w.User, w.Verb, w.Resource, w.Namespace, w.Name = r.User, r.Verb, r.Resource, r.Namespace, r.Name

	return w
}

// sameText compares writes. JSON replaces each byte that is no character, or several of them at once.
func sameText(a, b Write) bool {
	squeeze := func(s string) string {
		for strings.Contains(s, "\ufffd\ufffd") {
			s = strings.ReplaceAll(s, "\ufffd\ufffd", "\ufffd")
		}

		return s
	}

	for _, w := range []*Write{&a, &b} {
		for _, s := range []*string{&w.User, &w.Verb, &w.Resource, &w.Namespace, &w.Name} {
			*s = squeeze(*s)
		}
	}

	return a == b
}
