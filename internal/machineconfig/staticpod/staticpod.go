// Package staticpod reads the static pods of a machine, and checks them with rules after those of the kubelet: fields
// without a rule are refused. A kubelet gets all static
// pods of its machine as one list and refuses the whole list for one pod that is invalid, on a control-plane machine
// together with the pods of the control plane: those that run stay, and none of them starts after the next reboot.
// Talos checks nothing, so it is done here.
package staticpod

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	talosv1alpha1 "github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubejson "sigs.k8s.io/json"
)

// Root is the name of the field, with which the paths of errors begin.
const Root = "staticPods"

// longest is the maximum size of a pod, in bytes.
const longest = 64 << 10

// Name identifies a static pod on its machine. The kubelet adds the name of the node to that of the pod.
type Name struct{ Namespace, Name string }

// String returns namespace/name.
func (n Name) String() string { return n.Namespace + "/" + n.Name }

// id is what Talos calls the pod in its resources.
func (n Name) id() string { return n.Namespace + "-" + n.Name }

// controlPlane are the pods that Talos makes on control-plane machines. Their IDs have no namespace.
var controlPlane = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}

// NameOf returns the name of a pod, with the namespace that the kubelet fills in. ok is false if it cannot be read, or
// is missing.
func NameOf(pod runtime.RawExtension) (name Name, ok bool) {
	var partial struct {
		Metadata struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		} `json:"metadata"`
	}

	if err := kubejson.UnmarshalCaseSensitivePreserveInts(pod.Raw, &partial); err != nil {
		return Name{}, false
	}

	return nameOf(partial.Metadata.Namespace, partial.Metadata.Name)
}

// NameOfObject is NameOf for a pod of a machine config.
func NameOfObject(pod map[string]any) (name Name, ok bool) {
	metadata, _ := pod["metadata"].(map[string]any)
	namespace, _ := metadata["namespace"].(string)
	own, _ := metadata["name"].(string)

	return nameOf(namespace, own)
}

func nameOf(namespace, name string) (Name, bool) {
	return Name{Namespace: cmp.Or(namespace, corev1.NamespaceDefault), Name: name}, name != ""
}

// Merge returns the pods of a group, replaced by those of the machine that have the same names, sorted by their names.
func Merge(group, machine []runtime.RawExtension) []runtime.RawExtension {
	own := map[Name]bool{}

	for _, pod := range machine {
		if name, ok := NameOf(pod); ok {
			own[name] = true
		}
	}

	out := slices.DeleteFunc(slices.Clone(group), func(pod runtime.RawExtension) bool {
		name, ok := NameOf(pod)

		return ok && own[name]
	})
	out = append(out, machine...)

	slices.SortStableFunc(out, func(a, b runtime.RawExtension) int {
		first, _ := NameOf(a)
		second, _ := NameOf(b)

		return strings.Compare(first.String(), second.String())
	})

	return out
}

// Objects returns the pods as a machine config has them. They have passed Check.
func Objects(pods []runtime.RawExtension) ([]talosv1alpha1.Unstructured, error) {
	var out []talosv1alpha1.Unstructured

	for i, pod := range pods {
		object := map[string]any{}
		if err := kubejson.UnmarshalCaseSensitivePreserveInts(pod.Raw, &object); err != nil {
			return nil, fmt.Errorf("reading static pod %d: %w", i, err)
		}

		out = append(out, talosv1alpha1.Unstructured{Object: object})
	}

	return out, nil
}

// Check returns what a kubelet is known to refuse, what has no rule here, and what can have no effect, or nothing.
// kubePrism is the port of the local endpoint of the Kubernetes API on the machines; 0 for none. The
// paths of the errors begin with root and name pods by namespace and name. No error holds the value of a variable, an
// argument or an annotation.
func Check(root *field.Path, pods []runtime.RawExtension, kubePrism int32) field.ErrorList {
	c := checker{kubePrism: kubePrism, names: map[Name]bool{}, ids: map[string]string{}, hostPorts: map[hostPort][]claim{}}

	for i, raw := range pods {
		at := root.Index(i)
		if name, ok := NameOf(raw); ok {
			at = root.Key(name.String())
		}

		if pod := c.decode(at, raw); pod != nil {
			c.pod(at, pod)
		}
	}

	slices.SortStableFunc(c.errs, func(a, b *field.Error) int {
		return cmp.Or(strings.Compare(a.Field, b.Field), strings.Compare(a.Detail, b.Detail))
	})

	return c.errs
}

// checker remembers what only one pod of a machine may have.
type checker struct {
	kubePrism int32
	errs      field.ErrorList
	names     map[Name]bool
	ids       map[string]string
	hostPorts map[hostPort][]claim
}

func (c *checker) add(errs ...*field.Error) { c.errs = append(c.errs, errs...) }

// invalid adds what a rule of Kubernetes says about a value.
func (c *checker) invalid(at *field.Path, value any, problems []string) {
	for _, problem := range problems {
		c.add(field.Invalid(at, value, problem))
	}
}

// decode reads a pod strictly: what the kubelet would drop silently is an error.
func (c *checker) decode(at *field.Path, raw runtime.RawExtension) *corev1.Pod {
	if len(raw.Raw) > longest {
		c.add(field.TooLong(at, "", longest))

		return nil
	}

	pod := &corev1.Pod{}

	unknown, err := kubejson.UnmarshalStrict(raw.Raw, pod)
	if err != nil {
		c.add(field.Forbidden(at, "is not a Pod: "+err.Error()))

		return nil
	}

	for _, problem := range unknown {
		c.add(field.Forbidden(at, "is not a Pod as Kubernetes reads it: "+problem.Error()+meant(problem.Error())))
	}

	if pod.Namespace == "" {
		pod.Namespace = corev1.NamespaceDefault
	}

	return pod
}

func (c *checker) pod(at *field.Path, pod *corev1.Pod) {
	if pod.APIVersion != "v1" || pod.Kind != "Pod" {
		c.add(field.Forbidden(at, `needs apiVersion "v1" and kind "Pod"`))
	}

	c.name(at.Child("metadata"), Name{pod.Namespace, pod.Name})
	c.metadata(at.Child("metadata"), pod)
	c.spec(at.Child("spec"), &pod.Spec)
	c.supported(at, reflect.ValueOf(pod))

	if pod.Status.Phase != "" || len(pod.Status.Conditions)+len(pod.Status.ContainerStatuses) > 0 {
		c.add(field.Forbidden(at.Child("status"), "is set by the kubelet; remove it"))
	}
}

func (c *checker) name(at *field.Path, name Name) {
	if name.Name == "" {
		return // metadata says so
	}

	first, taken := c.ids[name.id()]

	switch {
	case c.names[name]:
		c.add(field.Invalid(at.Child("name"), name.String(), "is the name of two static pods; rename one of them"))
	case name.Namespace == "kube-system" && slices.Contains(controlPlane, name.Name),
		slices.Contains(controlPlane, name.id()):
		c.add(field.Invalid(at.Child("name"), name.String(),
			"is the name of a pod that Talos runs on control-plane machines; rename the pod"))
	case taken:
		c.add(field.Invalid(at.Child("name"), name.String(),
			"is for Talos the same pod as "+first+", because it calls both "+name.id()+"; rename one of them"))
	}

	c.names[name], c.ids[name.id()] = true, name.String()
}
