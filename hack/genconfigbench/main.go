// Command genconfigbench measures talos-operator talconfig genconfig, as a user runs it: one process, from the
// talconfig.yaml to the files.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// result is printed as one line of JSON.
type result struct {
	Nodes int `json:"nodes"`
	// Seconds is the median of all runs, from the start of the process to its end.
	Seconds float64 `json:"genconfig_1000_nodes_s"`
	// CPUSeconds is the median of the processor time.
	CPUSeconds float64 `json:"genconfig_cpu_s"`
	// PeakMiB is the largest resident set of all runs.
	PeakMiB float64 `json:"genconfig_peak_mib"`
}

func main() {
	operator := flag.String("operator", ".bin/talos-operator", "program to measure")
	nodes := flag.Int("nodes", 1000, "nodes of the talconfig.yaml")
	runs := flag.Int("runs", 5, "how often to measure")
	flag.Parse()

	if err := run(*operator, *nodes, *runs); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(operator string, nodes, runs int) error {
	operator, err := filepath.Abs(operator)
	if err != nil {
		return err
	}

	dir, err := os.MkdirTemp("", "genconfigbench-*")
	if err != nil {
		return err
	}

	defer func() { _ = os.RemoveAll(dir) }()

	if err := os.WriteFile(filepath.Join(dir, "talconfig.yaml"), talconfig(nodes), 0o600); err != nil {
		return err
	}

	if _, err := measure(dir, operator, "talconfig", "gensecret"); err != nil {
		return err
	}

	out := result{Nodes: nodes}

	var wall, cpu []float64

	for range runs {
		if err := os.RemoveAll(filepath.Join(dir, "clusterconfig")); err != nil {
			return err
		}

		began := time.Now()

		state, err := measure(dir, operator, "talconfig", "genconfig")
		if err != nil {
			return err
		}

		wall = append(wall, time.Since(began).Seconds())
		cpu = append(cpu, (state.UserTime() + state.SystemTime()).Seconds())

		if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
			out.PeakMiB = max(out.PeakMiB, float64(usage.Maxrss)/1024) // in KiB on Linux
		}
	}

	out.Seconds, out.CPUSeconds = median(wall), median(cpu)

	return json.NewEncoder(os.Stdout).Encode(out)
}

func measure(dir, operator string, args ...string) (*os.ProcessState, error) {
	cmd := exec.Command(operator, args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr

	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("running %s: %w", strings.Join(args, " "), err)
	}

	return cmd.ProcessState, nil
}

func median(values []float64) float64 {
	slices.Sort(values)

	return values[len(values)/2]
}

// talconfig is that of a fleet with three control planes: each node has its own address, link and labels, and shares
// the rest with its group.
func talconfig(nodes int) []byte {
	var b strings.Builder

	b.WriteString(`clusterName: bench
endpoint: https://10.0.0.10:6443
kubernetesVersion: v1.36.2
cniConfig: {name: none}
patches:
  - |-
    machine:
      sysctls:
        vm.max_map_count: "262144"
controlPlane:
  schematic: &schematic
    customization:
      systemExtensions:
        officialExtensions: [siderolabs/iscsi-tools, siderolabs/util-linux-tools]
worker:
  schematic: *schematic
  nodeLabels: {example.org/group: worker}
  patches:
    - |-
      - op: add
        path: /machine/env
        value: {GRPC_GO_LOG_SEVERITY_LEVEL: error}
nodes:
`)

	for i := range nodes {
		fmt.Fprintf(&b, `  - hostname: node-%[1]d
    ipAddress: 10.1.%[2]d.%[3]d
    controlPlane: %[4]t
    installDisk: /dev/sda
    nameservers: [10.0.0.2]
    networkInterfaces:
      - deviceSelector: {hardwareAddr: "00:1a:2b:3c:%02[2]x:%02[3]x"}
        addresses: [10.1.%[2]d.%[3]d/16]
        routes: [{network: 0.0.0.0/0, gateway: 10.1.255.254}]
`, i, i/250, i%250+1, i < 3)
	}

	return []byte(b.String())
}
