// Package keyref has what the fields have in common that name a key of a Secret or a ConfigMap, whose content
// becomes a part of the machine configuration.
package keyref

import (
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// Ref is a field that names a key.
type Ref struct {
	// Field is the path of the field, for example network.interfaces[0].wireguard.privateKeyFrom.
	Field string
	// Kind of what it names. Empty for a Secret.
	Kind v1alpha1.ConfigPatchSourceKind
	// From is what it names.
	From v1alpha1.SecretKeyReference
	// Document and Path are where the value is in the configuration of a cluster with documents.
	Document, Path string
	// Legacy is where it is in the main document, if there is no such document.
	Legacy string
	// Form is what the value has to be, for people, and Fits whether it is.
	Form string
	Fits func(value string) bool
	// Exact keeps blanks at the ends of a value. Line breaks there are those of editors, and never kept.
	Exact bool
}

// IsOpen tells whether the value may be shown.
func (r Ref) IsOpen() bool { return r.Kind == v1alpha1.ConfigPatchFromConfigMap }

// Value returns what the content of the key means, or what is wrong with it, without quoting it.
func (r Ref) Value(content []byte) (string, error) {
	value := strings.TrimRight(string(content), "\r\n")
	if !r.Exact {
		value = strings.TrimSpace(value)
	}

	if !r.Fits(value) {
		return "", errors.New("is not " + r.Form)
	}

	return value, nil
}

// Values are those that were read, by Ref.Field.
type Values map[string]string

// At returns the value of a field, and adds one without a value to the errors.
func (v Values) At(path *field.Path, errs *field.ErrorList) string {
	value, ok := v[path.String()]
	if !ok {
		*errs = append(*errs, field.Required(path, "what it names was not read"))
	}

	return value
}
