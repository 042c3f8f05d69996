package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"payhook.example/infra/stack"
)

// Choose completes a target that no flag names: it is the local run if one is up. Err then says so. It is an error if
// the local run was killed, so that nothing goes to AWS by accident.
func (p *Program) Choose(ctx context.Context) error {
	if p.Target.Named() {
		return nil
	}
	_, err := stack.Running(ctx)
	switch {
	case errors.Is(err, stack.ErrNotUp):
		return nil
	case err != nil:
		return fmt.Errorf("%w\n--stack, --region or --profile chooses AWS", err)
	}
	p.Target.Local = true
	fmt.Fprintln(p.Err, "this is the local run; --stack, --region or --profile chooses AWS")
	return nil
}

// Connect chooses the target and reads its stack. If no flag names the target, Err says which stack it is.
func (p *Program) Connect(ctx context.Context) (*stack.Stack, error) {
	if p.Stack != nil {
		return p.Stack, nil
	}
	named := p.Target.Named()
	if err := p.Choose(ctx); err != nil {
		return nil, err
	}
	d, err := stack.Connect(ctx, p.Target)
	if err == nil && !named && !d.Local {
		fmt.Fprintln(p.Err, "this is", d.Name)
	}
	return d, err
}

// Hint returns a command of this program for the same target, which can be copied into the shell.
func (p *Program) Hint(command string) string {
	return stack.Quote(cmp.Or(p.Name, "payhook")) + " " + command + p.Target.Flags()
}

// AWS returns a command of the AWS CLI for the same account and region, which can be copied into the shell.
func (p *Program) AWS(command string) string {
	if p.Target.Local {
		return `(eval "$(` + stack.Quote(cmp.Or(p.Name, "payhook")) + ` local env)"; aws ` + command + ")"
	}
	at := stack.Stack{Region: p.Target.Region, Profile: p.Target.Profile}
	return "aws " + command + at.Flags()
}

// NoTargetFlags returns an error of usage if a flag chooses the stack of a command
// that is always for this machine, except for those that it takes.
func NoTargetFlags(cmd *cobra.Command, takes ...string) error {
	for _, name := range []string{"local", "stack", "id", "region", "profile"} {
		if f := cmd.Flag(name); f != nil && f.Changed && !slices.Contains(takes, name) {
			return Usage("%s is always for this machine: it takes no --%s", cmd.CommandPath(), name)
		}
	}
	return nil
}

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
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}
