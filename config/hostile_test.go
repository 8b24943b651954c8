package config_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/test/plane"
)

var api *plane.Plane

func TestMain(m *testing.M) { plane.Main(m, &api) }

// texts may have control characters, such as new lines, for the reason of each. They are matched with the end of a path.
var texts = map[string]string{
	`configPatches\[\]`:              "YAML or JSON, parsed as such and merged as objects",
	`clusterConfigPatches\[\]`:       "YAML or JSON, parsed as such and merged as objects",
	`checks\[\]\.expression`:         "CEL, compiled and evaluated with limits",
	`machine\.ca\.(crt|key)`:         "PEM, parsed as such",
	`kubelet\.extraArgs\.key`:        "a value of a machine configuration, which is marshalled",
	`schematic\.meta\[\]\.value`:     "a value of a schematic, which is marshalled",
	`overlay\.options\.key`:          "a value of a schematic, which is marshalled",
	`node(Labels|Annotations)\.key`:  "checked with the machine configuration; what is no key is refused there",
	`nodeTaints\[\]\.(key|value)`:    "checked with the machine configuration; what is no taint is refused there",
	`configFiles\[\]\.content`:       "a file of an extension service, which is marshalled",
	`trustedRoots\[\]\.certificates`: "PEM, parsed as such",
	`extraTags\.key`:                 "a value of a machine configuration, which is marshalled",
	`(sysctls|sysfs)\.key`:           "checked with the machine configuration, which refuses control characters",
	`provider\.parameters\.key`:      "defined by the provider of machines; this operator does not read it",
	`machineSelector\.match.*`:       "parsed as a selector of Kubernetes, which refuses what is no label",
}

func isText(l leaf) bool {
	for pattern := range texts {
		if regexp.MustCompile(pattern + "$").MatchString(l.field()) {
			return true
		}
	}

	return false
}

// unlimited are strings of Kubernetes' own types, whose schema has no limits; the API server limits the request.
var unlimited = regexp.MustCompile(`machineSelector\.match`)

// TestHostileFields: each string in each spec of each kind, also one that will be added, is limited in length and refuses
// control characters, unless it is a text. Whatever the API server accepts can be decoded: a single object that could
// not would end every list and watch of its kind, in all namespaces.
func TestHostileFields(t *testing.T) {
	namespace, c := api.Namespace(t), api.Admin(t)

	for _, crd := range ours(t) {
		f := fill(t, c, crd, namespace)

		for _, l := range f.never {
			if !isRefused(l, f.refusals(t, c, []leaf{l}, "2026-01-02T15:04:05Z")) {
				t.Errorf("%s: %s is accepted", crd.Name, l)
			}
		}

		f.refusesLength(t, c)
		f.refusesControls(t, c)
		f.decodes(t, c)
	}
}

// refusesLength tries texts longer than any field may be, in groups that a request has room for.
func (f *filled) refusesLength(t *testing.T, c client.Client) {
	t.Helper()

	all := f.leaves
	defer func() { f.leaves = all }()

	for group := range slices.Chunk(all, 24) {
		f.leaves = group

		for _, l := range f.accepted(t, c, strings.Repeat("0", 1<<16)+"1") {
			if !unlimited.MatchString(l.field()) {
				t.Errorf("%s: %s has no maximum length", f.crd.Name, l)
			}
		}
	}
}

func (f *filled) refusesControls(t *testing.T, c client.Client) {
	t.Helper()

	for what, value := range map[string]string{
		"NUL": "a\x00b", "a new line": "a\nb: c", "the end of a header": "a\r\nX-B: c", "an escape sequence": "a\x1b[2Jb",
		"a control sequence in one character": "a\u009b2Jb", "a right-to-left override": "a\u202eb", "DEL": "a\x7fb",
	} {
		for _, l := range f.accepted(t, c, value) {
			if !isText(l) {
				t.Errorf("%s: %s may hold %s", f.crd.Name, l, what)
			}
		}
	}
}

// decodes tries values that the schema of a string, a time, a duration or a quantity may accept, and Go may not.
func (f *filled) decodes(t *testing.T, c client.Client) {
	t.Helper()

	kind := schema.FromAPIVersionAndKind(fmt.Sprint(f.object["apiVersion"]), f.crd.Spec.Names.Kind)

	for _, value := range []string{
		"", "../../etc/passwd", "/etc/shadow", "b/secret", "{{ .Values.x }}", "$(id)", "\u0430dmin", "a b", "banana", "-1h",
		"999999999999999999h", "1d", "1e1.5", "1e99999999999999999999", "16Gi ", "2026-01-02t15:04:05z", "2026-01-02T15:04:05ZTx",
		"2026-01-02T15:04:05+99:99", "2026-01-02T15:04:05.1234567890Z", "99999999999999999999", "1.5",
	} {
		for _, l := range f.unrefused(t, c, value) {
			raw, err := json.Marshal(f.with([]leaf{l}, value).Object)
			if err != nil {
				t.Fatal(err)
			}

			typed, err := api.Scheme.New(kind)
			if err != nil {
				t.Fatal(err)
			}

			err = json.Unmarshal(raw, typed)
			if err != nil && !isRefused(l, f.refusals(t, c, []leaf{l}, value)) {
				t.Errorf("%s: the API server accepts %q as %s, which the operator cannot decode: %v", f.crd.Name, value, l, err)
			}
		}
	}
}
