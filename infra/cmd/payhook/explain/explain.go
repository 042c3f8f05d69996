// Package explain has the command that explains why a webhook was rejected.
//
// It guarantees that it changes nothing and sends nothing except requests for public
// keys to the key service of the settings, and reads of the stack: with --last and
// --captured the request, with keysAuth=bearer the access token. A request that is read from a file is not executed in
// any way. What it prints contains no payload and no signature.
package explain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/cmd/payhook/operate"
	"payhook.example/infra/deployment"
	"payhook.example/shared/explain"
	"payhook.example/shared/keys"
	"payhook.example/shared/names"
	"payhook.example/shared/refused"
	"payhook.example/shared/rfc3339"
	"payhook.example/shared/settings"
	"payhook.example/shared/token"
)

const long = `Names the check that rejects a webhook, and finds settings with which it verifies.

It looks for the signature, timestamps and key ids in all headers, query parameters
and JSON fields, fetches the keys from {baseUrl}/v1/keys/{keyId}, and tries other
carriers, formats and usual mistakes in the signed message. Settings are printed for
cdk.json only if the webhook passes all checks of the signature with them. If none are
found, it says what this means, for example that the body was changed on the way. No
setting is proposed that weakens the protection: a longer timestampTolerance, another of
keyExponents, a fixed keyIdCarrier. -c tries one, and --key-id a fixed key id.

With --last, it explains the last rejected webhook that the setting captureRefused
stored, and with --captured NAME another one ("payhook refused list" has the names),
with the settings that rejected it. Otherwise FILE is one of these; - is standard input:
- a dump of the HTTP request: request line, headers, an empty line, and the body
  byte for byte
- a curl command for a POSIX shell, as browsers and tools copy it
- the JSON of an event of a function URL or an HTTP API, or a captured webhook as
  "payhook refused show NAME --payload --json" prints it

For a FILE, settings are read from cdk.json (--settings names another file). -c
replaces some of them. With keysAuth=bearer, the token is read from the secret of the
stack.

Status 0: it verifies with the settings as they are, or with those that are printed.
Status 1: it verifies with no settings.
Status 3: the key service could not be reached.

With --json, one document: verdict (authentic, settings, age, unsupported,
changed, other-key, no-key, no-signature), outcome, step, settings (setting, value, was),
differences, advice, evidence, signatures (place, encoding, bytes, madeBy), timestamps
(place, text, format, time), keys (keyId, place, state, cause), notTried, notes.`

const example = `  payhook explain --last
  payhook explain request.txt
  payhook explain request.txt -c baseUrl=https://api.test.payments.example
  payhook explain request.txt --key-id 5f0c1b7e-3d43-4f26-9c0d-2f1f6a5b7c8d
  payhook explain events/webhook/one-event.json --received 2026-01-31T12:00:00Z`

// options are the flags.
type options struct {
	p      *cli.Program
	target *deployment.Target

	settings string
	context  []string
	keyIDs   []string
	received string
	last     bool
	captured string
}

// Command returns the command.
func Command(p *cli.Program, t *deployment.Target) *cobra.Command {
	o := &options{p: p, target: t}
	cmd := &cobra.Command{
		Use: "explain [FILE]", Short: "Explain why a webhook was rejected",
		Long: long, Example: example, Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	f := cmd.Flags()
	f.BoolVar(&o.last, "last", false, "explain the last rejected webhook that the stack captured")
	f.StringVar(&o.captured, "captured", "", "explain the captured webhook of this `name`")
	f.StringVar(&o.settings, "settings", "", "`file` with the settings under \"context\" (default cdk.json)")
	f.StringArrayVarP(&o.context, "context", "c", nil, "a setting, `name=value`, instead of that in the file")
	f.StringArrayVar(&o.keyIDs, "key-id", nil, "a key `UUID` to try, for a service that does not send it")
	f.StringVar(&o.received, "received", "",
		"`time` of receipt in RFC 3339; without it, a dump's timestamp is not checked for its age")
	return cmd
}

// result is what --json prints.
type result struct {
	*explain.Report
	Notes []string `json:"notes,omitempty"` // on how the request was read
}

func (o *options) run(ctx context.Context, args []string) error {
	s, err := o.request(ctx, args)
	if err != nil {
		return err
	}
	if o.received != "" {
		if s.ReceivedAt, err = rfc3339.Parse(o.received); err != nil {
			return cli.Usage("--received %q is not a time such as 2026-01-31T12:00:00Z", o.received)
		}
	}
	values, err := o.values(s.settings)
	if err != nil {
		return err
	}
	conf, err := settings.ParseProof(func(key string) (string, bool) { v, ok := values[key]; return v, ok })
	if err != nil {
		return cli.Usage("these settings are wrong; set them in cdk.json or with -c NAME=VALUE:\n%w", err)
	}
	if !conf.UsesSignature() {
		return cli.Usage("authentication is mtls: webhooks have no signature that could be explained. outcome in the " +
			"webhook function's log names what is wrong with the client certificate")
	}
	service, err := o.keyService(ctx, conf)
	if err != nil {
		return cli.Unreachable(err)
	}
	report, err := explain.Explain(ctx, s.Request, values, service, explain.Options{KeyIDs: o.keyIDs})
	if err != nil {
		return err
	}
	if o.p.JSON {
		err = o.p.PrintJSON(result{report, s.notes})
	} else {
		err = o.print(report, s)
	}
	switch {
	case err != nil:
		return err
	case report.Verdict == explain.Authentic || report.Verdict == explain.Settings:
		return nil
	case report.Verdict == explain.NoKey && service.unreachable:
		return cli.Unreachable(errors.New("the key service did not answer"))
	}
	return cli.ErrAttention
}

// request returns the request that is meant.
func (o *options) request(ctx context.Context, args []string) (source, error) {
	switch {
	case (o.last || o.captured != "") && len(args) > 0, o.last && o.captured != "":
		return source{}, cli.Usage("FILE, --last and --captured exclude each other")
	case len(args) == 1:
		return o.read(args[0])
	case !o.last && o.captured == "":
		return source{}, cli.Usage("payhook explain takes FILE, --last or --captured NAME")
	}
	r, name, err := operate.Refused(ctx, *o.target, o.captured)
	switch {
	case errors.Is(err, operate.ErrNoneRefused), errors.Is(err, refused.ErrNotStored):
		return source{}, err
	case err != nil:
		return source{}, cli.Unreachable(err)
	}
	s := captured(r)
	s.notes = append(s.notes, "This is the captured webhook "+name+".")
	return s, nil
}

// read reads the request of a file.
func (o *options) read(name string) (source, error) {
	var text []byte
	var err error
	if name == "-" {
		text, err = io.ReadAll(o.p.In)
	} else {
		text, err = os.ReadFile(name)
	}
	if err != nil {
		return source{}, cli.Usage("the request cannot be read: %w", err)
	}
	s, err := parseRequest(text)
	if err != nil {
		return s, cli.Usage("%s is not a request: %w", name, err)
	}
	return s, nil
}

// values returns the texts of the settings: those that were captured with the request,
// or those of the file, and those of -c.
func (o *options) values(captured map[string]string) (map[string]string, error) {
	values := map[string]string{}
	maps.Copy(values, captured)
	name := o.settings
	if name == "" {
		name = "cdk.json"
	}
	text, err := os.ReadFile(name)
	switch {
	case captured != nil && o.settings == "":
	case err == nil:
		clear(values)
		var file struct{ Context map[string]any }
		if err := json.Unmarshal(text, &file); err != nil {
			return nil, cli.Usage("%s cannot be read: %w", name, err)
		}
		for key, value := range file.Context {
			values[key] = textOf(value)
		}
	case o.settings != "" || !errors.Is(err, os.ErrNotExist):
		return nil, cli.Usage("the settings cannot be read: %w", err)
	}
	for _, pair := range o.context {
		key, value, ok := strings.Cut(pair, "=")
		known := slices.ContainsFunc(settings.All(), func(s *settings.Setting) bool { return s.Key == key })
		if !ok || !known {
			return nil, cli.Usage("-c %s: must be NAME=VALUE with the name of a setting", pair)
		}
		values[key] = value
	}
	proof := map[string]string{}
	for _, s := range settings.ProofSettings() {
		if value, ok := values[s.Key]; ok {
			proof[s.Key] = value
		}
	}
	return proof, nil
}

// textOf returns a value of cdk.json as -c would pass it.
func textOf(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return fmt.Sprint(value)
}

// keyService fetches keys, and records whether the service ever answered.
type keyService struct {
	*keys.Origin
	unreachable bool
}

// Fetch implements [explain.Fetcher].
func (k *keyService) Fetch(ctx context.Context, id string) ([]byte, error) {
	text, err := k.Origin.Fetch(ctx, id)
	k.unreachable = errors.Is(err, keys.ErrUnavailable)
	return text, err
}

func (o *options) keyService(ctx context.Context, conf settings.Webhook) (*keyService, error) {
	client := &http.Client{}
	if conf.KeysBearer {
		d, err := deployment.Connect(ctx, *o.target)
		if err != nil {
			return nil, fmt.Errorf("keysAuth is bearer, and the token is in the stack: %w", err)
		}
		secret, err := d.Output(names.TokenSecretOutput)
		if err != nil {
			return nil, err
		}
		client = token.NewClient(token.NewReader(secretsmanager.NewFromConfig(d.AWS), secret, token.ReaderOptions{}),
			conf.BaseURL)
	}
	return &keyService{Origin: keys.NewOrigin(client, conf.BaseURL, conf.KeyTimeout)}, nil
}

// verdicts are the verdicts in words.
var verdicts = map[explain.Verdict]string{
	explain.Authentic:   "it verifies with the settings as they are",
	explain.Settings:    "it verifies with the settings below",
	explain.Age:         "the signature verifies, but the timestamp is too old or in the future",
	explain.Unsupported: "it verifies, but only in a way that Payhook does not support",
	explain.Changed:     "the signature is not one of the body that arrived",
	explain.OtherKey:    "the signature was made with none of the keys that were found",
	explain.NoKey:       "no key was found to verify the signature with",
	explain.NoSignature: "there is no RSA signature in the request",
}

func (o *options) print(r *explain.Report, s source) error {
	t := o.p.Fields()
	if r.Step == "" {
		t.Line("rejected", "no: every check of the signature succeeds")
	} else {
		t.Line("rejected", "%s", r.Outcome)
		t.Line("step", "%s", cli.Plain(r.Step))
	}
	t.Line("verdict", "%s", verdicts[r.Verdict])
	if err := t.Flush(); err != nil {
		return err
	}
	var out strings.Builder
	section := func(title string, lines []string) {
		if len(lines) == 0 {
			return
		}
		fmt.Fprintf(&out, "\n%s\n", title)
		for _, line := range lines {
			fmt.Fprintf(&out, "  %s\n", wrapped(cli.Plain(line), o.p.Width()-2))
		}
	}
	var set []string
	for i, c := range r.Settings {
		line := fmt.Sprintf("%q: %q", c.Setting, c.Value)
		if i < len(r.Settings)-1 {
			line += ","
		}
		set = append(set, line)
	}
	title := `Settings for cdk.json, under "context":`
	if r.Verdict != explain.Settings {
		title = `Settings for cdk.json, under "context". They are necessary, but not sufficient:`
	}
	section(title, set)
	section("Differences:", r.Differences)
	section("What to do:", r.Advice)
	section("Signs of a change on the way:", r.Evidence)
	if r.Verdict == explain.Settings && o.target.Local && s.settings != nil {
		command, err := restart(r.Settings)
		if err != nil {
			return err
		}
		// It is not broken into lines, to be copied.
		fmt.Fprintf(&out, "\nIn the local run:\n  %s\n", command)
	}
	section("Notes:", s.notes)
	section("Not tried:", r.NotTried)
	section("Found in the request:", found(r))
	_, err := io.WriteString(o.p.Out, out.String())
	return err
}

// restart returns the command that starts the local run with these settings.
func restart(changes []explain.Change) (string, error) {
	run, err := deployment.Read(".")
	if err != nil {
		return "", err
	}
	values := map[string]string{}
	for _, c := range changes {
		values[c.Setting] = c.Value
	}
	return run.Restart(values), nil
}

// wrapped breaks a line between words so that it has at most that many columns. Further
// lines are indented.
func wrapped(line string, columns int) string {
	var out strings.Builder
	n := 0
	for i, word := range strings.Fields(line) {
		switch length := utf8.RuneCountInString(word); {
		case i == 0:
			n = length
		case n+1+length > columns:
			out.WriteString("\n    ")
			n = 4 + length
		default:
			out.WriteString(" ")
			n += 1 + length
		}
		out.WriteString(word)
	}
	return out.String()
}

// found lists what the request contains.
func found(r *explain.Report) (lines []string) {
	for _, s := range r.Signatures {
		line := fmt.Sprintf("signature in %s: %s, %d bytes", s.Place, s.Encoding, s.Bytes)
		if s.MadeBy != "" {
			line += ", made by the key " + s.MadeBy
		}
		lines = append(lines, line)
	}
	for _, at := range r.Timestamps {
		lines = append(lines, fmt.Sprintf("time in %s: %s, %s", at.Place, at.Text, at.Format))
	}
	places := map[string][]string{}
	var order []string
	for _, k := range r.Keys {
		state := k.State
		if k.Cause != "" {
			state += ": " + k.Cause
		}
		line := fmt.Sprintf("%s, %s", k.ID, state)
		if places[line] == nil {
			order = append(order, line)
		}
		places[line] = append(places[line], k.Place)
	}
	for _, line := range order {
		lines = append(lines, fmt.Sprintf("UUID %s, in %s", line,
			strings.Join(slices.Compact(slices.Sorted(slices.Values(places[line]))), "; ")))
	}
	return lines
}
