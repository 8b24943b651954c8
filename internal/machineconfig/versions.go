package machineconfig

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// imageFields are the fields of the main document whose tags are versions.
var imageFields = [][]string{
	{"machine", "kubelet", "image"},
	{"machine", "install", "image"},
	{"cluster", "apiServer", "image"},
	{"cluster", "controllerManager", "image"},
	{"cluster", "scheduler", "image"},
	{"cluster", "proxy", "image"},
	{"cluster", "etcd", "image"},
	{"cluster", "coreDNS", "image"},
}

const installImage = "machine.install.image"

// KeepImageTags returns the desired config with the versions that live names, because versions belong to upgrades and
// a rollout of a config must never move one. For each image of Kubernetes, etcd, CoreDNS and the Talos installer:
//
//   - Both configs name it, and the repository is the same: live's reference stays.
//   - The repository differs: the desired repository with live's tag. Where live has a digest, or no tag, nothing
//     tells which reference of the other repository is the same version, and live's whole reference stays.
//   - Only live names it: live's reference stays. Without it Talos would take the default of its own release, which may
//     be another version.
//   - Only desired names it: the field goes. The node runs the default of its Talos release, which no config tells, and
//     any reference might be another version.
//
// Released says which versions an upgrade may write all the same, and whether the installer stays as a whole.
//
// So the field of another version never comes or goes with a rollout; an upgrade writes or removes it.
//
// kept names each field that is not as desired: Old is live's reference, New the one that was desired, empty where
// there is none. A caller can say that an upgrade is pending. A live config without a main document, as of a node in
// maintenance, runs no versions, and desired stays as it is. Fields and documents of newer Talos versions pass through;
// if nothing has to be kept, the result is desired, byte for byte. Applied to its own result it changes nothing.
func KeepImageTags(live, desired []byte, may Released) (config []byte, kept []Change, err error) {
	liveDocs, err := splitDocuments(live)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the live config: %s", describe(err)) // the cause may quote secrets
	}

	docs, err := splitDocuments(desired)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the desired config: %s", describe(err)) // the cause may quote secrets
	}

	have, want := mainOf(liveDocs), mainOf(docs)
	if have == nil || want == nil {
		return desired, nil, nil
	}

	kept, changed, err := keepImages(have, want, may)
	if err != nil || !changed {
		return desired, nil, err
	}

	config, err = joinDocuments(docs)
	if err != nil {
		return nil, nil, err
	}

	return config, kept, nil
}

// keepImages changes want. It returns the fields that are not as desired, and whether anything was changed.
func keepImages(have, want *yaml.Node, may Released) (kept []Change, changed bool, err error) {
	// The values after aliases and merge keys, which a config that a person wrote may have.
	before, err := flatten(have)
	if err != nil {
		return nil, false, fmt.Errorf("reading the live config: %s", describe(err)) // the cause may quote secrets
	}

	after, err := flatten(want)
	if err != nil {
		return nil, false, fmt.Errorf("reading the desired config: %s", describe(err)) // the cause may quote secrets
	}

	for _, path := range imageFields {
		field := strings.Join(path, ".")
		old, wanted := before[field], after[field]

		keep, released := may.reference(field, old, wanted)
		if keep == wanted {
			continue
		}

		// Writing below an alias would change every place that uses its anchor. Rendered configs have none.
		if hasAlias(want) {
			return nil, false, errors.New("reading the desired config: it has YAML aliases; write them out")
		}

		setScalarAt(want, path, keep)

		changed = true

		if !released {
			kept = append(kept, Change{Path: field, Old: old, New: wanted})
		}
	}

	return kept, changed, nil
}

func hasAlias(node *yaml.Node) bool {
	return node.Kind == yaml.AliasNode || slices.ContainsFunc(node.Content, hasAlias)
}

// Released are the versions that an upgrade writes into a config.
type Released struct {
	// Talos is the version that runs; empty if that is unknown. Its installer is written whatever tag or digest live
	// names: that moves nothing, and what live names is what ran before the upgrade.
	Talos string
	// Kubernetes is the version that Images get, which are fields such as ImageOf returns. The desired config names Spec.
	Kubernetes, Spec string
	Images           []string
	// KeepInstaller: live's installer stays, repository included, because the machine cannot take the desired one.
	KeepInstaller bool
}

// Installer returns the installer that KeepImageTags writes where live names one and another one is desired.
func (r Released) Installer(live, desired string) string {
	keep, _ := r.reference(installImage, live, desired)

	return keep
}

// reference returns what is written into a field, and whether that is what an upgrade brings.
func (r Released) reference(field, old, wanted string) (keep string, released bool) {
	if field == installImage && r.KeepInstaller {
		return old, false
	}

	// A digest under the tag of what runs is what was installed: another one has not been.
	if was := parseImage(old); field == installImage && was.digest != "" && was.tag == r.Talos {
		return keepVersion(old, wanted), false
	}

	if keep, released = r.release(field, wanted); released {
		return keep, true
	}

	return keepVersion(old, wanted), false
}

// release returns the image that a field gets by an upgrade. ok is false for one that keeps its version: it is not of
// the upgrade, nothing is desired there, or what is desired does not tell which image is that of another version.
func (r Released) release(field, wanted string) (reference string, ok bool) {
	switch {
	case wanted == "":
		return "", false
	case field == installImage && r.Talos != "" && parseImage(wanted).tag == r.Talos:
		return wanted, true
	case !slices.Contains(r.Images, field):
		return "", false
	}

	// Kubelets come with more or fewer files under tags of their own, such as v1.36.2-slim.
	tag := parseImage(wanted).tag

	kind, ok := strings.CutPrefix(tag, r.Spec)
	if !ok || kind != "" && kind[0] != '-' {
		return "", false
	}

	return Retag(wanted, tag, r.Kubernetes+kind)
}

// componentFields are the fields of the images of Kubernetes.
var componentFields = map[v1alpha1.KubernetesComponent]string{
	v1alpha1.ComponentAPIServer: "cluster.apiServer.image", v1alpha1.ComponentScheduler: "cluster.scheduler.image",
	v1alpha1.ComponentControllerManager: "cluster.controllerManager.image",
	v1alpha1.ComponentProxy:             "cluster.proxy.image", v1alpha1.ComponentKubelet: "machine.kubelet.image",
}

// SetVersion writes a version of Kubernetes into the images of those fields that are of its components. They were taken
// over from what ran and name the version of then; a name of the build, as in v1.35.1-slim, stays. An image whose tag
// is no version stays as it is.
func SetVersion(config []byte, version string, fields []string) ([]byte, error) {
	docs, err := splitDocuments(config)
	if err != nil {
		return nil, fmt.Errorf("reading the config: %s", describe(err)) // the cause may quote secrets
	}

	main := mainOf(docs)
	if main == nil {
		return config, nil
	}

	values, err := flatten(main)
	if err != nil {
		return nil, fmt.Errorf("reading the config: %s", describe(err)) // the cause may quote secrets
	}

	changed := false

	for _, field := range componentFields {
		tag := parseImage(values[field]).tag
		if !slices.Contains(fields, field) || !strings.HasPrefix(tag, "v1.") || hasAlias(main) {
			continue
		}

		build := ""
		if at := strings.IndexByte(tag, '-'); at > 0 {
			build = tag[at:]
		}

		if image, ok := Retag(values[field], tag, version+build); ok && image != values[field] {
			setScalarAt(main, strings.Split(field, "."), image)

			changed = true
		}
	}

	if !changed {
		return config, nil
	}

	return joinDocuments(docs)
}

// SetInstaller returns a config with the installer of another version of Talos, where the one that it names has the tag
// of a version. An installer with a digest, or with another tag, stays: which one is that of the version is unknown.
func SetInstaller(config []byte, from, to string) ([]byte, error) {
	docs, err := splitDocuments(config)
	if err != nil {
		return nil, fmt.Errorf("reading the config: %s", describe(err)) // the cause may quote secrets
	}

	main := mainOf(docs)
	if main == nil || hasAlias(main) {
		return config, nil
	}

	image, ok := Retag(scalarOf(child(child(main, "machine"), "install"), "image"), from, to)
	if !ok || from == to {
		return config, nil
	}

	setScalarAt(main, []string{"machine", "install", "image"}, image)

	return joinDocuments(docs)
}

// ImageOf returns the field of a config that names the image of a component.
func ImageOf(component v1alpha1.KubernetesComponent) string { return componentFields[component] }

// ComponentImages returns the images of Kubernetes that a config names.
func ComponentImages(config []byte) (map[v1alpha1.KubernetesComponent]string, error) {
	docs, err := splitDocuments(config)
	if err != nil {
		return nil, fmt.Errorf("reading the config: %s", describe(err)) // the cause may quote secrets
	}

	main := mainOf(docs)
	if main == nil {
		return nil, nil
	}

	values, err := flatten(main)
	if err != nil {
		return nil, fmt.Errorf("reading the config: %s", describe(err)) // the cause may quote secrets
	}

	out := map[v1alpha1.KubernetesComponent]string{}

	for component, field := range componentFields {
		if image := values[field]; image != "" {
			out[component] = image
		}
	}

	return out, nil
}

// keepVersion is the reference that a rollout may write: wanted's repository as far as old's version stays.
func keepVersion(old, wanted string) string {
	if old == "" || wanted == "" {
		return old
	}

	was, is := parseImage(old), parseImage(wanted)
	if was.repository == is.repository || was.digest != "" || was.tag == "" {
		return old
	}

	return is.repository + ":" + was.tag
}

// image is a reference in its parts; tag and digest may be empty.
type image struct{ repository, tag, digest string }

func parseImage(reference string) image {
	out := image{}
	out.repository, out.digest, _ = strings.Cut(reference, "@")

	// A colon before the last slash belongs to the port of the registry.
	name := strings.LastIndex(out.repository, "/") + 1
	if at := strings.LastIndex(out.repository[name:], ":"); at >= 0 {
		out.repository, out.tag = out.repository[:name+at], out.repository[name+at+1:]
	}

	return out
}

func mainOf(docs []document) *yaml.Node {
	for _, doc := range docs {
		if doc.isMain() {
			return doc.node
		}
	}

	return nil
}

// setScalarAt writes a value and what is missing above it; an empty value removes the field.
func setScalarAt(node *yaml.Node, path []string, value string) {
	for _, key := range path[:len(path)-1] {
		next := child(node, key)
		if next == nil || next.Kind != yaml.MappingNode { // null
			removeKey(node, key)

			next = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
			node.Content = append(node.Content, stringNode(key), next)
		}

		node = next
	}

	key := path[len(path)-1]

	switch old := child(node, key); {
	case value == "":
		removeKey(node, key)
	case old == nil:
		node.Content = append(node.Content, stringNode(key), stringNode(value))
	default:
		*old = *stringNode(value)
	}
}

func removeKey(node *yaml.Node, key string) {
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			node.Content = slices.Delete(node.Content, i, i+2)

			return
		}
	}
}

func stringNode(value string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value}

	// The library writes a block whose first line begins with a blank so that it reads another text, or none.
	if strings.Contains(value, "\n") && strings.TrimLeft(value, " \t\n") != value {
		n.Style = yaml.DoubleQuotedStyle
	}

	return n
}
