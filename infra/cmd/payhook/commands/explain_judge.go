package commands

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/lambdaruntime"
	"payhook.example/shared/settings"
	"payhook.example/shared/signature"
)

// report is an explanation. It contains locations, key ids and timestamps of a request, and neither its payload nor its
// signature.
type report struct {
	Verdict verdict `json:"verdict"`
	Outcome string  `json:"outcome"`         // what the webhook function would log
	Cause   string  `json:"cause,omitempty"` // what it would log; "" if no check fails
	// Settings are the changes, by their keys, with which the request verifies. They are necessary and not sufficient
	// with the verdicts wrongAge and unsupported.
	Settings map[string]string `json:"settings,omitempty"`
	// Differences are how the signature or its location differs from what Payhook accepts.
	Differences []string `json:"differences,omitempty"`
	Advice      []string `json:"advice,omitempty"` // what to do
}

type explainer struct {
	p       *cli.Program
	context []string // -c
	keyIDs  []string // --key-id

	report   report
	request  request
	settings map[string]string // those of the request, of -c, and those that are proposed
	conf     settings.Config   // of settings, without those that are proposed
	keys     *keyRing
	values   []value
	unread   []string // the locations of the values that are not stored
}

// explain explains why the signature of the request does not verify. The error wraps ctx's.
func (e *explainer) explain(ctx context.Context) error {
	keyID, given := string(e.conf.Scheme.KeyID), e.keyIDs
	if id, ok := signature.StaticKeyID(keyID); ok {
		given = append([]string{id}, given...)
	}
	configured := []string{"header:" + e.conf.Scheme.SignatureHeader, string(e.conf.Scheme.Timestamp), keyID}
	e.values, e.unread = valuesOf(e.request, configured, given)
	// First as the function does it, so that the cause is the one that it would log.
	err := e.check(ctx, e.conf)
	e.report.Outcome, e.report.Cause = intake.OutcomeOf(err).Name, lambdaruntime.Cause(err)
	if err == nil {
		e.judgeAuthentic()
	} else if found, none, differences := e.find(ctx); none == (verdict{}) {
		e.judgeLocations(ctx, found)
	} else {
		e.report.Verdict, e.report.Differences = none, differences
		e.judge(errors.Is(err, signature.ErrMissing))
	}
	if e.report.Verdict == unsupported {
		e.say("Payhook has no setting for this. Send the differences to the service and ask what their specification " +
			"says.")
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("explain: %w", err)
	}
	return nil
}

func (e *explainer) check(ctx context.Context, conf settings.Config) error {
	if err := intake.CheckMethod(e.request.Method); err != nil {
		return err
	}
	if e.request.PayloadBytes == 0 {
		return intake.PayloadEmpty
	}
	s := intake.Signature{Scheme: conf.Scheme, Tolerance: conf.TimestampTolerance, Keys: e.keys}
	return s.Check(ctx, intake.Delivery{Payload: e.request.Payload, Headers: e.request.Headers,
		RawQuery: e.request.RawQuery}, e.request.ReceivedAt)
}

func (e *explainer) judgeAuthentic() {
	if e.changes() {
		e.deploy()
		return
	}
	e.report.Verdict = authentic
	if o := e.request.Outcome; o == intake.KeyUnavailable.Name || o == intake.KeyOutOfBudget.Name {
		e.say("When it arrived, no cache had the key, and the key endpoint was down or the calls of a minute were "+
			"used up (%s). Nothing is wrong with the settings. Ask the service to send the webhooks again that were "+
			"answered 503.", o)
		return
	}
	e.say("If it was rejected, the reason was temporary, is corrected, or is the client certificate " +
		"(authentication=both) or revokedKeys: look up outcome and cause in the webhook function's log.")
}

// match is a signature that a key of the service made, with the timestamp and the key id that were signed.
type match struct {
	signature signedWith
	at, id    value
}

// find returns the parts of the request that belong together, and the verdict if there are none. Without a timestamp
// and a key id, differences say what is known of the signature.
func (e *explainer) find(ctx context.Context) (found match, none verdict, differences []string) {
	signatures := signaturesIn(e.values)
	if len(signatures) == 0 {
		return found, noSignature, nil
	}
	none = noKey
	for _, id := range keyIDsIn(e.values) {
		key, err := e.keys.Lookup(ctx, id.text, netip.Addr{})
		if err != nil {
			continue
		}
		if none == noKey {
			none = noMatch
		}
		for _, s := range signatures {
			made, digest := read(key.Key, s.bytes)
			switch {
			case made == "":
			case made != specified:
				none, differences = unsupported, append(s.differences(), fmt.Sprintf(
					"The signature is %s. Section 5.4 of the interface says %s.", made, specified))
			default:
				none, differences = otherMessage, s.differences()
				for _, at := range e.values {
					if sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s", e.request.Payload, at.text, id.text)) == digest {
						return match{s, at, id}, verdict{}, nil
					}
				}
			}
		}
	}
	return found, none, differences
}

// differences says how the encoding of a signature differs from that of the interface.
func (s signedWith) differences() []string {
	if s.encoding == base64URL {
		return nil
	}
	return []string{fmt.Sprintf("The signature is in %s. Section 5.4 of the interface says %s.", s.encoding, base64URL)}
}

// judgeLocations sets the settings to the locations of what was found, and decides the verdict.
func (e *explainer) judgeLocations(ctx context.Context, found match) {
	e.report.Differences = found.signature.differences()
	e.settings["timestampLocation"], e.settings["keyIdLocation"] = found.at.location, found.id.location
	if name, ok := strings.CutPrefix(found.signature.location, "header:"); ok {
		e.settings["signatureHeader"] = name
	} else {
		e.differs("The signature is in %s. Payhook reads it from a header.", found.signature.location)
	}
	sent, known := signature.TimeOf(found.at.text)
	if !known && e.conf.TimestampTolerance > 0 {
		e.differs("Payhook cannot read the format of the timestamp %.80q.", found.at.text)
	}
	e.changes()
	conf, err := settings.ParseVerification(e.settings)
	if err == nil {
		err = e.check(ctx, conf)
	}
	late := errors.Is(err, signature.ErrOutsideWindow)
	if err != nil && !late && len(e.report.Differences) == 0 {
		e.differs("With these settings, it would still be rejected: %v.", err)
	}
	switch {
	case len(e.report.Differences) > 0:
		e.report.Verdict = unsupported
	case late:
		e.report.Verdict = wrongAge
		e.say("At receipt, the timestamp was %s old (below 0: in the future); timestampTolerance is %s. The request "+
			"was delayed or repeated, or a clock or its time zone is wrong: compare both times with the service. A "+
			"longer tolerance gives an attacker more time to repeat a webhook.",
			cli.Readable(e.request.ReceivedAt.Sub(sent)), cli.Readable(conf.TimestampTolerance))
	default:
		e.deploy()
	}
}

// changes reports the settings that are not those that rejected the request, and whether there are any.
func (e *explainer) changes() bool {
	e.report.Settings = maps.Clone(e.settings)
	maps.DeleteFunc(e.report.Settings, func(key, text string) bool {
		return text == settings.TextOf(e.request.Settings, key)
	})
	return len(e.report.Settings) > 0
}

// deploy says that the request verifies with the settings.
func (e *explainer) deploy() {
	e.report.Verdict = otherSettings
	if strings.HasPrefix(e.report.Settings["keyIdLocation"], static) {
		e.say("With a fixed key id as keyIdLocation, every webhook is rejected as soon as the service signs with " +
			"another key.")
	}
	if e.report.Settings["timestampTolerance"] != "" {
		e.say("The longer timestampTolerance is, the longer an attacker can repeat a webhook.")
	}
	e.say("Set this in infra/settings.json, or in the Props of the construct, and deploy. The request verifies " +
		"then; this was tried.")
}

const otherwise = "Otherwise, this request is not a webhook of the service (scanners call every public URL), or the " +
	"subscription does not ask for a signature (section 5.2 of the interface), or a proxy on the way removes headers " +
	"that it does not know."

// judge says what to do about a request of which no parts were found that belong together. missing is whether a part is
// not at its location.
func (e *explainer) judge(missing bool) {
	payload, size := e.request.Payload, e.request.PayloadBytes
	switch {
	case e.report.Verdict == unsupported: // the differences say it
	case missing && len(e.unread) > 0:
		e.report.Verdict = notStored
		e.say("These values are not stored, because the settings did not name them: %s. If the signature, the "+
			"timestamp or the key id is there, set signatureHeader, timestampLocation or keyIdLocation in "+
			"infra/settings.json, deploy with storeRejected, and explain the next webhook that is rejected. Ask the "+
			"service to send this one again. "+otherwise, strings.Join(e.unread, ", "))
	case e.report.Verdict == noSignature:
		e.say("The header %s has no RSA signature, which is 256 to 512 bytes in base64url. If it has a value, that "+
			"was shortened, or is an HMAC, a JSON Web Signature or something else. "+otherwise,
			e.conf.Scheme.SignatureHeader)
	case e.report.Verdict == otherMessage && payload == nil && size > 0:
		e.report.Verdict = notStored
		e.say("A key of the service made the signature. Whether it is one of the body is not known: the body had %d "+
			"bytes, more than is stored.", size)
	case e.report.Verdict == otherMessage:
		// RFC 1952, section 2.3.1. The value of Content-Encoding is not stored.
		if bytes.HasPrefix(payload, []byte{0x1f, 0x8b}) || e.request.Headers["content-encoding"] != "" {
			e.say("The body arrived compressed, with gzip or as its Content-Encoding says. Section 5.4 of the " +
				"interface signs the JSON text, and Payhook decompresses nothing: nobody must compress it.")
		}
		e.say("The signature is not one of section 5.4's message with what arrived. Something on the way can change "+
			"the body: a proxy, a gateway, a firewall or a test tool. Compare the body that the service sent with the "+
			"one that arrived: %d bytes, SHA-256 %x.", size, sha256.Sum256(payload))
		e.say("If the body is unchanged, the service composes the message in another way, or signs a timestamp or " +
			"key id in another form or that is not stored: ask for the exact bytes of a signed message. If the " +
			"service did not send the webhook, somebody used the signature of another one.")
	case len(e.keys.down) > 0:
		e.report.Verdict = keysDown
		e.say("The key endpoint at baseUrl (%s) is down: %v. If webhooks were accepted with these settings before, "+
			"nothing is wrong with the settings. When the endpoint is up again, ask the service to send the webhooks "+
			"again that were answered 503.", e.conf.KeyEndpoint, e.keys.down[0])
	case e.report.Verdict == noMatch:
		e.say("Either the service signed with another key (is baseUrl, %s, that of another environment?) or in "+
			"another way (RSASSA-PSS or another encoding, for example), or the signature was changed on the way, or "+
			"the request is forged. Ask the service how it signs and with which key.", e.conf.KeyEndpoint)
	default:
		e.judgeNoKey()
	}
}

// judgeNoKey says what the key endpoint answered for the key ids.
func (e *explainer) judgeNoKey() {
	ids := keyIDsIn(e.values)
	for _, id := range ids {
		err := e.keys.answers[id.text].err
		if all, ok := err.(interface{ Unwrap() []error }); ok {
			err = all.Unwrap()[len(all.Unwrap())-1] // without "unavailable": it answered
		}
		advice := "If baseUrl and keyEndpointAuth are right, ask the service for the JWK of section 2.6 of the " +
			"interface."
		if errors.Is(err, keys.ErrUnknown) {
			advice = "Either baseUrl is that of another environment (test or production), or this is no key id."
		}
		if err != nil { // otherwise, it was not asked
			e.say("There is no key for %s, which is in %s: %v. %s", id.text, id.location, err, advice)
		}
	}
	if len(ids) == 0 {
		e.say("The request contains no UUID that can be a key id. If the service signs with one key and does not " +
			"send its id, ask the service for the id.")
	}
	e.say("-c baseUrl=URL tries another URL than %s, and --key-id UUID another id.", e.conf.KeyEndpoint)
}

func (e *explainer) differs(format string, args ...any) {
	e.report.Differences = append(e.report.Differences, lambdaruntime.Cause(fmt.Errorf(format, args...)))
}

func (e *explainer) say(format string, args ...any) {
	e.report.Advice = append(e.report.Advice, lambdaruntime.Cause(fmt.Errorf(format, args...)))
}
