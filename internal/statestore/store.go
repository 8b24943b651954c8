// Package statestore moves the state Secret of a control plane to and from the API server, and keeps the credentials
// that are made from it. The Secret holds root credentials and outlives its TalosControlPlane: nothing owns it and
// nothing here deletes it.
package statestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
)

// ErrNotFound says that the API server has no state Secret. Only this, never a failed read, allows a new PKI.
var ErrNotFound = errors.New("state Secret not found")

// CorruptError says that a state Secret exists and cannot be used. It is left untouched.
type CorruptError struct {
	// Secret name.
	Secret string
	// Deleting: only its finalizer keeps it.
	Deleting bool
	// Err is a *clusterstate.DecodeError or several; it prints no content.
	Err error
}

// Error implements error.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("Secret %s cannot be used: %s", e.Secret, e.Err)
}

// Unwrap returns the cause.
func (e *CorruptError) Unwrap() error { return e.Err }

// Store reads and writes state Secrets. Reads go to the API server, never to a cache: a stale state could repeat a
// destructive step.
type Store struct {
	// Client writes.
	Client client.Client
	// Reader reads live.
	Reader client.Reader
	// Clock tells when credentials end.
	Clock clock.PassiveClock

	mu     sync.Mutex
	access map[types.NamespacedName]*Access
	// records has those who record in one state take turns: each conflict costs a write.
	records map[types.NamespacedName]*sync.Mutex
}

// Held is a state as it was read; Update writes it back only if nobody wrote in between.
type Held struct {
	// State is decoded; change it and call Update.
	State *clusterstate.State

	secret *corev1.Secret
}

// Load reads the state of a control plane. ErrNotFound and *CorruptError are told apart from a failed read.
func (s *Store) Load(ctx context.Context, controlPlane types.NamespacedName) (*Held, error) {
	secret := &corev1.Secret{}
	name := clusterstate.SecretName(controlPlane.Name)

	err := s.Reader.Get(ctx, types.NamespacedName{Namespace: controlPlane.Namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return nil, ErrNotFound
	}

	if err != nil {
		return nil, fmt.Errorf("reading Secret %s: %w", name, err)
	}

	state, err := clusterstate.Decode(secret.Data)
	if err != nil {
		return nil, &CorruptError{Secret: name, Deleting: secret.DeletionTimestamp != nil, Err: err}
	}

	return &Held{State: state, secret: secret}, nil
}

// Secret returns a copy of the Secret as it was read, for backups: they keep all of it, whatever it holds.
func (h *Held) Secret() *corev1.Secret { return h.secret.DeepCopy() }

// Create writes the first state of a control plane. It fails when the Secret exists.
func (s *Store) Create(ctx context.Context, controlPlane types.NamespacedName, st *clusterstate.State) (*Held, error) {
	data, err := st.Encode()
	if err != nil {
		return nil, fmt.Errorf("encoding the state of %s: %w", controlPlane, err)
	}

	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: controlPlane.Namespace,
			Name:      clusterstate.SecretName(controlPlane.Name),
			Labels:    map[string]string{v1alpha1.ControlPlaneLabel: controlPlane.Name},
			// It goes when the control plane does.
			Finalizers: []string{v1alpha1.StateFinalizer},
		},
		Type: corev1.SecretTypeOpaque,
		Data: data,
	}
	if err := s.Client.Create(ctx, secret); err != nil {
		return nil, fmt.Errorf("creating Secret %s: %w", secret.Name, err)
	}

	return &Held{State: st, secret: secret}, nil
}

// Update writes a changed state. It writes nothing when nothing changed, and fails with a conflict when somebody else
// wrote since it was loaded: then the caller starts over from what is there now.
func (s *Store) Update(ctx context.Context, h *Held) error {
	if h.State.IsEncodedAs(h.secret.Data) {
		return nil
	}

	data, err := h.State.Encode()
	if err != nil {
		return fmt.Errorf("encoding the state: %w", err)
	}

	// A state that was made, and not read, is known by what it is encoded as.
	if maps.EqualFunc(data, h.secret.Data, bytes.Equal) {
		return nil
	}

	next := h.secret.DeepCopy()
	next.Data = data

	if err := s.Client.Update(ctx, next); err != nil {
		return fmt.Errorf("writing Secret %s: %w", next.Name, err)
	}

	h.secret = next

	return nil
}

// maxRecords bounds the tries of Record; a cluster has that many machines at work at once, at most.
const maxRecords = 20

// Record changes the state whatever others write meanwhile: it loads, changes and writes, again and again until nobody
// came between. It is for entries that belong to the caller alone, like those of its machine; a decision that depends
// on the rest of the state needs Update, which fails instead.
func (s *Store) Record(ctx context.Context, controlPlane types.NamespacedName, change func(*clusterstate.State)) error {
	turn := s.turn(controlPlane)

	turn.Lock()
	defer turn.Unlock()

	var last error

	for range maxRecords {
		held, err := s.Load(ctx, controlPlane)
		if err != nil {
			return err
		}

		change(held.State)

		if last = s.Update(ctx, held); !apierrors.IsConflict(last) {
			return last
		}
	}

	return last
}

func (s *Store) turn(controlPlane types.NamespacedName) *sync.Mutex {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.records == nil {
		s.records = map[types.NamespacedName]*sync.Mutex{}
	}

	if s.records[controlPlane] == nil {
		s.records[controlPlane] = &sync.Mutex{}
	}

	return s.records[controlPlane]
}

// Access holds credentials made from a bundle.
type Access struct {
	// Talos opens the Talos API of the cluster's nodes as administrator.
	Talos *clusterstate.TalosCredentials

	fingerprint string
}

const (
	accessTTL   = 24 * time.Hour
	accessRenew = 12 * time.Hour
)

// Access returns credentials for a cluster, made anew when the PKI changed, when they come near their end, and when
// they were made at a time that is still to come: once a clock that was ahead is right again, no node would take them
// for as long as it was ahead.
func (s *Store) Access(controlPlane types.NamespacedName, b *clusterstate.Bundle) (*Access, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	now := s.Clock.Now()

	if a := s.access[controlPlane]; a != nil && a.fingerprint == b.Fingerprint() {
		if left := a.Talos.NotAfter.Sub(now); left > accessRenew && left <= accessTTL {
			return a, nil
		}
	}

	creds, err := b.TalosCredentials(now, accessTTL)
	if err != nil {
		return nil, fmt.Errorf("making credentials for %s: %w", controlPlane, err)
	}

	if s.access == nil {
		s.access = map[types.NamespacedName]*Access{}
	}

	s.access[controlPlane] = &Access{Talos: creds, fingerprint: b.Fingerprint()}

	return s.access[controlPlane], nil
}

// Fingerprint tells the PKI that the credentials belong to from every other one.
func (a *Access) Fingerprint() string { return a.fingerprint }

// Forget drops the credentials of a control plane that is gone, and returns them, so that what was opened with them can
// be closed; nil where there were none.
func (s *Store) Forget(controlPlane types.NamespacedName) *Access {
	s.mu.Lock()
	defer s.mu.Unlock()

	access := s.access[controlPlane]

	delete(s.access, controlPlane)
	delete(s.records, controlPlane)

	return access
}

// IsUnusable tells whether a state Secret is missing or cannot be used, as opposed to a read that failed.
func IsUnusable(err error) bool {
	var corrupt *CorruptError

	return errors.Is(err, ErrNotFound) || errors.As(err, &corrupt)
}
