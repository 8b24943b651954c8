package talconfig

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"

	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/safety"
	model "github.com/talos-operator/talos-operator/internal/talconfig"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/workload"
)

// TestChooseDisk: a disk is named by the config, exists, and holds nothing that the user does not allow to wipe. Nothing
// makes a boot medium such a disk.
func TestChooseDisk(t *testing.T) {
	t.Parallel()

	const gb = 1_000_000_000

	iso := []machineconfig.Volume{{Name: "iso9660", Label: "TALOS"}}
	data := []machineconfig.Volume{{Name: "gpt"}, {Name: "ext4", Partition: true}}
	image := func(ephemeral string) []machineconfig.Volume {
		return []machineconfig.Volume{
			{Name: "gpt"},
			{Name: "vfat", Partition: true, PartitionLabel: "EFI"},
			{Partition: true, PartitionLabel: "STATE"},
			{Name: ephemeral, Partition: true, PartitionLabel: "EPHEMERAL"},
		}
	}
	sealed := []machineconfig.Volume{{Name: "luks", Partition: true, PartitionLabel: "STATE"}}
	disks := []machineconfig.Disk{
		{DevPath: "/dev/sda", Size: 20 * gb, Model: "SMALL"},
		{DevPath: "/dev/sdb", Size: 40 * gb, Model: "LARGE", Holds: data},
		{DevPath: "/dev/sdc", Size: 16 * gb, Model: "STICK", Transport: "usb", Holds: iso},
		{DevPath: "/dev/sdd", Size: 40 * gb, Model: "LOCKED", Readonly: true},
		{DevPath: "/dev/sdf", Size: 40 * gb, Model: "IMAGE", Holds: image("")},
		{DevPath: "/dev/sdg", Size: 40 * gb, Model: "USED", Holds: image("xfs")},
		{DevPath: "/dev/sdh", Size: 40 * gb, Model: "SEALED", Holds: sealed},
	}

	for install, c := range map[string]struct {
		system, disk, holds, want string
		wipe                      bool
	}{
		"disk: /dev/sda":                                 {disk: "/dev/sda"},
		"disk: /dev/sda # wipe":                          {disk: "/dev/sda", wipe: true},
		"disk: /dev/sdb":                                 {want: "disk /dev/sdb holds another installation or data (ext4)"},
		"{disk: /dev/sdb, wipe: true}":                   {want: "disk /dev/sdb holds another installation or data (ext4)"},
		"disk: /dev/sdb # wipe":                          {disk: "/dev/sdb", holds: "ext4", wipe: true},
		"disk: /dev/sdc # wipe":                          {want: "disk /dev/sdc is a boot medium", wipe: true},
		"disk: /dev/sdd # wipe":                          {want: "disk /dev/sdd is read-only", wipe: true},
		"disk: /dev/sde":                                 {want: "disk /dev/sde does not exist"},
		"diskSelector: {size: '<= 20GB', model: S*}":     {want: "2 disks match"},
		"diskSelector: {size: '>= 17GB', model: SMALL}":  {disk: "/dev/sda"},
		"diskSelector: {size: '>= 50GB'}":                {want: "no disk matches"},
		"diskSelector: {size: '== 20GB'}":                {want: "cannot be compared with the disks"},
		"diskSelector: {modalias: scsi}":                 {want: "cannot be compared with the disks"},
		"image: example.org/installer:v1":                {want: "cannot be compared with the disks"},
		"disk: /dev/sdf # an image":                      {disk: "/dev/sdf", system: "/dev/sdf"},
		"disk: /dev/sdf # an image, may be wiped":        {want: "leave out --wipe", system: "/dev/sdf", wipe: true},
		"disk: /dev/sdg # was configured":                {want: "configured before (EPHEMERAL)", system: "/dev/sdg"},
		"disk: /dev/sdg # was configured, wipe":          {want: "talos.experimental.wipe=system", system: "/dev/sdg", wipe: true},
		"disk: /dev/sdh # STATE is encrypted":            {want: "configured before (STATE)", system: "/dev/sdh"},
		"disk: /dev/sda # Talos is on another one":       {want: "not the disk asked for: reset it", system: "/dev/sdf"},
		"disk: /dev/sda # Talos is on another one, wipe": {want: "not the disk asked for: reset it", system: "/dev/sdf", wipe: true},
	} {
		if strings.HasPrefix(install, "{") {
			install = "install: " + install
		} else {
			install = "install:\n    " + install
		}

		config := []byte("version: v1alpha1\nmachine:\n  type: worker\n  " + install + "\ncluster: {}\n")

		disk, holds, err := chooseDisk(config, disks, c.system, c.wipe)
		if disk != c.disk || !strings.Contains(holds, c.holds) || (holds == "") != (c.holds == "") ||
			(err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: disk %s holds %q, %v", install, disk, holds, err)
		}
	}

	if _, _, err := chooseDisk([]byte("version: v1alpha1\nmachine: {type: worker}\n"), disks, "", false); err == nil ||
		!strings.Contains(err.Error(), "does not say which disk") {
		t.Errorf("a config without an installation: %v", err)
	}

	if _, _, err := chooseDisk([]byte("version: v1alpha1\nmachine: {type: worker, install: {disk: /dev/sda}}\n"), nil, "", true); err == nil ||
		!strings.Contains(err.Error(), "Found: no disks") {
		t.Errorf("a machine without disks: %v", err)
	}
}

// TestWithWipe: nothing but the wipe is changed.
func TestWithWipe(t *testing.T) {
	t.Parallel()

	const config = "version: v1alpha1\nmachine:\n  type: worker\n  install: {disk: /dev/sda, wipe: false}\ncluster: {}\n" +
		"---\napiVersion: v1alpha1\nkind: HostnameConfig\nhostname: w-1\n"

	out, err := withWipe([]byte(config))
	if err != nil {
		t.Fatal(err)
	}

	cfg, err := configloader.NewFromBytes(out)
	if err != nil || !cfg.Machine().Install().Zero() {
		t.Errorf("the disk is not wiped: %v", err)
	}

	difference, err := machineconfig.Diff([]byte(config), out)
	if err != nil || strings.Join(difference.Paths(), " ") != "machine.install.wipe" {
		t.Errorf("%v, %v", difference.Paths(), err)
	}
}

// TestCompareKeepsWipe: the wipe of a first config is no change afterwards, beside a real one neither. A wipe that a user
// writes is one.
func TestCompareKeepsWipe(t *testing.T) {
	t.Parallel()

	config := func(install, mtu string) []byte {
		return []byte("version: v1alpha1\nmachine:\n  type: worker\n  install: {disk: /dev/sda" + install + "}\n" +
			"  sysctls: {mtu: \"" + mtu + "\"}\ncluster: {}\n")
	}

	const bare = "version: v1alpha1\nmachine:\n  type: worker\n  sysctls: {mtu: \"1\"}\ncluster: {}\n"

	for name, c := range map[string]struct {
		live, desired []byte
		want          string
	}{
		"first config":       {config(", wipe: true", "1"), config(", wipe: false", "1"), ""},
		"without the field":  {config(", wipe: true", "1"), config("", "1"), ""},
		"no installation":    {config(", wipe: true", "1"), []byte(bare), "machine.install.disk"},
		"with a real change": {config(", wipe: true", "1"), config(", wipe: false", "2"), "machine.sysctls.mtu"},
		"wished by a user":   {config("", "1"), config(", wipe: true", "1"), "machine.install.wipe"},
	} {
		m := &target{live: c.live, config: c.desired}

		if err := m.compare(); err != nil || strings.Join(m.fields(), " ") != c.want {
			t.Errorf("%s: %v, %v", name, m.fields(), err)
		}

		if difference, err := machineconfig.Diff(m.live, m.desired); err != nil || (c.want == "") != difference.Equal() {
			t.Errorf("%s: the config that is sent has %v, %v", name, difference.Paths(), err)
		}
	}
}

// TestIsProbed: a disk that the machine has not read yet is not taken for an empty one.
func TestIsProbed(t *testing.T) {
	t.Parallel()

	found := []talos.Disk{{DevPath: "/dev/sda", Probed: true}, {DevPath: "/dev/sdb"}}

	for disk, want := range map[string]bool{"/dev/sda": true, "/dev/sdb": false, "/dev/sdc": false} {
		if got := isProbed(found, disk); got != want {
			t.Errorf("%s: %t", disk, got)
		}
	}
}

// TestCutShort: what a check finds at the end of its time is no finding.
func TestCutShort(t *testing.T) {
	t.Parallel()

	for left, want := range map[time.Duration]bool{time.Hour: false, 100 * time.Millisecond: true, -time.Second: true} {
		ctx, cancel := context.WithTimeout(t.Context(), left)
		if got := isCutShort(ctx); got != want {
			t.Errorf("%s are left: %t", left, got)
		}

		cancel()

		if !isCutShort(ctx) {
			t.Error("a context that was cancelled")
		}
	}

	if isCutShort(t.Context()) {
		t.Error("a context without an end")
	}
}

// TestTwins: two nodes of the talconfig.yaml are not one machine, which would get both configs, whether it runs or not.
// Those that were not asked may be any machine.
func TestTwins(t *testing.T) {
	t.Parallel()

	at := func(name, fingerprint string) *target {
		return &target{
			Machine: &model.Machine{Node: model.Node{Hostname: name}}, isSelected: true, bare: &bare{fingerprint: fingerprint},
		}
	}

	runs := func(name, boot string) *target {
		return &target{Machine: &model.Machine{Node: model.Node{Hostname: name}}, ref: workload.NodeRef{BootID: boot}}
	}

	for _, c := range []struct {
		first, second *target
		want          bool
	}{
		{at("w-1", "a"), at("w-2", "a"), true},
		{at("w-1", "a"), at("w-2", "b"), false},
		{runs("w-1", "a"), runs("w-2", "a"), true},
		{runs("w-1", "a"), runs("w-2", "b"), false},
		{runs("w-1", ""), runs("w-2", ""), false},
	} {
		d, want := &drive{nodes: []*target{c.first, c.second}}, c.want

		if err := d.checkTwins(); (err != nil) != want || err != nil && !strings.Contains(err.Error(), "w-1 and w-2 are one machine") {
			t.Errorf("%q and %q: %v", c.first.fingerprint(), c.second.fingerprint(), err)
		}
	}
}

// TestHas: a Node or a member is that of a machine by its name, with or without a domain, or by an address.
func TestHas(t *testing.T) {
	t.Parallel()

	machine := &target{Machine: &model.Machine{Node: model.Node{Hostname: "w-1", IPAddress: "10.0.0.1,fd00::1"}}, address: "10.0.0.1"}

	for _, c := range []struct {
		name, address string
		want          bool
	}{
		{"w-1", "", true},
		{"W-1", "", true},
		{"w-1.example.org", "", true},
		{"w-10", "", false},
		{"", "", false},
		{"other", "fd00::1", true},
		{"other", "10.0.0.2", false},
	} {
		if got := machine.has(c.name, []string{c.address}); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}

// TestKnown: the advice to delete a Node is given only for one that is not ready and has the name of the machine.
func TestKnown(t *testing.T) {
	t.Parallel()

	m := &target{Machine: &model.Machine{Node: model.Node{Hostname: "w-1"}}, bare: &bare{uuid: "ab-1"}}

	for name, c := range map[string]struct {
		node safety.ClusterNode
		want string
	}{
		"of another machine":     {safety.ClusterNode{Name: "w-2", SystemUUID: "ab-2"}, ""},
		"its own":                {safety.ClusterNode{Name: "w-1", SystemUUID: "ab-1"}, "kubectl delete node w-1"},
		"ready":                  {safety.ClusterNode{Name: "w-1", SystemUUID: "ab-1", Ready: true}, "find out which machine"},
		"its UUID, another name": {safety.ClusterNode{Name: "w-2", SystemUUID: "AB-1"}, "find out which machine"},
	} {
		err := m.known(c.node)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestJoined: the advice to remove a member is given only where the member is proved to be what the machine has left
// behind. A member of the quorum that is removed by mistake may be the one that etcd cannot do without.
func TestJoined(t *testing.T) {
	t.Parallel()

	const remove, find = "talosctl etcd remove-member ", "find out which machine runs it"

	m := &target{
		Machine: &model.Machine{Node: model.Node{Hostname: "cp-3", IPAddress: "10.0.0.3"}}, address: "10.0.0.3",
		bare: &bare{uuid: "ab-3"},
	}
	member := safety.Member{ID: 3, Name: "cp-3", PeerAddresses: []string{"10.0.0.3"}}
	node := safety.ClusterNode{Name: "cp-3", SystemUUID: "AB-3"}
	others := []safety.Node{{Name: "cp-1", MemberID: 1}, {Name: "cp-2", MemberID: 2}}

	for name, c := range map[string]struct {
		change func(m *safety.Member, n *safety.ClusterNode, others []safety.Node)
		want   string
	}{
		"its own":         {nil, remove},
		"another address": {func(m *safety.Member, _ *safety.ClusterNode, _ []safety.Node) { m.PeerAddresses = []string{"10.0.0.9"} }, find},
		"a second address": {func(m *safety.Member, _ *safety.ClusterNode, _ []safety.Node) {
			m.PeerAddresses = []string{"10.0.0.3", "10.0.0.9"}
		}, find},
		"no address":           {func(m *safety.Member, _ *safety.ClusterNode, _ []safety.Node) { m.PeerAddresses = nil }, find},
		"another name":         {func(m *safety.Member, _ *safety.ClusterNode, _ []safety.Node) { m.Name = "cp-9" }, find},
		"no such Node":         {func(_ *safety.Member, n *safety.ClusterNode, _ []safety.Node) { n.Name = "cp-9" }, find},
		"another machine":      {func(_ *safety.Member, n *safety.ClusterNode, _ []safety.Node) { n.SystemUUID = "ab-9" }, find},
		"a Node that is ready": {func(_ *safety.Member, n *safety.ClusterNode, _ []safety.Node) { n.Ready = true }, find},
		"one does not tell":    {func(_ *safety.Member, _ *safety.ClusterNode, o []safety.Node) { o[1].MemberID = 0 }, find},
		"that of another one":  {func(_ *safety.Member, _ *safety.ClusterNode, o []safety.Node) { o[1].MemberID = 3 }, "is that of cp-2"},
	} {
		member, node, others := member, node, slices.Clone(others)
		if c.change != nil {
			c.change(&member, &node, others)
		}

		err := m.joined(member, others, []safety.ClusterNode{node})
		if !strings.Contains(err.Error(), c.want) || c.want != remove && strings.Contains(err.Error(), "remove-member") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}

	if err := m.joined(member, others, nil); !strings.Contains(err.Error(), find) {
		t.Errorf("Kubernetes does not tell: %v", err)
	}
}

// TestBeforeBootstrap: control planes are changed without an etcd only before anything was bootstrapped, and only while
// each one that runs says that it has no etcd data.
func TestBeforeBootstrap(t *testing.T) {
	t.Parallel()

	now := time.Unix(10_000, 0)

	for name, c := range map[string]struct {
		rec  *bootstrapRecord
		want bool
	}{
		"no record":         {nil, true},
		"chosen long ago":   {&bootstrapRecord{ChosenAt: now.Add(-time.Hour)}, true},
		"may be called now": {&bootstrapRecord{ChosenAt: now.Add(-time.Second)}, false},
		"established":       {&bootstrapRecord{ChosenAt: now.Add(-time.Hour), EstablishedAt: &now}, false},
	} {
		if got := isBeforeBootstrap(c.rec, now); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}

	for data, want := range map[safety.Data]bool{
		safety.DataAbsent: true, safety.DataPresent: false, safety.DataUnknown: false,
	} {
		if got := hasNoEtcd([]safety.Node{{EtcdData: safety.DataAbsent}, {EtcdData: data}}); got != want {
			t.Errorf("etcd data %v: %t", data, got)
		}
	}

	if !hasNoEtcd(nil) {
		t.Error("machines in maintenance mode alone have an etcd")
	}
}
