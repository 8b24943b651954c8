package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/talos-operator/talos-operator/lab/demo"
	"github.com/talos-operator/talos-operator/lab/node"
)

// The cluster of a demo begins with the Talos of the minor before, and a Kubernetes that both support.
const (
	oldTalos, newTalos = "v1.12.12", node.DefaultTalosVersion
	oldKubernetes      = "v1.35.10"
)

var versionLine = regexp.MustCompile(`(?m)^( *)(talos|kubernetes)Version: .*$`)

// older is a manifest with the versions that the cluster of a demo begins with.
func older(manifest []byte) []byte {
	return versionLine.ReplaceAllFunc(manifest, func(line []byte) []byte {
		name, _, _ := strings.Cut(string(line), ":")
		if strings.TrimSpace(name) == "talosVersion" {
			return []byte(name + ": " + oldTalos)
		}

		return []byte(name + ": " + oldKubernetes)
	})
}

var errOldTalos = errors.New("a Node reports another Talos")

// upgrade upgrades Talos by a minor version, and proves with the kubeconfig of before that each Node reports it.
func upgrade(ctx context.Context, out io.Writer, l *demoLab, cluster *demo.Cluster) error {
	err := cluster.Upgrade(ctx, out, demo.Upgrade{
		To: newTalos, Vault: l.vault(), Operator: l.operator, Kubeconfig: l.info.Kubeconfig,
	})
	if err != nil {
		return err
	}

	secrets, err := cluster.Secrets(ctx)
	if err != nil {
		return err
	}

	nodes, err := demo.ProveKubernetes(ctx, secrets.Kubeconfig, controlPlanes+workers)
	if err != nil {
		return err
	}

	for _, n := range nodes {
		if os := n.Status.NodeInfo.OSImage; !strings.Contains(os, newTalos) {
			return fmt.Errorf("%w: %s: %s", errOldTalos, n.Name, os)
		}
	}

	fmt.Fprintf(out, "\nThe kubeconfig from before works: %d nodes are Ready and report Talos %s.\n", len(nodes), newTalos)

	return nil
}
