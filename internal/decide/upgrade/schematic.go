package upgrade

import "github.com/talos-operator/talos-operator/api/v1alpha1"

// Brings returns the version and the schematic of Talos that a change brings: empty and nil where it keeps them. A
// schematic that it takes away is empty.
func Brings(c *v1alpha1.MachineChange) (version string, schematic *string) {
	if c == nil || c.Kind != v1alpha1.ChangeTalos {
		return "", nil
	}

	for _, f := range c.Fields {
		switch f.Field {
		case FieldTalos:
			version = f.New
		case FieldSchematic:
			schematic = &f.New
		}
	}

	return version, schematic
}

// OnlySchematic reports whether a change brings a machine another schematic, or takes it away, and no other version.
// One that is rolled back does not.
func OnlySchematic(c *v1alpha1.MachineChange) bool {
	version, schematic := Brings(c)

	return version == "" && schematic != nil && !TakesBack(c)
}

// BringsSchematics reports whether the step of an upgrade that has begun brings schematics, and no other version.
func BringsSchematics(u *v1alpha1.UpgradeStatus) bool {
	return u != nil && u.SchematicsOnly && u.TalosVersion != ""
}
