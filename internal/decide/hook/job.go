package hook

import (
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubejson "sigs.k8s.io/json"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/validation"
)

const (
	// keptFor is how long a Job is kept after its end if the hook does not say: a manager that was away for a night still
	// observes how it ended.
	keptFor = 24 * time.Hour
	// longestJob is the maximum size of the spec of a Job, in bytes.
	longestJob = 64 << 10
	// longestTimeout is the maximum timeout of a hook.
	longestTimeout = 24 * time.Hour
)

// Check checks the hooks of a spec.
func Check(field string, o *v1alpha1.UpgradeOptions) validation.Failures {
	if o == nil {
		return nil
	}

	var out validation.Failures

	for i := range o.Hooks {
		h := &o.Hooks[i]
		at := fmt.Sprintf("%s.hooks[%d]", field, i)

		if slices.ContainsFunc(o.Hooks[:i], func(other v1alpha1.UpgradeHook) bool { return other.Name == h.Name }) {
			out = append(out, validation.Failure{
				Field: at + ".name", Problem: fmt.Sprintf("%q is the name of another hook", h.Name), Remedy: "rename one of them",
			})
		}

		if t := h.Timeout; t != nil && (t.Duration < time.Second || t.Duration > longestTimeout) {
			out = append(out, validation.Failure{
				Field: at + ".timeout", Problem: t.Duration.String() + " is not between 1s and 24h",
			})
		}

		if _, err := decode(h); err != nil {
			out = append(out, validation.Failure{
				Field: at + ".job", Problem: "is not the spec of a Job: " + err.Error(), Remedy: "correct it",
			})
		}
	}

	return out
}

// decode returns the spec of the Job of a hook. What the API server would drop silently, or certainly refuse, is an
// error.
func decode(h *v1alpha1.UpgradeHook) (*batchv1.JobSpec, error) {
	if len(h.Job.Raw) > longestJob {
		return nil, fmt.Errorf("it has %d bytes, more than %d", len(h.Job.Raw), longestJob)
	}

	out := &batchv1.JobSpec{}

	unknown, err := kubejson.UnmarshalStrict(h.Job.Raw, out)
	if err != nil {
		return nil, err
	}

	if len(unknown) > 0 {
		return nil, unknown[0]
	}

	pod := &out.Template.Spec

	switch {
	case out.Selector != nil, out.ManualSelector != nil:
		return nil, errors.New("selector and manualSelector are set by Kubernetes")
	case len(pod.Containers) == 0:
		return nil, errors.New("template.spec.containers is empty")
	case pod.RestartPolicy != corev1.RestartPolicyNever && pod.RestartPolicy != corev1.RestartPolicyOnFailure:
		return nil, errors.New("template.spec.restartPolicy is not Never or OnFailure")
	}

	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		if c.Name == "" || c.Image == "" {
			return nil, errors.New("a container has no name or no image")
		}
	}

	return out, nil
}

// NewJob returns the Job of a hook that runs. cluster is the name of the cluster.
func NewJob(
	h *v1alpha1.UpgradeHook, run *clusterstate.UpgradeRun, at *clusterstate.HookRun, cluster string,
) (*batchv1.Job, error) {
	spec, err := decode(h)
	if err != nil {
		return nil, err
	}

	if spec.TTLSecondsAfterFinished == nil {
		ttl := int32(keptFor / time.Second)
		spec.TTLSecondsAfterFinished = &ttl
	}

	if spec.ActiveDeadlineSeconds == nil {
		// What is not waited for any more ends, so that it does not meet the next attempt.
		deadline := int64(at.Timeout / time.Second)
		spec.ActiveDeadlineSeconds = &deadline
	}

	phase := string(v1alpha1.HookBefore)
	if at.When == v1alpha1.HookAfter {
		phase = string(run.Outcome)
	}

	env := []corev1.EnvVar{
		{Name: "TALOS_OPERATOR_RUN_PHASE", Value: phase},
		{Name: "TALOS_OPERATOR_RUN_COMPONENT", Value: run.Component},
		{Name: "TALOS_OPERATOR_RUN_FROM", Value: run.From},
		{Name: "TALOS_OPERATOR_RUN_TO", Value: run.To},
		{Name: "TALOS_OPERATOR_RUN_CLUSTER", Value: cluster},
	}

	inject(spec.Template.Spec.InitContainers, env)
	inject(spec.Template.Spec.Containers, env)

	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: at.Namespace, Name: at.Job, Labels: map[string]string{v1alpha1.UpgradeHookLabel: at.ID},
		},
		Spec: *spec,
	}, nil
}

// inject sets variables in containers. The user's of the same names are replaced.
func inject(containers []corev1.Container, env []corev1.EnvVar) {
	for i := range containers {
		c := &containers[i]
		own := slices.DeleteFunc(c.Env, func(v corev1.EnvVar) bool {
			return slices.ContainsFunc(env, func(e corev1.EnvVar) bool { return e.Name == v.Name })
		})
		c.Env = append(slices.Clone(env), own...) // first, so that the user's may refer to them
	}
}
