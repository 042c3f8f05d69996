package explain

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/awsenv"
	"payhook.example/shared/intake"
	"payhook.example/shared/settings"
	"payhook.example/shared/signature"
)

// report is an explanation. It contains places, key ids and timestamps of a request, and
// neither its payload nor its signature.
type report struct {
	Verdict verdict `json:"verdict"`
	Outcome string  `json:"outcome"`         // what the webhook function would log
	Cause   string  `json:"cause,omitempty"` // what it would log; "" if no check fails
	// Settings are the changes, by their keys, with which the request verifies. With the verdicts
	// wrongAge, unsupported and changed, they are necessary and not sufficient.
	Settings map[string]string `json:"settings,omitempty"`
	// Differences are how the signed message or its proof differs from what Payhook accepts.
	Differences []string `json:"differences,omitempty"`
	Advice      []string `json:"advice,omitempty"` // what to do
}

// explainer is one explanation.
type explainer struct {
	report
	request  request
	unread   []string          // the locations of the values that are not stored
	settings map[string]string // with those that are proposed
	conf     settings.Function // with the settings as they are
	keys     *keyRing
	values   []value
}

// explain explains why the signature of a request does not verify with its settings, of
// which conf are those that decide about it. given are further key ids to try. The error
// wraps ctx's.
func explain(ctx context.Context, r request, conf settings.Function, service *keyRing,
	given []string) (*report, error) {
	keyID := string(conf.Scheme.KeyID)
	if id, ok := signature.StaticKeyID(keyID); ok {
		given = append([]string{id}, given...)
	}
	configured := []string{"header:" + conf.Scheme.SignatureHeader, string(conf.Scheme.Timestamp), keyID}
	e := &explainer{Settings: map[string]string{}, request: r, settings: maps.Clone(r.Settings),
		conf: conf, keys: service}
	e.values, e.unread = valuesOf(r, configured, given)
	// First as the function does it, so that the cause is the one that it would log.
	err := e.check(ctx, conf)
	e.Outcome = intake.OutcomeOf(err).Name
	if err != nil {
		e.Cause = awsenv.Cause(err)
	}
	e.judge(ctx, err)
	e.judgeUnread(err)
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("explain: %w", err)
	}
	return &e.report, nil
}

// check makes the checks of the webhook function.
func (e *explainer) check(ctx context.Context, conf settings.Function) error {
	size := len(e.request.Payload)
	if e.request.Payload == nil {
		size = e.request.PayloadBytes // it was not captured
	}
	if err := intake.CheckMethod(e.request.Method); err != nil {
		return err
	}
	if size == 0 {
		return intake.PayloadEmpty
	}
	s := intake.Signature{Scheme: conf.Scheme, Tolerance: conf.TimestampTolerance, Keys: e.keys}
	return s.Check(ctx, intake.Delivery{Payload: e.request.Payload, Headers: e.request.Headers,
		RawQuery: e.request.RawQuery}, e.request.ReceivedAt)
}

// judge decides the verdict of a request that the checks rejected with err.
func (e *explainer) judge(ctx context.Context, err error) {
	signatures := signaturesIn(e.values)
	switch {
	case err == nil:
		e.Verdict = authentic
		if o := e.request.Outcome; o == intake.KeyUnavailable.Name || o == intake.KeyOutOfBudget.Name {
			e.say("When it arrived, no cache had the key, and the key service was down or the calls of a minute were "+
				"used up (%s). Nothing is wrong with the settings. Ask the service to send the webhooks again that "+
				"were answered 503.", o)
			return
		}
		e.say("If it was rejected, the reason was temporary, is corrected, or is the client certificate " +
			"(authentication=both) or revokedKeys: look up outcome and cause in the webhook function's log.")
		return
	case isDown(err):
		e.Verdict = keysDown
		e.say("The key service at baseUrl (%s) is down: %v.", e.conf.KeyService, err)
		e.say("If webhooks were accepted with these settings before, nothing is wrong with the settings. When the " +
			"service is up again, ask it to send the webhooks again that were answered 503.")
		return
	case len(signatures) == 0:
		e.Verdict = noSignature
		e.adviseNoSignature()
		return
	case e.request.Payload == nil && e.request.PayloadBytes > 0:
		e.Verdict = changed
		e.say("The body is not available: it had %d bytes, more than is captured.", e.request.PayloadBytes)
		return
	}
	if found := e.find(ctx, signatures); found != nil {
		e.propose(ctx, *found)
		return
	}
	switch e.Verdict {
	case changed:
		e.say("The signature is genuine: the owner of a key of the service made it. But it is not a signature of "+
			"what arrived here. Most likely, something on the way changes the body: a proxy, a gateway, a firewall or "+
			"a test tool. Compare the body that the service sent with the one that arrived: %d bytes, SHA-256 %x.",
			len(e.request.Payload), sha256.Sum256(e.request.Payload))
		e.say("If the body is unchanged, the service composes the message in another way than section 5.4 of the " +
			"interface and the usual ones that were tried, or signs a timestamp or key id that is in no header and " +
			"no query parameter. Ask the service for the exact bytes of a signed message.")
	case otherKey:
		e.say("None of the keys that the service returns made this signature. Either the request is forged, or the "+
			"service signed with a key of another environment than that of baseUrl (%s), or the signature was changed "+
			"on the way or is of another kind. Ask the service which key signed.", e.conf.KeyService)
	default:
		e.adviseNoKey()
	}
}

// match is a signature with the message that was signed.
type match struct {
	signed
	message
	kind string
	id   value // of the key
}

// find returns the signature, the key id and the message that belong together. Otherwise, it sets the verdict.
func (e *explainer) find(ctx context.Context, signatures []signed) *match {
	e.Verdict = noKey
	for _, id := range keyIDsIn(e.values) {
		key := e.keys.get(ctx, id.text).key
		if key == nil {
			continue
		}
		if e.Verdict == noKey {
			e.Verdict = otherKey
		}
		for _, s := range signatures {
			kinds, certain := kindsOf(key, s.bytes)
			for _, k := range kinds {
				for m := range messages(e.request.Payload, id.text, e.values) {
					if k.of(m.text) {
						e.Differences, e.Advice = nil, nil // of other signatures
						return &match{s, m, k.name, id}
					}
				}
			}
			switch {
			case certain:
				e.Verdict = changed
				e.compare("signature", kinds[0].name, specifiedKind)
			case len(kinds) > 0:
				e.say("With the key %s, the signature has the form of RSASSA-PSS, which Payhook does not support: ask "+
					"the service how it signs.", id.text)
			}
		}
	}
	return nil
}

// judgeUnread replaces a verdict about a request of which a part is missing and can be among what was not stored.
func (e *explainer) judgeUnread(err error) {
	verified := slices.Contains([]verdict{otherSettings, unsupported, wrongAge}, e.Verdict)
	if verified || len(e.unread) == 0 || !errors.Is(err, signature.ErrMissing) {
		return
	}
	e.report = report{Verdict: notStored, Outcome: e.Outcome, Cause: e.Cause}
	e.say("These values are not stored, because the settings did not name them: %s.", strings.Join(e.unread, ", "))
	e.say("If the signature, the timestamp or the key id is there, set signatureHeader, timestampLocation or " +
		"keyIdLocation in infra/settings.json, deploy with captureRejected, and explain the next webhook that is " +
		"rejected. Ask the service to send this one again.")
	e.say("Otherwise: " + noWebhook)
}

// propose reports how the request verifies.
func (e *explainer) propose(ctx context.Context, found match) {
	s, at, id := found.signed, found.at, found.id
	if name, ok := strings.CutPrefix(s.location, "header:"); ok {
		e.set("signatureHeader", name)
	} else {
		e.differs("The signature is in %s. Payhook reads it from a header.", s.location)
	}
	e.compare("encoding of the signature", s.encoding, base64URL)
	e.compare("signature", found.kind, specifiedKind)
	e.compare("signed message", strconv.Quote(found.composition), strconv.Quote(compositions[0]))
	if at.location != "" {
		e.set("timestampLocation", at.location)
		if _, known := signature.TimeOf(at.text); !known && e.conf.TimestampTolerance > 0 {
			e.differs("Payhook cannot read the format of the timestamp %.80q.", at.text)
		}
	}
	e.set("keyIdLocation", id.location)
	if strings.HasPrefix(id.location, static) {
		e.say("With a fixed key id as keyIdLocation, every webhook is rejected as soon as the service signs with " +
			"another key.")
	}
	if err := intake.CheckMethod(e.request.Method); err != nil {
		e.differs("The method is %.80q. Payhook accepts %s.", e.request.Method, strings.Join(settings.Methods(), ", "))
	}
	conf, err := settings.ParseProof(e.settings)
	if err == nil {
		err = e.check(ctx, conf)
	}
	late := errors.Is(err, signature.ErrOutsideWindow)
	if err != nil && !late && len(e.Differences) == 0 {
		e.differs("With these settings, it would still be rejected: %v", err)
	}
	switch {
	case len(e.Differences) > 0:
		e.Verdict = unsupported
		e.say("Payhook has no setting for this. Send the differences to the service and ask what their " +
			"specification says.")
	case late:
		e.Verdict = wrongAge
		sent, _ := signature.TimeOf(at.text)
		e.say("At receipt, the timestamp was %s old (below 0: in the future); timestampTolerance is %s. The request "+
			"was delayed or repeated, or a clock or its time zone is wrong. Compare both times with the service. No "+
			"longer tolerance is proposed, because it gives an attacker more time to repeat a webhook.",
			cli.Readable(e.request.ReceivedAt.Sub(sent)), cli.Readable(conf.TimestampTolerance))
	default:
		e.Verdict = otherSettings
		e.say("Set this in infra/settings.json, or in the Props of the construct, and deploy. The request verifies " +
			"then; this was tried.")
	}
}

// compare reports a difference from section 5.4.
func (e *explainer) compare(what, found, specified string) {
	if found != specified {
		e.differs("The %s is %s. Section 5.4 of the interface says %s.", what, found, specified)
	}
}

// set proposes the value of a setting.
func (e *explainer) set(key, value string) {
	if settings.TextIn(e.settings, key) != value {
		e.Settings[key], e.settings[key] = value, value
	}
}

const noWebhook = "Either this request is not a webhook of the service (scanners call every public URL), or the " +
	"subscription does not ask for a signature (section 5.2 of the interface), or a proxy on the way removes headers " +
	"that it does not know."

// adviseNoSignature says what is in the request instead of a signature.
func (e *explainer) adviseNoSignature() {
	name := e.conf.Scheme.SignatureHeader
	if i := slices.IndexFunc(e.values, func(v value) bool { return v.location == "header:"+name }); i >= 0 {
		e.say("The header %s has %d characters, and is no RSA signature: 256 to 512 bytes in base64 or hexadecimal. "+
			"It was shortened, or it is an HMAC, a JSON Web Signature or something else.", name, len(e.values[i].text))
		return
	}
	e.say(noWebhook)
}

func (e *explainer) adviseNoKey() {
	ids := keyIDsIn(e.values)
	if len(ids) == 0 {
		e.say("The request contains no UUID that can be a key id. If the service signs with one key and does not " +
			"send its id, ask the service for the id and repeat this with --key-id UUID.")
		return
	}
	for _, k := range e.keys.results {
		if isDown(k.err) {
			e.say("The key service at baseUrl (%s) is down: %v. Repeat this when it is up again.",
				e.conf.KeyService, k.err)
			return
		}
		if i := slices.IndexFunc(ids, func(v value) bool { return v.text == k.id }); i >= 0 {
			e.say("There is no key for %s, which is in %s: %v.", k.id, ids[i].location, k.err)
		}
	}
	e.say("Either baseUrl (%s) is that of another environment (test or production), or keysAuth is wrong (401 or "+
		"403), or the request does not contain the key id. Ask the service. -c baseUrl=URL tries another URL, and "+
		"--key-id UUID another id.", e.conf.KeyService)
}

func (e *explainer) differs(format string, args ...any) {
	e.Differences = append(e.Differences, awsenv.Cause(fmt.Errorf(format, args...)))
}

func (e *explainer) say(format string, args ...any) {
	e.Advice = append(e.Advice, awsenv.Cause(fmt.Errorf(format, args...)))
}
