package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// credentials returns client id and secret of the environment, or asks for them. They are no flags, since every process
// of this machine can see those.
func credentials(ctx context.Context, stderr io.Writer) (id, secret string, err error) {
	in := int(os.Stdin.Fd())
	if state, err := term.GetState(in); err == nil {
		stop := context.AfterFunc(ctx, func() { // Ctrl-C does not end a read
			_ = term.Restore(in, state)
			os.Exit(1)
		})
		defer stop()
	}
	for i, value := range []*string{&id, &secret} {
		name := []string{"PAYHOOK_CLIENT_ID", "PAYHOOK_CLIENT_SECRET"}[i]
		if *value = os.Getenv(name); *value != "" {
			continue
		}
		if !term.IsTerminal(in) {
			return "", "", usagef("%s is not set, and there is no terminal to ask for it: --auth-url needs it", name)
		}
		fmt.Fprintf(stderr, "%s, which is not shown: ", name)
		text, err := term.ReadPassword(in)
		fmt.Fprintln(stderr)
		if err != nil {
			return "", "", err
		}
		*value = string(text)
	}
	return id, secret, nil
}
