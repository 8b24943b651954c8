package verify

import "github.com/spf13/pflag"

// LimitMemory puts the limits on this process that the arguments of a child ask for.
func LimitMemory(args []string) error {
	cmd := NewCommand(nil, nil)
	if err := cmd.ParseFlags(args); err != nil {
		return err
	}

	var c check

	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Name == flagMemory {
			c.memory, _ = cmd.Flags().GetInt64(flagMemory)
		}
	})

	return c.limit()
}
