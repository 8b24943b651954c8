package machineconfig_test

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	"go.yaml.in/yaml/v4"

	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

// typedDocuments are the machinery's documents of the network that docs/config.md calls typed.
var typedDocuments = map[string]reflect.Type{
	"BlackholeRouteConfig":       reflect.TypeFor[network.BlackholeRouteConfigV1Alpha1](),
	"BondConfig":                 reflect.TypeFor[network.BondConfigV1Alpha1](),
	"BridgeConfig":               reflect.TypeFor[network.BridgeConfigV1Alpha1](),
	"DHCPv4Config":               reflect.TypeFor[network.DHCPv4ConfigV1Alpha1](),
	"DHCPv6Config":               reflect.TypeFor[network.DHCPv6ConfigV1Alpha1](),
	"DummyLinkConfig":            reflect.TypeFor[network.DummyLinkConfigV1Alpha1](),
	"HCloudVIPConfig":            reflect.TypeFor[network.HCloudVIPConfigV1Alpha1](),
	"HostnameConfig":             reflect.TypeFor[network.HostnameConfigV1Alpha1](),
	"KubeSpanConfig":             reflect.TypeFor[network.KubeSpanConfigV1Alpha1](),
	"KubeSpanEndpointsConfig":    reflect.TypeFor[network.KubespanEndpointsConfigV1Alpha1](),
	"Layer2VIPConfig":            reflect.TypeFor[network.Layer2VIPConfigV1Alpha1](),
	"LinkAliasConfig":            reflect.TypeFor[network.LinkAliasConfigV1Alpha1](),
	"LinkConfig":                 reflect.TypeFor[network.LinkConfigV1Alpha1](),
	"NetworkDefaultActionConfig": reflect.TypeFor[network.DefaultActionConfigV1Alpha1](),
	"ResolverConfig":             reflect.TypeFor[network.ResolverConfigV1Alpha1](),
	"RoutingRuleConfig":          reflect.TypeFor[network.RoutingRuleConfigV1Alpha1](),
	"StaticHostConfig":           reflect.TypeFor[network.StaticHostConfigV1Alpha1](),
	"TimeSyncConfig":             reflect.TypeFor[network.TimeSyncConfigV1Alpha1](),
	"VLANConfig":                 reflect.TypeFor[network.VLANConfigV1Alpha1](),
	"WireguardConfig":            reflect.TypeFor[network.WireguardConfigV1Alpha1](),
}

// TestEachFieldOfDocumentsIsTyped: each field of the documents of the network is rendered from some typed field, or listed
// as one that only patches set, so that a new version of Talos shows what is new.
func TestEachFieldOfDocumentsIsTyped(t *testing.T) {
	t.Parallel()

	page, err := os.ReadFile("../../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}

	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Za-z0-9]+)` \\| `(?:network\\.|kubeSpan|ingressFirewall)[^|]*\\| \\|$").
		FindAllStringSubmatch(string(page), -1) {
		if typedDocuments[row[1]] == nil {
			t.Errorf("%s is typed according to docs/config.md, and its fields are not compared here", row[1])
		}
	}

	_, listing, found := strings.Cut(string(page), "<!-- fields of patches -->")
	listing, _, ended := strings.Cut(listing, "<!-- end -->")

	if !found || !ended {
		t.Fatal("docs/config.md does not list the fields that only patches set")
	}

	var documented []string
	for _, field := range regexp.MustCompile("`([A-Za-z0-9]+: [A-Za-z0-9.]+)`").FindAllStringSubmatch(listing, -1) {
		documented = append(documented, field[1])
	}

	rendered := renderedFields(t)

	var untyped []string

	for kind, of := range typedDocuments {
		for _, field := range fieldsOf(of, kind+": ") {
			if !rendered[field] {
				untyped = append(untyped, field)
			}
		}
	}

	slices.Sort(untyped)
	untyped = slices.Compact(untyped)

	slices.Sort(documented)

	if diff := cmp.Diff(untyped, documented); diff != "" {
		t.Errorf("fields of documents (-not rendered from a typed field +listed in docs/config.md):\n%s", diff)
	}
}

// fieldsOf are the paths of the values below a type of the machinery.
func fieldsOf(of reflect.Type, prefix string) []string {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice && of.Elem().Kind() != reflect.Uint8 {
		of = of.Elem()
	}

	var out []string

	for i := range of.NumField() {
		f := of.Field(i)

		switch name, options, _ := strings.Cut(f.Tag.Get("yaml"), ","); {
		case f.Name == "Meta" || name == "-":
		case f.Type == reflect.TypeFor[network.CommonLinkConfig]():
			// All links have these from the same code, so that those of one kind stand for all.
			out = append(out, fieldsOf(f.Type, "LinkConfig: ")...)
		case options == "inline":
			out = append(out, fieldsOf(f.Type, prefix)...)
		case name != "" && isSection(f.Type):
			out = append(out, fieldsOf(f.Type, prefix+name+".")...)
		case name != "":
			out = append(out, prefix+name)
		}
	}

	return out
}

// isSection tells whether a type is written as a mapping of its fields.
func isSection(of reflect.Type) bool {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
		of = of.Elem()
	}

	if of.Kind() != reflect.Struct {
		return false
	}

	for i := range of.NumField() {
		if of.Field(i).Tag.Get("yaml") != "" {
			return true
		}
	}

	return false
}

// renderedFields are those of all documents that the samples result in.
func renderedFields(t *testing.T) map[string]bool {
	t.Helper()

	out := map[string]bool{}

	collect := func(config []byte) {
		for part := range strings.SplitSeq(string(config), "---\n") {
			var doc map[string]any
			if err := yaml.Unmarshal([]byte(part), &doc); err != nil {
				t.Fatal(err)
			}

			if kind, ok := doc["kind"].(string); ok {
				maps.Copy(out, paths(doc, kind+": "))
			}
		}
	}

	for _, pattern := range []string{"network", "cluster"} {
		samples, err := filepath.Glob("testdata/" + pattern + "/*.yaml")
		if err != nil || len(samples) < 3 {
			t.Fatalf("%d samples: %v", len(samples), err)
		}

		for _, sample := range samples {
			text, err := os.ReadFile(sample)
			if err != nil {
				t.Fatal(err)
			}

			in := inCluster(t, machineconfig.ControlPlane, "{}")

			switch name := filepath.Base(sample); {
			case strings.HasPrefix(name, "legacy-"):
				continue
			case pattern == "cluster":
				in = inCluster(t, machineconfig.ControlPlane, string(text))
			default:
				in.Machine = networkOf(t, string(text))
				in.Values = valuesOf(in.Machine)
			}

			collect(render(t, in).Bytes)
		}
	}

	return out
}

// paths are those of the values of a document, items of lists without their index.
func paths(value any, prefix string) map[string]bool {
	out := map[string]bool{}

	switch v := value.(type) {
	case map[string]any:
		for key, one := range v {
			out[prefix+key] = true
			maps.Copy(out, paths(one, prefix+key+"."))
		}
	case []any:
		for _, one := range v {
			maps.Copy(out, paths(one, prefix))
		}
	}

	return out
}
