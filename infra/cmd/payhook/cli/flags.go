package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"payhook.example/shared/settings"
)

// DurationVar adds a flag for a duration such as 90s, 10m, 24h or 7d. A minus sign
// in front is allowed if the flag's command allows it.
func DurationVar(f *pflag.FlagSet, to *time.Duration, name string, value time.Duration, usage string) {
	*to = value
	f.Var((*duration)(to), name, usage)
}

type duration time.Duration

func (d *duration) Set(text string) error {
	parsed, err := ParseDuration(text)
	*d = duration(parsed)
	return err
}

func (d *duration) String() string {
	if *d == 0 {
		return ""
	}
	return Readable(time.Duration(*d))
}

func (d *duration) Type() string { return "duration" }

// ParseDuration reads a duration such as 90s, 10m, 24h, 7d or -10m.
func ParseDuration(text string) (time.Duration, error) {
	positive, negative := strings.CutPrefix(text, "-")
	d, err := settings.ParseDuration(positive)
	if err != nil || strings.HasPrefix(positive, "-") {
		return 0, errors.New("must be a duration such as 90s, 10m, 24h or 7d")
	}
	if negative {
		d = -d
	}
	return d, nil
}

// ChoiceVar adds a flag that takes one of some words, and completes them.
func ChoiceVar(cmd *cobra.Command, to *string, name, usage string, words ...string) {
	cmd.Flags().Func(name, usage, func(text string) error {
		if *to = text; !slices.Contains(words, text) {
			return errors.New("must be one of " + strings.Join(words, ", "))
		}
		return nil
	})
	complete := cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
	if err := cmd.RegisterFlagCompletionFunc(name, complete); err != nil {
		panic(err) // there is no such flag
	}
}

// Args returns a check that exactly the named arguments are given.
func Args(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(names) == 0 && len(args) > 0:
			return fmt.Errorf("%s takes no argument, but %q was given", cmd.CommandPath(), args[0])
		case len(names) != len(args):
			return fmt.Errorf("%s takes %s, but the number of arguments is %d", cmd.CommandPath(),
				strings.Join(names, " and "), len(args))
		}
		return nil
	}
}
