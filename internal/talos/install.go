package talos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/text"
)

const (
	// longestOutput is how much of the end of an installer's output is kept for a message, in bytes.
	longestOutput = 300
	// longestLine is how much of one line of it is shown while it runs, in bytes.
	longestLine = 200
)

// Pull has the node pull an image, through its own mirrors: an installer, or that of the kubelet. It changes nothing
// that runs, and may be repeated.
func (n *Node) Pull(ctx context.Context, image string) error {
	_, _, err := n.pullTo(ctx, systemImages(), image)

	return err
}

// PullPod has the node pull an image that its kubelet runs as a pod. It changes nothing that runs, and may be repeated.
func (n *Node) PullPod(ctx context.Context, image string) error {
	_, _, err := n.pullTo(ctx, podImages(), image)

	return err
}

// pullTo has the node pull an image, and returns its name with a digest; legacy is a node with Talos before 1.13, which
// does not say.
func (n *Node) pullTo(
	ctx context.Context, instance *common.ContainerdInstance, image string,
) (name string, legacy bool, err error) {
	name, err = n.stream(ctx, instance, image)
	if legacy = status.Code(err) == codes.Unimplemented; legacy {
		err = n.c.ImagePull(ctx, instance.GetNamespace(), image) //nolint:staticcheck // they have no other call
	}

	if err != nil {
		return "", legacy, n.installError(image, err)
	}

	return name, legacy, nil
}

// stream pulls an image, and returns what the node calls it.
func (n *Node) stream(ctx context.Context, instance *common.ContainerdInstance, image string) (name string, err error) {
	stream, err := n.c.ImageClient.Pull(ctx, &machineapi.ImageServicePullRequest{Containerd: instance, ImageRef: image})
	if err != nil {
		return "", err
	}

	for {
		msg, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return name, nil
		}

		if err != nil {
			return "", err
		}

		name = msg.GetName()
	}
}

// UpgradeLegacy has a node older than Talos 1.13 install an image and reboot into it, and keep its data. It returns
// before the node has begun. The node drains itself. It refuses a control plane of two members, or with a member that
// is not healthy, although its data is kept: only force, which is not used, would have it not check etcd.
func (n *Node) UpgradeLegacy(ctx context.Context, image string) error {
	ctx, cancel := act(ctx, slowTimeout)
	defer cancel()

	//nolint:staticcheck // they have no other call
	_, err := n.c.UpgradeWithOptions(ctx, talosclient.WithUpgradeImage(image), talosclient.WithUpgradePreserve(true))

	if code := status.Code(err); code == codes.Unknown || code == codes.FailedPrecondition {
		return failure.Transient(v1alpha1.ReasonInstallFailed, fmt.Sprintf("%s refuses the upgrade to %s: %s", n.name(),
			image, summary(err)), scrubbed(err))
	}

	return classify("the upgrade to "+image, n.name(), err)
}

// systemImages is where Talos keeps the images of installers and of its own services, such as the kubelet: on the disk.
// The other driver is the containerd in memory, which is for machines without one.
func systemImages() *common.ContainerdInstance {
	return &common.ContainerdInstance{
		Driver: common.ContainerDriver_CRI, Namespace: common.ContainerdNamespace_NS_SYSTEM,
	}
}

// podImages is where the kubelet looks for the images of pods.
func podImages() *common.ContainerdInstance {
	return &common.ContainerdInstance{
		Driver: common.ContainerDriver_CRI, Namespace: common.ContainerdNamespace_NS_CRI,
	}
}

// Install has the node pull an installer image, through its own mirrors, and run it: it writes the system into the boot
// slot that does not run, and makes that one the next to boot. It neither drains nor reboots, nor checks etcd.
// say receives the lines that are printed, as they may be shown; it may be nil. Install may be repeated. The node ends
// the installer with the context.
//
// Nodes older than Talos 1.13 do not serve it: the error has the reason UpgradeUnsupported.
func (n *Node) Install(ctx context.Context, image string, say func(line string)) error {
	instance := systemImages()

	name, err := n.pull(ctx, instance, image)
	if err != nil {
		return err
	}

	stream, err := n.c.LifecycleClient.Upgrade(ctx, &machineapi.LifecycleServiceUpgradeRequest{
		Containerd: instance, Source: &machineapi.InstallArtifactsSource{ImageName: name},
	})
	if err != nil {
		return n.installError(image, err)
	}

	output := tail{}

	for {
		msg, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			// Without an exit code it is unknown how the installer ended.
			return failure.Transient(v1alpha1.ReasonInstallFailed, fmt.Sprintf("%s ended the installer %s without an exit "+
				"code", n.name(), image), nil)
		}

		if err != nil {
			return n.installError(image, err)
		}

		switch r := msg.GetProgress().GetResponse().(type) {
		case *machineapi.LifecycleServiceInstallProgress_Message:
			output.add(r.Message)

			if line := printed(r.Message); line != "" && say != nil {
				say(line)
			}
		case *machineapi.LifecycleServiceInstallProgress_ExitCode:
			if r.ExitCode == 0 {
				return nil
			}

			return failure.Terminal(v1alpha1.ReasonInstallFailed, fmt.Sprintf("the installer %s ended with exit code %d on "+
				"%s: %s; the machine still boots what it runs", image, r.ExitCode, n.name(), redactText(output.text)), nil)
		}
	}
}

// pull has the node pull an image, and returns its name with a digest.
func (n *Node) pull(ctx context.Context, instance *common.ContainerdInstance, image string) (string, error) {
	name, err := n.stream(ctx, instance, image)
	if err != nil {
		return "", n.installError(image, err)
	}

	if name == "" {
		return "", failure.Transient(v1alpha1.ReasonImagePull, fmt.Sprintf("%s has pulled %s and does not say what that is",
			n.name(), image), nil)
	}

	return name, nil
}

// installError explains why an image could not be pulled or installed.
func (n *Node) installError(image string, err error) error {
	cause := scrubbed(err)

	switch status.Code(err) { //nolint:exhaustive // the rest concerns the node, not the image
	case codes.Unimplemented:
		return failure.Terminal(v1alpha1.ReasonUpgradeUnsupported, fmt.Sprintf("%s cannot install an image without a "+
			"reboot: that needs Talos 1.13", n.name()), cause)
	case codes.NotFound, codes.InvalidArgument, codes.Unknown:
		return failure.Transient(v1alpha1.ReasonImagePull, fmt.Sprintf("%s cannot pull the image %s: %s; check the name "+
			"of the image and the registry mirrors of the machine", n.name(), image, summary(err)), cause)
	case codes.FailedPrecondition:
		return failure.Waiting(v1alpha1.ReasonInstalling, n.name()+" runs another installer", retryPrecondition)
	}

	return classify("the installation of "+image, n.name(), err)
}

// terminalCode matches what installers send to color a terminal.
var terminalCode = regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`)

// printed returns the last line of what an installer has printed, as it may be shown: without secrets, and bounded. A
// progress bar returns to the beginning of its line.
func printed(message string) string {
	lines := strings.FieldsFunc(terminalCode.ReplaceAllString(redactText(message), ""), func(r rune) bool {
		return r == '\n' || r == '\r'
	})

	for _, line := range slices.Backward(lines) {
		if line = text.Line(line); line != "" {
			return text.Cut(line, longestLine)
		}
	}

	return ""
}

// tail keeps the end of what was written.
type tail struct{ text string }

func (t *tail) add(line string) {
	t.text = strings.TrimSpace(t.text + " " + strings.TrimSpace(strings.ReplaceAll(line, "\n", " ")))

	if over := len(t.text) - longestOutput; over > 0 {
		t.text = strings.ToValidUTF8(t.text[over:], "")
	}
}
