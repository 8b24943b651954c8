// Command annotations writes the admission policy that refuses unknown annotations of the operator.
package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"text/template"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// The API server evaluates the policy itself: there is no webhook that could be down. Only annotations that a request
// adds are checked, so that an object which has an unknown one can still be changed.
const policy = `# Generated from api/v1alpha1/annotations.go by make generate.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: talos-operator-annotations
spec:
  failurePolicy: Ignore
  matchConstraints:
    resourceRules:
      - apiGroups: [talos-operator.io]
        apiVersions: ["*"]
        operations: [CREATE, UPDATE]
        resources: ["*"]
      - apiGroups: [vitistack.io]
        apiVersions: ["*"]
        operations: [CREATE, UPDATE]
        resources: [kubernetesclusters, machines]
  variables:
    - name: known
      expression: |-
        {
{{- range $i, $a := .}}{{if $i}},{{end}}
          '{{$a.Name}}': [{{range $j, $k := $a.Kinds}}{{if $j}}, {{end}}'{{$k}}'{{end}}]
{{- end}}
        }
    - name: before
      expression: |-
        oldObject != null && has(oldObject.metadata.annotations) ? oldObject.metadata.annotations : {}
    - name: wrong
      expression: |-
        has(object.metadata.annotations) ? object.metadata.annotations.filter(name,
          name.startsWith('{{prefix}}') && !(name in variables.before) &&
          !(name in variables.known && request.kind.kind in variables.known[name])) : []
  validations:
    - expression: variables.wrong.size() == 0
      reason: Invalid
      messageExpression: |-
        'the annotation ' + variables.wrong[0] + ' has no effect on a ' + request.kind.kind + '; those of a ' +
        request.kind.kind + ' are: ' +
        variables.known.filter(name, request.kind.kind in variables.known[name]).join(', ')
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: talos-operator-annotations
spec:
  policyName: talos-operator-annotations
  validationActions: [Deny]
`

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: annotations OUTPUT")
		os.Exit(2)
	}

	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func write(output string) error {
	t, err := template.New("policy").Funcs(template.FuncMap{
		"prefix": func() string { return v1alpha1.AnnotationPrefix },
	}).Parse(policy)
	if err != nil {
		return fmt.Errorf("reading the template: %w", err)
	}

	var out bytes.Buffer
	if err := t.Execute(&out, v1alpha1.Annotations()); err != nil {
		return fmt.Errorf("writing the policy: %w", err)
	}

	return os.WriteFile(output, []byte(strings.TrimLeft(out.String(), "\n")), 0o600)
}
