package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"payhook.example/shared/intake"
	"payhook.example/shared/parking"
	"payhook.example/shared/settings"
	"payhook.example/shared/signature"
)

// verdict is the result of an explanation.
type verdict string

const (
	authentic     verdict = "authentic"    // the webhook verifies with the settings as they are
	otherSettings verdict = "settings"     // it verifies with other settings
	wrongAge      verdict = "age"          // its signature verifies; its timestamp is too old or in the future
	unsupported   verdict = "unsupported"  // it verifies only in a way for which there is no setting
	changed       verdict = "changed"      // a key of the service signed a message with another payload
	otherKey      verdict = "other-key"    // no key that was found made the signature
	noKey         verdict = "no-key"       // no key was found that can be used
	noSignature   verdict = "no-signature" // the request contains no signature of section 5.4
)

// change is a setting that must be changed.
type change struct {
	Setting string `json:"setting"` // the key in cdk.json
	Value   string `json:"value"`
}

// report is an explanation. It contains places, key ids and timestamps of a request, and
// neither its payload nor its signature.
type report struct {
	Verdict verdict `json:"verdict"`
	Outcome string  `json:"outcome"`        // what the webhook function would log
	Step    string  `json:"step,omitempty"` // the check that fails, in words; "" if none fails
	// Settings are the changes with which the request verifies. With the verdicts wrongAge,
	// unsupported and changed, they are necessary and not sufficient.
	Settings []change `json:"settings,omitempty"`
	// Differences are how the signed message or its proof differs from what Payhook accepts.
	Differences []string `json:"differences,omitempty"`
	Advice      []string `json:"advice,omitempty"` // what to do
}

// explainer is one explanation.
type explainer struct {
	report
	request parking.Captured
	values  map[string]string // of the settings, with those that are proposed
	conf    settings.Webhook  // with the settings as they are
	keys    *keyRing

	all        []value
	signatures []signed
	timestamps []value
	keyIDs     []value
}

// explain explains why the signature of a request does not verify with its settings, of
// which conf are those that decide about it. given are further key ids to try. The error
// wraps ctx's.
func explain(ctx context.Context, r parking.Captured, conf settings.Webhook, service *keyRing,
	given []string) (*report, error) {
	all := valuesOf(r)
	e := &explainer{request: r, values: maps.Clone(r.Settings), conf: conf, keys: service, all: all,
		signatures: signaturesIn(all, conf.Scheme.SignatureHeader),
		timestamps: timestampsIn(all, conf.Scheme.Timestamp.String()),
		keyIDs:     keyIDsIn(all, conf.Scheme.KeyID.String(), given),
	}
	// First as the function does it, so that the step is the one that it would log.
	err := e.check(ctx, conf, r.Payload)
	e.Outcome = string(intake.OutcomeOf(err))
	if err != nil {
		e.Step = stepOf(err, conf)
	}
	if len(e.signatures) > 0 {
		for _, id := range e.keyIDs {
			e.keys.get(ctx, id.text)
		}
	}
	e.judge(ctx, err)
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("explain: %w", err)
	}
	return &e.report, nil
}

func parse(values map[string]string) (settings.Webhook, error) {
	return settings.ParseProof(func(key string) (string, bool) {
		text, ok := values[key]
		return text, ok
	})
}

// check makes the checks of the webhook function.
func (e *explainer) check(ctx context.Context, conf settings.Webhook, payload []byte) error {
	size := len(payload)
	if payload == nil {
		size = e.request.PayloadBytes // it was not captured
	}
	switch {
	case e.request.Method != conf.HTTPMethod:
		return intake.ErrMethod
	case size > conf.MaxPayloadBytes:
		return intake.ErrPayloadTooLarge
	case size == 0:
		return intake.ErrPayloadEmpty
	}
	s := intake.Signature{Scheme: conf.Scheme, Window: conf.Window, Keys: e.keys}
	return s.Check(ctx, intake.Delivery{Payload: payload, Headers: e.request.Headers, RawQuery: e.request.RawQuery},
		e.request.ReceivedAt)
}

// judge decides the verdict of a request that the checks rejected with err.
func (e *explainer) judge(ctx context.Context, err error) {
	switch {
	case err == nil:
		e.Verdict = authentic
		e.say("If it was rejected, the reason was temporary, is corrected, or is the client certificate " +
			"(authentication=both): look up outcome and cause in the webhook function's log.")
		return
	case len(e.signatures) == 0:
		e.Verdict = noSignature
		e.adviseNoSignature()
		return
	case e.request.Payload == nil && e.request.PayloadBytes > 0:
		e.Verdict = changed
		e.say("The body is not available: it had %d bytes, more than is captured.", e.request.PayloadBytes)
		return
	case len(e.keys.usable) == 0:
		e.Verdict = noKey
		e.adviseNoKey()
		return
	}
	var genuine *match
	for _, s := range e.signatures {
		for _, k := range e.keys.usable {
			d, ok := digestIn(k.key, s.bytes)
			if !ok {
				continue
			}
			m := match{signature: s, key: k, digest: d}
			if found, ok := e.search(ctx, m); ok {
				e.propose(ctx, found)
				return
			}
			genuine = &m
		}
	}
	if genuine != nil {
		e.Verdict = changed
		e.adviseChanged(genuine)
		return
	}
	e.Verdict = otherKey
	e.say("None of the keys that the service returns made this signature. Either the request is forged, or the "+
		"service signed with a key of another environment than that of baseUrl (%s), or the signature was changed on "+
		"the way or is of another kind. Ask the operator which key signed.", e.conf.BaseURL)
}

// propose reports how the request with the message m verifies.
func (e *explainer) propose(ctx context.Context, m match) {
	e.proposeSignature(m.signature)
	if strings.Contains(m.form.order, "T") {
		e.proposeTimestamp(m.time)
	}
	if strings.Contains(m.form.order, "K") {
		e.proposeKeyID(m.key.id)
	}
	e.set(settings.HTTPMethod, e.request.Method)
	if n := len(e.request.Payload); n > e.conf.MaxPayloadBytes {
		e.set(settings.MaxPayloadBytes, fmt.Sprint(n))
	}
	e.Differences = append(e.Differences, m.form.differences()...)
	conf, err := parse(e.values)
	if err == nil {
		err = e.check(ctx, conf, m.payload.bytes)
	}
	late := errors.Is(err, signature.ErrOutsideWindow)
	if err != nil && !late && len(e.Differences) == 0 {
		e.differs("With these settings, it would still be rejected: %s", stepOf(err, conf))
	}
	switch {
	case len(e.Differences) > 0:
		e.Verdict = unsupported
		e.say("Payhook has no setting for this. Send the differences to the service's operator and ask what their " +
			"specification says.")
	case m.payload.name != "":
		e.Verdict = changed
		e.differs("The signature is one of the payload %s, not of the bytes that were received.", m.payload.name)
		e.adviseChanged(nil)
	case late:
		e.Verdict = wrongAge
		at, _ := signature.TimeOf(m.time.text)
		e.adviseAge(e.request.ReceivedAt.Sub(at), conf.Window.Tolerance)
	default:
		e.Verdict = otherSettings
		e.say("Set this in cdk.json and deploy. The request verifies then; this was tried.")
	}
}

// set proposes the value of a setting.
func (e *explainer) set(s *settings.Setting, value string) {
	if cmp.Or(e.values[s.Key], s.Default) != value {
		e.Settings = append(e.Settings, change{s.Key, value})
		e.values[s.Key] = value
	}
}

func (e *explainer) proposeSignature(s signed) {
	if name, ok := strings.CutPrefix(s.carrier, "header:"); !ok {
		e.differs("The signature is carried in the %s. Payhook reads it from a header of its own.", s.place)
	} else if !strings.EqualFold(name, e.conf.Scheme.SignatureHeader) {
		e.set(settings.SignatureHeader, name)
	}
	if s.encoding != base64URL {
		e.differs("The signature is encoded as %s. Section 5.4 of the interface says base64url.", s.encoding)
	}
}

func (e *explainer) proposeTimestamp(t value) {
	if t.carrier == "" {
		e.differs("The timestamp is carried in the %s. Payhook reads it from a header or query parameter of its own.",
			t.place)
	} else if !sameCarrier(t.carrier, e.conf.Scheme.Timestamp.String()) {
		e.set(settings.TimestampCarrier, t.carrier)
	}
	if e.conf.Window == nil {
		return
	}
	at, known := signature.TimeOf(t.text)
	if !known {
		e.differs("Payhook cannot read the format of the timestamp %.80q.", t.text)
	}
	for _, format := range []signature.Format{signature.FormatRFC3339, signature.FormatSeconds,
		signature.FormatMilliseconds} {
		is := (&signature.Window{Format: format}).Check(t.text, at) == nil
		if is && errors.Is(e.conf.Window.Check(t.text, at), signature.ErrMalformed) {
			e.set(settings.TimestampFormat, string(format))
		}
	}
}

func (e *explainer) proposeKeyID(id string) {
	v := e.keyIDs[slices.IndexFunc(e.keyIDs, func(v value) bool { return v.text == id })]
	switch {
	case sameCarrier(v.carrier, e.conf.Scheme.KeyID.String()):
		return
	case v.carrier == "":
		e.differs("The key id is carried in the %s. Payhook reads it from a header or query parameter of its own.",
			v.place)
		return
	}
	e.set(settings.KeyIDCarrier, v.carrier)
	if strings.HasPrefix(v.carrier, static) {
		e.say("This keyIdCarrier is a fixed id: every webhook is rejected as soon as the service signs with another " +
			"key.")
	}
}

func (e *explainer) differs(format string, args ...any) {
	e.Differences = append(e.Differences, fmt.Sprintf(format, args...))
}

func (e *explainer) say(format string, args ...any) {
	e.Advice = append(e.Advice, fmt.Sprintf(format, args...))
}
