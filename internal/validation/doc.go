// Package validation holds the rules for what people write, as pure functions. CEL in the CRDs checks the same rules as
// far as it can; controllers check them again, because a CRD may be older than the controller and because some rules
// need more than one object.
package validation
