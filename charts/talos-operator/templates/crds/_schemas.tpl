{{- /* Generated from config/crd by make generate: what CRDs have in several places. */}}
{{- define "talos-operator.schema.kubernetesclusters.spec.controlPlane.machineTemplate.spec" -}}
description: 'spec of the machines. It may be empty, including a bare "spec:": the
  machines then wait for a provider.'
nullable: true
properties:
  configPatches:
    description: configPatches are applied to the machine configuration.
    items:
      maxLength: 65536
      type: string
    maxItems: 64
    type: array
    x-kubernetes-list-type: atomic
  configPatchesFrom:{{ include "talos-operator.schema.taloscontrolplanes.spec.configPatchesFrom" . | nindent 4 }}
  environment:{{ include "talos-operator.schema.taloscontrolplanes.spec.environment" . | nindent 4 }}
  extensionServices:{{ include "talos-operator.schema.taloscontrolplanes.spec.extensionServices" . | nindent 4 }}
  features:{{ include "talos-operator.schema.taloscontrolplanes.spec.features" . | nindent 4 }}
  hardware:{{ include "talos-operator.schema.machines.spec.hardware" . | nindent 4 }}
  ingressFirewall:{{ include "talos-operator.schema.machines.spec.ingressFirewall" . | nindent 4 }}
  install:{{ include "talos-operator.schema.machines.spec.install" . | nindent 4 }}
  kernel:{{ include "talos-operator.schema.taloscontrolplanes.spec.kernel" . | nindent 4 }}
  logging:{{ include "talos-operator.schema.taloscontrolplanes.spec.logging" . | nindent 4 }}
  network:{{ include "talos-operator.schema.talosmachines.spec.network" . | nindent 4 }}
  nodeAnnotations:
    additionalProperties:
      type: string
    description: nodeAnnotations are annotations of the Kubernetes Node. Do not put
      secrets here.
    maxProperties: 64
    type: object
    x-kubernetes-validations:
    - message: the key of an annotation must have at most 317 characters, and its
        value at most 2048
      rule: self.all(k, size(k) <= 317 && size(self[k]) <= 2048)
  nodeLabels:
    additionalProperties:
      type: string
    description: nodeLabels are labels of the Kubernetes Node.
    maxProperties: 64
    type: object
    x-kubernetes-validations:
    - message: the key of a label must have at most 317 characters, and its value
        at most 63
      rule: self.all(k, size(k) <= 317 && size(self[k]) <= 63)
  nodeTaints:{{ include "talos-operator.schema.taloscontrolplanes.spec.nodeTaints" . | nindent 4 }}
  provider:{{ include "talos-operator.schema.machines.spec.provider" . | nindent 4 }}
  reclaimPolicy:
    description: |-
      reclaimPolicy determines what the provider does when the Machine is deleted. Default: Delete. The operator sets
      Retain for clusters whose deletionPolicy is Preserve.
    enum:
    - Delete
    - Retain
    type: string
  staticPods:{{ include "talos-operator.schema.taloscontrolplanes.spec.staticPods" . | nindent 4 }}
  sysctls:{{ include "talos-operator.schema.taloscontrolplanes.spec.sysctls" . | nindent 4 }}
  sysfs:{{ include "talos-operator.schema.taloscontrolplanes.spec.sysfs" . | nindent 4 }}
  talosConfig:{{ include "talos-operator.schema.machines.spec.talosConfig" . | nindent 4 }}
  trustedRoots:{{ include "talos-operator.schema.taloscontrolplanes.spec.trustedRoots" . | nindent 4 }}
  volumes:{{ include "talos-operator.schema.taloscontrolplanes.spec.volumes" . | nindent 4 }}
  watchdogTimer:{{ include "talos-operator.schema.taloscontrolplanes.spec.watchdogTimer" . | nindent 4 }}
type: object
{{- end }}
{{- define "talos-operator.schema.kubernetesupgrades.spec" -}}
description: spec says what the run is.
properties:
  controlPlaneRef:
    description: controlPlaneRef names the TalosControlPlane of the cluster.
    properties:
      name:
        description: name of the object.
        maxLength: 253
        minLength: 1
        pattern: ^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$
        type: string
    required:
    - name
    type: object
  from:
    description: |-
      from is the version furthest from the new one that a machine of the cluster ran when the run began: the oldest
      one, or the newest one where an upgrade of Kubernetes is taken back.
    maxLength: 64
    pattern: ^\P{C}*$
    type: string
  image:
    description: image is the installer with that schematic, or without one. Kind
      TalosUpgrade only.
    maxLength: 512
    pattern: ^\P{C}*$
    type: string
  schematic:
    description: |-
      schematic is the ID of the image factory schematic that machines get, where only that changes. Empty where from and to
      are the same: machines get none any more. Kind TalosUpgrade only.
    maxLength: 64
    pattern: ^\P{C}*$
    type: string
  to:
    description: to is the version that the machines are brought to. It is that of
      from where only the schematic changes.
    maxLength: 64
    pattern: ^\P{C}*$
    type: string
required:
- controlPlaneRef
- from
- to
type: object
x-kubernetes-validations:
- message: 'the spec of an upgrade record is immutable: set the versions in the spec
    of the cluster'
  rule: self == oldSelf
{{- end }}
{{- define "talos-operator.schema.kubernetesupgrades.status" -}}
description: status reports the observed progress.
properties:
  completionTime:
    description: completionTime is when the run was observed to be finished, whatever
      the result. It is not set before.
    format: date-time
    type: string
  conditions:
    description: |-
      conditions are Complete; Reconciling while the run is not finished, and Stalled while it is stopped and once it
      has failed.
    items:{{ include "talos-operator.schema.kubernetesupgrades.status.conditions[]" . | nindent 6 }}
    maxItems: 32
    type: array
    x-kubernetes-list-map-keys:
    - type
    x-kubernetes-list-type: map
  done:
    description: done is the number of machines that run the version and are healthy.
    format: int32
    type: integer
  failed:
    description: failed is the number of machines whose upgrade failed.
    format: int32
    type: integer
  machines:
    description: |-
      machines of the run, at most 100: those that have failed or are in progress first. The counts are those of all
      machines.
    items:
      description: UpgradeRunMachine is the progress of one machine of a run.
      properties:
        completedAt:
          description: completedAt is when the machine was first observed in the new
            version and healthy, or when its upgrade failed.
          format: date-time
          type: string
        from:
          description: |-
            from is the version that the machine ran before: for Kubernetes that of its first component that is not in the new
            one. Empty if the machine ran the new version when the run began, or if its version was unknown.
          maxLength: 64
          type: string
        message:
          description: |-
            message says why the upgrade of the machine failed or, while it is in progress, what holds its drain until a user
            intervenes.
          maxLength: 1024
          type: string
        name:
          description: name of the TalosMachine.
          maxLength: 253
          type: string
        startedAt:
          description: startedAt is when the last attempt to upgrade the machine was
            first observed in progress.
          format: date-time
          type: string
        state:
          description: state of the machine.
          enum:
          - Pending
          - InProgress
          - Done
          - Failed
          type: string
      required:
      - name
      - state
      type: object
    maxItems: 100
    type: array
    x-kubernetes-list-map-keys:
    - name
    x-kubernetes-list-type: map
  message:
    description: message says what the run waits for, or why it stopped, failed or
      was called off.
    maxLength: 1024
    type: string
  phase:
    description: phase of the run.
    enum:
    - Running
    - Waiting
    - Stopped
    - Succeeded
    - Failed
    - CalledOff
    type: string
  pointOfNoReturn:
    description: |-
      pointOfNoReturn tells whether the version can be taken back: Ahead as long as a component of the control plane has the
      version of before, and Passed afterwards. Empty where that is unknown, in a finished run that had not passed it, and
      where a version is taken back. Kind KubernetesUpgrade only.
    enum:
    - Ahead
    - Passed
    type: string
  progress:
    description: progress is the number of machines that are done and of all machines,
      such as 3/5.
    maxLength: 32
    type: string
  startTime:
    description: startTime is when the run was first observed.
    format: date-time
    type: string
  total:
    description: total is the number of machines of the run.
    format: int32
    type: integer
  waitingSince:
    description: waitingSince is when the run was first observed to wait for what
      message says. Absent while it waits for nothing.
    format: date-time
    type: string
type: object
{{- end }}
{{- define "talos-operator.schema.kubernetesupgrades.status.conditions[]" -}}
description: Condition contains details for one aspect of the current state of this
  API Resource.
properties:
  lastTransitionTime:
    description: |-
      lastTransitionTime is the last time the condition transitioned from one status to another.
      This should be when the underlying condition changed.  If that is not known, then using the time when the API field changed is acceptable.
    format: date-time
    type: string
  message:
    description: |-
      message is a human readable message indicating details about the transition.
      This may be an empty string.
    maxLength: 32768
    type: string
  observedGeneration:
    description: |-
      observedGeneration represents the .metadata.generation that the condition was set based upon.
      For instance, if .metadata.generation is currently 12, but the .status.conditions[x].observedGeneration is 9, the condition is out of date
      with respect to the current state of the instance.
    format: int64
    minimum: 0
    type: integer
  reason:
    description: |-
      reason contains a programmatic identifier indicating the reason for the condition's last transition.
      Producers of specific condition types may define expected values and meanings for this field,
      and whether the values are considered a guaranteed API.
      The value should be a CamelCase string.
      This field may not be empty.
    maxLength: 1024
    minLength: 1
    pattern: ^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$
    type: string
  status:
    description: status of the condition, one of True, False, Unknown.
    enum:
    - "True"
    - "False"
    - Unknown
    type: string
  type:
    description: type of condition in CamelCase or in foo.example.com/CamelCase.
    maxLength: 316
    pattern: ^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$
    type: string
required:
- lastTransitionTime
- message
- reason
- status
- type
type: object
{{- end }}
{{- define "talos-operator.schema.machines.spec.hardware" -}}
description: hardware is the requested hardware, for providers of virtual machines.
properties:
  architecture:
    description: 'architecture of the processor: amd64 or arm64. Default: amd64.'
    enum:
    - amd64
    - arm64
    type: string
  class:
    description: class of the machine, as the provider names it.
    maxLength: 253
    pattern: ^\P{C}*$
    type: string
  cpus:
    description: cpus is the number of processors.
    format: int32
    maximum: 4096
    minimum: 1
    type: integer
  disks:
    description: disks of the machine.
    items:
      description: Disk is a requested disk of a virtual machine. The first one is
        the boot disk.
      properties:
        class:
          description: class of the storage, as the provider names it.
          maxLength: 253
          pattern: ^\P{C}*$
          type: string
        size:
          anyOf:
          - type: integer
          - type: string
          description: size of the disk.
          maxLength: 64
          pattern: ^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$
          x-kubernetes-int-or-string: true
          x-kubernetes-validations:
          - message: must be a quantity such as 16Gi
            rule: isQuantity(string(self))
      required:
      - size
      type: object
    maxItems: 32
    type: array
    x-kubernetes-list-type: atomic
  memory:
    anyOf:
    - type: integer
    - type: string
    description: memory of the machine.
    maxLength: 64
    pattern: ^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$
    x-kubernetes-int-or-string: true
    x-kubernetes-validations:
    - message: must be a quantity such as 16Gi
      rule: isQuantity(string(self))
type: object
{{- end }}
{{- define "talos-operator.schema.machines.spec.ingressFirewall" -}}
description: 'ingressFirewall determines which packets from the network the machine
  accepts. Default: that of the cluster.'
properties:
  defaultAction:
    description: 'defaultAction is what happens to packets for which there is no rule:
      accept (default) or block.'
    enum:
    - accept
    - block
    type: string
  rules:{{ include "talos-operator.schema.taloscontrolplanes.spec.ingressFirewall.rules" . | nindent 4 }}
type: object
{{- end }}
{{- define "talos-operator.schema.machines.spec.install" -}}
description: install determines how Talos is installed, in particular on which disk.
properties:
  bootloader:
    description: 'bootloader determines whether a boot loader is installed. Default:
      true.'
    type: boolean
  disk:
    description: |-
      disk is the device path to install to, for example /dev/sda. Without disk and diskSelector, the operator uses the
      only suitable disk of the machine, and waits if there are several.
    maxLength: 253
    pattern: ^/dev/.+$
    type: string
  diskSelector:{{ include "talos-operator.schema.taloscontrolplanes.spec.install.diskSelector" . | nindent 4 }}
  dropExtensions:
    description: |-
      dropExtensions are system extensions that the machine may lose: without its name here, or * for all of them, an
      image without an extension that runs is not installed.
    items:
      maxLength: 128
      minLength: 1
      pattern: ^(\*|[-a-zA-Z0-9._/]+)$
      type: string
    maxItems: 64
    minItems: 1
    type: array
    x-kubernetes-list-type: atomic
  extraKernelArgs:
    description: extraKernelArgs are added to the kernel command line.
    items:
      maxLength: 512
      pattern: ^\P{C}*$
      type: string
    maxItems: 64
    type: array
    x-kubernetes-list-type: atomic
  factory:{{ include "talos-operator.schema.taloscontrolplanes.spec.clusterImage.factory" . | nindent 4 }}
  image:
    description: |-
      image is the installer image with its tag, if it is none of an image factory by schematic. Default:
      ghcr.io/siderolabs/installer with the Talos version as tag.
    maxLength: 512
    pattern: ^\P{C}*$
    type: string
  platform:
    description: |-
      platform that the machine runs on, by the name that Talos has for it: metal, nocloud, aws, … The image contains it.
      Default: metal.
    maxLength: 32
    minLength: 1
    pattern: ^[a-zA-Z][-a-zA-Z0-9]*$
    type: string
  schematic:{{ include "talos-operator.schema.taloscontrolplanes.spec.clusterImage.schematic" . | nindent 4 }}
  secureBoot:
    description: |-
      secureBoot installs an image that is signed for Secure Boot, on a machine that was booted with Secure Boot. One that
      was not waits in maintenance mode. Default: false.
    type: boolean
  wipe:
    description: 'wipe allows the installation to overwrite a disk that contains other
      data. Default: false.'
    type: boolean
type: object
x-kubernetes-validations:
- message: set disk or diskSelector, not both
  rule: '!(has(self.disk) && has(self.diskSelector))'
- message: set image or schematic, not both
  rule: '!(has(self.image) && has(self.schematic))'
{{- end }}
{{- define "talos-operator.schema.machines.spec.provider" -}}
description: provider supplies the infrastructure of the machine and writes the status.
properties:
  addresses:
    description: |-
      addresses of existing machines, for the static provider. In a template: one for each replica and each spare, in
      index order. In a generated Machine: its own address.
    items:
      maxLength: 45
      pattern: ^\P{C}*$
      type: string
    maxItems: 1000
    type: array
    x-kubernetes-list-type: atomic
  maintenanceFingerprints:
    description: |-
      maintenanceFingerprints are the expected fingerprints of the certificates that these machines present in maintenance
      mode, in the order of addresses: the base64-encoded SHA-256 of the public key, as each machine prints it on its
      console ("server certificate fingerprint"). Nothing is sent to a machine that presents another certificate; an empty
      string accepts every certificate. Talos creates a new certificate at each boot into maintenance mode, so a value
      applies to the current boot only.
    items:
      maxLength: 44
      pattern: ^([A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=)?$
      type: string
    maxItems: 1000
    type: array
    x-kubernetes-list-type: atomic
  name:
    description: |-
      name of the provider: static, or the name that another provider handles. Without a name, the machine waits until a
      provider claims it.
    maxLength: 63
    pattern: ^\P{C}*$
    type: string
  parameters:
    additionalProperties:
      type: string
    description: parameters for the provider, which defines their meaning.
    maxProperties: 64
    type: object
    x-kubernetes-validations:
    - message: the name of a parameter must have at most 253 characters, and its value
        at most 16384
      rule: self.all(k, size(k) <= 253 && size(self[k]) <= 16384)
type: object
x-kubernetes-validations:
- message: addresses are only valid for the static provider
  rule: '!has(self.addresses) || (has(self.name) && self.name == ''static'')'
- message: maintenanceFingerprints must not have more entries than addresses
  rule: '!has(self.maintenanceFingerprints) || (has(self.addresses) && size(self.maintenanceFingerprints)
    <= size(self.addresses))'
{{- end }}
{{- define "talos-operator.schema.machines.spec.talosConfig" -}}
description: talosConfig is written by the operator.
properties:
  clusterEndpoint:
    description: clusterEndpoint is the Kubernetes API endpoint.
    maxLength: 512
    pattern: ^\P{C}*$
    type: string
  installDisk:
    description: |-
      installDisk is the target installation disk: the one that the spec of the cluster names, or else the one that was
      chosen, once Talos is installed.
    maxLength: 253
    pattern: ^\P{C}*$
    type: string
  machineType:
    description: machineType is controlplane or worker.
    enum:
    - controlplane
    - worker
    type: string
type: object
{{- end }}
{{- define "talos-operator.schema.taloscontrolplanes.spec.clusterConfigPatchesFrom[]" -}}
description: ConfigPatchSource names a config patch, or a value of one, in a ConfigMap
  or Secret of the namespace of the object.
properties:
  document:
    description: 'document that path is in. Default: the main document.'
    properties:
      kind:
        description: kind of the document, for example RegistryAuthConfig.
        maxLength: 63
        minLength: 1
        pattern: ^[A-Za-z0-9]+$
        type: string
      name:
        description: 'name of the document. Default: none, for kinds of which a configuration
          has one document.'
        maxLength: 253
        pattern: ^\P{C}*$
        type: string
    required:
    - kind
    type: object
  key:
    description: key in the object. It holds a patch as configPatches have it, of
      at most 256 KiB, unless path is set.
    maxLength: 253
    minLength: 1
    pattern: ^[-._a-zA-Z0-9]+$
    type: string
  kind:
    description: 'kind of the object: ConfigMap or Secret.'
    enum:
    - ConfigMap
    - Secret
    type: string
  name:
    description: name of the object.
    maxLength: 253
    minLength: 1
    pattern: ^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$
    type: string
  optional:
    description: |-
      optional continues without the patch if the object or the key does not exist. Default: false, which sends nothing
      to the machines until both exist.
    type: boolean
  path:
    description: |-
      path is a JSON pointer to a field, for example /machine/env/HTTP_PROXY, that is set to the content of the key, as a
      text without trailing line breaks. No part of it is an item of a list. Default: the key holds a whole patch.
    maxLength: 512
    minLength: 2
    pattern: ^(/([^/~\pC]|~[01])+)+$
    type: string
required:
- key
- kind
- name
type: object
x-kubernetes-validations:
- message: document requires path
  rule: '!has(self.document) || has(self.path)'
{{- end }}
{{- define "talos-operator.schema.taloscontrolplanes.spec.clusterImage.factory" -}}
description: 'factory that serves the images. Default: factory.talos.dev.'
minProperties: 1
properties:
  address:
    description: |-
      address is the URL of the factory, for example https://factory.example.com. Boot images come from it. Default:
      https://factory.talos.dev.
    maxLength: 512
    minLength: 1
    pattern: ^https?://[a-zA-Z0-9]([-a-zA-Z0-9.]*[a-zA-Z0-9])?(:[0-9]{1,5})?(/[-a-zA-Z0-9._/]*)?$
    type: string
  registry:
    description: |-
      registry that installers are pulled from, a host with an optional port and path, for example
      registry.example.com/talos. Default: the host of address, without its path.
    maxLength: 253
    minLength: 1
    pattern: ^[a-zA-Z0-9]([-a-zA-Z0-9.]*[a-zA-Z0-9])?(:[0-9]{1,5})?(/[a-z0-9]([-a-z0-9._/]*[a-z0-9])?)?$
    type: string
type: object
{{- end }}
{{- define "talos-operator.schema.taloscontrolplanes.spec.clusterImage.schematic" -}}
description: 'schematic is what the factory puts into the image. Default: nothing
  beyond Talos.'
minProperties: 1
properties:
  bootloader:
    description: 'bootloader of boot images. Default: the factory chooses.'
    enum:
    - dual-boot
    - sd-boot
    - grub
    type: string
  extensions:
    description: |-
      extensions are system extensions with their vendor, for example siderolabs/iscsi-tools. Their order is part of the
      ID.
    items:
      maxLength: 128
      minLength: 3
      pattern: ^[a-z0-9][-a-z0-9._]*/[a-z0-9][-a-z0-9._]*$
      type: string
    maxItems: 64
    minItems: 1
    type: array
    x-kubernetes-list-type: atomic
  extraKernelArgs:
    description: extraKernelArgs are added to the kernel command line. A name that
      begins with - removes an argument.
    items:
      maxLength: 512
      minLength: 1
      pattern: ^\P{C}*$
      type: string
    maxItems: 64
    minItems: 1
    type: array
    x-kubernetes-list-type: atomic
  id:
    description: id of a schematic that the factory knows.
    maxLength: 64
    pattern: ^[0-9a-f]{64}$
    type: string
  meta:
    description: meta are values of the META partition of boot images. Installers
      do not write them.
    items:
      description: SchematicMeta is a value of the META partition.
      properties:
        key:
          description: key of the value, for example 10 (0x0a), the network configuration
            of the platform metal.
          format: int32
          maximum: 255
          minimum: 0
          type: integer
        value:
          description: 'value is text. It is no place for secrets: all who can read
            the node or the image can read it.'
          maxLength: 8192
          type: string
      required:
      - key
      - value
      type: object
    maxItems: 16
    minItems: 1
    type: array
    x-kubernetes-list-type: atomic
  overlay:
    description: overlay supports a single-board computer.
    properties:
      image:
        description: image of the overlay, for example siderolabs/sbc-raspberrypi.
        maxLength: 128
        minLength: 3
        pattern: ^[a-z0-9][-a-z0-9._]*/[a-z0-9][-a-z0-9._/]*$
        type: string
      name:
        description: name of the overlay in the image, for example rpi_generic.
        maxLength: 64
        minLength: 1
        pattern: ^[-a-zA-Z0-9_.]+$
        type: string
      options:
        additionalProperties:
          type: string
        description: options of the overlay.
        maxProperties: 16
        type: object
        x-kubernetes-validations:
        - message: the name of an option must have at most 64 characters, and its
            value at most 4096
          rule: self.all(k, size(k) <= 64 && size(self[k]) <= 4096)
    required:
    - image
    - name
    type: object
  secureBootCertificates:
    description: |-
      secureBootCertificates is WellKnown, or none (default): with WellKnown, the certificates of Microsoft are enrolled
      together with the keys of the factory, which option ROMs may need.
    enum:
    - WellKnown
    type: string
type: object
x-kubernetes-validations:
- message: 'set id or the other fields, not both: the ID already identifies the schematic'
  rule: '!has(self.id) || !(has(self.extensions) || has(self.extraKernelArgs) || has(self.overlay)
    || has(self.meta) || has(self.bootloader) || has(self.secureBootCertificates))'
{{- end }}
{{- define "talos-operator.schema.taloscontrolplanes.spec.configPatches" -}}
description: |-
  configPatches are applied to the generated machine configuration, in order: strategic merge patches (also
  multi-document and with "$patch: delete"), or RFC 6902 JSON patches: a list of operations on the main document, or
  target (kind and name of another document) and operations.
items:
  maxLength: 65536
  type: string
maxItems: 64
type: array
x-kubernetes-list-type: atomic
{{- end }}
{{- define "talos-operator.schema.taloscontrolplanes.spec.configPatchesFrom" -}}
description: |-
  configPatchesFrom are further patches, in ConfigMaps and Secrets of the namespace. They are applied in order, after
  configPatches.
items:{{ include "talos-operator.schema.taloscontrolplanes.spec.clusterConfigPatchesFrom[]" . | nindent 2 }}
maxItems: 16
type: array
x-kubernetes-list-type: atomic
{{- end }}
{{- define "talos-operator.schema.taloscontrolplanes.spec.discovery" -}}
description: 'discovery determines how the machines of the cluster find each other.
  Default: by the public discovery service.'
properties:
  enabled:
    description: 'enabled turns discovery on. Default: true.'
    type: boolean
  registries:
    description: registries are the places where machines publish themselves.
    properties:
      kubernetes:
        description: |-
          kubernetes is the Kubernetes API of the cluster, by annotations of Nodes. It does not work with Kubernetes 1.32 and
          later.
        properties:
          enabled:
            description: 'enabled turns the registry on. Default: false.'
            type: boolean
        type: object
      service:
        description: service is the discovery service, outside of the cluster. What
          it stores is encrypted by the machines.
        properties:
          enabled:
            description: 'enabled turns the registry on. Default: true.'
            type: boolean
          endpoint:
            description: 'endpoint is the URL of the service, with http or https,
              and without a path. Default: https://discovery.talos.dev/.'
            maxLength: 512
            pattern: ^\P{C}*$
            type: string
        type: object
    type: object
type: object
{{- end }}
{{- define "talos-operator.schema.taloscontrolplanes.spec.drain" -}}
description: drain determines how pods are evicted from a node before it is disrupted.
properties:
  gracePeriodSeconds:
    description: 'gracePeriodSeconds overrides the termination grace period of the
      pods. Default: the grace period of each pod.'
    format: int32
    minimum: 0
    type: integer
  onTimeout:
    description: |-
      onTimeout is Hold (default), which waits for user action, Force, which deletes the remaining pods regardless of
      their PodDisruptionBudgets, or Skip, which continues and leaves the remaining pods running.
    enum:
    - Hold
    - Force
    - Skip
    type: string
  timeout:
    description: 'timeout of the drain, after which onTimeout applies. Default: 5m.'
    maxLength: 64
    type: string
    x-kubernetes-validations:
    - message: timeout must not be negative
      rule: duration(self) >= duration('0s')
type: object
{{- end }}
{{- define "talos-operator.schema.taloscontrolplanes.spec.environment" -}}
description: |-
  environment are variables of Talos and of its services, by their names, for example https_proxy. A service that runs
  keeps those that it was started with.
items:
  description: EnvironmentVariable is one of Talos and its services.
  properties:
    name:
      description: name of the variable.
      maxLength: 253
      minLength: 1
      pattern: ^[A-Za-z_][A-Za-z0-9_]*$
      type: string
    value:
      description: |-
        value of the variable. Do not put secrets here: everyone with read access to the object can read them. Default:
        empty.
      maxLength: 4096
      pattern: ^\P{C}*$
      type: string
    valueFrom:
      description: valueFrom names the value in a Secret of the namespace of the object,
        such as the URL of a proxy with a password.
      properties:
        key:
          description: key in the Secret.
          maxLength: 253
          minLength: 1
          pattern: ^[-._a-zA-Z0-9]+$
          type: string
        name:
          description: name of the Secret.
          maxLength: 253
          minLength: 1
          pattern: ^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$
          type: string
      required:
      - key
      - name
      type: object
  required:
  - name
  type: object
  x-kubernetes-validations:
  - message: set value or valueFrom, not both
    rule: '!has(self.value) || !has(self.valueFrom)'
maxItems: 32
type: array
x-kubernetes-list-map-keys:
- name
x-kubernetes-list-type: map
{{- end }}
{{- define "talos-operator.schema.taloscontrolplanes.spec.extensionServices" -}}
description: extensionServices configure services that system extensions of the installer
  image bring, by their names.
items:
  description: |-
    ExtensionService configures a service that a system extension of the installer image brings. Talos restarts the
    service when its configuration changes. Do not put secrets here: everyone with read access to the object can
    read them.
  properties:
    configFiles:
      description: configFiles are files that Talos mounts into the service, readable
        and not writable.
      items:
        description: ExtensionFile is a file that a service of an extension reads.
        properties:
          content:
            description: content of the file, at most 64 KiB.
            maxLength: 65536
            minLength: 1
            type: string
          mountPath:
            description: mountPath is the absolute path of the file in the service.
            maxLength: 255
            minLength: 2
            pattern: ^/\P{C}+$
            type: string
        required:
        - content
        - mountPath
        type: object
      maxItems: 32
      type: array
      x-kubernetes-list-map-keys:
      - mountPath
      x-kubernetes-list-type: map
    environment:
      description: environment variables of the service.
      items:
        description: ExtensionVariable is an environment variable of a service of
          an extension.
        properties:
          name:
            description: name of the variable.
            maxLength: 253
            minLength: 1
            pattern: ^[A-Za-z_][A-Za-z0-9_]*$
            type: string
          value:
            description: 'value of the variable. Default: empty.'
            maxLength: 4096
            pattern: ^\P{C}*$
            type: string
        required:
        - name
        type: object
      maxItems: 64
      type: array
      x-kubernetes-list-map-keys:
      - name
      x-kubernetes-list-type: map
    name:
      description: name of the service as its extension defines it, without the prefix
        ext- that Talos adds.
      maxLength: 63
      minLength: 1
      pattern: ^[a-z0-9_-]+$
      type: string
  required:
  - name
  type: object
maxItems: 32
type: array
x-kubernetes-list-map-keys:
- name
x-kubernetes-list-type: map
{{- end }}
{{- define "talos-operator.schema.taloscontrolplanes.spec.features" -}}
description: features of Talos that are not as they are by default.
minProperties: 1
properties:
  hostDNS:
    description: hostDNS is the resolver that caches on each machine.
    minProperties: 1
    properties:
      enabled:
        description: 'enabled turns the resolver on. Default: true.'
        type: boolean
      forwardKubeDNSToHost:
        description: |-
          forwardKubeDNSToHost has CoreDNS ask this resolver for names outside of the cluster. Default: true, and false if
          enabled is false.
        type: boolean
      resolveMemberNames:
        description: 'resolveMemberNames resolves the names of the machines of the
          cluster. It needs discovery. Default: false.'
        type: boolean
    type: object
    x-kubernetes-validations:
    - message: forwardKubeDNSToHost and resolveMemberNames require enabled
      rule: '!has(self.enabled) || self.enabled || !(has(self.forwardKubeDNSToHost)
        && self.forwardKubeDNSToHost || has(self.resolveMemberNames) && self.resolveMemberNames)'
  kubernetesTalosAPIAccess:
    description: |-
      kubernetesTalosAPIAccess lets Pods use the Talos API with a TalosServiceAccount. For control-plane machines only.
      Default: none may.
    minProperties: 1
    properties:
      allowedKubernetesNamespaces:
        description: |-
          allowedKubernetesNamespaces are those of the Pods. A user who may create a TalosServiceAccount there has the roles.
          Required, unless enabled is false.
        items:
          maxLength: 63
          minLength: 1
          pattern: ^[a-z0-9]([-a-z0-9]*[a-z0-9])?$
          type: string
        maxItems: 32
        minItems: 1
        type: array
        x-kubernetes-list-type: set
      allowedRoles:
        description: |-
          allowedRoles are the roles that a Pod may get: os:admin, os:operator, os:reader, os:etcd:backup. With os:admin, it can
          read all keys of the cluster. Required, unless enabled is false.
        items:
          description: TalosRole is what a client of the Talos API may do.
          enum:
          - os:admin
          - os:operator
          - os:reader
          - os:etcd:backup
          type: string
        maxItems: 8
        minItems: 1
        type: array
        x-kubernetes-list-type: set
      enabled:
        description: 'enabled is false for a machine whose API no Pod may use, although
          the group allows it. Default: true.'
        type: boolean
    type: object
    x-kubernetes-validations:
    - message: allowedRoles and allowedKubernetesNamespaces are required unless enabled
        is false; then neither is valid
      rule: '!has(self.enabled) || self.enabled ? has(self.allowedRoles) && has(self.allowedKubernetesNamespaces)
        : !has(self.allowedRoles) && !has(self.allowedKubernetesNamespaces)'
type: object
{{- end }}
{{- define "talos-operator.schema.taloscontrolplanes.spec.ingressFirewall" -}}
description: 'ingressFirewall determines which packets from the network a machine
  accepts. Default: all.'
properties:
  defaultAction:
    description: 'defaultAction is what happens to packets for which there is no rule:
      accept (default) or block.'
    enum:
    - accept
    - block
    type: string
  rules:{{ include "talos-operator.schema.taloscontrolplanes.spec.ingressFirewall.rules" . | nindent 4 }}
type: object
{{- end }}
{{- define "talos-operator.schema.taloscontrolplanes.spec.ingressFirewall.rules" -}}
description: |-
  rules by name. With block, a port that is named in rules is open to the networks of each of them. With accept, it is
  open only to those that all of them have in ingress.
items:
  description: FirewallRule accepts packets for ports of a machine.
  properties:
    ingress:
      description: ingress are the networks from which packets are accepted.
      items:
        description: FirewallSource is a network from which packets are accepted.
        properties:
          except:
            description: except is a part of the subnet from which packets are not
              accepted, in CIDR notation. It counts for the whole rule.
            maxLength: 64
            pattern: ^\P{C}*$
            type: string
          subnet:
            description: subnet in CIDR notation.
            maxLength: 64
            minLength: 1
            pattern: ^\P{C}*$
            type: string
        required:
        - subnet
        type: object
      maxItems: 64
      minItems: 1
      type: array
      x-kubernetes-list-type: atomic
    name:
      description: name of the rule. A rule of a machine replaces the one with the
        same name of its group.
      maxLength: 63
      minLength: 1
      pattern: ^[a-z0-9]([-a-z0-9]*[a-z0-9])?$
      type: string
    ports:
      description: 'ports of the machine: numbers, such as "10250", and ranges, such
        as "2379-2380", that do not overlap.'
      items:
        maxLength: 11
        pattern: ^[0-9]{1,5}(-[0-9]{1,5})?$
        type: string
      maxItems: 64
      minItems: 1
      type: array
      x-kubernetes-list-type: atomic
    protocol:
      description: 'protocol of the packets: tcp or udp.'
      enum:
      - tcp
      - udp
      type: string
  required:
  - ingress
  - name
  - ports
  - protocol
  type: object
maxItems: 64
type: array
x-kubernetes-list-map-keys:
- name
x-kubernetes-list-type: map
{{- end }}
{{- define "talos-operator.schema.taloscontrolplanes.spec.install" -}}
description: install determines how Talos is installed.
properties:
  bootloader:
    description: 'bootloader determines whether a boot loader is installed. Default:
      true.'
    type: boolean
  disk:
    description: |-
      disk is the device path to install to, for example /dev/sda. Without disk and diskSelector, the operator uses the
      only suitable disk of the machine, and waits if there are several.
    maxLength: 253
    pattern: ^/dev/.+$
    type: string
  diskSelector:{{ include "talos-operator.schema.taloscontrolplanes.spec.install.diskSelector" . | nindent 4 }}
  dropExtensions:
    description: |-
      dropExtensions are system extensions that the machine may lose: without its name here, or * for all of them, an
      image without an extension that runs is not installed.
    items:
      maxLength: 128
      minLength: 1
      pattern: ^(\*|[-a-zA-Z0-9._/]+)$
      type: string
    maxItems: 64
    minItems: 1
    type: array
    x-kubernetes-list-type: atomic
  extraKernelArgs:
    description: extraKernelArgs are added to the kernel command line.
    items:
      maxLength: 512
      pattern: ^\P{C}*$
      type: string
    maxItems: 64
    type: array
    x-kubernetes-list-type: atomic
  factory:{{ include "talos-operator.schema.taloscontrolplanes.spec.clusterImage.factory" . | nindent 4 }}
  image:
    description: |-
      image is the installer image with its tag, if it is none of an image factory by schematic. Default:
      ghcr.io/siderolabs/installer with the Talos version as tag.
    maxLength: 512
    pattern: ^\P{C}*$
    type: string
  platform:
    description: |-
      platform that the machine runs on, by the name that Talos has for it: metal, nocloud, aws, … The image contains it.
      Default: metal.
    maxLength: 32
    minLength: 1
    pattern: ^[a-zA-Z][-a-zA-Z0-9]*$
    type: string
  schematic:{{ include "talos-operator.schema.taloscontrolplanes.spec.clusterImage.schematic" . | nindent 4 }}
  secureBoot:
    description: |-
      secureBoot installs an image that is signed for Secure Boot, on a machine that was booted with Secure Boot. One that
      was not waits in maintenance mode. Default: false.
    type: boolean
  wipe:
    description: 'wipe allows the installation to overwrite a disk that contains other
      data. Default: false.'
    type: boolean
type: object
x-kubernetes-validations:
- message: set disk or diskSelector, not both
  rule: '!(has(self.disk) && has(self.diskSelector))'
- message: set image or schematic, not both
  rule: '!(has(self.image) && has(self.schematic))'
{{- end }}
{{- define "talos-operator.schema.taloscontrolplanes.spec.install.diskSelector" -}}
description: diskSelector selects the install disk by its properties.
minProperties: 1
properties:
  busPath:
    description: busPath of the disk.
    maxLength: 253
    pattern: ^\P{C}*$
    type: string
  maxSize:
    description: maxSize is the maximum size of the disk, in the format of minSize.
    maxLength: 32
    pattern: ^\P{C}*$
    type: string
  minSize:
    description: minSize is the minimum size of the disk, for example 100GB (decimal)
      or 100GiB (binary).
    maxLength: 32
    pattern: ^\P{C}*$
    type: string
  model:
    description: model of the disk, as the node reports it.
    maxLength: 253
    pattern: ^\P{C}*$
    type: string
  serial:
    description: serial number of the disk.
    maxLength: 253
    pattern: ^\P{C}*$
    type: string
  type:
    description: type of the disk.
    enum:
    - ssd
    - hdd
    - nvme
    - sd
    type: string
  wwid:
    description: wwid is the World Wide ID of the disk.
    maxLength: 253
    pattern: ^\P{C}*$
    type: string
type: object
{{- end }}
{{- define "talos-operator.schema.taloscontrolplanes.spec.kernel" -}}
description: kernel configures the kernel, without its command line.
properties:
  modules:
    description: |-
      modules are loaded in this order, beside those that Talos and Kubernetes load by themselves. A module that is no
      longer listed stays loaded until the next reboot.
    items:
      description: |-
        KernelModule is a module of the kernel that Talos loads. Only signed modules of the installer image and its extensions
        can be loaded.
      properties:
        name:
          description: name of the module, for example br_netfilter. The kernel does
            not distinguish - from _.
          maxLength: 63
          minLength: 1
          pattern: ^[A-Za-z0-9_-]+$
          type: string
        parameters:
          description: |-
            parameters of the module, each NAME=VALUE or NAME. They apply when the module is loaded: a change needs a reboot if
            it is loaded already. Default: none.
          items:
            maxLength: 512
            pattern: ^\P{C}*$
            type: string
          maxItems: 32
          type: array
          x-kubernetes-list-type: atomic
      required:
      - name
      type: object
    maxItems: 64
    type: array
    x-kubernetes-list-map-keys:
    - name
    x-kubernetes-list-type: map
type: object
{{- end }}
{{- define "talos-operator.schema.taloscontrolplanes.spec.kubePrism" -}}
description: |-
  kubePrism is the load balancer for the Kubernetes API on each machine of the cluster. Immutable. Default: on, with the
  port 7445.
minProperties: 1
properties:
  enabled:
    description: 'enabled turns the load balancer on. Default: true.'
    type: boolean
  port:
    description: 'port on localhost. Default: 7445.'
    format: int32
    maximum: 65535
    minimum: 1
    type: integer
type: object
{{- end }}
{{- define "talos-operator.schema.taloscontrolplanes.spec.kubeSpan" -}}
description: 'kubeSpan connects all machines of the cluster by WireGuard. It needs
  discovery. Default: off.'
properties:
  advertiseKubernetesNetworks:
    description: |-
      advertiseKubernetesNetworks sends the traffic between pods through KubeSpan, too, without the CNI encapsulating it.
      Default: false.
    type: boolean
  allowDownPeerBypass:
    description: |-
      allowDownPeerBypass sends traffic to a peer that is not up without KubeSpan, not encrypted. Without it, such a peer
      is unreachable. Default: false.
    type: boolean
  enabled:
    description: 'enabled turns KubeSpan on. Default: false.'
    type: boolean
  filters:
    description: filters determine what a machine tells its peers.
    properties:
      endpoints:
        description: |-
          endpoints are the networks whose addresses are published as endpoints, in CIDR notation; those after ! are not. The
          last one that contains an address counts. Default: all addresses.
        items:
          maxLength: 64
          pattern: ^\P{C}*$
          type: string
        maxItems: 64
        type: array
        x-kubernetes-list-type: atomic
      excludeAdvertisedNetworks:
        description: |-
          excludeAdvertisedNetworks are the networks, in CIDR notation, that a machine does not offer its peers through KubeSpan:
          they have to reach them another way. Talos 1.12 and later. Default: none.
        items:
          maxLength: 64
          pattern: ^\P{C}*$
          type: string
        maxItems: 64
        type: array
        x-kubernetes-list-type: atomic
    type: object
  harvestExtraEndpoints:
    description: |-
      harvestExtraEndpoints publishes the addresses at which peers see each other, for peers behind NAT. Not for more
      than 50 machines. Default: false.
    type: boolean
  mtu:
    description: 'mtu of the KubeSpan interface, in bytes. Default: 1420.'
    format: int32
    maximum: 65535
    minimum: 1280
    type: integer
type: object
{{- end }}
{{- define "talos-operator.schema.taloscontrolplanes.spec.kubelet" -}}
description: kubelet customizes the kubelet.
properties:
  extraArgs:
    additionalProperties:
      type: string
    description: extraArgs are passed to the kubelet; names without leading dashes.
    maxProperties: 64
    type: object
    x-kubernetes-validations:
    - message: the name of an argument must have at most 253 characters, and its value
        at most 4096
      rule: self.all(k, size(k) <= 253 && size(self[k]) <= 4096)
  image:
    description: 'image of the kubelet without a tag; the tag is the Kubernetes version.
      Default: ghcr.io/siderolabs/kubelet.'
    maxLength: 512
    pattern: ^\P{C}*$
    type: string
type: object
{{- end }}
{{- define "talos-operator.schema.taloscontrolplanes.spec.logging" -}}
description: 'logging determines where logs are sent. Default: nowhere.'
minProperties: 1
properties:
  destinations:
    description: destinations of the logs of services, as lines of JSON. Those of
      a machine replace those of its group as a whole.
    items:
      description: LoggingDestination gets the logs of services.
      properties:
        endpoint:
          description: endpoint is tcp://HOST:PORT or udp://HOST:PORT. Nothing is
            encrypted on the way.
          maxLength: 253
          minLength: 1
          pattern: ^(tcp|udp)://[^/?#@\s\pC]+:[0-9]{1,5}/?$
          type: string
        extraTags:
          additionalProperties:
            type: string
          description: extraTags are added to each line.
          maxProperties: 16
          type: object
          x-kubernetes-validations:
          - message: the name of a tag must have at most 63 characters, and its value
              at most 253
            rule: self.all(k, size(k) <= 63 && size(self[k]) <= 253)
      required:
      - endpoint
      type: object
    maxItems: 8
    type: array
    x-kubernetes-list-map-keys:
    - endpoint
    x-kubernetes-list-type: map
  enabled:
    description: 'enabled is false for a machine that sends no logs, although its
      group does. Default: true.'
    type: boolean
  kernel:
    description: kernel are the destinations of the messages of the kernel, as lines
      of JSON, by their names.
    items:
      description: KernelLog gets the messages of the kernel.
      properties:
        name:
          description: name of the destination.
          maxLength: 63
          minLength: 1
          pattern: ^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$
          type: string
        url:
          description: url is tcp://HOST:PORT or udp://HOST:PORT. Nothing is encrypted
            on the way.
          maxLength: 253
          minLength: 1
          pattern: ^(tcp|udp)://[^/?#@\s\pC]+:[0-9]{1,5}/?$
          type: string
      required:
      - name
      - url
      type: object
    maxItems: 8
    type: array
    x-kubernetes-list-map-keys:
    - name
    x-kubernetes-list-type: map
type: object
x-kubernetes-validations:
- message: set destinations, kernel or both, unless enabled is false; then neither
    is valid
  rule: (!has(self.enabled) || self.enabled) == (has(self.destinations) || has(self.kernel))
{{- end }}
{{- define "talos-operator.schema.taloscontrolplanes.spec.machineNetwork.hosts" -}}
description: hosts are names that the machine resolves without DNS, as in /etc/hosts.
items:
  description: StaticHost is an IP address and its names.
  properties:
    address:
      description: address is the IP address of the host.
      maxLength: 45
      minLength: 1
      pattern: ^\P{C}*$
      type: string
    hostnames:
      description: hostnames that resolve to the address.
      items:
        maxLength: 253
        minLength: 1
        pattern: ^[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?$
        type: string
      maxItems: 16
      minItems: 1
      type: array
      x-kubernetes-list-type: atomic
  required:
  - address
  - hostnames
  type: object
maxItems: 64
type: array
x-kubernetes-list-map-keys:
- address
x-kubernetes-list-type: map
{{- end }}
{{- define "talos-operator.schema.taloscontrolplanes.spec.machines[]" -}}
description: MachineEntry is one machine of a control plane or a worker group.
properties:
  address:
    description: address is the IP address of the machine's Talos API.
    maxLength: 45
    type: string
    x-kubernetes-validations:
    - message: address must be an IP address
      rule: isIP(self)
  configPatches:{{ include "talos-operator.schema.taloscontrolplanes.spec.configPatches" . | nindent 4 }}
  configPatchesFrom:{{ include "talos-operator.schema.taloscontrolplanes.spec.configPatchesFrom" . | nindent 4 }}
  drain:{{ include "talos-operator.schema.talosmachines.spec.drain" . | nindent 4 }}
  environment:{{ include "talos-operator.schema.taloscontrolplanes.spec.environment" . | nindent 4 }}
  extensionServices:{{ include "talos-operator.schema.taloscontrolplanes.spec.extensionServices" . | nindent 4 }}
  features:{{ include "talos-operator.schema.taloscontrolplanes.spec.features" . | nindent 4 }}
  ingressFirewall:{{ include "talos-operator.schema.taloscontrolplanes.spec.ingressFirewall" . | nindent 4 }}
  install:{{ include "talos-operator.schema.taloscontrolplanes.spec.install" . | nindent 4 }}
  kernel:{{ include "talos-operator.schema.taloscontrolplanes.spec.kernel" . | nindent 4 }}
  kubelet:{{ include "talos-operator.schema.taloscontrolplanes.spec.kubelet" . | nindent 4 }}
  logging:{{ include "talos-operator.schema.taloscontrolplanes.spec.logging" . | nindent 4 }}
  machineRef:
    description: machineRef names a Machine (vitistack.io) whose provider assigns
      the address.
    properties:
      name:
        description: name of the object.
        maxLength: 253
        minLength: 1
        pattern: ^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$
        type: string
    required:
    - name
    type: object
  maintenanceFingerprint:
    description: |-
      maintenanceFingerprint is the expected fingerprint of the certificate that this machine presents in maintenance
      mode: the base64-encoded SHA-256 of its public key (SubjectPublicKeyInfo), 44 characters, as the machine prints it
      on its console ("server certificate fingerprint") and as talosctl --cert-fingerprint accepts it. Nothing is sent to
      a machine that presents another certificate. Talos creates a new certificate at each boot into maintenance mode and
      when the addresses of the machine change, so the value applies to the current boot only. It has no effect once the
      machine is configured. Default: every certificate is accepted.
    maxLength: 44
    pattern: ^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$
    type: string
  name:
    description: name of the TalosMachine, and of the node unless network.hostname
      is set. Unique in the namespace.
    maxLength: 63
    minLength: 1
    pattern: ^[a-z0-9]([-a-z0-9]*[a-z0-9])?$
    type: string
  network:{{ include "talos-operator.schema.talosmachines.spec.network" . | nindent 4 }}
  nodeAnnotations:
    additionalProperties:
      type: string
    description: nodeAnnotations are annotations of the Kubernetes Node. Do not put
      secrets here.
    maxProperties: 64
    type: object
    x-kubernetes-validations:
    - message: the key of an annotation must have at most 317 characters, and its
        value at most 2048
      rule: self.all(k, size(k) <= 317 && size(self[k]) <= 2048)
  nodeLabels:
    additionalProperties:
      type: string
    description: nodeLabels are labels of the Kubernetes Node.
    maxProperties: 64
    type: object
    x-kubernetes-validations:
    - message: the key of a label must have at most 317 characters, and its value
        at most 63
      rule: self.all(k, size(k) <= 317 && size(self[k]) <= 63)
  nodeTaints:{{ include "talos-operator.schema.taloscontrolplanes.spec.nodeTaints" . | nindent 4 }}
  registries:{{ include "talos-operator.schema.taloscontrolplanes.spec.registries" . | nindent 4 }}
  staticPods:{{ include "talos-operator.schema.taloscontrolplanes.spec.staticPods" . | nindent 4 }}
  sysctls:{{ include "talos-operator.schema.taloscontrolplanes.spec.sysctls" . | nindent 4 }}
  sysfs:{{ include "talos-operator.schema.taloscontrolplanes.spec.sysfs" . | nindent 4 }}
  trustedRoots:{{ include "talos-operator.schema.taloscontrolplanes.spec.trustedRoots" . | nindent 4 }}
  volumes:{{ include "talos-operator.schema.taloscontrolplanes.spec.volumes" . | nindent 4 }}
  watchdogTimer:{{ include "talos-operator.schema.taloscontrolplanes.spec.watchdogTimer" . | nindent 4 }}
required:
- name
type: object
x-kubernetes-validations:
- message: set exactly one of address and machineRef
  rule: has(self.address) != has(self.machineRef)
{{- end }}
{{- define "talos-operator.schema.taloscontrolplanes.spec.network.cni" -}}
description: 'cni of the cluster. Default: flannel.'
properties:
  name:
    description: name of the CNI.
    enum:
    - flannel
    - custom
    - none
    type: string
  urls:
    description: urls of the manifests of a custom CNI.
    items:
      maxLength: 1024
      pattern: ^\P{C}*$
      type: string
    maxItems: 16
    minItems: 1
    type: array
    x-kubernetes-list-type: atomic
required:
- name
type: object
x-kubernetes-validations:
- message: urls are required for the custom CNI, and only valid for it
  rule: 'self.name == ''custom'' ? has(self.urls) : !has(self.urls)'
{{- end }}
{{- define "talos-operator.schema.taloscontrolplanes.spec.nodeTaints" -}}
description: nodeTaints are taints of the Kubernetes Node.
items:
  description: |-
    The node this Taint is attached to has the "effect" on
    any pod that does not tolerate the Taint.
  properties:
    effect:
      description: |-
        Required. The effect of the taint on pods
        that do not tolerate the taint.
        Valid effects are NoSchedule, PreferNoSchedule and NoExecute.
      type: string
    key:
      description: Required. The taint key to be applied to a node.
      type: string
    timeAdded:
      description: TimeAdded represents the time at which the taint was added.
      format: date-time
      type: string
    value:
      description: The taint value corresponding to the taint key.
      type: string
  required:
  - effect
  - key
  type: object
maxItems: 32
type: array
x-kubernetes-list-type: atomic
x-kubernetes-validations:
- message: the key of a taint must have at most 317 characters, its value at most
    63, its effect must be NoSchedule, PreferNoSchedule or NoExecute, and timeAdded
    must not be set
  rule: self.all(t, size(t.key) <= 317 && (!has(t.value) || size(t.value) <= 63) &&
    t.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'] && !has(t.timeAdded))
{{- end }}
{{- define "talos-operator.schema.taloscontrolplanes.spec.registries" -}}
description: registries configure where images are pulled from.
properties:
  config:
    description: |-
      config is how nodes log in to the hosts that images are pulled from, and which certificates they use there, by
      host. An entry of a machine replaces that of its group with the same host as a whole.
    items:
      description: RegistryConfig is how nodes log in to one host, and which certificates
        they use there.
      properties:
        auth:
          description: 'auth is how nodes log in. Default: not at all.'
          properties:
            authFrom:
              description: authFrom names user:password in base64, as the field auth
                of a Docker configuration has it.
              properties:
                key:
                  description: key in the Secret.
                  maxLength: 253
                  minLength: 1
                  pattern: ^[-._a-zA-Z0-9]+$
                  type: string
                name:
                  description: name of the Secret.
                  maxLength: 253
                  minLength: 1
                  pattern: ^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$
                  type: string
              required:
              - key
              - name
              type: object
            identityTokenFrom:
              description: identityTokenFrom names a token that the registry exchanges
                for others.
              properties:
                key:
                  description: key in the Secret.
                  maxLength: 253
                  minLength: 1
                  pattern: ^[-._a-zA-Z0-9]+$
                  type: string
                name:
                  description: name of the Secret.
                  maxLength: 253
                  minLength: 1
                  pattern: ^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$
                  type: string
              required:
              - key
              - name
              type: object
            passwordFrom:
              description: passwordFrom names the password of the user.
              properties:
                key:
                  description: key in the Secret.
                  maxLength: 253
                  minLength: 1
                  pattern: ^[-._a-zA-Z0-9]+$
                  type: string
                name:
                  description: name of the Secret.
                  maxLength: 253
                  minLength: 1
                  pattern: ^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$
                  type: string
              required:
              - key
              - name
              type: object
            usernameFrom:
              description: usernameFrom names the user.
              properties:
                key:
                  description: key in the Secret.
                  maxLength: 253
                  minLength: 1
                  pattern: ^[-._a-zA-Z0-9]+$
                  type: string
                name:
                  description: name of the Secret.
                  maxLength: 253
                  minLength: 1
                  pattern: ^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$
                  type: string
              required:
              - key
              - name
              type: object
          type: object
          x-kubernetes-validations:
          - message: usernameFrom and passwordFrom belong together
            rule: has(self.usernameFrom) == has(self.passwordFrom)
          - message: set usernameFrom and passwordFrom, or authFrom, or identityTokenFrom
            rule: '[has(self.passwordFrom), has(self.authFrom), has(self.identityTokenFrom)].filter(x,
              x).size() == 1'
        host:
          description: |-
            host is the part of an endpoint between https:// and the first slash, for example mirror.example.org:5000. For
            docker.io without a mirror, it is registry-1.docker.io.
          maxLength: 253
          minLength: 1
          pattern: ^([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?$
          type: string
        tls:
          description: 'tls are the certificates of both sides. Default: those that
            the node trusts, and none of its own.'
          minProperties: 1
          properties:
            caFrom:
              description: |-
                caFrom names the certificates (PEM) that the one of the registry is verified with, beside those that the node trusts
                already.
              properties:
                key:
                  description: key in the Secret.
                  maxLength: 253
                  minLength: 1
                  pattern: ^[-._a-zA-Z0-9]+$
                  type: string
                name:
                  description: name of the Secret.
                  maxLength: 253
                  minLength: 1
                  pattern: ^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$
                  type: string
              required:
              - key
              - name
              type: object
            clientIdentity:
              description: 'clientIdentity is the certificate with which nodes identify
                themselves. Default: none.'
              properties:
                crtFrom:
                  description: crtFrom names the certificate (PEM).
                  properties:
                    key:
                      description: key in the Secret.
                      maxLength: 253
                      minLength: 1
                      pattern: ^[-._a-zA-Z0-9]+$
                      type: string
                    name:
                      description: name of the Secret.
                      maxLength: 253
                      minLength: 1
                      pattern: ^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$
                      type: string
                  required:
                  - key
                  - name
                  type: object
                keyFrom:
                  description: keyFrom names the private key of the certificate (PEM).
                  properties:
                    key:
                      description: key in the Secret.
                      maxLength: 253
                      minLength: 1
                      pattern: ^[-._a-zA-Z0-9]+$
                      type: string
                    name:
                      description: name of the Secret.
                      maxLength: 253
                      minLength: 1
                      pattern: ^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$
                      type: string
                  required:
                  - key
                  - name
                  type: object
              required:
              - crtFrom
              - keyFrom
              type: object
            insecureSkipVerify:
              description: |-
                insecureSkipVerify does not verify the certificate of the registry, so that whatever answers in its place gets the
                credentials and chooses the images. Default: false.
              type: boolean
          type: object
      required:
      - host
      type: object
      x-kubernetes-validations:
      - message: set auth, tls, or both
        rule: has(self.auth) || has(self.tls)
    maxItems: 32
    type: array
    x-kubernetes-list-map-keys:
    - host
    x-kubernetes-list-type: map
  mirrors:
    description: mirrors by registry.
    items:
      description: RegistryMirror lists the endpoints that serve images of one registry.
      properties:
        endpoints:
          description: endpoints of the mirror, tried in order.
          items:
            maxLength: 512
            pattern: ^\P{C}*$
            type: string
          maxItems: 16
          minItems: 1
          type: array
          x-kubernetes-list-type: atomic
        overridePath:
          description: 'overridePath uses the path of the endpoint unchanged. Default:
            false.'
          type: boolean
        registry:
          description: registry is the host that is mirrored, or * for all other registries.
          maxLength: 253
          minLength: 1
          pattern: ^\P{C}*$
          type: string
        skipFallback:
          description: 'skipFallback never falls back to the registry itself. Default:
            false.'
          type: boolean
      required:
      - endpoints
      - registry
      type: object
    maxItems: 64
    type: array
    x-kubernetes-list-map-keys:
    - registry
    x-kubernetes-list-type: map
type: object
{{- end }}
{{- define "talos-operator.schema.taloscontrolplanes.spec.remediation" -}}
description: |-
  remediation determines when machines that do not come back are replaced by the spares of their group. Without it,
  the operator waits for them.
properties:
  maxUnhealthy:
    anyOf:
    - type: integer
    - type: string
    description: |-
      maxUnhealthy is how many machines of the group may be unreachable at once for any of them to be replaced: a number
      such as 2, or a percentage of the group such as 40%. If more are unreachable, a network failure is the likely cause,
      and none is replaced. Default: 1.
    maxLength: 4
    x-kubernetes-int-or-string: true
    x-kubernetes-validations:
    - message: maxUnhealthy must be a number from 1 to 9999, or a percentage from
        1% to 100%
      rule: 'type(self) == string ? self.matches(''^([1-9][0-9]?|100)%$'') : self
        >= 1 && self <= 9999'
  onReturn:
    description: |-
      onReturn determines what happens when an abandoned machine later returns with its old data: Reset (default) wipes it
      unless its Node is Ready, Hold leaves it for a user to handle. In both cases a Node object that is not Ready is
      removed. The value at the time when the machine is abandoned applies.
    enum:
    - Reset
    - Hold
    type: string
  timeout:
    description: |-
      timeout after which an unreachable machine counts as permanently lost and is replaced by a spare machine, if one is
      available.
    maxLength: 64
    type: string
    x-kubernetes-validations:
    - message: timeout must be at least 10s
      rule: duration(self) >= duration('10s')
required:
- timeout
type: object
{{- end }}
{{- define "talos-operator.schema.taloscontrolplanes.spec.rollout" -}}
description: rollout determines how configuration changes are rolled out to the machines.
properties:
  approval:
    description: |-
      approval is Automatic (default), which starts a rollout as soon as it is planned, or Manual, which waits for a user
      to approve the plan.
    enum:
    - Automatic
    - Manual
    type: string
  healthTimeout:
    description: |-
      healthTimeout is how long a machine may take to become healthy after a change before the rollout stops. Default:
      10m.
    maxLength: 64
    type: string
    x-kubernetes-validations:
    - message: healthTimeout must not be negative
      rule: duration(self) >= duration('0s')
  maxFailed:
    anyOf:
    - type: integer
    - type: string
    description: |-
      maxFailed is how many workers of a group may have failed before the rollout stops, a number such as 1, or a
      percentage of the group such as 5%, rounded down. Those do not count as unavailable. The first machine of a rollout has
      to succeed all the same. Default: 0. For a control plane it is always 0.
    maxLength: 4
    x-kubernetes-int-or-string: true
    x-kubernetes-validations:
    - message: maxFailed must be a number from 0 to 9999, or a percentage from 0%
        to 100%
      rule: 'type(self) == string ? self.matches(''^([0-9][0-9]?|100)%$'') : self
        >= 0 && self <= 9999'
  maxUnavailable:
    anyOf:
    - type: integer
    - type: string
    description: |-
      maxUnavailable is how many workers of a group may be unavailable at once: a number such as 2, or a percentage of the
      group such as 25%, rounded down to at least one. Default: 1. For a control plane it is always 1.
    maxLength: 4
    x-kubernetes-int-or-string: true
    x-kubernetes-validations:
    - message: maxUnavailable must be a number from 1 to 9999, or a percentage from
        1% to 100%
      rule: 'type(self) == string ? self.matches(''^([1-9][0-9]?|100)%$'') : self
        >= 1 && self <= 9999'
  rebootPolicy:
    description: |-
      rebootPolicy is Automatic (default), which reboots a machine as soon as it is safe, Window, which reboots only in
      maintenance windows, or Manual, which never reboots.
    enum:
    - Automatic
    - Window
    - Manual
    type: string
  soakTime:
    description: |-
      soakTime is how long a machine has to be healthy after its change before the next machine of its group begins, and, for
      a control plane, before workers begin. If it becomes unhealthy meanwhile, the time starts anew once it is healthy.
      Default: 0.
    maxLength: 64
    type: string
    x-kubernetes-validations:
    - message: soakTime must not be negative
      rule: duration(self) >= duration('0s')
  tryTimeout:
    description: |-
      tryTimeout is how long a machine tries a change that could cut it off from the network before it rolls the change
      back. Default: 1m.
    maxLength: 64
    type: string
    x-kubernetes-validations:
    - message: tryTimeout must not be negative
      rule: duration(self) >= duration('0s')
  windows:
    description: windows are the maintenance windows of rebootPolicy Window.
    items:
      description: MaintenanceWindow is a recurring period in which reboots are allowed.
      properties:
        duration:
          description: duration is how long the window stays open.
          maxLength: 64
          type: string
          x-kubernetes-validations:
          - message: duration must not be negative
            rule: duration(self) >= duration('0s')
        schedule:
          description: 'schedule is when the window opens, in cron format: minute,
            hour, day of month, month, day of week.'
          maxLength: 128
          minLength: 1
          pattern: ^\P{C}*$
          type: string
        timeZone:
          description: 'timeZone of the schedule, for example Europe/Berlin. Default:
            UTC.'
          maxLength: 64
          pattern: ^\P{C}*$
          type: string
      required:
      - duration
      - schedule
      type: object
    maxItems: 16
    type: array
    x-kubernetes-list-type: atomic
type: object
x-kubernetes-validations:
- message: rebootPolicy Window requires windows
  rule: '!has(self.rebootPolicy) || self.rebootPolicy != ''Window'' || (has(self.windows)
    && size(self.windows) > 0)'
{{- end }}
{{- define "talos-operator.schema.taloscontrolplanes.spec.spares" -}}
description: |-
  spares are machines in maintenance mode that are available to replace other machines. Nothing is sent to a spare
  before it replaces a machine.
items:{{ include "talos-operator.schema.taloscontrolplanes.spec.machines[]" . | nindent 2 }}
maxItems: 32
type: array
x-kubernetes-list-map-keys:
- name
x-kubernetes-list-type: map
{{- end }}
{{- define "talos-operator.schema.taloscontrolplanes.spec.staticPods" -}}
description: |-
  staticPods are Pods (v1) that the kubelet runs without the Kubernetes API, as soon as it runs itself. Fields
  for which the operator has no rule are refused, and the others are checked. Do not put secrets here: everyone with
  read access to the object can read them.
items:
  type: object
  x-kubernetes-preserve-unknown-fields: true
maxItems: 16
type: array
x-kubernetes-list-type: atomic
{{- end }}
{{- define "talos-operator.schema.taloscontrolplanes.spec.sysctls" -}}
additionalProperties:
  type: string
description: |-
  sysctls are parameters of the kernel below /proc/sys by their names, for example vm.max_map_count. Default: what
  Talos sets.
maxProperties: 128
type: object
x-kubernetes-validations:
- message: the name of a parameter must have at most 253 characters, and its value
    at most 1024
  rule: self.all(k, size(k) <= 253 && size(self[k]) <= 1024)
{{- end }}
{{- define "talos-operator.schema.taloscontrolplanes.spec.sysfs" -}}
additionalProperties:
  type: string
description: |-
  sysfs are files below /sys by their paths, with dots or slashes, and what is written into them, for example
  devices.system.cpu.cpu0.cpufreq.scaling_governor. Default: none.
maxProperties: 128
type: object
x-kubernetes-validations:
- message: the path of a file must have at most 253 characters, and its value at most
    1024
  rule: self.all(k, size(k) <= 253 && size(self[k]) <= 1024)
{{- end }}
{{- define "talos-operator.schema.taloscontrolplanes.spec.trustedRoots" -}}
description: trustedRoots are certificates that Talos and its container runtime trust
  beside those of the image, by their names.
items:
  description: TrustedRoot is a bundle of certificates.
  properties:
    certificates:
      description: certificates of authorities (PEM), at most 64 KiB.
      maxLength: 65536
      minLength: 1
      type: string
    certificatesFrom:
      description: certificatesFrom names a key that holds them, in a ConfigMap or
        Secret of the namespace of the object.
      properties:
        key:
          description: key in the object.
          maxLength: 253
          minLength: 1
          pattern: ^[-._a-zA-Z0-9]+$
          type: string
        kind:
          description: 'kind of the object: ConfigMap or Secret.'
          enum:
          - ConfigMap
          - Secret
          type: string
        name:
          description: name of the object.
          maxLength: 253
          minLength: 1
          pattern: ^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$
          type: string
      required:
      - key
      - kind
      - name
      type: object
    name:
      description: name of the bundle.
      maxLength: 63
      minLength: 1
      pattern: ^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$
      type: string
  required:
  - name
  type: object
  x-kubernetes-validations:
  - message: set exactly one of certificates and certificatesFrom
    rule: has(self.certificates) != has(self.certificatesFrom)
maxItems: 16
type: array
x-kubernetes-list-map-keys:
- name
x-kubernetes-list-type: map
{{- end }}
{{- define "talos-operator.schema.taloscontrolplanes.spec.upgrade" -}}
description: upgrade determines how the cluster gets to other versions. Without it,
  they are only reported.
properties:
  backup:
    description: |-
      backup is Scheduled (default), or None, where the control plane has no backupBeforeDisruption. With Scheduled, the
      first machine of a version of Talos, or of another minor of Kubernetes, waits for a backup that is newer than the
      plan, if a TalosEtcdBackupSchedule of the control plane is neither suspended nor paused; of several, it is taken by
      that with the newest good backup.
    enum:
    - Scheduled
    - None
    type: string
  checks:
    description: |-
      checks of objects in the cluster have to be satisfied before a machine is upgraded, and before it counts as healthy with
      the new version. Missing evidence, such as a missing object or an API that does not respond, satisfies none.
    items:
      description: UpgradeCheck is a condition on objects of the cluster that is upgraded.
      properties:
        apiVersion:
          description: apiVersion of the objects, for example apps/v1.
          maxLength: 317
          minLength: 1
          pattern: ^\P{C}*$
          type: string
        expression:
          description: expression in CEL that has to be true, for example object.status.phase
            == 'Ready'.
          maxLength: 4096
          minLength: 1
          type: string
        kind:
          description: kind of the objects, for example Deployment. Secrets are not
            read.
          maxLength: 63
          minLength: 1
          pattern: ^\P{C}*$
          type: string
        name:
          description: name of the check, for messages.
          maxLength: 63
          minLength: 1
          pattern: ^[a-z0-9]([-a-z0-9]*[a-z0-9])?$
          type: string
        namespace:
          description: |-
            namespace of the objects. Without it, objectName names an object that has no namespace, and selector selects in all
            namespaces.
          maxLength: 63
          minLength: 1
          pattern: ^\P{C}*$
          type: string
        objectName:
          description: objectName is the name of one object, the variable object of
            the expression.
          maxLength: 253
          minLength: 1
          pattern: ^\P{C}*$
          type: string
        selector:
          description: |-
            selector selects objects by their labels, for example app=web. They are the variable objects of the expression, a list
            of at most 200. A selection of no object satisfies no check.
          maxLength: 1024
          minLength: 1
          pattern: ^\P{C}*$
          type: string
        when:
          description: |-
            when is Before, After, or Always (default): whether the check is made before a machine is upgraded, or after, as a part of
            its health with the new version.
          enum:
          - Before
          - After
          - Always
          type: string
      required:
      - apiVersion
      - expression
      - kind
      - name
      type: object
      x-kubernetes-validations:
      - message: set exactly one of objectName and selector
        rule: has(self.objectName) != has(self.selector)
      - message: checks must not read Secrets
        rule: self.kind != 'Secret' || self.apiVersion != 'v1'
    maxItems: 16
    type: array
    x-kubernetes-list-map-keys:
    - name
    x-kubernetes-list-type: map
  hooks:
    description: hooks are Jobs that run in the cluster before and after each version
      that its machines are brought to.
    items:
      description: UpgradeHook is a Job that runs in the managed cluster before or
        after each version that its machines are brought to.
      properties:
        job:
          description: |-
            job is the spec of a Job, as in batch/v1. ttlSecondsAfterFinished (one day) and activeDeadlineSeconds (the timeout of
            the hook) are set if it does not set them. Each container gets the variables TALOS_OPERATOR_RUN_PHASE, _COMPONENT,
            _FROM, _TO and _CLUSTER.
          type: object
          x-kubernetes-preserve-unknown-fields: true
        name:
          description: name of the hook. It begins the name of its Jobs.
          maxLength: 40
          minLength: 1
          pattern: ^[a-z0-9]([-a-z0-9]*[a-z0-9])?$
          type: string
        namespace:
          description: namespace of the Job in the managed cluster. It has to exist.
          maxLength: 63
          minLength: 1
          pattern: ^[a-z0-9]([-a-z0-9]*[a-z0-9])?$
          type: string
        onFailure:
          description: 'onFailure of a Before hook is Stop (default), or Continue:
            the upgrade begins although the hook failed.'
          enum:
          - Stop
          - Continue
          type: string
        timeout:
          description: 'timeout is how long the Job may take, from its creation. Default:
            10m.'
          maxLength: 64
          type: string
          x-kubernetes-validations:
          - message: timeout must not be negative
            rule: duration(self) >= duration('0s')
        when:
          description: |-
            when is Before: the hook has to succeed before the first machine begins a version. Or After: it runs once no machine
            is brought to that version any more, whether that succeeded, failed or was called off.
          enum:
          - Before
          - After
          type: string
      required:
      - job
      - name
      - namespace
      - when
      type: object
      x-kubernetes-validations:
      - message: onFailure is only valid for hooks that run before an upgrade
        rule: self.when == 'Before' || !has(self.onFailure)
    maxItems: 8
    type: array
    x-kubernetes-list-map-keys:
    - name
    x-kubernetes-list-type: map
  kubernetes:
    description: |-
      kubernetes is Report (default), or Automatic: machines whose components of Kubernetes have another version than the
      spec asks for are upgraded: API servers, controller managers, schedulers, kube-proxy, then kubelets.
    enum:
    - Report
    - Automatic
    type: string
  machineSelector:
    description: |-
      machineSelector selects the TalosMachines that are upgraded, by their labels; each one by default. The others stay as
      they are, and what comes after them in the order of the upgrade waits: workers for control-plane machines, and the
      next version for all machines.
    properties:
      matchExpressions:
        description: matchExpressions is a list of label selector requirements. The
          requirements are ANDed.
        items:
          description: |-
            A label selector requirement is a selector that contains values, a key, and an operator that
            relates the key and values.
          properties:
            key:
              description: key is the label key that the selector applies to.
              type: string
            operator:
              description: |-
                operator represents a key's relationship to a set of values.
                Valid operators are In, NotIn, Exists and DoesNotExist.
              type: string
            values:
              description: |-
                values is an array of string values. If the operator is In or NotIn,
                the values array must be non-empty. If the operator is Exists or DoesNotExist,
                the values array must be empty. This array is replaced during a strategic
                merge patch.
              items:
                type: string
              type: array
              x-kubernetes-list-type: atomic
          required:
          - key
          - operator
          type: object
        type: array
        x-kubernetes-list-type: atomic
      matchLabels:
        additionalProperties:
          type: string
        description: |-
          matchLabels is a map of {key,value} pairs. A single {key,value} in the matchLabels
          map is equivalent to an element of matchExpressions, whose key field is "key", the
          operator is "In", and the values array contains only "value". The requirements are ANDed.
        type: object
    type: object
    x-kubernetes-map-type: atomic
  manifests:
    description: |-
      manifests is Report (default), or Apply. With Apply, an upgrade of Kubernetes ends with the bootstrap manifests of
      Talos, such as those of kube-proxy, CoreDNS and flannel: they are applied, and what they no longer have is deleted.
      With Report, status.manifests names the objects that differ.
    enum:
    - Report
    - Apply
    type: string
  notifications:
    description: 'notifications are sent when a run of an upgrade, which has a record,
      begins, waits for a user or ends. Default: none.'
    items:
      description: UpgradeNotification is a webhook that is told of the runs of upgrades.
      properties:
        events:
          description: 'events that are sent. Default: all.'
          items:
            description: NotificationEvent is what a notification tells of a run.
            enum:
            - Started
            - Finished
            - Failed
            - MachineFailed
            - Waiting
            type: string
          maxItems: 5
          minItems: 1
          type: array
          x-kubernetes-list-type: set
        secretRef:
          description: |-
            secretRef references the address of the webhook, in a Secret of the namespace of the object. It is read each time a
            notification is sent. The address begins with https://; http:// is accepted for loopback addresses, and for hosts
            that --allowed-webhooks names with it.
          properties:
            key:
              description: key in the Secret.
              maxLength: 253
              minLength: 1
              pattern: ^[-._a-zA-Z0-9]+$
              type: string
            name:
              description: name of the Secret.
              maxLength: 253
              minLength: 1
              pattern: ^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$
              type: string
          required:
          - key
          - name
          type: object
        type:
          description: type is Generic, a JSON document of the operator's own, or
            Slack, a JSON object with a text.
          enum:
          - Generic
          - Slack
          type: string
      required:
      - secretRef
      - type
      type: object
    maxItems: 8
    type: array
    x-kubernetes-list-type: atomic
  prePull:
    description: |-
      prePull is Always (default), or Never. With Always, each machine pulls its images of a version before the first
      machine begins with that version: the installer of Talos, or the kubelet and, on the control plane, the images of
      its static pods. One that cannot holds the upgrade, unless the maxFailed of its group tolerates it. One that does not
      respond, or is not ready, holds nothing. Talos deletes images that nothing uses about an hour after they were pulled:
      after a longer wait, a machine may have to pull again when it is next.
    enum:
    - Always
    - Never
    type: string
  removedAPIs:
    description: |-
      removedAPIs is Refuse (default), or Ignore. With Refuse, no upgrade to a minor of Kubernetes begins that removes
      what is in use: API resources with objects, flags, feature gates and admission plugins. With Ignore nothing is checked.
    enum:
    - Refuse
    - Ignore
    type: string
  rollback:
    description: |-
      rollback is Manual (default), or Automatic: a machine that is not healthy within the healthTimeout after it booted
      another Talos boots the one of before again.
    enum:
    - Manual
    - Automatic
    type: string
  talos:
    description: |-
      talos is Report (default), or Automatic: machines that run another version or schematic than the spec asks for are
      upgraded, control plane first, minor by minor.
    enum:
    - Report
    - Automatic
    type: string
  via:
    description: via are releases to go through instead of the newest ones that the
      operator knows.
    items:
      maxLength: 64
      pattern: ^\P{C}*$
      type: string
    maxItems: 16
    type: array
    x-kubernetes-list-type: set
type: object
{{- end }}
{{- define "talos-operator.schema.taloscontrolplanes.spec.volumes" -}}
description: volumes determine where the volumes of Talos are provisioned, how large
  they become, and how they are encrypted.
properties:
  ephemeral:
    description: 'ephemeral is the volume of /var: images and logs of containers,
      data of Pods and of etcd.'
    properties:
      diskSelector:
        description: |-
          diskSelector is an expression (CEL) over the disks of the machine, the first match of which gets the volume, for
          example disk.transport == "nvme" && !system_disk. Default: the disk that Talos is installed on.
        maxLength: 1024
        pattern: ^\P{C}*$
        type: string
      encryption:{{ include "talos-operator.schema.taloscontrolplanes.spec.volumes.ephemeral.encryption" . | nindent 8 }}
      grow:
        description: 'grow lets the volume grow with its disk, at a boot. Default:
          that of Talos.'
        type: boolean
      maxSize:
        description: |-
          maxSize of the volume, in the format of minSize, or a percentage of the disk such as 80%. Default: what the disk
          has.
        maxLength: 32
        pattern: ^\P{C}*$
        type: string
      minSize:
        description: 'minSize of the volume, for example 50GiB. Default: that of Talos.'
        maxLength: 32
        pattern: ^\P{C}*$
        type: string
    type: object
  existing:
    description: existing are volumes that something else has made, mounted at /var/mnt/NAME,
      by their names.
    items:
      description: ExistingVolume is a volume that something else has made, and that
        Talos mounts at /var/mnt/NAME.
      properties:
        disableAccessTime:
          description: |-
            disableAccessTime mounts the volume without recording when files were last read (noatime). Talos 1.13 and later.
            Default: false.
          type: boolean
        name:
          description: name of the volume.
          maxLength: 34
          minLength: 1
          pattern: ^[A-Za-z0-9-]+$
          type: string
        readOnly:
          description: 'readOnly mounts the volume without write access. Default:
            false.'
          type: boolean
        secure:
          description: |-
            secure mounts the volume without devices and without the set-user-ID and set-group-ID bits of programs (nodev,
            nosuid). Talos 1.13 and later. Default: true.
          type: boolean
        volumeSelector:
          description: |-
            volumeSelector is an expression (CEL) over the volumes and disks of the machine, for example
            volume.partition_label == "DATA".
          maxLength: 1024
          minLength: 1
          pattern: ^\P{C}*$
          type: string
      required:
      - name
      - volumeSelector
      type: object
    maxItems: 16
    type: array
    x-kubernetes-list-map-keys:
    - name
    x-kubernetes-list-type: map
  external:
    description: external are file systems that the host of a virtual machine shares
      with it, mounted at /var/mnt/NAME, by their names.
    items:
      description: |-
        ExternalVolume is a file system that the host of a virtual machine shares with it by virtiofs, and that Talos mounts at
        /var/mnt/NAME.
      properties:
        disableAccessTime:
          description: |-
            disableAccessTime mounts the volume without recording when files were last read (noatime). Talos 1.13 and later.
            Default: false.
          type: boolean
        name:
          description: name of the volume.
          maxLength: 34
          minLength: 1
          pattern: ^[A-Za-z0-9-]+$
          type: string
        readOnly:
          description: 'readOnly mounts the volume without write access. Default:
            false.'
          type: boolean
        secure:
          description: |-
            secure mounts the volume without devices and without the set-user-ID and set-group-ID bits of programs (nodev,
            nosuid). Talos 1.13 and later. Default: true.
          type: boolean
        tag:
          description: tag that the host gave the file system.
          maxLength: 36
          minLength: 1
          pattern: ^\P{C}+$
          type: string
      required:
      - name
      - tag
      type: object
    maxItems: 16
    type: array
    x-kubernetes-list-map-keys:
    - name
    x-kubernetes-list-type: map
  imageCache:
    description: imageCache is the volume of container images that an installation
      medium brings along.
    properties:
      diskSelector:
        description: |-
          diskSelector is an expression (CEL) over the disks of the machine, the first match of which gets the volume, for
          example disk.transport == "nvme" && !system_disk. Default: the disk that Talos is installed on.
        maxLength: 1024
        pattern: ^\P{C}*$
        type: string
      encryption:{{ include "talos-operator.schema.taloscontrolplanes.spec.volumes.ephemeral.encryption" . | nindent 8 }}
      grow:
        description: 'grow lets the volume grow with its disk, at a boot. Default:
          that of Talos.'
        type: boolean
      maxSize:
        description: |-
          maxSize of the volume, in the format of minSize, or a percentage of the disk such as 80%. Default: what the disk
          has.
        maxLength: 32
        pattern: ^\P{C}*$
        type: string
      minSize:
        description: 'minSize of the volume, for example 50GiB. Default: that of Talos.'
        maxLength: 32
        pattern: ^\P{C}*$
        type: string
    type: object
  raw:
    description: raw are partitions without a file system, for storage that formats
      them itself, by their names.
    items:{{ include "talos-operator.schema.taloscontrolplanes.spec.volumes.raw[]" . | nindent 6 }}
    maxItems: 16
    type: array
    x-kubernetes-list-map-keys:
    - name
    x-kubernetes-list-type: map
  state:
    description: state is the volume of the machine configuration and the identity
      of the node. Its place and size are fixed.
    properties:
      encryption:{{ include "talos-operator.schema.taloscontrolplanes.spec.volumes.ephemeral.encryption" . | nindent 8 }}
    type: object
  swap:
    description: swap are partitions for swap space, by their names. The kubelet has
      to be configured for it, too.
    items:{{ include "talos-operator.schema.taloscontrolplanes.spec.volumes.raw[]" . | nindent 6 }}
    maxItems: 16
    type: array
    x-kubernetes-list-map-keys:
    - name
    x-kubernetes-list-type: map
  user:
    description: user are volumes with a file system, mounted at /var/mnt/NAME, by
      their names.
    items:
      description: |-
        UserVolume is a volume with a file system that Talos mounts at /var/mnt/NAME. One that is no longer listed is not
        mounted any more; its data stays on the disk.
      properties:
        disableAccessTime:
          description: |-
            disableAccessTime mounts the volume without recording when files were last read (noatime). Talos 1.13 and later.
            Default: false.
          type: boolean
        diskSelector:
          description: |-
            diskSelector is an expression (CEL) over the disks of the machine, the first match of which gets the volume, for
            example disk.transport == "nvme" && !system_disk. Default: the disk that Talos is installed on.
          maxLength: 1024
          pattern: ^\P{C}*$
          type: string
        encryption:{{ include "talos-operator.schema.taloscontrolplanes.spec.volumes.ephemeral.encryption" . | nindent 10 }}
        filesystem:
          description: 'filesystem of the volume. Default: xfs.'
          enum:
          - xfs
          - ext4
          type: string
        grow:
          description: 'grow lets the volume grow with its disk, at a boot. Default:
            that of Talos.'
          type: boolean
        maxSize:
          description: |-
            maxSize of the volume, in the format of minSize, or a percentage of the disk such as 80%. Default: what the disk
            has.
          maxLength: 32
          pattern: ^\P{C}*$
          type: string
        minSize:
          description: 'minSize of the volume, for example 50GiB. Default: that of
            Talos.'
          maxLength: 32
          pattern: ^\P{C}*$
          type: string
        name:
          description: name of the volume.
          maxLength: 34
          minLength: 1
          pattern: ^[A-Za-z0-9-]+$
          type: string
        secure:
          description: |-
            secure mounts the volume without devices and without the set-user-ID and set-group-ID bits of programs (nodev,
            nosuid). Talos 1.13 and later. Default: true.
          type: boolean
        type:
          description: 'type of the volume: partition (default), disk or directory.'
          enum:
          - partition
          - disk
          - directory
          type: string
      required:
      - name
      type: object
    maxItems: 16
    type: array
    x-kubernetes-list-map-keys:
    - name
    x-kubernetes-list-type: map
type: object
{{- end }}
{{- define "talos-operator.schema.taloscontrolplanes.spec.volumes.ephemeral.encryption" -}}
description: 'encryption of the volume. Default: none.'
properties:
  blockSize:
    description: 'blockSize of the volume in bytes. Default: that of the disk.'
    enum:
    - 512
    - 1024
    - 2048
    - 4096
    format: int32
    type: integer
  cipher:
    description: 'cipher of the volume. Default: aes-xts-plain64.'
    enum:
    - aes-xts-plain64
    - xchacha12,aes-adiantum-plain64
    - xchacha20,aes-adiantum-plain64
    type: string
  keySize:
    description: 'keySize of the volume in bits. Default: that of the cipher.'
    enum:
    - 256
    - 512
    format: int32
    type: integer
  keys:
    description: |-
      keys that open the volume, by their slots. A boot tries them from the lowest slot on. A change takes effect at the
      next boot, and needs a key that the volume has already: add one, reboot, and remove the other one then.
    items:
      description: VolumeKey opens an encrypted volume.
      properties:
        kms:
          description: kms is the service of a key of the type kms.
          properties:
            endpoint:
              description: |-
                endpoint of the service: https://HOST:PORT, or grpc://HOST:PORT without TLS. A machine that cannot reach it does not
                boot: the service must not run on the cluster whose volumes it opens.
              maxLength: 512
              minLength: 1
              pattern: ^(https|grpc)://[^/?#@\s\pC]+$
              type: string
          required:
          - endpoint
          type: object
        lockToState:
          description: |-
            lockToState makes the key useless without the state volume of the machine, and the volume unreadable once that is
            wiped. Default: false.
          type: boolean
        slot:
          description: 'slot of the key in the volume. The key of a slot is never
            replaced by another one: use another slot.'
          format: int32
          maximum: 31
          minimum: 0
          type: integer
        static:
          description: static is the passphrase of a key of the type static.
          properties:
            passphraseFrom:
              description: |-
                passphraseFrom names the passphrase in a Secret of the namespace of the object: one line of at least 16 characters.
                Each machine whose group names it has the same one. A change of what the Secret holds is refused: use another slot.
              properties:
                key:
                  description: key in the Secret.
                  maxLength: 253
                  minLength: 1
                  pattern: ^[-._a-zA-Z0-9]+$
                  type: string
                name:
                  description: name of the Secret.
                  maxLength: 253
                  minLength: 1
                  pattern: ^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$
                  type: string
              required:
              - key
              - name
              type: object
          required:
          - passphraseFrom
          type: object
        tpm:
          description: tpm are the options of a key of the type tpm.
          properties:
            checkSecureBoot:
              description: 'checkSecureBoot makes the key only while the firmware
                enforces Secure Boot. Default: false.'
              type: boolean
            pcrs:
              description: |-
                pcrs are the registers of the TPM whose values the key is bound to, beside the signed policy of the boot image.
                Default: 7, the keys and state of Secure Boot.
              items:
                format: int32
                maximum: 23
                minimum: 0
                type: integer
              maxItems: 24
              minItems: 1
              type: array
              x-kubernetes-list-type: set
            signedPolicyOnly:
              description: |-
                signedPolicyOnly binds the key to the signed policy of the boot image alone, so that an update of the firmware or of
                the keys of Secure Boot does not lock the volume. Default: false.
              type: boolean
          type: object
          x-kubernetes-validations:
          - message: set pcrs or signedPolicyOnly, not both
            rule: '!has(self.pcrs) || !has(self.signedPolicyOnly)'
        type:
          description: 'type of the key: tpm, nodeID, kms or static.'
          enum:
          - tpm
          - nodeID
          - kms
          - static
          type: string
      required:
      - slot
      - type
      type: object
      x-kubernetes-validations:
      - message: kms is required for keys of the type kms, and only valid for them
        rule: (self.type == 'kms') == has(self.kms)
      - message: static is required for keys of the type static, and only valid for
          them
        rule: (self.type == 'static') == has(self.static)
      - message: tpm is only valid for keys of the type tpm
        rule: self.type == 'tpm' || !has(self.tpm)
    maxItems: 8
    minItems: 1
    type: array
    x-kubernetes-list-map-keys:
    - slot
    x-kubernetes-list-type: map
  options:
    description: 'options for the speed of the volume. Default: none.'
    items:
      enum:
      - no_read_workqueue
      - no_write_workqueue
      - same_cpu_crypt
      - submit_from_crypt_cpus
      type: string
    maxItems: 4
    type: array
    x-kubernetes-list-type: set
required:
- keys
type: object
{{- end }}
{{- define "talos-operator.schema.taloscontrolplanes.spec.volumes.raw[]" -}}
description: PartitionVolume is a partition without a file system. One that is no
  longer listed stays on its disk.
properties:
  diskSelector:
    description: |-
      diskSelector is an expression (CEL) over the disks of the machine, the first match of which gets the volume, for
      example disk.transport == "nvme" && !system_disk. Default: the disk that Talos is installed on.
    maxLength: 1024
    pattern: ^\P{C}*$
    type: string
  encryption:{{ include "talos-operator.schema.taloscontrolplanes.spec.volumes.ephemeral.encryption" . | nindent 4 }}
  grow:
    description: 'grow lets the volume grow with its disk, at a boot. Default: that
      of Talos.'
    type: boolean
  maxSize:
    description: |-
      maxSize of the volume, in the format of minSize, or a percentage of the disk such as 80%. Default: what the disk
      has.
    maxLength: 32
    pattern: ^\P{C}*$
    type: string
  minSize:
    description: 'minSize of the volume, for example 50GiB. Default: that of Talos.'
    maxLength: 32
    pattern: ^\P{C}*$
    type: string
  name:
    description: name of the volume.
    maxLength: 34
    minLength: 1
    pattern: ^[A-Za-z0-9-]+$
    type: string
required:
- name
type: object
{{- end }}
{{- define "talos-operator.schema.taloscontrolplanes.spec.watchdogTimer" -}}
description: 'watchdogTimer resets a machine on which Talos does not respond any more.
  Default: none.'
minProperties: 1
properties:
  device:
    description: device of the timer, for example /dev/watchdog0. Required, unless
      enabled is false.
    maxLength: 64
    minLength: 1
    pattern: ^/dev/watchdog[0-9]*$
    type: string
  enabled:
    description: 'enabled is false for a machine without the timer of its group. Default:
      true.'
    type: boolean
  timeout:
    description: 'timeout after which the machine is reset, at least 10s. Default:
      1m.'
    maxLength: 16
    pattern: ^([0-9]{1,5}[smh])+$
    type: string
    x-kubernetes-validations:
    - message: timeout must be at least 10s
      rule: duration(self) >= duration('10s')
type: object
x-kubernetes-validations:
- message: device is required unless enabled is false, and then neither device nor
    timeout is valid
  rule: '!has(self.enabled) || self.enabled ? has(self.device) : !has(self.device)
    && !has(self.timeout)'
{{- end }}
{{- define "talos-operator.schema.taloscontrolplanes.status.plan" -}}
description: plan lists the configuration changes that the machines need; absent if
  there are none.
properties:
  check:
    description: check that is not satisfied and that the next machine waits for;
      absent if there is none.
    properties:
      name:
        description: name of the check in spec.upgrade.checks of the control plane.
        maxLength: 63
        type: string
      since:
        description: since is the time when the check was first not satisfied, without
          interruption.
        format: date-time
        type: string
    required:
    - name
    - since
    type: object
  createdAt:
    description: createdAt is the time when the plan was created.
    format: date-time
    type: string
  id:
    description: id of the plan. A new difference results in a new plan.
    maxLength: 64
    type: string
  machines:
    description: machines of the plan, in rollout order.
    items:
      description: PlannedMachine is one machine of a plan. The status of its TalosMachine
        has the details.
      properties:
        base:
          description: base is the SHA-256 of the live machine configuration, as in
            the machine's change.
          maxLength: 64
          type: string
        fields:
          description: fields is the number of fields that change.
          format: int32
          type: integer
        name:
          description: name of the TalosMachine.
          maxLength: 253
          type: string
        reboot:
          description: reboot is true if the machine reboots.
          type: boolean
        state:
          description: state of the machine.
          enum:
          - Pending
          - Running
          - AwaitingReboot
          - Done
          - Failed
          type: string
        target:
          description: target is the SHA-256 of the desired machine configuration,
            as in the machine's change.
          maxLength: 64
          type: string
      required:
      - base
      - name
      - state
      - target
      type: object
    maxItems: 600
    type: array
    x-kubernetes-list-map-keys:
    - name
    x-kubernetes-list-type: map
  message:
    description: message says what the plan waits for, or why it has stopped.
    maxLength: 1024
    type: string
  phase:
    description: phase of the plan.
    enum:
    - AwaitingApproval
    - Waiting
    - RollingOut
    - Stopped
    type: string
required:
- createdAt
- id
- phase
type: object
{{- end }}
{{- define "talos-operator.schema.taloscontrolplanes.status.replacements" -}}
description: replacements are spares that replace listed machines, until the machine
  list is updated accordingly.
items:
  description: Replacement is a spare machine that replaces a listed one.
  properties:
    machine:
      description: machine is the listed machine that was replaced.
      maxLength: 253
      type: string
    spare:
      description: spare is the machine that replaces it.
      maxLength: 253
      type: string
  required:
  - machine
  - spare
  type: object
maxItems: 32
type: array
x-kubernetes-list-map-keys:
- machine
x-kubernetes-list-type: map
{{- end }}
{{- define "talos-operator.schema.talosetcdbackups.spec.recipientsFrom" -}}
description: recipientsFrom reference Secrets with further recipients. A key holds
  one or more of them, one per line.
items:
  description: SecretKeyReference names a key of a Secret in the same namespace.
  properties:
    key:
      description: key in the Secret.
      maxLength: 253
      minLength: 1
      pattern: ^[-._a-zA-Z0-9]+$
      type: string
    name:
      description: name of the Secret.
      maxLength: 253
      minLength: 1
      pattern: ^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$
      type: string
  required:
  - key
  - name
  type: object
maxItems: 16
minItems: 1
type: array
x-kubernetes-list-type: atomic
{{- end }}
{{- define "talos-operator.schema.talosetcdbackups.spec.storage" -}}
description: storage is where the backup is stored.
properties:
  directory:
    description: directory is a directory that is mounted into the operator.
    properties:
      path:
        description: 'path relative to the directory of the namespace, without dots.
          Default: that directory itself.'
        maxLength: 512
        pattern: ^[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*$
        type: string
    type: object
  s3:{{ include "talos-operator.schema.talosetcdbackups.spec.storage.s3" . | nindent 4 }}
type: object
x-kubernetes-validations:
- message: set exactly one of s3 and directory
  rule: has(self.s3) != has(self.directory)
{{- end }}
{{- define "talos-operator.schema.talosetcdbackups.spec.storage.s3" -}}
description: s3 is a bucket of S3 or of a compatible store.
properties:
  addressing:
    description: 'addressing is how requests name the bucket: Path or VirtualHost.
      Default: VirtualHost for AWS, otherwise Path.'
    enum:
    - Path
    - VirtualHost
    type: string
  bucket:
    description: bucket is the name of the bucket.
    maxLength: 63
    minLength: 3
    pattern: ^\P{C}*$
    type: string
  caFrom:
    description: |-
      caFrom references the PEM-encoded CA certificates that the certificate of the endpoint is verified against. Default:
      the CA certificates of the system.
    properties:
      key:
        description: key in the Secret.
        maxLength: 253
        minLength: 1
        pattern: ^[-._a-zA-Z0-9]+$
        type: string
      name:
        description: name of the Secret.
        maxLength: 253
        minLength: 1
        pattern: ^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$
        type: string
    required:
    - key
    - name
    type: object
  credentialsRef:
    description: |-
      credentialsRef names a Secret with the keys accessKeyID, secretAccessKey and, for temporary credentials,
      sessionToken. The Secret is read each time it is used. Default: the operator's own credentials (AWS_ACCESS_KEY_ID
      and so on, a web identity token, the metadata service), if the operator was started with --allow-own-credentials for
      the namespace and the bucket.
    properties:
      name:
        description: name of the object.
        maxLength: 253
        minLength: 1
        pattern: ^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$
        type: string
    required:
    - name
    type: object
  endpoint:
    description: |-
      endpoint is https://host[:port], http://host[:port], or host[:port], which means https. Default: the AWS endpoint of
      the region.
    maxLength: 512
    pattern: ^\P{C}*$
    type: string
  objectLock:
    description: objectLock protects each object from deletion for a period of time.
      Object lock must be enabled on the bucket.
    properties:
      duration:
        description: duration is the minimum time for which an object is kept.
        maxLength: 64
        type: string
        x-kubernetes-validations:
        - message: duration must be at least 1m
          rule: duration(self) >= duration('1m')
      mode:
        description: |-
          mode is Governance, which lets users with a special permission delete objects, or Compliance, which lets no user
          delete them.
        enum:
        - Governance
        - Compliance
        type: string
    required:
    - duration
    - mode
    type: object
  prefix:
    description: prefix of all object keys, without leading or trailing slashes.
    maxLength: 512
    pattern: ^\P{C}*$
    type: string
  region:
    description: 'region of the bucket. Default: us-east-1, which most compatible
      stores accept.'
    maxLength: 63
    pattern: ^\P{C}*$
    type: string
  serverSideEncryption:
    description: serverSideEncryption that is requested from the store, in addition
      to the operator's own encryption.
    properties:
      kmsKeyID:
        description: 'kmsKeyID is the key for type KMS. Default: the default key of
          the store.'
        maxLength: 2048
        pattern: ^\P{C}*$
        type: string
      type:
        description: type is AES256 (keys of the store) or KMS.
        enum:
        - AES256
        - KMS
        type: string
    required:
    - type
    type: object
    x-kubernetes-validations:
    - message: kmsKeyID requires the type KMS
      rule: '!has(self.kmsKeyID) || self.type == ''KMS'''
required:
- bucket
type: object
{{- end }}
{{- define "talos-operator.schema.talosetcdbackups.spec.verification" -}}
description: 'verification of the stored data, right after the backup. Default: Checksum.'
properties:
  identitiesFrom:{{ include "talos-operator.schema.talosetcdbackups.spec.verification.identitiesFrom" . | nindent 4 }}
  level:
    default: Checksum
    description: 'level of the verification. Default: Checksum.'
    enum:
    - None
    - Checksum
    - Database
    - Drill
    type: string
  plain:
    default: false
    description: plain states that the backups are not encrypted, so that no identity
      is needed.
    type: boolean
type: object
x-kubernetes-validations:
- message: 'Database and Drill read the snapshot: set identitiesFrom, or plain for
    backups that are not encrypted'
  rule: '!(self.level in [''Database'', ''Drill'']) || has(self.identitiesFrom) ||
    self.plain'
{{- end }}
{{- define "talos-operator.schema.talosetcdbackups.spec.verification.identitiesFrom" -}}
description: identitiesFrom reference the age identities (private keys) that decrypt
  the backups.
items:
  description: SecretKeyReference names a key of a Secret in the same namespace.
  properties:
    key:
      description: key in the Secret.
      maxLength: 253
      minLength: 1
      pattern: ^[-._a-zA-Z0-9]+$
      type: string
    name:
      description: name of the Secret.
      maxLength: 253
      minLength: 1
      pattern: ^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$
      type: string
  required:
  - key
  - name
  type: object
maxItems: 16
minItems: 1
type: array
x-kubernetes-list-type: atomic
{{- end }}
{{- define "talos-operator.schema.talosmachines.spec.drain" -}}
description: 'drain determines how pods are evicted from this node before it is disrupted.
  Default: that of the group.'
properties:
  gracePeriodSeconds:
    description: 'gracePeriodSeconds overrides the termination grace period of the
      pods. Default: the grace period of each pod.'
    format: int32
    minimum: 0
    type: integer
  onTimeout:
    description: |-
      onTimeout is Hold (default), which waits for user action, Force, which deletes the remaining pods regardless of
      their PodDisruptionBudgets, or Skip, which continues and leaves the remaining pods running.
    enum:
    - Hold
    - Force
    - Skip
    type: string
  timeout:
    description: 'timeout of the drain, after which onTimeout applies. Default: 5m.'
    maxLength: 64
    type: string
    x-kubernetes-validations:
    - message: timeout must not be negative
      rule: duration(self) >= duration('0s')
type: object
{{- end }}
{{- define "talos-operator.schema.talosmachines.spec.network" -}}
description: network configuration of this machine.
properties:
  blackholeRoutes:
    description: blackholeRoutes drop packets to networks. Talos 1.13 and later.
    items:
      description: BlackholeRoute drops packets to a network for which there is no
        better route.
      properties:
        metric:
          description: 'metric of the route. Default: 1024.'
          format: int32
          minimum: 1
          type: integer
        network:
          description: network is the destination, in CIDR notation.
          maxLength: 64
          minLength: 1
          pattern: ^\P{C}*$
          type: string
      required:
      - network
      type: object
    maxItems: 64
    type: array
    x-kubernetes-list-map-keys:
    - network
    x-kubernetes-list-type: map
  disableDefaultSearchDomain:
    description: |-
      disableDefaultSearchDomain keeps the domain of the host name out of the search domains, to which Talos adds it
      otherwise. Default: false.
    type: boolean
  hostname:
    description: 'hostname of the machine. Default: the name of the TalosMachine.'
    maxLength: 63
    pattern: ^[a-z0-9]([-a-z0-9]*[a-z0-9])?$
    type: string
  hosts:{{ include "talos-operator.schema.taloscontrolplanes.spec.machineNetwork.hosts" . | nindent 4 }}
  interfaces:
    description: |-
      interfaces of the machine, with their addresses. As soon as one is listed for a cluster that was created with Talos
      1.12 or later, Talos requests addresses by DHCP only on the interfaces that say so.
    items:
      description: |-
        NetworkInterface is one interface: an existing one, selected by its name, its hardware address or its properties, or
        one that Talos creates: a bond, a bridge, a dummy or a WireGuard tunnel.
      properties:
        addressRoutePriority:
          description: |-
            addressRoutePriority is the metric of the routes that the kernel adds for the addresses: of several interfaces in one
            network, that with the lowest is taken. Talos 1.12 and later. Default: the value that the kernel sets.
          format: int32
          minimum: 1
          type: integer
        addresses:
          description: addresses of the interface, in CIDR notation.
          items:
            maxLength: 64
            pattern: ^\P{C}*$
            type: string
          maxItems: 16
          type: array
          x-kubernetes-list-type: atomic
        bond:
          description: bond makes the interface a bond of others.
          properties:
            adActorSysPrio:
              description: adActorSysPrio is the priority of this system in the mode
                802.3ad.
              format: int32
              maximum: 65535
              minimum: 1
              type: integer
            adLACPActive:
              description: 'adLACPActive sends LACP packets without being asked in
                the mode 802.3ad: on or off. Talos 1.12 and later.'
              enum:
              - "on"
              - "off"
              type: string
            adSelect:
              description: adSelect determines which aggregate is used in the mode
                802.3ad.
              enum:
              - stable
              - bandwidth
              - count
              type: string
            adUserPortKey:
              description: adUserPortKey is the upper part of the key of the ports
                in the mode 802.3ad.
              format: int32
              maximum: 1023
              minimum: 0
              type: integer
            allSlavesActive:
              description: 'allSlavesActive delivers duplicate packets that arrive
                at inactive members: 0 or 1.'
              format: int32
              maximum: 1
              minimum: 0
              type: integer
            arpAllTargets:
              description: arpAllTargets determines whether any or all targets have
                to respond.
              enum:
              - any
              - all
              type: string
            arpIPTargets:
              description: arpIPTargets are the IPv4 addresses that are asked then.
                Talos 1.12 and later.
              items:
                maxLength: 15
                pattern: ^\P{C}*$
                type: string
              maxItems: 16
              type: array
              x-kubernetes-list-type: atomic
            arpInterval:
              description: arpInterval is how often members are checked by ARP, in
                milliseconds. Not together with miimon.
              format: int32
              minimum: 0
              type: integer
            arpValidate:
              description: arpValidate determines which ARP packets count.
              enum:
              - none
              - active
              - backup
              - all
              - filter
              - filter-active
              - filter-backup
              type: string
            downDelay:
              description: 'downDelay is how long a link has to be down until it is
                not used, in milliseconds: a multiple of miimon.'
              format: int32
              minimum: 0
              type: integer
            failOverMac:
              description: failOverMac determines the hardware addresses of members
                in the mode active-backup.
              enum:
              - none
              - active
              - follow
              type: string
            interfaces:
              description: interfaces are the names of the members.
              items:
                maxLength: 15
                minLength: 1
                pattern: ^[A-Za-z0-9][-A-Za-z0-9_.]*$
                type: string
              maxItems: 16
              minItems: 1
              type: array
              x-kubernetes-list-type: atomic
            lacpRate:
              description: |-
                lacpRate is how often the partner is asked for its state in the mode 802.3ad: slow (every 30 s) or fast (every
                second).
              enum:
              - slow
              - fast
              type: string
            lpInterval:
              description: lpInterval is how often learning packets are sent to switches,
                in seconds.
              format: int32
              minimum: 1
              type: integer
            miimon:
              description: miimon is how often the links of members are checked, in
                milliseconds. 802.3ad needs it to notice a dead link.
              format: int32
              minimum: 0
              type: integer
            minLinks:
              description: minLinks is how many members have to be up for the bond
                to be up, in the mode 802.3ad.
              format: int32
              minimum: 0
              type: integer
            missedMax:
              description: missedMax is how many checks by ARP have to fail until
                a member counts as down. Talos 1.12 and later.
              format: int32
              maximum: 255
              minimum: 1
              type: integer
            mode:
              description: mode determines which member a packet takes.
              enum:
              - balance-rr
              - active-backup
              - balance-xor
              - broadcast
              - 802.3ad
              - balance-tlb
              - balance-alb
              type: string
            nsIP6Targets:
              description: nsIP6Targets are the IPv6 addresses that are asked then.
                Talos 1.12 and later.
              items:
                maxLength: 45
                pattern: ^\P{C}*$
                type: string
              maxItems: 16
              type: array
              x-kubernetes-list-type: atomic
            numPeerNotif:
              description: numPeerNotif is how many notifications peers get after
                a failover.
              format: int32
              maximum: 255
              minimum: 0
              type: integer
            packetsPerSlave:
              description: packetsPerSlave is how many packets a member takes before
                the next one does, in the mode balance-rr.
              format: int32
              maximum: 65535
              minimum: 0
              type: integer
            peerNotifDelay:
              description: peerNotifDelay is the time between these notifications,
                in milliseconds.
              format: int32
              minimum: 0
              type: integer
            primary:
              description: |-
                primary is the member that is preferred in the modes active-backup, balance-tlb and balance-alb. Before Talos 1.12
                only.
              maxLength: 15
              minLength: 1
              pattern: ^[A-Za-z0-9][-A-Za-z0-9_.]*$
              type: string
            primaryReselect:
              description: primaryReselect determines when the preferred member is
                used again.
              enum:
              - always
              - better
              - failure
              type: string
            resendIGMP:
              description: resendIGMP is how often IGMP reports are sent again after
                a failover.
              format: int32
              maximum: 255
              minimum: 0
              type: integer
            selectors:
              description: selectors select the members by their properties, one interface
                each.
              items:
                description: |-
                  LinkSelector selects an interface by properties that all have to match. Values may have the wildcard *, apart from
                  physical.
                minProperties: 1
                properties:
                  busPath:
                    description: busPath of the device, for example 0000:00:03.0 or
                      00:03.*.
                    maxLength: 128
                    minLength: 1
                    pattern: ^[-A-Za-z0-9_.:/*]+$
                    type: string
                  driver:
                    description: driver of the kernel, for example virtio_net.
                    maxLength: 64
                    minLength: 1
                    pattern: ^[-A-Za-z0-9_.:*]+$
                    type: string
                  hardwareAddress:
                    description: |-
                      hardwareAddress is the current hardware address. VLANs and bonds inherit that of their parent: prefer
                      permanentAddress.
                    maxLength: 17
                    minLength: 1
                    pattern: ^[0-9A-Fa-f:*]+$
                    type: string
                  pciID:
                    description: pciID is vendor and product of a PCI device as the
                      machine reports them, for example 8086:1533 or 1AF4:*.
                    maxLength: 9
                    minLength: 1
                    pattern: ^[0-9A-Fa-f:*]+$
                    type: string
                  permanentAddress:
                    description: permanentAddress is the hardware address that the
                      device was made with.
                    maxLength: 17
                    minLength: 1
                    pattern: ^[0-9A-Fa-f:*]+$
                    type: string
                  physical:
                    description: physical selects physical interfaces only, or virtual
                      ones only.
                    type: boolean
                type: object
              maxItems: 16
              minItems: 1
              type: array
              x-kubernetes-list-type: atomic
            tlbDynamicLB:
              description: 'tlbDynamicLB moves flows between members by their load
                in the mode balance-tlb: 0 or 1.'
              format: int32
              maximum: 1
              minimum: 0
              type: integer
            upDelay:
              description: 'upDelay is how long a link has to be up until it is used,
                in milliseconds: a multiple of miimon.'
              format: int32
              minimum: 0
              type: integer
            useCarrier:
              description: useCarrier determines whether drivers report the state
                of links themselves.
              type: boolean
            xmitHashPolicy:
              description: |-
                xmitHashPolicy determines what the member of a packet is computed from, in the modes balance-xor, 802.3ad and
                balance-tlb.
              enum:
              - layer2
              - layer3+4
              - layer2+3
              - encap2+3
              - encap3+4
              type: string
          required:
          - mode
          type: object
          x-kubernetes-validations:
          - message: set exactly one of interfaces and selectors
            rule: has(self.interfaces) != has(self.selectors)
        bridge:
          description: bridge makes the interface a bridge between others.
          properties:
            interfaces:
              description: interfaces are the names of those that are connected.
              items:
                maxLength: 15
                minLength: 1
                pattern: ^[A-Za-z0-9][-A-Za-z0-9_.]*$
                type: string
              maxItems: 32
              type: array
              x-kubernetes-list-type: atomic
            stp:
              description: 'stp turns the spanning tree protocol on or off. Default:
                that of the kernel, off.'
              type: boolean
            vlanFiltering:
              description: 'vlanFiltering turns the filter of VLAN tags on or off.
                Default: that of the kernel, off.'
              type: boolean
          type: object
        dhcp:
          description: 'dhcp requests an address by DHCP. Default: false.'
          type: boolean
        dhcpOptions:{{ include "talos-operator.schema.talosmachines.spec.network.interfaces[].dhcpOptions" . | nindent 10 }}
        dummy:
          description: 'dummy makes the interface one without hardware. Default: false.'
          type: boolean
        hardwareAddress:
          description: |-
            hardwareAddress of a bond, a bridge or a dummy, whose names alone select them. Talos 1.12 and later. Default: that of
            a member, or a random one.
          maxLength: 17
          pattern: ^([0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}$
          type: string
        ignore:
          description: 'ignore leaves the interface alone: Talos neither brings it
            up nor requests addresses on it. Default: false.'
          type: boolean
        macAddress:
          description: macAddress is the permanent hardware address of the interface.
          maxLength: 17
          pattern: ^([0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}$
          type: string
        mtu:
          description: 'mtu of the interface, in bytes. Default: the value that the
            kernel sets.'
          format: int32
          maximum: 65535
          minimum: 68
          type: integer
        name:
          description: name of the interface, for example enp1s0, bond0, lo.
          maxLength: 15
          minLength: 1
          pattern: ^[A-Za-z0-9][-A-Za-z0-9_.]*$
          type: string
        routes:
          description: routes over this interface.
          items:{{ include "talos-operator.schema.talosmachines.spec.network.interfaces[].routes[]" . | nindent 12 }}
          maxItems: 64
          type: array
          x-kubernetes-list-type: atomic
        selector:
          description: selector selects the interface by its properties. It has to
            match one interface.
          minProperties: 1
          properties:
            busPath:
              description: busPath of the device, for example 0000:00:03.0 or 00:03.*.
              maxLength: 128
              minLength: 1
              pattern: ^[-A-Za-z0-9_.:/*]+$
              type: string
            driver:
              description: driver of the kernel, for example virtio_net.
              maxLength: 64
              minLength: 1
              pattern: ^[-A-Za-z0-9_.:*]+$
              type: string
            hardwareAddress:
              description: |-
                hardwareAddress is the current hardware address. VLANs and bonds inherit that of their parent: prefer
                permanentAddress.
              maxLength: 17
              minLength: 1
              pattern: ^[0-9A-Fa-f:*]+$
              type: string
            pciID:
              description: pciID is vendor and product of a PCI device as the machine
                reports them, for example 8086:1533 or 1AF4:*.
              maxLength: 9
              minLength: 1
              pattern: ^[0-9A-Fa-f:*]+$
              type: string
            permanentAddress:
              description: permanentAddress is the hardware address that the device
                was made with.
              maxLength: 17
              minLength: 1
              pattern: ^[0-9A-Fa-f:*]+$
              type: string
            physical:
              description: physical selects physical interfaces only, or virtual ones
                only.
              type: boolean
          type: object
        vip:
          description: vip is an IP address that moves between the control-plane machines
            that have it on this interface.
          properties:
            address:
              description: address is the shared IP address. It is no address of a
                machine.
              maxLength: 45
              minLength: 1
              pattern: ^\P{C}*$
              type: string
            equinixMetal:{{ include "talos-operator.schema.talosmachines.spec.network.interfaces[].vip.equinixMetal" . | nindent 14 }}
            hcloud:{{ include "talos-operator.schema.talosmachines.spec.network.interfaces[].vip.hcloud" . | nindent 14 }}
          required:
          - address
          type: object
        vlans:
          description: vlans on this interface.
          items:
            description: VLAN is a virtual network on an interface.
            properties:
              addressRoutePriority:
                description: |-
                  addressRoutePriority is the metric of the routes that the kernel adds for the addresses: of several interfaces in one
                  network, that with the lowest is taken. Talos 1.12 and later. Default: the value that the kernel sets.
                format: int32
                minimum: 1
                type: integer
              addresses:
                description: addresses on the VLAN, in CIDR notation.
                items:
                  maxLength: 64
                  pattern: ^\P{C}*$
                  type: string
                maxItems: 16
                type: array
                x-kubernetes-list-type: atomic
              dhcp:
                description: 'dhcp requests an address by DHCP. Default: false.'
                type: boolean
              dhcpOptions:{{ include "talos-operator.schema.talosmachines.spec.network.interfaces[].dhcpOptions" . | nindent 16 }}
              id:
                description: id of the VLAN, its tag.
                format: int32
                maximum: 4094
                minimum: 1
                type: integer
              mtu:
                description: 'mtu of the VLAN, in bytes, at most that of its interface.
                  Default: that of its interface.'
                format: int32
                maximum: 65535
                minimum: 68
                type: integer
              protocol:
                description: 'protocol of the tag: 802.1q (default) or 802.1ad. The
                  latter needs Talos 1.12 or later.'
                enum:
                - 802.1q
                - 802.1ad
                type: string
              routes:
                description: routes over the VLAN.
                items:{{ include "talos-operator.schema.talosmachines.spec.network.interfaces[].routes[]" . | nindent 18 }}
                maxItems: 64
                type: array
                x-kubernetes-list-type: atomic
              vip:
                description: vip is an IP address that moves between the control-plane
                  machines that have it on this VLAN.
                properties:
                  address:
                    description: address is the shared IP address. It is no address
                      of a machine.
                    maxLength: 45
                    minLength: 1
                    pattern: ^\P{C}*$
                    type: string
                  equinixMetal:{{ include "talos-operator.schema.talosmachines.spec.network.interfaces[].vip.equinixMetal" . | nindent 20 }}
                  hcloud:{{ include "talos-operator.schema.talosmachines.spec.network.interfaces[].vip.hcloud" . | nindent 20 }}
                required:
                - address
                type: object
            required:
            - id
            type: object
          maxItems: 32
          type: array
          x-kubernetes-list-map-keys:
          - id
          x-kubernetes-list-type: map
        wireguard:
          description: wireguard makes the interface a WireGuard tunnel.
          properties:
            firewallMark:
              description: 'firewallMark is the mark of the packets that the tunnel
                sends. Default: none.'
              format: int64
              maximum: 4294967295
              minimum: 1
              type: integer
            listenPort:
              description: 'listenPort is the UDP port on which peers reach the machine.
                Default: a random one.'
              format: int32
              maximum: 65535
              minimum: 1
              type: integer
            peers:
              description: peers are the other ends of the tunnel.
              items:
                description: WireGuardPeer is another end of a tunnel.
                properties:
                  allowedIPs:
                    description: |-
                      allowedIPs are the networks behind the peer, in CIDR notation: packets to them go to the peer, and the peer may send
                      from them. They add no routes: list those in routes of the interface.
                    items:
                      maxLength: 64
                      pattern: ^\P{C}*$
                      type: string
                    maxItems: 64
                    type: array
                    x-kubernetes-list-type: atomic
                  endpoint:
                    description: |-
                      endpoint is the IP address and the UDP port of the peer, for example 192.0.2.1:51820 or [2001:db8::1]:51820.
                      Default: the one from which the peer connects.
                    maxLength: 64
                    pattern: ^\P{C}*$
                    type: string
                  persistentKeepaliveInterval:
                    description: |-
                      persistentKeepaliveInterval is how often an empty packet keeps the way through NAT and firewalls open, in whole
                      seconds, for example 25s. Default: never.
                    maxLength: 16
                    pattern: ^([0-9]{1,5}[smh])+$
                    type: string
                  presharedKeyFrom:
                    description: |-
                      presharedKeyFrom names a symmetric key that both ends have, as wg genpsk prints it. Talos 1.12 and later. Default:
                      none.
                    properties:
                      key:
                        description: key in the Secret.
                        maxLength: 253
                        minLength: 1
                        pattern: ^[-._a-zA-Z0-9]+$
                        type: string
                      name:
                        description: name of the Secret.
                        maxLength: 253
                        minLength: 1
                        pattern: ^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$
                        type: string
                    required:
                    - key
                    - name
                    type: object
                  publicKey:
                    description: publicKey of the peer, as wg pubkey prints it.
                    maxLength: 44
                    minLength: 44
                    pattern: ^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$
                    type: string
                required:
                - publicKey
                type: object
              maxItems: 64
              type: array
              x-kubernetes-list-map-keys:
              - publicKey
              x-kubernetes-list-type: map
            privateKeyFrom:
              description: privateKeyFrom names the private key of this machine, as
                wg genkey prints it. Each machine needs one of its own.
              properties:
                key:
                  description: key in the Secret.
                  maxLength: 253
                  minLength: 1
                  pattern: ^[-._a-zA-Z0-9]+$
                  type: string
                name:
                  description: name of the Secret.
                  maxLength: 253
                  minLength: 1
                  pattern: ^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$
                  type: string
              required:
              - key
              - name
              type: object
          required:
          - privateKeyFrom
          type: object
      type: object
      x-kubernetes-validations:
      - message: set exactly one of name, macAddress and selector
        rule: '[has(self.name), has(self.macAddress), has(self.selector)].filter(x,
          x).size() == 1'
      - message: set at most one of bond, bridge, dummy and wireguard
        rule: '[has(self.bond), has(self.bridge), has(self.wireguard), has(self.dummy)
          && self.dummy].filter(x, x).size() <= 1'
      - message: an ignored interface must not have any other configuration
        rule: '!has(self.ignore) || !self.ignore || !(has(self.dhcp) && self.dhcp
          || has(self.addresses) || has(self.routes) || has(self.vlans) || has(self.vip)
          || has(self.bond) || has(self.bridge) || has(self.wireguard))'
      - message: name is required for a bond, a bridge, a dummy and a WireGuard tunnel
        rule: has(self.name) || !(has(self.bond) || has(self.bridge) || has(self.wireguard)
          || has(self.dummy) && self.dummy)
    maxItems: 32
    type: array
    x-kubernetes-list-type: atomic
  kubeSpanEndpoints:
    description: |-
      kubeSpanEndpoints are further endpoints of this machine that KubeSpan publishes, with their UDP ports, for example
      those of a NAT in front of it: 192.0.2.1:51820.
    items:
      maxLength: 64
      pattern: ^\P{C}*$
      type: string
    maxItems: 16
    type: array
    x-kubernetes-list-type: atomic
  nameservers:
    description: nameservers are the IP addresses of DNS servers.
    items:
      maxLength: 64
      pattern: ^\P{C}*$
      type: string
    maxItems: 8
    type: array
    x-kubernetes-list-type: atomic
  routingRules:
    description: routingRules choose the routing table for packets. Talos 1.13 and
      later.
    items:
      description: RoutingRule chooses the routing table for packets.
      properties:
        action:
          description: |-
            action is what happens to the packets: unicast (default) looks a route up in the table, blackhole drops them,
            unreachable and prohibit drop them and tell the sender.
          enum:
          - unicast
          - blackhole
          - unreachable
          - prohibit
          type: string
        destination:
          description: 'destination is the network that packets go to, in CIDR notation.
            Default: any.'
          maxLength: 64
          pattern: ^\P{C}*$
          type: string
        firewallMark:
          description: 'firewallMark of the packets. Default: any.'
          format: int64
          maximum: 4294967295
          minimum: 1
          type: integer
        firewallMask:
          description: 'firewallMask are the bits of the mark that count. Default:
            all.'
          format: int64
          maximum: 4294967295
          minimum: 1
          type: integer
        inputInterface:
          description: 'inputInterface is the name of the interface on which packets
            arrive. Default: any.'
          maxLength: 15
          pattern: ^[A-Za-z0-9][-A-Za-z0-9_.]*$
          type: string
        outputInterface:
          description: 'outputInterface is the name of the interface that a program
            of the machine sends packets over. Default: any.'
          maxLength: 15
          pattern: ^[A-Za-z0-9][-A-Za-z0-9_.]*$
          type: string
        priority:
          description: 'priority of the rule: rules with lower numbers are asked first.
            32500 and 32501 belong to KubeSpan.'
          format: int32
          maximum: 32765
          minimum: 1
          type: integer
        source:
          description: 'source is the network that packets come from, in CIDR notation.
            Default: any.'
          maxLength: 64
          pattern: ^\P{C}*$
          type: string
        table:
          description: |-
            table in which the route is looked up, by its number: 254 is the main one. Only with the action unicast, which
            needs it.
          format: int32
          maximum: 255
          minimum: 1
          type: integer
      required:
      - priority
      type: object
    maxItems: 64
    type: array
    x-kubernetes-list-map-keys:
    - priority
    x-kubernetes-list-type: map
  searchDomains:
    description: searchDomains are the domains in which short names are looked up.
    items:
      maxLength: 253
      minLength: 1
      pattern: ^[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?$
      type: string
    maxItems: 8
    type: array
    x-kubernetes-list-type: atomic
  timeServers:
    description: 'timeServers are NTP servers: IP addresses or host names. Default:
      those of the cluster''s Talos version.'
    items:
      maxLength: 253
      minLength: 1
      pattern: ^[A-Za-z0-9:]([-A-Za-z0-9.:]*[A-Za-z0-9:])?$
      type: string
    maxItems: 8
    type: array
    x-kubernetes-list-type: atomic
type: object
{{- end }}
{{- define "talos-operator.schema.talosmachines.spec.network.interfaces[].dhcpOptions" -}}
description: dhcpOptions determine how an address is requested. They have no effect
  without dhcp.
properties:
  clientIdentifier:
    description: |-
      clientIdentifier is what the machine identifies itself with: none, mac (default) or duid. Before Talos 1.12 only
      mac, and duid for IPv6.
    enum:
    - none
    - mac
    - duid
    type: string
  duid:
    description: duid is the unique identifier of the machine, as hexadecimal bytes
      with colons in between.
    maxLength: 389
    minLength: 2
    pattern: ^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2})*$
    type: string
  ignoreHostname:
    description: 'ignoreHostname ignores the host name that the DHCP server sends.
      Talos 1.12 and later. Default: false.'
    type: boolean
  ipv4:
    description: 'ipv4 requests an IPv4 address. Default: true.'
    type: boolean
  ipv6:
    description: 'ipv6 requests an IPv6 address. Default: false.'
    type: boolean
  routeMetric:
    description: 'routeMetric of the routes that the DHCP server sends. Default: 1024.'
    format: int32
    minimum: 1
    type: integer
type: object
{{- end }}
{{- define "talos-operator.schema.talosmachines.spec.network.interfaces[].routes[]" -}}
description: |-
  Route is one static route: network, gateway, or both are set. The operator checks that: an expression in each of so
  many places would cost more than the API server allows.
properties:
  gateway:
    description: gateway is the IP address of the gateway. Without it, the network
      is reached on the link itself.
    maxLength: 64
    minLength: 1
    pattern: ^\P{C}*$
    type: string
  metric:
    description: 'metric of the route: of several routes to one network, that with
      the lowest is taken. Default: 1024.'
    format: int32
    minimum: 1
    type: integer
  mtu:
    description: 'mtu of packets over this route, in bytes. Default: that of the interface.'
    format: int32
    maximum: 65535
    minimum: 68
    type: integer
  network:
    description: 'network is the destination in CIDR notation. Default: the default
      route of the gateway''s family.'
    maxLength: 64
    pattern: ^\P{C}*$
    type: string
  source:
    description: source is the IP address that packets over this route get, unless
      a program chooses another one.
    maxLength: 64
    minLength: 1
    pattern: ^\P{C}*$
    type: string
  table:
    description: 'table that has the route, by its number, for routingRules. Talos
      1.12 and later. Default: the main one.'
    format: int32
    maximum: 255
    minimum: 1
    type: integer
type: object
{{- end }}
{{- define "talos-operator.schema.talosmachines.spec.network.interfaces[].vip.equinixMetal" -}}
description: equinixMetal assigns the address by the API of Equinix Metal. Only for
  clusters that were created before Talos 1.12.
properties:
  apiTokenFrom:{{ include "talos-operator.schema.talosmachines.spec.network.interfaces[].vip.equinixMetal.apiTokenFrom" . | nindent 4 }}
required:
- apiTokenFrom
type: object
{{- end }}
{{- define "talos-operator.schema.talosmachines.spec.network.interfaces[].vip.equinixMetal.apiTokenFrom" -}}
description: apiTokenFrom names the token for the API, with the permission to change
  the address.
properties:
  key:
    description: key in the Secret.
    maxLength: 253
    minLength: 1
    pattern: ^[-._a-zA-Z0-9]+$
    type: string
  name:
    description: name of the Secret.
    maxLength: 253
    minLength: 1
    pattern: ^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$
    type: string
required:
- key
- name
type: object
{{- end }}
{{- define "talos-operator.schema.talosmachines.spec.network.interfaces[].vip.hcloud" -}}
description: 'hcloud assigns the address by the API of Hetzner Cloud. Default: by
  gratuitous ARP.'
properties:
  apiTokenFrom:{{ include "talos-operator.schema.talosmachines.spec.network.interfaces[].vip.equinixMetal.apiTokenFrom" . | nindent 4 }}
required:
- apiTokenFrom
type: object
{{- end }}
{{- define "talos-operator.schema.talosmachines.status.drift[]" -}}
description: FieldChange is the change of one field of a machine configuration. Values
  that may be secret are omitted.
properties:
  field:
    description: field is the changed field, as document and path.
    maxLength: 512
    type: string
  new:
    description: new value; empty if the field is removed.
    maxLength: 256
    type: string
  old:
    description: old value; empty if the field was not set.
    maxLength: 256
    type: string
required:
- field
type: object
{{- end }}
