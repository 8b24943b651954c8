package check_test

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/check"
)

// FuzzFields: what names the objects of a check is refused with its field, or it is one segment of a path each; no
// check reads Secrets.
func FuzzFields(f *testing.F) {
	f.Add("apps/v1", "Deployment", "default", "web", "")
	f.Add("v1", "Secret", "default", "a", "")
	f.Add("apps/v1/x", "Deployment", "../kube-system", "..", "a in (b,c),!d")
	f.Add("/v1", "Secret", "", "", "a==b")
	f.Add("..%2f/v1", "A", "", "a/b", "a=b=c")

	f.Fuzz(func(t *testing.T, apiVersion, kind, namespace, name, selector string) {
		_, err := check.Compile(edited(func(c *v1alpha1.UpgradeCheck) {
			c.APIVersion, c.Kind, c.Namespace, c.ObjectName, c.Selector = apiVersion, kind, namespace, name, selector
			if selector != "" {
				c.Expression = "objects.all(o, true)"
			}
		}))

		if refused := (*check.Error)(nil); err != nil {
			if !errors.As(err, &refused) || refused.Field == "" {
				t.Errorf("unclassified: %v", err)
			}

			return
		}

		group, version, grouped := strings.Cut(apiVersion, "/")
		if !grouped {
			group, version = "", apiVersion
		}

		for _, segment := range []string{group, version, namespace, name} {
			if strings.ContainsAny(segment, "/%") || segment == "." || segment == ".." {
				t.Errorf("%q is accepted", segment)
			}
		}

		if _, err := labels.Parse(selector); err != nil || group == "" && kind == "Secret" {
			t.Errorf("accepted: %s of kind %s by %q (%v)", apiVersion, kind, selector, err)
		}
	})
}
