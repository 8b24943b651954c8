package machineconfig

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/config/validation"
)

const mainKind = v1alpha1.Version

// metal is the mode that configs are validated for: it is the strictest, the only one that insists on a disk.
type metal struct{}

func (metal) String() string        { return "metal" }
func (metal) RequiresInstall() bool { return true }
func (metal) InContainer() bool     { return false }

// Render makes the machine config of one node. The error is an *InputError, a *PatchError or an *InvalidError, and
// holds no secrets.
func Render(in Input) (*Rendered, error) {
	clean := newScrubber(in)

	patches, err := parsePatches(in.Patches)
	if err != nil {
		return nil, clean.patchError(err)
	}

	base, err := generateBase(in)
	if err != nil {
		return nil, err
	}

	d, err := applyEach(base, patches, keepsKubePrism(in, base))
	if err != nil {
		return nil, clean.patchError(err)
	}

	raw, err := d.bytes()
	if err != nil {
		return nil, err
	}

	if len(raw) > longestConfig {
		return nil, tooLong(in, base, patches, len(raw))
	}

	warnings, err := validate(d)
	if err != nil {
		return nil, clean.invalidError(in, base, patches, err)
	}

	shut, err := checkShared(in, base, d)
	if err != nil {
		return nil, err
	}

	hash, err := in.Hashes.Hash(raw)
	if err != nil {
		return nil, err
	}

	warnings = append(warnings, ownWarnings(in, d)...)
	for i, warning := range warnings {
		warnings[i] = clean.clean(warning)
	}

	slices.Sort(warnings)

	return &Rendered{
		Bytes: raw, Hash: hash, Warnings: slices.Compact(warnings), Hidden: hiddenOf(in, d), ShutOut: shut,
	}, nil
}

// longestConfig is how many bytes a config may have: the state of a cluster, which holds one besides much else, is a
// Secret, and the live and the last working one are kept together in another.
const longestConfig = 512 << 10

// tooLong names the patch with which a config is too long, or says that it is too long without patches.
func tooLong(in Input, base config.Provider, patches []patch, size int) error {
	const limit = "the config is %d bytes; the limit is %d: make the %s shorter"

	if d, err := applyAll(base, nil); err == nil {
		if raw, err := d.bytes(); err == nil && len(raw) > longestConfig {
			what, values := "fields", len(in.refs()) > 0
			if values {
				what = "values that fields take from ConfigMaps and Secrets, or the fields,"
			}

			return &InvalidError{Values: values, Problems: []string{fmt.Sprintf(limit, len(raw), longestConfig, what)}}
		}
	}

	problem := fmt.Sprintf(limit, size, longestConfig, "patches")

	for i, p := range patches {
		d, err := applyAll(base, patches[:i+1])
		if err != nil {
			return p.refused(problem)
		}

		if raw, err := d.bytes(); err != nil || len(raw) > longestConfig {
			return p.refused(problem)
		}
	}

	return &InvalidError{Problems: []string{problem}}
}

func (s scrubber) patchError(err error) error {
	var p *PatchError
	if !errors.As(err, &p) {
		return err
	}

	cleaned := *p
	cleaned.Problem = s.clean(p.Problem)

	return &cleaned
}

// invalidError says what is wrong with a config. What is also wrong without the secret patches quotes none of them;
// anything else might. What is wrong only without them is not what is wrong.
func (s scrubber) invalidError(in Input, base config.Provider, patches []patch, err error) *InvalidError {
	invalid := &InvalidError{Patch: culprit(base, patches)}

	invalid.Problems = problemsOf(err)

	if secrets := secretSources(patches); len(secrets) > 0 {
		open := validateOpen(in.Patches, base)
		invalid.Problems = slices.DeleteFunc(invalid.Problems, func(problem string) bool {
			return open == nil || !slices.Contains(problemsOf(open), problem)
		})

		if len(invalid.Problems) == 0 {
			invalid.Problems = []string{"Talos refuses the result with the patch from " + strings.Join(secrets, ", ") + "; " +
				hiddenReason}

			return invalid
		}
	}

	for i, problem := range invalid.Problems {
		invalid.Problems[i] = s.clean(problem)
	}

	return invalid
}

// secretSources lists the Secrets that patches come from.
func secretSources(patches []patch) []string {
	var out []string

	for _, p := range patches {
		if p.secret && !slices.Contains(out, p.source) {
			out = append(out, p.source)
		}
	}

	return out
}

// validateOpen validates the config without the secret patches. It returns nil where the others do not apply without
// them.
func validateOpen(in Patches, base config.Provider) error {
	for _, from := range []*[]Sourced{&in.ClusterFrom, &in.GroupFrom, &in.MachineFrom} {
		*from = slices.DeleteFunc(slices.Clone(*from), func(s Sourced) bool { return s.Secret })
	}

	patches, err := parsePatches(in)
	if err != nil {
		return nil
	}

	d, err := applyAll(base, patches)
	if err != nil {
		return nil
	}

	_, err = validate(d)

	return err
}

func applyAll(base config.Provider, patches []patch) (*draft, error) {
	return applyEach(base, patches, func(patch, *draft) error { return nil })
}

// applyEach applies patches one by one, so that an error names its patch, and calls a function after each.
func applyEach(base config.Provider, patches []patch, applied func(patch, *draft) error) (*draft, error) {
	want, err := guardOf(base)
	if err != nil {
		return nil, err
	}

	d := &draft{known: base.Clone()}

	for _, p := range patches {
		apply := d.apply
		if p.secret {
			apply = d.applyHidden
		}

		if err := apply(p); err != nil {
			return nil, err
		}

		have, err := guardOf(d.known)
		if err != nil {
			return nil, p.refused(err.Error())
		}

		if field := want.firstDifference(have); field != "" {
			return nil, p.refused("changes " + field + ", which the operator owns; remove it from the patch")
		}

		if err := applied(p, d); err != nil {
			return nil, err
		}
	}

	return d, nil
}

// validate lets the machinery library judge what it will read back from the bytes, not what is in memory.
func validate(d *draft) (warnings []string, err error) {
	// The library dereferences entries of lists without a check: a node would panic at such a config, too.
	defer func() {
		if r := recover(); r != nil {
			warnings, err = nil, errors.New("it has an empty entry in a list, or an empty section, that Talos cannot read")
		}
	}()

	raw, err := encode(d.known)
	if err != nil {
		return nil, err
	}

	cfg, err := configloader.NewFromBytes(raw)
	if err != nil {
		return nil, errors.New(describe(err))
	}

	warnings, err = cfg.Validate(metal{}, validation.WithLocal())
	if err != nil {
		return warnings, err
	}

	return append(warnings, describedTwice(cfg)...), nil
}

// culprit finds the patch after which the config never was valid again. Patches may complete each other, so an invalid
// config in between is no fault by itself.
func culprit(base config.Provider, patches []patch) string {
	name := ""

	if _, err := validate(&draft{known: base}); err != nil {
		return name
	}

	valid := true

	for i, p := range patches {
		// Parsed again: merging documents changes the nodes of the patch that came first.
		d, err := applyAll(base, patches[:i+1])
		if err != nil {
			return p.name()
		}

		_, err = validate(d)
		if valid && err != nil {
			name = p.name()
		}

		valid = err == nil
	}

	return name
}

func ownWarnings(in Input, d *draft) []string {
	var out []string

	for _, doc := range d.unknown {
		out = append(out, "document "+doc.id()+" is of a kind that this operator does not know; it is passed on unchecked")
	}

	if len(in.Install.ExtraKernelArgs) > 0 {
		out = append(out, "install.extraKernelArgs have no effect on a machine that boots a unified kernel image (UEFI with "+
			"systemd-boot); put them into the installer image there")
	}

	return out
}

// guard holds the fields that must not be patched: with another value in one of them the operator, or the other nodes,
// would lose the node.
type guard struct {
	names  []string
	values [][]byte
}

func guardOf(cfg config.Provider) (guard, error) {
	var g guard

	raw := cfg.RawV1Alpha1()
	if raw == nil || raw.MachineConfig == nil || raw.ClusterConfig == nil {
		return g, errors.New("the patch removes machine or cluster from the config")
	}

	add := func(name string, value []byte) {
		g.names, g.values = append(g.names, name), append(g.values, value)
	}

	m, c := raw.MachineConfig, raw.ClusterConfig

	add("machine.type", []byte(m.MachineType))
	add("machine.token", []byte(m.MachineToken))
	add("cluster.id", []byte(c.ClusterID))
	add("cluster.secret", []byte(c.ClusterSecret))
	add("cluster.token", []byte(c.BootstrapToken))
	add("cluster.clusterName", []byte(c.ClusterName))
	add("cluster.secretboxEncryptionSecret", []byte(c.ClusterSecretboxEncryptionSecret))
	add("cluster.aescbcEncryptionSecret", []byte(c.ClusterAESCBCEncryptionSecret))

	if c.ControlPlane != nil && c.ControlPlane.Endpoint != nil {
		add("cluster.controlPlane.endpoint", []byte(c.ControlPlane.Endpoint.String()))
	} else {
		add("cluster.controlPlane.endpoint", nil)
	}

	for _, pair := range []struct {
		name string
		get  func() (crt, key []byte)
	}{
		{"machine.ca", pairOf(m.MachineCA)},
		{"cluster.ca", pairOf(c.ClusterCA)},
		{"cluster.aggregatorCA", pairOf(c.ClusterAggregatorCA)},
	} {
		crt, key := pair.get()
		add(pair.name+".crt", crt)
		add(pair.name+".key", key)
	}

	if c.ClusterServiceAccount != nil {
		add("cluster.serviceAccount.key", c.ClusterServiceAccount.Key)
	} else {
		add("cluster.serviceAccount.key", nil)
	}

	if c.EtcdConfig != nil && c.EtcdConfig.RootCA != nil {
		add("cluster.etcd.ca", bytes.Join([][]byte{c.EtcdConfig.RootCA.Crt, c.EtcdConfig.RootCA.Key}, []byte("\n")))
	} else {
		add("cluster.etcd.ca", nil)
	}

	return g, nil
}

func (g guard) firstDifference(other guard) string {
	for i, name := range g.names {
		if !bytes.Equal(g.values[i], other.values[i]) {
			return name
		}
	}

	return ""
}
