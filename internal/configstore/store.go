// Package configstore keeps what the operator has to remember of one machine's config, in a Secret of the machine: the
// last config that worked, and what was taken over from an edit by hand. Both hold secrets.
package configstore

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// Keys of the Secret.
const (
	// KeyWorking holds the last machine config that the node was healthy with.
	KeyWorking = "machineconfig.yaml"
	// KeyAdopted holds config patches, a JSON list of texts, that keep what was changed outside of the operator.
	KeyAdopted = "adopted.json"
	// KeyHidden holds the fields, a JSON list of texts, that patches from Secrets set in configs that were sent.
	KeyHidden = "hidden.json"
)

// SecretName is the name of the Secret of a TalosMachine.
func SecretName(machine string) string { return machine + "-config" }

// Config is what is remembered of one machine's config.
type Config struct {
	// Working is the last config that the node was healthy with; empty before the first.
	Working []byte
	// Adopted are config patches that follow those of the spec.
	Adopted []string
	// Hidden are fields whose values no status may show: the node may have them from an earlier version of a Secret.
	Hidden []string
}

// Store reads and writes the Secrets of machines.
type Store struct {
	// Client writes, Reader reads live: Secrets are not cached.
	Client client.Client
	Reader client.Reader
}

// Load reads what is remembered; nothing where there is no Secret. One of another owner is refused.
func (s *Store) Load(ctx context.Context, m *v1alpha1.TalosMachine) (Config, error) {
	secret, err := s.get(ctx, m)
	if secret == nil || err != nil {
		return Config{}, err
	}

	c := Config{Working: secret.Data[KeyWorking]}

	if raw := secret.Data[KeyAdopted]; len(raw) > 0 {
		if err := json.Unmarshal(raw, &c.Adopted); err != nil {
			return Config{}, failure.Terminal(v1alpha1.ReasonStateSecretInvalid, fmt.Sprintf("the key %s of Secret %s is no "+
				"list of patches; restore it, or remove the key to drop what was adopted", KeyAdopted, secret.Name), nil)
		}
	}

	if raw := secret.Data[KeyHidden]; len(raw) > 0 {
		if err := json.Unmarshal(raw, &c.Hidden); err != nil {
			return Config{}, failure.Terminal(v1alpha1.ReasonStateSecretInvalid, fmt.Sprintf("the key %s of Secret %s is no "+
				"list of fields; restore it, or remove the key if no patch ever came from a Secret", KeyHidden, secret.Name),
				nil)
		}
	}

	return c, nil
}

// Save writes what is to be remembered, if it differs.
func (s *Store) Save(ctx context.Context, m *v1alpha1.TalosMachine, c Config) error {
	have, err := s.get(ctx, m)
	if err != nil {
		return err
	}

	want := have.DeepCopy()
	if want == nil {
		want = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: SecretName(m.Name)}}
	}

	if want.Data == nil {
		want.Data = map[string][]byte{}
	}

	want.Data[KeyWorking] = bytes.Clone(c.Working)

	for key, list := range map[string][]string{KeyAdopted: c.Adopted, KeyHidden: c.Hidden} {
		delete(want.Data, key)

		if len(list) == 0 {
			continue
		}

		if want.Data[key], err = json.Marshal(list); err != nil {
			return fmt.Errorf("encoding the key %s of Secret %s: %w", key, want.Name, err)
		}
	}

	// It goes with the machine, and not with an earlier one.
	want.OwnerReferences = slices.DeleteFunc(want.OwnerReferences,
		func(o metav1.OwnerReference) bool { return o.Kind == "TalosMachine" && o.UID != m.UID })

	if err := controllerutil.SetControllerReference(m, want, s.Client.Scheme()); err != nil {
		return fmt.Errorf("setting the owner of Secret %s: %w", want.Name, err)
	}

	switch {
	case have == nil:
		err = s.Client.Create(ctx, want)
	case equality.Semantic.DeepEqual(have, want):
	default:
		err = s.Client.Update(ctx, want)
	}

	if err != nil {
		return fmt.Errorf("writing Secret %s: %w", want.Name, err)
	}

	return nil
}

func (s *Store) get(ctx context.Context, m *v1alpha1.TalosMachine) (*corev1.Secret, error) {
	secret := &corev1.Secret{}

	err := s.Reader.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: SecretName(m.Name)}, secret)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}

	if err != nil {
		return nil, fmt.Errorf("reading Secret %s: %w", SecretName(m.Name), err)
	}

	if !ours(secret, m) {
		return nil, failure.Terminal(v1alpha1.ReasonNameConflict, fmt.Sprintf("Secret %s does not belong to machine %s; "+
			"it was not changed: rename the machine, or remove the Secret", secret.Name, m.Name), nil)
	}

	return secret, nil
}

// ours tells a Secret of the machine from one that an application has under the same name. That of an earlier machine
// of the name is ours: it was deleted and made again, and the garbage collector may not have come by yet. So is one
// that was applied from a copy, without an owner, and holds nothing else than what is kept here.
func ours(secret *corev1.Secret, m *v1alpha1.TalosMachine) bool {
	if metav1.GetControllerOf(secret) != nil {
		return metav1.IsControlledBy(secret, m) || kube.EarlierLife(secret, m, "TalosMachine")
	}

	for key := range secret.Data {
		if key != KeyWorking && key != KeyAdopted && key != KeyHidden {
			return false
		}
	}

	return len(secret.Data[KeyWorking]) > 0
}
