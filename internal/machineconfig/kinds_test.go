package machineconfig_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEachDocumentIsDocumented: the table of documents has those of the machinery, so that a new version of Talos shows what
// is new, and says of each how it is written down.
func TestEachDocumentIsDocumented(t *testing.T) {
	t.Parallel()

	page, err := os.ReadFile("../../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}

	var documented []string

	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Za-z0-9]+)` \\|(.*)\\|(.*)\\|$").FindAllStringSubmatch(string(page), -1) {
		if strings.HasSuffix(row[1], "Config") || row[1] == "KubeSpanEndpoints" {
			documented = append(documented, row[1])

			if strings.TrimSpace(row[2]) == "" && strings.TrimSpace(row[3]) == "" {
				t.Errorf("%s: neither a field nor a patch", row[1])
			}
		}
	}

	slices.Sort(documented)

	if diff := cmp.Diff(kinds(t), documented); diff != "" {
		t.Errorf("docs/config.md (-documents of the machinery +documented):\n%s", diff)
	}
}

// kinds are those in the machinery's schema of a config.
func kinds(t *testing.T) []string {
	t.Helper()

	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/siderolabs/talos/pkg/machinery").Output()
	if err != nil {
		t.Fatal(err)
	}

	raw, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "config", "schemas", "config.schema.json"))
	if err != nil {
		t.Fatal(err)
	}

	type ref struct {
		Ref string `json:"$ref"`
	}

	var schema struct {
		OneOf []ref `json:"oneOf"`
		Defs  map[string]struct {
			Properties struct {
				Kind struct {
					Enum []string `json:"enum"`
				} `json:"kind"`
			} `json:"properties"`
		} `json:"$defs"`
	}
	if err := json.Unmarshal(raw, &schema); err != nil {
		t.Fatal(err)
	}

	var out []string
	for _, one := range schema.OneOf {
		out = append(out, schema.Defs[strings.TrimPrefix(one.Ref, "#/$defs/")].Properties.Kind.Enum...)
	}

	slices.Sort(out)

	return out
}
