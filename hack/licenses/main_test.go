package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	mit = `Copyright (c) 2026 Example

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit
persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
`
	gpl = `This program is free software: you can redistribute it and/or modify it under the terms of the GNU General Public
License as published by the Free Software Foundation, either version 3 of the License, or (at your option) any later
version.

This program is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY; without even the implied
warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the GNU General Public License for more details.

You should have received a copy of the GNU General Public License along with this program. If not, see
<https://www.gnu.org/licenses/>.
`
)

// TestLicenses: a module passes if all its LICENSE files are texts of licences that are allowed.
func TestLicenses(t *testing.T) {
	apache, err := os.ReadFile("../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}

	for name, test := range map[string]struct {
		path  string
		files map[string]string
		want  []string
		err   error
	}{
		"allowed":            {files: map[string]string{"LICENSE": mit}, want: []string{"MIT"}},
		"another name":       {files: map[string]string{"License.txt": mit}, want: []string{"MIT"}},
		"two":                {files: map[string]string{"LICENSE-MIT": mit, "LICENSE-APACHE": string(apache)}, want: []string{"Apache-2.0", "MIT"}},
		"none":               {files: map[string]string{"README.md": mit, "license.go": mit}, err: errNoLicense},
		"forbidden":          {files: map[string]string{"COPYING": gpl}, err: errForbidden},
		"forbidden beside":   {files: map[string]string{"LICENSE": mit, "LICENSE.gpl": gpl}, err: errForbidden},
		"unknown":            {files: map[string]string{"LICENSE": "You may use this on Tuesdays."}, err: errUnknown},
		"terms of their own": {files: map[string]string{"LICENSE": mit + strings.Repeat("The user pays ten crowns for each day.\n", 40)}, err: errUnknown},
		"reviewed":           {path: "github.com/opencontainers/go-digest", files: map[string]string{"LICENSE": gpl}, want: []string{"Apache-2.0"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := module{path: test.path, directory: t.TempDir()}
			for file, text := range test.files {
				if err := os.WriteFile(filepath.Join(m.directory, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}

			ids, err := m.licenses()
			if err == nil {
				if err = judge(ids); err != nil {
					ids = nil
				}
			}

			if diff := cmp.Diff(test.want, ids); diff != "" || !errors.Is(err, test.err) {
				t.Errorf("%v, not %v (-want +got):\n%s", err, test.err, diff)
			}
		})
	}
}

// TestAllowedAreDocumented: the page has a row for each licence that is allowed.
func TestAllowedAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/licenses.md")
	if err != nil {
		t.Fatal(err)
	}

	for _, id := range allowed {
		if !strings.Contains(string(page), "\n| "+id+" |") {
			t.Errorf("docs/licenses.md has no row for %s", id)
		}
	}

	for path := range reviewed {
		if !strings.Contains(string(page), "`"+path+"`") {
			t.Errorf("docs/licenses.md does not say why %s passes", path)
		}
	}
}
