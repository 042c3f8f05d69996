package explain

import (
	"crypto/sha256"
	"errors"
	"strconv"
	"strings"
	"time"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/parking"
	"payhook.example/shared/settings"
	"payhook.example/shared/signature"
)

// steps are the checks by their errors.
var steps = []struct {
	err  error
	text string
}{
	{intake.ErrMethod, "method: the request has another method than httpMethod"},
	{intake.ErrPayloadEmpty, "payload: the request has no body"},
	{intake.ErrPayloadTooLarge, "payload: the body is larger than maxPayloadBytes"},
	{signature.ErrMissing, "proof: the request has no value for "},
	{signature.ErrRepeated, "proof: the request has several values, or a comma in the value, for "},
	{signature.ErrOutsideWindow, "age: the timestamp differs from the time of receipt by more than timestampTolerance"},
	{signature.ErrMalformed, "form: a value is malformed: "},
	{keys.ErrMalformedID, "key id: it is not a UUID"},
	{keys.ErrUnknown, "key: the key service does not know the key id"},
	{signature.ErrMismatch, "signature: it is well formed, and it is not a signature of this message by this key"},
}

// stepOf names the check that an error comes from, with the setting that it depends on.
func stepOf(err error, conf settings.Webhook) string {
	for _, s := range steps {
		if !errors.Is(err, s.err) {
			continue
		}
		if !strings.HasSuffix(s.text, " ") {
			return s.text
		}
		text := err.Error()
		switch text[strings.LastIndex(text, ": ")+2:] {
		case "signature value":
			return s.text + "the signature (signatureHeader is " + conf.Scheme.SignatureHeader + ")"
		case "timestamp":
			return s.text + "the timestamp (timestampCarrier is " + conf.Scheme.Timestamp.String() + ")"
		case "key id":
			return s.text + "the key id (keyIdCarrier is " + conf.Scheme.KeyID.String() + ")"
		}
		return s.text + "the signature is not base64url of 256 to 512 bytes, or the query string is invalid"
	}
	return "key: " + causeOf(err)
}

// causeOf says why there is no key.
func causeOf(err error) string {
	if errors.Is(err, keys.ErrUnknown) {
		return "the key service does not know it"
	}
	if policy, ok := errors.AsType[*keys.PolicyError](err); ok {
		return "it must not be used: " + strings.TrimPrefix(policy.Error(), "keys: key rejected: ")
	}
	_, text, _ := strings.Cut(err.Error(), keys.ErrUnavailable.Error()+": ")
	return "the key service does not return it: " + text
}

// adviseAge is for an authentic request whose timestamp is older than the tolerance, or
// newer if age is negative. The cause cannot be known from one request.
func (e *explainer) adviseAge(age, tolerance time.Duration) {
	side, causes := "older", "The request was delayed or repeated, or a clock is wrong."
	if age < 0 {
		side, causes = "newer", "A clock is wrong."
	}
	e.say("The timestamp is %s %s than the time of receipt; timestampTolerance is %s. %s Compare both times with the "+
		"operator. No longer tolerance is proposed, because it gives an attacker more time to repeat a webhook.",
		cli.Readable(age.Abs()), side, cli.Readable(tolerance), causes)
	if zone, ok := zoneOf(-age); ok {
		e.say("A guess: the sender may write its local time, %s, as UTC.", zone)
	}
}

// zoneOf returns the time zone whose local time is ahead of UTC by about that much. The
// offsets in use are from -12:00 to +14:00, in quarters of an hour.
func zoneOf(ahead time.Duration) (name string, ok bool) {
	offset := ahead.Round(15 * time.Minute)
	if offset == 0 || offset < -12*time.Hour || offset > 14*time.Hour || (ahead-offset).Abs() > time.Minute {
		return "", false
	}
	return time.Unix(0, 0).In(time.FixedZone("", int(offset.Seconds()))).Format("UTC-07:00"), true
}

// adviseNoSignature says what is in the request instead of a signature.
func (e *explainer) adviseNoSignature() {
	for _, v := range e.all {
		switch b, _ := decode(v.text); {
		case v.text == parking.Redacted:
			e.say("The %s was redacted when the request was captured. Ask the operator whether the signature is "+
				"carried there.", v.place)
		case v.rank > inQuery || !signatureName.MatchString(v.name):
		default:
			e.say("The %s is no RSA signature: it has %d bytes in hexadecimal or base64, and not 256 to 512. It was "+
				"shortened, or it is an HMAC, a JSON Web Signature or something else.", v.place, len(b))
		}
	}
	if len(e.Advice) == 0 {
		e.say("Either this request is not a webhook of the service (scanners call every public URL), or the " +
			"subscription does not ask for a signature (section 5.2 of the interface), or a proxy on the way removes " +
			"headers that it does not know.")
	}
}

func (e *explainer) adviseNoKey() {
	if len(e.keys.results) == 0 {
		e.say("The request contains no UUID that can be a key id. If the service signs with one key and does not " +
			"send its id, ask the operator for the id and repeat this with --key-id UUID.")
		return
	}
	for _, k := range e.keys.results {
		e.say("The key %s: %s.", k.id, causeOf(k.err))
	}
	e.say("Either baseUrl (%s) is that of another environment (test or production), or keysAuth is wrong (401 or "+
		"403), or the request does not contain the key id. Ask the operator. -c baseUrl=URL tries another URL, and "+
		"--key-id UUID another id.", e.conf.BaseURL)
}

// adviseChanged is for a signature that a key of the service made of other bytes. m is nil
// if they are known.
func (e *explainer) adviseChanged(m *match) {
	if m != nil {
		e.say("The signature is genuine: the owner of the key %s made it. But it is not a signature of what "+
			"arrived here, in any form that was tried. If the body arrived unchanged, the service composes the "+
			"message in another way than section 5.4 of the interface, or signs a timestamp or key id that it does "+
			"not send. Ask the operator for the exact bytes of a signed message.", m.key.id)
	}
	sum := sha256.Sum256(e.request.Payload)
	e.say("Most likely, something on the way changes the body: a proxy, a gateway, a firewall or a test tool. "+
		"Payhook verifies the bytes as they arrive. Let the service send directly to the URL of the stack, and "+
		"compare the body that the operator sent with the one that arrived: %d bytes, SHA-256 %x.",
		len(e.request.Payload), sum)
	if n, err := strconv.Atoi(e.request.Headers["content-length"]); err == nil && n != len(e.request.Payload) {
		e.say("Content-Length is %d: the body was changed after that header was written.", n)
	}
}
