package clusterstate

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

// DecodeError describes what is wrong with one key of a state Secret, without quoting its content.
type DecodeError struct {
	// Key of the Secret.
	Key string
	// Problem is a sentence for users.
	Problem string
}

// Error implements error.
func (e *DecodeError) Error() string { return e.Key + ": " + e.Problem }

// Encode encodes the data of the state Secret. The encoding is deterministic. What Decode would reject is not encoded:
// the Secret is the only copy of the PKI, and must not be overwritten with invalid data.
func (s *State) Encode() (map[string][]byte, error) {
	data, err := s.render()
	if err != nil {
		return nil, err
	}

	if _, err := Decode(data); err != nil {
		return nil, fmt.Errorf("encoding state: it would not be readable: %w", err)
	}

	return data, nil
}

func (s *State) render() (map[string][]byte, error) {
	if s.Bundle == nil {
		return nil, errors.New("encoding state: it has no secrets bundle")
	}

	bundle, err := s.Bundle.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encoding state: %w", err)
	}

	data, err := s.renderRest()
	if err != nil {
		return nil, err
	}

	data[KeySecretBundle] = bundle

	return data, nil
}

// renderRest encodes everything but the bundle.
func (s *State) renderRest() (map[string][]byte, error) {
	bundleConfig, err := encodeJSON(s.BundleConfig)
	if err != nil {
		return nil, err
	}

	runtime, err := encodeJSON(s.Runtime.normalized())
	if err != nil {
		return nil, err
	}

	return map[string][]byte{
		KeyBundleConfig:        bundleConfig,
		KeyState:               runtime,
		KeyConfig:              bytes.Clone(s.Config),
		KeyObservedKubeVersion: []byte(s.ObservedKubeVersion),
	}, nil
}

// IsEncodedAs reports whether the state equals the data that it was read from, so that nothing has to be written. A
// bundle never changes, and encoding it takes longer than everything else.
func (s *State) IsEncodedAs(data map[string][]byte) bool {
	if s.Bundle == nil || s.Bundle.source != sha256.Sum256(data[KeySecretBundle]) {
		return false
	}

	own, err := s.renderRest()
	if err != nil {
		return false
	}

	own[KeySecretBundle] = data[KeySecretBundle]

	return maps.EqualFunc(own, data, bytes.Equal)
}

func encodeJSON(v any) ([]byte, error) {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding state: %w", err)
	}

	return append(raw, '\n'), nil
}

// normalized converts times to the precision and zone that survive encoding, and lists to a canonical order.
func (r Runtime) normalized() Runtime {
	out := r
	out.DecommissionedAt = seconds(r.DecommissionedAt)
	out.ImportedAt = seconds(r.ImportedAt)

	if r.Bootstrap != nil {
		bootstrap := *r.Bootstrap
		bootstrap.IntentAt = bootstrap.IntentAt.UTC().Truncate(time.Second)
		bootstrap.EstablishedAt = seconds(bootstrap.EstablishedAt)
		out.Bootstrap = &bootstrap
	}

	if r.Machines != nil {
		out.Machines = make(map[string]Machine, len(r.Machines))

		for name, machine := range r.Machines {
			machine.ConfiguredAt = seconds(machine.ConfiguredAt)
			out.Machines[name] = machine
		}
	}

	out.Restores = slices.Clone(r.Restores)
	for i := range out.Restores {
		run := &out.Restores[i]
		run.Since, run.EndedAt = run.Since.UTC().Truncate(time.Second), seconds(run.EndedAt)
	}

	out.Upgrade = r.Upgrade.normalized()

	out.Conditions = slices.Clone(r.Conditions)
	for i := range out.Conditions {
		at := out.Conditions[i].LastTransitionTime
		out.Conditions[i].LastTransitionTime = metav1.NewTime(at.UTC().Truncate(time.Second))
	}

	slices.SortStableFunc(out.Conditions, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })

	return out
}

func seconds(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}

	out := t.UTC().Truncate(time.Second)

	return &out
}

// Decode decodes the data of a state Secret. Every error is a *DecodeError; several are joined.
func Decode(data map[string][]byte) (*State, error) {
	s := &State{}

	var problems []error

	report := func(key string, err error) {
		if err != nil {
			problems = append(problems, &DecodeError{Key: key, Problem: err.Error()})
		}
	}

	for _, key := range []string{KeySecretBundle, KeyBundleConfig, KeyState, KeyConfig, KeyObservedKubeVersion} {
		raw, ok := data[key]
		if !ok {
			report(key, errors.New("the key is missing"))

			continue
		}

		var err error

		switch key {
		case KeySecretBundle:
			s.Bundle, err = ParseBundle(raw)
		case KeyBundleConfig:
			err = decodeJSON(raw, &s.BundleConfig)
		case KeyState:
			err = s.Runtime.decode(raw)
		case KeyConfig:
			s.Config = bytes.Clone(raw)
		case KeyObservedKubeVersion:
			s.ObservedKubeVersion = strings.TrimSpace(string(raw))
		}

		report(key, err)
	}

	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}

	s.checkConsistency(report)

	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}

	return s, nil
}

func (r *Runtime) decode(raw []byte) error {
	// Check the version first: a newer format may have any other content.
	var head struct {
		Version int `json:"version"`
	}

	if err := json.Unmarshal(raw, &head); err != nil {
		return errNotJSON(raw)
	}

	if head.Version != RuntimeVersion {
		return fmt.Errorf("format version %d is not known, this operator reads version %d", head.Version, RuntimeVersion)
	}

	return decodeJSON(raw, r)
}

func decodeJSON(raw []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()

	if err := dec.Decode(into); err != nil {
		// The library's error names a field or an offset, and may quote the value there.
		if field, found := strings.CutPrefix(err.Error(), "json: unknown field "); found {
			return fmt.Errorf("it has the unknown field %s; a newer operator may have written it", field)
		}

		var mismatch *json.UnmarshalTypeError
		if errors.As(err, &mismatch) {
			return fmt.Errorf("field %s has the wrong type", mismatch.Field)
		}

		return errNotJSON(raw)
	}

	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON object")
	}

	return nil
}

func errNotJSON(raw []byte) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		return errors.New("it is empty")
	}

	return errors.New("it is not a JSON object of this format")
}

// checkConsistency detects parts of different clusters in one Secret.
func (s *State) checkConsistency(report func(key string, err error)) {
	id, ca := s.Bundle.ClusterID(), s.Bundle.CAFingerprint()

	if s.Runtime.ClusterID != id {
		report(KeyState, fmt.Errorf("it is of the cluster with ID %q, the secrets bundle of the one with ID %q",
			s.Runtime.ClusterID, id))
	}

	if s.Runtime.CAFingerprint != ca {
		report(KeyState, errors.New("it names another Talos API CA than the one in the secrets bundle"))
	}

	if s.BundleConfig.ClusterName == "" {
		report(KeyBundleConfig, errors.New("clusterName is missing"))
	}

	if s.Runtime.ClusterName != s.BundleConfig.ClusterName {
		report(KeyState, fmt.Errorf("it is of cluster %q, bundleConfig of cluster %q",
			s.Runtime.ClusterName, s.BundleConfig.ClusterName))
	}

	if b := s.Runtime.Bootstrap; b != nil && (b.Machine == "" || b.IntentAt.IsZero()) {
		report(KeyState, errors.New("bootstrap has no machine or no intentAt"))
	}

	if len(bytes.TrimSpace(s.Config)) == 0 {
		return
	}

	identity, err := identities.get(s.Config, func() (machineconfig.Identity, error) {
		return machineconfig.IdentityOf(s.Config)
	})

	switch {
	case err != nil:
		report(KeyConfig, errors.New("it is not a Talos machine config"))
	case identity.ClusterID != id:
		report(KeyConfig, fmt.Errorf("it is of the cluster with ID %q, the secrets bundle of the one with ID %q",
			identity.ClusterID, id))
	case identity.CAFingerprint != ca:
		report(KeyConfig, errors.New("it has another Talos API CA than the secrets bundle"))
	}
}

// CheckCluster checks that the state belongs to a cluster. The name decides; the UID of the owner does not, because a
// TalosControlPlane that is applied again is a new object.
func (s *State) CheckCluster(name string) error {
	if s.Runtime.ClusterName != name {
		return &DecodeError{
			Key: KeyState, Problem: fmt.Sprintf("it is of cluster %q, not of %q", s.Runtime.ClusterName, name),
		}
	}

	return nil
}
