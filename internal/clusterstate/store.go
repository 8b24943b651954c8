package clusterstate

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
)

// ErrNotFound means that the API server has no state Secret. Only this, and never a failed read, allows a new PKI.
var ErrNotFound = errors.New("state Secret not found")

// CorruptError means that a state Secret exists and is unusable. It is not changed.
type CorruptError struct {
	// Secret name.
	Secret string
	// Deleting: only its finalizer keeps the Secret.
	Deleting bool
	// Err is a *DecodeError or several; its text contains no content of the Secret.
	Err error
}

// Error implements error.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("Secret %s cannot be used: %s", e.Secret, e.Err)
}

// Unwrap returns the cause.
func (e *CorruptError) Unwrap() error { return e.Err }

// Store reads and writes state Secrets. It reads from the API server, never from a cache: a stale state could repeat a
// destructive step.
type Store struct {
	// Client writes.
	Client client.Client
	// Reader reads live.
	Reader client.Reader
	// Clock determines when credentials expire.
	Clock clock.PassiveClock

	mu     sync.Mutex
	access map[types.NamespacedName]*Access
	// records serializes concurrent calls of Record for the same state, because each conflict costs a write.
	records map[types.NamespacedName]*sync.Mutex
}

// Held is a state as it was read; Update writes it back only if it was not written in between.
type Held struct {
	// State is decoded; change it and call Update.
	State *State

	secret *corev1.Secret
}

// Load reads the state of a control plane. It distinguishes ErrNotFound and *CorruptError from a failed read.
func (s *Store) Load(ctx context.Context, controlPlane types.NamespacedName) (*Held, error) {
	secret := &corev1.Secret{}
	name := SecretName(controlPlane.Name)

	err := s.Reader.Get(ctx, types.NamespacedName{Namespace: controlPlane.Namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return nil, ErrNotFound
	}

	if err != nil {
		return nil, fmt.Errorf("reading Secret %s: %w", name, err)
	}

	state, err := Decode(secret.Data)
	if err != nil {
		return nil, &CorruptError{Secret: name, Deleting: secret.DeletionTimestamp != nil, Err: err}
	}

	return &Held{State: state, secret: secret}, nil
}

// Secret returns a copy of the Secret as it was read, for backups, which store all of it.
func (h *Held) Secret() *corev1.Secret { return h.secret.DeepCopy() }

// Create writes the first state of a control plane. It fails if the Secret exists.
func (s *Store) Create(ctx context.Context, controlPlane types.NamespacedName, st *State) (*Held, error) {
	data, err := st.Encode()
	if err != nil {
		return nil, fmt.Errorf("encoding the state of %s: %w", controlPlane, err)
	}

	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: controlPlane.Namespace,
			Name:      SecretName(controlPlane.Name),
			Labels:    map[string]string{v1alpha1.ControlPlaneLabel: controlPlane.Name},
			// Removed when the control plane is deleted.
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

// Update writes a changed state. It writes nothing if nothing changed, and fails with a conflict if the Secret was
// written since it was loaded: then the caller starts over with the current content.
func (s *Store) Update(ctx context.Context, h *Held) error {
	if h.State.IsEncodedAs(h.secret.Data) {
		return nil
	}

	data, err := h.State.Encode()
	if err != nil {
		return fmt.Errorf("encoding the state: %w", err)
	}

	// A state that was created and not read is compared by its encoding.
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

// maxRecords limits the attempts of Record; it is the maximum number of machines of a cluster that are reconciled
// concurrently.
const maxRecords = 20

// Record changes the state regardless of concurrent writes: it loads, changes and writes until there is no conflict. It
// is for entries that belong only to the caller, such as those of its machine; a decision that depends on the rest of
// the state needs Update, which fails instead.
func (s *Store) Record(ctx context.Context, controlPlane types.NamespacedName, change func(*State)) error {
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

// Access contains credentials that are issued from a bundle.
type Access struct {
	// Talos grants administrator access to the Talos API of the cluster's nodes.
	Talos *TalosCredentials

	fingerprint string
}

const (
	accessTTL   = 24 * time.Hour
	accessRenew = 12 * time.Hour
)

// Access returns credentials for a cluster. They are issued again if the PKI has changed, if they are about to expire,
// and if they were issued at a time in the future: once a clock that was ahead is corrected, no node would accept them
// for as long as it was ahead.
func (s *Store) Access(controlPlane types.NamespacedName, b *Bundle) (*Access, error) {
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

// Fingerprint identifies the PKI that the credentials belong to.
func (a *Access) Fingerprint() string { return a.fingerprint }

// Forget drops the credentials of a deleted control plane, and returns them so that connections opened with them can be
// closed; nil if there were none.
func (s *Store) Forget(controlPlane types.NamespacedName) *Access {
	s.mu.Lock()
	defer s.mu.Unlock()

	access := s.access[controlPlane]

	delete(s.access, controlPlane)
	delete(s.records, controlPlane)

	return access
}

// IsUnusable reports whether a state Secret is missing or unusable, as opposed to a failed read.
func IsUnusable(err error) bool {
	var corrupt *CorruptError

	return errors.Is(err, ErrNotFound) || errors.As(err, &corrupt)
}
