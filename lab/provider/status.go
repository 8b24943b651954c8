package provider

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/lab"
	"github.com/talos-operator/talos-operator/lab/node"
)

// Reasons of the condition Ready.
const (
	// ReasonPoweredOn: the machine is on and its addresses are final.
	ReasonPoweredOn = "PoweredOn"
	// ReasonPoweredOff: the machine was switched off.
	ReasonPoweredOff = "PoweredOff"
	// ReasonBootFailed: the machine could not be booted; the message says why.
	ReasonBootFailed = "BootFailed"
)

const mib = 1 << 20

// maxMessage keeps messages short; errors of the file system can be long.
const maxMessage = 300

var errHardware = errors.New("this hardware cannot be emulated")

// options grants the wishes of a Machine.
func options(m *vitistackv1alpha1.Machine) ([]lab.NodeOption, error) {
	hw := m.Spec.Hardware
	if hw == nil {
		return nil, nil
	}

	if hw.Architecture != "" && hw.Architecture != "amd64" {
		return nil, fmt.Errorf("%w: spec.hardware.architecture %s, the lab has only amd64", errHardware, hw.Architecture)
	}

	memory := 0
	if hw.Memory != nil {
		memory = int(hw.Memory.Value() / mib)
	}

	opts := []lab.NodeOption{lab.WithSize(int(hw.CPUs), memory)}

	var disks []node.Disk

	for i, d := range hw.Disks {
		if d.Size.Value() <= 0 {
			return nil, fmt.Errorf("%w: spec.hardware.disks[%d].size must be greater than zero", errHardware, i)
		}

		disks = append(disks, node.Disk{
			Name: diskName(i), Size: uint64(d.Size.Value()), Model: "LAB DISK", Transport: "sata",
		})
	}

	if len(disks) > 0 {
		opts = append(opts, lab.WithDisks(disks...))
	}

	return opts, nil
}

// diskName is how Linux calls the disk of an index: sda to sdz, then sdaa.
func diskName(i int) string {
	const letters = 26
	if i < letters {
		return "sd" + string(rune('a'+i))
	}

	return "sd" + string(rune('a'+i/letters-1)) + string(rune('a'+i%letters))
}

// provided describes a machine that is there.
func provided(m *vitistackv1alpha1.Machine, n *node.Node) {
	m.Status.Phase = vitistackv1alpha1.MachineRunning
	m.Status.Addresses = []vitistackv1alpha1.MachineAddress{
		{Type: vitistackv1alpha1.AddressInternalIP, Address: n.Address()},
		{Type: vitistackv1alpha1.AddressHostname, Address: m.Name},
	}
	m.Status.ProviderID = "lab://" + machineName(m)
	m.Status.ObservedGeneration = m.Generation

	if n.Powered() {
		setReady(m, metav1.ConditionTrue, ReasonPoweredOn, "the machine is powered on")
	} else {
		setReady(m, metav1.ConditionFalse, ReasonPoweredOff, "the machine is powered off")
	}
}

// failed describes a machine that could not be booted.
func failed(m *vitistackv1alpha1.Machine, err error) {
	m.Status.Phase = vitistackv1alpha1.MachineFailed
	m.Status.ObservedGeneration = m.Generation

	message := err.Error()
	if len(message) > maxMessage {
		message = message[:maxMessage]
	}

	setReady(m, metav1.ConditionFalse, ReasonBootFailed, message)
}

func setReady(m *vitistackv1alpha1.Machine, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{
		Type: vitistackv1alpha1.MachineConditionReady, Status: status, Reason: reason, Message: message,
		ObservedGeneration: m.Generation,
	})
}

func sameStatus(a, b *vitistackv1alpha1.Machine) bool {
	return equality.Semantic.DeepEqual(a.Status, b.Status)
}

func addFinalizer(m *vitistackv1alpha1.Machine) bool {
	return controllerutil.AddFinalizer(m, Finalizer)
}

func removeFinalizer(m *vitistackv1alpha1.Machine) bool {
	return controllerutil.RemoveFinalizer(m, Finalizer)
}
