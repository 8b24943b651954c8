package manifests

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/talos-operator/talos-operator/internal/decide/change"
)

// Action is what makes an object equal to the manifests.
type Action string

// Actions.
const (
	Create Action = "create"
	Change Action = "change"
	Delete Action = "delete"
)

// Difference is an object that differs from the manifests.
type Difference struct {
	Key    Key
	Action Action
	// Live is the object as it is; nil if it does not exist. Want is what it becomes; nil if it is deleted.
	Live, Want *unstructured.Unstructured
}

// Reasons of manifests that are refused. ManifestsRefused names them in parentheses; others are those of the API
// server.
const (
	// ReasonUnreadable: a manifest has no kind.
	//
	// Next: repair the manifest in the configuration.
	ReasonUnreadable = "Unreadable"
	// ReasonInvalidName: an object has no name, or one that no object can have.
	//
	// Next: repair the manifest in the configuration.
	ReasonInvalidName = "InvalidName"
	// ReasonInvalidSecret: a Secret has a value that is no text, such as an unquoted number.
	//
	// Next: quote the value in the configuration.
	ReasonInvalidSecret = "InvalidSecret"
	// ReasonUnknownKind: the cluster does not serve this kind.
	//
	// Next: install its CustomResourceDefinition, or remove the manifest.
	ReasonUnknownKind = "UnknownKind"
	// ReasonOtherInventory: the object belongs to another owner, which keeps an inventory of its own.
	//
	// Next: remove it from one of the two.
	ReasonOtherInventory = "OtherInventory"
)

// Refusal is an object that the API server refuses.
type Refusal struct {
	Key Key
	// Reason in one word, such as Invalid: it tells nothing of the content.
	Reason string
	// Message of the API server, which may quote the object.
	Message string
}

// Shown returns why an object is refused, for users of a terminal. The message about a Secret may quote its values.
func (r Refusal) Shown() string {
	if r.Message == "" || r.Key.Kind == "Secret" {
		return r.Reason
	}

	return r.Message
}

// Outcome is what was found, and done if that was requested.
type Outcome struct {
	Differences []Difference
	Refused     []Refusal
	// Kept are objects that the manifests no longer have, and that are not deleted.
	Kept []Kept
	// Withheld are objects that would be deleted if there were evidence that no machine has them. Uncertain is why there
	// is none.
	Withheld  []Key
	Uncertain string
	// Left are fields that other managers own with another value than the manifests have.
	Left []Left
}

// Kept is an object that is never deleted, and why.
type Kept struct {
	Key    Key
	Reason string
}

// Left is a field of an object that its manager keeps.
type Left struct {
	Key           Key
	Manager, Path string
}

// String names the field, and never its value.
func (l Left) String() string { return fmt.Sprintf("%s%s (%s)", l.Key, l.Path, l.Manager) }

// image reports whether a field is the image of a container: then the cluster runs another version than the manifests
// have.
func (l Left) image() bool {
	return strings.HasSuffix(l.Path, ".image") && strings.Contains(strings.ToLower(l.Path), "containers[")
}

// Names returns the objects that differ, those that were refused, and those whose images others own, sorted and at most
// a number of them.
func (o Outcome) Names(most int) []string {
	var out []string

	for _, d := range o.Differences {
		out = append(out, d.Key.String())
	}

	for _, r := range o.Refused {
		out = append(out, r.Key.String())
	}

	for _, l := range o.Left {
		if l.image() {
			out = append(out, l.Key.String())
		}
	}

	slices.Sort(out)
	out = slices.Compact(out)

	return out[:min(len(out), most)]
}

// Count returns how many objects differ or were refused.
func (o Outcome) Count() int { return len(o.Names(len(o.Differences) + len(o.Refused) + len(o.Left))) }

func (o Outcome) refuses(key Key) bool {
	return slices.ContainsFunc(o.Refused, func(r Refusal) bool { return r.Key == key })
}

// Refusals names what was refused and why, without any content.
func (o Outcome) Refusals() string {
	out := make([]string, 0, len(o.Refused))
	for _, r := range o.Refused {
		out = append(out, fmt.Sprintf("%s (%s)", r.Key, r.Reason))
	}

	slices.Sort(out)

	return change.List(out)
}

// Report says for users how many objects differ; empty if none does.
func (o Outcome) Report(version string) string {
	n := o.Count()
	if n == 0 {
		return ""
	}

	objects := "objects differ"
	if n == 1 {
		objects = "object differs"
	}

	return fmt.Sprintf("%d %s from the bootstrap manifests of Kubernetes %s: %s; set upgrade.manifests to Apply, or see "+
		"talos-operator upgrade manifests", n, objects, version, change.List(o.Names(n)))
}

// Waits says for users what an upgrade that applies the manifests waits for.
func (o Outcome) Waits(version string) string {
	if len(o.Refused) == 0 {
		return ""
	}

	return fmt.Sprintf("the API server refuses bootstrap manifests of Kubernetes %s, which are retried: %s; see "+
		"talos-operator upgrade manifests, or set upgrade.manifests to Report", version, o.Refusals())
}

// Fields names the fields that were left to others; empty if none were.
func (o Outcome) Fields() string {
	out := make([]string, 0, len(o.Left))
	for _, l := range o.Left {
		out = append(out, l.String())
	}

	slices.Sort(out)

	return change.List(out)
}

// Unchanged says for users what stays as it is although the manifests have it otherwise; empty if nothing does.
func (o Outcome) Unchanged() string {
	var out []string

	if fields := o.Fields(); fields != "" {
		out = append(out, "fields that other managers own are left to them: "+fields)
	}

	if len(o.Withheld) > 0 {
		names := make([]string, 0, len(o.Withheld))
		for _, k := range o.Withheld {
			names = append(names, k.String())
		}

		slices.Sort(names)
		out = append(out, fmt.Sprintf("%s: not deleted without evidence that no control-plane machine has it among its "+
			"manifests: %s", change.List(names), o.Uncertain))
	}

	return strings.Join(out, "; ")
}
