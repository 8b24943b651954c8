package change

import "github.com/talos-operator/talos-operator/api/v1alpha1"

// reverts reports whether the change returns to what ran before.
func (in Input) reverts() bool { return in.Record.Change.Cause == v1alpha1.CauseRevert }

// rollBack boots what the node ran before its last upgrade. Pods may never leave a node that is not healthy, and a
// maintenance window may be far away, so neither is waited for; the safety kernel is asked all the same.
func (in Input) rollBack() Step {
	if in.mustDrain() && !in.Pass.Drained {
		in.phase(v1alpha1.ChangeDraining, in.Record.Change.Message)

		return in.holdOr(Drain)
	}

	if step, holds := in.gate(); holds {
		return step
	}

	return in.bootInto(Rollback)
}

// rollBackAgain repeats the request to a node that has rebooted and runs the same as before: the operator may have
// crashed before it sent the request, and the reboot had another reason. In one boot it is sent once only: a second
// request would take back the first one.
func (in Input) rollBackAgain() Step {
	if in.Stage != StageRunning {
		return in.hold("it is " + in.Stage)
	}

	if step, holds := in.gate(); holds {
		return step
	}

	in.intend(v1alpha1.StepReboot, in.BootID, 1)

	step := in.do(Rollback)
	step.Again = Poll

	return step
}
