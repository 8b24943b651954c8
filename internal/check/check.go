// Package check compiles and evaluates the checks of upgrades: expressions in CEL about objects of a managed cluster.
// It reads no objects, and says nothing about their values: they are those of another cluster, and end in messages.
package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// Limits of the evaluation of one expression. The objects are those of a cluster that is not trusted, and the operator
// reconciles others meanwhile.
const (
	// maxCost is a tenth of what Kubernetes allows an expression of an admission policy.
	maxCost = 1_000_000
	// maxTime ends what is cheap by its cost, and takes long all the same.
	maxTime = time.Second
	// checkTime is after how many iterations of a loop the time is checked.
	checkTime = 100
)

// Max is how many checks an upgrade has at most.
const Max = 16

// Variables of expressions.
const (
	object  = "object"
	objects = "objects"
)

// Check is a check that has no errors.
type Check struct {
	v1alpha1.UpgradeCheck

	program cel.Program
}

// Error is an error in one field of a check.
type Error struct{ Field, Problem string }

// Error implements error.
func (e *Error) Error() string { return e.Field + ": " + e.Problem }

// environments have the functions of CEL and those that Kubernetes adds, but for those that make longer texts out of
// texts: what they cost is only known once the memory is taken.
var environments = sync.OnceValues(func() (map[string]*cel.Env, error) {
	base, err := cel.NewEnv(cel.OptionalTypes(), library.Lists(), library.Regex(), library.URLs(), library.Quantity(),
		library.IP(), library.CIDR(), library.SemverLib())
	if err != nil {
		return nil, fmt.Errorf("preparing CEL: %w", err)
	}

	out, one := map[string]*cel.Env{}, cel.MapType(cel.StringType, cel.DynType)

	for name, kind := range map[string]*cel.Type{object: one, objects: cel.ListType(one)} {
		if out[name], err = base.Extend(cel.Variable(name, kind)); err != nil {
			return nil, fmt.Errorf("preparing CEL for %s: %w", name, err)
		}
	}

	return out, nil
})

// Compile returns a check that can be evaluated. The error is an *Error if the check has one.
func Compile(c v1alpha1.UpgradeCheck) (*Check, error) {
	if err := checkFields(c); err != nil {
		return nil, err
	}

	envs, err := environments()
	if err != nil {
		return nil, err
	}

	env := envs[variable(c)]

	ast, issues := env.Compile(c.Expression)
	if issues.Err() != nil {
		return nil, &Error{"expression", describe(issues)}
	}

	if ast.OutputType() != cel.BoolType {
		return nil, &Error{"expression", fmt.Sprintf("line 1, column 1: the result has the type %s instead of bool",
			ast.OutputType())}
	}

	program, err := env.Program(ast, cel.CostLimit(maxCost), cel.CostTracking(&library.CostEstimator{}),
		cel.InterruptCheckFrequency(checkTime))
	if err != nil {
		return nil, &Error{"expression", "it cannot be evaluated"}
	}

	return &Check{UpgradeCheck: c, program: program}, nil
}

func variable(c v1alpha1.UpgradeCheck) string {
	if c.Selector != "" {
		return objects
	}

	return object
}

// checkFields checks what a CRD that is older than the operator may have let pass.
func checkFields(c v1alpha1.UpgradeCheck) error {
	gv, err := schema.ParseGroupVersion(c.APIVersion)

	switch {
	case err != nil, gv.Version == "", len(content.IsPathSegmentName(gv.Group)) > 0,
		len(content.IsPathSegmentName(gv.Version)) > 0:
		return &Error{"apiVersion", fmt.Sprintf("%q is not a group and a version, such as apps/v1", c.APIVersion)}
	case gv.Group == "" && c.Kind == "Secret":
		return &Error{"kind", "Secrets are not read, because messages could reveal their values"}
	case (c.ObjectName == "") == (c.Selector == ""):
		return &Error{"objectName", "set objectName or selector, and not both"}
	case len(content.IsPathSegmentName(c.ObjectName)) > 0:
		return &Error{"objectName", fmt.Sprintf("%q is not the name of an object", c.ObjectName)}
	case c.Namespace != "" && len(utilvalidation.IsDNS1123Label(c.Namespace)) > 0:
		return &Error{"namespace", fmt.Sprintf("%q is not the name of a namespace", c.Namespace)}
	}

	if _, err := labels.Parse(c.Selector); err != nil {
		return &Error{"selector", err.Error()}
	}

	return nil
}

// describe returns the first errors of an expression, with their positions.
func describe(issues *cel.Issues) string {
	const few = 3

	var out []string

	for _, e := range issues.Errors() {
		message, _, _ := strings.Cut(e.Message, " (in container")
		out = append(out, fmt.Sprintf("line %d, column %d: %s", e.Location.Line(), e.Location.Column()+1,
			strings.Join(strings.Fields(message), " ")))
	}

	return strings.Join(out[:min(len(out), few)], ", ")
}

// Evaluate says why the check is not satisfied by the objects; empty if it is. refuted: the expression was evaluated,
// and is false; otherwise evidence is missing. No object is no evidence: what holds for all of none would be true
// whatever the selector misses.
func (c *Check) Evaluate(ctx context.Context, found []map[string]any) (why string, refuted bool) {
	if len(found) == 0 {
		return "there is no object to evaluate the expression for", false
	}

	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()

	vars := map[string]any{objects: found}
	if variable(c.UpgradeCheck) == object {
		vars = map[string]any{object: found[0]}
	}

	out, _, err := c.program.ContextEval(ctx, vars)
	if err != nil {
		return refusal(ctx, err), false
	}

	if satisfied, ok := out.Value().(bool); !ok || !satisfied {
		return "the expression is false", true
	}

	return "", false
}

// refusal describes an error of an evaluation without its text, which may hold values of the objects.
func refusal(ctx context.Context, err error) string {
	var cancelled interpreter.EvalCancelledError

	switch {
	case ctx.Err() != nil:
		return "evaluating the expression takes too long for these objects"
	case errors.As(err, &cancelled):
		return "the expression exceeds its cost limit for these objects"
	}

	return "the expression cannot be evaluated: a field that it reads is missing, or a value has another type"
}

// Due returns the checks that are made at one of some times: Before and After.
func Due(o *v1alpha1.UpgradeOptions, at ...v1alpha1.CheckTime) []v1alpha1.UpgradeCheck {
	if o == nil {
		return nil
	}

	return slices.DeleteFunc(slices.Clone(o.Checks), func(c v1alpha1.UpgradeCheck) bool {
		return !slices.Contains(at, c.When) && c.When != v1alpha1.CheckAlways && c.When != ""
	})
}

// Next returns the record of the check that is not satisfied now; nil if each is. One that has not been satisfied
// before keeps its time.
func Next(was *v1alpha1.FailedCheck, name string, now time.Time) *v1alpha1.FailedCheck {
	switch {
	case name == "":
		return nil
	case was != nil && was.Name == name:
		return was
	}

	return &v1alpha1.FailedCheck{Name: name, Since: metav1.NewTime(now.UTC().Truncate(time.Second))}
}
