package patchsource_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/desired"
	"github.com/talos-operator/talos-operator/internal/patchsource"
)

// api serves ConfigMaps and Secrets of one namespace, and counts reads.
type api struct {
	client.Reader

	objects map[string]client.Object
	fails   error
	reads   int
}

func (a *api) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	a.reads++

	name := fmt.Sprintf("%T %s", into, key)

	switch o := a.objects[name].(type) {
	case *corev1.ConfigMap:
		o.DeepCopyInto(into.(*corev1.ConfigMap))
	case *corev1.Secret:
		o.DeepCopyInto(into.(*corev1.Secret))
	default:
		if a.fails != nil {
			return a.fails
		}

		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}

	return nil
}

func newAPI(objects ...client.Object) *api {
	a := &api{objects: map[string]client.Object{}}
	for _, o := range objects {
		a.objects[fmt.Sprintf("%T %s", o, client.ObjectKeyFromObject(o))] = o
	}

	return a
}

func meta(name, version string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "uid", ResourceVersion: version}
}

func configMap(name, key, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: meta(name, "1"), Data: map[string]string{key: value}}
}

func secret(name, key, value string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: meta(name, "1"), Data: map[string][]byte{key: []byte(value)}}
}

func source(kind v1alpha1.ConfigPatchSourceKind, name string) v1alpha1.ConfigPatchSource {
	return v1alpha1.ConfigPatchSource{Kind: kind, Name: name, Key: "k"}
}

func owners() (*v1alpha1.TalosControlPlane, *v1alpha1.TalosWorker, *v1alpha1.TalosMachine) {
	return &v1alpha1.TalosControlPlane{ObjectMeta: meta("c", "")}, &v1alpha1.TalosWorker{ObjectMeta: meta("w", "")},
		&v1alpha1.TalosMachine{ObjectMeta: meta("m", "")}
}

// TestLevels: a machine has the patches of its cluster, of its group and its own, and what a Secret holds is secret. An
// object is read once, so that its patches are of one version.
func TestLevels(t *testing.T) {
	t.Parallel()

	a := newAPI(configMap("open", "k", "a: 1"), secret("shut", "k", "b: 2"))
	cp, w, m := owners()
	cp.Spec.ClusterConfigPatchesFrom = []v1alpha1.ConfigPatchSource{source("ConfigMap", "open"), source("Secret", "shut")}
	cp.Spec.ConfigPatchesFrom = []v1alpha1.ConfigPatchSource{source("ConfigMap", "open")}
	w.Spec.ConfigPatchesFrom = []v1alpha1.ConfigPatchSource{source("Secret", "shut")}
	m.Spec.ConfigPatchesFrom = []v1alpha1.ConfigPatchSource{source("ConfigMap", "open")}

	open := machineconfig.Sourced{Source: "ConfigMap open, key k", Text: "a: 1"}
	shut := machineconfig.Sourced{Source: "Secret shut, key k", Secret: true, Text: "b: 2"}

	for name, tt := range map[string]struct {
		worker *v1alpha1.TalosWorker
		want   []machineconfig.Sourced
	}{"worker": {w, []machineconfig.Sourced{shut}}, "control plane": {nil, []machineconfig.Sourced{open}}} {
		a.reads = 0

		got, err := patchsource.For(t.Context(), a, cp, tt.worker, m)
		want := desired.Patches{
			Cluster: []machineconfig.Sourced{open, shut}, Group: tt.want, Machine: []machineconfig.Sourced{open},
		}

		if diff := cmp.Diff(want, got.Patches); diff != "" || err != nil || a.reads != 2 {
			t.Errorf("%s: %d reads, %v (-want +got):\n%s", name, a.reads, err, diff)
		}

		if !patchsource.Any(cp, tt.worker, m) {
			t.Errorf("%s: no sources", name)
		}
	}

	cp, w, m = owners()
	if got, err := patchsource.For(t.Context(), a, cp, w, m); err != nil || got.Version != "" || patchsource.Any(cp, w, m) {
		t.Errorf("without sources: %+v, %v", got, err)
	}
}

// TestVersion: whatever happens to an object gives another version, which holds nothing of its content.
func TestVersion(t *testing.T) {
	t.Parallel()

	cp, w, m := owners()
	optional := source("Secret", "shut")
	optional.Optional = new(true)
	m.Spec.ConfigPatchesFrom = []v1alpha1.ConfigPatchSource{optional}

	seen := map[string]bool{}

	written, remade := secret("shut", "k", "hush-hush"), secret("shut", "k", "hush-hush")
	written.ResourceVersion, remade.UID = "2", "other"

	for _, a := range []*api{newAPI(), newAPI(secret("shut", "k", "hush-hush")), newAPI(written), newAPI(remade)} {
		got, err := patchsource.For(t.Context(), a, cp, w, m)
		if err != nil || seen[got.Version] || strings.Contains(got.Version, "hush") {
			t.Errorf("version %q after %v: %v", got.Version, seen, err)
		}

		seen[got.Version] = true
	}
}

// TestVersions: a group reads each object once, and learns of each machine the version that the machine reads. What a
// machine lacks is its own concern.
func TestVersions(t *testing.T) {
	t.Parallel()

	a := newAPI(configMap("open", "k", "a: 1"), secret("shut", "k", "b: 2"))
	cp, w, m := owners()
	own, lacks := m.DeepCopy(), m.DeepCopy()
	own.Name, lacks.Name = "own", "lacks"
	w.Spec.ConfigPatchesFrom = []v1alpha1.ConfigPatchSource{source("ConfigMap", "open")}
	own.Spec.ConfigPatchesFrom = []v1alpha1.ConfigPatchSource{source("Secret", "shut"), source("ConfigMap", "open")}
	lacks.Spec.ConfigPatchesFrom = []v1alpha1.ConfigPatchSource{source("Secret", "missing")}

	got, err := patchsource.Versions(t.Context(), a, cp, w, []v1alpha1.TalosMachine{*own, *lacks, *m})
	if err != nil || len(got) != 2 || a.reads != 3 || got["m"] == got["own"] {
		t.Errorf("%v with %d reads: %v", got, a.reads, err)
	}

	for _, one := range []*v1alpha1.TalosMachine{m, own} {
		if read, err := patchsource.For(t.Context(), a, cp, w, one); err != nil || read.Version != got[one.Name] {
			t.Errorf("%s reads %s, its group %s: %v", one.Name, read.Version, got[one.Name], err)
		}
	}
}

// TestRefused: what is missing is named with who asks for it and what to do, and the content of a Secret is not quoted.
func TestRefused(t *testing.T) {
	t.Parallel()

	boom := errors.New("boom")
	path := func(p string) func(*v1alpha1.ConfigPatchSource) {
		return func(s *v1alpha1.ConfigPatchSource) { s.Path = p }
	}

	for name, tt := range map[string]struct {
		api    *api
		edit   func(*v1alpha1.ConfigPatchSource)
		reason string
		says   []string
	}{
		"no object": {
			newAPI(configMap("shut", "k", "a: 1")), nil, v1alpha1.ReasonPatchSourceNotFound,
			[]string{"Secret shut does not exist", "spec.configPatchesFrom[0] of TalosWorker w", "nothing was sent to m"},
		},
		"no key": {
			newAPI(secret("shut", "other", "hush-hush")), nil, v1alpha1.ReasonPatchSourceNotFound,
			[]string{"Secret shut has no key k", "add the key"},
		},
		"not allowed": {
			&api{fails: apierrors.NewForbidden(schema.GroupResource{}, "shut", nil)}, nil, v1alpha1.ReasonPatchSourceNotFound,
			[]string{"Secret shut may not be read", "Next: grant the permission to get secrets in the namespace", "nothing was sent to m"},
		},
		"too long": {
			newAPI(secret("shut", "k", strings.Repeat("hush-hush", 30_000))), nil, v1alpha1.ReasonInvalidPatch,
			[]string{"Secret shut, key k is 270000 bytes; the limit is 262144"},
		},
		"no pointer": {
			newAPI(secret("shut", "k", "hush-hush")), path("machine"), v1alpha1.ReasonInvalidPatch,
			[]string{"the path in spec.configPatchesFrom[0] of TalosWorker w", "slash"},
		},
		"no answer": {&api{fails: boom}, nil, "", []string{"reading Secret shut: boom"}},
	} {
		cp, w, m := owners()
		s := source("Secret", "shut")

		if tt.edit != nil {
			tt.edit(&s)
		}

		w.Spec.ConfigPatchesFrom = []v1alpha1.ConfigPatchSource{s}

		_, err := patchsource.For(t.Context(), tt.api, cp, w, m)
		if err == nil || failure.Reason(err) != tt.reason || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", name, err)

			continue
		}

		for _, part := range tt.says {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", name, err, part)
			}
		}
	}
}

// TestValue: with a path, a key holds the value of one field.
func TestValue(t *testing.T) {
	t.Parallel()

	a := newAPI(secret("shut", "k", "hush-hush\n"))
	cp, w, m := owners()
	s := source("Secret", "shut")
	s.Path, s.Document = "/password", &v1alpha1.ConfigDocument{Kind: "RegistryAuthConfig", Name: "a.example.org"}
	m.Spec.ConfigPatchesFrom = []v1alpha1.ConfigPatchSource{s}

	got, err := patchsource.For(t.Context(), a, cp, w, m)
	want := []machineconfig.Sourced{{
		Source: "Secret shut, key k", Secret: true,
		Text: "apiVersion: v1alpha1\nkind: RegistryAuthConfig\nname: a.example.org\npassword: hush-hush\n",
	}}

	if diff := cmp.Diff(want, got.Machine); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// TestReservedSecrets: a Secret that the operator keeps, or the token of a ServiceAccount, is no source of patches.
func TestReservedSecrets(t *testing.T) {
	t.Parallel()

	for name, edit := range map[string]func(*corev1.Secret){
		"state": func(s *corev1.Secret) { s.Labels = map[string]string{v1alpha1.ControlPlaneLabel: "cp"} },
		"config": func(s *corev1.Secret) {
			s.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "TalosMachine"}}
		},
		"token": func(s *corev1.Secret) { s.Type = corev1.SecretTypeServiceAccountToken },
	} {
		shut := secret("shut", "k", "hush-hush")
		edit(shut)

		optional := true
		s := source("Secret", "shut")
		s.Optional = &optional

		cp, w, m := owners()
		m.Spec.ConfigPatchesFrom = []v1alpha1.ConfigPatchSource{s}

		_, err := patchsource.For(t.Context(), newAPI(shut), cp, w, m)
		if failure.Reason(err) != v1alpha1.ReasonInvalidPatch || !strings.Contains(err.Error(), "Secret shut is ") ||
			strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
