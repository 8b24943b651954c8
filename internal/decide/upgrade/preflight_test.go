package upgrade_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// TestMinors: what a step removes is asked before anything has the new minor, and never afterwards. It has been reached
// once a component has the version, or a newer one.
func TestMinors(t *testing.T) {
	const api, proxy, kubelet = v1alpha1.ComponentAPIServer, v1alpha1.ComponentProxy, v1alpha1.ComponentKubelet

	for name, c := range map[string]struct {
		to     string
		change func(*upgrade.Cluster)
		want   []string
		begun  bool
	}{
		"the next minor":                      {to: "v1.36.2", want: []string{"1.35", "1.36"}},
		"a release before it":                 {to: "v1.36.0-rc.1", want: []string{"1.35", "1.36"}},
		"a patch release":                     {to: "v1.35.9"},
		"the same":                            {to: "v1.35.1", begun: true},
		"an older one":                        {to: "v1.34.1", begun: true},
		"not a version":                       {to: "latest"},
		"not written so":                      {to: "1.36.2"},
		"one API server has it":               {to: "v1.36.2", change: func(c *upgrade.Cluster) { set(c, "b", api, "v1.36.2") }, begun: true},
		"another patch release of it begun":   {to: "v1.36.2", change: func(c *upgrade.Cluster) { set(c, "b", api, "v1.36.1") }},
		"one kubelet has it":                  {to: "v1.36.2", change: func(c *upgrade.Cluster) { set(c, "w", kubelet, "v1.36.2") }, begun: true},
		"an API server responds with it":      {to: "v1.36.2", change: func(c *upgrade.Cluster) { c.Kubernetes = "v1.36.2" }, begun: true},
		"a kubelet lags behind":               {to: "v1.36.2", change: func(c *upgrade.Cluster) { set(c, "w", kubelet, "v1.34.2") }, want: []string{"1.34", "1.35", "1.36"}},
		"the kubelet of the first lags":       {to: "v1.36.2", change: func(c *upgrade.Cluster) { set(c, "a", kubelet, "v1.34.2") }, want: []string{"1.34", "1.35", "1.36"}},
		"no API server responds":              {to: "v1.36.2", change: func(c *upgrade.Cluster) { c.Kubernetes = "" }, want: []string{"1.35", "1.36"}},
		"nothing is known":                    {to: "v1.36.2", change: func(c *upgrade.Cluster) { *c = upgrade.Cluster{} }},
		"kube-proxy is minors older":          {to: "v1.36.2", change: func(c *upgrade.Cluster) { set(c, "a", proxy, "v1.33.2") }, want: []string{"1.35", "1.36"}},
		"the version of a machine is unknown": {to: "v1.36.2", change: func(c *upgrade.Cluster) { set(c, "w", kubelet, "") }, want: []string{"1.35", "1.36"}},
	} {
		cluster := running("v1.35.1")
		if c.change != nil {
			c.change(&cluster)
		}

		if got := cluster.Minors(c.to); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}

		if got := cluster.Reached(c.to); got != c.begun {
			t.Errorf("%s: reached: %t", name, got)
		}
	}
}

// TestRefuseRemoved: each finding is named, with the machines, and with what to do; the length is limited.
func TestRefuseRemoved(t *testing.T) {
	gate := func(machine string) upgrade.Removed {
		return upgrade.Removed{Kind: upgrade.RemovedFeatureGate, Name: "KMSv2", Component: "kube-apiserver", Machine: machine}
	}
	objects := func(n int) upgrade.Removed {
		return upgrade.Removed{Kind: upgrade.RemovedResource, Name: "gadgets.v1.example", Objects: n}
	}
	ignore := ", or set upgrade.removedAPIs to Ignore"

	var many, huge []upgrade.Removed
	for i := range 8 {
		flag := upgrade.Removed{Kind: upgrade.RemovedFlag, Name: fmt.Sprint("f", i), Component: "kubelet", Machine: "w"}
		many = append(many, flag)
		flag.Name = strings.Repeat("é", 200) + flag.Name
		huge = append(huge, flag)
	}

	for name, c := range map[string]struct {
		found []upgrade.Removed
		want  string
	}{
		"nothing": {},
		"objects": {
			[]upgrade.Removed{objects(3)},
			"Kubernetes v1.36.2 removes what is in use: 3 gadgets.v1.example; delete the objects or migrate them to another API" + ignore,
		},
		"objects of several resources": {
			[]upgrade.Removed{objects(3), {Kind: upgrade.RemovedResource, Name: "widgets.v1.example", Objects: 1}},
			"Kubernetes v1.36.2 removes what is in use: 1 widgets.v1.example; 3 gadgets.v1.example; delete the objects or migrate them " +
				"to another API" + ignore,
		},
		"more objects than are counted": {
			[]upgrade.Removed{objects(upgrade.ManyObjects)},
			"Kubernetes v1.36.2 removes what is in use: 100 or more gadgets.v1.example; delete the objects or migrate them to another API" + ignore,
		},
		"one gate on several machines": {
			[]upgrade.Removed{gate("c"), gate("a"), gate("a"), gate("b")},
			"Kubernetes v1.36.2 removes what is in use: feature gate KMSv2 of kube-apiserver on a, b, c; remove it from the configuration" + ignore,
		},
		"several": {
			[]upgrade.Removed{
				gate("a"), {Kind: upgrade.RemovedAdmissionPlugin, Name: "X", Component: "kube-apiserver", Machine: "a"}, objects(1),
			},
			"Kubernetes v1.36.2 removes what is in use: 1 gadgets.v1.example; admission plugin X of kube-apiserver on a; feature gate " +
				"KMSv2 of kube-apiserver on a; delete the objects or migrate them to another API, and remove the rest from the configuration" + ignore,
		},
		"one flag": {
			many[:1], "Kubernetes v1.36.2 removes what is in use: flag f0 of kubelet on w; remove it from the configuration" + ignore,
		},
		"as many as are named": {
			many[:6], "Kubernetes v1.36.2 removes what is in use: flag f0 of kubelet on w; flag f1 of kubelet on w; flag f2 of kubelet " +
				"on w; flag f3 of kubelet on w; flag f4 of kubelet on w; flag f5 of kubelet on w; remove it from the configuration" + ignore,
		},
		"many": {
			many, "Kubernetes v1.36.2 removes what is in use: flag f0 of kubelet on w; flag f1 of kubelet on w; flag f2 of kubelet on w; " +
				"flag f3 of kubelet on w; flag f4 of kubelet on w; flag f5 of kubelet on w; and 2 more; remove it from the configuration" + ignore,
		},
	} {
		if got := upgrade.RefuseRemoved("Kubernetes v1.36.2", c.found); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		}
	}

	for name, got := range map[string]string{
		"huge":    upgrade.RefuseRemoved("Kubernetes v1.36.2", huge),
		"unknown": upgrade.RefuseUnknown("Kubernetes v1.36.2", strings.Repeat("é", 1000)),
	} {
		if len(got) > 1000 || !strings.HasSuffix(got, ignore[5:]) {
			t.Errorf("%s: %d bytes: %s", name, len(got), got)
		}
	}

	want := "insufficient evidence that Kubernetes v1.36.2 removes nothing in use: a is away; the check is repeated" + ignore
	if got := upgrade.RefuseUnknown("Kubernetes v1.36.2", "a is away"); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// TestNeverAllows: a budget is named if it blocks a drain even when all of its pods are healthy.
func TestNeverAllows(t *testing.T) {
	for name, c := range map[string]struct {
		least, most string
		pods        int32
		want        bool
	}{
		"none may be unavailable":            {most: "0", pods: 3, want: true},
		"0 % may be":                         {most: "0%", pods: 3, want: true},
		"one may be":                         {most: "1", pods: 1},
		"1 % may be, which is one":           {most: "1%", pods: 3},
		"one of two has to be available":     {least: "1", pods: 2},
		"all have to be":                     {least: "2", pods: 2, want: true},
		"more than there are":                {least: "3", pods: 2, want: true},
		"100 %":                              {least: "100%", pods: 5, want: true},
		"90 % of three, which is all":        {least: "90%", pods: 3, want: true},
		"50 % of three, which is two":        {least: "50%", pods: 3},
		"no pods":                            {most: "0"},
		"no rule, which is one of available": {pods: 2},
		"nonsense":                           {least: "many", pods: 2},
	} {
		b := &policyv1.PodDisruptionBudget{Status: policyv1.PodDisruptionBudgetStatus{ExpectedPods: c.pods}}

		for text, into := range map[string]**intstr.IntOrString{c.least: &b.Spec.MinAvailable, c.most: &b.Spec.MaxUnavailable} {
			if v := intstr.Parse(text); text != "" {
				*into = &v
			}
		}

		if got := upgrade.NeverAllows(b); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestObstacles: what drains will meet is named in an order that does not change.
func TestObstacles(t *testing.T) {
	for want, o := range map[string]upgrade.Obstacles{
		"": {},
		"the drains will meet Nodes that were cordoned manually: a, b": {Cordoned: []string{"b", "a"}},
		"the drains will meet Nodes that were cordoned manually: a; PodDisruptionBudgets that never allow an eviction: n/a, n/b, n/c and 1 more": {
			Cordoned: []string{"a"}, Budgets: []string{"n/c", "n/d", "n/a", "n/b"},
		},
	} {
		if got := o.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
