package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/talos-operator/talos-operator/lab/control"
)

const (
	outputTable = ""
	outputWide  = "wide"
	outputJSON  = "json"
	outputName  = "name"
)

func addOutputFlag(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVarP(output, "output", "o", outputTable, "wide, json or name")
	_ = cmd.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions([]string{outputWide, outputJSON, outputName}, cobra.ShellCompDirectiveNoFileComp))
}

// printNodes prints machines the way a person asked for.
func printNodes(w io.Writer, output string, nodes []control.Node) error {
	switch output {
	case outputJSON:
		return printJSON(w, nodes)
	case outputName:
		for _, n := range nodes {
			fmt.Fprintln(w, n.Name)
		}

		return nil
	case outputTable, outputWide:
		return printTable(w, output == outputWide, nodes)
	default:
		return fmt.Errorf("unknown output %q: %w", output, errUsage)
	}
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")

	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encoding the answer: %w", err)
	}

	return nil
}

func printTable(w io.Writer, wide bool, nodes []control.Node) error {
	if len(nodes) == 0 {
		fmt.Fprintln(w, "No machines.")

		return nil
	}

	t := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)

	header := "NAME\tADDRESS\tPOWER\tSTAGE\tREADY\tTYPE\tCLUSTER\tTALOS"
	if wide {
		header += "\tKUBERNETES\tETCD MEMBER\tBOOT ID\tMAINTENANCE FINGERPRINT\tUNMET"
	}

	fmt.Fprintln(t, header)

	for _, n := range nodes {
		cells := []string{
			n.Name, n.Address, power(n), dash(n.Stage), yesNo(n.Ready), dash(n.MachineType), dash(n.ClusterName),
			dash(n.TalosVersion),
		}

		if wide {
			cells = append(cells, dash(n.KubernetesVersion), dash(n.EtcdMember), dash(n.BootID),
				dash(n.MaintenanceFingerprint), dash(strings.Join(n.Unmet, ",")))
		}

		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}

	if err := t.Flush(); err != nil {
		return fmt.Errorf("printing a table: %w", err)
	}

	return nil
}

// power says in a word how a machine is.
func power(n control.Node) string {
	switch {
	case !n.Powered:
		return "off"
	case n.Frozen:
		return "frozen"
	case n.Partitioned:
		return "partitioned"
	default:
		return "on"
	}
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}

	return "no"
}

func dash(s string) string {
	if s == "" {
		return "-"
	}

	return s
}
