package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/decide/hook"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// Jobs are the Jobs of hooks in a managed cluster.
type Jobs struct {
	// Client of one of its API servers.
	Client kubernetes.Interface
}

// Jobs connects to the first API server that is ready.
func (c *Clients) Jobs(ctx context.Context, b *clusterstate.Bundle, addresses []string) (Jobs, error) {
	cluster, err := c.Cluster(ctx, b, addresses)
	if err != nil {
		return Jobs{}, err
	}

	return Jobs{Client: cluster.client}, nil
}

// Observe returns what has become of the Job of a hook. One with another label is foreign, whatever its name is.
func (j Jobs) Observe(ctx context.Context, h *clusterstate.HookRun) hook.Job {
	have, err := j.Client.BatchV1().Jobs(h.Namespace).Get(ctx, h.Job, metav1.GetOptions{})

	switch {
	case apierrors.IsNotFound(err):
		return hook.Job{State: hook.JobAbsent}
	case err != nil:
		return hook.Job{Message: "the Job cannot be read: " + reasonOf(err)}
	case have.Labels[v1alpha1.UpgradeHookLabel] != h.ID:
		return hook.Job{State: hook.JobForeign}
	}

	for _, c := range have.Status.Conditions {
		switch {
		case c.Status != corev1.ConditionTrue:
		case c.Type == batchv1.JobComplete:
			return hook.Job{State: hook.JobSucceeded}
		case c.Type == batchv1.JobFailed:
			return hook.Job{State: hook.JobFailed, Message: words(c.Reason, c.Message)}
		}
	}

	return hook.Job{State: hook.JobRunning}
}

// Create creates the Job of a hook. An existing one is no error, and is not changed. refused says why the API server
// will not take the Job, however often it is sent; empty if that is not so.
func (j Jobs) Create(ctx context.Context, job *batchv1.Job) (refused string, err error) {
	_, err = j.Client.BatchV1().Jobs(job.Namespace).Create(ctx, job, metav1.CreateOptions{})

	switch {
	case err == nil, apierrors.IsAlreadyExists(err):
		return "", nil
	case apierrors.IsNotFound(err):
		return "namespace " + job.Namespace + " does not exist", nil
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsForbidden(err):
		return "the API server refuses the Job: " + words(reasonOf(err), causes(err)), nil
	}

	return "", failure.Transient(v1alpha1.ReasonAPIServerUnavailable, fmt.Sprintf("the Job cannot be created: %s",
		reasonOf(err)), err)
}

// maxCauses is how many fields of a refused Job are named.
const maxCauses = 3

// causes names the fields for which an object is refused. Their values stay where they are: they may be secret.
func causes(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return ""
	}

	var fields []string

	for _, c := range status.Status().Details.Causes {
		if c.Field != "" && len(fields) < maxCauses {
			fields = append(fields, words(c.Field, ""))
		}
	}

	return strings.Join(fields, ", ")
}

func reasonOf(err error) string {
	return cmp.Or(string(apierrors.ReasonForError(err)), "the API server does not respond")
}

// maxWords is the maximum length of what a managed cluster says that is stored and shown.
const maxWords = 120

// words joins a reason and a message of a managed cluster, which may be any text.
func words(reason, message string) string {
	out := make([]string, 0, 2)

	for _, text := range []string{reason, message} {
		if text = strings.ToValidUTF8(text[:min(len(text), maxWords)], ""); text != "" {
			out = append(out, text)
		}
	}

	return strings.Join(out, ": ")
}
