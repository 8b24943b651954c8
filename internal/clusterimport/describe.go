package clusterimport

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

// Description is what the config of a control-plane node tells about its cluster, in the words of a spec.
type Description struct {
	clusterstate.BundleConfig

	// CNI is empty where the config does not name one.
	CNI machineconfig.CNI
	// AllowScheduling: workloads run on control-plane nodes.
	AllowScheduling bool
}

// settings are the parts of a config that are read here, without the library's types: they refuse newer fields.
type settings struct {
	Machine *struct {
		Install struct {
			Image string `yaml:"image"`
		} `yaml:"install"`
		Kubelet struct {
			Image string `yaml:"image"`
		} `yaml:"kubelet"`
	} `yaml:"machine"`
	Cluster struct {
		AllowScheduling bool `yaml:"allowSchedulingOnControlPlanes"`
		Network         struct {
			CNI struct {
				Name string   `yaml:"name"`
				URLs []string `yaml:"urls"`
			} `yaml:"cni"`
		} `yaml:"network"`
	} `yaml:"cluster"`
}

func readSettings(config []byte) (*settings, error) {
	dec := yaml.NewDecoder(bytes.NewReader(config))

	for {
		out := &settings{}

		switch err := dec.Decode(out); {
		case errors.Is(err, io.EOF):
			return nil, errors.New("the machine config has no machine section")
		case err != nil:
			// The library's error quotes values.
			return nil, errors.New("the machine config has fields of another form than those of Talos")
		case out.Machine != nil:
			return out, nil
		}
	}
}

// Describe reads the parameters of a cluster from the live config of a control-plane node, with the defaults of Talos
// where that says nothing. talosVersion is what the node runs; the contract stays empty.
func Describe(config []byte, talosVersion string) (Description, error) {
	made, err := clusterstate.BundleConfigOf(config)
	if err != nil {
		return Description{}, err
	}

	read, err := readSettings(config)
	if err != nil {
		return Description{}, err
	}

	made.TalosVersion = talosVersion
	made.PodSubnets = orDefault(made.PodSubnets, machineconfig.DefaultPodSubnet)
	made.ServiceSubnets = orDefault(made.ServiceSubnets, machineconfig.DefaultServiceSubnet)

	if made.DNSDomain == "" {
		made.DNSDomain = machineconfig.DefaultDNSDomain
	}

	cni := read.Cluster.Network.CNI

	return Description{
		BundleConfig: made, AllowScheduling: read.Cluster.AllowScheduling,
		CNI: machineconfig.CNI{Name: cni.Name, URLs: cni.URLs},
	}, nil
}

func orDefault(list []string, def string) []string {
	if len(list) > 0 {
		return list
	}

	return []string{def}
}

// Images are the references in a config whose repositories a spec can name; empty where the config has none.
type Images struct {
	// Install is the installer, Kubelet the kubelet, both as the config has them.
	Install, Kubelet string
}

// ImagesOf reads the images from a config.
func ImagesOf(config []byte) (Images, error) {
	read, err := readSettings(config)
	if err != nil {
		return Images{}, err
	}

	return Images{Install: read.Machine.Install.Image, Kubelet: read.Machine.Kubelet.Image}, nil
}

var version = regexp.MustCompile(`^v?(\d+\.\d+\.\d+(-(alpha|beta|rc)\.\d+)?)`)

// KubernetesVersion is what a node runs, as specs have it: that of the kubelet which it says it runs, else the one of
// its config. Empty when neither tells.
func KubernetesVersion(running string, config []byte) string {
	if v := Version(running); v != "" {
		return v
	}

	images, err := ImagesOf(config)
	if err != nil {
		return ""
	}

	image, _, _ := strings.Cut(images.Kubelet, "@")

	return Version(image[strings.LastIndex(image, ":")+1:])
}

// Version is a version as specs have it, v1.36.2, of a tag that may have a variant behind it; empty when it is none.
func Version(tag string) string {
	if found := version.FindStringSubmatch(tag); found != nil {
		return "v" + found[1]
	}

	return ""
}

// Conflicts compares the parameters that a spec asks for with those that a node runs with; the versions too, because an
// import must not be an upgrade. Each is a sentence that names the field of the spec.
func Conflicts(spec, live clusterstate.BundleConfig) []string {
	var out []string

	check := func(field, want, have string) {
		if want != have {
			out = append(out, fmt.Sprintf("%s is %s, and the cluster runs with %s", field, want, have))
		}
	}

	check("spec.clusterName", spec.ClusterName, live.ClusterName)
	check("spec.endpoint", spec.Endpoint, live.Endpoint)
	check("spec.talosVersion", spec.TalosVersion, live.TalosVersion)
	check("spec.kubernetesVersion", spec.KubernetesVersion, live.KubernetesVersion)
	check("spec.network.podSubnets", strings.Join(spec.PodSubnets, ", "), strings.Join(live.PodSubnets, ", "))
	check("spec.network.serviceSubnets", strings.Join(spec.ServiceSubnets, ", "), strings.Join(live.ServiceSubnets, ", "))
	check("spec.network.dnsDomain", spec.DNSDomain, live.DNSDomain)

	return out
}

// contracts that are tried: those of as many releases, from the one that runs backwards.
const contracts = 9

// Contract finds the version contract that a config was made with: the one whose render differs least from it, the
// newest of several. A cluster that was upgraded keeps the config of the release that it began with.
func Contract(in machineconfig.Input, live []byte) (string, error) {
	var (
		best   string
		least  int
		failed error
	)

	for _, contract := range contractsUpTo(in.TalosVersion) {
		in.Contract = contract

		count, err := differences(in, live)
		if err != nil {
			failed = err

			continue
		}

		if best == "" || count < least {
			best, least = contract, count
		}
	}

	if best == "" {
		return "", failed
	}

	return best, nil
}

func contractsUpTo(talosVersion string) []string {
	parts := strings.Split(strings.TrimPrefix(talosVersion, "v"), ".")
	if len(parts) < 2 {
		return []string{talosVersion}
	}

	minor, err := strconv.Atoi(parts[1])
	if err != nil {
		return []string{talosVersion}
	}

	var out []string
	for m := minor; m >= 0 && m > minor-contracts; m-- {
		out = append(out, fmt.Sprintf("v%s.%d", parts[0], m))
	}

	return slices.Clip(out)
}

func differences(in machineconfig.Input, live []byte) (int, error) {
	rendered, err := machineconfig.Render(in)
	if err != nil {
		return 0, err
	}

	want, _, err := machineconfig.KeepImageTags(live, rendered.Bytes, machineconfig.Released{})
	if err != nil {
		return 0, fmt.Errorf("comparing with contract %s: %w", in.Contract, err)
	}

	d, err := machineconfig.Diff(live, want)

	return len(d.Changes), err
}
