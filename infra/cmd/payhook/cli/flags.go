package cli

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
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

// ChoiceVar adds a flag that takes one of some words, and completes them. The words are as for [OneOf].
func ChoiceVar(cmd *cobra.Command, to *string, name, usage string, words ...string) {
	cmd.Flags().Func(name, usage, func(text string) error {
		*to = text
		return OneOf(text, words...)
	})
	complete := cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
	if err := cmd.RegisterFlagCompletionFunc(name, complete); err != nil {
		panic(err) // there is no such flag
	}
}

// listed is the error of a flag whose value is list: the words that it takes. The program prints them.
type listed string

func (l listed) Error() string { return string(l) }

// OneOf returns an error that lists the words unless text is one of them. A word can be followed by a tab
// and an explanation; then each is listed in a line of its own, and the text list asks for the list.
func OneOf(text string, words ...string) error {
	separator := " "
	var list strings.Builder
	t := tabwriter.NewWriter(&list, 0, 0, 2, ' ', 0)
	for _, word := range words {
		name, _, explained := strings.Cut(word, "\t")
		if name == text {
			return nil
		}
		if explained {
			separator = "\n  "
		}
		fmt.Fprint(t, separator, word)
		separator = ", "
	}
	t.Flush()
	if lines, ok := strings.CutPrefix(list.String(), "\n"); ok && text == "list" {
		return listed(lines)
	}
	return errors.New("must be one of" + list.String())
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
