// Package store stores backups, in an S3 bucket or a directory behind one interface.
package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/talos-operator/talos-operator/internal/failure"
)

// Reasons of stores.
const (
	// ReasonUnreachable: the store does not respond, or the connection failed.
	//
	// Next: check the endpoint, its name and the network policies of the operator.
	ReasonUnreachable = "StoreUnreachable"
	// ReasonUnavailable: the store reports that it is temporarily unavailable.
	//
	// Next: wait; check the store if it persists.
	ReasonUnavailable = "StoreUnavailable"
	// ReasonUntrusted: the certificate of the store is not issued by a trusted CA, or the store does not support TLS.
	//
	// Next: set `caFrom` to the CA of the store, or correct the endpoint.
	ReasonUntrusted = "StoreUntrusted"
	// ReasonEndpoint: the operator may not connect to the address of the store.
	//
	// Next: use an address that is not loopback, link-local or of cloud metadata, or allow it with the option
	// `--allowed-endpoints` of the operator.
	ReasonEndpoint = "StoreEndpointForbidden"
	// ReasonForbidden: the store rejects the operator's credentials, or they do not permit the operation.
	//
	// Next: the message names the request; correct the Secret or the policy of the bucket.
	ReasonForbidden = "StoreForbidden"
	// ReasonCredentials: there are no credentials.
	//
	// Next: set `credentialsRef`, or provide an identity for the ServiceAccount of the operator.
	ReasonCredentials = "StoreCredentialsMissing"
	// ReasonNotFound: the bucket or directory does not exist.
	//
	// Next: create it; the operator creates no buckets.
	ReasonNotFound = "StoreNotFound"
	// ReasonObjectNotFound: the object does not exist.
	//
	// Next: it was removed: take another backup.
	ReasonObjectNotFound = "ObjectNotFound"
	// ReasonObjectExists: an object with this key already exists.
	//
	// Next: take another backup; nothing is overwritten. Without manual changes, only clocks that were set back cause
	// this.
	ReasonObjectExists = "ObjectExists"
	// ReasonFull: the store is out of space.
	//
	// Next: free space, or keep fewer backups.
	ReasonFull = "StoreFull"
	// ReasonRefused: the store permanently rejects the request.
	//
	// Next: the message has the response: encryption or locks that the bucket does not support, for example.
	ReasonRefused = "StoreRefused"
	// ReasonLost: the store reported success and does not have the object.
	//
	// Next: do not rely on that store before the cause is known.
	ReasonLost = "StoreLostObject"
	// ReasonInvalid: the settings or the key of an object are invalid.
	//
	// Next: correct the field that the message names.
	ReasonInvalid = "StoreInvalid"
)

// ErrNotFound means that an object does not exist.
var ErrNotFound = errors.New("the object does not exist")

// Object is one object of a store.
type Object struct {
	// Key is the name of the object; its parts are separated by slashes.
	Key string
	// Size in bytes.
	Size int64
	// Modified is when the object was written.
	Modified time.Time
	// LockedUntil is the end of the retention of the object, zero if there is none. Only Stat sets it.
	LockedUntil time.Time
	// LegalHold prevents the deletion of the object until the hold is removed. Only Stat sets it.
	LegalHold bool
}

// Locked reports whether the object must not be deleted at the given time.
func (o Object) Locked(now time.Time) bool { return o.LegalHold || o.LockedUntil.After(now) }

// Store stores objects. Its errors have a class and a reason of internal/failure.
type Store interface {
	// Check verifies that the store is reachable and writable, and has room for the given number of bytes as far as that
	// is known. It writes, reads and deletes a small object.
	Check(ctx context.Context, need int64) error
	// Put writes an object with the output of the function, in constant memory. If the function or the store fails, or the
	// context ends, nothing remains. It refuses to replace an existing object, as far as the store can detect one.
	Put(ctx context.Context, key string, write func(io.Writer) error) (Object, error)
	// Replace writes a small object, whether or not one with this key exists. The replacement is atomic: concurrent
	// readers, and readers after a crash, find either the complete old or the complete new object.
	Replace(ctx context.Context, key string, content []byte) error
	// Get reads an object. It returns ErrNotFound if there is none.
	Get(ctx context.Context, key string) (io.ReadCloser, Object, error)
	// Stat describes an object. It returns ErrNotFound if there is none.
	Stat(ctx context.Context, key string) (Object, error)
	// List yields the objects below a prefix in the order of their keys, page by page. An error ends the sequence.
	List(ctx context.Context, prefix string) iter.Seq2[Object, error]
	// Delete removes an object. A missing object is no error.
	Delete(ctx context.Context, key string) error
	// Sweep removes unfinished uploads below a prefix that began before the given time: the remains of killed processes.
	// It returns their number.
	Sweep(ctx context.Context, prefix string, before time.Time) (int, error)
	// Location returns the location of the store for users, without credentials.
	Location() string
	// Close closes idle connections. The store can still be used.
	Close()
}

// probeKey is the key of the object that Check writes. It is always the same, so at most one remains where deleting is
// forbidden.
const probeKey = ".talos-operator-check"

// probeText is the content of that object.
const probeText = "talos-operator writes this object to check that it can write here. It may be deleted.\n"

// ValidKey returns an error unless a key can be used in every store: relative, in its shortest form, and without
// characters that some stores or tools escape.
func ValidKey(key string) error {
	switch {
	case key == "" || len(key) > 900:
		return invalidKey(key, "it must have 1 to 900 characters")
	case path.Clean(key) != key || path.IsAbs(key) || key == "." || key == ".." || strings.HasPrefix(key, "../"):
		return invalidKey(key, "it is not in its shortest relative form")
	}

	if !plain.MatchString(key) {
		return invalidKey(key, "it may hold letters, digits, and . _ - / only")
	}

	return nil
}

var plain = regexp.MustCompile(`^[0-9A-Za-z/._-]+$`)

func invalidKey(key, why string) error {
	return failure.Terminal(ReasonInvalid, fmt.Sprintf("the object name %.100q cannot be used: %s", key, why), nil)
}

// validReadKey is less strict, because other tools choose their own keys, which can be read too.
func validReadKey(key string) error {
	if key == "" || path.Clean(key) != key || path.IsAbs(key) || key == ".." || strings.HasPrefix(key, "../") ||
		strings.ContainsRune(key, 0) {
		return invalidKey(key, "it is not in its shortest relative form")
	}

	return nil
}

func notFound(key, where string) error {
	return failure.Terminal(ReasonObjectNotFound, fmt.Sprintf("%s has no object %s", where, key), ErrNotFound)
}

func lost(key, where string, err error) error {
	return failure.Transient(ReasonLost, fmt.Sprintf("%s accepted %s and does not have it", where, key), err)
}

// probes is how often the test object is written when it is deleted concurrently by the check of another cluster that
// shares the store.
const probes = 5

// checkProbe is the part of Check that is common to all stores.
func checkProbe(ctx context.Context, s Store) error {
	for try := 1; ; try++ {
		err := probe(ctx, s)
		if failure.Reason(err) != ReasonLost || try == probes {
			return err
		}

		// The other cluster tells nothing that could be waited for. A random pause keeps the two apart.
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(rand.N(probePause)):
		}
	}
}

// probePause is the maximum pause between two attempts.
const probePause = 300 * time.Millisecond

func probe(ctx context.Context, s Store) error {
	_, err := s.Put(ctx, probeKey, func(w io.Writer) error {
		_, werr := io.WriteString(w, probeText)

		return werr
	})
	if err != nil {
		return fmt.Errorf("writing a test object: %w", err)
	}

	r, _, err := s.Get(ctx, probeKey)
	if errors.Is(err, ErrNotFound) {
		return lost(probeKey, s.Location(), err)
	}

	if err != nil {
		return fmt.Errorf("reading the test object: %w", err)
	}

	got, err := io.ReadAll(io.LimitReader(r, int64(len(probeText))+1))
	_ = r.Close()

	switch {
	case err != nil:
		return fmt.Errorf("reading the test object: %w", err)
	case string(got) != probeText:
		return lost(probeKey, s.Location(), errors.New("the test object holds something else"))
	}

	// Credentials without permission to delete are good practice, because they also protect the backups from an intruder.
	if err := s.Delete(ctx, probeKey); err != nil && failure.ClassOf(err) != failure.ClassAuth {
		return fmt.Errorf("deleting the test object: %w", err)
	}

	return nil
}
