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
	"payhook.example/shared/signature"
)

type explainOptions struct {
	p       *cli.Program
	context []string
	keyIDs  []string
}

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
	o := &explainOptions{p: p.Program}
	cmd := &cobra.Command{
		Use: "explain [NAME]", Short: "Explain why a webhook was rejected",
		Args: cobra.MatchAll(cobra.MaximumNArgs(1), func(*cobra.Command, []string) error { return o.check() }),
		RunE: p.on(func(ctx context.Context, s *connected, args []string) error {
			r, name, err := storedWebhook(ctx, s.parking, append(args, "")[0])
			if err != nil {
				return err
			}
			fmt.Fprintf(p.Err, "the rejected webhook %s\n", name)
			return o.explain(ctx, s, r)
		}),
	}
	f := cmd.Flags()
	f.StringArrayVarP(&o.context, "context", "c", nil, "a setting, `name=value`, instead of the one that is set")
	f.StringArrayVar(&o.keyIDs, "key-id", nil, "a key `UUID` to try, for a service that does not send it")
	return cmd
}

// check returns an error for arguments that are wrong for every webhook.
func (o *explainOptions) check() error {
	for _, id := range o.keyIDs {
		if _, ok := payment.KeyID(id); !ok {
			return cli.Usage("--key-id %s: must be a UUID", id)
		}
	}
	// The locations of a webhook are not known yet, and must differ.
	given := map[string]string{"baseUrl": "https://a.example", "signatureHeader": "1", "timestampLocation": "header:2",
		"keyIdLocation": "header:3"}
	_, _, err := o.settings(given)
	return err
}

// settings returns settings with those of -c.
func (o *explainOptions) settings(given map[string]string) (map[string]string, settings.Config, error) {
	all := map[string]string{}
	maps.Copy(all, given)
	for _, pair := range o.context {
		if err := settings.ParsePairs(all, pair, settings.ReadBy("verify")); err != nil {
			return nil, settings.Config{}, cli.Usage("-c %s: %w", pair, err)
		}
	}
	conf, err := settings.ParseVerification(all)
	if err != nil {
		err = cli.Usage("-c %w", err)
	}
	return all, conf, err
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

func (o *explainOptions) explain(ctx context.Context, s *connected, r request) error {
	tried, conf, err := o.settings(r.Settings)
	if err != nil {
		return err
	}
	if !conf.UsesSignature() {
		return cli.Usage("authentication is mtls: webhooks have no signature that could be explained")
	}
	endpoint, err := s.keyEndpoint(ctx, conf)
	if err != nil {
		return err
	}
	e := &explainer{request: r, settings: tried, conf: conf, keys: &keyRing{endpoint, map[string]answer{}, nil}}
	if err = e.explain(ctx, o.keyIDs); err == nil {
		err = o.print(s.Stack, &e.report, conf.Scheme)
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

// print writes a report about a request whose signature was read as the settings say.
func (o *explainOptions) print(d *stack.Stack, r *report, scheme signature.Scheme) error {
	if o.p.JSON {
		return o.p.PrintJSON(r)
	}
	section := func(title string, lines ...string) {
		for i, line := range lines {
			if i == 0 {
				fmt.Fprintf(o.p.Out, "\n%s\n", title)
			}
			fmt.Fprintf(o.p.Out, "  %s\n", cli.Plain(line))
		}
	}
	if r.Cause == "" {
		fmt.Fprintln(o.p.Out, "Every check of the signature succeeds.")
	} else {
		fmt.Fprintf(o.p.Out, "Rejected: %s, %s\nRead from: header:%s, %s, %s\n", r.Outcome, cli.Plain(r.Cause),
			scheme.SignatureHeader, scheme.Timestamp, scheme.KeyID)
	}
	fmt.Fprintln(o.p.Out, "Verdict:", r.Verdict.words)
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
