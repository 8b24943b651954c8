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
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	"github.com/siderolabs/talos/pkg/machinery/config/types/security"
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
		if strings.HasSuffix(row[1], "Config") {
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

// kinds are those in the machinery's schema of a config, and what it has that the schema of v1.13.9 lacks or calls
// otherwise. Each is one that the machinery reads.
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

	out = append(out, security.ImageVerificationConfigKind)
	for i, kind := range out {
		if kind == "KubeSpanEndpoints" {
			out[i] = network.KubespanEndpointsKind
		}

		_, err := configloader.NewFromBytes([]byte("apiVersion: v1alpha1\nkind: " + out[i] + "\n"))
		if err != nil && strings.Contains(err.Error(), "not registered") {
			t.Errorf("%s is no document of the machinery: %v", out[i], err)
		}
	}

	slices.Sort(out)

	return out
}
