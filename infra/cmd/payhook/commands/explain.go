package commands

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/stack"
	"payhook.example/shared/objects"
	"payhook.example/shared/payment"
	"payhook.example/shared/proof"
	"payhook.example/shared/settings"
)

// explainCommand returns the command that explains why a webhook was rejected.
//
// It guarantees that it sends nothing except requests for public keys to the key endpoint of the settings, and reads of
// the stack: the request, and with keyEndpointAuth=bearer the access token. What it prints contains no payload and no
// signature. Settings that it prints were tried: with the verdict settings, the request passes with them the checks of
// the webhook function ([intake.Signature.Check]). Unless the caller gives it, it prints no setting that weakens the
// protection: a longer timestampTolerance, or a fixed key id.
//
// A signature of PKCS #1 v1.5 contains the digest of its message, which everybody who has the public key can read (RFC
// 8017, sections 5.2.2 and 9.2). So it is known whether a key made a signature, whatever the message is, and one hash
// for each value of the request shows which one is the timestamp. If no message has the digest, the message that was
// signed is not the one that was received.
func (p *program) explainCommand() *cobra.Command {
	e := &explainer{p: p.Program}
	cmd := &cobra.Command{
		Use: "explain [NAME]", Short: "Explain why a webhook was rejected",
		Args: cobra.MatchAll(cobra.MaximumNArgs(1), func(*cobra.Command, []string) error { return e.checkFlags() }),
		RunE: p.on(func(ctx context.Context, s *connected, args []string) error {
			r, name, err := storedWebhook(ctx, s.parking, append(args, "")[0])
			if err != nil {
				return err
			}
			fmt.Fprintf(p.Err, "the rejected webhook %s\n", name)
			return e.run(ctx, s, r)
		}),
	}
	f := cmd.Flags()
	f.StringArrayVarP(&e.context, "context", "c", nil, "a setting, `name=value`, instead of the one that is set")
	f.StringArrayVar(&e.keyIDs, "key-id", nil, "a key `UUID` to try, for a service that does not send it")
	return cmd
}

// checkFlags returns an error for flags that are wrong for every webhook.
func (e *explainer) checkFlags() error {
	for _, id := range e.keyIDs {
		if _, ok := payment.KeyID(id); !ok {
			return cli.Usage("--key-id %s: must be a UUID", id)
		}
	}
	// The locations of a webhook are not known yet, and must differ.
	given := map[string]string{"baseUrl": "https://a.example", "signatureHeader": "1", "timestampLocation": "header:2",
		"keyIdLocation": "header:3"}
	return e.set(given)
}

// set takes settings, with those of -c.
func (e *explainer) set(given map[string]string) (err error) {
	e.settings = map[string]string{}
	maps.Copy(e.settings, given)
	for _, pair := range e.context {
		if err := settings.ParsePairs(e.settings, pair, settings.ReadBy("verify")); err != nil {
			return cli.Usage("-c %s: %w", pair, err)
		}
	}
	if e.conf, err = settings.ParseVerification(e.settings); err != nil {
		err = cli.Usage("-c %w", err)
	}
	return err
}

var errNone = cli.Failed(errors.New("this webhook is not stored: storeRejected is off or has ended, none was " +
	"rejected since, or it was deleted after a day"))

// storedWebhook returns the webhook whose name begins with a text that no other begins with, and the name; "" for the
// last one.
func storedWebhook(ctx context.Context, bucket proof.Reader, beginning string) (request, string, error) {
	name := ""
	for object, err := range proof.List(ctx, bucket, proof.Rejected, time.Time{}, time.Time{}) {
		switch {
		case err != nil:
			return request{}, "", err
		case !strings.HasPrefix(object.Key, beginning):
			continue
		case name != "" && beginning != "":
			return request{}, "", cli.Usage("several webhooks begin with %s: %s and %s", beginning, name, object.Key)
		}
		name = object.Key
	}
	p, err := proof.Get(ctx, bucket, name)
	switch {
	case name == "", errors.Is(err, objects.ErrNotFound):
		return request{}, "", errNone
	case err != nil:
		return request{}, "", err
	}
	return request{*p.Request, p.Payload}, name, nil
}

type request struct {
	proof.RejectedRequest
	Payload []byte
}

// run explains a request, and prints the report.
func (e *explainer) run(ctx context.Context, s *connected, r request) error {
	e.request = r
	if err := e.set(r.Settings); err != nil {
		return err
	}
	if !e.conf.UsesSignature() {
		return cli.Usage("authentication is mtls: webhooks have no signature that could be explained")
	}
	endpoint, err := s.keyEndpoint(ctx, e.conf)
	if err != nil {
		return err
	}
	e.keys = &keyRing{endpoint, map[string]answer{}, nil}
	if err = e.explain(ctx); err == nil {
		err = e.print(s.Stack)
	}
	if err == nil && e.report.Verdict == keysDown {
		err = errors.New("the key endpoint is down")
	}
	return attention(err, e.report.Verdict != authentic && e.report.Verdict != otherSettings)
}

// verdict is the result of an explanation: its name in JSON, and in words.
type verdict struct{ name, words string }

func (v verdict) MarshalText() ([]byte, error) { return []byte(v.name), nil }

var (
	authentic     = verdict{"authentic", "it verifies with the settings as they are"}
	otherSettings = verdict{"settings", "it verifies with the settings below"}
	wrongAge      = verdict{"age", "the signature verifies, but the timestamp is too old or in the future"}
	unsupported   = verdict{"unsupported", "a key of the service made the signature, but Payhook does not support how"}
	otherMessage  = verdict{"other-message", "a key of the service made the signature, but of another message"}
	noMatch       = verdict{"no-match", "with no key that was found, it is an RSASSA-PKCS1-v1_5 signature"}
	keysDown      = verdict{"keys-down", "the key endpoint is down, so it is not known whether the signature verifies"}
	noKey         = verdict{"no-key", "no key was found to verify the signature with"}
	noSignature   = verdict{"no-signature", "there is no RSA signature in the request"}
	notStored     = verdict{"not-stored", "it is not known whether the signature verifies, because not all of the " +
		"request was stored"}
)

// print writes the report.
func (e *explainer) print(d *stack.Stack) error {
	r, out := &e.report, e.p.Out
	if e.p.JSON {
		return e.p.PrintJSON(r)
	}
	section := func(title string, lines ...string) {
		for i, line := range lines {
			if i == 0 {
				fmt.Fprintf(out, "\n%s\n", title)
			}
			fmt.Fprintf(out, "  %s\n", cli.Plain(line))
		}
	}
	if r.Cause == "" {
		fmt.Fprintln(out, "Every check of the signature succeeds.")
	} else {
		scheme := e.conf.Scheme
		fmt.Fprintf(out, "Rejected: %s, %s\nRead from: header:%s, %s, %s\n", r.Outcome, cli.Plain(r.Cause),
			scheme.SignatureHeader, scheme.Timestamp, scheme.KeyID)
	}
	fmt.Fprintln(out, "Verdict:", r.Verdict.words)
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(r.Settings)) {
		lines = append(lines, fmt.Sprintf("%q: %q,", key, r.Settings[key]))
	}
	title := "Settings for infra/settings.json:"
	if r.Verdict != otherSettings {
		title = "Settings for infra/settings.json. They are necessary, but not sufficient:"
	}
	section(title, lines...)
	section("Differences:", r.Differences...)
	section("What to do:", r.Advice...)
	if r.Verdict == otherSettings && d.Local {
		section("In the local run:", d.Restart(r.Settings))
	}
	return nil
}
