package notification

import (
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// Version of the documents of type Generic. Fields may be added to it, and a receiver ignores those that it does not
// know; everything else is another version.
const Version = "notifications.talos-operator.io/v1"

// Run is the record that a notification is about. Kind, name and versions are empty where no run has begun: UID is that
// of the control plane then.
type Run struct {
	Namespace, Name, UID, Kind string
	Spec                       *v1alpha1.UpgradeRunSpec
}

// document is a notification of type Generic.
type document struct {
	APIVersion string                     `json:"apiVersion"`
	Kind       string                     `json:"kind"`
	ID         string                     `json:"id"`
	Event      v1alpha1.NotificationEvent `json:"event"`
	Time       metav1.Time                `json:"time"`
	Text       string                     `json:"text"`
	Cluster    cluster                    `json:"cluster"`
	Run        run                        `json:"run"`
}

type cluster struct {
	Namespace    string `json:"namespace"`
	ControlPlane string `json:"controlPlane"`
}

type run struct {
	Kind      string                   `json:"kind"`
	Name      string                   `json:"name"`
	From      string                   `json:"from"`
	To        string                   `json:"to"`
	Schematic string                   `json:"schematic,omitempty"`
	Phase     v1alpha1.UpgradeRunPhase `json:"phase"`
	Message   string                   `json:"message,omitempty"`
	Machines  machines                 `json:"machines"`
}

type machines struct {
	Total  int32 `json:"total"`
	Done   int32 `json:"done"`
	Failed int32 `json:"failed"`
}

// ID of a transition. Each repetition has the same.
func (r Run) ID(e *Entry) string { return fmt.Sprintf("%s-%d", r.UID, e.Number) }

// Body is what is sent of a transition. It is the same in each attempt.
func (r Run) Body(as v1alpha1.NotificationType, e *Entry) ([]byte, error) {
	if as == v1alpha1.NotificationSlack {
		return json.Marshal(map[string]string{"text": escape.Replace(r.text(e))})
	}

	return json.Marshal(document{
		APIVersion: Version, Kind: "UpgradeNotification", ID: r.ID(e), Event: e.Event, Time: e.Time, Text: r.text(e),
		Cluster: cluster{Namespace: r.Namespace, ControlPlane: r.Spec.ControlPlaneRef.Name},
		Run: run{
			Kind: r.Kind, Name: r.Name, From: r.Spec.From, To: r.Spec.To, Schematic: r.Spec.Schematic, Phase: e.Phase,
			Message: e.Message, Machines: machines{Total: e.Total, Done: e.Done, Failed: e.Failed},
		},
	})
}

// escape keeps a message, which may come from a node, from being markup of Slack: <!channel> alerts all members.
var escape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// text is a transition in one sentence.
func (r Run) text(e *Entry) string {
	if e.Target != "" { // its message says what to do
		return fmt.Sprintf("Cluster %s/%s: the upgrade to %s is waiting for a user: %s", r.Namespace,
			r.Spec.ControlPlaneRef.Name, e.Target, e.Message)
	}

	about := fmt.Sprintf("Cluster %s/%s: the upgrade of %s from %s to %s", r.Namespace, r.Spec.ControlPlaneRef.Name,
		strings.TrimSuffix(r.Kind, "Upgrade"), r.Spec.From, r.Spec.To)

	if r.Spec.From == r.Spec.To { // only the schematic changes
		to := "to schematic " + r.Spec.Schematic
		if r.Spec.Schematic == "" {
			to = "that removes the schematic"
		}

		about = fmt.Sprintf("Cluster %s/%s: the upgrade of Talos %s %s", r.Namespace, r.Spec.ControlPlaneRef.Name,
			r.Spec.To, to)
	}

	done := fmt.Sprintf(" (%d of %d machines done)", e.Done, e.Total)

	switch {
	case e.Event == v1alpha1.NotificationStarted:
		return about + " has started" + done
	case e.Event == v1alpha1.NotificationMachineFailed:
		return about + " has failed on machines" + done + ": " + e.Message +
			"; repair each, then run talos-operator retry MACHINE"
	case e.Phase == v1alpha1.UpgradeRunSucceeded:
		return about + " has succeeded" + done
	case e.Phase == v1alpha1.UpgradeRunCalledOff:
		return about + " was called off" + done + ": " + e.Message
	case e.Phase == v1alpha1.UpgradeRunFailed:
		return about + " has failed" + done + ": " + e.Message
	case e.Phase == v1alpha1.UpgradeRunStopped && e.Hook: // its message says what to do
		return about + " has stopped" + done + ": " + e.Message
	case e.Phase == v1alpha1.UpgradeRunStopped:
		return about + " has stopped" + done + ": " + e.Message +
			"; repair the machine, then continue with talos-operator retry MACHINE"
	case e.Manifests, e.Held: // its message says what to do, too
		return about + " is waiting for a user" + done + ": " + e.Message
	}

	return about + " is waiting for a user" + done + ": " + e.Message +
		"; approve it with talos-operator approve CLUSTER"
}
