package main

import (
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/etcdutl/v3/etcdutl"
)

func main() {
	root := &cobra.Command{Use: "etcdutl"}
	// The printers of etcdutl look the flag up by name.
	root.PersistentFlags().StringP("write-out", "w", "simple", "output format: fields, json, protobuf, simple, table")
	root.AddCommand(etcdutl.NewSnapshotCommand(), etcdutl.NewHashKVCommand(), etcdutl.NewVersionCommand())
	if root.Execute() != nil {
		os.Exit(1)
	}
}
