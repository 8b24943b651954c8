package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/talos-operator/talos-operator/examples"
	"github.com/talos-operator/talos-operator/lab"
	"github.com/talos-operator/talos-operator/lab/control"
	"github.com/talos-operator/talos-operator/lab/demo"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/lab/process"
	"github.com/talos-operator/talos-operator/lab/stack"
)

const (
	startTimeout = 2 * time.Minute
	proofTimeout = time.Minute

	// demoScale keeps the three acts of a demo below two minutes.
	demoScale = node.WatchScale / 2

	// Machines of the quickstart.
	controlPlanes, workers = 3, 2
)

type demoFlags struct {
	upFlags

	keep    bool
	timeout time.Duration
}

func newDemoCommand() *cobra.Command {
	flags := &demoFlags{}

	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Create a cluster from one YAML, restore its etcd after a disaster, and upgrade its Talos",
		Long: `Start a lab, apply examples/quickstart.yaml with the Talos of the minor before, show what every machine is
doing until the cluster runs, and prove with the new kubeconfig and talosconfig that it responds. Then take a backup to
the lab's S3 server, replace the disks of all control-plane nodes by empty ones, and restore the cluster from the
bucket. Then upgrade Talos by a minor version, one machine after the other.`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDemo(cmd.Context(), cmd.OutOrStdout(), flags)
		},
	}
	cmd.Flags().StringVar(&flags.dir, "dir", "", "directory of the lab (default: a new temporary one)")
	cmd.Flags().BoolVar(&flags.keep, "keep", false, "leave the lab running in the background")
	cmd.Flags().DurationVar(&flags.timeout, "timeout", 5*time.Minute,
		"how long each act may take: creation, restore, upgrade")
	flags.add(cmd, demoScale)

	return cmd
}

// demoLab is the lab of a demo: a process of its own, so that it can outlive the command.
type demoLab struct {
	dir       string
	operator  string
	temporary bool
	client    *control.Client
	info      control.Info
	proc      *process.Process // nil when it is to outlive the command
}

func runDemo(ctx context.Context, out io.Writer, flags *demoFlags) (err error) {
	silenceLibraries()

	began := time.Now()

	fmt.Fprintln(out, "Starting a lab: a management plane (etcd, kube-apiserver), the operator, a machine provider ...")

	l, err := startDemoLab(ctx, flags)
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, l.finish(ctx, out, flags.keep)) }()

	fmt.Fprintf(out, "The lab is up after %s.\n", rounded(time.Since(began)))

	cluster, err := l.cluster()
	if err != nil {
		return err
	}

	for i, act := range []struct {
		title string
		play  func(context.Context, io.Writer, *demoLab, *demo.Cluster) error
	}{
		{"A cluster of 3 control-plane nodes and 2 workers from one YAML", create},
		{"A disaster, and a restore from a bucket", disaster},
		{"An upgrade of Talos by a minor version", upgrade},
	} {
		fmt.Fprintf(out, "\n%d. %s\n\n", i+1, act.title)

		if err := l.play(ctx, out, cluster, flags.timeout, act.play); err != nil {
			return err
		}
	}

	fmt.Fprintf(out, "\nDone in %s.\n", rounded(time.Since(began)))

	return nil
}

func rounded(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }

// play plays an act. If it fails, and not because the user ended it, the state of the cluster says why.
func (l *demoLab) play(
	ctx context.Context, out io.Writer, cluster *demo.Cluster, timeout time.Duration,
	act func(context.Context, io.Writer, *demoLab, *demo.Cluster) error,
) error {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	err := act(limited, out, l, cluster)
	if err != nil && ctx.Err() == nil {
		l.diagnose(ctx, out, cluster)
	}

	return err
}

// create applies the quickstart and follows the cluster until it is ready.
func create(ctx context.Context, out io.Writer, l *demoLab, cluster *demo.Cluster) error {
	fmt.Fprintf(out, "Applying examples/quickstart.yaml, with Talos %s and Kubernetes %s.\n\n", oldTalos, oldKubernetes)

	manifest, err := l.quickstart()
	if err != nil {
		return err
	}

	if _, err := demo.Apply(ctx, cluster.Client, manifest); err != nil {
		return err
	}

	applied := time.Now()

	if err := cluster.Follow(ctx, applied, newScreen(out).Show); err != nil {
		return err
	}

	took := time.Since(applied)

	if err := prove(ctx, out, l, cluster); err != nil {
		return err
	}

	fmt.Fprintf(out, "\nFrom one YAML to a cluster of five nodes in %s.\n", rounded(took))

	return nil
}

func newScreen(out io.Writer) *demo.Screen {
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) || os.Getenv("TERM") == "dumb" {
		return demo.NewScreen(out, false, 0)
	}

	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		width = 0
	}

	return demo.NewScreen(out, true, width)
}

// startDemoLab runs talos-lab up in a process of its own and waits until it is ready.
func startDemoLab(ctx context.Context, flags *demoFlags) (*demoLab, error) {
	// What is missing is said here, and not in the log of another process.
	opts, err := flags.options()
	if err != nil {
		return nil, err
	}

	l := &demoLab{operator: opts.Operator}

	if l.temporary, err = opts.Place(ctx); err != nil {
		return nil, err
	}

	if l.dir, err = filepath.Abs(opts.Dir); err != nil {
		return nil, fmt.Errorf("finding the lab's directory: %w", err)
	}

	if err := control.Running(l.dir); err != nil {
		return nil, err
	}

	if l.client, err = control.NewClient(l.dir); err != nil {
		return nil, err
	}

	exited, err := l.launch(opts, flags.keep)
	if err != nil {
		return nil, err
	}

	if err := l.await(ctx, exited); err != nil {
		return nil, errors.Join(err, l.finish(ctx, io.Discard, false))
	}

	return l, nil
}

// launch starts the process of the lab. A lab that is not kept dies with this command, however that ends.
func (l *demoLab) launch(opts stack.Options, keep bool) (<-chan struct{}, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding talos-lab: %w", err)
	}

	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return nil, fmt.Errorf("making a directory for the lab: %w", err)
	}

	log, err := os.OpenFile(l.log(), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of the lab: %w", err)
	}

	defer log.Close()

	args := []string{
		"up", "--dir", l.dir, "--operator", opts.Operator, "--scale", fmt.Sprint(opts.Scale),
		"--seed", fmt.Sprint(opts.Seed),
	}
	if opts.Subnet != "" {
		args = append(args, "--subnet", opts.Subnet)
	}

	env := append(process.BaseEnv(), "KUBEBUILDER_ASSETS="+opts.Assets)

	if !keep {
		if l.proc, err = process.Start("talos-lab", self, args, env, log); err != nil {
			return nil, err
		}

		return l.proc.Done(), nil
	}

	cmd := exec.Command(self, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}

	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting talos-lab: %w", err)
	}

	exited := make(chan struct{})

	go func() {
		_ = cmd.Wait()

		close(exited)
	}()

	return exited, nil
}

// await waits until the lab is ready or has ended.
func (l *demoLab) await(ctx context.Context, exited <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()

	go func() {
		select {
		case <-exited:
			cancel()
		case <-ctx.Done():
		}
	}()

	info, err := l.client.Await(ctx)
	if err == nil {
		l.info = info

		return nil
	}

	select {
	case <-exited:
		content, _ := os.ReadFile(l.log())

		return fmt.Errorf("the lab did not start:\n%s", bytes.TrimSpace(content))
	default:
		return err
	}
}

func (l *demoLab) log() string { return filepath.Join(l.dir, "lab.log") }

// cluster is that of the quickstart, which is yet to be applied.
func (l *demoLab) cluster() (*demo.Cluster, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", l.info.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of the management plane: %w", err)
	}

	c, err := demo.NewClient(cfg)
	if err != nil {
		return nil, err
	}

	key, err := demo.Name(examples.Quickstart)
	if err != nil {
		return nil, err
	}

	return &demo.Cluster{Key: key, Client: c, Nodes: l.client.Nodes}, nil
}

// quickstart is the manifest of the cluster, with the versions that it begins with.
func (l *demoLab) quickstart() ([]byte, error) {
	subnet, err := netip.ParsePrefix(l.info.Subnet)
	if err != nil {
		return nil, fmt.Errorf("reading the subnet of the lab: %w", err)
	}

	return older(quickstart(subnet)), nil
}

// quickstart returns the quickstart for a lab in a subnet: its endpoint is an address of the usual one.
func quickstart(subnet netip.Prefix) []byte {
	usual := stack.Endpoint(netip.MustParsePrefix(lab.DefaultSubnet))

	return bytes.ReplaceAll(examples.Quickstart, []byte(usual), []byte(stack.Endpoint(subnet)))
}

func (l *demoLab) diagnose(ctx context.Context, out io.Writer, cluster *demo.Cluster) {
	cluster.Diagnose(ctx, out, filepath.Join(l.dir, "manager.log"))

	fmt.Fprintln(out, "\nMachines:")

	nodes, err := l.client.Nodes(ctx)
	if err == nil {
		err = printTable(out, true, nodes)
	}

	if err != nil {
		fmt.Fprintln(out, "  cannot be listed:", err)
	}
}

// finish stops the lab, or says how to look around in one that stays.
func (l *demoLab) finish(ctx context.Context, out io.Writer, keep bool) error {
	if keep && l.info.Ready && ctx.Err() == nil {
		l.lookAround(out)

		return nil
	}

	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stack.StopTimeout)
	defer cancel()

	if l.temporary && l.proc != nil {
		// Nothing needs what it would write while it stops in order.
		l.proc.Kill()

		err := removeAll(stopping, l.dir)
		if err == nil {
			farewell(out)
		}

		return err
	}

	err := l.client.Down(stopping)
	if errors.Is(err, control.ErrNoLab) {
		err = nil // it has ended by itself
	}

	if l.proc != nil {
		err = errors.Join(err, l.proc.Stop(stopping))
	}

	if l.temporary {
		return errors.Join(err, removeAll(stopping, l.dir))
	}

	if err == nil {
		fmt.Fprintf(out, "The lab has stopped and can be started again: talos-lab up --dir %s\n", l.dir)
	}

	return err
}

// removeAll removes a directory that processes which are just dying may still write to.
func removeAll(ctx context.Context, dir string) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()

	for {
		err := os.RemoveAll(dir)
		if err == nil {
			return nil
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("removing the lab's directory: %w", err)
		case <-tick.C:
		}
	}
}

func farewell(out io.Writer) {
	fmt.Fprintln(out, `The lab is gone again. To look around in one:

  make demo KEEP=1                    the same, and the lab stays
  talos-lab up                        a lab to keep: apply manifests to it, break machines, restart it`)
}

func (l *demoLab) lookAround(out io.Writer) {
	self, err := os.Executable()
	if err != nil {
		self = "talos-lab"
	}

	fmt.Fprintf(out, `
The lab keeps running in %[1]s. To look around:

  export KUBECONFIG=%[1]s/kubeconfig                     # the management plane
  kubectl get kubernetesclusters,machines,taloscontrolplanes,talosmachines
  kubectl --kubeconfig %[1]s/quickstart.kubeconfig get nodes -o wide
  talosctl --talosconfig %[1]s/quickstart.talosconfig etcd members
  %[2]s node list --dir %[1]s                            # also freeze, kill, wipe, ...
  tail -f %[1]s/manager.log

Stop it: %[2]s down --dir %[1]s     (start it again: %[2]s up --dir %[1]s)
`, l.dir, self)
}

// prove shows that the cluster responds, with the credentials that the operator has made.
func prove(ctx context.Context, out io.Writer, l *demoLab, cluster *demo.Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, proofTimeout)
	defer cancel()

	secrets, err := cluster.Secrets(ctx)
	if err != nil {
		return err
	}

	if err := l.keepCredentials(cluster.Key.Name, secrets); err != nil {
		return err
	}

	nodes, err := demo.ProveKubernetes(ctx, secrets.Kubeconfig, controlPlanes+workers)
	if err != nil {
		return err
	}

	members, version, err := demo.ProveEtcd(ctx, secrets.Talosconfig, controlPlanes)
	if err != nil {
		return err
	}

	demo.PrintProof(out, cluster.Key.Name, demo.Proof{Nodes: nodes, Members: members, TalosVersion: version})

	return nil
}

// keepCredentials writes the credentials to files for kubectl and talosctl.
func (l *demoLab) keepCredentials(name string, s demo.Secrets) error {
	for suffix, content := range map[string][]byte{".kubeconfig": s.Kubeconfig, ".talosconfig": s.Talosconfig} {
		if err := os.WriteFile(filepath.Join(l.dir, name+suffix), content, 0o600); err != nil {
			return fmt.Errorf("writing the credentials of the cluster: %w", err)
		}
	}

	return nil
}
