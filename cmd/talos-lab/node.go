package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/talos-operator/talos-operator/lab/control"
	"github.com/talos-operator/talos-operator/lab/node"
)

// completionTimeout keeps shell completion from hanging on a lab that does not respond.
const completionTimeout = 2 * time.Second

func newNodeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "node",
		Aliases: []string{"nodes", "machine"},
		Short:   "Boot, list and break single machines of a running lab",
		Args:    args(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newNodeListCommand(), newNodeBootCommand(), newNodeSlowCommand(), newNodeFailCommand(),
		newNodeLinkCommand(control.ActionLinkDown, "Have a link of machines report that it is down"),
		newNodeLinkCommand(control.ActionLinkGone, "Have machines report that they do not have a link"))

	for _, a := range []struct{ action, short string }{
		{control.ActionFreeze, "Freeze machines: they accept connections and do not respond"},
		{control.ActionThaw, "Resume frozen machines"},
		{control.ActionPartition, "Cut machines off the network"},
		{control.ActionHeal, "Connect machines to the network again"},
		{control.ActionKill, "Cut the power of machines; they stay off"},
		{control.ActionStop, "Shut machines down; they stay off"},
		{control.ActionStart, "Switch machines on"},
		{control.ActionRestart, "Cut the power of machines and switch them on again"},
		{control.ActionWipe, "Replace the disks of machines by empty ones and boot them"},
		{control.ActionRemove, "Destroy machines with their disks"},
		{control.ActionStall, "Let pulls of etcd's image get no further; one that a config interrupts never ends"},
		{control.ActionFill, "Leave no space on the disks of machines: no image can be pulled"},
		{control.ActionNoDNS, "Have machines report that they have no DNS servers"},
		{control.ActionSilentDNS, "Have machines report that their DNS servers do not respond"},
		{control.ActionNoTunnels, "Have machines report that no peer of KubeSpan can be reached"},
		{control.ActionNoMembers, "Have discovery report to machines no node but themselves"},
		{control.ActionSecure, "Switch Secure Boot on in the firmware of machines, from their next boot on"},
		{control.ActionInsecure, "Switch Secure Boot off in the firmware of machines, from their next boot on"},
		{control.ActionClear, "End all faults of machines"},
	} {
		cmd.AddCommand(newNodeActionCommand(a.action, a.short))
	}

	return cmd
}

// nodeFlags are what every command about machines has.
type nodeFlags struct{ dir, output string }

func (f *nodeFlags) add(cmd *cobra.Command) {
	addDirFlag(cmd, &f.dir)
	addOutputFlag(cmd, &f.output)
}

// complete suggests the names of machines.
func (f *nodeFlags) complete(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	parent := cmd.Context()
	if parent == nil {
		parent = context.Background()
	}

	ctx, cancel := context.WithTimeout(parent, completionTimeout)
	defer cancel()

	c, err := control.NewClient(f.dir)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}

	nodes, err := c.Nodes(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}

	var names []string

	for _, n := range nodes {
		if strings.HasPrefix(n.Name, prefix) {
			names = append(names, n.Name)
		}
	}

	return names, cobra.ShellCompDirectiveNoFileComp
}

func newNodeListCommand() *cobra.Command {
	flags := &nodeFlags{}

	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls", "get"},
		Short:   "List machines",
		Args:    args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := control.NewClient(flags.dir)
			if err != nil {
				return err
			}

			nodes, err := c.Nodes(cmd.Context())
			if err != nil {
				return err
			}

			return printNodes(cmd.OutOrStdout(), flags.output, nodes)
		},
	}
	flags.add(cmd)

	return cmd
}

func newNodeBootCommand() *cobra.Command {
	flags := &nodeFlags{}
	boot := control.Boot{}

	cmd := &cobra.Command{
		Use:     "boot [NAME]...",
		Short:   "Boot new machines, in maintenance mode",
		Example: "  talos-lab node boot\n  talos-lab node boot edge-1 --cpus 4 --memory 8192 --disk 20 --disk 100",
		RunE: func(cmd *cobra.Command, names []string) error {
			c, err := control.NewClient(flags.dir)
			if err != nil {
				return err
			}

			if len(names) == 0 {
				names = []string{""}
			}

			var booted []control.Node

			for _, name := range names {
				b := boot
				b.Name = name

				n, err := c.Boot(cmd.Context(), b)
				if err != nil {
					return err
				}

				booted = append(booted, n)
			}

			return printNodes(cmd.OutOrStdout(), flags.output, booted)
		},
	}
	flags.add(cmd)
	cmd.Flags().StringVar(&boot.Address, "address", "", "address of the machine (default: the next free one)")
	cmd.Flags().IntVar(&boot.CPUs, "cpus", 0, "processors")
	cmd.Flags().IntVar(&boot.MemoryMiB, "memory", 0, "memory in MiB")
	cmd.Flags().IntSliceVar(&boot.DiskGiB, "disk", nil, "size of a disk in GiB, once for each disk")
	cmd.Flags().StringVar(&boot.TalosVersion, "talos", "", "Talos on the boot medium, for example v1.13.9")
	cmd.Flags().BoolVar(&boot.SecureBoot, "secure-boot", false, "Secure Boot is on in the firmware")

	return cmd
}

func newNodeActionCommand(action, short string) *cobra.Command {
	flags := &nodeFlags{}

	cmd := &cobra.Command{
		Use:               action + " NAME...",
		Short:             short,
		Args:              args(cobra.MinimumNArgs(1)),
		ValidArgsFunction: flags.complete,
		RunE: func(cmd *cobra.Command, names []string) error {
			return act(cmd, flags, control.Action{Names: names, Action: action})
		},
	}
	flags.add(cmd)

	return cmd
}

func newNodeLinkCommand(action, short string) *cobra.Command {
	flags := &nodeFlags{}
	a := control.Action{Action: action}

	cmd := &cobra.Command{
		Use:               action + " NAME...",
		Short:             short,
		Example:           "  talos-lab node " + action + " quickstart-cp-0 --link eth0",
		Args:              args(cobra.MinimumNArgs(1)),
		ValidArgsFunction: flags.complete,
		RunE: func(cmd *cobra.Command, names []string) error {
			a.Names = names

			return act(cmd, flags, a)
		},
	}
	flags.add(cmd)
	cmd.Flags().StringVar(&a.Link, "link", "eth0", "name of the link")

	return cmd
}

func newNodeSlowCommand() *cobra.Command {
	flags := &nodeFlags{}
	action := control.Action{Action: control.ActionSlow}

	cmd := &cobra.Command{
		Use:               "slow NAME...",
		Short:             "Make calls of the machine API take longer, until talos-lab node clear",
		Example:           "  talos-lab node slow quickstart-cp-0 --method EtcdMemberList --delay 30s",
		Args:              args(cobra.MinimumNArgs(1)),
		ValidArgsFunction: flags.complete,
		RunE: func(cmd *cobra.Command, names []string) error {
			action.Names = names

			return act(cmd, flags, action)
		},
	}
	flags.add(cmd)
	cmd.Flags().StringVar(&action.Delay, "delay", "5s", "how much longer")
	addMethodFlag(cmd, &action.Method)

	return cmd
}

func addMethodFlag(cmd *cobra.Command, method *string) {
	cmd.Flags().StringVar(method, "method", "", "method of the machine API (default: every one)")

	_ = cmd.RegisterFlagCompletionFunc("method",
		cobra.FixedCompletions(node.Methods(), cobra.ShellCompDirectiveNoFileComp))
}

func newNodeFailCommand() *cobra.Command {
	flags := &nodeFlags{}
	action := control.Action{Action: control.ActionFail}

	cmd := &cobra.Command{
		Use:               "fail NAME...",
		Short:             "Make calls of the machine API fail, until talos-lab node clear",
		Example:           "  talos-lab node fail quickstart-cp-0 --method Bootstrap --code Unavailable --nth 1 --count 3",
		Args:              args(cobra.MinimumNArgs(1)),
		ValidArgsFunction: flags.complete,
		RunE: func(cmd *cobra.Command, names []string) error {
			action.Names = names

			return act(cmd, flags, action)
		},
	}
	flags.add(cmd)
	addMethodFlag(cmd, &action.Method)
	cmd.Flags().StringVar(&action.Code, "code", "Unavailable", "error code of gRPC that the calls answer")
	cmd.Flags().IntVar(&action.Nth, "nth", 1, "first call that fails, 1 is the next one")
	cmd.Flags().IntVar(&action.Count, "count", 0, "how many calls fail, 0 is all that follow")

	var names []string
	for _, code := range control.Codes() {
		names = append(names, code.String())
	}

	_ = cmd.RegisterFlagCompletionFunc("code", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))

	return cmd
}

func act(cmd *cobra.Command, flags *nodeFlags, action control.Action) error {
	c, err := control.NewClient(flags.dir)
	if err != nil {
		return err
	}

	nodes, err := c.Act(cmd.Context(), action)
	if err != nil {
		return err
	}

	if action.Action == control.ActionRemove && flags.output == outputTable {
		fmt.Fprintln(cmd.OutOrStdout(), "Destroyed.")

		return nil
	}

	return printNodes(cmd.OutOrStdout(), flags.output, nodes)
}

func newStatusCommand() *cobra.Command {
	flags := &nodeFlags{}

	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the status of a lab",
		Args:  args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := control.NewClient(flags.dir)
			if err != nil {
				return err
			}

			info, err := c.Info(cmd.Context())
			if err != nil {
				return err
			}

			if flags.output == outputJSON {
				return printJSON(cmd.OutOrStdout(), info)
			}

			fmt.Fprintf(cmd.OutOrStdout(),
				"Directory:   %s\nReady:       %s\nKubeconfig:  %s\nAPI server:  %s\nS3 server:   %s\nMachines in: %s\n"+
					"Operator:    process %d, %d restarts, log %s\n",
				info.Dir, yesNo(info.Ready), info.Kubeconfig, info.Server, cmp.Or(info.Store, "none"), info.Subnet,
				info.Manager.PID, info.Manager.Restarts, info.Manager.Log)

			return nil
		},
	}
	flags.add(cmd)

	return cmd
}
