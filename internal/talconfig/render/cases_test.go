package render_test

// keyCases set each key that is read. A case has what its key needs to have an effect.
var keyCases = []keyCase{
	{name: "clusterName", root: "clusterName: other\n"},
	{name: "talosVersion", root: "talosVersion: v1.12.4\nkubernetesVersion: v1.35.0\n"},
	{name: "talosVersion before documents", root: "talosVersion: v1.11.5\nkubernetesVersion: v1.34.1\n", node: `
nameservers: [10.0.0.2]
disableSearchDomain: true
networkInterfaces:
  - interface: eth0
    dhcp: true
    ignore: false
schematic: {customization: {extraKernelArgs: [console=ttyS0]}}
`},
	{name: "kubernetesVersion", root: "kubernetesVersion: 1.35.0\n"},
	{name: "endpoint of IPv6", root: "endpoint: https://[fd00::10]:6443\n"},
	{name: "domain", root: "domain: prod.example.org\n"},
	{name: "allowSchedulingOnMasters", root: "allowSchedulingOnMasters: true\n"},
	{name: "allowSchedulingOnControlPlanes", root: "allowSchedulingOnControlPlanes: true\n"},
	{name: "additionalMachineCertSans", root: "additionalMachineCertSans: [talos.example.org]\n"},
	{name: "additionalApiServerCertSans", root: "additionalApiServerCertSans: [api.example.org]\n"},
	{name: "inlineManifests", root: `inlineManifests:
  - name: greeting
    contents: "# ${GREETING}"
  - name: literal
    contents: "@literal.txt"
    skipEnvsubst: true
`},
	{name: "clusterPodNets and clusterSvcNets", root: "clusterPodNets: [10.42.0.0/16]\nclusterSvcNets: [10.43.0.0/16]\n"},
	{name: "cniConfig", root: `cniConfig:
  name: flannel
  flannel: {extraArgs: [--iface=eth1], kubeNetworkPoliciesEnabled: true}
`},
	{name: "cniConfig of URLs", root: "cniConfig: {name: custom, urls: [\"https://example.org/cni.yaml\"]}\n"},
	{name: "patches", root: `patches:
  - |-
    machine:
      sysctls:
        vm.max_map_count: "262144"
  - |-
    - op: add
      path: /machine/env
      value: {GREETING: hello}
  - "@patch.yaml"
`},
	{name: "imageFactory", root: `imageFactory:
  registryURL: factory.example.org
  schematicEndpoint: /schematics
  protocol: http
  installerURLTmpl: "{{.RegistryURL}}/own/{{.ID}}:{{.Version}}"
  ISOURLTmpl: "{{.Protocol}}://{{.RegistryURL}}/own/{{.Mode}}-{{.Arch}}.iso"
`},
	{name: "controlPlane", root: `controlPlane:
  nodeLabels: {example.org/rack: r1}
  patches: ["machine: {sysctls: {a: group}}"]
`, node: "patches: [\"machine: {sysctls: {a: node}}\"]\n"},
	{name: "installDisk", node: "installDisk: /dev/nvme0n1\n"},
	{name: "installDiskSelector", node: `installDiskSelector:
  size: ">= 100GB"
  model: WDC*
  serial: abc
  modalias: scsi*
  uuid: 00000000-0000-0000-0000-000000000001
  wwid: naa.1
  type: ssd
  busPath: /pci0000:00/*
`},
	{name: "ignoreHostname", node: "ignoreHostname: true\n"},
	{name: "overrides", root: `controlPlane:
  patches: ["machine: {sysctls: {a: group}}"]
  certSANs: [group.example.org]
  extraManifests: [user.yaml]
`, node: `
overridePatches: true
overrideExtraManifests: true
overrideMachineCertSANs: true
patches: ["machine: {sysctls: {b: node}}"]
certSANs: [node.example.org]
extraManifests: ["@user.yaml"]
`},
	{name: "nodeLabels, nodeAnnotations and nodeTaints", node: `
nodeLabels: {example.org/cluster: "{{ .ClusterConfig.ClusterName }}"}
nodeAnnotations: {example.org/contact: ops}
nodeTaints: {example.org/gpu: "a100:NoSchedule"}
`},
	{name: "machineDisks", root: "talosVersion: v1.11.5\nkubernetesVersion: v1.34.1\n", node: `
machineDisks:
  - device: /dev/sdb
    partitions: [{mountpoint: /var/mnt/a, size: 10GB}, {mountpoint: /var/mnt/b}]
`},
	{name: "machineFiles", node: `
machineFiles:
  - {content: "hello ${GREETING}", permissions: 0o644, path: /var/greeting, op: create}
  - {content: "@script.sh", permissions: 0o755, path: /var/script.sh, op: create}
  - {content: "@literal.txt", permissions: 0o644, path: /var/price, op: create, skipEnvsubst: true}
`},
	{name: "disableSearchDomain and nameservers", node: "disableSearchDomain: true\nnameservers: [10.0.0.2, \"fd00::2\"]\n"},
	{name: "kernelModules", node: "kernelModules: [{name: br_netfilter, parameters: [a=1]}]\n"},
	{name: "noSchematicValidate", node: "noSchematicValidate: true\n"},
	{name: "talosImageURL", node: "talosImageURL: registry.example.org:5000/installer\n"},
	{name: "schematic", node: `
schematic:
  owner: me
  overlay: {image: siderolabs/sbc-raspberrypi, name: rpi_generic, options: {configTxt: a}}
  customization:
    embeddedMachineConfiguration: "machine: {}"
    extraKernelArgs: [noapic, nolapic]
    meta: [{key: 10, value: foo}]
    systemExtensions: {officialExtensions: [siderolabs/gvisor, siderolabs/amd-ucode]}
    bootloader: sd-boot
    secureboot: {includeWellKnownCertificates: true}
    diskImage: {sectorSize: 4096}
`},
	{name: "imageSchematic", node: "imageSchematic: {customization: {extraKernelArgs: [noapic, nolapic]}}\n"},
	{name: "machineSpec", node: "machineSpec: {mode: nocloud, arch: arm64, bootMethod: disk-image, imageSuffix: qcow2}\n"},
	{name: "machineSpec of Secure Boot", node: "machineSpec: {secureboot: true, useUKI: true}\n"},
	{name: "machineSpec of PXE", node: "machineSpec: {bootMethod: pxe}\n"},
	{name: "ingressFirewall", node: `
ingressFirewall:
  defaultAction: block
  rules:
    - name: kubelet
      portSelector: {ports: [10250, 2379-2380], protocol: tcp}
      ingress: [{subnet: 10.0.0.0/24, except: 10.0.0.1/32}]
`},
	{name: "extensionServices", node: `
extensionServices:
  - name: nut-client
    configFiles: [{content: MONITOR, mountPath: /usr/local/etc/nut/upsmon.conf}]
    environment: [A=b]
`},
	{name: "volumes", node: `
volumes:
  - name: EPHEMERAL
    provisioning: {diskSelector: {match: system_disk}, grow: false, minSize: 10GiB, maxSize: 50GiB}
    encryption:
      provider: luks2
      cipher: aes-xts-plain64
      keySize: 256
      blockSize: 4096
      options: [no_read_workqueue]
      keys:
        - {slot: 0, static: {passphrase: hunter2hunter2}}
        - {slot: 1, nodeID: {}, lockToState: true}
        - {slot: 2, kms: {endpoint: "https://kms.example.org"}}
        - {slot: 3, tpm: {options: {pcrs: [7]}, checkSecurebootStatusOnEnroll: true}}
`},
	{name: "userVolumes", node: `
userVolumes:
  - name: data
    volumeType: partition
    provisioning: {diskSelector: {match: "!system_disk"}, grow: true, minSize: 10GiB, maxSize: 90%}
    filesystem: {type: ext4, projectQuotaSupport: false}
    encryption:
      provider: luks2
      cipher: aes-xts-plain64
      keySize: 256
      blockSize: 4096
      options: [no_read_workqueue]
      keys:
        - {slot: 0, static: {passphrase: hunter2hunter2}}
        - {slot: 1, nodeID: {}, lockToState: true}
        - {slot: 2, kms: {endpoint: "https://kms.example.org"}}
        - {slot: 3, tpm: {options: {pcrs: [7]}, checkSecurebootStatusOnEnroll: true}}
`},
	{name: "filenameTmpl", node: "filenameTmpl: \"{{.Role}}/{{.ClusterName}}-{{.Hostname}}-{{.IPAddress}}.yaml\"\n"},
	{name: "networkInterfaces", node: `
networkInterfaces:
  - interface: eth0
    addresses: [10.0.0.11/24, "fd00::11/64"]
    cidr: 10.9.0.1/24
    mtu: 9000
    routes: [{network: 0.0.0.0/0, gateway: 10.0.0.1, source: 10.0.0.11, metric: 100, mtu: 1400}]
    vip: {ip: 10.0.0.10}
    vlans:
      - vlanId: 303
        addresses: [10.3.0.1/24]
        cidr: 10.4.0.1/24
        mtu: 1400
        routes: [{network: 10.8.0.0/16, gateway: 10.3.0.254, source: 10.3.0.1, metric: 5, mtu: 1300}]
        vip: {ip: 10.3.0.10}
      - vlanId: 304
        dhcp: true
        dhcpOptions: {routeMetric: 4096, ipv4: true, ipv6: true, duidv6: "00010203"}
        vip: {ip: 10.4.0.10, hcloud: {apiToken: hcloud-token-4711}}
`},
	{name: "networkInterfaces with selectors", node: `
networkInterfaces:
  - deviceSelector: {busPath: "0000:*", hardwareAddr: "00:1a:*", permanentAddr: "00:1b:*", pciID: "8086:*", driver: igc, physical: true}
    dhcp: true
    dhcpOptions: {routeMetric: 100, ipv4: false, ipv6: true, duidv6: "00:01"}
    vip: {ip: 10.0.0.10, hcloud: {apiToken: hcloud-token-4711}}
  - deviceSelector: {physical: false}
    ignore: false
`},
	{name: "networkInterfaces of a bond", node: `
networkInterfaces:
  - interface: bond0
    bond:
      interfaces: [eth0]
      deviceSelectors:
        - {busPath: "0000:*", hardwareAddr: "00:1a:*", permanentAddr: "00:1b:*", pciID: "8086:*", driver: igc, physical: true}
      mode: 802.3ad
      xmitHashPolicy: layer3+4
      lacpRate: fast
      adSelect: stable
      miimon: 100
      updelay: 200
      downdelay: 200
      resendIgmp: 1
      minLinks: 1
      lpInterval: 1
      numPeerNotif: 1
      allSlavesActive: 1
      useCarrier: true
      adActorSysPrio: 65535
      adUserPortKey: 1
      peerNotifyDelay: 100
  - interface: bond1
    bond:
      interfaces: [eth2]
      mode: active-backup
      arpInterval: 100
      arpIPTarget: [10.0.0.1]
      arpValidate: active
      arpAllTargets: all
      primaryReselect: always
      failOverMac: active
  - interface: bond2
    bond: {interfaces: [eth3], mode: balance-rr, packetsPerSlave: 2, miimon: 100}
  - interface: bond3
    bond: {interfaces: [eth4], mode: balance-tlb, tlbDynamicLb: 1, miimon: 100}
`},
	{name: "networkInterfaces of other kinds", node: `
networkInterfaces:
  - interface: br0
    bridge: {interfaces: [eth0], stp: {enabled: true}, vlan: {vlanFiltering: true}}
  - interface: dummy0
    dummy: true
  - interface: wg0
    wireguard:
      privateKey: 6NtibgkNWGSLp7ud6NgZr9k3kNhlQiaJCVW6vN+j9UY=
      listenPort: 51111
      firewallMark: 2
      peers:
        - publicKey: kyiu4YOZqX+7tY4fdiIRNDe2lSEvlun76EWtD/jP1hU=
          endpoint: 192.168.1.3:1111
          persistentKeepaliveInterval: 10s
          allowedIPs: [192.168.1.0/24]
`},
}

// refusedCases set keys that no document can say. The name is the path of the field.
var refusedCases = []keyCase{
	{name: "nodes[0].installDiskSelector.name", node: "installDiskSelector: {name: sda}\n"},
	{name: "nodes[0].networkInterfaces[0].bridgePort", node: "networkInterfaces: [{interface: eth0, bridgePort: {master: br0}}]\n"},
	{name: "nodes[0].networkInterfaces[0].ignore", node: "networkInterfaces: [{interface: eth0, ignore: true}]\n"},
	{name: "nodes[0].networkInterfaces[0].vip.equinixMetal", node: `
networkInterfaces: [{interface: eth0, vip: {ip: 10.0.0.10, equinixMetal: {apiToken: a}}}]
`},
	{name: "nodes[0].networkInterfaces[0].vlans[0].vip.equinixMetal", node: `
networkInterfaces: [{interface: eth0, vlans: [{vlanId: 3, vip: {ip: 10.0.0.10, equinixMetal: {apiToken: a}}}]}]
`},
	{name: "nodes[0].networkInterfaces[0].bond.primary", node: `
networkInterfaces: [{interface: bond0, bond: {interfaces: [eth0], mode: active-backup, primary: eth0}}]
`},
	{name: "nodes[0].networkInterfaces[0].bond.adActorSystem", node: `
networkInterfaces: [{interface: bond0, bond: {interfaces: [eth0], mode: 802.3ad, adActorSystem: "00:00:00:00:00:01"}}]
`},
}
