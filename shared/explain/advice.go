package explain

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/refused"
	"payhook.example/shared/settings"
	"payhook.example/shared/signature"
)

// stepOf names the check that an error comes from, with the setting that it depends on.
func stepOf(err error, conf settings.Webhook) string {
	scheme := conf.Scheme
	part := err.Error()
	part = part[strings.LastIndex(part, ": ")+1:]
	switch part = strings.TrimSpace(part); part {
	case "signature value":
		part = "the signature (signatureHeader is " + scheme.SignatureHeader + ")"
	case "timestamp":
		part = "the timestamp (timestampCarrier is " + scheme.Timestamp.String() + ")"
	case "key id":
		part = "the key id (keyIdCarrier is " + scheme.KeyID.String() + ")"
	}
	policy, _ := errors.AsType[*keys.PolicyError](err)
	switch {
	case errors.Is(err, intake.ErrMethod):
		return "method: the request has another method than httpMethod, " + conf.HTTPMethod
	case errors.Is(err, intake.ErrPayloadEmpty):
		return "payload: the request has no body"
	case errors.Is(err, intake.ErrPayloadTooLarge):
		return fmt.Sprintf("payload: the body is larger than maxPayloadBytes, %d", conf.MaxPayloadBytes)
	case errors.Is(err, signature.ErrMissing):
		return "proof: the request has no value for " + part
	case errors.Is(err, signature.ErrRepeated):
		return "proof: the request has several values, or a comma in the value, for " + part
	case errors.Is(err, signature.ErrOutsideWindow):
		return "age: the timestamp differs from the time of receipt by more than timestampTolerance, " +
			readable(conf.Window.Tolerance)
	case errors.Is(err, signature.ErrMalformed) && strings.HasPrefix(part, "the timestamp"):
		return "timestamp: it is not in the format of timestampFormat"
	case errors.Is(err, signature.ErrMalformed):
		return "form of the signature: it is not base64url of 256 to 512 bytes, or the query string is invalid"
	case errors.Is(err, keys.ErrMalformedID):
		return "key id: the value of " + scheme.KeyID.String() + " is not a UUID"
	case errors.Is(err, keys.ErrUnknown):
		return "key: the key service does not know the key id"
	case policy != nil:
		return "key: it must not be used: " + strings.TrimPrefix(policy.Error(), "keys: key rejected: ")
	case errors.Is(err, keys.ErrUnavailable):
		return "key: the key service does not return it (" + cause(err) + ")"
	case errors.Is(err, signature.ErrMismatch):
		return "signature: it is well formed, and it is not a signature of this message by this key"
	}
	return err.Error()
}

// cause is the part of an error of the key service that follows its kind.
func cause(err error) string {
	_, text, found := strings.Cut(err.Error(), keys.ErrUnavailable.Error()+": ")
	if !found {
		return err.Error()
	}
	return text
}

func (e *explainer) adviseAuthentic() {
	if e.request.ReceivedAt.IsZero() {
		e.say("The age of the timestamp was not checked, because the time at which the request was received is not " +
			"known.")
	}
	if e.conf.Authentication == settings.ByBoth {
		e.say("Only the signature was checked. With authentication=both, the client certificate must be accepted as " +
			"well: outcome in the webhook function's log names the reason if it was not.")
	}
	e.say("If it was rejected, the reason was temporary or is corrected: look up outcome and cause in the webhook " +
		"function's log, and compare the settings of the deployed stack with these.")
}

func (e *explainer) adviseMatch(m match) {
	switch e.report.Verdict {
	case Unsupported:
		e.say("Payhook has no setting for this. Send the differences to the service's operator and ask what their " +
			"specification says.")
	case Changed:
		e.say("The service signed other bytes than those that arrived here: something on the way changes the body (a " +
			"proxy, a gateway, a test tool), or the file is not an exact copy of it. Payhook verifies the bytes as " +
			"they arrive and cannot undo a change. Let the service send directly to the URL of the stack.")
	case Settings:
		e.say("Set this in cdk.json and deploy. The request verifies then; this was tried.")
	}
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
		readable(age.Abs()), side, readable(tolerance), causes)
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
	return time.Time{}.Add(48 * time.Hour).In(time.FixedZone("", int(offset.Seconds()))).Format("UTC-07:00"), true
}

func readable(d time.Duration) string {
	text := d.Round(time.Second).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// adviseNoSignature says what is in the request instead of a signature.
func (e *explainer) adviseNoSignature(all []value) {
	clues := 0
	for _, v := range all {
		if v.rank == inEvents || !strings.Contains(strings.ToLower(v.name), "sig") &&
			!strings.EqualFold(v.carrier, "header:"+e.conf.Scheme.SignatureHeader) {
			continue
		}
		switch n := decodedSize(v.text); {
		case strings.HasPrefix(v.text, refused.Redacted):
			continue
		case n == 32 || n == 48 || n == 64 || n == 20:
			e.say("The %s has %d bytes, which is the size of an HMAC or a hash, not of an RSA signature. The service "+
				"must sign with RSA (section 5.4 of the interface).", v.place, n)
		case 68 <= n && n <= 72 || 100 <= n && n <= 104:
			e.say("The %s has %d bytes, which is the size of an ECDSA signature. The service must sign with RSA "+
				"(section 5.4 of the interface).", v.place, n)
		case n > 0:
			e.say("The %s has %d bytes. An RSA signature has 256 to 512: the value was shortened, or it is "+
				"something else.",
				v.place, n)
		case v.rank <= inQuery && !strings.HasPrefix(v.place, "part"):
			e.say("The %s is not base64url, base64 or hexadecimal.", v.place)
		default:
			continue
		}
		if clues++; clues >= 4 {
			break
		}
	}
	for _, v := range all {
		if strings.HasPrefix(v.text, refused.Redacted) && v.rank == inHeader && !strings.HasPrefix(v.place, "part") {
			e.say("The %s was redacted when the request was captured. If the signature is carried there, record the "+
				"request on the way and pass the file.", v.place)
		}
	}
	if clues == 0 {
		e.say("No header, query parameter or JSON field has a text that can be an RSA signature. Either this request " +
			"is not a webhook of the service (scanners call every public URL), or the subscription does not ask for " +
			"a signature (section 5.2 of the interface), or a proxy on the way removes headers that it does not know.")
	}
}

// decodedSize returns the number of bytes that a text has as hexadecimal or base64; 0 if
// it is neither.
func decodedSize(text string) int {
	text = strings.TrimRight(text, "=")
	if b, err := hex.DecodeString(text); err == nil {
		return len(b)
	}
	for _, encoding := range []*base64.Encoding{base64.RawURLEncoding, base64.RawStdEncoding} {
		if b, err := encoding.DecodeString(text); err == nil {
			return len(b)
		}
	}
	return 0
}

func (e *explainer) adviseNoKey() {
	base := e.conf.BaseURL.String()
	unknowns, failures := 0, []string{}
	for _, r := range e.keys.order {
		switch r.state {
		case unknown:
			unknowns++
		case unavailable:
			failures = append(failures, cause(errors.New(r.cause)))
		}
	}
	switch {
	case len(e.keys.order) == 0:
		e.say("The request contains no UUID that can be a key id. If the service signs with one key and does not " +
			"send its id, ask the operator for the id and repeat this with --key-id UUID.")
	case unknowns == 0:
		e.say("The key service at %s/v1/keys does not return a key: %s. Check baseUrl, and keysAuth if the answer is "+
			"401 or 403. Fetch a key by hand, and ask the "+
			"operator.", base, strings.Join(slices.Compact(failures), "; "))
	default:
		e.say("The key service at %s/v1/keys knows none of the %d key ids that were looked up. Either baseUrl is "+
			"that of another environment (test or production), or its path is wrong, or the request does not contain "+
			"the key id. Ask the operator for the base URL of this environment and for the id of its key. -c "+
			"baseUrl=URL tries another URL, and --key-id UUID another id.", base, unknowns)
		if len(failures) > 0 {
			e.say("Other requests failed: %s.", strings.Join(slices.Compact(failures), "; "))
		}
	}
}

// adviseChanged is for a signature that a key of the service made over a message that
// was not found.
func (e *explainer) adviseChanged(m openedSignature) {
	e.say("The signature is genuine: the owner of the key %s made it, with %s. But it is not a signature of what "+
		"arrived here, in any form that was tried. Most likely, the body was changed on the way: a proxy, a gateway, "+
		"a firewall or a test tool wrote the JSON again, decoded it or removed "+
		"something.", m.opened.key.id, m.opened.hash)
	e.say("Let the service send directly to the URL of the stack, and compare the length and the SHA-256 of the body "+
		"that the operator sent with those that arrived: %s.", e.bodyFacts())
	if len(e.timestamps) == 0 {
		e.say("The request has no text that can be a timestamp. If the service signs one and does not send it, or a " +
			"proxy removes it, the signature cannot be verified.")
	} else {
		e.say("If the body arrived unchanged, the service composes the message in another way than section 5.4 of " +
			"the interface, or signs a timestamp or key id that it does not send. Ask the operator for the exact " +
			"bytes of a signed message.")
	}
}

func (e *explainer) bodyFacts() string {
	sum := sha256.Sum256(e.request.Payload)
	return fmt.Sprintf("%d bytes, SHA-256 %s", len(e.request.Payload), hex.EncodeToString(sum[:]))
}

func (e *explainer) adviseOtherKey() {
	var sizes []string
	for _, s := range e.signatures {
		sizes = append(sizes, strconv.Itoa(len(s.bytes)))
	}
	var have []string
	same := false
	for _, k := range e.keys.found() {
		have = append(have, fmt.Sprintf("%s (%d bytes)", k.id, k.key.Size()))
		for _, s := range e.signatures {
			same = same || len(s.bytes) == k.key.Size()
		}
	}
	e.say("None of the keys that the service returns made this signature: %s.", strings.Join(have, ", "))
	if !same {
		e.say("The sizes differ: a signature has as many bytes as its key, and the request has %s. The signature was "+
			"shortened, or belongs to another key.", strings.Join(slices.Compact(sizes), ", "))
	}
	e.say("Either the request is forged, or the service signed with a key of another environment and baseUrl (%s) is "+
		"not the one that belongs to it, or the signature was changed on the way. Compare the key's thumbprint with "+
		"the operator (payhook key ID), and ask which key signed.", e.conf.BaseURL)
}

// judgeOther recognizes signatures of other kinds. It reports false if there is none.
func (e *explainer) judgeOther() bool {
	for _, s := range e.signatures {
		if e.request.isJWS(s, e.keys.found()) {
			e.report.Verdict = Unsupported
			e.differs("The %s is a JSON Web Signature (RFC 7515) of this payload. It signs another message than "+
				"section 5.4 of the interface.", strings.TrimPrefix(s.place, "third part of "))
			e.adviseMatch(match{})
			return true
		}
	}
	tries := 0
	for _, s := range e.signatures {
		for _, k := range e.keys.found() {
			for _, t := range e.timestamps {
				for _, id := range e.signedKeyIDs(k) {
					if tries++; tries > 64 {
						return false
					}
					h := crypto.SHA256.New()
					canonical.write(h, false, e.request.Payload, t.text, id.text)
					if rsa.VerifyPSS(k.key, crypto.SHA256, h.Sum(nil), s.bytes, nil) == nil {
						e.report.Verdict = Unsupported
						e.differs("The signature is RSASSA-PSS. Section 5.4 of the interface says SHA256withRSA, " +
							"which is RSASSA-PKCS1-v1_5.")
						e.adviseMatch(match{})
						return true
					}
				}
			}
		}
	}
	return false
}

// isJWS reports whether a signature is that of a JSON Web Signature of the payload.
func (r Request) isJWS(s signatureCandidate, found []*keyResult) bool {
	name, ok := strings.CutPrefix(s.place, "third part of header ")
	if !ok {
		return false
	}
	for header, text := range r.Headers {
		pieces := strings.Split(text, ".")
		if !strings.EqualFold(header, name) || len(pieces) != 3 {
			continue
		}
		for _, payload := range []string{pieces[1], base64.RawURLEncoding.EncodeToString(r.Payload),
			string(r.Payload)} {
			sum := sha256.Sum256([]byte(pieces[0] + "." + payload))
			for _, k := range found {
				if rsa.VerifyPKCS1v15(k.key, crypto.SHA256, sum[:], s.bytes) == nil ||
					rsa.VerifyPSS(k.key, crypto.SHA256, sum[:], s.bytes, nil) == nil {
					return true
				}
			}
		}
	}
	return false
}

// quoted is a short text of a request for a report.
func quoted(text string) string {
	if len(text) > 80 {
		text = text[:80] + "…"
	}
	return strconv.Quote(text)
}
