package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ScheduleLabel names the TalosEtcdBackupSchedule that created a TalosEtcdBackup.
const ScheduleLabel = "talos-operator.io/backup-schedule"

// BeforeDisruptionAnnotation on a TalosEtcdBackup names the TalosControlPlane that waits for it.
const BeforeDisruptionAnnotation = "talos-operator.io/backup-before-disruption"

// ConcurrencyPolicy determines what happens when a backup is due while the previous one is still running.
// +kubebuilder:validation:Enum=Forbid;Replace
type ConcurrencyPolicy string

// Concurrency policies. Two backups of one cluster never run at the same time.
const (
	// ConcurrencyForbid lets the running backup finish and skips the new one. It is the default.
	ConcurrencyForbid ConcurrencyPolicy = "Forbid"
	// ConcurrencyReplace cancels the running backup.
	ConcurrencyReplace ConcurrencyPolicy = "Replace"
)

// TalosEtcdBackupScheduleSpec describes backups that are taken on a schedule.
// +kubebuilder:validation:XValidation:rule="self.backupTemplate.spec.controlPlaneRef == oldSelf.backupTemplate.spec.controlPlaneRef",message="controlPlaneRef is immutable"
type TalosEtcdBackupScheduleSpec struct {
	// schedule in cron format: minute, hour, day of month, month, day of week; or @hourly, @daily, @weekly, @monthly.
	// +required
	// +kubebuilder:validation:MinLength=6
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Schedule string `json:"schedule,omitempty"`
	// timeZone of the schedule, for example Europe/Oslo. Default: UTC.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	TimeZone string `json:"timeZone,omitempty"`
	// jitter is the maximum delay of each backup, so that the schedules of a fleet do not all start at once. A schedule
	// delays each of its backups by the same fraction of it. Default: 0.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('24h')",message="jitter must be between 0 and 24h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	Jitter *metav1.Duration `json:"jitter,omitempty"`
	// concurrencyPolicy determines what happens when the previous backup is still running. Default: Forbid.
	// +optional
	ConcurrencyPolicy ConcurrencyPolicy `json:"concurrencyPolicy,omitempty"`
	// suspend stops new backups. Running backups continue.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
	// startingDeadline is how late a backup may start when its scheduled time was missed, for example because the operator
	// was down. Default: until the next backup is due.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s')",message="startingDeadline must be at least 10s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	StartingDeadline *metav1.Duration `json:"startingDeadline,omitempty"`
	// maxAge is the maximum age of the last good backup before the condition RecoveryPointMet becomes False. Default: the
	// age is not monitored.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m')",message="maxAge must be at least 1m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	MaxAge *metav1.Duration `json:"maxAge,omitempty"`
	// retention determines which backups in the store are kept. Default: all.
	// +optional
	Retention *BackupRetention `json:"retention,omitempty"`
	// verification of backups that are already in the store, on a schedule of its own.
	// +optional
	Verification *ScheduledVerification `json:"verification,omitempty"`
	// successfulHistory is how many TalosEtcdBackup objects of good backups are kept. The data in the store is subject to
	// retention instead. Default: 5.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	SuccessfulHistory *int32 `json:"successfulHistory,omitempty"`
	// failedHistory is how many TalosEtcdBackup objects of failed backups are kept. Default: 3.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	FailedHistory *int32 `json:"failedHistory,omitempty"`
	// backupTemplate is the template of each TalosEtcdBackup.
	// +required
	BackupTemplate TalosEtcdBackupTemplate `json:"backupTemplate,omitzero"`
}

// TalosEtcdBackupTemplate is the template of TalosEtcdBackups.
type TalosEtcdBackupTemplate struct {
	// spec of the TalosEtcdBackup.
	// +required
	Spec TalosEtcdBackupSpec `json:"spec,omitzero"`
}

// BackupRetention determines which backups of the cluster in the store are kept: those that any of the counts keeps, of
// this schedule or of another one with the same store. Never deleted are the last verified backup, backups whose
// TalosEtcdBackup was not created by a schedule, locked backups, and objects that were not written by the operator.
// +kubebuilder:validation:MinProperties=1
type BackupRetention struct {
	// last is how many of the newest backups are kept.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Last *int32 `json:"last,omitempty"`
	// hourly is the number of hours for which the newest backup of the hour is kept. Hours without a backup do not count.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Hourly *int32 `json:"hourly,omitempty"`
	// daily is the number of days for which the newest backup of the day is kept, in UTC.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Daily *int32 `json:"daily,omitempty"`
	// weekly is the number of ISO 8601 weeks for which the newest backup of the week is kept.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Weekly *int32 `json:"weekly,omitempty"`
	// monthly is the number of months for which the newest backup of the month is kept.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Monthly *int32 `json:"monthly,omitempty"`
}

// ScheduledVerification verifies the newest backup in the store on a schedule.
type ScheduledVerification struct {
	// schedule in cron format, in the time zone of the backup schedule.
	// +required
	// +kubebuilder:validation:MinLength=6
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Schedule string `json:"schedule,omitempty"`

	BackupVerification `json:",inline"`
}

// TalosEtcdBackupScheduleStatus is the observed state of a schedule.
type TalosEtcdBackupScheduleStatus struct {
	// conditions are Ready, RecoveryPointMet if maxAge is set, Verified if verification is set, RetentionApplied if retention
	// is set; Reconciling, Stalled and Paused only while they are true.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation of the spec that the status refers to.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// lastScheduleTime is the last scheduled time that was handled.
	// +optional
	LastScheduleTime *metav1.Time `json:"lastScheduleTime,omitempty"`
	// nextScheduleTime is when the next backup starts, including the jitter.
	// +optional
	NextScheduleTime *metav1.Time `json:"nextScheduleTime,omitempty"`
	// lastSuccessTime is when the newest good backup completed.
	// +optional
	LastSuccessTime *metav1.Time `json:"lastSuccessTime,omitempty"`
	// lastSuccessBackup is the name of the TalosEtcdBackup of the newest good backup.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	LastSuccessBackup string `json:"lastSuccessBackup,omitempty"`
	// active is the name of the TalosEtcdBackup that is running.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Active string `json:"active,omitempty"`
	// stored summarizes the backups that the last retention run found in the store.
	// +optional
	Stored *StoredBackups `json:"stored,omitempty"`
	// verification is the last successful scheduled verification.
	// +optional
	Verification *VerificationStatus `json:"verification,omitempty"`
	// lastVerificationTime is the last time of the verification schedule that was handled.
	// +optional
	LastVerificationTime *metav1.Time `json:"lastVerificationTime,omitempty"`
}

// StoredBackups summarizes the backups of one cluster in the store.
type StoredBackups struct {
	// count of complete backups.
	// +required
	Count int32 `json:"count"`
	// size of all objects of these backups.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`
	// oldest is the time of the oldest complete backup.
	// +optional
	Oldest *metav1.Time `json:"oldest,omitempty"`
	// newest is the time of the newest complete backup.
	// +optional
	Newest *metav1.Time `json:"newest,omitempty"`
	// time of the observation.
	// +required
	Time metav1.Time `json:"time,omitzero"`
}

// TalosEtcdBackupSchedule takes backups of a cluster on a schedule, applies the retention, and monitors that the
// backups are good.
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
	// metadata of the object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec defines the desired state.
	// +required
	Spec TalosEtcdBackupScheduleSpec `json:"spec,omitzero"`
	// status reports the observed state.
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
