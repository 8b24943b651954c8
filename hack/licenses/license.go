package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// allowed are the licences of docs/licenses.md, as SPDX names them.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0"}

// enough is the part of a file, in percent, that has to be the text of licences that are known. The rest is the names
// of holders, and what comes after the licence itself.
const enough = 75

var (
	// license are the names of files that say under which licence a module is.
	license = regexp.MustCompile(`(?i)^(licen[cs]e|copying|unlicense)([.\-_].*)?$`)
	// legal are those that have to go along with a program, too.
	legal = regexp.MustCompile(`(?i)^(licen[cs]e|copying|unlicense|notice|copyright|patents)([.\-_].*)?$`)
)

var (
	errNoLicense = errors.New("there is no LICENSE file")
	errUnknown   = errors.New("the LICENSE file is not the text of a known licence: read it, and add it to reviewed")
	errForbidden = errors.New("the licence is not among those of docs/licenses.md")
)

// module is one that a program is linked with.
type module struct {
	path, version, directory string
}

func (m module) files(names *regexp.Regexp) (map[string][]byte, error) {
	entries, err := os.ReadDir(m.directory)
	if err != nil {
		return nil, fmt.Errorf("reading the module %s: %w", m.path, err)
	}

	out := map[string][]byte{}

	for _, entry := range entries {
		if entry.IsDir() || !names.MatchString(entry.Name()) || strings.HasSuffix(entry.Name(), ".go") {
			continue
		}

		if out[entry.Name()], err = os.ReadFile(filepath.Join(m.directory, entry.Name())); err != nil {
			return nil, fmt.Errorf("reading a licence of %s: %w", m.path, err)
		}
	}

	return out, nil
}

// licenses are those of all LICENSE files of a module.
func (m module) licenses() ([]string, error) {
	if ids, ok := reviewed[m.path]; ok {
		return ids, nil
	}

	files, err := m.files(license)
	if err != nil {
		return nil, err
	}

	if len(files) == 0 {
		return nil, errNoLicense
	}

	var out []string

	for name, text := range files {
		ids, err := classify(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}

		out = append(out, ids...)
	}

	slices.Sort(out)

	return slices.Compact(out), nil
}

// classify names the licences in a text.
func classify(text []byte) ([]string, error) {
	coverage := licensecheck.Scan(text)

	var out []string
	for _, match := range coverage.Match {
		out = append(out, match.ID)
	}

	slices.Sort(out)
	out = slices.Compact(out)

	if len(out) == 0 || coverage.Percent < enough {
		return nil, fmt.Errorf("%w (%.0f%% is known: %v)", errUnknown, coverage.Percent, out)
	}

	return out, nil
}

// judge refuses a module if one of its licences is not allowed: which part of it is under which, the names do not say.
func judge(ids []string) error {
	for _, id := range ids {
		if !slices.Contains(allowed, id) {
			return fmt.Errorf("%w: %s", errForbidden, id)
		}
	}

	return nil
}
