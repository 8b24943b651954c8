package chaos

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"

	"github.com/talos-operator/talos-operator/lab/apid"
	"github.com/talos-operator/talos-operator/lab/node/quorum"
)

// apiServer is the component that no other one may be newer than.
const apiServer = "kube-apiserver"

var componentImage = regexp.MustCompile(
	`image: \S+/(kube-apiserver|kube-controller-manager|kube-scheduler|kube-proxy|kubelet):(v[^\s@]+)`)

// components are the versions of Kubernetes that a machine config names.
func components(config []byte) map[string]semver.Version {
	out := map[string]semver.Version{}

	for _, m := range componentImage.FindAllSubmatch(config, -1) {
		if v, err := semver.ParseTolerant(string(m[2])); err == nil {
			out[string(m[1])] = v
		}
	}

	return out
}

// pulled remembers what an image is called: an installer is run by the digest that the node has answered with.
func (o *Oracle) pulled(c apid.Call) {
	if r, ok := c.Request.(*machine.ImageServicePullRequest); ok {
		sum := sha256.Sum256([]byte(r.GetImageRef()))
		o.images["sha256:"+hex.EncodeToString(sum[:])] = r.GetImageRef()
	}
}

// installed judges an installer that is about to run: no version is skipped, none comes back, and none is installed on
// a machine that runs it.
func (o *Oracle) installed(s *subject, request any) {
	image := ""

	switch r := request.(type) {
	case *machine.UpgradeRequest:
		image = r.GetImage()
	case *machine.LifecycleServiceUpgradeRequest:
		image = r.GetSource().GetImageName()
	}

	if _, digest, ok := strings.Cut(image, "@"); ok {
		image = o.images[digest]
	}

	to, err := semver.ParseTolerant(image[strings.LastIndex(image, ":")+1:])
	from, unknown := semver.ParseTolerant(s.Talos())

	switch {
	case err != nil || unknown != nil: // what runs on a machine that goes down is not known
	case to.EQ(from):
		o.violate(RuleVersion, "Talos %s is installed on %s, which runs it", to, s.name)
	case to.LT(from):
		o.violate(RuleVersion, "Talos %s is installed on %s, which runs %s", to, s.name, from)
	case to.Major != from.Major || to.Minor > from.Minor+1:
		o.violate(RuleVersion, "Talos %s is installed on %s, which runs %s: a minor is skipped", to, s.name, from)
	}
}

// configured judges the versions in a config that a machine is about to get.
func (o *Oracle) configured(s *subject, dir string, r *machine.ApplyConfigurationRequest) {
	o.look()

	next := components(r.GetData())

	for _, name := range slices.Sorted(maps.Keys(next)) {
		was, has := s.components[name]
		if has && was.EQ(next[name]) {
			continue
		}

		if has && (next[name].Major != was.Major || next[name].Minor > was.Minor+1) {
			o.violate(RuleVersion, "%s of %s goes from %s to %s: a minor is skipped", name, s.name, was, next[name])
		}

		if name == apiServer {
			continue
		}

		if at, oldest, ok := o.oldestAPIServer(dir, next); ok && next[name].GT(oldest) {
			o.violate(RuleVersion, "%s of %s becomes %s, and the API server of %s is %s", name, s.name, next[name], at, oldest)
		}
	}
}

// look updates what is known of the machines that are on.
func (o *Oracle) look() {
	for _, s := range o.subjects {
		if raw, on := s.Config(); on {
			s.components = components(raw)
		}
	}
}

// oldestAPIServer of the machines with a member of an etcd that has quorum, and of the one that gets a config.
func (o *Oracle) oldestAPIServer(
	dir string, next map[string]semver.Version,
) (at string, oldest semver.Version, ok bool) {
	for _, c := range o.mine() {
		if !o.hasQuorum(c) {
			continue
		}

		for _, m := range c.Members {
			s := o.subjects[m.Dir]
			if s == nil || m.Learner {
				continue
			}

			v, has := s.components[apiServer]
			if m.Dir == dir {
				v, has = next[apiServer]
			}

			if has && (!ok || v.LT(oldest)) {
				at, oldest, ok = s.name, v, true
			}
		}
	}

	return at, oldest, ok
}

// alone judges an act that takes a member away while another one is away that an earlier act has taken away. A fault
// that hit that one since is another matter: it may never come back.
func (o *Oracle) alone(s *subject, act string, c quorum.View) {
	for _, m := range c.Members {
		other := o.subjects[m.Dir]
		if other == nil || other == s || m.Learner || m.Serving || other.acted.IsZero() {
			continue
		}

		if !m.Since.Before(other.acted) && other.faulted.Before(other.acted) {
			o.violate(RuleAlone, "%s of %s while %s has not come back from its own", act, s.name, other.name)
		}
	}
}

// installs: a call runs an installer and does not reboot.
func installs(c apid.Call) bool { return strings.HasSuffix(path.Dir(c.Method), "LifecycleService") }
