package demo

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
)

// logLines is how much of the operator's log a diagnosis shows, tailSize how much of the file is read for it.
const (
	logLines = 40
	tailSize = 64 << 10
)

// Diagnose writes why a cluster is not ready: the conditions of all its objects, and the end of the operator's log.
func (c *Cluster) Diagnose(ctx context.Context, w io.Writer, managerLog string) {
	fmt.Fprintln(w, "\nConditions of all objects:")

	for _, list := range []ctrlclient.ObjectList{
		&vitistackv1alpha1.KubernetesClusterList{}, &vitistackv1alpha1.MachineList{},
		&v1alpha1.TalosControlPlaneList{}, &v1alpha1.TalosWorkerList{}, &v1alpha1.TalosMachineList{},
	} {
		if err := c.Client.List(ctx, list, ctrlclient.InNamespace(c.Key.Namespace)); err != nil {
			fmt.Fprintf(w, "  cannot be read: %v\n", err)

			continue
		}

		describe(w, list)
	}

	fmt.Fprintf(w, "\nLast lines of %s:\n", managerLog)

	for _, line := range tail(managerLog) {
		fmt.Fprintf(w, "  %s\n", line)
	}
}

func describe(w io.Writer, list ctrlclient.ObjectList) {
	switch l := list.(type) {
	case *vitistackv1alpha1.KubernetesClusterList:
		for _, o := range l.Items {
			conditions(w, "KubernetesCluster/"+o.Name, o.Status.Conditions, "phase "+string(o.Status.Phase))
		}
	case *vitistackv1alpha1.MachineList:
		for _, o := range l.Items {
			conditions(w, "Machine/"+o.Name, o.Status.Conditions, "phase "+string(o.Status.Phase))
		}
	case *v1alpha1.TalosControlPlaneList:
		for _, o := range l.Items {
			conditions(w, "TalosControlPlane/"+o.Name, o.Status.Conditions, "")
		}
	case *v1alpha1.TalosWorkerList:
		for _, o := range l.Items {
			conditions(w, "TalosWorker/"+o.Name, o.Status.Conditions, "")
		}
	case *v1alpha1.TalosMachineList:
		for _, o := range l.Items {
			conditions(w, "TalosMachine/"+o.Name, o.Status.Conditions, o.Status.LastError)
		}
	}
}

func conditions(w io.Writer, name string, list []metav1.Condition, extra string) {
	fmt.Fprintf(w, "  %s %s\n", name, extra)

	for _, c := range list {
		fmt.Fprintf(w, "    %-16s %-8s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
	}
}

// tail returns the last lines of a file.
func tail(path string) []string {
	file, err := os.Open(path)
	if err != nil {
		return []string{err.Error()}
	}

	defer file.Close()

	if info, err := file.Stat(); err == nil && info.Size() > tailSize {
		_, _ = file.Seek(-tailSize, io.SeekEnd)
	}

	content, err := io.ReadAll(file)
	if err != nil {
		return []string{err.Error()}
	}

	lines := strings.Split(string(bytes.TrimSpace(content)), "\n")

	return lines[max(0, len(lines)-logLines):]
}
