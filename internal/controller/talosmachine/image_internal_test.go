package talosmachine

import (
	"strings"
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/imagefactory"
	"github.com/talos-operator/talos-operator/internal/talos"
)

const (
	stockImage   = "ghcr.io/siderolabs/installer:v1.13.9"
	iscsi        = "c9078f9419961640c712a8bf2bb9174933dfcf1da383fd8ea2b7dc21493f8bac" // siderolabs/iscsi-tools
	plainFactory = "factory.talos.dev/metal-installer/"
	signedImages = "factory.talos.dev/metal-installer-secureboot/"
)

func imageScope(o v1alpha1.InstallOptions, runs talos.Image) *scope {
	s := &scope{machine: &v1alpha1.TalosMachine{}, controlPlane: &v1alpha1.TalosControlPlane{}, held: &clusterstate.Held{}}
	s.controlPlane.Spec.TalosVersion, s.machine.Name, s.machine.Spec.Install = "v1.13.9", "cp-0", &o
	s.booted, s.facts = &runs, &talos.Facts{TalosVersion: "v1.13.9"}

	return s
}

func names(of ...string) talos.Image {
	return talos.Image{Told: true, Extensions: talos.Extensions{Names: of}}
}

// plain is the ID of the schematic that adds nothing.
const plain = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"

// kernelArguments and overlaid are schematics without extensions.
var (
	kernelArguments = &imagefactory.Schematic{Customization: imagefactory.Customization{ExtraKernelArgs: []string{"console=ttyS1"}}}
	overlaid        = &imagefactory.Schematic{Overlay: &imagefactory.Overlay{Image: "siderolabs/sbc-raspberrypi", Name: "rpi_generic"}}
)

// described is a machine that shows its schematic, and has no extensions.
func described(t *testing.T, s *imagefactory.Schematic) (id string, image talos.Image) {
	t.Helper()

	text, err := s.Text()
	if err != nil {
		t.Fatal(err)
	}

	if id, err = s.ID(); err != nil {
		t.Fatal(err)
	}

	return id, talos.Image{Told: true, Extensions: talos.Extensions{Schematic: id, SchematicText: string(text)}}
}

func secured(on bool) talos.Image { return talos.Image{Told: true, SecureBoot: &on} }

// TestCheckImage: which machine in maintenance mode is not installed, and why.
func TestCheckImage(t *testing.T) {
	yes := true
	options := func(edit func(*v1alpha1.InstallOptions)) (o v1alpha1.InstallOptions) {
		edit(&o)

		return o
	}
	none := v1alpha1.InstallOptions{}
	secure := options(func(o *v1alpha1.InstallOptions) { o.SecureBoot = &yes })
	inline := options(func(o *v1alpha1.InstallOptions) {
		o.Schematic = &v1alpha1.Schematic{Extensions: []string{"siderolabs/iscsi-tools"}}
	})
	byID := options(func(o *v1alpha1.InstallOptions) { o.Schematic = &v1alpha1.Schematic{ID: iscsi} })
	mine := options(func(o *v1alpha1.InstallOptions) { o.Image = "mine/installer:v1.13.9" })
	may := options(func(o *v1alpha1.InstallOptions) { o.DropExtensions = []string{"siderolabs/iscsi-tools"} })

	for name, c := range map[string]struct {
		options      v1alpha1.InstallOptions
		runs         talos.Image
		installer    string
		reason, part string
	}{
		"plain":                   {none, secured(false), stockImage, "", ""},
		"it does not say":         {secure, talos.Image{}, signedImages + iscsi, v1alpha1.ReasonImageUnknown, "whether it was booted"},
		"nor what it would lose":  {none, talos.Image{}, stockImage, v1alpha1.ReasonImageUnknown, "which extensions"},
		"in a container":          {none, talos.Image{Platform: "container"}, stockImage, "", ""},
		"not with Secure Boot":    {secure, secured(false), signedImages + iscsi, v1alpha1.ReasonSecureBootOff, "setup mode"},
		"with Secure Boot":        {secure, secured(true), signedImages + iscsi, "", ""},
		"a patch names another":   {secure, secured(true), stockImage, v1alpha1.ReasonSecureBootMismatch, "not signed"},
		"not asked for":           {none, secured(true), stockImage, v1alpha1.ReasonSecureBootMismatch, "would not boot again"},
		"an image of one's own":   {mine, secured(true), "mine/installer:v1.13.9", "", ""},
		"its extensions are lost": {none, names("iscsi-tools"), stockImage, v1alpha1.ReasonExtensionsLost, "iscsi-tools"},
		"they may be":             {may, names("iscsi-tools"), stockImage, "", ""},
		"they are not":            {inline, names("iscsi-tools"), plainFactory + iscsi + ":v1.13.9", "", ""},
		"one of them is": {
			inline, names("gvisor", "iscsi-tools"), plainFactory + iscsi + ":v1.13.9", v1alpha1.ReasonExtensionsLost, "extensions gvisor,",
		},
		"of another platform": {
			byID, talos.Image{Told: true, Platform: "nocloud"}, plainFactory + iscsi + ":v1.13.9", v1alpha1.ReasonPlatformMismatch, "is for metal",
		},
		"of the same one":      {byID, talos.Image{Told: true, Platform: "metal"}, plainFactory + iscsi + ":v1.13.9", "", ""},
		"one's own of a patch": {none, names("gvisor"), "mine/installer:v1.13.9", "", ""},
		"an ID says it all":    {byID, names("gvisor"), plainFactory + iscsi + ":v1.13.9", "", ""},
		"so does an image":     {mine, names("gvisor"), "mine/installer:v1.13.9", "", ""},
		"and one of a patch":   {inline, names("gvisor"), plainFactory + strings.Repeat("0a", 32) + ":v1.13.9", "", ""},
	} {
		err := imageScope(c.options, c.runs).checkImage([]byte("machine: {install: {image: \""+c.installer+"\"}}\n"), time.Minute)
		if failure.Reason(err) != c.reason || c.reason != "" &&
			(failure.ClassOf(err) != failure.ClassWaiting || !strings.Contains(err.Error(), c.part)) {
			t.Errorf("%s: got %v, want %s", name, err, c.reason)
		}
	}
}

// TestNeverTold: Talos before 1.5 has no security state. It can be installed all the same, without Secure Boot.
func TestNeverTold(t *testing.T) {
	config := []byte("machine: {install: {image: \"" + stockImage + "\"}}\n")

	for version, want := range map[string]string{
		"v1.4.8": "", "v1.5.0": v1alpha1.ReasonImageUnknown, "v1.10.0": v1alpha1.ReasonImageUnknown, "": v1alpha1.ReasonImageUnknown,
	} {
		s := imageScope(v1alpha1.InstallOptions{}, talos.Image{})
		s.facts.TalosVersion = version

		if got := failure.Reason(s.checkImage(config, time.Minute)); got != want {
			t.Errorf("%q: got %q, want %q", version, got, want)
		}
	}

	s := imageScope(v1alpha1.InstallOptions{ImageOptions: v1alpha1.ImageOptions{SecureBoot: new(true)}}, talos.Image{})
	s.facts.TalosVersion = "v1.4.8"

	if got := failure.Reason(s.checkImage(config, time.Minute)); got != v1alpha1.ReasonSecureBootOff {
		t.Errorf("without Secure Boot: got %q", got)
	}
}

// TestRefuseImage: which installer does not replace what runs.
func TestRefuseImage(t *testing.T) {
	of := func(s *imagefactory.Schematic, more ...string) running {
		id, image := described(t, s)
		image.Names = more

		return running{system: system{"v1.13.8", id}, image: image}
	}
	extended := names("gvisor")
	extended.SecureBoot = new(false)
	signed := secured(false)
	signed.Signed = true

	for name, c := range map[string]struct {
		runs        running
		image, want string
	}{
		"plain":                   {running{image: secured(false)}, stockImage, ""},
		"it would not boot":       {running{image: secured(true)}, stockImage, "not boot again"},
		"nor from a factory":      {running{image: secured(true)}, plainFactory + iscsi + ":v1.13.9", "not boot again"},
		"it would":                {running{image: secured(true)}, signedImages + iscsi + ":v1.13.9", ""},
		"of an unknown name":      {running{image: secured(true)}, "mine/installer:v1.13.9", ""},
		"not to Secure Boot":      {running{image: secured(false)}, signedImages + iscsi + ":v1.13.9", "from one to the other"},
		"its firmware has it off": {running{image: signed}, signedImages + iscsi + ":v1.13.9", ""},
		"not away from it":        {running{image: signed}, stockImage, "cannot be changed from one to the other"},
		"nobody knows what it has": {
			running{system: system{"v1.13.8", iscsi}, mayLose: true}, "mine/installer:v1.13.9", "does not contain one",
		},
		"of another platform": {
			running{image: talos.Image{Platform: "nocloud"}}, plainFactory + iscsi + ":v1.13.9", "runs on the platform nocloud",
		},
		"of the same one":           {running{image: talos.Image{Platform: "metal"}}, plainFactory + iscsi + ":v1.13.9", ""},
		"of any platform":           {running{image: talos.Image{Platform: "nocloud"}}, stockImage, ""},
		"in a container":            {running{image: talos.Image{Platform: "container"}}, plainFactory + iscsi + ":v1.13.9", ""},
		"an old Talos does not say": {running{}, signedImages + iscsi + ":v1.13.9", ""},
		"a schematic would go":      {running{system: system{"v1.13.8", iscsi}, image: names("iscsi-tools")}, stockImage, "lose the extensions iscsi-tools of the"},
		"it may":                    {running{system: system{"v1.13.8", iscsi}, mayLose: true}, stockImage, ""},
		"it has not reported":       {running{incomplete: true}, stockImage, "does not report"},
		"extensions would go":       {running{lost: []string{"gvisor"}}, stockImage, "lose the extensions gvisor,"},
		"it lists no extensions":    {running{incomplete: true, image: extended}, stockImage, "does not report which extensions it has,"},
		"one is known to be lost":   {running{incomplete: true, lost: []string{"gvisor"}}, stockImage, "lose the extensions gvisor,"},
		"so is a schematic": {
			running{system: system{"v1.13.8", iscsi}, incomplete: true, image: extended}, stockImage, "lose the extensions gvisor of the",
		},
		"it boots with Secure Boot":     {running{incomplete: true, image: secured(true)}, stockImage, "not boot again"},
		"it is on another platform":     {running{incomplete: true, image: talos.Image{Platform: "aws"}}, plainFactory + iscsi, "is for metal"},
		"a schematic that adds nothing": {running{system: system{"v1.13.8", plain}}, stockImage, ""},
		"it may have more":              {running{system: system{"v1.13.8", plain}, incomplete: true}, stockImage, "does not report whether"},
		"one of kernel arguments":       {of(kernelArguments), stockImage, ""},
		"and an extension":              {of(kernelArguments, "mine"), stockImage, "lose the extensions mine of the"},
		"one of an overlay":             {of(overlaid), stockImage, "lose the overlay of the schematic"},
		"one that it does not show":     {running{system: system{"v1.13.8", iscsi}}, stockImage, "does not report what else is in its schematic"},
		"to an unknown installer":       {of(kernelArguments), "mine/installer:v1.13.9", "does not contain one"},
	} {
		_, got := c.runs.refuse(c.image)
		if !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}

	// Nor does one that would not boot install again what runs, should the upgrade fail.
	for name, c := range map[string]struct {
		image     talos.Image
		live, old string
	}{
		"signed":             {secured(true), signedImages + iscsi + ":v1.13.8", signedImages + iscsi + ":v1.13.8"},
		"its config is not":  {secured(true), "ghcr.io/siderolabs/installer:v1.13.8", signedImages + iscsi + ":v1.13.8"},
		"Secure Boot is off": {signed, "ghcr.io/siderolabs/installer:v1.13.8", signedImages + iscsi + ":v1.13.8"},
		"it has none":        {secured(false), signedImages + iscsi + ":v1.13.8", ""},
	} {
		runs := running{system: system{version: "v1.13.8"}, installer: c.live, image: c.image}
		if old, ok := runs.again(signedImages+iscsi+":v1.13.9", "v1.13.9"); old != c.old || ok != (old != "") {
			t.Errorf("%s: %s installs again what runs", name, old)
		}
	}

	// What is refused is not desired.
	cp := &v1alpha1.TalosControlPlane{}
	cp.Spec.TalosVersion, cp.Spec.Upgrade = "v1.13.9", &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic}
	cp.Status.Upgrade = &v1alpha1.UpgradeStatus{TalosVersion: "v1.13.9"}
	old := system{version: "v1.13.8"}

	got := compareSystems(cp, &v1alpha1.TalosMachine{}, running{
		system: old, installer: "ghcr.io/siderolabs/installer:v1.13.8", lost: []string{"gvisor"},
	}, stockImage)
	if got.want != old || got.refused == "" {
		t.Errorf("it loses an extension: %+v", got)
	}
}

// TestRefuseInstaller: which installer is not sent to a member whose config names another one.
func TestRefuseInstaller(t *testing.T) {
	none, yes := v1alpha1.InstallOptions{}, true
	with := func(o v1alpha1.ImageOptions) v1alpha1.InstallOptions { return v1alpha1.InstallOptions{ImageOptions: o} }
	withoutSchematic := names("iscsi-tools")
	withSchematic := names("iscsi-tools")
	withSchematic.Schematic = iscsi
	elsewhere := secured(false)
	elsewhere.Platform = "nocloud"
	_, board := described(t, overlaid)

	for name, c := range map[string]struct {
		options v1alpha1.InstallOptions
		runs    talos.Image
		want    string
		reason  string
	}{
		"plain":                     {none, secured(false), stockImage, ""},
		"it has not reported":       {none, talos.Image{}, stockImage, v1alpha1.ReasonImageUnknown},
		"not to Secure Boot":        {with(v1alpha1.ImageOptions{SecureBoot: &yes}), secured(false), signedImages + iscsi, v1alpha1.ReasonSecureBootOff},
		"not from it":               {none, secured(true), stockImage, v1alpha1.ReasonSecureBootMismatch},
		"another platform":          {none, elsewhere, plainFactory + iscsi, v1alpha1.ReasonPlatformMismatch},
		"extensions":                {none, withoutSchematic, stockImage, v1alpha1.ReasonExtensionsLost},
		"a schematic":               {none, withSchematic, stockImage, v1alpha1.ReasonExtensionsLost},
		"one that adds nothing":     {none, talos.Image{Told: true, Extensions: talos.Extensions{Schematic: plain}}, stockImage, ""},
		"one that it does not show": {none, talos.Image{Told: true, Extensions: talos.Extensions{Schematic: iscsi}}, stockImage, v1alpha1.ReasonImageUnknown},
		"an overlay":                {none, board, stockImage, v1alpha1.ReasonExtensionsLost},
		"an unknown installer":      {v1alpha1.InstallOptions{Image: "mine/installer"}, board, "mine/installer", ""},
		"and it has not reported":   {v1alpha1.InstallOptions{Image: "mine/installer"}, talos.Image{}, "mine/installer", ""},
		"which may go":              {with(v1alpha1.ImageOptions{DropExtensions: []string{"*"}}), withSchematic, stockImage, ""},
		"nobody knows what it has":  {v1alpha1.InstallOptions{Image: "mine/installer"}, withSchematic, "mine/installer", ""},
	} {
		s := imageScope(c.options, c.runs)
		if got := s.refuseInstaller(c.runs, "other/installer", c.want); (got == nil) != (c.reason == "") || got != nil &&
			(got.reason != c.reason || !strings.HasPrefix(got.message, "machine cp-0 keeps its installer: it ")) {
			t.Errorf("%s: got %+v, want %q", name, got, c.reason)
		}
	}
}

// TestCheckNamed: what is wrong about an installer that the config of a member names already.
func TestCheckNamed(t *testing.T) {
	yes := true
	secure := v1alpha1.InstallOptions{ImageOptions: v1alpha1.ImageOptions{SecureBoot: &yes}}
	off := secured(false)
	off.Signed = true

	for name, c := range map[string]struct {
		options      v1alpha1.InstallOptions
		runs         talos.Image
		image        string
		reason, part string
	}{
		"nothing is":               {secure, secured(true), signedImages + iscsi, "", ""},
		"it has not reported":      {secure, talos.Image{}, signedImages + iscsi, "", ""},
		"it would not boot":        {v1alpha1.InstallOptions{}, secured(true), stockImage, v1alpha1.ReasonSecureBootMismatch, "boot again"},
		"it runs without":          {secure, secured(false), signedImages + iscsi, v1alpha1.ReasonSecureBootOff, "replace the machine"},
		"with one of unknown name": {secure, secured(false), "mine/installer", v1alpha1.ReasonSecureBootOff, "replace the machine"},
		"its firmware has it off":  {secure, off, signedImages + iscsi, v1alpha1.ReasonSecureBootOff, "on in its firmware"},
	} {
		s := imageScope(c.options, c.runs)
		if got := s.checkNamed(c.runs, c.image); (got == nil) != (c.reason == "") || got != nil && (got.reason != c.reason ||
			!strings.HasPrefix(got.message, "machine cp-0: it ") || !strings.Contains(got.message, c.part)) {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

// TestShownImage: what runs, and whether it is what the spec asks for.
func TestShownImage(t *testing.T) {
	yes := true
	runs := names("iscsi-tools")
	runs.Schematic, runs.SecureBoot = iscsi, &yes

	for name, c := range map[string]struct {
		options v1alpha1.ImageOptions
		wanted  string
		as      *bool
	}{
		"nothing is asked for": {v1alpha1.ImageOptions{}, "", nil},
		"the schematic": {
			v1alpha1.ImageOptions{Schematic: &v1alpha1.Schematic{Extensions: []string{"siderolabs/iscsi-tools"}}}, iscsi, new(true),
		},
		"another one": {
			v1alpha1.ImageOptions{Schematic: &v1alpha1.Schematic{ID: strings.Repeat("0a", 32)}}, strings.Repeat("0a", 32), new(false),
		},
		"with Secure Boot": {
			v1alpha1.ImageOptions{Schematic: &v1alpha1.Schematic{ID: iscsi}, SecureBoot: &yes}, iscsi, new(true),
		},
	} {
		s := imageScope(v1alpha1.InstallOptions{ImageOptions: c.options}, runs)
		check := func() {
			got := s.shownImage()
			if got == nil || got.Schematic != iscsi || got.DesiredSchematic != c.wanted || (got.MatchesSpec == nil) != (c.as == nil) ||
				c.as != nil && *got.MatchesSpec != *c.as || strings.Join(got.Extensions, " ") != "iscsi-tools" {
				t.Errorf("%s: %+v", name, got)
			}

			s.machine.Status.Image = got
		}

		check()

		s.booted = nil // the node is not asked again in this boot
		check()

		s.facts.BootID, s.machine.Status.BootID, s.booted = "boot", "boot", &talos.Image{} // it reports nothing for once
		check()

		s.facts.BootID = "another"
		if got := s.shownImage(); got.Schematic != "" || got.SecureBoot != nil {
			t.Errorf("%s: another boot shows %+v", name, got)
		}
	}

	s := imageScope(v1alpha1.InstallOptions{ImageOptions: v1alpha1.ImageOptions{
		SecureBoot: &yes, Schematic: &v1alpha1.Schematic{ID: iscsi},
	}}, talos.Image{Extensions: runs.Extensions})
	if got := s.shownImage(); got.MatchesSpec == nil || *got.MatchesSpec {
		t.Errorf("a node that does not say whether Secure Boot is on is as wanted: %+v", got)
	}

	if got := imageScope(v1alpha1.InstallOptions{Image: plainFactory + iscsi + ":v1.13.9"}, runs); !*got.shownImage().MatchesSpec {
		t.Error("the schematic of an installer that the spec names is not compared")
	}
}

// TestMayLose: what runs may go if each of it is named, or all of it.
func TestMayLose(t *testing.T) {
	for mayGo, want := range map[string]bool{
		"": false, "gvisor": false, "gvisor siderolabs/iscsi-tools": true, "*": true,
	} {
		if got := mayLose([]string{"gvisor", "iscsi-tools"}, strings.Fields(mayGo)); got != want {
			t.Errorf("%q: %t", mayGo, got)
		}
	}

	if mayLose(nil, []string{"gvisor"}) {
		t.Error("a schematic without extensions is lost because of the name of one")
	}
}

// TestSchematicGoes: an upgrade to an image without schematic, which the spec permits, wants none afterwards, and says
// that it goes.
func TestSchematicGoes(t *testing.T) {
	cp := &v1alpha1.TalosControlPlane{}
	cp.Spec.TalosVersion, cp.Spec.Upgrade = "v1.13.9", &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic}
	cp.Status.Upgrade = &v1alpha1.UpgradeStatus{TalosVersion: "v1.13.9"}
	live := plainFactory + iscsi + ":v1.13.8"

	// The config may name the image of the spec already, which is not what runs.
	if got := compareSystems(cp, &v1alpha1.TalosMachine{}, running{
		system: system{"v1.13.8", iscsi}, installer: "ghcr.io/siderolabs/installer:v1.13.8", mayLose: true,
	}, stockImage); got.want != (system{"v1.13.9", ""}) || got.refused != "" {
		t.Errorf("its config names it already: %+v", got)
	}

	got := compareSystems(cp, &v1alpha1.TalosMachine{}, running{
		system: system{"v1.13.8", iscsi}, installer: live, mayLose: true,
	}, stockImage)
	if got.want != (system{"v1.13.9", ""}) || got.refused != "" || got.old != live {
		t.Errorf("%+v", got)
	}

	if f := got.fields(); len(f) != 2 || f[1].Old != iscsi || f[1].New != "" {
		t.Errorf("it says %+v", f)
	}
}

// TestBareSchematicGoes: a schematic without which nothing is lost goes with another version, and is by itself no
// reason to reboot a machine.
func TestBareSchematicGoes(t *testing.T) {
	cp := &v1alpha1.TalosControlPlane{}
	cp.Spec.TalosVersion, cp.Spec.Upgrade = "v1.13.9", &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic}
	id, image := described(t, kernelArguments)

	for version, want := range map[string]system{"v1.13.8": {"v1.13.9", ""}, "v1.13.9": {"v1.13.9", id}} {
		cp.Status.Upgrade = &v1alpha1.UpgradeStatus{TalosVersion: "v1.13.9"}

		got := compareSystems(cp, &v1alpha1.TalosMachine{}, running{
			system: system{version, id}, installer: plainFactory + id + ":" + version, image: image,
		}, stockImage)
		if got.want != want || got.refused != "" {
			t.Errorf("%s: %+v", version, got)
		}
	}
}

// TestIsBare: nothing is lost with a schematic if all of it is known, and it has neither an extension nor an overlay.
func TestIsBare(t *testing.T) {
	of := func(s *imagefactory.Schematic, edit func(*running)) running {
		id, image := described(t, s)
		out := running{system: system{"v1.13.8", id}, image: image}
		edit(&out)

		return out
	}

	for name, c := range map[string]struct {
		runs running
		want bool
	}{
		"kernel arguments":    {of(kernelArguments, func(*running) {}), true},
		"an extension":        {of(kernelArguments, func(o *running) { o.image.Names = []string{"gvisor"} }), false},
		"it has not reported": {of(kernelArguments, func(o *running) { o.incomplete = true }), false},
		"it does not show it": {of(kernelArguments, func(o *running) { o.image.SchematicText = "" }), false},
		"an overlay":          {of(overlaid, func(*running) {}), false},
	} {
		if got := c.runs.isBare(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
