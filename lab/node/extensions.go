package node

import (
	"fmt"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"

	"github.com/talos-operator/talos-operator/lab/node/service"
)

// extensionService is a service that a system extension brings.
type extensionService struct {
	name string
	// waits says that it does not start without a configuration.
	waits bool
}

// extensionServices are the services of some extensions of the Talos project, by the names of the extensions.
var extensionServices = map[string][]extensionService{
	"iscsi-tools":      {{"iscsid", false}, {"tgtd", false}},
	"nut-client":       {{"nut-client", true}},
	"qemu-guest-agent": {{"qemu-guest-agent", false}},
	"tailscale":        {{"tailscale", true}},
}

// extensionPrefix begins the IDs of services of extensions.
const extensionPrefix = "ext-"

// What services of extensions wait for, in the words of a real node.
const (
	waitExtension       = `Waiting for service "containerd" to be "up"`
	waitExtensionConfig = waitExtension + `, extension service config`
)

func (e extensionService) id() string { return extensionPrefix + e.name }

// servicesOfExtensions are the services of the extensions that run.
func (s *session) servicesOfExtensions() []extensionService {
	var out []extensionService
	for _, name := range s.extensions() {
		out = append(out, extensionServices[name]...)
	}

	return out
}

// configurationOf is all that a config says of the service of an extension; false for nothing.
func configurationOf(cfg config.Provider, name string) (string, bool) {
	for _, doc := range cfg.ExtensionServiceConfigs() {
		if doc.Name() != name {
			continue
		}

		var out strings.Builder
		for _, file := range doc.ConfigFiles() {
			fmt.Fprintf(&out, "%q %q\n", file.MountPath(), file.Content())
		}

		fmt.Fprintf(&out, "%q", doc.Environment())

		return out.String(), true
	}

	return "", false
}

// runExtension brings the service of an extension in line with its configuration: it starts once it has what it waits
// for, and starts anew when its configuration has changed. One that the boot has not come to only starts by the boot.
func (s *session) runExtension(e extensionService, booting bool) {
	s.extensionMu.Lock()
	defer s.extensionMu.Unlock()

	cfg, ok := s.complete()
	if !ok || s.ctx.Err() != nil {
		return
	}

	want, configured := configurationOf(cfg, e.name)
	st, known := s.services.Get(e.id())

	if !known && !booting || st.Running() && s.extensionConfigs[e.name] == want {
		return
	}

	if st.Running() {
		s.stopService(e.id())
	}

	if !known || st.State != service.Waiting {
		s.update(e.id(), service.Starting, "Starting service")
	}

	if e.waits && !configured {
		s.update(e.id(), service.Waiting, "%s", waitExtensionConfig)

		return
	}

	s.update(e.id(), service.Waiting, "%s", waitExtension)
	s.prepare(e.id())
	s.taskStarted(e.id())
	s.extensionConfigs[e.name] = want
}

// followExtensions has the services of extensions that have come up follow a changed config.
func (s *session) followExtensions() {
	for _, e := range s.servicesOfExtensions() {
		s.runExtension(e, false)
	}
}
