package talos

import (
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/protobuf"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
)

// machineConfig is a resource of a node's config as it shows it: content and version.
func machineConfig(t *testing.T, id resource.ID, version uint64, content string) *config.MachineConfig {
	t.Helper()

	if version == 0 {
		return nil
	}

	cfg, err := configloader.NewFromBytes([]byte(content))
	if err != nil {
		t.Fatal(err)
	}

	res := config.NewMachineConfigWithID(cfg, id)

	for range version {
		res.Metadata().SetVersion(res.Metadata().Version().Next())
	}

	return res
}

// TestConfigState: what a node shows in each moment of its life, as it was recorded, and what follows from it.
func TestConfigState(t *testing.T) {
	const (
		base   = "version: v1alpha1\nmachine: {type: controlplane, token: sesame}\n"
		lc     = "version: v1alpha1\nmachine: {type: controlplane, token: sesame, sysctls: {net.ipv4.ip_forward: \"1\"}}\n"
		worker = "version: v1alpha1\nmachine: {type: worker, token: sesame}\n"
		// document is what a config without the main document may hold.
		document = "apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: sesame\n"
	)

	settled := ConfigState{Type: "controlplane", NextBoot: NextBootLive, NextType: "controlplane"}
	other := ConfigState{Type: "controlplane", NextBoot: NextBootOther, NextType: "controlplane"}
	otherType := ConfigState{Type: "controlplane", NextBoot: NextBootOther, NextType: "worker"}
	unknown := ConfigState{Type: "controlplane"}

	for name, tt := range map[string]struct {
		live, persistent uint64
		content, onDisk  string
		want             ConfigState
		unreadable       bool
	}{
		"first apply":                            {live: 1, content: base, persistent: 1, onDisk: base, want: settled},
		"staged":                                 {live: 3, content: base, persistent: 4, onDisk: lc, want: other},
		"staged, with equal versions":            {live: 1, content: base, persistent: 1, onDisk: lc, want: other},
		"booted from its disk":                   {live: 1, content: lc, want: settled},
		"booted from its disk, on trial":         {live: 2, content: base, want: unknown},
		"booted from its disk, the trial over":   {live: 4, content: lc, want: unknown},
		"on trial":                               {live: 6, content: base, persistent: 2, onDisk: lc, want: other},
		"the trial over":                         {live: 7, content: lc, persistent: 2, onDisk: lc, want: settled},
		"the trial confirmed":                    {live: 9, content: base, persistent: 3, onDisk: base, want: settled},
		"another type is staged":                 {live: 1, content: base, persistent: 1, onDisk: worker, want: otherType},
		"the live config has no machine":         {live: 1, content: document, unreadable: true},
		"the config on the disk has no machine":  {live: 1, content: base, persistent: 1, onDisk: document, unreadable: true},
		"a config on the disk alone, in between": {persistent: 1, onDisk: base, unreadable: true},
		"no config":                              {unreadable: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := configState(machineConfig(t, config.ActiveID, tt.live, tt.content),
				machineConfig(t, config.PersistentID, tt.persistent, tt.onDisk))
			if got != tt.want || (err != nil) != tt.unreadable {
				t.Errorf("%+v, %v; want %+v", got, err, tt.want)
			}

			if err != nil && strings.Contains(err.Error(), "sesame") {
				t.Errorf("the error quotes the config: %v", err)
			}
		})
	}
}

// TestWatchedConfig: versions begin anew with each boot, so that of another boot is no sign that nothing has changed.
func TestWatchedConfig(t *testing.T) {
	of := func(version uint64, boot time.Time) string {
		res := machineConfig(t, config.ActiveID, version, "version: v1alpha1\nmachine: {type: worker}\n")
		res.Metadata().SetCreated(boot)

		sent, err := protobuf.FromResource(res)
		if err != nil {
			t.Fatal(err)
		}

		return merge(Watched{}, state.Event{Type: state.Updated, Resource: sent}).Config
	}

	first := time.Unix(1, 0)
	if a, b, c := of(2, first), of(2, first.Add(time.Minute)), of(3, first); a == b || a == c || a != of(2, first) {
		t.Errorf("%q, %q of another boot, %q of another apply", a, b, c)
	}
}
