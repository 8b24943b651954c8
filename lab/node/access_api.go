package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/talos-operator/talos-operator/lab/kubernetes"
	"github.com/talos-operator/talos-operator/lab/node/api"
	"github.com/talos-operator/talos-operator/lab/node/configuration"
	"github.com/talos-operator/talos-operator/lab/node/disk"
	"github.com/talos-operator/talos-operator/lab/node/filetree"
)

// Version implements the MachineService.
func (s machineServer) Version(context.Context, *emptypb.Empty) (*machine.VersionResponse, error) {
	v := &machine.Version{
		Version: &machine.VersionInfo{
			Tag: s.tag, Sha: "undefined", GoVersion: runtime.Version(), Os: "linux", Arch: runtime.GOARCH,
		},
		Platform: &machine.PlatformInfo{Name: configuration.Platform, Mode: configuration.Platform},
	}

	if !s.inMaintenance() {
		v.Features = &machine.FeaturesInfo{Rbac: true}
	}

	return &machine.VersionResponse{Messages: []*machine.Version{v}}, nil
}

// Hostname implements the MachineService.
func (s machineServer) Hostname(context.Context, *emptypb.Empty) (*machine.HostnameResponse, error) {
	return &machine.HostnameResponse{Messages: []*machine.Hostname{{Hostname: s.hostname()}}}, nil
}

// Kubeconfig implements the MachineService.
func (s machineServer) Kubeconfig(_ *emptypb.Empty, srv grpc.ServerStreamingServer[common.Data]) error {
	if err := s.onControlPlane("kubeconfig"); err != nil {
		return err
	}

	cfg, _ := s.complete()

	data, err := kubernetes.AdminKubeconfig(cfg, cfg.Cluster().Endpoint().String())
	if err != nil {
		return err
	}

	archive, err := filetree.Pack(filetree.Packed{Name: "kubeconfig", Data: data})
	if err != nil {
		return err
	}

	return api.Send(srv, bytes.NewReader(archive))
}

// GenerateClientConfiguration implements the MachineService.
func (s machineServer) GenerateClientConfiguration(
	_ context.Context, req *machine.GenerateClientConfigurationRequest,
) (*machine.GenerateClientConfigurationResponse, error) {
	if err := s.onControlPlane("generate client configuration"); err != nil {
		return nil, err
	}

	ttl := req.GetCrtTtl().AsDuration()
	if ttl <= 0 {
		return nil, status.Error(codes.InvalidArgument, "crt_ttl should be positive")
	}

	roles, _ := role.Parse(req.GetRoles())
	cfg, _ := s.complete()
	bundle := secrets.NewBundleFromConfig(secrets.NewFixedClock(time.Now()), cfg)

	cert, err := bundle.GenerateTalosAPIClientCertificateWithTTL(roles, ttl)
	if err != nil {
		return nil, fmt.Errorf("generating the client certificate: %w", err)
	}

	name := cfg.Cluster().Name()
	if list := roles.Strings(); len(list) == 1 {
		name = strings.TrimPrefix(list[0], role.Prefix) + "@" + name
	}

	talosconfig, err := clientconfig.NewConfig(name, nil, bundle.Certs.OS.Crt, cert).Bytes()
	if err != nil {
		return nil, fmt.Errorf("rendering the talosconfig: %w", err)
	}

	return &machine.GenerateClientConfigurationResponse{Messages: []*machine.GenerateClientConfiguration{{
		Ca: bundle.Certs.OS.Crt, Crt: cert.Crt, Key: cert.Key, Talosconfig: talosconfig,
	}}}, nil
}

// MetaWrite implements the MachineService.
func (s machineServer) MetaWrite(_ context.Context, req *machine.MetaWriteRequest) (*machine.MetaWriteResponse, error) {
	key, err := metaKey(req.GetKey())
	if err != nil {
		return nil, err
	}

	err = s.n.system.SetMeta(key, string(req.GetValue()))

	switch {
	case errors.Is(err, disk.ErrMetaFull):
		return nil, status.Error(codes.ResourceExhausted, "meta write failed")
	case err != nil:
		return nil, err
	}

	s.store.SetMetaKeys(s.n.system.MetaValues())

	return &machine.MetaWriteResponse{Messages: []*machine.MetaWrite{{}}}, nil
}

// MetaDelete implements the MachineService.
func (s machineServer) MetaDelete(
	_ context.Context,
	req *machine.MetaDeleteRequest,
) (*machine.MetaDeleteResponse, error) {
	key, err := metaKey(req.GetKey())
	if err != nil {
		return nil, err
	}

	found, err := s.n.system.DeleteMeta(key)

	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, status.Error(codes.NotFound, "meta key not found")
	}

	s.store.SetMetaKeys(s.n.system.MetaValues())

	return &machine.MetaDeleteResponse{Messages: []*machine.MetaDelete{{}}}, nil
}

func metaKey(key uint32) (uint8, error) {
	if key > 255 {
		return 0, status.Error(codes.InvalidArgument, "key must be a uint8")
	}

	return uint8(key), nil
}
