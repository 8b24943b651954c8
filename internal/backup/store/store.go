// Package store keeps backups: one interface, an S3 bucket or a directory behind it.
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

// Reasons of failures, for conditions.
const (
	// ReasonUnreachable: no answer, or the connection broke.
	ReasonUnreachable = "StoreUnreachable"
	// ReasonUnavailable: the store answers that it cannot serve now.
	ReasonUnavailable = "StoreUnavailable"
	// ReasonUntrusted: the certificate of the store is not of a CA that we trust, or the store speaks no TLS.
	ReasonUntrusted = "StoreUntrusted"
	// ReasonForbidden: the store refuses our credentials, or they do not permit this.
	ReasonForbidden = "StoreForbidden"
	// ReasonCredentials: there are no credentials to use.
	ReasonCredentials = "StoreCredentialsMissing"
	// ReasonNotFound: the bucket or directory does not exist.
	ReasonNotFound = "StoreNotFound"
	// ReasonObjectNotFound: the object does not exist.
	ReasonObjectNotFound = "ObjectNotFound"
	// ReasonObjectExists: there is an object of this name already.
	ReasonObjectExists = "ObjectExists"
	// ReasonFull: no space is left.
	ReasonFull = "StoreFull"
	// ReasonRefused: the store does not accept what we ask, and would not later.
	ReasonRefused = "StoreRefused"
	// ReasonLost: the store said yes and does not have the object.
	ReasonLost = "StoreLostObject"
	// ReasonInvalid: the settings or the name of an object cannot work.
	ReasonInvalid = "StoreInvalid"
)

// ErrNotFound says that an object does not exist.
var ErrNotFound = errors.New("the object does not exist")

// Object is one object of a store.
type Object struct {
	// Key is the name of the object, slashes between its parts.
	Key string
	// Size in bytes.
	Size int64
	// Modified is when it was written.
	Modified time.Time
	// LockedUntil is the end of its retention, zero without one. Only Stat fills it.
	LockedUntil time.Time
	// LegalHold says that it may not be deleted until somebody lifts the hold. Only Stat fills it.
	LegalHold bool
}

// Locked says whether the object may not be deleted at the given time.
func (o Object) Locked(now time.Time) bool { return o.LegalHold || o.LockedUntil.After(now) }

// Store keeps objects. Its errors have a class and a reason of internal/failure.
type Store interface {
	// Check proves that the store is reachable and writable, and has room for that many bytes as far as it can tell. It
	// writes, reads and deletes a small object.
	Check(ctx context.Context, need int64) error
	// Put writes an object with what the function writes, in constant memory. When the function or the store fails, or
	// the context ends, nothing is left behind. It refuses to replace an object as far as the store can tell.
	Put(ctx context.Context, key string, write func(io.Writer) error) (Object, error)
	// Replace writes a small object, whether or not there is one of that name: whoever reads meanwhile, or after a crash,
	// finds all of the old one or all of the new one.
	Replace(ctx context.Context, key string, content []byte) error
	// Get reads an object. ErrNotFound when there is none.
	Get(ctx context.Context, key string) (io.ReadCloser, Object, error)
	// Stat describes an object. ErrNotFound when there is none.
	Stat(ctx context.Context, key string) (Object, error)
	// List yields the objects below a prefix in the order of their keys, page by page. An error ends it.
	List(ctx context.Context, prefix string) iter.Seq2[Object, error]
	// Delete removes an object. It is no error when there is none.
	Delete(ctx context.Context, key string) error
	// Sweep removes uploads below a prefix that began before the given time and never ended: what a process that was
	// killed leaves. It returns how many.
	Sweep(ctx context.Context, prefix string, before time.Time) (int, error)
	// Location names the store for people, without credentials.
	Location() string
	// Close drops connections that wait for more work. The store can still be used.
	Close()
}

// probeKey is the object that Check writes. It is always the same one: where deleting is forbidden, one remains.
const probeKey = ".talos-operator-check"

// probeText is what is in it.
const probeText = "talos-operator writes this object to check that it can write here. It may be deleted.\n"

// ValidKey says whether a key can be used in every store: relative, in its shortest form, without characters that some
// stores or tools escape.
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

// validReadKey is less strict: others name their objects as they like, and those can be read too.
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

// probes are how often the test object is written when somebody else deletes it: the check of another cluster that
// shares the store.
const probes = 5

// checkProbe is the part of Check that all stores have in common.
func checkProbe(ctx context.Context, s Store) error {
	for try := 1; ; try++ {
		err := probe(ctx, s)
		if failure.Reason(err) != ReasonLost || try == probes {
			return err
		}

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(rand.N(probePause)):
		}
	}
}

// probePause is the longest pause between two of them.
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

	// Credentials that may not delete are a good idea: an intruder could not either.
	if err := s.Delete(ctx, probeKey); err != nil && failure.ClassOf(err) != failure.ClassAuth {
		return fmt.Errorf("deleting the test object: %w", err)
	}

	return nil
}
