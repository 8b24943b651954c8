// Package manifest writes the manifests of generated machines to a folder, for people to read. They hold no secrets.
package manifest

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unicode"

	"sigs.k8s.io/yaml"

	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
)

// ownerFile names the cluster object that a folder belongs to: two clusters of one name in different namespaces must
// not remove each other's files.
const ownerFile = ".owner"

// ErrForeign says that the folder belongs to a cluster of the same name in another namespace.
var ErrForeign = errors.New("the folder belongs to another cluster object")

// ErrName says that a name would lead out of the folder. The API server refuses such names; deleting a folder relies on
// nothing but itself.
var ErrName = errors.New("the name cannot be that of a file")

// Store writes below one folder.
type Store struct {
	// Root folder, RESULTS_PATH.
	Root string
	// Count is told of every operation: create, update or delete, and success or failure.
	Count func(operation, status string)

	mu       sync.Mutex
	rendered map[[sha256.Size]byte][]byte // by what was rendered
}

// maxRendered bounds what is remembered; with more machines than that everything is forgotten and rendered again.
const maxRendered = 16384

// Folder returns the folder of a cluster.
func (s *Store) Folder(cluster string) string { return filepath.Join(s.Root, cluster) }

// Sync writes one file a machine into {root}/{cluster}/ and removes files of machines that are gone. Files whose
// content is right already are not written.
func (s *Store) Sync(cluster, owner string, machines []*vitistackv1alpha1.Machine) error {
	if err := checkName(cluster); err != nil {
		return err
	}

	dir := s.Folder(cluster)
	if err := s.claim(dir, owner); err != nil {
		return err
	}

	keep := []string{ownerFile}

	for _, m := range machines {
		if err := checkName(m.Name); err != nil {
			return err
		}

		name := m.Name + ".yaml"
		keep = append(keep, name)

		data, err := s.render(m)
		if err != nil {
			return err
		}

		if err := s.write(filepath.Join(dir, name), data); err != nil {
			return err
		}
	}

	return s.prune(dir, keep)
}

// Remove removes the folder of a cluster.
func (s *Store) Remove(cluster, owner string) error {
	if err := checkName(cluster); err != nil {
		return err
	}

	dir := s.Folder(cluster)

	have, err := os.ReadFile(filepath.Join(dir, ownerFile))
	if errors.Is(err, fs.ErrNotExist) || err == nil && string(have) != owner {
		return nil
	}

	if err == nil {
		err = os.RemoveAll(dir)
	}

	s.count("delete", err)

	if err != nil {
		return fmt.Errorf("removing the manifests in %s: %w", dir, err)
	}

	return nil
}

// checkName refuses what is not the name of one file, or is hidden, as the files of the store itself are.
func checkName(name string) error {
	if !filepath.IsLocal(name) || filepath.Base(name) != name || name[0] == '.' ||
		strings.ContainsFunc(name, unicode.IsControl) {
		return fmt.Errorf("using %.100q as the name of a file: %w", name, ErrName)
	}

	return nil
}

// render leaves out what the API server adds and what changes by itself.
func (s *Store) render(m *vitistackv1alpha1.Machine) ([]byte, error) {
	clean := &vitistackv1alpha1.Machine{TypeMeta: m.TypeMeta, Spec: m.Spec}
	clean.Name, clean.Namespace = m.Name, m.Namespace
	clean.Labels, clean.OwnerReferences = m.Labels, m.OwnerReferences

	raw, err := json.Marshal(clean)
	if err != nil {
		return nil, fmt.Errorf("rendering the manifest of %s: %w", m.Name, err)
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	// Every reconciliation asks for the same again, and YAML takes many times longer than JSON.
	sum := sha256.Sum256(raw)
	if data, ok := s.rendered[sum]; ok {
		return data, nil
	}

	data, err := yaml.JSONToYAML(raw)
	if err != nil {
		return nil, fmt.Errorf("rendering the manifest of %s: %w", m.Name, err)
	}

	if s.rendered == nil || len(s.rendered) >= maxRendered {
		s.rendered = map[[sha256.Size]byte][]byte{}
	}

	s.rendered[sum] = data

	return data, nil
}

func (s *Store) claim(dir, owner string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { // for people to read
		s.count("create", err)

		return fmt.Errorf("making the folder %s: %w", dir, err)
	}

	have, err := os.ReadFile(filepath.Join(dir, ownerFile))

	switch {
	case err == nil && string(have) == owner:
		return nil
	case err == nil:
		return fmt.Errorf("using the folder %s: %w", dir, ErrForeign)
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("reading the owner of %s: %w", dir, err)
	}

	return replace(filepath.Join(dir, ownerFile), []byte(owner))
}

func (s *Store) write(path string, data []byte) error {
	have, err := os.ReadFile(path)
	if err == nil && bytes.Equal(have, data) {
		return nil
	}

	operation := "update"
	if errors.Is(err, fs.ErrNotExist) {
		operation = "create"
	}

	err = replace(path, data)
	s.count(operation, err)

	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}

	return nil
}

// replace writes a file in one step: readers see the old or the new content, never half of it.
func replace(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-*")
	if err != nil {
		return err
	}

	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())

	if err == nil {
		err = os.Rename(f.Name(), path)
	}

	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}

	return nil
}

func (s *Store) prune(dir string, keep []string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("listing %s: %w", dir, err)
	}

	for _, e := range entries {
		if slices.Contains(keep, e.Name()) || !strings.HasSuffix(e.Name(), ".yaml") && !strings.HasPrefix(e.Name(), ".tmp-") {
			continue
		}

		err := os.Remove(filepath.Join(dir, e.Name()))
		s.count("delete", err)

		if err != nil {
			return fmt.Errorf("removing a stale manifest: %w", err)
		}
	}

	return nil
}

func (s *Store) count(operation string, err error) {
	if s.Count == nil {
		return
	}

	status := "success"
	if err != nil {
		status = "failure"
	}

	s.Count(operation, status)
}
