package machineconfig

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
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
//   - The repository differs: the desired repository with live's tag. Where live has a digest, or no tag at all, nobody
//     can tell which reference of the other repository is the same version, and live's whole reference stays.
//   - Only live names it: live's reference stays. Without it Talos would take the default of its own release, which may
//     be another version.
//   - Only desired names it: the field goes. The node runs the default of its Talos release, which no config tells, and
//     any reference might be another version.
//
// The installer of the Talos version that runs, empty if that is unknown, is written whatever tag live names: it moves
// nothing, and what live names is what ran before an upgrade.
//
// So the field of another version never comes or goes with a rollout; an upgrade writes or removes it.
//
// kept names each field that is not what was wanted: Old is live's reference, New the one that was wanted, empty where
// there is none. A caller can say that an upgrade is pending. A live config without a main document, as of a node in
// maintenance, runs no versions, and desired stays as it is. Fields and documents of newer Talos versions pass through;
// if nothing has to be kept, the result is desired, byte for byte. Applied to its own result it changes nothing.
func KeepImageTags(live, desired []byte, talos string) (config []byte, kept []Change, err error) {
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

	kept, err = keepImages(have, want, talos)
	if err != nil || len(kept) == 0 {
		return desired, nil, err
	}

	config, err = joinDocuments(docs)
	if err != nil {
		return nil, nil, err
	}

	return config, kept, nil
}

// keepImages changes want.
func keepImages(have, want *yaml.Node, talos string) ([]Change, error) {
	// The values after aliases and merge keys, which a config that a person wrote may have.
	before, err := flatten(have)
	if err != nil {
		return nil, fmt.Errorf("reading the live config: %s", describe(err)) // the cause may quote secrets
	}

	after, err := flatten(want)
	if err != nil {
		return nil, fmt.Errorf("reading the desired config: %s", describe(err)) // the cause may quote secrets
	}

	var kept []Change

	for _, path := range imageFields {
		field := strings.Join(path, ".")
		old, wanted := before[field], after[field]

		keep := keepVersion(old, wanted)
		if keep == wanted || field == installImage && runs(old, wanted, talos) {
			continue
		}

		// Writing below an alias would change every place that uses its anchor. Rendered configs have none.
		if hasAlias(want) {
			return nil, errors.New("reading the desired config: it has YAML aliases; write them out")
		}

		setScalarAt(want, path, keep)

		kept = append(kept, Change{Path: field, Old: old, New: wanted})
	}

	return kept, nil
}

func hasAlias(node *yaml.Node) bool {
	return node.Kind == yaml.AliasNode || slices.ContainsFunc(node.Content, hasAlias)
}

// runs reports whether the wanted installer is that of the version that runs, and no digest has to stay for it.
func runs(old, wanted, talos string) bool {
	return talos != "" && parseImage(wanted).tag == talos && parseImage(old).digest == ""
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
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value}
}
