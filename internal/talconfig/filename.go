package talconfig

import (
	"cmp"
	"path/filepath"
	"strings"
)

// DefaultFilename is the template of the name of the file with the machine config of a node.
const DefaultFilename = "{{.ClusterName}}-{{.Hostname}}.yaml"

// Filename is the name of the file with the machine config of a node, below the output folder.
func (f *Fleet) Filename(m *Machine) (string, error) {
	if m.FilenameTmpl == "" {
		return f.Config.ClusterName + "-" + m.Hostname + ".yaml", nil
	}

	role := "worker"
	if m.ControlPlane {
		role = "controlplane"
	}

	name, err := execute(cmp.Or(m.FilenameTmpl, DefaultFilename), struct{ ClusterName, Hostname, IPAddress, Role string }{
		f.Config.ClusterName, m.Hostname, strings.Join(m.Addresses(), ","), role,
	})

	return filepath.Clean(name), err
}
