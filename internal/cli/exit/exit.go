// Package exit contains the exit codes of commands, and the errors that carry one.
package exit

import (
	"errors"

	"github.com/talos-operator/talos-operator/internal/text"
)

// Exit codes.
const (
	// CodeError: the command failed.
	Failed = 1
	// Changes is that of a plan that is not empty.
	Changes = 2
	// Stopped: an upgrade that is watched has stopped, and waits for a user.
	Stopped = 3

	// Those of a comparison are as diff has them.
	Differs = 1
	Trouble = 2
)

// Error ends the process with a particular exit code, for commands whose exit code is a result.
type Error struct {
	// Code of the process.
	Code int
	// Err is printed; nil if nothing more has to be printed.
	Err error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Err == nil {
		return ""
	}

	return e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// CodeOf returns the exit code for an error.
func CodeOf(err error) int {
	var e *Error

	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e.Code
	}

	return Failed
}

// Line returns the text of an error in one line.
func Line(err error) string {
	return text.Line(err.Error())
}
