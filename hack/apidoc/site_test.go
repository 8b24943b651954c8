package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// site are the settings of the documentation's site.
const site = root + "/hack/site/"

// TestSidebar: each page of the site is in its sidebar, or is a decision that the list of decisions has, and what the sidebar
// names is a page that make docs-site copies.
func TestSidebar(t *testing.T) {
	sidebar := read(t, site+".vitepress/sidebar.mjs")
	decisions := read(t, root+"/docs/adr/README.md")

	for _, path := range files(t, ".md", "docs") {
		page, err := filepath.Rel(root, path)
		if err != nil {
			t.Fatal(err)
		}

		name := filepath.Base(page)
		if !strings.Contains(sidebar, "'/"+strings.TrimSuffix(page, ".md")+"'") &&
			(filepath.Dir(page) != "docs/adr" || !strings.Contains(decisions, "("+name+")")) {
			t.Errorf("no reader of the site finds %s: add it to hack/site/.vitepress/sidebar.mjs", page)
		}
	}

	_, target, _ := strings.Cut(read(t, root+"/Makefile"), "\ndocs-site:")
	copied, _, _ := strings.Cut(target, "xargs")
	links := regexp.MustCompile(`'/([^']*)'`).FindAllStringSubmatch(sidebar, -1)

	for _, link := range links {
		page := link[1] + ".md"
		if link[1] == "" {
			page = "README.md"
		}

		if _, err := os.Stat(filepath.Join(root, page)); err != nil {
			t.Errorf("the sidebar names a page that does not exist: %v", err)
		}

		if !strings.HasPrefix(page, "docs/") && !strings.Contains(copied, " "+page+" ") {
			t.Errorf("the sidebar names %s, which make docs-site does not copy", page)
		}
	}

	if len(links) < 20 {
		t.Errorf("the sidebar has %d pages", len(links))
	}
}

// TestLockedPackages: the packages that build the site come from the default registry, and each has the hash of its content.
func TestLockedPackages(t *testing.T) {
	lock := read(t, site+"package-lock.json")

	for _, m := range regexp.MustCompile(`"resolved": "(https?://[^/"]*)`).FindAllStringSubmatch(lock, -1) {
		if m[1] != "https://registry.npmjs.org" {
			t.Errorf("package-lock.json names the registry %s", m[1])
		}
	}

	packages := len(regexp.MustCompile(`(?m)^    "node_modules/`).FindAllString(lock, -1))
	hashes := strings.Count(lock, `"integrity": "sha512-`)

	if packages < 100 || packages != hashes {
		t.Errorf("package-lock.json has %d packages and %d hashes", packages, hashes)
	}

	_, wanted, _ := strings.Cut(read(t, site+"package.json"), `"devDependencies": {`)
	exact := regexp.MustCompile(`^ +"[\w@/-]+": "\d+\.\d+\.\d+",?$`)

	for line := range strings.Lines(wanted) {
		if strings.Contains(line, ":") && !exact.MatchString(strings.TrimRight(line, "\n")) {
			t.Errorf("package.json does not name one version: %s", line)
		}
	}
}
