package v1alpha1

// NotificationType is the format of a notification.
// +kubebuilder:validation:Enum=Generic;Slack
type NotificationType string

// Formats of notifications.
const (
	// NotificationGeneric is a JSON document of the operator's own, which has a version.
	NotificationGeneric NotificationType = "Generic"
	// NotificationSlack is a JSON object with a text, as incoming webhooks of Slack, Mattermost and others take it.
	NotificationSlack NotificationType = "Slack"
)

// NotificationEvent is what a notification tells of a run.
// +kubebuilder:validation:Enum=Started;Finished;Failed;MachineFailed;Waiting
type NotificationEvent string

// Events of a run.
const (
	// NotificationStarted: a run has begun.
	NotificationStarted NotificationEvent = "Started"
	// NotificationFinished: a run has ended without a failure: it succeeded, or was called off.
	NotificationFinished NotificationEvent = "Finished"
	// NotificationFailed: a run has stopped, because machines or a hook failed, and goes on with a retry only; or it has
	// ended after that.
	NotificationFailed NotificationEvent = "Failed"
	// NotificationMachineFailed: the upgrade of a machine has failed, whether or not the run goes on without it.
	NotificationMachineFailed NotificationEvent = "MachineFailed"
	// NotificationWaiting: a run waits for a user: a plan requires approval, the drain of a machine is held, or bootstrap
	// manifests are refused.
	NotificationWaiting NotificationEvent = "Waiting"
)

// UpgradeNotification is a webhook that is told of the runs of upgrades.
type UpgradeNotification struct {
	// type is Generic, a JSON document of the operator's own, or Slack, a JSON object with a text.
	// +required
	Type NotificationType `json:"type,omitempty"`
	// secretRef references the address of the webhook, in a Secret of the namespace of the object. It is read each time a
	// notification is sent. The address begins with https://; http:// is accepted for loopback addresses, and for hosts
	// that --allowed-webhooks names with it.
	// +required
	SecretRef SecretKeyReference `json:"secretRef,omitzero"`
	// events that are sent. Default: all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=5
	Events []NotificationEvent `json:"events,omitempty"`
}
