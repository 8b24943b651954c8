// Package examples embeds the manifests that a user starts from, so that the demo applies the very same ones.
package examples

import _ "embed"

// Quickstart is a cluster of three control-plane nodes and two workers, on machines of any provider.
//
//go:embed quickstart.yaml
var Quickstart []byte

// BackupSchedule takes encrypted backups of the quickstart cluster to a bucket.
//
//go:embed backup-schedule.yaml
var BackupSchedule []byte
