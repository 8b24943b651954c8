package chaos

import (
	"fmt"
	"slices"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// isBlank tells whether a machine waits for a config.
func (h *history) isBlank(name string) bool { return h.node(name).Status().Stage == "maintenance" }

// blanks are the machines that wait for a config and are not listed.
func (h *history) blanks() []string {
	return slices.DeleteFunc(slices.Clone(h.machines), func(name string) bool {
		return !h.isBlank(name) || slices.Contains(slices.Concat(h.want.names(), h.want.Spares), name)
	})
}

// scaleMembers grows a control plane of three to five, or shrinks it again.
func (h *history) scaleMembers(step Step) (string, func()) {
	const small = 3

	if n := len(h.want.Members); n > small {
		h.want.Members = slices.Delete(h.want.Members, int(step.A)%(n-1), int(step.A)%(n-1)+2)
	} else {
		blank := h.blanks()
		if len(blank) < 2 {
			return "", nil
		}

		h.want.Members = append(h.want.Members, blank[:2]...)
	}

	h.apply()

	return "to " + shorts(h.want.Members), nil
}

func (h *history) scaleWorkers(step Step) (string, func()) {
	blank := h.blanks()

	if n := len(h.want.Workers); n > 1 && step.A%2 == 0 || n >= maxWorkers {
		i := int(step.B) % n
		h.want.Workers = slices.Delete(h.want.Workers, i, i+1)
	} else if len(blank) > 0 {
		h.want.Workers = append(h.want.Workers, blank[len(blank)-1])
	} else {
		return "", nil
	}

	h.apply()

	return "to " + shorts(h.want.Workers), nil
}

// exchangeMember takes one member off the list and puts another machine on it.
func (h *history) exchangeMember(step Step) (string, func()) {
	blank := h.blanks()
	if len(blank) == 0 {
		return "", nil
	}

	i := int(step.A) % len(h.want.Members)
	old := h.want.Members[i]
	h.want.Members[i] = blank[int(step.B)%len(blank)]
	h.apply()

	return short(old) + " by " + short(h.want.Members[i]), nil
}

// replace asks for a spare in the place of a member.
func (h *history) replace(step Step) (string, func()) {
	if blank := h.blanks(); len(h.want.Spares) == 0 && len(blank) > 0 {
		h.want.Spares = blank[:1]
		h.apply()
	}

	name := pick(h.want.Members, step.A)
	h.surrender(name)

	if len(h.want.Spares) == 0 || !h.annotate(&v1alpha1.TalosMachine{}, short(name), v1alpha1.ReplaceAnnotation,
		short(h.want.Spares[0])) {
		return "", nil
	}

	return short(name) + " by " + shorts(h.want.Spares), nil
}

func (h *history) toggleRemediation(Step) (string, func()) {
	h.remedy = !h.remedy

	if blank := h.blanks(); h.remedy && len(h.want.Spares) == 0 && len(blank) > 0 {
		h.want.Spares = blank[:1]
	}

	h.apply()

	return fmt.Sprintf("%t", h.remedy), nil
}

// changeConfig changes something that every machine has to reboot for.
func (h *history) changeConfig(Step) (string, func()) {
	h.patches++
	h.apply()

	return fmt.Sprintf("number %d", h.patches), nil
}

// changeLabel changes something that no machine has to reboot for.
func (h *history) changeLabel(Step) (string, func()) {
	h.label++
	h.apply()

	return fmt.Sprintf("number %d", h.label), nil
}

func (h *history) toggleApproval(Step) (string, func()) {
	h.approval = v1alpha1.ApprovalManual
	h.apply()

	return "approval Manual", func() {
		h.approve()

		h.approval = v1alpha1.ApprovalAutomatic
		h.apply()
	}
}

// approve approves the plan of the moment.
func (h *history) approve() {
	if cp := h.controlPlane(); cp != nil && cp.Status.Plan != nil {
		h.annotate(cp, clusterName, v1alpha1.ApprovedAnnotation, cp.Status.Plan.ID)
	}

	if w := h.workers(); w != nil && w.Status.Plan != nil {
		h.annotate(w, workersName, v1alpha1.ApprovedAnnotation, w.Status.Plan.ID)
	}
}

func (h *history) pauseObjects(Step) (string, func()) {
	if !h.annotate(&v1alpha1.TalosControlPlane{}, clusterName, v1alpha1.PausedAnnotation, "true") {
		return "", nil
	}

	return "the control plane", func() {
		h.annotate(&v1alpha1.TalosControlPlane{}, clusterName, v1alpha1.PausedAnnotation, "")
	}
}
