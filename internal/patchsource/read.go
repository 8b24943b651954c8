// Package patchsource reads the config patches that the objects of a cluster take from ConfigMaps and Secrets, and the
// values of fields that name a key of a Secret.
package patchsource

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/desired"
)

// longestPatch is how many bytes a patch, or a value, may have: what it adds to a config is indented, and sent to each
// node.
const longestPatch = 256 << 10

// Read is what was read for one machine.
type Read struct {
	desired.Patches

	// Version changes when an object that was read is written, created or deleted. It holds no content. It is empty if no
	// object was read.
	Version string
}

// For reads the patches and values of one machine, live: Secrets are not cached, and the operator may not watch them.
// worker is nil for a machine of the control plane. A missing object or key is a *failure.Error with the reason
// PatchSourceNotFound, unless the reference is optional; one that cannot be used has the reason InvalidPatch.
func For(
	ctx context.Context, reader client.Reader, cp *v1alpha1.TalosControlPlane, worker *v1alpha1.TalosWorker,
	m *v1alpha1.TalosMachine,
) (Read, error) {
	return newRun(reader, m.Namespace).read(ctx, cp, worker, m)
}

// Versions returns the version of what each machine of a group takes from other objects now, by the names of the
// machines. It reads each object once. Machines that cannot have their patches are left out: they say so themselves.
func Versions(
	ctx context.Context, reader client.Reader, cp *v1alpha1.TalosControlPlane, worker *v1alpha1.TalosWorker,
	machines []v1alpha1.TalosMachine,
) (map[string]string, error) {
	out, r := map[string]string{}, newRun(reader, cp.Namespace)

	for i := range machines {
		m := &machines[i]

		switch read, err := r.read(ctx, cp, worker, m); {
		case err == nil:
			out[m.Name] = read.Version
		case failure.ClassOf(err) != failure.ClassTerminal:
			return nil, err
		}
	}

	return out, nil
}

func (r *run) read(
	ctx context.Context, cp *v1alpha1.TalosControlPlane, worker *v1alpha1.TalosWorker, m *v1alpha1.TalosMachine,
) (Read, error) {
	var out Read

	r.machine, r.used = m.Name, nil

	for _, l := range levels(cp, worker, m) {
		into := map[string]*[]machineconfig.Sourced{
			"cluster": &out.Cluster, "group": &out.Group, "machine": &out.Machine,
		}[l.name]

		for i := range l.sources {
			one, err := r.patch(ctx, fmt.Sprintf("%s[%d] of %s", l.field, i, l.owner), &l.sources[i])
			if err != nil {
				return Read{}, err
			}

			if one != nil {
				*into = append(*into, *one)
			}
		}
	}

	all := refs(cp, worker, m)
	for _, ref := range all {
		if err := r.readValue(ctx, ref, &out); err != nil {
			return Read{}, err
		}
	}

	registries := desired.Registries(desired.Sources{ControlPlane: cp, Worker: worker, Machine: m})
	if err := r.checkPairs(registries, all, out.Values); err != nil {
		return Read{}, err
	}

	if len(r.used) > 0 {
		sum := sha256.Sum256([]byte(strings.Join(r.used, " ")))
		out.Version = hex.EncodeToString(sum[:16])
	}

	return out, nil
}

// Any reports whether a machine has patches or values in other objects.
func Any(cp *v1alpha1.TalosControlPlane, worker *v1alpha1.TalosWorker, m *v1alpha1.TalosMachine) bool {
	return len(refs(cp, worker, m)) > 0 ||
		slices.ContainsFunc(levels(cp, worker, m), func(l level) bool { return len(l.sources) > 0 })
}

// level is one object that names patches.
type level struct {
	name, field, owner string
	sources            []v1alpha1.ConfigPatchSource
}

func levels(cp *v1alpha1.TalosControlPlane, worker *v1alpha1.TalosWorker, m *v1alpha1.TalosMachine) []level {
	var out []level

	const field = "spec.configPatchesFrom"

	if cp != nil {
		owner := "TalosControlPlane " + cp.Name
		out = append(out, level{"cluster", "spec.clusterConfigPatchesFrom", owner, cp.Spec.ClusterConfigPatchesFrom})

		if worker == nil {
			out = append(out, level{"group", field, owner, cp.Spec.ConfigPatchesFrom})
		}
	}

	if worker != nil {
		out = append(out, level{"group", field, "TalosWorker " + worker.Name, worker.Spec.ConfigPatchesFrom})
	}

	return append(out, level{"machine", field, "TalosMachine " + m.Name, m.Spec.ConfigPatchesFrom})
}

// object is a ConfigMap or a Secret.
type object struct {
	kind v1alpha1.ConfigPatchSourceKind
	name string
}

func (o object) String() string { return fmt.Sprintf("%s %s", o.kind, o.name) }

// content is what a version of an object holds; nil for one that does not exist, with the reason.
type content struct {
	data             map[string][]byte
	missing, version string
}

// run reads each object once, so that all patches of one object are of one version. used are the versions of what the
// machine needs.
type run struct {
	reader             client.Reader
	namespace, machine string
	objects            map[object]*content
	used               []string
}

func newRun(reader client.Reader, namespace string) *run {
	return &run{reader: reader, namespace: namespace, objects: map[object]*content{}}
}

// patch returns one patch, or nil for an optional one that does not exist.
func (r *run) patch(ctx context.Context, field string, s *v1alpha1.ConfigPatchSource) (*machineconfig.Sourced, error) {
	from := object{s.Kind, s.Name}

	c, err := r.get(ctx, from)
	if err != nil {
		return nil, err
	}

	if !slices.Contains(r.used, c.version) {
		r.used = append(r.used, c.version)
	}

	value, found := c.data[s.Key]

	switch {
	case found:
	case s.Optional != nil && *s.Optional:
		return nil, nil
	case c.missing != "":
		return nil, r.notFound(field, "patch", c.missing, "create it, or set optional")
	default:
		return nil, r.notFound(field, "patch", fmt.Sprintf("%s has no key %s", from, s.Key), "add the key, or set optional")
	}

	out := &machineconfig.Sourced{
		Source: fmt.Sprintf("%s, key %s", from, s.Key), Secret: s.Kind != v1alpha1.ConfigPatchFromConfigMap,
		Text: string(value),
	}

	if len(value) > longestPatch {
		return nil, failure.Terminal(v1alpha1.ReasonInvalidPatch, fmt.Sprintf("%s is %d bytes; the limit is %d: split it; "+
			"nothing was sent to %s", out.Source, len(value), longestPatch, r.machine), nil)
	}

	if s.Path != "" {
		var kind, name string
		if s.Document != nil {
			kind, name = s.Document.Kind, s.Document.Name
		}

		if out.Text, err = machineconfig.ValuePatch(kind, name, s.Path, out.Text); err != nil {
			return nil, failure.Terminal(v1alpha1.ReasonInvalidPatch, fmt.Sprintf("the path in %s cannot be used: %s; "+
				"nothing was sent to %s: correct it", field, err, r.machine), nil)
		}
	}

	return out, nil
}

// reserved says what a Secret is that holds the keys of something else: naming it as the source of a patch would send
// them to a machine. Empty if it may be one.
func reserved(s *corev1.Secret) string {
	own := func(o metav1.OwnerReference) bool {
		return strings.HasPrefix(o.APIVersion, v1alpha1.GroupVersion.Group+"/")
	}

	switch _, labelled := s.Labels[v1alpha1.ControlPlaneLabel]; {
	case s.Type == corev1.SecretTypeServiceAccountToken:
		return "the token of a ServiceAccount"
	case labelled, slices.ContainsFunc(s.OwnerReferences, own):
		return "a Secret of the operator"
	}

	return ""
}

// notFound is the error about a source that is missing, which a field takes a patch or a value from.
func (r *run) notFound(field, taken, what, remedy string) error {
	return failure.Terminal(v1alpha1.ReasonPatchSourceNotFound, fmt.Sprintf("%s, and %s takes a %s from it; nothing "+
		"was sent to %s: %s", what, field, taken, r.machine, remedy), nil)
}

func (r *run) get(ctx context.Context, from object) (*content, error) {
	if c, known := r.objects[from]; known {
		return c, nil
	}

	var (
		c   = &content{}
		key = client.ObjectKey{Namespace: r.namespace, Name: from.name}
		o   client.Object
		err error
	)

	if from.kind == v1alpha1.ConfigPatchFromConfigMap {
		cm := &corev1.ConfigMap{}
		if o, err = cm, r.reader.Get(ctx, key, cm); err == nil {
			c.data = map[string][]byte{}
			for k, v := range cm.Data {
				c.data[k] = []byte(v)
			}
		}
	} else {
		secret := &corev1.Secret{}
		if o, err = secret, r.reader.Get(ctx, key, secret); err == nil {
			c.data = secret.Data

			if what := reserved(secret); what != "" {
				return nil, failure.Terminal(v1alpha1.ReasonInvalidPatch, fmt.Sprintf("%s is %s, which no patch or value may come "+
					"from; nothing was sent to %s: put the content into a Secret of its own", from, what, r.machine), nil)
			}
		}
	}

	switch {
	case apierrors.IsNotFound(err):
		c.missing = fmt.Sprintf("%s does not exist", from)
	case apierrors.IsForbidden(err):
		return nil, failure.Terminal(v1alpha1.ReasonPatchSourceNotFound, fmt.Sprintf("%s may not be read; nothing was sent "+
			"to %s. Next: grant the permission to get %ss in the namespace %s", from, r.machine,
			strings.ToLower(string(from.kind)), r.namespace), nil)
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w", from, err)
	}

	r.objects[from] = c
	c.version = fmt.Sprintf("%s %s/%s", from, o.GetUID(), o.GetResourceVersion())

	return c, nil
}
