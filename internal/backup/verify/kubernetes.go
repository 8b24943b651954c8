package verify

import (
	"bytes"
	"maps"
	"slices"
	"strings"
)

// Prefixes under which Kubernetes stores its objects.
const (
	registry         = "/registry/"
	namespacesPrefix = registry + "namespaces/"
	nodesPrefix      = registry + "minions/"
	secretsPrefix    = registry + "secrets/"
)

// encryptedPrefix is the prefix of every value that Kubernetes encrypted.
var encryptedPrefix = []byte("k8s:enc:")

func isEncrypted(value []byte) bool { return bytes.HasPrefix(value, encryptedPrefix) }

// objects are the live keys while the revisions are visited. Of a value it keeps one bit: whether it is encrypted.
type objects struct {
	live              map[string]bool
	resources         map[string]int64
	namespaces, nodes int64
	encrypted, plain  int64
}

func newObjects() *objects {
	return &objects{live: map[string]bool{}, resources: map[string]int64{}}
}

func (o *objects) total() int64 { return int64(len(o.live)) }

func (o *objects) put(key string, value []byte) {
	old, found := o.live[key]
	encrypted := isEncrypted(value)
	o.live[key] = encrypted

	if found {
		o.count(key, old, -1)
	}

	o.count(key, encrypted, 1)
}

func (o *objects) remove(key string) {
	if old, found := o.live[key]; found {
		delete(o.live, key)
		o.count(key, old, -1)
	}
}

func (o *objects) count(key string, encrypted bool, by int64) {
	if !strings.HasPrefix(key, registry) {
		return
	}

	o.resources[o.kind(key)] += by

	switch {
	case strings.HasPrefix(key, namespacesPrefix):
		o.namespaces += by
	case strings.HasPrefix(key, nodesPrefix):
		o.nodes += by
	case strings.HasPrefix(key, secretsPrefix) && encrypted:
		o.encrypted += by
	case strings.HasPrefix(key, secretsPrefix):
		o.plain += by
	}
}

// kind returns the kind under which an object is counted. A kind with a count of its own keeps it, so that a removal is
// subtracted from the same count.
func (o *objects) kind(key string) string {
	first, rest, _ := strings.Cut(strings.TrimPrefix(key, registry), "/")

	// API groups contain dots, and the keys of Services have one more part than those of other kinds.
	if strings.Contains(first, ".") || first == "services" {
		second, _, _ := strings.Cut(rest, "/")
		first += "/" + second
	}

	if _, known := o.resources[first]; known {
		return first
	}

	if len(o.resources) >= maxResources || !resource.MatchString(first) {
		return otherResources
	}

	return strings.Clone(first)
}

func (o *objects) result() *KubernetesReport {
	maps.DeleteFunc(o.resources, func(_ string, count int64) bool { return count == 0 })

	return &KubernetesReport{
		Namespaces: o.namespaces, NamespaceNames: o.names(namespacesPrefix), Nodes: o.nodes,
		NodeNames: o.names(nodesPrefix), Resources: o.resources, EncryptedSecrets: o.encrypted, PlainSecrets: o.plain,
	}
}

// names returns the names of the live objects below a prefix, as far as they can be printed.
func (o *objects) names(prefix string) []string {
	var names []string

	for key := range o.live {
		if name, found := strings.CutPrefix(key, prefix); found && dnsName.MatchString(name) {
			names = append(names, name)
		}
	}

	slices.Sort(names)

	return names[:min(len(names), maxNames)]
}
