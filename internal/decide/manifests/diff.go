package manifests

import (
	"fmt"

	"github.com/siderolabs/talos/pkg/machinery/textdiff"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Diff returns a difference as a unified diff, with the values of Secrets masked.
func (d Difference) Diff() (string, error) {
	live, want := content(d.Live), content(d.Want)
	if d.Key.Group == "" && d.Key.Kind == "Secret" {
		mask(live, want)
	}

	before, err := text(live)
	if err != nil {
		return "", fmt.Errorf("rendering %s: %w", d.Key, err)
	}

	after, err := text(want)
	if err != nil {
		return "", fmt.Errorf("rendering %s: %w", d.Key, err)
	}

	return textdiff.DiffWithCustomPaths(before, after, "a/"+d.Key.String(), "b/"+d.Key.String())
}

func text(o *unstructured.Unstructured) (string, error) {
	if len(o.Object) == 0 {
		return "", nil
	}

	out, err := yaml.Marshal(o.Object)

	return string(out), err
}

// mask replaces the values of a Secret by what tells no more than whether they differ.
func mask(before, after *unstructured.Unstructured) {
	for _, field := range []string{"data", "stringData"} {
		old, fresh := before.Object[field], after.Object[field]
		maskField(before, field, fresh, " (before)")
		maskField(after, field, old, " (after)")
	}

	for _, o := range []*unstructured.Unstructured{before, after} {
		if marks := o.GetAnnotations(); marks[corev1.LastAppliedConfigAnnotation] != "" {
			marks[corev1.LastAppliedConfigAnnotation] = hidden
			o.SetAnnotations(marks)
		}
	}
}

// hidden stands for a value that is not shown.
const hidden = "***"

func maskField(o *unstructured.Unstructured, field string, other any, changed string) {
	values, ok := o.Object[field].(map[string]any)
	if !ok {
		if o.Object[field] != nil {
			o.Object[field] = hidden
		}

		return
	}

	out, others := make(map[string]any, len(values)), map[string]any{}
	if m, ok := other.(map[string]any); ok {
		others = m
	}

	for name, v := range values {
		out[name] = hidden
		if w, both := others[name]; both && fmt.Sprint(v) != fmt.Sprint(w) {
			out[name] = hidden + changed
		}
	}

	o.Object[field] = out
}
