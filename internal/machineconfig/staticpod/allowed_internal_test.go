package staticpod

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestAllowed: what is allowed exists, and each type that an allowed field leads to has its own fields listed, so that
// whatever is new in a type is refused until that is decided.
func TestAllowed(t *testing.T) {
	t.Parallel()

	seen := map[reflect.Type]bool{}

	var visit func(of reflect.Type)

	visit = func(of reflect.Type) {
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
			of = of.Elem()
		}

		if of.Kind() != reflect.Struct || seen[of] {
			return
		}

		seen[of] = true

		fields, listed := allowed[of]
		if !listed {
			t.Errorf("%s is not listed", of)
		}

		names := map[string]bool{"*": true}

		for i := range of.NumField() {
			f := of.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			names[name] = true

			if fields[name] || f.Anonymous && name == "" {
				visit(f.Type)
			}
		}

		for name := range fields {
			if !names[name] {
				t.Errorf("%s has no field %s", of, name)
			}
		}
	}

	visit(reflect.TypeFor[corev1.Pod]())

	if len(seen) != len(allowed) {
		t.Errorf("%d types are listed, %d are used", len(allowed), len(seen))
	}
}

// TestEachUnknownFieldRefused: each field of a pod spec, a container and their security that is not listed is refused
// with its path.
func TestEachUnknownFieldRefused(t *testing.T) {
	t.Parallel()

	for _, of := range []reflect.Type{
		reflect.TypeFor[corev1.PodSpec](), reflect.TypeFor[corev1.Container](), reflect.TypeFor[corev1.SecurityContext](),
		reflect.TypeFor[corev1.PodSecurityContext](), reflect.TypeFor[corev1.VolumeMount](),
	} {
		for i := range of.NumField() {
			name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
			if _, known := allowed[of][name]; known {
				continue
			}

			value := reflect.New(of)
			fill(value.Elem().Field(i))

			c := checker{}
			c.supported(nil, value)

			if len(c.errs) != 1 || c.errs[0].Field != name {
				t.Errorf("%s.%s: %v", of, name, c.errs)
			}
		}
	}
}

// fill makes a value that is not zero.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	}
}
