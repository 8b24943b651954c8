package talosmachine

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/work"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/failure"
)

const (
	// installTimeout limits the pull and the installation of one image.
	installTimeout = 30 * time.Minute
	// retryInstall is how soon an image is pulled again that could not be had.
	retryInstall = 15 * time.Second
	// showOutput is how long the status of a machine shows one line of its installer at least.
	showOutput = 15 * time.Second
)

// Installs runs the installers of all machines.
type Installs struct {
	*work.Runner[job, struct{}]
}

// NewInstalls returns a runner whose work ends with the context.
func NewInstalls(ctx context.Context) *Installs {
	return &Installs{work.New[job, struct{}](ctx, func(key types.NamespacedName) client.Object {
		return &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	})}
}

// installation is what an installer runs for.
type installation struct {
	// ahead is what images are pulled for before any change begins, as in status.images; empty for a change.
	ahead string
	// cluster is the control plane that the machine belongs to.
	cluster types.NamespacedName
	// change is the ID of the change, act what is done for it with the image, in one boot of the node.
	change string
	act    change.Act
	image  string
	boot   string
}

// job is an installation that was begun.
type job struct {
	installation

	// output is that of the installer; nil if images are pulled ahead.
	output *work.Line
}

// installs performs the acts that take longer than a reconciliation may: each reconciliation starts the work, or looks
// at what has become of it. It returns another step if the work is done again later.
func (r *Reconciler) installs(ctx context.Context, s *scope, in change.Input, act change.Act) (*change.Step, error) {
	c := in.Record.Change
	about := installation{cluster: s.controlPlaneKey(), change: c.ID, act: act, image: c.Image, boot: in.BootID}

	if act == change.Uninstall {
		about.image = c.OldImage
	}

	j := r.Installs.Find(s.key(), s.machine.UID)

	if j != nil && j.About.installation != about {
		r.Installs.Drop(s.key())

		j = nil
	}

	switch {
	case j == nil:
		if err := r.startInstall(ctx, s, about); err != nil {
			return nil, err
		}

		s.pass.Held, s.machine.Status.Change.Progress = c.Message, ""

		return nil, nil
	case !j.Ended():
		s.pass.Held, s.machine.Status.Change.Progress = c.Message, j.About.output.Show(in.Now)

		return nil, nil
	}

	_, err := j.Result()

	switch late := in.Now.Sub(in.Record.Intent.Since.Time) >= in.Options.HealthTimeout; {
	case err == nil:
		s.pass.Pulled, s.pass.Installed = act == change.Pull, act == change.Install
		s.pass.Uninstalled = act == change.Uninstall

		return nil, nil
	case failure.ClassOf(err) == failure.ClassTerminal, late:
		r.Installs.Drop(s.key())

		s.pass.Failed, s.pass.Unsure = failure.Message(err), failure.ClassOf(err) != failure.ClassTerminal

		return nil, nil
	}

	r.Installs.Drop(s.key())

	in.Record.Change.Message, in.Record.Change.Progress = failure.Message(err), ""

	return &change.Step{Before: in.Record, Again: retryInstall}, nil
}

func (r *Reconciler) startInstall(ctx context.Context, s *scope, about installation) error {
	node, err := r.node(ctx, s)
	if err != nil {
		return err
	}

	pod := isPod(s.machine.Status.Change)

	self, reason := s.self(), v1alpha1.ReasonInstallFailed
	if about.act == change.Pull {
		reason = v1alpha1.ReasonImagePull
	}

	begun := job{about, work.NewLine("", showOutput)}

	_, err = r.Installs.Do(work.Order[job, struct{}]{
		Key: s.key(), UID: s.machine.UID, About: begun, Timeout: installTimeout, TimeoutReason: reason,
		Do: func(ctx context.Context) (struct{}, error) {
			return struct{}{}, node.ToItself(ctx, self, func() error {
				switch {
				case pod:
					return node.PullPod(ctx, about.image)
				case about.act == change.Pull:
					return node.Pull(ctx, about.image)
				}

				return node.Install(ctx, about.image, begun.output.Say)
			})
		},
	})
	if err != nil {
		return fmt.Errorf("starting the installer on %s: %w", s.machine.Name, err)
	}

	return nil
}
