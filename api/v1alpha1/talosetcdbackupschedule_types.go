package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ScheduleLabel names the TalosEtcdBackupSchedule that a TalosEtcdBackup was made by.
const ScheduleLabel = "talos-operator.io/backup-schedule"

// BeforeDisruptionAnnotation on a TalosEtcdBackup names the TalosControlPlane that waits for it.
const BeforeDisruptionAnnotation = "talos-operator.io/backup-before-disruption"

// ConcurrencyPolicy says what happens when a backup is due and the one before it still runs.
// +kubebuilder:validation:Enum=Forbid;Replace
type ConcurrencyPolicy string

// Concurrency policies. Two backups of one cluster never run at once.
const (
	// ConcurrencyForbid lets the running one end and skips the new one. It is the default.
	ConcurrencyForbid ConcurrencyPolicy = "Forbid"
	// ConcurrencyReplace ends the running one.
	ConcurrencyReplace ConcurrencyPolicy = "Replace"
)

// TalosEtcdBackupScheduleSpec describes backups that are taken again and again.
// +kubebuilder:validation:XValidation:rule="self.backupTemplate.spec.controlPlaneRef == oldSelf.backupTemplate.spec.controlPlaneRef",message="controlPlaneRef is immutable"
type TalosEtcdBackupScheduleSpec struct {
	// schedule in the format of cron: minute, hour, day of month, month, day of week; or @hourly, @daily, @weekly, @monthly.
	// +required
	// +kubebuilder:validation:MinLength=6
	// +kubebuilder:validation:MaxLength=128
	Schedule string `json:"schedule,omitempty"`
	// timeZone of the schedule, for example Europe/Oslo. Default: UTC.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`
	// jitter puts each backup off by up to this long, by the same part of it each time, so that many schedules of one
	// estate do not start at once. Default: 0.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('24h')",message="jitter must be between 0 and 24h"
	Jitter *metav1.Duration `json:"jitter,omitempty"`
	// concurrencyPolicy says what happens when the backup before still runs. Default: Forbid.
	// +optional
	ConcurrencyPolicy ConcurrencyPolicy `json:"concurrencyPolicy,omitempty"`
	// suspend stops new backups. Running ones go on.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
	// startingDeadline is how late a backup may start when its time was missed, because the operator was down for example.
	// Default: until the next one is due.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s')",message="startingDeadline must be 10s at least"
	StartingDeadline *metav1.Duration `json:"startingDeadline,omitempty"`
	// maxAge is how old the last good backup may be before the condition RecoveryPointMet is False. Default: not watched.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m')",message="maxAge must be 1m at least"
	MaxAge *metav1.Duration `json:"maxAge,omitempty"`
	// retention says which backups in the store are kept. Default: all.
	// +optional
	Retention *BackupRetention `json:"retention,omitempty"`
	// verification of backups that lie in the store already, on a schedule of its own.
	// +optional
	Verification *ScheduledVerification `json:"verification,omitempty"`
	// successfulHistory is how many TalosEtcdBackups of good backups are kept; the data in the store is kept by retention.
	// Default: 5.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	SuccessfulHistory *int32 `json:"successfulHistory,omitempty"`
	// failedHistory is how many TalosEtcdBackups of failed backups are kept. Default: 3.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	FailedHistory *int32 `json:"failedHistory,omitempty"`
	// backupTemplate is what each TalosEtcdBackup is made from.
	// +required
	BackupTemplate TalosEtcdBackupTemplate `json:"backupTemplate,omitzero"`
}

// TalosEtcdBackupTemplate is what TalosEtcdBackups are made from.
type TalosEtcdBackupTemplate struct {
	// spec of the TalosEtcdBackup.
	// +required
	Spec TalosEtcdBackupSpec `json:"spec,omitzero"`
}

// BackupRetention says which backups of the cluster in the store are kept: those that any of the counts keeps, of this
// schedule or of another one for the same store. The last verified one, those of TalosEtcdBackups that no schedule made,
// locked ones, and what others wrote are never deleted.
// +kubebuilder:validation:MinProperties=1
type BackupRetention struct {
	// last is how many of the newest are kept.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Last *int32 `json:"last,omitempty"`
	// hourly is for how many hours with a backup the newest of each is kept.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Hourly *int32 `json:"hourly,omitempty"`
	// daily does so for days, in UTC.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Daily *int32 `json:"daily,omitempty"`
	// weekly does so for weeks of ISO 8601.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Weekly *int32 `json:"weekly,omitempty"`
	// monthly does so for months.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Monthly *int32 `json:"monthly,omitempty"`
}

// ScheduledVerification verifies the newest backup in the store again and again.
type ScheduledVerification struct {
	// schedule in the format of cron, in the time zone of the backups.
	// +required
	// +kubebuilder:validation:MinLength=6
	// +kubebuilder:validation:MaxLength=128
	Schedule string `json:"schedule,omitempty"`

	BackupVerification `json:",inline"`
}

// TalosEtcdBackupScheduleStatus is what became of a schedule.
type TalosEtcdBackupScheduleStatus struct {
	// conditions: Ready, RecoveryPointMet where maxAge is set, Verified where verification is set, RetentionApplied where
	// retention is set, and Reconciling, Stalled, Paused while they are true.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation of the spec that the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// lastScheduleTime is the time of the schedule that was handled last.
	// +optional
	LastScheduleTime *metav1.Time `json:"lastScheduleTime,omitempty"`
	// nextScheduleTime is when the next backup begins, jitter included.
	// +optional
	NextScheduleTime *metav1.Time `json:"nextScheduleTime,omitempty"`
	// lastSuccessTime is when the newest good backup was complete.
	// +optional
	LastSuccessTime *metav1.Time `json:"lastSuccessTime,omitempty"`
	// lastSuccessBackup is its TalosEtcdBackup.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	LastSuccessBackup string `json:"lastSuccessBackup,omitempty"`
	// active is the TalosEtcdBackup that runs now.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Active string `json:"active,omitempty"`
	// stored is what retention found in the store when it last looked.
	// +optional
	Stored *StoredBackups `json:"stored,omitempty"`
	// verification is the last one that succeeded of the schedule's own.
	// +optional
	Verification *VerificationStatus `json:"verification,omitempty"`
	// lastVerificationTime is the time of the verification schedule that was handled last.
	// +optional
	LastVerificationTime *metav1.Time `json:"lastVerificationTime,omitempty"`
}

// StoredBackups is what lies in the store for one cluster.
type StoredBackups struct {
	// count of complete backups.
	// +required
	Count int32 `json:"count"`
	// size of all their objects.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`
	// oldest complete backup.
	// +optional
	Oldest *metav1.Time `json:"oldest,omitempty"`
	// newest complete backup.
	// +optional
	Newest *metav1.Time `json:"newest,omitempty"`
	// time of the look.
	// +required
	Time metav1.Time `json:"time,omitzero"`
}

// TalosEtcdBackupSchedule takes backups of a cluster on a schedule, keeps as many as it should, and watches that they
// are good.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=tebs,categories=talos
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Control Plane",type=string,JSONPath=`.spec.backupTemplate.spec.controlPlaneRef.name`
// +kubebuilder:printcolumn:name="Schedule",type=string,JSONPath=`.spec.schedule`
// +kubebuilder:printcolumn:name="Suspended",type=boolean,JSONPath=`.spec.suspend`
// +kubebuilder:printcolumn:name="Last Success",type=date,JSONPath=`.status.lastSuccessTime`
// +kubebuilder:printcolumn:name="Next",type=string,JSONPath=`.status.nextScheduleTime`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type TalosEtcdBackupSchedule struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is wanted.
	// +required
	Spec TalosEtcdBackupScheduleSpec `json:"spec,omitzero"`
	// status is what was seen.
	// +optional
	Status TalosEtcdBackupScheduleStatus `json:"status,omitzero"`
}

// TalosEtcdBackupScheduleList is a list of backup schedules.
//
// +kubebuilder:object:root=true
type TalosEtcdBackupScheduleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TalosEtcdBackupSchedule `json:"items"`
}
