package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// OneArg returns a check that there is one argument, which the error names.
func OneArg(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s takes %s, but the number of arguments is %d", cmd.CommandPath(), name, len(args))
		}
		return nil
	}
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
