package talos

import (
	"slices"
	"testing"
)

// TestOverriddenName: the last argument counts, and in lower case, as for the kubelet.
func TestOverriddenName(t *testing.T) {
	t.Parallel()

	for want, args := range map[string][]string{
		"":            {"--config=/etc/kubernetes/kubelet.yaml", "--hostname-override-x=a", "--node-ip=10.0.0.1"},
		"cp-0":        {"--hostname-override=cp-0"},
		"a.example":   {"--hostname-override= A.Example "},
		"the-last-is": {"--hostname-override=first", "--cert-dir=/x", "--hostname-override=the-last-is"},
	} {
		if got := overriddenName(args); got != want {
			t.Errorf("%q: %q, want %q", args, got, want)
		}
	}
}

// TestPodsOf: a pod runs as long as one of its containers has not exited, and the services of Talos are no pods.
func TestPodsOf(t *testing.T) {
	t.Parallel()

	got := podsOf([]Container{
		{Pod: "default/web-0", Status: "CONTAINER_EXITED"},
		{Pod: "default/web-0", Status: "CONTAINER_RUNNING"},
		{Pod: "default/web-0", Status: "CONTAINER_RUNNING"},
		{Pod: "default/job", Status: "CONTAINER_EXITED"},
		{Pod: "default/new", Status: "CONTAINER_CREATED"},
		{Pod: "default/odd", Status: "CONTAINER_UNKNOWN"},
		{Pod: "kubelet", Status: "RUNNING"},
		{Pod: "a/\x1b[2J", Status: "CONTAINER_RUNNING"},
	})
	if want := []string{"a/\ufffd[2J", "default/new", "default/odd", "default/web-0"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
