package demo

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

const controlPlaneLabel = "node-role.kubernetes.io/control-plane"

// Apply applies the manifest of one object and returns its name.
func Apply(ctx context.Context, c ctrlclient.Client, manifest []byte) (ctrlclient.ObjectKey, error) {
	obj, err := parse(manifest)
	if err != nil {
		return ctrlclient.ObjectKey{}, err
	}

	err = c.Apply(ctx, ctrlclient.ApplyConfigurationFromUnstructured(obj), ctrlclient.FieldOwner("talos-lab"),
		ctrlclient.ForceOwnership)
	if err != nil {
		return ctrlclient.ObjectKey{}, fmt.Errorf("applying %s %s: %w", obj.GetKind(), obj.GetName(), err)
	}

	return ctrlclient.ObjectKeyFromObject(obj), nil
}

// Name returns the name of the object in a manifest.
func Name(manifest []byte) (ctrlclient.ObjectKey, error) {
	obj, err := parse(manifest)
	if err != nil {
		return ctrlclient.ObjectKey{}, err
	}

	return ctrlclient.ObjectKeyFromObject(obj), nil
}

func parse(manifest []byte) (*unstructured.Unstructured, error) {
	obj := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(manifest, &obj.Object); err != nil {
		return nil, fmt.Errorf("reading the manifest: %w", err)
	}

	if obj.GetNamespace() == "" {
		obj.SetNamespace(corev1.NamespaceDefault)
	}

	return obj, nil
}

// Proof is what a cluster answered.
type Proof struct {
	Nodes        []corev1.Node
	Members      []Member
	TalosVersion string
}

// PrintProof prints what a cluster answered.
func PrintProof(out io.Writer, name string, p Proof) {
	fmt.Fprintf(out, "\nThe kubeconfig in the Secret %s%s works: %d nodes are Ready.\n\n", name, kubeconfigSuffix,
		len(p.Nodes))

	t := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(t, "  NAME\tROLE\tADDRESS\tVERSION\tOS")

	for _, n := range p.Nodes {
		role := "worker"
		if _, ok := n.Labels[controlPlaneLabel]; ok {
			role = "control-plane"
		}

		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\n", n.Name, role, internalIP(n), n.Status.NodeInfo.KubeletVersion,
			n.Status.NodeInfo.OSImage)
	}

	_ = t.Flush()

	fmt.Fprintf(out, "\nThe talosconfig in the Secret %s%s works: Talos %s responds with %d started etcd members.\n\n",
		name, talosconfigSuffix, p.TalosVersion, len(p.Members))
	fmt.Fprintln(t, "  ID\tNAME\tPEER URL")

	slices.SortFunc(p.Members, func(a, b Member) int { return strings.Compare(a.Hostname, b.Hostname) })

	for _, m := range p.Members {
		fmt.Fprintf(t, "  %s\t%s\t%s\n", m.ID, m.Hostname, m.PeerURL)
	}

	_ = t.Flush()
}

func internalIP(n corev1.Node) string {
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}

	return ""
}
