package clusterstate_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

func newState(tb testing.TB, b *clusterstate.Bundle) *clusterstate.State {
	tb.Helper()

	s := clusterstate.NewState(b, clusterstate.BundleConfig{
		ClusterName: "prod", Endpoint: "https://10.0.0.10:6443", TalosVersion: "v1.13.9", KubernetesVersion: "v1.36.2",
		Contract: "v1.13", PodSubnets: []string{"10.244.0.0/16"}, ServiceSubnets: []string{"10.96.0.0/12"},
		DNSDomain: "cluster.local", CertSANs: []string{"api.example.org"},
	}, "uid-1")

	out, err := machineconfig.Render(machineconfig.Input{
		ClusterName: "prod", Endpoint: "https://10.0.0.10:6443", TalosVersion: "v1.13.9", KubernetesVersion: "v1.36.2",
		Secrets: s.Bundle.Secrets(), Role: machineconfig.ControlPlane, Install: machineconfig.Install{Disk: "/dev/sda"},
	})
	if err != nil {
		tb.Fatal(err)
	}

	configured, established := now.Add(time.Minute), now.Add(2*time.Minute)

	s.Config = out.Bytes
	s.ObservedKubeVersion = "v1.36.2"
	s.Runtime.Machines = map[string]clusterstate.Machine{
		"prod-cp-0": {Address: "10.0.0.1", UUID: "u0", ConfiguredAt: &configured}, "prod-cp-1": {Address: "10.0.0.2"},
	}
	s.Runtime.Bootstrap = &clusterstate.Bootstrap{
		Machine: "prod-cp-0", Address: "10.0.0.1", IntentAt: now, EstablishedAt: &established, MemberID: 1<<63 + 17,
	}
	s.Runtime.Conditions = []metav1.Condition{
		{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Ready", LastTransitionTime: metav1.NewTime(now)},
	}

	return s
}

func encode(tb testing.TB, s *clusterstate.State) map[string][]byte {
	tb.Helper()

	data, err := s.Encode()
	if err != nil {
		tb.Fatal(err)
	}

	return data
}

func TestStateRoundTrip(t *testing.T) {
	t.Parallel()

	s := newState(t, newBundle(t))
	data := encode(t, s)

	keys := make([]string, 0, len(data))
	for key := range data {
		keys = append(keys, key)
	}

	slices.Sort(keys)

	want := []string{"bundleConfig", "config", "observedKubeVersion", "secretBundle", "state"}
	if diff := cmp.Diff(want, keys); diff != "" {
		t.Error(diff)
	}

	again, err := clusterstate.Decode(data)
	if err != nil {
		t.Fatal(err)
	}

	if !again.Bundle.Equal(s.Bundle) || !bytes.Equal(again.Config, s.Config) {
		t.Error("bundle or config changed")
	}

	if diff := cmp.Diff(s.Runtime, again.Runtime); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}

	if diff := cmp.Diff(s.BundleConfig, again.BundleConfig); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}

	if diff := cmp.Diff(data, encode(t, again)); diff != "" {
		t.Errorf("encoding is not deterministic:\n%s", diff)
	}

	// Only the keys that hold the PKI may hold secrets.
	mustNotLeak(t, s.Bundle, string(data["state"])+string(data["bundleConfig"]))

	if err := again.CheckCluster("prod"); err != nil {
		t.Error(err)
	}

	if err := again.CheckCluster("other"); err == nil || !strings.Contains(err.Error(), `"prod"`) {
		t.Errorf("got %v", err)
	}
}

func TestFirstStateIsReadable(t *testing.T) {
	t.Parallel()

	s := clusterstate.NewState(newBundle(t), clusterstate.BundleConfig{ClusterName: "prod"}, "uid-1")
	if _, err := clusterstate.Decode(encode(t, s)); err != nil {
		t.Error(err)
	}
}

// damage is one way to spoil a good Secret, and what Decode must say about it.
type damage struct {
	change func(data map[string][]byte)
	key    string
	says   string
}

// edit changes the JSON of the state key.
func edit(change func(map[string]any)) func(map[string][]byte) {
	return func(data map[string][]byte) {
		var content map[string]any
		if err := json.Unmarshal(data["state"], &content); err != nil {
			panic(err)
		}

		change(content)

		raw, err := json.Marshal(content)
		if err != nil {
			panic(err)
		}

		data["state"] = raw
	}
}

// damages lists what can be wrong; other is the data of another cluster.
func damages(other map[string][]byte) map[string]damage {
	tests := map[string]damage{
		"no JSON":          {func(d map[string][]byte) { d["state"] = []byte("hunter2") }, "state", "not a JSON"},
		"old operator":     {func(d map[string][]byte) { d["state"] = []byte("Ready") }, "state", "not a JSON"},
		"no state":         {func(d map[string][]byte) { d["state"] = nil }, "state", "empty"},
		"two values":       {func(d map[string][]byte) { d["state"] = append(d["state"], "{}"...) }, "state", "JSON"},
		"newer format":     {edit(func(c map[string]any) { c["version"] = 2 }), "state", "format version 2"},
		"no version":       {edit(func(c map[string]any) { delete(c, "version") }), "state", "format version 0"},
		"unknown field":    {edit(func(c map[string]any) { c["novel"] = "hunter2" }), "state", `"novel"`},
		"wrong type":       {edit(func(c map[string]any) { c["machines"] = "hunter2" }), "state", "machines"},
		"other ID":         {edit(func(c map[string]any) { c["clusterID"] = "abc" }), "state", "cluster with ID"},
		"other CA":         {edit(func(c map[string]any) { c["caFingerprint"] = "abc" }), "state", "another Talos API CA"},
		"other name":       {edit(func(c map[string]any) { c["clusterName"] = "test" }), "state", `"test"`},
		"broken bootstrap": {edit(func(c map[string]any) { c["bootstrap"] = map[string]any{} }), "state", "bootstrap"},
		"other bundle": {
			func(d map[string][]byte) { d["secretBundle"] = other["secretBundle"] },
			"state",
			"cluster with ID",
		},
		"other config": {func(d map[string][]byte) { d["config"] = other["config"] }, "config", "cluster with ID"},
		"no config": {
			func(d map[string][]byte) { d["config"] = []byte("hunter2") },
			"config",
			"not a Talos machine config",
		},
		"no parameters": {func(d map[string][]byte) { d["bundleConfig"] = []byte("{}") }, "bundleConfig", "clusterName"},
		"parameters":    {func(d map[string][]byte) { d["bundleConfig"] = []byte("- hunter2") }, "bundleConfig", "JSON"},
		"broken bundle": {
			func(d map[string][]byte) { d["secretBundle"] = d["secretBundle"][:500] },
			"secretBundle",
			"bundle",
		},
	}

	for _, key := range []string{"bundleConfig", "config", "observedKubeVersion", "secretBundle", "state"} {
		tests["without "+key] = damage{func(d map[string][]byte) { delete(d, key) }, key, "missing"}
	}

	return tests
}

func TestDecodeSaysWhatIsWrong(t *testing.T) {
	t.Parallel()

	s, foreign := newState(t, newBundle(t)), newState(t, otherBundle(t))

	for name, tt := range damages(encode(t, foreign)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			data := encode(t, s)
			tt.change(data)

			_, err := clusterstate.Decode(data)

			var decode *clusterstate.DecodeError
			if !errors.As(err, &decode) || decode.Key != tt.key || !strings.Contains(err.Error(), tt.says) {
				t.Fatalf("got %v, want a DecodeError of %s that says %q", err, tt.key, tt.says)
			}

			mustNotLeak(t, s.Bundle, err.Error())
		})
	}

	t.Run("everything at once", func(t *testing.T) {
		t.Parallel()

		_, err := clusterstate.Decode(nil)
		if err == nil || strings.Count(err.Error(), "missing") != 5 {
			t.Errorf("got %v", err)
		}
	})
}

func TestEncodeRefusesWhatDecodeWould(t *testing.T) {
	t.Parallel()

	s := newState(t, newBundle(t))
	s.Config = []byte("hunter2")

	if _, err := s.Encode(); err == nil {
		t.Error("an unreadable state was encoded")
	}

	if _, err := (&clusterstate.State{}).Encode(); err == nil {
		t.Error("a state without PKI was encoded")
	}
}

// TestRuntimeSurvives: whatever was recorded comes back, to the second.
func TestRuntimeSurvives(t *testing.T) {
	t.Parallel()

	s := newState(t, newBundle(t))
	s.Config = nil

	text := rapid.StringMatching(`[a-z0-9.:-]{0,20}`)
	moment := rapid.Custom(func(r *rapid.T) time.Time {
		return now.Add(time.Duration(rapid.Int64Range(0, 1e18).Draw(r, "ns"))).In(time.FixedZone("", 3600))
	})

	rapid.Check(t, func(r *rapid.T) {
		tried := *s
		tried.ObservedKubeVersion = text.Draw(r, "version")
		tried.Runtime.Machines = rapid.MapOf(text, rapid.Custom(func(r *rapid.T) clusterstate.Machine {
			at := moment.Draw(r, "configured")

			return clusterstate.Machine{Address: text.Draw(r, "address"), UUID: text.Draw(r, "uuid"), ConfiguredAt: &at}
		})).Draw(r, "machines")

		gone := moment.Draw(r, "gone")
		tried.Runtime.DecommissionedAt = &gone
		tried.Runtime.Bootstrap = &clusterstate.Bootstrap{
			Machine: "m" + text.Draw(r, "machine"), IntentAt: moment.Draw(r, "intent"),
			MemberID: rapid.Uint64().Draw(r, "member"),
		}

		first, err := tried.Encode()
		if err != nil {
			r.Fatal(err)
		}

		back, err := clusterstate.Decode(first)
		if err != nil {
			r.Fatal(err)
		}

		second, err := back.Encode()
		if err != nil {
			r.Fatal(err)
		}

		if diff := cmp.Diff(first, second); diff != "" {
			r.Fatalf("not stable:\n%s", diff)
		}

		if back.Runtime.Bootstrap.MemberID != tried.Runtime.Bootstrap.MemberID ||
			!back.Runtime.DecommissionedAt.Equal(gone.Truncate(time.Second)) ||
			len(back.Runtime.Machines) != len(tried.Runtime.Machines) {
			r.Fatal("something was lost")
		}
	})
}

// TestDecodeNeverPanicsOrLeaks cuts and twists real data.
func TestDecodeNeverPanicsOrLeaks(t *testing.T) {
	t.Parallel()

	s := newState(t, newBundle(t))
	good := encode(t, s)

	rapid.Check(t, func(r *rapid.T) {
		key := rapid.SampledFrom([]string{"bundleConfig", "config", "secretBundle", "state"}).Draw(r, "key")
		raw := bytes.Clone(good[key])

		from := rapid.IntRange(0, len(raw)-1).Draw(r, "from")
		to := rapid.IntRange(from, len(raw)).Draw(r, "to")
		with := rapid.SampledFrom([]string{"", "x", "\n", "*", "&", "{", "\x00", ": "}).Draw(r, "with")
		raw = slices.Replace(raw, from, to, []byte(with)...)

		data := map[string][]byte{}
		for k, v := range good {
			data[k] = v
		}

		data[key] = raw

		_, err := clusterstate.Decode(data)
		if err == nil {
			return
		}

		for _, secret := range secretsOf(s.Bundle) {
			if strings.Contains(err.Error(), secret) {
				r.Fatalf("%q holds %q", err, secret)
			}
		}
	})
}
