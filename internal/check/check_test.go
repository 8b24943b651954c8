package check_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/check"
)

// one is a check of one object, some one of several.
func one(expression string) v1alpha1.UpgradeCheck {
	return v1alpha1.UpgradeCheck{
		Name: "web", APIVersion: "apps/v1", Kind: "Deployment", Namespace: "default", ObjectName: "web", Expression: expression,
	}
}

func some(expression string) v1alpha1.UpgradeCheck {
	c := one(expression)
	c.ObjectName, c.Selector = "", "app=web"

	return c
}

func edited(edit func(*v1alpha1.UpgradeCheck)) v1alpha1.UpgradeCheck {
	c := one("true")
	edit(&c)

	return c
}

// TestCompile: what cannot be evaluated is refused with the field and the position of the error.
func TestCompile(t *testing.T) {
	for name, c := range map[string]struct {
		check v1alpha1.UpgradeCheck
		field string
		says  string
	}{
		"one":                 {one("object.status.readyReplicas == object.spec.replicas"), "", ""},
		"several":             {some("objects.all(o, o.status.phase == 'Ready')"), "", ""},
		"as documented":       {one("object.status.ceph.health == 'HEALTH_OK'"), "", ""},
		"several, documented": {some("objects.all(d, d.status.?readyReplicas.orValue(0) == d.spec.replicas)"), "", ""},
		"quantities":          {one("quantity(object.status.free).isGreaterThan(quantity('1Gi'))"), "", ""},
		"versions":            {one("semver(object.status.version).isLessThan(semver('1.2.3'))"), "", ""},
		"optional fields":     {one("object.?status.?ready.orValue(false) == true"), "", ""},
		"no namespace":        {edited(func(c *v1alpha1.UpgradeCheck) { c.Namespace = "" }), "", ""},
		"a Secret elsewhere":  {edited(func(c *v1alpha1.UpgradeCheck) { c.APIVersion, c.Kind = "vault.io/v1", "Secret" }), "", ""},
		"syntax":              {one("object.status ="), "expression", "line 1, column 15: Syntax error"},
		"unknown variable":    {one("true &&\nfoo.bar"), "expression", "line 2, column 1: undeclared reference to 'foo'"},
		"objects of one":      {one("objects.size() > 0"), "expression", "undeclared reference to 'objects'"},
		"object of several":   {some("object.x == 1"), "expression", "undeclared reference to 'object'"},
		"unknown function":    {one("object.status.frobs()"), "expression", "line 1, column 20: undeclared reference to 'frobs'"},
		"wrong type":          {one("object > 3"), "expression", "line 1, column 8: found no matching overload for '_>_'"},
		"no bool":             {one("object.metadata.name + 'x'"), "expression", "the result has the type string instead of bool"},
		"bool unknown":        {one("object.spec.paused"), "expression", "the result has the type dyn instead of bool"},
		"longer texts":        {one("object.a.replace('', object.b) == ''"), "expression", "undeclared reference to 'replace'"},
		"Secret":              {edited(func(c *v1alpha1.UpgradeCheck) { c.APIVersion, c.Kind = "v1", "Secret" }), "kind", "Secrets are not read"},
		"Secret of an empty":  {edited(func(c *v1alpha1.UpgradeCheck) { c.APIVersion, c.Kind = "/v1", "Secret" }), "kind", "Secrets are not read"},
		"API version":         {edited(func(c *v1alpha1.UpgradeCheck) { c.APIVersion = "a/b/c" }), "apiVersion", "is not a group and a version"},
		"API version, path":   {edited(func(c *v1alpha1.UpgradeCheck) { c.APIVersion = "apps/.." }), "apiVersion", "is not a group and a version"},
		"group, path":         {edited(func(c *v1alpha1.UpgradeCheck) { c.APIVersion = "../v1" }), "apiVersion", "is not a group and a version"},
		"both":                {edited(func(c *v1alpha1.UpgradeCheck) { c.Selector = "a=b" }), "objectName", "set objectName or selector"},
		"neither":             {edited(func(c *v1alpha1.UpgradeCheck) { c.ObjectName = "" }), "objectName", "set objectName or selector"},
		"path":                {edited(func(c *v1alpha1.UpgradeCheck) { c.ObjectName = "../secrets/x" }), "objectName", "is not the name of an object"},
		"namespace":           {edited(func(c *v1alpha1.UpgradeCheck) { c.Namespace = ".." }), "namespace", "is not the name of a namespace"},
		"selector":            {edited(func(c *v1alpha1.UpgradeCheck) { c.ObjectName, c.Selector = "", "a in" }), "selector", "unable to parse"},
	} {
		_, err := check.Compile(c.check)

		var bad *check.Error
		if got := errors.As(err, &bad); got != (c.field != "") || got && (bad.Field != c.field || !strings.Contains(bad.Problem, c.says)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// long is a text that is expensive to search.
var long = strings.Repeat("a", 4<<20)

// object is one with a value that no message may show.
func object(labels map[string]any) map[string]any {
	return map[string]any{
		"metadata": map[string]any{"name": "web", "labels": labels},
		"spec":     map[string]any{"replicas": int64(3), "value": "hidden", "long": long},
		"status":   map[string]any{"ready": int64(3), "free": "2Gi", "phase": "Ready"},
	}
}

// TestEvaluate: only an expression that is true satisfies a check. What an expression read is not told.
func TestEvaluate(t *testing.T) {
	const unclear = "the expression cannot be evaluated: a field that it reads is missing, or a value has another type"

	for name, c := range map[string]struct {
		check   v1alpha1.UpgradeCheck
		objects int
		says    string
	}{
		"true":                {one("object.status.ready == object.spec.replicas"), 1, ""},
		"false":               {one("object.status.ready > object.spec.replicas"), 1, "the expression is false"},
		"quantity":            {one("quantity(object.status.free).isGreaterThan(quantity('1Gi'))"), 1, ""},
		"all":                 {some("objects.all(o, o.status.phase == 'Ready')"), 3, ""},
		"not all":             {some("objects.all(o, o.status.phase == 'Gone')"), 3, "the expression is false"},
		"none":                {some("objects.all(o, o.status.phase == 'Ready')"), 0, "there is no object to evaluate the expression for"},
		"none of one":         {one("true"), 0, "there is no object to evaluate the expression for"},
		"missing field":       {one("object.status.absent == 1"), 1, unclear},
		"key with a value":    {one("object.status[object.spec.value] == 1"), 1, unclear},
		"another type":        {one("object.spec.value > 1"), 1, unclear},
		"conversion":          {one("int(object.spec.value) == 1"), 1, unclear},
		"cost":                {one("['b', 'c', 'd'].exists(c, object.spec.long.matches(c))"), 1, "the expression exceeds its cost limit for these objects"},
		"cost of one pass":    {one("object.spec.long.matches('a')"), 1, ""},
		"optional, not there": {one("object.?status.?absent.orValue(true) == true"), 1, ""},
	} {
		compiled, err := check.Compile(c.check)
		if err != nil {
			t.Errorf("%s: %v", name, err)

			continue
		}

		var found []map[string]any
		for range c.objects {
			found = append(found, object(nil))
		}

		if why, refuted := compiled.Evaluate(t.Context(), found); why != c.says || refuted != (why == "the expression is false") {
			t.Errorf("%s: %q, refuted: %t", name, why, refuted)
		}
	}
}

// TestEvaluateEnds: an evaluation ends with the reconciliation, and one that was ended satisfies nothing.
func TestEvaluateEnds(t *testing.T) {
	compiled, err := check.Compile(one("object.metadata.labels.all(k, object.metadata.labels[k] == 'x')"))
	if err != nil {
		t.Fatal(err)
	}

	labels := map[string]any{}
	for i := range 1000 {
		labels[fmt.Sprint(i)] = "x"
	}

	found := []map[string]any{object(labels)}
	if why, _ := compiled.Evaluate(t.Context(), found); why != "" {
		t.Fatal(why)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	if why, refuted := compiled.Evaluate(ctx, found); refuted || why != "evaluating the expression takes too long for these objects" {
		t.Errorf("%q", why)
	}
}

// TestDue: a check is made at its time, and always by default.
func TestDue(t *testing.T) {
	o := &v1alpha1.UpgradeOptions{}
	for _, when := range []v1alpha1.CheckTime{"", v1alpha1.CheckBefore, v1alpha1.CheckAfter, v1alpha1.CheckAlways} {
		o.Checks = append(o.Checks, v1alpha1.UpgradeCheck{Name: "x" + string(when), When: when})
	}

	for at, want := range map[v1alpha1.CheckTime]string{
		v1alpha1.CheckBefore: "x xBefore xAlways", v1alpha1.CheckAfter: "x xAfter xAlways",
	} {
		var names []string
		for _, c := range check.Due(o, at) {
			names = append(names, c.Name)
		}

		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: %s", at, got)
		}
	}

	if len(check.Due(o, v1alpha1.CheckBefore, v1alpha1.CheckAfter)) != 4 || len(o.Checks) != 4 || len(check.Due(nil, v1alpha1.CheckBefore)) != 0 {
		t.Errorf("%+v", o)
	}
}

// TestNext: the time counts from when a check was first not satisfied.
func TestNext(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 5, time.UTC)
	at := metav1.NewTime(now.Truncate(time.Second))
	before := &v1alpha1.FailedCheck{Name: "a", Since: metav1.NewTime(now.Add(-time.Hour))}

	for name, c := range map[string]struct {
		was  *v1alpha1.FailedCheck
		now  string
		want *v1alpha1.FailedCheck
	}{
		"satisfied":   {before, "", nil},
		"first":       {nil, "a", &v1alpha1.FailedCheck{Name: "a", Since: at}},
		"still":       {before, "a", before},
		"another one": {before, "b", &v1alpha1.FailedCheck{Name: "b", Since: at}},
	} {
		if diff := cmp.Diff(c.want, check.Next(c.was, c.now, now)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
