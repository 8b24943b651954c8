package session

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// Confirm asks the user whether to go on, after what would be done was shown. Any answer but yes is an error.
func Confirm(streams genericiooptions.IOStreams) error {
	fmt.Fprint(streams.ErrOut, "\nGo on? [y/N] ")

	answer, err := bufio.NewReader(streams.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the answer: %w", err)
	}

	if slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer))) {
		return nil
	}

	if answer == "" {
		fmt.Fprintln(streams.ErrOut)
	}

	return errors.New("nothing was changed: it was not confirmed; answer y, or run the command with --yes")
}
