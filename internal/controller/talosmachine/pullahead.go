package talosmachine

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/work"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// pullAhead has the node pull the images of that version: one that cannot be had is found before any machine has
// changed. A change that is in progress comes first. The pull delays nothing.
func (r *Reconciler) pullAhead(ctx context.Context, s *scope) error {
	st := &s.machine.Status
	want := s.requested()
	begun := r.Installs.Find(s.key(), s.machine.UID)

	switch {
	case want == "":
		if st.Images = nil; begun == nil || begun.About.ahead != "" {
			r.Installs.Drop(s.key())
		}

		return nil
	case !s.pullsAhead(), !s.compared || s.facts == nil, st.Intent != nil,
		begun != nil && begun.About.ahead == "" && !begun.Ended():
		return nil
	}

	return r.pull(ctx, s, want, begun)
}

// pull takes the next step of the pull that is requested. begun is the job of the machine; nil if there is none.
func (r *Reconciler) pull(ctx context.Context, s *scope, want string, begun *work.Job[job, struct{}]) error {
	st := &s.machine.Status
	if st.Images == nil || st.Images.RequestedFor != want {
		st.Images = &v1alpha1.MachineImages{RequestedFor: want}
	}

	if refused := s.refusesAhead(); refused != "" {
		r.Installs.Drop(s.key())
		*st.Images = v1alpha1.MachineImages{RequestedFor: want, Refused: kube.Shorten(refused, longestMessage)}

		return nil
	}

	st.Images.Refused = ""

	images, err := s.imagesAhead()
	if err != nil {
		st.Images.Message = kube.Shorten(failure.Message(err), longestMessage)
		st.Images.LastAttemptTime, st.Images.Failures = nil, 0 // nothing is pulled

		return nil
	}

	about := installation{ahead: want, cluster: s.controlPlaneKey(), image: fmt.Sprint(images)}

	switch {
	case len(images) == 0:
		*st.Images = v1alpha1.MachineImages{RequestedFor: want, Pulled: true}
	case begun == nil || begun.About.installation != about:
		r.Installs.Drop(s.key()) // a pull for an earlier request must not go on beside this one

		return r.beginAhead(ctx, s, about, images)
	case begun.Ended():
		r.endAhead(s, begun)
	}

	return nil
}

var errOthersPull = errors.New("other machines of the cluster pull their images")

// beginAhead begins the pull, unless it has failed just now, or enough others of the cluster pull.
func (r *Reconciler) beginAhead(ctx context.Context, s *scope, about installation, images []talos.WantedImage) error {
	now, st := r.Clock.Now(), s.machine.Status.Images

	if at := st.LastAttemptTime; at != nil && now.Before(at.Add(pauseAhead(st.Failures))) {
		s.lookSoon(at.Add(pauseAhead(st.Failures)).Sub(now))

		return nil
	}

	node, err := r.node(ctx, s)
	if err != nil {
		return err
	}

	self := s.self()

	_, err = r.Installs.Do(work.Order[job, struct{}]{
		Key: s.key(), UID: s.machine.UID, About: job{installation: about}, TimeoutReason: v1alpha1.ReasonImagePull,
		Timeout: time.Duration(len(images)+1) * aheadTimeout,
		Admit: func(running iter.Seq2[types.NamespacedName, job]) error {
			n := 0

			for _, other := range running {
				if other.ahead != "" && other.cluster == about.cluster {
					n++
				}
			}

			if n >= aheadAtOnce {
				return errOthersPull
			}

			return nil
		},
		Do: func(ctx context.Context) (struct{}, error) {
			return struct{}{}, node.ToItself(ctx, self, func() error { return fetchEach(ctx, images, node.Fetch) })
		},
	})

	if errors.Is(err, errOthersPull) {
		s.lookSoon(pollAhead)

		return nil
	}

	if err != nil {
		return fmt.Errorf("starting the pull on %s: %w", s.machine.Name, err)
	}

	return nil
}

// fetchEach fetches images, each with a time limit of its own.
func fetchEach(
	ctx context.Context, images []talos.WantedImage, fetch func(context.Context, []talos.WantedImage) error,
) error {
	for i := range images {
		limited, cancel := context.WithTimeout(ctx, aheadTimeout)
		err := fetch(limited, images[i:i+1])
		late := limited.Err() != nil && ctx.Err() == nil

		cancel()

		if late && err != nil {
			return failure.Transient(v1alpha1.ReasonImagePull, fmt.Sprintf("the image %s was not pulled within %s",
				images[i].Name, aheadTimeout), err)
		}

		if err != nil {
			return err
		}
	}

	return nil
}

// pauseAhead returns the pause after a number of failed pulls. It is pure.
func pauseAhead(failures int32) time.Duration {
	if failures > quickRetries {
		return retryAheadLater
	}

	return retryAhead
}

// endAhead records what has become of the pull.
func (r *Reconciler) endAhead(s *scope, ended *work.Job[job, struct{}]) {
	r.Installs.Drop(s.key())

	st := s.machine.Status.Images

	if _, err := ended.Result(); err != nil {
		at := stamp(r.Clock.Now())
		st.Message, st.LastAttemptTime = kube.Shorten(failure.Message(err), longestMessage), &at
		st.Failures++
		s.lookSoon(pauseAhead(st.Failures))

		return
	}

	*st = v1alpha1.MachineImages{RequestedFor: st.RequestedFor, Pulled: true}
}

// lookSoon has the machine reconciled again: nothing reports what it waits for.
func (s *scope) lookSoon(in time.Duration) {
	if s.again == 0 || in < s.again {
		s.again = in
	}
}

// refusesAhead says why the machine must not be given the version that the cluster is about to be upgraded to; empty if
// it may.
func (s *scope) refusesAhead() string {
	if s.unsourced != nil || s.controlPlane.Status.Upgrade.Pulling.TalosVersion == "" {
		return ""
	}

	return s.ahead.refused
}

// imagesAhead returns the images of the version that the cluster is about to be upgraded to, which this machine gets.
func (s *scope) imagesAhead() ([]talos.WantedImage, error) {
	if s.unsourced != nil {
		return nil, s.unsourced
	}

	if s.controlPlane.Status.Upgrade.Pulling.TalosVersion != "" {
		if s.ahead.installer == "" {
			return nil, nil
		}

		return []talos.WantedImage{{Name: s.ahead.installer}}, nil
	}

	return kubernetesAhead(s.controlPlane, s.worker != nil, s.live, s.rendered)
}

// kubernetesAhead returns the images of the version of Kubernetes that the cluster is about to be upgraded to, as the
// configuration of a machine will name them. kube-proxy is not among them: what runs it is no part of a configuration.
// It is pure.
func kubernetesAhead(cp *v1alpha1.TalosControlPlane, worker bool, live, rendered []byte) ([]talos.WantedImage, error) {
	components := []v1alpha1.KubernetesComponent{v1alpha1.ComponentKubelet}
	if !worker {
		components = append(components, v1alpha1.ComponentAPIServer, v1alpha1.ComponentControllerManager,
			v1alpha1.ComponentScheduler)
	}

	may := machineconfig.Released{
		Kubernetes: cp.Status.Upgrade.Pulling.KubernetesVersion, Spec: cp.Spec.KubernetesVersion,
	}
	for _, c := range components {
		may.Images = append(may.Images, machineconfig.ImageOf(c))
	}

	config, _, err := machineconfig.KeepImageTags(live, rendered, may)
	if err != nil {
		return nil, fmt.Errorf("finding the images of Kubernetes: %w", err)
	}

	named, err := machineconfig.ComponentImages(config)
	if err != nil {
		return nil, fmt.Errorf("finding the images of Kubernetes: %w", err)
	}

	runs, err := machineconfig.ComponentImages(live)
	if err != nil {
		return nil, fmt.Errorf("finding the images of Kubernetes: %w", err)
	}

	var out []talos.WantedImage

	for _, c := range components {
		if image := named[c]; image != "" && image != runs[c] {
			out = append(out, talos.WantedImage{Name: image, Pod: c != v1alpha1.ComponentKubelet})
		}
	}

	slices.SortFunc(out, func(a, b talos.WantedImage) int { return strings.Compare(a.Name, b.Name) })

	return out, nil
}
