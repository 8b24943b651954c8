package cosi

import (
	"net/netip"
	"testing"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/protobuf"
	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"
)

func kinds() []Kind {
	return []Kind{Maintenance, ControlPlane, ControlPlaneRunning, Worker}
}

// recordedIdentity is the identity that makes a node say word for word what the recorded one said.
func recordedIdentity(kind Kind) Identity {
	n := recordedNodes()[kind]

	return Identity{
		Hostname:     n.hostname,
		Address:      netip.MustParsePrefix(n.address + "/24"),
		HardwareAddr: n.mac,
		NodeID:       n.nodeID,
		Platform:     "container",
	}
}

// TestRecordedResourcesSurviveDecoding holds the typed resources against the text that they were made of: decoded and
// written again, every recorded resource says the same, and all of them can be sent.
func TestRecordedResourcesSurviveDecoding(t *testing.T) {
	for _, kind := range kinds() {
		identity, err := recordedIdentity(kind).complete()
		if err != nil {
			t.Fatal(err)
		}

		all, err := recordedResources(kind, identity)
		if err != nil {
			t.Fatal(err)
		}

		if len(all) < 90 {
			t.Errorf("%s: only %d resources", kind, len(all))
		}

		recording, err := Recorded(recordedNodes()[kind].recording)
		if err != nil {
			t.Fatal(err)
		}

		for _, r := range all {
			if _, err := protobuf.FromResource(r); err != nil {
				t.Errorf("%s: sending %s: %v", kind, r.Metadata(), err)
			}

			for _, item := range recording[r.Metadata().Type()].Items {
				if item.ID == r.Metadata().ID() && !item.Spec.IsZero() {
					compareSpecs(t, r, item)
				}
			}
		}
	}
}

func compareSpecs(t *testing.T, r resource.Resource, item RecordedItem) {
	t.Helper()

	var want, got any

	if err := item.Spec.Decode(&want); err != nil {
		t.Fatal(err)
	}

	data, err := yaml.Marshal(r.Spec())
	if err != nil {
		t.Fatal(err)
	}

	if err := yaml.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-recorded +decoded):\n%s", r.Metadata(), diff)
	}
}
