// Package explain has the command that explains why a webhook was rejected.
//
// It guarantees that it changes nothing and sends nothing except requests for public keys
// to the key service of the settings, and reads of the stack: with --last and --captured
// the request, with keysAuth=bearer the access token. What it prints contains no payload
// and no signature. Settings that it prints were tried: with the verdict settings, the
// request passes with them the checks of the webhook function ([intake.Signature.Check]).
// It prints no setting that weakens the protection: a longer timestampTolerance, or a fixed
// key id that the caller has not given.
//
// It does not verify every combination with every key. A signature of PKCS #1 v1.5 contains
// the digest of its message, which everybody who has the public key can read (RFC 8017,
// sections 5.2.2 and 9.2). So one RSA operation shows whether a key made a signature. After
// that, each timestamp costs one hash. If a key of the service made the signature and no
// message has its digest, the message that was signed is not the one that was received.
package explain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/deployment"
	"payhook.example/shared/aws/s3"
	"payhook.example/shared/keys"
	"payhook.example/shared/objects"
	"payhook.example/shared/proof"
	"payhook.example/shared/settings"
	"payhook.example/shared/signature"
	"payhook.example/shared/token"
)

const long = `Names the check that rejects a webhook, and finds settings with which it verifies.

It looks for the signature, timestamps and key ids in all values that are stored,
fetches the keys from {baseUrl}/v1/keys/{keyId}, and tries other places, formats of the
timestamp and encodings of the signature. Settings are printed for cdk.json only if
the webhook passes all checks of the signature with them. No setting is proposed that
weakens the protection: a longer timestampTolerance, a fixed keyIdLocation. -c tries one,
and --key-id a fixed key id.

The webhook is the last one that captureRejected stored, or another one (the names are in
"payhook parked list --kind rejected"). Its settings are those that rejected it; -c
replaces some. With keysAuth=bearer, the token of the stack is read. Of headers and query
parameters that the settings did not name, only the names are stored. They are printed if
a part of the signature can be there.

Status 0: it verifies with the settings as they are, or with those that are printed.
Status 1: it verifies with no settings. Status 3: the key service could not be reached.

With --json, one document: verdict (authentic, settings, age, unsupported, changed,
other-key, keys-down, no-key, no-signature, not-stored), outcome, cause, settings,
differences, advice.`

const example = `  payhook explain --last
  payhook explain --last -c baseUrl=https://api.test.payments.example
  payhook explain --last --key-id 5f0c1b7e-3d43-4f26-9c0d-2f1f6a5b7c8d`

// options are the flags.
type options struct {
	p      *cli.Program
	target *deployment.Target

	context  []string
	keyIDs   []string
	last     bool
	captured string
}

// Command returns the command.
func Command(p *cli.Program, t *deployment.Target) *cobra.Command {
	o := &options{p: p, target: t}
	cmd := &cobra.Command{
		Use: "explain", Short: "Explain why a webhook was rejected",
		Long: long, Example: example, Args: cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.BoolVar(&o.last, "last", false, "explain the last rejected webhook that the stack captured")
	f.StringVar(&o.captured, "captured", "", "explain the captured webhook of this `name`")
	f.StringArrayVarP(&o.context, "context", "c", nil, "a setting, `name=value`, instead of the one that is set")
	f.StringArrayVar(&o.keyIDs, "key-id", nil, "a key `UUID` to try, for a service that does not send it")
	return cmd
}

func (o *options) run(ctx context.Context) error {
	if o.last == (o.captured != "") {
		return cli.Usage("payhook explain takes either --last or --captured NAME")
	}
	d, err := o.p.Connect(ctx, o.target)
	if err != nil {
		return cli.Unreachable(err)
	}
	r, err := o.stored(ctx, s3.NewBucket(d.S3(), d.ParkingBucket))
	switch {
	case errors.Is(err, errNone), errors.Is(err, proof.ErrDamaged):
		return err
	case err != nil:
		return cli.Unreachable(err)
	}
	fmt.Fprintf(o.p.Err, "the captured webhook %s\n", o.captured)
	return o.explain(ctx, r)
}

var errNone = errors.New("this webhook is not stored: captureRejected is off or has ended, none was rejected since, " +
	"or it was deleted after a day")

// stored returns the webhook to explain, and sets its name if it is the last one.
func (o *options) stored(ctx context.Context, bucket proof.Reader) (r request, err error) {
	if o.last {
		for object, err := range proof.List(ctx, bucket, proof.Rejected, time.Time{}, time.Time{}) {
			if err != nil {
				return r, err
			}
			o.captured = object.Key
		}
		if o.captured == "" {
			return r, errNone
		}
	}
	p, err := proof.Get(ctx, bucket, o.captured)
	if errors.Is(err, objects.ErrNotFound) || errors.Is(err, proof.ErrName) || err == nil && p.Request == nil {
		err = errNone
	}
	if err != nil {
		return r, err
	}
	return request{*p.Request, p.Payload}, nil
}

// request is a webhook that was rejected.
type request struct {
	proof.Request
	Payload []byte
}

// explain explains a captured webhook, with the settings of -c.
func (o *options) explain(ctx context.Context, r request) error {
	for _, pair := range o.context {
		if err := cli.AddSettings(r.Settings, pair, settings.ReadBy("proof")); err != nil {
			return cli.Usage("-c %s: %w", pair, err)
		}
	}
	conf, err := settings.ParseProof(r.Settings)
	if err != nil {
		return cli.Usage("these settings are wrong; set them with -c NAME=VALUE:\n%w", err)
	}
	if !conf.UsesSignature() {
		return cli.Usage("authentication is mtls: webhooks have no signature that could be explained")
	}
	service, err := o.keyService(ctx, conf)
	if err != nil {
		return cli.Unreachable(err)
	}
	found, err := explain(ctx, r, conf, service, o.keyIDs)
	if err != nil {
		return err
	}
	if o.p.JSON {
		err = o.p.PrintJSON(found)
	} else {
		o.print(ctx, found, conf.Scheme)
	}
	switch {
	case err != nil:
		return err
	case found.Verdict == authentic || found.Verdict == otherSettings:
		return nil
	case found.Verdict == keysDown, found.Verdict == noKey && service.failed > 0:
		return cli.Unreachable(errors.New("the key service did not answer"))
	}
	return cli.ErrAttention
}

func (o *options) keyService(ctx context.Context, conf settings.Function) (*keyRing, error) {
	client := &http.Client{}
	if conf.KeysAuth == settings.BearerToken {
		d, err := o.p.Connect(ctx, o.target)
		if err != nil {
			return nil, fmt.Errorf("keysAuth is bearer, and the token is in the stack: %w", err)
		}
		if !d.KeepsToken() {
			return nil, errors.New("keysAuth is bearer, and the stack keeps no token: it has tokenStore=none")
		}
		client = token.NewClient(d.Token(), conf.KeyService)
	}
	origin := keys.NewOrigin(client, conf.KeyService, settings.KeyTimeout)
	return &keyRing{origin: origin}, nil
}

// verdict is the result of an explanation.
type verdict string

const (
	authentic     verdict = "authentic"
	otherSettings verdict = "settings"
	wrongAge      verdict = "age"
	unsupported   verdict = "unsupported"
	changed       verdict = "changed"
	otherKey      verdict = "other-key"
	keysDown      verdict = "keys-down"
	noKey         verdict = "no-key"
	noSignature   verdict = "no-signature"
	notStored     verdict = "not-stored"
)

// verdicts are the verdicts in words.
var verdicts = map[verdict]string{
	authentic:     "it verifies with the settings as they are",
	otherSettings: "it verifies with the settings below",
	wrongAge:      "the signature verifies, but the timestamp is too old or in the future",
	unsupported:   "it verifies, but only in a way that Payhook does not support",
	changed:       "the signature is not one of the body that arrived",
	otherKey:      "the signature was made with none of the keys that were found",
	keysDown:      "the key service is down, so it is not known whether the signature verifies",
	noKey:         "no key was found to verify the signature with",
	noSignature:   "there is no RSA signature in the request",
	notStored:     "a part of the signature is not where the settings say, and other values were not stored",
}

// print writes a report about a request whose signature was read as the settings say.
func (o *options) print(ctx context.Context, r *report, scheme signature.Scheme) {
	t := o.p.Fields()
	if r.Cause == "" {
		t.Line("rejected", "no: every check of the signature succeeds")
	} else {
		t.Line("rejected", "%s", r.Outcome)
		t.Line("cause", "%s", cli.Plain(r.Cause))
		t.Line("read from", "header:%s, %s, %s", scheme.SignatureHeader, scheme.Timestamp, scheme.KeyID)
	}
	t.Line("verdict", "%s", verdicts[r.Verdict])
	_ = t.Flush()
	section := func(title string, lines ...string) {
		for i, line := range lines {
			if i == 0 {
				fmt.Fprintf(o.p.Out, "\n%s\n", title)
			}
			fmt.Fprintf(o.p.Out, "  %s\n", cli.Plain(line))
		}
	}
	if len(r.Settings) > 0 {
		title := `Settings for cdk.json, under "context":`
		if r.Verdict != otherSettings {
			title = `Settings for cdk.json, under "context". They are necessary, but not sufficient:`
		}
		text, _ := json.MarshalIndent(r.Settings, "", "") // texts always have a JSON form
		section(title, strings.Split(strings.Trim(string(text), "{}\n"), "\n")...)
	}
	section("Differences:", r.Differences...)
	section("What to do:", r.Advice...)
	if !o.target.Local || r.Verdict != otherSettings {
		return
	}
	if run, err := deployment.Running(ctx); err == nil {
		section("In the local run:", run.Restart(r.Settings))
	}
}
